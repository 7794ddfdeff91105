"""Which heads stand in for each other, and which undo each other? Sets worth a test, and what the test says."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hooks.ablation_engine import Head
from interp.auditing.effects import Effects, Laboratory, every_head, opposed
from interp.auditing.questions import Outcomes
from interp.auditing.redundancy import FatalSets, fatal_sets
from interp.auditing.verdicts import Tested
from interp.evaluation import score_batch

OPPOSED = 0.5
"""Pairs whose writes have a cosine below minus this are tried together: they may cancel."""


@dataclass(frozen=True)
class HeadSets:
    """Sets of heads that were removed together."""

    redundant: FatalSets
    opposed: tuple[tuple[Head, Head], ...]

    @property
    def all(self) -> list[tuple[Head, ...]]:
        return [*self.redundant.sets, *self.opposed]


def sets_to_test(searching: Laboratory, effects: Effects, judged_by: Outcomes) -> HeadSets:
    """Sets worth a test: fatal together though no head is alone; opposed pairs of which one is needed alone."""
    heads = every_head(searching.model)
    asked = np.maximum(effects.asked.sum(0), 1e-300)
    cost = (effects.drop["mean"].sum(0) / asked)[:, judged_by.places]
    needed = (cost > judged_by.threshold).any(-1)
    score = score_batch(searching.model, searching.task, searching.batch)
    asked_here = np.maximum(score.asked.double().sum(0).numpy(), 1e-300)[judged_by.places]

    def fatal(chosen: frozenset[Head]) -> bool:
        lost = searching.removed([sorted(chosen)], keep=True)[:, 0].sum(0)[judged_by.places]
        return bool((lost / asked_here > judged_by.threshold).any())

    spare = [head for head, alone in zip(heads, needed, strict=True) if not alone]
    against = [pair for pair in opposed(searching, OPPOSED) if any(needed[heads.index(head)] for head in pair)]
    return HeadSets(fatal_sets(spare, fatal, most=2 * len(heads)), tuple(against[: max(8, len(heads) // 2)]))


def redundant_partners(
    sets: HeadSets, found: Tested, alpha: float, heads: Sequence[Head]
) -> dict[Head, tuple[Head, ...]]:
    """Members of sets that matter together, each harmless alone, and their partners."""
    partners: dict[Head, set[Head]] = {}
    for index, chosen in enumerate(sets.redundant.sets):
        alone = all(found.harmless["mean"][heads.index(head)] <= alpha for head in chosen)
        if alone and found.matters["sets"][index] <= alpha:
            for head in chosen:
                partners.setdefault(head, set()).update(other for other in chosen if other != head)
    return {head: tuple(sorted(others)) for head, others in partners.items()}


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
