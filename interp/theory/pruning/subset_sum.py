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

from hooks.checks import check_number
from hooks.typed import checks_types
from interp.theory.arrays import finite_tensor

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


@checks_types
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
    candidates = finite_tensor("candidates", candidates, "weight candidate")
    targets = finite_tensor("targets", targets, "weight")
    n_weights, n = candidates.shape
    if not 1 <= n <= MOST_CANDIDATES or len(targets) != n_weights:
        raise ValueError(
            f"candidates is {tuple(candidates.shape)} and targets {tuple(targets.shape)}; give 1 to {MOST_CANDIDATES} "
            f"candidates for each target, one row each."
        )
    # Search for as many weights at a time as have their sums in the cache
    values, target_values = candidates.numpy(), targets.numpy()
    n_rows = max(1, SUMS_AT_ONCE >> (n - n // 2))
    chosen = np.zeros((n_weights, n), dtype=bool)
    for start in range(0, n_weights, n_rows):
        rows = slice(start, start + n_rows)
        chosen[rows] = _nearest(values[rows], target_values[rows])
    total = torch.from_numpy((values * chosen).sum(1))
    return Subsets(chosen=torch.from_numpy(chosen), total=total, error=(total - targets).abs())


def _nearest(
    values: Float[np.ndarray, "weight candidate"], targets: Float[np.ndarray, " weight"]
) -> Bool[np.ndarray, "weight candidate"]:
    """Bisection needs sorted sums; a subset is then recovered by looking up its sum among the unsorted ones."""
    half = values.shape[1] // 2
    first_half = values[:, :half]
    second_half = values[:, half:]
    # For each sum of the first half, what the second half must add, in ascending order
    remainders = np.ascontiguousarray((targets[:, None] - _all_sums(first_half, ordered=True))[:, ::-1])
    sums = _all_sums(second_half, ordered=True)
    # The nearest sums of the second half, above and below
    above = np.stack([np.searchsorted(row, remainder) for row, remainder in zip(sums, remainders, strict=True)])
    above = np.minimum(above, sums.shape[1] - 1)
    below = np.maximum(above - 1, 0)
    gap_above = np.abs(np.take_along_axis(sums, above, 1) - remainders)
    gap_below = np.abs(np.take_along_axis(sums, below, 1) - remainders)
    # The best pair of sums
    best = np.minimum(gap_above, gap_below).argmin(1)[:, None]
    below_is_nearer = np.take_along_axis(gap_below, best, 1) < np.take_along_axis(gap_above, best, 1)
    partner = np.where(below_is_nearer, np.take_along_axis(below, best, 1), np.take_along_axis(above, best, 1))
    best_remainder, best_sum = np.take_along_axis(remainders, best, 1), np.take_along_axis(sums, partner, 1)
    first = (targets[:, None] - _all_sums(first_half) == best_remainder).argmax(1)
    second = (_all_sums(second_half) == best_sum).argmax(1)
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
        return sum(float(torch.linalg.matrix_norm(matrix - target.double(), 2)) for matrix in self.achieved)


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
    weight = first.double()
    n_inputs = weight.shape[1]
    signs = torch.tensor([1.0, -1.0] if between == "relu" else [1.0])

    # Assign rows in which the entry is large to each slot: an input, or an input and a sign
    strength = weight.abs()[..., None] if between == "nothing" else weight[..., None] * signs
    rows = torch.from_numpy(_assign_rows(strength.flatten(1).T.numpy(), candidates))
    rows = rows.reshape(n_inputs, len(signs), candidates).transpose(0, 1)  # (sign, input, candidate)
    inputs = torch.arange(n_inputs)[None, :, None].expand_as(rows)
    entries = weight[rows, inputs]
    if between != "nothing":
        entries = torch.where(entries * signs[:, None, None] > 0, entries, 0)  # a row of the wrong sign is dead

    # Choose the subsets; of targets that are zero, the empty subset is exact
    products = second.double()[:, rows] * entries  # (output, sign, input, candidate)
    targets = target.double()[:, None].expand(products.shape[:3])
    nonzero = targets != 0
    subsets = nearest_subsets(products[nonzero], targets[nonzero])
    chosen = torch.zeros(products.shape, dtype=torch.bool)
    chosen[nonzero] = subsets.chosen & (products[nonzero] != 0)
    achieved = torch.zeros_like(targets)
    achieved[nonzero] = subsets.total

    first_mask = torch.zeros(first.shape, dtype=torch.bool)
    first_mask[rows.flatten(), inputs.flatten()] = (entries != 0).flatten()
    second_mask = torch.zeros(second.shape, dtype=torch.bool)
    second_mask[:, rows.flatten()] = chosen.flatten(1)
    return MaskPair(first=first_mask, second=second_mask, achieved=achieved.transpose(0, 1))


def rows_needed(n_slots: int, candidates: int) -> int:
    """Number of rows that give every slot (an input, or an input and a sign) its candidates, with 20 % to spare."""
    check_number("candidates", candidates, integer=True, above=0)
    return -(-n_slots * candidates * 6 // 5)


def _assign_rows(strength: Float[np.ndarray, "slot row"], n_each: int) -> Int[np.ndarray, "slot each"]:
    """Assign rows to slots in turns: each slot takes the remaining row that is strongest for it."""
    n_slots, n_rows = strength.shape
    if n_slots * n_each > n_rows:
        raise ValueError(
            f"the random network is too small: {n_each} candidates for each of {n_slots} inputs (and signs) need "
            f"{n_slots * n_each} rows, and it has {n_rows}. Make it wider, or use fewer candidates."
        )
    # Slots choose in order, then in reverse order
    remaining = strength.copy()
    assigned = np.empty((n_slots, n_each), dtype=np.int64)
    for turn in range(n_each):
        slots = range(n_slots) if turn % 2 == 0 else reversed(range(n_slots))
        for slot in slots:
            row = remaining[slot].argmax()
            assigned[slot, turn] = row
            remaining[:, row] = -np.inf
    return assigned
