"""Which heads stand in for each other, and which undo each other? Sets worth a test, and what the test says."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from jaxtyping import Float

from hooks.interventions.ablation_engine import Head
from interp.auditing.effects import Effects, Laboratory, every_head, opposed
from interp.auditing.questions import Outcomes
from interp.auditing.redundancy import FatalSets, fatal_sets
from interp.auditing.verdicts import Tested
from interp.core.statistics import drop_tests

OPPOSED = 0.5
"""Pairs whose writes have a cosine below minus this are tried together: they may cancel."""
SUSPECTED = 0.05
"""p at which a set is followed up in the search. Whatever it finds is tested again, on other sequences, at the audit's
level."""


@dataclass(frozen=True)
class HeadSets:
    """Sets of heads that were removed together."""

    redundant: FatalSets
    opposed: tuple[tuple[Head, Head], ...]

    @property
    def all(self) -> list[tuple[Head, ...]]:
        """Every set."""
        return [*self.redundant.sets, *self.opposed]


def sets_to_test(searching: Laboratory, effects: Effects, judged_by: Outcomes) -> HeadSets:
    """Sets worth a test: fatal together though no head is alone; opposed pairs of which one is needed alone.

    Args:
        searching: Other sequences than those of the effects, fewer of them.
        effects: What heads cost one by one.
        judged_by: The outcomes that count.
    """
    heads = every_head(searching.model)
    asked = np.maximum(effects.total.sum(0), 1e-300)
    cost = (effects.drop["mean"].sum(0) / asked)[:, judged_by.places]
    needed = (cost > judged_by.threshold).any(-1)
    spare = [head for head, alone in zip(heads, needed, strict=True) if not alone]
    asked_here = searching.total[:, judged_by.places]

    @cache
    def lost(*chosen: Head) -> Float[np.ndarray, "sample outcome"]:
        return searching.removed([chosen], keep=True)[:, 0, judged_by.places]

    def suspect(drop: Float[np.ndarray, "sample outcome"]) -> bool:
        p, _ = drop_tests(drop, asked_here, judged_by.threshold)
        return bool(p.min() * len(p) <= SUSPECTED)

    def fatal(chosen: frozenset[Head]) -> bool:
        together = lost(*sorted(chosen))  # what costs little together is not worth taking apart
        return suspect(together) and suspect(together - sum(lost(head) for head in chosen))

    against = [pair for pair in opposed(searching, OPPOSED) if any(needed[heads.index(head)] for head in pair)]
    return HeadSets(fatal_sets(spare, fatal), tuple(against[: max(8, len(heads) // 2)]))


def set_effects(
    sets: HeadSets, together: Float[np.ndarray, "sample set outcome"], effects: Effects, heads: Sequence[Head]
) -> Float[np.ndarray, "sample set outcome"]:
    """What verdicts go by: of fatal sets what they cost beyond their heads alone, of opposed pairs all they cost."""
    more = together.copy()
    for index, chosen in enumerate(sets.redundant.sets):
        more[:, index] -= effects.drop["mean"][:, [heads.index(head) for head in chosen]].sum(1)
    return more


def redundant_partners(
    sets: HeadSets, found: Tested, alpha: float, heads: Sequence[Head]
) -> dict[Head, tuple[Head, ...]]:
    """Members of sets that matter beyond their heads alone, each itself harmless alone; partners in the smallest."""
    partners: dict[Head, tuple[Head, ...]] = {}
    for index, chosen in sorted(enumerate(sets.redundant.sets), key=lambda entry: len(entry[1])):
        for head in chosen if found.matters["sets"][index] <= alpha else ():
            if found.harmless["mean"][heads.index(head)] <= alpha:
                partners.setdefault(head, tuple(other for other in chosen if other != head))
    return partners


def cancelled_partners(
    sets: HeadSets, found: Tested, alpha: float, heads: Sequence[Head]
) -> dict[Head, tuple[Head, ...]]:
    """Heads that matter alone and are harmless together with one that writes against them."""
    partners: dict[Head, tuple[Head, ...]] = {}
    for index, chosen in enumerate(sets.opposed, start=len(sets.redundant.sets)):
        if found.harmless["sets"][index] <= alpha:
            for head, other in (chosen, chosen[::-1]):
                if found.matters["mean"][heads.index(head)] <= alpha:
                    partners[head] = (*partners.get(head, ()), other)
    return partners
