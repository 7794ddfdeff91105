"""Subset sums of random weights by meeting in the middle, and masks under which two random matrices give a third.

A target weight is approximated by a sum of random weights; pruning chooses which. With n random candidates there are
2^n sums, and the distance from the nearest one to a target within their range falls exponentially in n.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

MOST_CANDIDATES = 40
"""Half of these already have a million sums."""
SUMS_AT_ONCE = 1 << 15
"""Number of sums in memory at a time: small enough for a cache."""
Between = Literal["nothing", "relu", "relu, inputs not negative"]
"""What is applied between the two matrices, and the sign of the inputs."""


@dataclass(frozen=True, kw_only=True)
class Subsets:
    """For each target, a subset of its candidates."""

    chosen: Bool[Tensor, "weight candidate"]
    """Which candidates are kept."""
    total: Float[Tensor, " weight"]
    """Sum of the kept candidates."""
    error: Float[Tensor, " weight"]
    """Absolute difference between sum and target: the least over all subsets."""


@torch.no_grad()
def nearest_subsets(candidates: Float[Tensor, "weight candidate"], targets: Float[Tensor, " weight"]) -> Subsets:
    """Find, for each row of candidates, the subset whose sum is nearest to the target; the empty subset has sum 0.

    The candidates are split into two halves. All sums of both halves are computed and sorted, and the best partner of
    each sum is found by bisection: time and memory are 2^(n/2) per weight instead of 2^n. Sums are in float64.

    Args:
        candidates: One row of candidates per target, at most 40.
        targets: Values to approximate.

    Raises:
        ValueError: no candidates or too many, a number of rows other than the number of targets, or values that are
            not finite.

    Source: bounded Dyck (arXiv:2312.01429) Theorem 3, through the subset-sum argument of Pensia et al. 2020
    (arXiv:2006.07990). Differs: the search is exact; the proofs only need that a good subset exists.
    """
    n_weights, n = candidates.shape
    if not 1 <= n <= MOST_CANDIDATES or len(targets) != n_weights:
        raise ValueError(
            f"candidates is {tuple(candidates.shape)} and targets {tuple(targets.shape)}; give 1 to {MOST_CANDIDATES} "
            f"candidates for each target, one row each."
        )
    if not (candidates.isfinite().all() and targets.isfinite().all()):
        raise ValueError("candidates or targets has a value that is not finite. Did training diverge?")
    values, wanted = candidates.double().numpy(), targets.double().numpy()
    rows, chosen = max(1, SUMS_AT_ONCE >> (n - n // 2)), np.zeros((n_weights, n), dtype=bool)
    for start in range(0, n_weights, rows):
        part = slice(start, start + rows)
        chosen[part] = _nearest(values[part], wanted[part])
    total = torch.from_numpy((values * chosen).sum(1))
    return Subsets(chosen=torch.from_numpy(chosen), total=total, error=(total - targets.double()).abs())


def _nearest(
    values: Float[np.ndarray, "weight candidate"], wanted: Float[np.ndarray, " weight"]
) -> Bool[np.ndarray, "weight candidate"]:
    """Bisection needs sorted sums; a subset is then recovered by looking up its sum among the unsorted ones."""
    half = values.shape[1] // 2
    missing, right = wanted[:, None] - _all_sums(values[:, :half]), _all_sums(values[:, half:])
    needed = np.ascontiguousarray((wanted[:, None] - _all_sums(values[:, :half], ordered=True))[:, ::-1])
    there = _all_sums(values[:, half:], ordered=True)
    above = np.stack([np.searchsorted(row, sums) for row, sums in zip(there, needed, strict=True)])
    above = np.minimum(above, right.shape[1] - 1)
    below = np.maximum(above - 1, 0)
    gaps = [np.abs(np.take_along_axis(there, at, 1) - needed) for at in (above, below)]
    best = np.minimum(*gaps).argmin(1)[:, None]
    nearer = [np.take_along_axis(one, best, 1) for one in (*gaps, above, below)]
    partner = np.where(nearer[1] < nearer[0], nearer[3], nearer[2])
    first = (missing == np.take_along_axis(needed, best, 1)).argmax(1)
    second = (right == np.take_along_axis(there, partner, 1)).argmax(1)
    return np.concatenate([_members(first, half), _members(second, values.shape[1] - half)], 1)


def _all_sums(
    values: Float[np.ndarray, "weight candidate"], *, ordered: bool = False
) -> Float[np.ndarray, "weight subset"]:
    """Sums of all subsets; bit i of a subset's index says whether candidate i is in it.

    With `ordered`, the same sums in ascending order: merging two ascending halves is cheaper than sorting at the end.
    """
    sums = np.zeros((len(values), 1))
    for column in values.T:
        sums = np.concatenate([sums, sums + column[:, None]], 1)
        if ordered:
            sums.sort(1, kind="stable")
    return sums


def _members(subset: Int[np.ndarray, " weight"], n: int) -> Bool[np.ndarray, "weight candidate"]:
    """Which candidates are in the subset of this index."""
    return (subset[:, None] >> np.arange(n)) % 2 == 1


@dataclass(frozen=True, kw_only=True)
class MaskPair:
    """Masks of two matrices, and the map that the pruned pair computes."""

    first: Bool[Tensor, "row input"]
    second: Bool[Tensor, "output row"]
    achieved: Float[Tensor, "sign output input"]
    """The map for positive inputs and, if a ReLU separates the signs, the map for negative ones."""

    def error(self, target: Float[Tensor, "output input"]) -> float:
        """Spectral norm of achieved minus target, summed over the signs of inputs: an upper bound on the error."""
        return sum(float(torch.linalg.matrix_norm(part - target.double(), 2)) for part in self.achieved)


@torch.no_grad()
def mask_pair(
    first: Float[Tensor, "row input"],
    second: Float[Tensor, "output row"],
    target: Float[Tensor, "output input"],
    *,
    candidates: int,
    between: Between,
) -> MaskPair:
    """Masks under which `second @ first`, with the activation in between, approximates the target.

    The first matrix keeps one entry per row, so that each input has several copies of itself, each times a random
    number. The second selects among these copies by subset sums. Each input gets `candidates` rows, and each sign of it
    if a ReLU follows.

    Raises:
        ValueError: too few rows.

    Source: Pensia et al. 2020 (arXiv:2006.07990), as used for bounded Dyck (arXiv:2312.01429) Theorem 3. Differs: each
    input gets rows in which its entry is large, and the subset is the best one.
    """
    signs = [1.0, -1.0] if between == "relu" else [1.0]
    weight = first.double()
    strength = weight.abs() if between == "nothing" else torch.stack([weight * sign for sign in signs], -1)
    strength = strength.flatten(1).T  # (slot, row); slots are inputs, or inputs and their signs
    rows = torch.from_numpy(_assign_rows(strength.numpy(), candidates))
    rows = rows.reshape(weight.shape[1], len(signs), candidates).transpose(0, 1)  # (sign, input, candidate)
    inputs = torch.arange(weight.shape[1])[None, :, None].expand_as(rows)
    entry = weight[rows, inputs]
    if between != "nothing":
        entry = torch.where(entry * torch.tensor(signs)[:, None, None] > 0, entry, 0)  # a row of the wrong sign is dead
    products = second.double()[:, rows] * entry  # (output, sign, input, candidate)
    wanted = target.double()[:, None].expand(products.shape[:3])
    needed = wanted != 0  # the empty subset is exact for the others
    found = nearest_subsets(products[needed], wanted[needed])
    chosen = torch.zeros(products.shape, dtype=torch.bool)
    chosen[needed] = found.chosen & (products[needed] != 0)
    achieved = torch.zeros_like(wanted)
    achieved[needed] = found.total
    first_mask = torch.zeros(first.shape, dtype=torch.bool)
    first_mask[rows.flatten(), inputs.flatten()] = (entry != 0).flatten()
    second_mask = torch.zeros(second.shape, dtype=torch.bool)
    second_mask[:, rows.flatten()] = chosen.flatten(1)
    return MaskPair(first=first_mask, second=second_mask, achieved=achieved.transpose(0, 1))


def rows_needed(n_slots: int, candidates: int) -> int:
    """Number of rows that give every slot (an input, or an input and a sign) its candidates, with 20 % to spare."""
    if candidates < 1:
        raise ValueError(f"candidates is {candidates}; each weight needs at least 1.")
    return -(-n_slots * candidates * 6 // 5)


def _assign_rows(strength: Float[np.ndarray, "slot row"], each: int) -> Int[np.ndarray, "slot each"]:
    """Assign rows to slots in turns: each slot takes the remaining row that is strongest for it."""
    n_slots, n_rows = strength.shape
    if n_slots * each > n_rows:
        raise ValueError(
            f"the random network is too small: {each} candidates for each of {n_slots} inputs (and signs) need "
            f"{n_slots * each} rows, and it has {n_rows}. Make it wider, or use fewer candidates."
        )
    left, taken = strength.copy(), np.empty((n_slots, each), dtype=np.int64)
    for turn in range(each):
        for slot in range(n_slots) if turn % 2 == 0 else reversed(range(n_slots)):
            row = left[slot].argmax()
            taken[slot, turn] = row
            left[:, row] = -np.inf
    return taken
