"""Sets of heads that the search removed, what was lost, and what that shows about the heads.

Whether a set can be removed shows nothing about its subsets: without a pair of backups the answer is lost, but not if
the head that reads them is removed as well. So nothing is concluded from one set about another.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from hooks.interventions.ablation_engine import Head
from interp.auditing.significance import is_suspected
from interp.core.progress import counted
from interp.tasks.base import Score

MOST_SETS_OF_HEAD = 3
"""Number of sets returned for each head: the smallest, and of these the ones in which it costs most."""
MAY_COUNT, LIKELY_TO_COUNT = 0.5, 0.75
"""Multiples of the threshold that a head must cost beyond a set, in the search and then on further sequences, to be
tested in it. The search has few sequences and many sets, so that a head which costs less there may cost more than the
threshold, and the other way round."""
SHARED = 1.5
"""Multiple of its cost alone that a head must cost beyond a set to be tested in it. At twice its cost alone, at least
half of its work is done by the others when it is gone; the search may miss that by chance."""
MOST_LOST_BEFORE = 3.0
"""Multiple of the threshold that the others may cost, three fifths of the accuracy above chance. What a head does in a
model that is broken already is not its work."""
REMOVED_AT_ONCE = 256

Heads = tuple[Head, ...]


@runtime_checkable
class Removals(Protocol):
    """Experiments that remove sets of heads: `HeadExperiments`."""

    @property
    def heads(self) -> list[Head]: ...

    @cached_property
    def score(self) -> Score: ...

    def removed(self, sets: Sequence[Sequence[Head]]) -> Float[np.ndarray, "sample set outcome"]: ...

    def effect_products(self) -> Float[np.ndarray, "head head"]: ...


@dataclass(frozen=True)
class RemovedSet:
    """What was lost without a set of heads."""

    losses: Float[np.ndarray, " outcome"]
    """Loss on each outcome, as a multiple of the threshold: below 1 on all of them, the set is harmless."""
    costs_accuracy: bool
    """It is suspected to cost accuracy."""
    is_costly: bool
    """It is suspected to cost accuracy, and also beyond what its heads cost alone."""

    @property
    def loss(self) -> float:
        """Largest loss over outcomes."""
        return float(self.losses.max())


@dataclass
class RemovedSets:
    """All sets that were removed so far."""

    experiments: Removals
    outcomes: Sequence[int]
    """Indices of the outcomes that count."""
    threshold: Float[np.ndarray, " outcome"]
    """Loss of accuracy that counts on each of them."""
    every_input: bool = False
    """Whether the sequences are every input of the task: then no set is suspected to cost accuracy that does not."""
    by_heads: dict[frozenset[Head], RemovedSet] = field(init=False, default_factory=dict)

    def __post_init__(self):
        # Every head alone, with which the losses of sets are compared
        heads = self.experiments.heads
        self._total = self.experiments.score.total.double().numpy()[:, None, self.outcomes]
        drop = self._drop([(head,) for head in heads])
        self._drop_of_head = dict(zip(heads, drop.swapaxes(0, 1), strict=True))
        self._record([frozenset([head]) for head in heads], drop)

    def remove(self, sets: Iterable[frozenset[Head]]) -> None:
        """Remove each set that was not removed before."""
        new = [heads for heads in dict.fromkeys(sets) if heads and heads not in self.by_heads]
        batches = [new[start : start + REMOVED_AT_ONCE] for start in range(0, len(new), REMOVED_AT_ONCE)]
        for batch in counted("removing sets of heads", batches, total=len(batches)):
            self._record(batch, self._drop([tuple(sorted(heads)) for heads in batch]))

    def _drop(self, sets: Sequence[Heads]) -> Float[np.ndarray, "sample set outcome"]:
        return self.experiments.removed(sets)[:, :, self.outcomes]

    def _record(self, sets: Sequence[frozenset[Head]], drop: Float[np.ndarray, "sample set outcome"]) -> None:
        # A set is costly if it costs accuracy, and more than its heads do one at a time
        drop_alone = np.stack([sum(self._drop_of_head[head] for head in heads) for heads in sets], 1)
        costs_accuracy = is_suspected(drop, self._total, self.threshold, every_input=self.every_input)
        costs_beyond_heads = is_suspected(drop - drop_alone, self._total, self.threshold, every_input=self.every_input)
        losses = self._losses(drop)
        for index, heads in enumerate(sets):
            self.by_heads[heads] = RemovedSet(
                losses=losses[index],
                costs_accuracy=bool(costs_accuracy[index]),
                is_costly=bool(costs_accuracy[index] and costs_beyond_heads[index]),
            )

    def _losses(self, drop: Float[np.ndarray, "sample set outcome"]) -> Float[np.ndarray, "set outcome"]:
        """Loss on each outcome, as a multiple of the threshold."""
        share = drop.sum(0) / np.maximum(self._total.sum(0), 1e-300)
        return share / np.maximum(self.threshold, 1e-300)

    def loss(self, heads: frozenset[Head]) -> float:
        """Loss without a set that was removed."""
        return self.by_heads[heads].loss

    def is_harmless(self, heads: frozenset[Head]) -> bool:
        """Whether a set that was removed is harmless."""
        return self.loss(heads) < 1

    def is_costly(self, heads: frozenset[Head]) -> bool:
        """Whether a set that was removed is suspected to cost accuracy, also beyond what its heads cost alone."""
        return self.by_heads[heads].is_costly

    def smallest_harmless(self, head: Head, among: Collection[Head] | None = None) -> frozenset[Head]:
        """The smallest harmless set that has this head and others, of several the one with the smallest loss; empty if
        there is none.

        Args:
            head: A head of the set.
            among: Heads that the set may have; if None, all.
        """
        allowed = frozenset(self.experiments.heads if among is None else among)
        sets = [heads for heads in self.by_heads if len(heads) > 1 and head in heads and self.is_harmless(heads)]
        sets = [heads for heads in sets if heads <= allowed]
        return min(sets, key=lambda heads: (len(heads), self.loss(heads), sorted(heads)), default=frozenset())

    def largest_harmless(self) -> frozenset[Head]:
        """The largest harmless set, of several the one with the smallest loss."""
        sets = [heads for heads in self.by_heads if self.is_harmless(heads)]
        return max(sets, key=self._by_size_and_largest_loss, default=frozenset())

    def smallest_costing(self, needed: Collection[Head]) -> frozenset[Head]:
        """The smallest set that costs accuracy, of several the one with the largest loss; empty if there is none.

        Args:
            needed: Heads that are needed alone.
        """
        sets = [frozenset([head]) for head in needed]
        if not sets:
            sets = [heads for heads, removed in self.by_heads.items() if removed.costs_accuracy]
        return min(sets, key=self._by_size_and_largest_loss, default=frozenset())

    def _by_size_and_largest_loss(self, heads: frozenset[Head]) -> tuple[int, float, list[Head]]:
        return len(heads), -self.loss(heads), sorted(heads)

    def may_be_needed(self) -> list[Head]:
        """Heads that cost about the threshold alone, or more."""
        return [head for head in self.experiments.heads if self.loss(frozenset([head])) >= MAY_COUNT]

    def minimal_costly(self, candidates: Collection[Head]) -> list[frozenset[Head]]:
        """Costly sets of these heads without a smaller costly set inside, among those that were removed."""
        allowed = frozenset(candidates)
        costly = [heads for heads, removed in self.by_heads.items() if removed.is_costly and heads <= allowed]
        # Smaller sets first, so that any subset of a set is known before it
        minimal: list[frozenset[Head]] = []
        for heads in sorted(costly, key=len):
            if not any(smaller < heads for smaller in minimal):
                minimal.append(heads)
        return minimal

    def may_share(self) -> dict[Head, list[frozenset[Head]]]:
        """For heads that may share their work: sets beyond whose other members the head may cost accuracy.

        These are the smallest minimal costly sets in which it does, and a set in which it costs clearly more.
        """
        minimal = [heads for heads in self.minimal_costly(self.experiments.heads) if len(heads) > 1]
        every_set = [heads for heads in self.by_heads if len(heads) > 1]
        sets_of_head = {}
        for head in self.experiments.heads:
            costs_in_minimal = self.costs_beyond(head, minimal, least=MAY_COUNT)
            costs = self.costs_beyond(head, every_set, least=MAY_COUNT)
            sets_of_head[head] = smallest_sets(costs_in_minimal)
            if max(costs.values(), default=0) >= max(costs_in_minimal.values(), default=0) + MAY_COUNT:
                sets_of_head[head].append(min(costs, key=lambda heads: (-costs[heads], len(heads), sorted(heads))))
        return {head: sets for head, sets in sets_of_head.items() if sets}

    def confirmed(self, sets_of_head: Mapping[Head, Sequence[frozenset[Head]]]) -> dict[Head, tuple[Heads, ...]]:
        """Those of the sets that a search has found in which a head costs accuracy on these sequences too.

        Whoever is in one of them is tested in it, so that partners are judged by the same sets. On every input a head
        that costs less than the threshold there does so for certain; and one is not tested beyond others that leave too
        little accuracy, where the least loss would be shown.
        """
        least = 1.0 if self.every_input else LIKELY_TO_COUNT
        every_set = dict.fromkeys(heads for sets in sets_of_head.values() for heads in sets)
        self.remove(every_set)
        self.remove(heads - {head} for heads in every_set for head in sorted(heads))
        confirmed: dict[frozenset[Head], None] = {}
        for head, sets in sets_of_head.items():
            costs = self.costs_beyond(head, sets, least=least)
            confirmed |= dict.fromkeys(smallest_sets(costs))
            if costs:
                confirmed[max(costs, key=lambda heads: (costs[heads], sorted(heads)))] = None
        tested: dict[Head, list[Heads]] = {}
        for heads in confirmed:
            for head in heads:
                lost_before = self.by_heads[heads - {head}].losses
                if self.every_input and (lost_before > MOST_LOST_BEFORE).all():
                    continue
                tested.setdefault(head, []).append(tuple(sorted(heads)))
        return {head: tuple(tested[head]) for head in sorted(tested)}

    def costs_beyond(
        self, head: Head, sets: Iterable[frozenset[Head]], *, least: float
    ) -> dict[frozenset[Head], float]:
        """Those of these sets in which a head may share its work, with what it costs there beyond the others.

        On some outcome the others leave enough accuracy, and the head costs enough beyond them and clearly more than
        alone. Costs are multiples of the threshold, on the outcome on which it costs most.

        Args:
            head: A head.
            sets: Sets that were removed; those without the head, or whose others were not removed, are left out.
            least: What the head must cost beyond the others.
        """
        tried = [heads for heads in sets if head in heads and heads - {head} in self.by_heads]
        if not tried:
            return {}
        before = np.stack([self.by_heads[heads - {head}].losses for heads in tried])
        beyond = np.stack([self.by_heads[heads].losses for heads in tried]) - before
        alone = self.by_heads[frozenset([head])].losses
        may_share = (before <= MOST_LOST_BEFORE) & (beyond >= least) & (beyond >= SHARED * alone)
        costs = {}
        for index in np.flatnonzero(may_share.any(1)):
            # Also some of the others leave enough: what all of them seem to mend was broken
            other_heads = tried[index] - {head}
            leaves_enough = self.most_lost_without(other_heads) <= MOST_LOST_BEFORE
            cost = np.where(may_share[index] & leaves_enough, beyond[index], 0).max()
            if cost > 0:
                costs[tried[index]] = float(cost)
        return costs

    def most_lost_without(self, heads: frozenset[Head]) -> Float[np.ndarray, " outcome"]:
        """Largest loss on each outcome without some of these heads, over all of their subsets that were removed."""
        return np.stack([removed.losses for members, removed in self.by_heads.items() if members <= heads]).max(0)


def smallest_sets(costs: Mapping[frozenset[Head], float]) -> list[frozenset[Head]]:
    """The smallest of these sets, at most `MOST_SETS_OF_HEAD`, the costliest first."""
    size = min(map(len, costs), default=0)
    smallest = [heads for heads in costs if len(heads) == size]
    return sorted(smallest, key=lambda heads: (-costs[heads], sorted(heads)))[:MOST_SETS_OF_HEAD]
