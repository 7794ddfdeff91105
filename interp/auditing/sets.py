"""Search for sets of heads that are needed together, and for sets that are harmless together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Float

from hooks.interventions.ablation_engine import Head
from interp.auditing.experiments import HeadExperiments
from interp.core.statistics import drop_tests

SUSPECTED = 0.05
"""p value at which the search follows up a set. Whatever it finds is tested again, on other sequences and at the
audit's level."""
EXACT = 8
"""Largest number of heads for which every set is tried; beyond it, pairs are."""


@dataclass(frozen=True)
class HeadSets:
    """Sets of heads found on the sequences of a search."""

    harmful: tuple[tuple[Head, ...], ...]
    """Minimal sets that cost more than their heads alone, none of which is needed alone."""
    cancelling: tuple[tuple[Head, ...], ...]
    """Smallest harmless sets that contain a head which is needed alone."""
    largest_harmless: tuple[Head, ...]
    smallest_harmful: tuple[Head, ...]
    exact: bool
    """Whether every set was tried."""
    n_removals: int


def find_sets(
    search: HeadExperiments,
    needed: Mapping[Head, bool],
    outcomes: Sequence[int],
    threshold: Float[np.ndarray, " outcome"],
) -> HeadSets:
    """Find sets of heads that are needed together, and sets that are harmless although some are needed alone.

    Args:
        search: Experiments on other, fewer sequences than those of the audit.
        needed: Whether each head is needed alone.
        outcomes: Indices of the outcomes that count.
        threshold: Loss of accuracy that counts on each of them.
    """
    heads = search.heads
    largest = len(heads) if len(heads) <= EXACT else 2
    sets = [chosen for size in range(1, largest + 1) for chosen in combinations(heads, size)]
    total = search.score().total.double().numpy()[:, outcomes]
    lost = search.removed(sets)[:, :, outcomes]
    drop = {frozenset(chosen): lost[:, index] for index, chosen in enumerate(sets)}
    rate = {chosen: one.sum(0) / np.maximum(total.sum(0), 1e-300) for chosen, one in drop.items()}

    def suspect(one: np.ndarray) -> bool:
        p, _ = drop_tests(one, total, threshold)
        return bool(p.min() * len(p) <= SUSPECTED)

    harmful: list[tuple[Head, ...]] = []
    cancelling: dict[Head, tuple[Head, ...]] = {}
    for chosen in sets:
        whole = frozenset(chosen)
        if len(chosen) == 1:
            continue
        if any(needed[head] for head in chosen):
            if (rate[whole] < threshold).all():
                for head in chosen:
                    if needed[head]:
                        cancelling.setdefault(head, chosen)
            continue
        more = drop[whole] - sum(drop[frozenset([head])] for head in chosen)
        if not any(set(one) <= whole for one in harmful) and suspect(drop[whole]) and suspect(more):
            harmful.append(chosen)
    harmless = [chosen for chosen in sets if (rate[frozenset(chosen)] < threshold).all()]
    costly = [chosen for chosen in sets if (rate[frozenset(chosen)] >= threshold).any()]
    return HeadSets(
        harmful=tuple(harmful),
        cancelling=tuple(dict.fromkeys(cancelling.values())),
        largest_harmless=max(harmless, key=len, default=()),
        smallest_harmful=min(costly, key=len, default=()),
        exact=largest == len(heads),
        n_removals=len(sets),
    )
