"""Sets of heads that are needed together, and sets that cancel: the search for them, and their effects in an audit."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, compress

import numpy as np
from jaxtyping import Float

from hooks.interventions.ablation_engine import Head
from hooks.randomness import usable_seed
from interp.auditing.experiments import Effects
from interp.auditing.interventions import CANCELLING, MOSTLY_SHARED, NEEDED_IN, TOGETHER
from interp.auditing.removed_sets import Heads, Removals, RemovedSets
from interp.auditing.significance import PValues

MOST_HEADS_EXHAUSTIVE = 10
"""Up to this number of heads, all subsets are tried."""
MOST_PAIRED = 48
"""Up to this number of heads, the search tries all pairs; with more heads, all pairs of those with the largest
effects."""
ORDERS = 12
"""Number of random orders in which heads that are not needed alone are removed one after the other."""
STEPS = 10
"""Number of steps of each: with more heads, several are removed in a step."""
LIKELY = 80
"""Number of triples, and of quadruples, of heads not needed alone that are tried: those with the largest sum of
effects."""
PREDICTED = 24
"""Number of triples, and of quadruples, tried for each needed head that no smaller set cancels: those whose effects
nearly add up to nothing."""
MOST_TOGETHER = 8
"""Number of heads, those with the largest effects, of which all subsets are tried."""
MOST_SETS_TRIED = 1000
"""Number of sets after which the search grows and swaps no further ones."""
MOST_HEADS_CANCELLING = 8
"""Number of heads of the largest set that is extended to cancel a needed head."""
MOST_SWAPS = 400
"""Number of sets tried that differ in one head from a costly set."""


@dataclass(frozen=True, kw_only=True)
class HeadSets:
    """Sets of heads to test together, and the extremes among all sets that were tried."""

    needed_in: Mapping[Head, tuple[Heads, ...]]
    """For heads that may share their work: sets in which the head may be needed once the others are gone, whether or
    not some of them are needed alone: removing it as well costs more than the threshold beyond that."""
    harmless: Mapping[Head, Heads]
    """For needed heads: a smallest set of heads that may all be needed alone which has the head and can be removed, if
    there is one."""
    largest_harmless: Heads
    """A largest set of heads that can be removed."""
    smallest_costly: Heads
    """A smallest set that costs accuracy; empty if none does."""
    exact: bool
    """All subsets were tried; otherwise these are the sets that the search has found."""
    n_removals: int
    """Number of sets that were removed."""
    n_pairs: int
    """Number of pairs of heads that were removed."""

    @property
    def needed_pairs(self) -> list[tuple[Head, Heads]]:
        """Heads, each with a set in which it may be needed."""
        return [(head, members) for head, sets in self.needed_in.items() for members in sets]

    @property
    def costly(self) -> tuple[Heads, ...]:
        """Each of the sets in which a head is needed, once."""
        return tuple(dict.fromkeys(members for _, members in self.needed_pairs))

    @property
    def cancelling(self) -> tuple[Heads, ...]:
        """Each of the sets that contain a needed head and can be removed, once."""
        return tuple(dict.fromkeys(self.harmless.values()))


def find_sets(
    experiments: Removals,
    needed: Collection[Head],
    outcomes: Sequence[int],
    threshold: Float[np.ndarray, " outcome"],
    *,
    further: Removals | None,
    every_input: bool = False,
    most_exact: int = MOST_HEADS_EXHAUSTIVE,
) -> HeadSets:
    """Find sets of heads that share their work, and sets that cancel needed heads.

    A set *costs* accuracy if more than the threshold is lost on some outcome (p at most `SUSPECTED`), and is *harmless*
    if less is lost on every outcome. It is *minimal costly* if it costs accuracy, also beyond what its heads cost
    alone, and no proper subset does. A head shares its work with the others of a set if it costs more than the
    threshold beyond them, and at least twice what it costs alone.

    Up to `most_exact` heads, all subsets are tried. With more heads the search tries all pairs. Sets of heads that are
    not needed alone are then grown in random orders; every set that costs more than its heads alone is reduced by
    deletion (ddmin) and changed in one head. To cancel a needed head, the search tries the sets whose effects on the
    logits, one head at a time, nearly add up to nothing.

    Args:
        experiments: Removals, on other sequences than those that the sets will be tested on.
        needed: Heads that are needed alone.
        outcomes: Indices of the outcomes that count.
        threshold: Loss of accuracy that counts on each of them.
        further: Removals on more sequences, also other than those of the tests. Of so many sets some seem to cost
            accuracy by chance: only those that do so here as well are tested. None: nothing is due to chance, since
            the search has every input.
        every_input: Whether the search, or `further` if there are some, has every input of the task.
        most_exact: Number of heads up to which all subsets are tried.

    Source: Zeller & Hildebrandt 2002 (ddmin). Differs: run from many starting sets, with a swap of single heads.
    """
    # Remove all sets, or search among them
    removed = RemovedSets(experiments, outcomes, threshold, every_input)
    needed_alone = [head for head in experiments.heads if head in needed]
    not_needed_alone = [head for head in experiments.heads if head not in needed]
    exact = len(experiments.heads) <= most_exact
    if exact:
        removed.remove(_subsets(experiments.heads, range(1, len(experiments.heads) + 1)))
    else:
        _Search(experiments, removed, needed_alone, frozenset(not_needed_alone)).run()
    # What the losses show about heads, and the extremes
    may_cancel = {*needed_alone, *removed.may_be_needed()}
    harmless = {head: removed.smallest_harmless(head, may_cancel) for head in needed_alone}
    further_removed = removed if further is None else RemovedSets(further, outcomes, threshold, every_input)
    return HeadSets(
        needed_in=further_removed.confirmed(removed.may_share()),
        harmless={head: tuple(sorted(heads)) for head, heads in harmless.items() if heads},
        largest_harmless=tuple(sorted(removed.largest_harmless())),
        smallest_costly=tuple(sorted(removed.smallest_costing(needed_alone))),
        exact=exact,
        n_removals=len(removed.by_heads),
        n_pairs=sum(len(heads) == 2 for heads in removed.by_heads),
    )


def _subsets(heads: Collection[Head], sizes: Iterable[int]) -> Iterable[frozenset[Head]]:
    """All subsets of these sizes."""
    return (frozenset(members) for size in sizes for members in combinations(heads, size))


@dataclass(frozen=True)
class _Search:
    """The search for sets where there are too many to try them all."""

    experiments: Removals
    removed: RemovedSets
    needed_alone: Sequence[Head]
    not_needed_alone: frozenset[Head]

    def run(self) -> None:
        """Try small sets, then sets that follow from what they cost."""
        heads = self.experiments.heads
        few = self.strongest[:MOST_TOGETHER]
        # Pairs, all subsets of few heads, and sets whose predicted effect is large
        self.removed.remove(_subsets(self.strongest, [2]))
        pairs_with_needed: list[frozenset[Head]] = []
        for head in self.needed_alone:
            pairs_with_needed += [frozenset([head, second]) for second in heads if second != head]
        self.removed.remove(pairs_with_needed)
        self.removed.remove(_subsets(few, range(3, len(few) + 1)))
        for size in (3, 4):
            self.removed.remove(self.predicted_sets(self.not_needed_alone, size, n=LIKELY, largest=True))
        # Costly sets, then sets that cancel, then a largest harmless set
        self.grow()
        self.swap_one_head()
        self.cancel()
        self.enlarge_harmless()

    @cached_property
    def products(self) -> Float[np.ndarray, "head head"]:
        """Inner products of the effects of single heads on the logits."""
        return self.experiments.effect_products()

    @cached_property
    def strongest(self) -> list[Head]:
        """The heads with the largest effects on the logits, largest first."""
        strength = dict(zip(self.experiments.heads, self.products.diagonal().tolist(), strict=True))
        return sorted(self.experiments.heads, key=lambda head: -strength[head])[:MOST_PAIRED]

    def grow(self) -> None:
        """Remove heads one after the other, in several orders, and reduce every set that becomes costly."""
        # Random orders, each forwards and backwards
        candidates = sorted(self.not_needed_alone)
        orders = []
        for seed in range(ORDERS // 2):
            order = np.random.default_rng(usable_seed(seed)).permutation(len(candidates))
            forwards = [candidates[index] for index in order]
            orders += [forwards, forwards[::-1]]
        # Add the next heads of every order, unless its set contains a costly one; a costly set stops growing
        grown = [frozenset[Head]()] * len(orders)
        minimal = self.removed.minimal_costly(self.not_needed_alone)
        step = -(-len(candidates) // STEPS) or 1
        for start in range(0, len(candidates), step):
            if len(self.removed.by_heads) > MOST_SETS_TRIED:
                break
            larger = []
            for heads, order in zip(grown, orders, strict=True):
                larger.append(heads | set(order[start : start + step]))
            self.removed.remove(heads for heads in larger if not _contains_any(heads, minimal))
            for index, heads in enumerate(larger):
                if _contains_any(heads, minimal):
                    continue
                if self.removed.is_costly(heads):
                    minimal.append(self.reduce(heads, self.removed.is_costly))
                else:
                    grown[index] = heads

    def reduce(
        self, heads: frozenset[Head], condition: Callable[[frozenset[Head]], bool], fixed: frozenset[Head] = frozenset()
    ) -> frozenset[Head]:
        """Delete heads, except fixed ones, while a condition is met, until no further one can be deleted (ddmin)."""
        remaining = sorted(heads - fixed)
        n_blocks = 2
        while len(remaining) > 1:
            # Try each block of heads, then all heads but one block
            size = -(-len(remaining) // n_blocks)
            blocks = [frozenset(remaining[start : start + size]) for start in range(0, len(remaining), size)]
            without_block = [frozenset(remaining) - block for block in blocks]
            candidates = [fixed | members for members in (*blocks, *without_block)]
            self.removed.remove(candidates)
            smaller = next((members for members in candidates if condition(members)), None)
            # Go on with the smaller set, or with smaller blocks
            if smaller is not None:
                n_blocks = 2 if smaller in candidates[: len(blocks)] else max(2, n_blocks - 1)
                remaining = sorted(smaller - fixed)
            elif size == 1:
                break
            else:
                n_blocks = min(len(remaining), 2 * n_blocks)
        return fixed | frozenset(remaining)

    def swap_one_head(self) -> None:
        """Try the subsets of the minimal costly sets, and sets that differ from these in one head."""
        # A set that was found by reduction may have a costly subset that was never removed
        for heads in self.removed.minimal_costly(self.not_needed_alone):
            if len(self.removed.by_heads) > MOST_SETS_TRIED:
                return
            sizes = range(2, len(heads)) if len(heads) <= 4 else [len(heads) - 1]
            self.removed.remove(_subsets(sorted(heads), sizes))
        # Swap heads of each minimal set of three or more, also of those that this finds
        swapped: set[frozenset[Head]] = set()
        n_swaps = 0
        while n_swaps < MOST_SWAPS and len(self.removed.by_heads) < MOST_SETS_TRIED:
            minimal = self.removed.minimal_costly(self.not_needed_alone)
            heads = next((members for members in minimal if len(members) > 2 and members not in swapped), None)
            if heads is None:
                break
            swapped.add(heads)
            new_heads = sorted(self.not_needed_alone - heads)
            swaps = [heads - {head} | {new_head} for head in sorted(heads) for new_head in new_heads]
            swaps = [members for members in swaps if not _contains_any(members, minimal)][: MOST_SWAPS - n_swaps]
            n_swaps += len(swaps)
            self.removed.remove(swaps)
            # A costly set is minimal only if it is not costly without one of its heads
            costly = [members for members in swaps if self.removed.by_heads[members].costs_accuracy]
            self.removed.remove(members - {head} for members in costly for head in sorted(members))

    def cancel(self) -> None:
        """Look for a set that makes each needed head harmless, of heads that may all be needed alone.

        A head that is needed only because another one reroutes is not cancelled by it.
        """
        # Sets whose effects on the logits nearly add up to nothing, then sets that grow, then a reduction of these
        for size in (3, 4):
            predicted: list[frozenset[Head]] = []
            for head in self.not_cancelled():
                predicted += self.predicted_sets(self.may_cancel, size, n=PREDICTED, largest=False, fixed=(head,))
            self.removed.remove(predicted)
        for head in self.not_cancelled():
            self.extend(head)
        for head in self.needed_alone:
            members = self.removed.smallest_harmless(head, self.may_cancel)
            if len(members) > 3:
                self.reduce(members, self.removed.is_harmless, frozenset([head]))

    @cached_property
    def may_cancel(self) -> list[Head]:
        """Heads that a set which cancels another may have."""
        return sorted({*self.needed_alone, *self.removed.may_be_needed()})

    def not_cancelled(self) -> list[Head]:
        """Needed heads for which no set that cancels them is known."""
        return [head for head in self.needed_alone if not self.removed.smallest_harmless(head, self.may_cancel)]

    def predicted_sets(
        self, candidates: Collection[Head], size: int, *, n: int, largest: bool, fixed: tuple[Head, ...] = ()
    ) -> list[frozenset[Head]]:
        """The n sets with the fixed heads whose effects on the logits add up to most, or to least.

        Args:
            candidates: Further heads of the sets, if they are among the `MOST_PAIRED` strongest.
            size: Number of heads of a set.
            n: Number of sets.
            largest: Whether effects should add up to most.
            fixed: Heads that every set has.
        """
        heads = self.experiments.heads
        fixed_indices = [heads.index(head) for head in fixed]
        free = (set(candidates) & set(self.strongest)) - set(fixed)
        free_indices = [index for index, head in enumerate(heads) if head in free]
        combined = [(*fixed_indices, *indices) for indices in combinations(free_indices, size - len(fixed_indices))]
        if not combined:
            return []
        # The squared norm of a sum of effects is the sum of all their inner products
        sets = np.array(combined, dtype=int)
        effects = sum(self.products[sets[:, i], sets[:, j]] for i in range(size) for j in range(size))
        order = np.argsort(-effects if largest else effects, kind="stable")
        return [frozenset(heads[index] for index in indices) for indices in sets[order[:n]]]

    def predicted_effect(self, indices: Sequence[int]) -> float:
        """Squared norm of the sum of the effects of these heads on the logits."""
        return float(self.products[np.ix_(indices, indices)].sum())

    def extend(self, head: Head) -> None:
        """Remove further heads together with this one, each time the one that leaves the smallest loss, or the smallest
        predicted effect, as long as this makes it smaller."""
        # By measured loss
        heads = frozenset([head])
        while len(heads) < min(MOST_HEADS_CANCELLING, len(self.may_cancel)):
            larger = [heads | {added} for added in self.may_cancel if added not in heads]
            self.removed.remove(larger)
            best = min(larger, key=self.removed.loss)
            if self.removed.loss(best) >= self.removed.loss(heads) or self.removed.is_harmless(best):
                break
            heads = best
        # By predicted effect
        every_head = self.experiments.heads
        may_cancel = [every_head.index(added) for added in self.may_cancel]
        indices = [every_head.index(head)]
        while len(indices) < min(MOST_HEADS_CANCELLING, len(may_cancel)):
            free_indices = [index for index in may_cancel if index not in indices]
            indices.append(min(free_indices, key=lambda index: self.predicted_effect([*indices, index])))
            self.removed.remove([frozenset(every_head[index] for index in indices)])

    def enlarge_harmless(self) -> None:
        """Add to the largest harmless set the smallest harmless sets of needed heads, and then single heads."""
        heads = self.removed.largest_harmless()
        additions = [self.removed.smallest_harmless(head) for head in self.needed_alone]
        additions += [frozenset([head]) for head in self.experiments.heads]
        for members in additions:
            larger = heads | members
            self.removed.remove([larger])
            if larger and self.removed.is_harmless(larger):
                heads = larger


def _contains_any(heads: frozenset[Head], sets: Iterable[frozenset[Head]]) -> bool:
    """Whether some of the sets is a subset of these heads."""
    return any(smaller <= heads for smaller in sets)


# Effects in an audit


def effects_of_sets(
    experiments: Removals,
    sets: HeadSets,
    outcomes: Sequence[int],
    *,
    pairs: Collection[tuple[Head, Heads]],
    cancelling: Collection[Heads],
) -> Effects:
    """Remove sets of heads on the sequences of an audit: effects `NEEDED_IN`, `MOSTLY_SHARED`, `CANCELLING` and
    `TOGETHER`.

    Args:
        experiments: Experiments on these sequences.
        sets: All sets, in the order of the effects.
        outcomes: Indices of the outcomes that count.
        pairs: Those of `sets.needed_pairs` to try; the effects of the others are NaN.
        cancelling: Those of `sets.cancelling` to try.
    """
    # Remove every set once: those of pairs with and without the head, the head alone, and those that may cancel
    tried = [heads for head, members in pairs for heads in (members, heads_without(head, members), (head,))]
    tried = list(dict.fromkeys([*tried, *cancelling]))
    drop_of_set = dict(zip(tried, experiments.removed(tried)[:, :, outcomes].swapaxes(0, 1), strict=True))
    total = experiments.score.total.double().numpy()[:, outcomes]
    untried = np.full(total.shape, np.nan)

    # Arrange the losses in the order of the p values
    beyond_others, beyond_twice_alone = [], []
    for head, members in sets.needed_pairs:
        is_tried = (head, members) in pairs
        drop = drop_of_set[members] - drop_of_set[heads_without(head, members)] if is_tried else untried
        beyond_others.append(drop)
        # Scaled to at most one answer per answer, as a drop is
        beyond_twice_alone.append((drop - 2 * drop_of_set[head,]) / 3 if is_tried else untried)
    drops = {
        NEEDED_IN: beyond_others,
        MOSTLY_SHARED: beyond_twice_alone,
        CANCELLING: [drop_of_set[members] if members in cancelling else untried for members in sets.cancelling],
        TOGETHER: [drop_of_set.get(members, untried) for members in (*sets.costly, *sets.cancelling)],
    }
    stacked = {name: np.array(rows).reshape(-1, *total.shape).swapaxes(0, 1) for name, rows in drops.items()}
    return Effects(total, stacked)


def heads_without(head: Head, heads: Heads) -> Heads:
    """The other heads of a set."""
    return tuple(member for member in heads if member != head)


def undecided_sets(
    p: PValues, sets: HeadSets, heads: Collection[Head], *, alpha: float
) -> tuple[list[tuple[Head, Heads]], list[Heads]]:
    """Pairs of a head and a set, and cancelling sets, that are undecided and may decide one of these heads."""
    is_open = {}
    for name in (NEEDED_IN, MOSTLY_SHARED, CANCELLING):
        is_open[name] = (np.minimum(p.matters[name], p.harmless[name]) > alpha).any(-1)
    open_pairs = compress(sets.needed_pairs, is_open[NEEDED_IN] | is_open[MOSTLY_SHARED])
    pairs = [pair for pair in open_pairs if pair[0] in heads]
    cancelling = [members for members in compress(sets.cancelling, is_open[CANCELLING]) if set(heads) & set(members)]
    return pairs, cancelling
