"""Which of many random numbers add up to a given one? For thousands of targets at once, by meeting in the middle.

A weight of a target network is written as a sum of weights that a random network happens to have: pruning chooses
which. With n random candidates the nearest of the 2^n sums comes exponentially close to any target within reach.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

MOST_CANDIDATES = 40
"""Half of so many already have a million sums."""
SUMS_AT_ONCE = 1 << 15
"""Sums that are held at the same time: few enough for a cache."""


@dataclass(frozen=True, kw_only=True)
class Subsets:
    """For each target a choice among its candidates."""

    chosen: Bool[Tensor, "weight candidate"]
    """Which candidates are kept."""
    total: Float[Tensor, " weight"]
    """What they add up to."""
    error: Float[Tensor, " weight"]
    """How far that is from the target: no subset comes nearer."""


@torch.no_grad()
def nearest_subsets(candidates: Float[Tensor, "weight candidate"], targets: Float[Tensor, " weight"]) -> Subsets:
    """The subset of each row whose sum is nearest to its target; the empty one counts, its sum is 0.

    The candidates are split in two halves; all sums of each are made, those of one are sorted, and for each of the
    other the best partner is found by bisection: time and memory 2^(n/2) per weight where trying all takes 2^n. Sums
    are in float64.

    Args:
        candidates: One row of candidates for each target, at most 40.
        targets: What to come near to.

    Raises:
        ValueError: no or too many candidates, another number of rows than targets, or values that are not finite.

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
    """Both halves are sorted, since sorted values are found fastest; their subsets are then known by their sums."""
    half = values.shape[1] // 2
    missing, right = wanted[:, None] - _all_sums(values[:, :half]), _all_sums(values[:, half:])
    asked = np.ascontiguousarray((wanted[:, None] - _all_sums(values[:, :half], ordered=True))[:, ::-1])
    there = _all_sums(values[:, half:], ordered=True)
    above = np.stack([np.searchsorted(row, sums) for row, sums in zip(there, asked, strict=True)])
    above = np.minimum(above, right.shape[1] - 1)
    below = np.maximum(above - 1, 0)
    gaps = [np.abs(np.take_along_axis(there, at, 1) - asked) for at in (above, below)]
    best = np.minimum(*gaps).argmin(1)[:, None]
    nearer = [np.take_along_axis(one, best, 1) for one in (*gaps, above, below)]
    partner = np.where(nearer[1] < nearer[0], nearer[3], nearer[2])
    first = (missing == np.take_along_axis(asked, best, 1)).argmax(1)
    second = (right == np.take_along_axis(there, partner, 1)).argmax(1)
    return np.concatenate([_members(first, half), _members(second, values.shape[1] - half)], 1)


def _all_sums(
    values: Float[np.ndarray, "weight candidate"], *, ordered: bool = False
) -> Float[np.ndarray, "weight subset"]:
    """Sums of all subsets; bit i of a subset's number says whether candidate i is in it.

    Or the same sums, bit by bit, in ascending order: two ascending halves are merged, which is cheaper than sorting.
    """
    sums = np.zeros((len(values), 1))
    for column in values.T:
        sums = np.concatenate([sums, sums + column[:, None]], 1)
        if ordered:
            sums.sort(1, kind="stable")
    return sums


def _members(subset: Int[np.ndarray, " weight"], n: int) -> Bool[np.ndarray, "weight candidate"]:
    """Which candidates are in a subset of that number."""
    return (subset[:, None] >> np.arange(n)) % 2 == 1
