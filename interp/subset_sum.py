"""Which of many random numbers add up to a given one? For thousands of targets at once, by meeting in the middle.

A weight of a target network is written as a sum of weights that a random network happens to have: pruning chooses
which. With n random candidates the nearest of the 2^n sums comes exponentially close to any target within reach.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

MOST_CANDIDATES = 40
"""Half of so many already have a million sums."""
SUMS_AT_ONCE = 1 << 21
"""Sums that are held at the same time."""


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
    values, wanted = candidates.double(), targets.double()
    rows = max(1, SUMS_AT_ONCE >> (n - n // 2))
    parts = [_nearest(a, b) for a, b in zip(values.split(rows), wanted.split(rows), strict=True)]
    chosen = torch.cat(parts) if parts else torch.zeros(0, n, dtype=torch.bool)
    total = (values * chosen).sum(1)
    return Subsets(chosen=chosen, total=total, error=(total - wanted).abs())


def _nearest(
    values: Float[Tensor, "weight candidate"], wanted: Float[Tensor, " weight"]
) -> Bool[Tensor, "weight candidate"]:
    half = values.shape[1] // 2
    left, right = _all_sums(values[:, :half]), _all_sums(values[:, half:])
    right, order = right.sort(1)
    missing = wanted[:, None] - left
    above = torch.searchsorted(right, missing).clamp_max(right.shape[1] - 1)
    below = (above - 1).clamp_min(0)
    gaps = [(right.gather(1, at) - missing).abs() for at in (above, below)]
    partner = torch.where(gaps[1] < gaps[0], below, above)
    first = torch.minimum(*gaps).argmin(1, keepdim=True)
    second = order.gather(1, partner.gather(1, first))
    return torch.cat([_members(first, half), _members(second, values.shape[1] - half)], 1)


def _all_sums(values: Float[Tensor, "weight candidate"]) -> Float[Tensor, "weight subset"]:
    """Sums of all subsets; bit i of a subset's number says whether candidate i is in it."""
    sums = values.new_zeros(len(values), 1)
    for column in values.unbind(1):
        sums = torch.cat([sums, sums + column[:, None]], 1)
    return sums


def _members(subset: Tensor, n: int) -> Bool[Tensor, "weight candidate"]:
    """Which candidates are in a subset of that number."""
    return (subset >> torch.arange(n)) % 2 == 1
