"""Search for sets of heads that are needed together, and for sets that cancel."""

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import combinations

import numpy as np
from jaxtyping import Float

from hooks.interventions.ablation_engine import Head
from interp.auditing.removed_sets import HeadSets, Removals, Trials

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
MOST_TOGETHER = 8
"""Number of heads, those with the largest effects, of which all subsets are tried."""
MOST_TRIED = 1000
"""Number of sets after which no further ones are grown or exchanged."""
LARGEST = 8
"""Number of heads of the largest set that is extended to cancel a needed head."""
MOST_EXCHANGES = 400
"""Number of sets tried that differ in one head from a set that was found."""


def find_sets(
    search: Removals,
    needed: Mapping[Head, bool],
    outcomes: Sequence[int],
    threshold: Float[np.ndarray, " outcome"],
    *,
    most_exact: int = MOST_EXACT,
) -> HeadSets:
    """Find sets of heads that are needed together though none of them is alone, and sets that cancel needed heads.

    A set *costs* accuracy if more than the threshold is lost on some outcome (p at most `SUSPECTED`), and is *harmless*
    if less is lost on every outcome. It is *minimal harmful* if it costs accuracy, also beyond what its heads cost
    alone, and no proper subset does. A spare head is needed in such a set if it costs more than the threshold beyond
    the others.

    Up to `most_exact` heads, all subsets are tried. With more heads the search tries all pairs. Sets of spare heads are
    then grown in random orders; whatever costs more than its heads alone is reduced by deletion (ddmin) and changed in
    one head. To cancel a needed head it tries the sets whose effects on the logits, one head at a time, nearly add up
    to nothing.

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
        few = self.strongest[:MOST_TOGETHER]
        self.trials.run(frozenset(some) for size in range(3, len(few) + 1) for some in combinations(few, size))
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
            if len(self.trials.loss) > MOST_TRIED:
                break
            larger = [one | set(order[start : start + step]) for one, order in zip(grown, orders, strict=True)]
            larger = [None if any(one <= some for one in known) else some for some in larger]
            self.trials.run(some for some in larger if some is not None)
            for index, some in enumerate(larger):
                if some is None or any(one <= some for one in known):
                    continue
                if self.trials.harmful[some]:
                    known.append(self._reduced(some, lambda one: self.trials.harmful[one]))
                else:
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
        for some in self.trials.minimal(self.spare):
            if len(self.trials.loss) > MOST_TRIED:
                return
            sizes = range(2, len(some)) if len(some) <= 4 else [len(some) - 1]
            self.trials.run(frozenset(one) for size in sizes for one in combinations(sorted(some), size))
        while left and len(self.trials.loss) < MOST_TRIED:
            known = self.trials.minimal(self.spare)
            some = next((one for one in known if len(one) > 2 and one not in done), None)
            if some is None:
                break
            done.add(some)
            others = [some - {head} | {other} for head in sorted(some) for other in sorted(self.spare - some)]
            others = [one for one in others if not any(inside <= one for inside in known)][:left]
            left -= len(others)
            self.trials.run(others)
            costly = [one for one in others if self.trials.costs[one]]
            self.trials.run(one - {head} for one in costly for head in sorted(one))

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
