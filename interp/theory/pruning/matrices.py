"""Pruning random matrices, with a ReLU between them, to a linear map or to a two-layer MLP."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import prune

from hooks.checks import check_number
from hooks.model.layers import Linear
from hooks.typed import checks_types
from interp.core.randomness import derived_generator
from interp.theory.arrays import finite_tensor
from interp.theory.pruning.network import masks_of
from interp.theory.pruning.result import PruningResult, unit_ball_result, within_tolerance
from interp.theory.pruning.subset_sum import Between, mask_pair, rows_needed
from interp.theory.pruning.target import scale_for, spectral_norm


@checks_types
def prune_to_linear(
    weight: Float[Tensor, "output input"],
    *,
    candidates: int = 28,
    rescale: bool = False,
    tolerance: float | None = None,
    seed: int = 0,
) -> PruningResult:
    """Prune y = W_2 relu(W_1 x), with two random matrices, to y = W x.

    Args:
        weight: The target map, of spectral norm 1 at most.
        candidates: Random numbers to choose from, for each weight of the target and each sign of the input.
        rescale: Accept a larger norm, and scale the random weights by it.
        tolerance: Largest error accepted; if None, any.
        seed: Seed of the random matrices and the inputs.

    Raises:
        ValueError: a weight that is no matrix of finite numbers, a map outside the theorem's ball, no candidates, or
            too few for the tolerance (with a number that is enough).

    Example:
        >>> import torch
        >>> from interp.theory.pruning import prune_to_linear
        >>> result = prune_to_linear(torch.eye(2), candidates=14)
        >>> print(len(result.network), result.error < 0.01)
        3 True

    Source: Pensia et al. 2020 (arXiv:2006.07990) Lemma 1; see `mask_pair`.
    """
    weight = _matrix("weight", weight, "output input")
    check_number("candidates", candidates, integer=True, above=0)
    name = f"linear map {_shape(weight)}"
    result = _prune_matrices(name, [weight], candidates=candidates, rescale=rescale, seed=seed)
    return within_tolerance(result, tolerance, partial(prune_to_linear, weight, rescale=rescale, seed=seed))


@checks_types
def prune_to_mlp(
    w_in: Float[Tensor, "hidden input"],
    w_out: Float[Tensor, "output hidden"],
    *,
    candidates: int = 28,
    rescale: bool = False,
    tolerance: float | None = None,
    seed: int = 0,
) -> PruningResult:
    """Prune a ReLU network of four random matrices to y = W_out relu(W_in x).

    Both target matrices have a spectral norm of 1 at most. The options are those of `prune_to_linear`.

    Raises:
        ValueError: matrices whose shapes do not fit, or as `prune_to_linear`.
    """
    w_in = _matrix("w_in", w_in, "hidden input")
    w_out = _matrix("w_out", w_out, "output hidden")
    check_number("candidates", candidates, integer=True, above=0)
    if w_out.shape[1] != len(w_in):
        raise ValueError(f"w_out is {_shape(w_out)} and w_in {_shape(w_in)}; w_out needs {len(w_in)} columns.")
    name = f"MLP {w_in.shape[1]}-{len(w_in)}-{len(w_out)}"
    result = _prune_matrices(name, [w_in, w_out], candidates=candidates, rescale=rescale, seed=seed)
    return within_tolerance(result, tolerance, partial(prune_to_mlp, w_in, w_out, rescale=rescale, seed=seed))


@torch.no_grad()
def _prune_matrices(
    name: str, targets: Sequence[Float[Tensor, "_ _"]], *, candidates: int, rescale: bool, seed: int
) -> PruningResult:
    """Prune two random matrices to each target matrix, with a ReLU between all of them."""
    norms = [spectral_norm(target) for target in targets]
    scale = scale_for({f"the {name}": max(norms)}, rescale=rescale)
    generator = derived_generator(seed, "random matrices")
    linears: list[Linear] = []
    # Bounds on the error after each pair of matrices, and on the norm of what enters the next pair
    error_bound, norm_bound = 0.0, 1.0
    for index, target in enumerate(targets):
        # All inputs but the first are outputs of a ReLU
        between: Between = "relu, inputs not negative" if index else "relu"
        n_outputs, n_inputs = target.shape
        n_slots = n_inputs if index else 2 * n_inputs
        n_rows = rows_needed(n_slots, candidates)
        first = _random_linear((n_rows, n_inputs), scale, generator)
        second = _random_linear((n_outputs, n_rows), scale, generator)
        pair = mask_pair(first.weight, second.weight, target, candidates=candidates, between=between)
        prune.custom_from_mask(first, "weight", pair.first)
        prune.custom_from_mask(second, "weight", pair.second)
        linears += [first, second]
        error_bound = norms[index] * error_bound + pair.error(target) * (norm_bound + error_bound)
        norm_bound *= norms[index]
    modules: list[nn.Module] = [linears[0]]
    for linear in linears[1:]:
        modules += [nn.ReLU(), linear]
    network = nn.Sequential(*modules).double()

    def difference(x: Tensor) -> Tensor:
        y = F.linear(x, targets[0])
        for target in targets[1:]:
            y = F.linear(y.relu(), target)
        return (network(x) - y).norm(dim=-1)

    return unit_ball_result(
        name,
        difference,
        (targets[0].shape[1],),
        masks_of(network),
        network,
        bound=error_bound,
        candidates=candidates,
        scale=scale,
        seed=seed,
    )


def _random_linear(shape: tuple[int, int], scale: float, generator: torch.Generator) -> Linear:
    linear = Linear(shape[1], shape[0], bias=False)
    linear.weight.copy_((2 * torch.rand(shape, generator=generator, dtype=torch.float32) - 1) * scale**0.5)
    return linear.requires_grad_(False)


def _matrix(name: str, values: Any, axes: str) -> Float[Tensor, "_ _"]:
    """A matrix that is not empty, in float64."""
    matrix = finite_tensor(name, values, axes)
    if not matrix.numel():
        raise ValueError(f"{name} has shape {tuple(matrix.shape)}; it must have a row and a column at least.")
    return matrix


def _shape(weight: Tensor) -> str:
    return " x ".join(map(str, weight.shape))
