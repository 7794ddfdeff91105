"""Heads that a user names: pairs of integers that the model has."""

import numpy as np
import pytest
import torch

import hooks
from interp.core.heads import check_heads

MODEL = hooks.Transformer(hooks.TransformerConfig(d_vocab=5, d_model=8, n_heads=2, n_layers=2))
EXAMPLE = r"it must be a list of \(layer, head\), such as \[\(0, 0\), \(1, 1\)\]"


@pytest.mark.parametrize(
    "heads", [[(1, 0)], ((1, 0),), np.array([[1, 0]]), torch.tensor([[1, 0]]), [(np.int64(1), np.uint8(0))]]
)
def test_pairs_of_integers(heads):
    (head,) = check_heads("heads", heads, MODEL)
    assert head == (1, 0)
    assert [type(index) for index in head] == [int, int]


@pytest.mark.parametrize(
    "heads",
    [
        [(True, False)],
        [(1, True)],
        [(0, 0), (False, 1)],
        np.array([[True, False]]),
        torch.tensor([[True, False]]),
        [(1.0, 0.0)],
        [("1", "0")],
        ["10"],
        [1, 0],
        None,
    ],
)
def test_booleans_and_other_values_are_refused(heads):
    with pytest.raises(ValueError, match=rf"^heads is .*; {EXAMPLE}"):
        check_heads("heads", heads, MODEL)
