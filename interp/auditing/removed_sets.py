"""Sets of heads that were removed, what was lost, and what that shows about the heads.

Whether a set can be removed shows nothing about its subsets: without a pair of backups the answer is lost, but not if
the head that reads them is removed as well. So nothing is concluded from one set about another.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float

from hooks.interventions.ablation_engine import Head
from interp.core.progress import counted
from interp.core.statistics import drop_tests
from interp.tasks.base import Score

SUSPECTED = 0.05
"""p value at which a set is suspected to cost accuracy. Whatever is found is tested again, on other sequences and at
the audit's level."""
MOST_KEPT = 8
"""Number of sets kept for each spare head: the smallest, and of these the ones in which it costs most."""
TRIED_AT_ONCE = 256

Heads = tuple[Head, ...]


@runtime_checkable
class Removals(Protocol):
    """Experiments that remove sets of heads: `HeadExperiments`."""

    @property
    def heads(self) -> list[Head]: ...

    def score(self) -> Score: ...

    def removed(self, sets: Sequence[Sequence[Head]]) -> Float[np.ndarray, "sample set outcome"]: ...

    def effect_products(self) -> Float[np.ndarray, "head head"]: ...


@dataclass(frozen=True, kw_only=True)
class HeadSets:
    """Sets of heads to test together, and the extremes among all sets that were tried."""

    needed_in: Mapping[Head, tuple[Heads, ...]]
    """For spare heads: the smallest minimal harmful sets in which the head is needed once the others are gone: removing
    it as well costs more than the threshold beyond that. At most `MOST_KEPT` for each head."""
    harmless: Mapping[Head, Heads]
    """For needed heads: a smallest set that contains the head and can be removed, if there is one."""
    largest_harmless: Heads
    """A largest set of heads that can be removed."""
    smallest_harmful: Heads
    """A smallest set that costs accuracy; empty if none does."""
    exact: bool
    """All subsets were tried; otherwise these are the sets that the search has found."""
    n_removals: int
    """Number of sets that were removed."""

    @property
    def harmful(self) -> tuple[Heads, ...]:
        """Each of the sets in which a spare head is needed, once."""
        return tuple(dict.fromkeys(some for own in self.needed_in.values() for some in own))

    @property
    def cancelling(self) -> tuple[Heads, ...]:
        """Each of the sets that contain a needed head and can be removed, once."""
        return tuple(dict.fromkeys(self.harmless.values()))


@dataclass
class Trials:
    """Sets of heads that were removed, and what was lost."""

    search: Removals
    outcomes: Sequence[int]
    threshold: Float[np.ndarray, " outcome"]
    loss: dict[frozenset[Head], float] = field(init=False, default_factory=dict)
    """Largest loss over outcomes, as a multiple of the threshold: below 1, the set is harmless."""
    costs: dict[frozenset[Head], bool] = field(init=False, default_factory=dict)
    harmful: dict[frozenset[Head], bool] = field(init=False, default_factory=dict)
    """Whether a set costs accuracy, and also beyond what its heads cost alone."""
    drop: dict[frozenset[Head], Float[np.ndarray, "sample outcome"]] = field(init=False, default_factory=dict)
    """Right answers lost."""

    def __post_init__(self):
        heads = self.search.heads
        self._total = self.search.score().total.double().numpy()[:, None, self.outcomes]
        drop = self._removed([(head,) for head in heads])
        self._alone = dict(zip(heads, drop.swapaxes(0, 1), strict=True))
        self._record([frozenset([head]) for head in heads], drop)

    def _removed(self, sets: Sequence[Heads]) -> Float[np.ndarray, "sample set outcome"]:
        return self.search.removed(sets)[:, :, self.outcomes]

    def _suspected(self, drop: Float[np.ndarray, "sample set outcome"]) -> Bool[np.ndarray, " set"]:
        p, _ = drop_tests(drop, self._total, self.threshold)
        return p.min(-1) * len(self.threshold) <= SUSPECTED

    def _record(self, sets: Sequence[frozenset[Head]], drop: Float[np.ndarray, "sample set outcome"]) -> None:
        alone = np.stack([sum(self._alone[head] for head in some) for some in sets], 1)
        costs, beyond = self._suspected(drop), self._suspected(drop - alone)
        share = drop.sum(0) / np.maximum(self._total.sum(0), 1e-300)
        loss = (share / np.maximum(self.threshold, 1e-300)).max(-1)
        self.loss |= dict(zip(sets, loss.tolist(), strict=True))
        self.costs |= dict(zip(sets, costs.tolist(), strict=True))
        self.harmful |= dict(zip(sets, (costs & beyond).tolist(), strict=True))
        self.drop |= dict(zip(sets, drop.swapaxes(0, 1).astype(np.float32), strict=True))

    def run(self, sets: Iterable[frozenset[Head]]) -> None:
        """Remove each set that was not removed before."""
        new = [some for some in dict.fromkeys(sets) if some and some not in self.loss]
        parts = [new[start : start + TRIED_AT_ONCE] for start in range(0, len(new), TRIED_AT_ONCE)]
        for part in counted("removing sets of heads", parts, total=len(parts)):
            self._record(part, self._removed([tuple(sorted(some)) for some in part]))

    def harmless(self, some: frozenset[Head]) -> bool:
        """Whether a set that was removed is harmless."""
        return self.loss[some] < 1

    def smallest_harmless(self, head: Head) -> frozenset[Head]:
        """The smallest harmless set that has this head and others, of several the one that costs least; empty if there
        is none."""
        own = [some for some in self.loss if len(some) > 1 and head in some and self.harmless(some)]
        return min(own, key=lambda some: (len(some), self.loss[some], sorted(some)), default=frozenset())

    def largest_harmless(self) -> frozenset[Head]:
        """The largest harmless set, of several the one that costs least."""
        can_go = [some for some in self.loss if self.harmless(some)]
        return max(can_go, key=lambda some: (len(some), -self.loss[some], sorted(some)), default=frozenset())

    def minimal(self, spare: frozenset[Head]) -> list[frozenset[Head]]:
        """Harmful sets of spare heads without a smaller harmful set inside, among those that were removed."""
        found: list[frozenset[Head]] = []
        for some in sorted((some for some, bad in self.harmful.items() if bad and some <= spare), key=len):
            if not any(one < some for one in found):
                found.append(some)
        return found

    def needed_in(self, spare: frozenset[Head]) -> dict[Head, tuple[Heads, ...]]:
        """For spare heads, the smallest minimal harmful sets in which the head costs more than the threshold."""
        found: dict[Head, tuple[Heads, ...]] = {}
        minimal = [some for some in self.minimal(spare) if len(some) > 1]
        for head in sorted(spare):
            own = [some for some in minimal if head in some and some - {head} in self.loss]
            if not own:
                continue
            more = np.stack([self.drop[some] - self.drop[some - {head}] for some in own], 1).astype(float)
            there = self._suspected(more)
            gain = (more.sum(0) / np.maximum(self._total.sum(0), 1e-300) / np.maximum(self.threshold, 1e-300)).max(-1)
            order = [(len(some), -gain[at], tuple(sorted(some))) for at, some in enumerate(own) if there[at]]
            smallest = [one for one in sorted(order) if one[0] == min(order)[0]]
            if smallest:
                found[head] = tuple(heads for _, _, heads in smallest[:MOST_KEPT])
        return found

    def summary(self, needed: Mapping[Head, bool], *, exact: bool) -> HeadSets:
        """The sets to test, and the extremes."""

        def most_costly(some: frozenset[Head]) -> tuple[int, float, Heads]:
            return len(some), -self.loss[some], tuple(sorted(some))

        spare = frozenset(head for head, alone in needed.items() if not alone)
        harmless = {head: self.smallest_harmless(head) for head, alone in needed.items() if alone}
        costly = [some for some in self.loss if self.costs[some]]
        alone = [frozenset([head]) for head, is_needed in needed.items() if is_needed]
        return HeadSets(
            needed_in=self.needed_in(spare),
            harmless={head: tuple(sorted(some)) for head, some in harmless.items() if some},
            largest_harmless=tuple(sorted(self.largest_harmless())),
            smallest_harmful=tuple(sorted(min(alone or costly, key=most_costly, default=()))),
            exact=exact,
            n_removals=len(self.loss),
        )
