"""Matrices that users give to the theory: any byte order, memory order and precision, or an error that names them."""

import numpy as np
import pytest
import torch

from interp.theory import MLPKernel, TransformerKernel
from interp.theory.pruning import nearest_subsets, prune_to_linear, prune_to_mlp

pytestmark = pytest.mark.usefixtures("as_a_user")

MATRIX = np.array([[0.5, -0.25], [0.125, 0.375], [0.0, 0.25]])


def read_only(values):
    values = values.copy()
    values.flags.writeable = False
    return values


FORMS = {
    "float32": lambda values: torch.from_numpy(values).float(),
    "float16": lambda values: torch.from_numpy(values).half(),
    "bfloat16": lambda values: torch.from_numpy(values).bfloat16(),
    "with gradient": lambda values: torch.from_numpy(values).float().requires_grad_(),
    "array": lambda values: values,
    "big-endian": lambda values: values.astype(">f8"),
    "big-endian half": lambda values: values.astype(">f2"),
    "by columns": np.asfortranarray,
    "reversed": lambda values: values[::-1].copy()[::-1],
    "read-only": read_only,
    "tensor by columns": lambda values: torch.from_numpy(np.asfortranarray(values)),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_matrix_gives_the_same(form):
    make = FORMS[form]
    plain = torch.from_numpy(MATRIX)
    result = prune_to_linear(make(MATRIX), candidates=6)
    assert result.error == prune_to_linear(plain, candidates=6).error
    result = prune_to_mlp(make(MATRIX), make(MATRIX.T.copy()), candidates=6)
    assert result.error == prune_to_mlp(plain, plain.T, candidates=6).error
    subsets = nearest_subsets(make(MATRIX), make(MATRIX.sum(1)))
    assert subsets.error.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("weight", "words"),
    [
        ([[1.0]], "weight is [[1.0]]; it must be a tensor or an array."),
        (None, "weight is None; it must be a tensor or an array."),
        (np.array([["a"]]), "weight is an array of <U1; give a tensor"),
        (MATRIX > 0, "weight is an array of bool; give a tensor"),
        (MATRIX * 1j, "weight is an array of complex128; give a tensor"),
        (torch.eye(2) > 0, "weight has type torch.bool, layout torch.strided, device cpu; give a tensor"),
        (torch.eye(2).to_sparse(), "weight has type torch.float32, layout torch.sparse_coo, device cpu; give a tensor"),
        (
            torch.eye(2, device="meta"),
            "weight has type torch.float32, layout torch.strided, device meta; give a",
        ),
        (torch.ones(2), "weight has shape (2,); give a tensor or an array of finite numbers, (output, input)."),
        (torch.ones(1, 2, 2), "weight has shape (1, 2, 2); give a tensor"),
        (torch.ones(0, 2), "weight has shape (0, 2); it must have a row and a column at least."),
        (torch.tensor([[torch.nan]]), "weight has a value that is not finite"),
        (np.array([[np.inf]]), "weight has a value that is not finite"),
    ],
)
def test_what_is_no_matrix_is_named(weight, words):
    with pytest.raises(ValueError, match=r"^weight") as error:
        prune_to_linear(weight)
    assert str(error.value).startswith(words)
    with pytest.raises(ValueError, match=r"^candidates "):
        nearest_subsets(weight, torch.ones(5))


@pytest.mark.parametrize("kernel", [MLPKernel(), TransformerKernel(n_draws=16)], ids=["mlp", "transformer"])
def test_token_ids_of_every_form(kernel):
    ids = np.array([[1, 2, 0], [1, 1, 0], [3, 1, 0]])
    gram = kernel.gram(ids)
    for form in (
        torch.from_numpy(ids).int(),
        ids.astype(">i4"),
        np.asfortranarray(ids),
        read_only(ids),
        ids.astype("u1"),
    ):
        assert (kernel.gram(form) == gram).all()
        assert (kernel.gram(form, ids) == gram).all()
    for wrong in (ids * 1.0, torch.from_numpy(ids) * 0.5, ids - 1, ids > 1, ids[:0], ids[0]):
        with pytest.raises(ValueError, match=r"x has shape .*; give token ids, integers from 0"):
            kernel.gram(wrong)
