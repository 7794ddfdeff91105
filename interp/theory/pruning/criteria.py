"""Pruning criteria: which weights or hidden units of a trained model to keep, by magnitude, norm or at random."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch.nn.utils import prune

from hooks import TransformerStack
from hooks.model.blocks import MLP, DeepMLP
from hooks.model.layers import Linear
from interp.core.randomness import derived_generator

MATRICES = {"W_Q": "q", "W_K": "k", "W_V": "v", "W_O": "o", "W_in": "w_in", "W_out": "w_out"}
"""Each kind of matrix, and its attribute in a block's attention or MLP."""


@dataclass(frozen=True, kw_only=True)
class Criterion:
    """One way to choose what to keep."""

    counted: list[Linear]
    """Matrices whose masks give the fraction kept."""
    size: int
    """Number of weights or units to choose from."""
    prune: Callable[[float], None]
    """Prunes the model to a fraction of its weights or units."""


def weight_criteria(model: TransformerStack, seed: int) -> dict[str, Criterion]:
    """The criteria for weights and units that apply to this model, by name. `seed` decides the order of `random`."""
    # Weights of all matrices
    matrices = [module for module in model.weights.modules() if isinstance(module, Linear)]
    criteria = {
        "magnitude": _criterion(matrices, _keep_largest),
        "magnitude, each matrix": _criterion(matrices, _keep_largest_of_each),
        "random": _criterion(matrices, partial(_keep_random, seed=seed)),
    }
    # Weights of one kind of matrix, where the model has it
    modules = [module for block in model.stored_blocks for module in (block.attention, block.mlp)]
    for kind, attribute in MATRICES.items():
        of_kind = [getattr(module, attribute, None) for module in modules]
        matrices = [matrix for matrix in of_kind if isinstance(matrix, Linear)]
        if matrices:
            criteria[kind] = _criterion(matrices, _keep_largest)
    # Hidden units
    mlps = [block.mlp for block in model.stored_blocks if block.mlp is not None]
    if mlps:
        w_in = [mlp.w_in for mlp in mlps]
        n_units = sum(len(matrix.weight) for matrix in w_in)
        criteria["structured"] = Criterion(counted=w_in, size=n_units, prune=partial(_keep_units, mlps))
    return criteria


def _criterion(matrices: list[Linear], keep: Callable[[list[Linear], float], None]) -> Criterion:
    return Criterion(counted=matrices, size=_n_weights(matrices), prune=partial(keep, matrices))


def _n_weights(matrices: list[Linear]) -> int:
    return sum(matrix.weight.numel() for matrix in matrices)


def _keep_largest(matrices: list[Linear], fraction: float) -> None:
    size = _n_weights(matrices)
    weights = [(matrix, "weight") for matrix in matrices]
    prune.global_unstructured(weights, prune.L1Unstructured, amount=size - round(fraction * size))


def _keep_largest_of_each(matrices: list[Linear], fraction: float) -> None:
    for matrix in matrices:
        _keep_largest([matrix], fraction)


def _keep_random(matrices: list[Linear], fraction: float, *, seed: int) -> None:
    """Keep weights in one random order for all fractions: those kept at a smaller fraction are kept at a larger one."""
    size = _n_weights(matrices)
    order = torch.randperm(size, generator=derived_generator(seed, "pruning curve", "random"))
    mask = torch.zeros(size)
    mask[order[: round(fraction * size)]] = 1
    masks = mask.split([matrix.weight.numel() for matrix in matrices])
    for matrix, matrix_mask in zip(matrices, masks, strict=True):
        prune.custom_from_mask(matrix, "weight", matrix_mask.view_as(matrix.weight).to(matrix.weight))


def _keep_units(mlps: list[MLP | DeepMLP], fraction: float) -> None:
    """Keep hidden units with the largest norms: the row of W_in, the bias, and the column of the next matrix."""
    norms = torch.cat([mlp.w_in.weight.norm(dim=1) for mlp in mlps])
    mask = torch.zeros_like(norms)
    mask[norms.topk(round(fraction * len(norms))).indices] = 1
    masks = mask.split([len(mlp.w_in.weight) for mlp in mlps])
    for mlp, units in zip(mlps, masks, strict=True):
        next_matrix = mlp.w_2 if isinstance(mlp, DeepMLP) else mlp.w_out
        prune.custom_from_mask(mlp.w_in, "weight", units[:, None].expand_as(mlp.w_in.weight))
        prune.custom_from_mask(next_matrix, "weight", units.expand_as(next_matrix.weight))
        if mlp.w_in.bias is not None:
            prune.custom_from_mask(mlp.w_in, "bias", units)


def restore(model: TransformerStack) -> None:
    """Remove the masks and restore the weights under them."""
    for module in model.weights.modules():
        for name in ("weight", "bias"):
            if hasattr(module, f"{name}_mask"):
                original = getattr(module, f"{name}_orig").data
                prune.remove(module, name)
                getattr(module, name).data = original
