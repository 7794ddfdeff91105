"""Sets of heads that the search removed, what was lost, and what that shows about the heads.

Whether a set can be removed shows nothing about its subsets: without a pair of backups the answer is lost, but not if
the head that reads them is removed as well. So nothing is concluded from one set about another.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from hooks.interventions.ablation_engine import Head
from interp.auditing.significance import is_suspected
from interp.core.progress import counted
from interp.tasks.base import Score

MOST_SETS_OF_HEAD = 8
"""Number of sets returned for each head that is not needed alone: the smallest, and of these the ones in which it costs
most."""
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

    loss: float
    """Largest loss over outcomes, as a multiple of the threshold: below 1, the set is harmless."""
    costs_accuracy: bool
    """It is suspected to cost accuracy."""
    is_costly: bool
    """It is suspected to cost accuracy, and also beyond what its heads cost alone."""
    drop: Float[np.ndarray, "sample outcome"]
    """Right answers lost."""


@dataclass
class RemovedSets:
    """All sets that were removed so far."""

    experiments: Removals
    outcomes: Sequence[int]
    """Indices of the outcomes that count."""
    threshold: Float[np.ndarray, " outcome"]
    """Loss of accuracy that counts on each of them."""
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
        costs_accuracy = is_suspected(drop, self._total, self.threshold)
        costs_beyond_heads = is_suspected(drop - drop_alone, self._total, self.threshold)
        losses = self._losses(drop)
        for index, heads in enumerate(sets):
            self.by_heads[heads] = RemovedSet(
                loss=float(losses[index]),
                costs_accuracy=bool(costs_accuracy[index]),
                is_costly=bool(costs_accuracy[index] and costs_beyond_heads[index]),
                drop=drop[:, index].astype(np.float32),
            )

    def _losses(self, drop: Float[np.ndarray, "sample set outcome"]) -> Float[np.ndarray, " set"]:
        """Largest loss over outcomes, as a multiple of the threshold."""
        share = drop.sum(0) / np.maximum(self._total.sum(0), 1e-300)
        return (share / np.maximum(self.threshold, 1e-300)).max(-1)

    def loss(self, heads: frozenset[Head]) -> float:
        """Loss without a set that was removed."""
        return self.by_heads[heads].loss

    def is_harmless(self, heads: frozenset[Head]) -> bool:
        """Whether a set that was removed is harmless."""
        return self.loss(heads) < 1

    def is_costly(self, heads: frozenset[Head]) -> bool:
        """Whether a set that was removed is suspected to cost accuracy, also beyond what its heads cost alone."""
        return self.by_heads[heads].is_costly

    def smallest_harmless(self, head: Head) -> frozenset[Head]:
        """The smallest harmless set that has this head and others, of several the one with the smallest loss; empty if
        there is none."""
        sets = [heads for heads in self.by_heads if len(heads) > 1 and head in heads and self.is_harmless(heads)]
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

    def needed_in(self, candidates: Collection[Head]) -> dict[Head, tuple[Heads, ...]]:
        """For each of these heads: the smallest minimal costly sets in which it costs more than the threshold."""
        minimal = [heads for heads in self.minimal_costly(candidates) if len(heads) > 1]
        needed_in: dict[Head, tuple[Heads, ...]] = {}
        for head in sorted(candidates):
            sets = [heads for heads in minimal if head in heads and heads - {head} in self.by_heads]
            if not sets:
                continue
            # What the head costs once the others of the set are gone
            drops = [self.by_heads[heads].drop - self.by_heads[heads - {head}].drop for heads in sets]
            drop = np.stack(drops, 1).astype(float)
            losses = self._losses(drop)
            is_needed = is_suspected(drop, self._total, self.threshold)
            # The smallest sets, those in which it costs most first
            ranked = sorted(
                (len(heads), -losses[index], tuple(sorted(heads)))
                for index, heads in enumerate(sets)
                if is_needed[index]
            )
            smallest = [heads for size, _, heads in ranked if size == ranked[0][0]]
            if smallest:
                needed_in[head] = tuple(smallest[:MOST_SETS_OF_HEAD])
        return needed_in
