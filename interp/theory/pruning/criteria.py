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
    prune: Callable[[list[Linear], float], None]
    """Prunes the matrices to a fraction."""


def criteria(model: TransformerStack, seed: int) -> dict[str, Criterion]:
    """The criteria that apply to this model, by name. `seed` decides the random order of weights."""
    every = [module for module in model.weights.modules() if isinstance(module, Linear)]
    found = {
        "magnitude": _of_weights(every, _largest),
        "magnitude, each matrix": _of_weights(every, _largest_of_each),
        "random": _of_weights(every, partial(_random, seed=seed)),
    }
    parts = [part for block in model.stored_blocks for part in (block.attention, block.mlp)]
    for kind, name in MATRICES.items():
        matrices = [part for part in (getattr(part, name, None) for part in parts) if isinstance(part, Linear)]
        if matrices:
            found[kind] = _of_weights(matrices, _largest)
    mlps = [block.mlp for block in model.stored_blocks if block.mlp is not None]
    if mlps:
        w_in = [mlp.w_in for mlp in mlps]
        size = sum(len(matrix.weight) for matrix in w_in)
        found["structured"] = Criterion(counted=w_in, size=size, prune=partial(_units, mlps=mlps))
    return found


def _of_weights(matrices: list[Linear], how: Callable[[list[Linear], float], None]) -> Criterion:
    return Criterion(counted=matrices, size=sum(matrix.weight.numel() for matrix in matrices), prune=how)


def _largest(matrices: list[Linear], fraction: float) -> None:
    size = sum(matrix.weight.numel() for matrix in matrices)
    weights = [(matrix, "weight") for matrix in matrices]
    prune.global_unstructured(weights, prune.L1Unstructured, amount=size - round(fraction * size))


def _largest_of_each(matrices: list[Linear], fraction: float) -> None:
    for matrix in matrices:
        _largest([matrix], fraction)


def _random(matrices: list[Linear], fraction: float, *, seed: int) -> None:
    """Weights in one random order for all fractions: those kept at a smaller fraction are kept at a larger one."""
    sizes = [matrix.weight.numel() for matrix in matrices]
    order = torch.randperm(sum(sizes), generator=derived_generator(seed, "pruning curve", "random"))
    mask = torch.zeros(sum(sizes))
    mask[order[: round(fraction * len(mask))]] = 1
    for matrix, part in zip(matrices, mask.split(sizes), strict=True):
        prune.custom_from_mask(matrix, "weight", part.view_as(matrix.weight).to(matrix.weight))


def _units(w_in: list[Linear], fraction: float, *, mlps: list[MLP | DeepMLP]) -> None:
    """Prune hidden units: the row of W_in, the bias, and the column of the next matrix."""
    norms = torch.cat([matrix.weight.norm(dim=1) for matrix in w_in])
    kept = torch.zeros_like(norms)
    kept[norms.topk(round(fraction * len(norms))).indices] = 1
    for mlp, rows in zip(mlps, kept.split([len(matrix.weight) for matrix in w_in]), strict=True):
        after = mlp.w_2 if isinstance(mlp, DeepMLP) else mlp.w_out
        prune.custom_from_mask(mlp.w_in, "weight", rows[:, None].expand_as(mlp.w_in.weight))
        prune.custom_from_mask(after, "weight", rows.expand_as(after.weight))
        if mlp.w_in.bias is not None:
            prune.custom_from_mask(mlp.w_in, "bias", rows)


def restore(model: TransformerStack) -> None:
    """Remove the masks and restore the weights under them."""
    for module in model.weights.modules():
        for name in ("weight", "bias"):
            if hasattr(module, f"{name}_mask"):
                hidden = getattr(module, f"{name}_orig").data
                prune.remove(module, name)
                getattr(module, name).data = hidden
