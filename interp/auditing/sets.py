"""Search for sets of heads that are needed together, and for sets that cancel.

Whether a set can be removed shows nothing about its subsets: without a pair of backups the answer is lost, but not if
the head that reads them is removed as well. So neither the exact answer nor the search concludes from one set to
another.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float

from hooks.interventions.ablation_engine import Head
from interp.core.statistics import drop_tests
from interp.tasks.base import Score

SUSPECTED = 0.05
"""p value at which a set is suspected to cost accuracy. Whatever is found is tested again, on other sequences and at
the audit's level."""
MOST_EXACT = 10
"""Up to this number of heads, all subsets are tried."""
MOST_PAIRED = 48
"""Up to this number of heads, the search tries all pairs; with more heads, all pairs of those with the largest
effects."""
ORDERS = 12
"""Number of random orders in which spare heads are removed one after the other."""
STEPS = 10
"""Number of steps of each: with more spare heads, several are removed in a step."""
LIKELY = 80
"""Number of triples, and of quadruples, of spare heads that are tried: those whose effects add up to most."""
PREDICTED = 24
"""Number of triples, and of quadruples, tried for each needed head that no smaller set cancels: those whose effects
nearly add up to nothing."""
LARGEST = 8
"""Number of heads of the largest set that is extended to cancel a needed head."""
MOST_EXCHANGES = 400
"""Number of sets tried that differ in one head from a set that was found."""
MOST_KEPT = 8
"""Number of sets kept for each head: the smallest, and of these the ones that cost most."""
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

    harmful: tuple[Heads, ...]
    """Minimal harmful sets of heads none of which is needed alone: each costs accuracy, and more than its heads do
    alone, and no proper subset does. For each head the smallest ones, at most `MOST_KEPT`."""
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
    def cancelling(self) -> tuple[Heads, ...]:
        """Each of the sets that contain a needed head and can be removed, once."""
        return tuple(dict.fromkeys(self.harmless.values()))


def find_sets(
    search: Removals,
    needed: Mapping[Head, bool],
    outcomes: Sequence[int],
    threshold: Float[np.ndarray, " outcome"],
    *,
    most_exact: int = MOST_EXACT,
) -> HeadSets:
    """Find sets of heads that are needed together though none of them is alone, and sets that cancel needed heads.

    A set *costs* accuracy if more than the threshold is lost on some outcome (p at most `SUSPECTED`). It is *harmful*
    if that is so of its loss, and also of what it loses beyond its heads alone. It is *harmless* if it loses less than
    the threshold on every outcome.

    Up to `most_exact` heads, all subsets are tried. With more heads the search tries all pairs. Sets of spare heads are
    then grown in random orders, and whatever is harmful is reduced by deletion (ddmin) and changed in one head. To
    cancel a needed head it tries the sets whose effects on the logits, one head at a time, nearly add up to nothing.

    Args:
        search: Removals, on other sequences than those that the sets will be tested on.
        needed: Whether each head is needed alone; the others are spare.
        outcomes: Indices of the outcomes that count.
        threshold: Loss of accuracy that counts on each of them.
        most_exact: Number of heads up to which all subsets are tried.

    Source: Zeller & Hildebrandt 2002 (ddmin). Differs: run from many starting sets, with an exchange of single heads.
    """
    trials = Trials(search, outcomes, threshold)
    exact = len(search.heads) <= most_exact
    if exact:
        sizes = range(1, len(search.heads) + 1)
        trials.run(frozenset(some) for size in sizes for some in combinations(search.heads, size))
    else:
        _Search(search, trials, needed).run()
    return trials.summary(needed, exact=exact)


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

    def run(self, sets: Iterable[frozenset[Head]]) -> None:
        """Remove each set that was not removed before."""
        new = [some for some in dict.fromkeys(sets) if some and some not in self.loss]
        for start in range(0, len(new), TRIED_AT_ONCE):
            part = new[start : start + TRIED_AT_ONCE]
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

    def summary(self, needed: Mapping[Head, bool], *, exact: bool) -> HeadSets:
        """The sets to test, and the extremes."""

        def most_costly(some: frozenset[Head]) -> tuple[int, float, Heads]:
            return len(some), -self.loss[some], tuple(sorted(some))

        spare = frozenset(head for head, alone in needed.items() if not alone)
        minimal = sorted(self.minimal(spare), key=most_costly)
        kept: set[frozenset[Head]] = set()
        for head in spare:
            own = [some for some in minimal if head in some]
            kept |= set([some for some in own if len(some) == len(own[0])][:MOST_KEPT])
        harmless = {head: self.smallest_harmless(head) for head, alone in needed.items() if alone}
        costly = [some for some in self.loss if self.costs[some]]
        alone = [frozenset([head]) for head, is_needed in needed.items() if is_needed]
        return HeadSets(
            harmful=tuple(tuple(sorted(some)) for some in minimal if some in kept),
            harmless={head: tuple(sorted(some)) for head, some in harmless.items() if some},
            largest_harmless=tuple(sorted(self.largest_harmless())),
            smallest_harmful=tuple(sorted(min(alone or costly, key=most_costly, default=()))),
            exact=exact,
            n_removals=len(self.loss),
        )


class _Search:
    """The search for sets where there are too many to try them all."""

    def __init__(self, search: Removals, trials: Trials, needed: Mapping[Head, bool]):
        self.trials, self.heads = trials, search.heads
        self.products = search.effect_products()
        self.spare = frozenset(head for head in self.heads if not needed[head])
        self.needed = [head for head in self.heads if needed[head]]
        self.strongest: list[Head] = []

    def run(self) -> None:
        strength = dict(zip(self.heads, self.products.diagonal().tolist(), strict=True))
        self.strongest = sorted(self.heads, key=lambda head: -strength[head])[:MOST_PAIRED]
        self.trials.run(map(frozenset, combinations(self.strongest, 2)))
        self.trials.run(frozenset([head, other]) for head in self.needed for other in self.heads if other != head)
        for size in (3, 4):
            self.trials.run(self._predicted(self.spare, size, n=LIKELY, largest=True))
        self._grow()
        self._exchange()
        self._cancel()
        self._widen()

    def _grow(self) -> None:
        """Remove spare heads one after the other, in several orders, and reduce every set that becomes harmful."""
        drawn = [np.random.default_rng(index).permutation(len(self.spare)) for index in range(ORDERS // 2)]
        spare = sorted(self.spare)
        orders = [[spare[index] for index in order] for one in drawn for order in (one, one[::-1])]
        grown, known = [frozenset[Head]()] * len(orders), self.trials.minimal(self.spare)
        step = -(-len(spare) // STEPS) or 1
        for start in range(0, len(spare), step):
            larger = [one | set(order[start : start + step]) for one, order in zip(grown, orders, strict=True)]
            larger = [None if any(one <= some for one in known) else some for some in larger]
            self.trials.run(some for some in larger if some is not None)
            for index, some in enumerate(larger):
                if some is not None and self.trials.harmful[some]:
                    known.append(self._reduced(some, lambda one: self.trials.harmful[one]))
                elif some is not None:
                    grown[index] = some

    def _reduced(
        self, some: frozenset[Head], kept_if: Callable[[frozenset[Head]], bool], fixed: frozenset[Head] = frozenset()
    ) -> frozenset[Head]:
        """Delete heads, except fixed ones, while a condition is kept, until no further one can be deleted (ddmin)."""
        heads, n_parts = sorted(some - fixed), 2
        while len(heads) > 1:
            size = -(-len(heads) // n_parts)
            parts = [frozenset(heads[start : start + size]) for start in range(0, len(heads), size)]
            smaller = [fixed | one for one in parts] + [fixed | (frozenset(heads) - one) for one in parts]
            self.trials.run(smaller)
            found = next((one for one in smaller if kept_if(one)), None)
            if found is not None:
                n_parts = 2 if found in smaller[: len(parts)] else max(2, n_parts - 1)
                heads = sorted(found - fixed)
            elif size == 1:
                break
            else:
                n_parts = min(len(heads), 2 * n_parts)
        return fixed | frozenset(heads)

    def _exchange(self) -> None:
        """Try the subsets of the harmful sets that were found, and sets that differ from these in one head."""
        done: set[frozenset[Head]] = set()
        left = MOST_EXCHANGES
        while new := [some for some in self.trials.minimal(self.spare) if len(some) > 2 and some not in done]:
            some = new[0]
            done.add(some)
            sizes = range(2, len(some)) if len(some) <= 4 else [len(some) - 1]
            self.trials.run(frozenset(one) for size in sizes for one in combinations(sorted(some), size))
            known = self.trials.minimal(self.spare)
            if some in known:
                others = [some - {head} | {other} for head in sorted(some) for other in sorted(self.spare - some)]
                others = [one for one in others if not any(inside <= one for inside in known)][:left]
                left -= len(others)
                self.trials.run(others)

    def _cancel(self) -> None:
        """Look for a set that makes each needed head harmless."""
        for size in (3, 4):
            self.trials.run(
                some
                for head in self._without()
                for some in self._predicted(self.heads, size, n=PREDICTED, largest=False, fixed=(head,))
            )
        for head in self._without():
            self._extended(head)
        for head in self.needed:
            if len(some := self.trials.smallest_harmless(head)) > 3:
                self._reduced(some, self.trials.harmless, frozenset([head]))

    def _without(self) -> list[Head]:
        """Needed heads for which no set that cancels them is known."""
        return [head for head in self.needed if not self.trials.smallest_harmless(head)]

    def _predicted(
        self, among: Collection[Head], size: int, *, n: int, largest: bool, fixed: tuple[Head, ...] = ()
    ) -> list[frozenset[Head]]:
        """The n sets, with the fixed heads, whose effects on the logits add up to most, or to least; others among the
        `MOST_PAIRED` strongest heads."""
        places = [self.heads.index(head) for head in fixed]
        likely = set(among) & set(self.strongest)
        others = [index for index, head in enumerate(self.heads) if head in likely and index not in places]
        sets = np.array([(*places, *some) for some in combinations(others, size - len(places))], dtype=int)
        if not len(sets):
            return []
        left = sum(self.products[sets[:, i], sets[:, j]] for i in range(size) for j in range(size))
        best = np.argsort(-left if largest else left, kind="stable")[:n]
        return [frozenset(self.heads[index] for index in sets[one]) for one in best]

    def _extended(self, head: Head) -> None:
        """Remove further heads together with this one, each time the one that leaves the smallest loss, or the smallest
        predicted effect, as long as this makes it smaller."""
        some = frozenset([head])
        while len(some) < LARGEST:
            larger = [some | {other} for other in self.heads if other not in some]
            self.trials.run(larger)
            best = min(larger, key=self.trials.loss.__getitem__)
            if self.trials.loss[best] >= self.trials.loss[some] or self.trials.harmless(best):
                break
            some = best
        places = [self.heads.index(head)]
        while len(places) < LARGEST:
            others = [index for index in range(len(self.heads)) if index not in places]
            places.append(min(others, key=lambda index: self._left([*places, index])))
            self.trials.run([frozenset(self.heads[index] for index in places)])

    def _left(self, places: list[int]) -> float:
        return float(self.products[np.ix_(places, places)].sum())

    def _widen(self) -> None:
        """Add to the largest set that can be removed the other such sets, and then single heads."""
        some = self.trials.largest_harmless()
        for more in [*map(self.trials.smallest_harmless, self.needed), *(frozenset([head]) for head in self.heads)]:
            self.trials.run([some | more])
            if some | more and self.trials.harmless(some | more):
                some = some | more
