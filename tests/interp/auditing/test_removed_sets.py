"""Sets that were removed: the level at which one is suspected, and what counts beyond single heads."""

from itertools import combinations

import numpy as np
import pytest
import torch

from interp.auditing.removed_sets import (
    LIKELY_TO_COUNT,
    MAY_COUNT,
    MOST_LOST_BEFORE,
    MOST_SETS_OF_HEAD,
    SHARED,
    RemovedSets,
)
from interp.auditing.significance import is_suspected
from interp.tasks.base import Score

N = 64
A, B, C, D = HEADS = [(0, 0), (0, 1), (1, 0), (1, 1)]


class Removals:
    """Removals that lose, or gain, the answers of the first sequences: their number on each of two outcomes."""

    def __init__(self, lost):
        self.lost, self.heads = lost, HEADS

    @property
    def score(self):
        return Score(right=torch.ones(N, 2), loss=torch.ones(N, 2), total=torch.ones(N, 2))

    def removed(self, sets):
        counts = np.array([self.lost.get(tuple(one), (0, 0)) for one in sets])
        return (np.arange(N)[:, None, None] < abs(counts)) * np.sign(counts).astype(float)

    def effect_products(self):
        return np.zeros((len(HEADS), len(HEADS)))


def removed_sets(lost, outcomes=(0,)):
    sets = RemovedSets(Removals(lost), list(outcomes), np.full(len(outcomes), 0.1))
    sets.remove([frozenset(heads) for heads in lost])
    return sets


def sets_to_test(lost, outcomes=(0,), *, further=None):
    """Sets that the search has found and that further sequences, of the same losses or others, confirm."""
    experiments = Removals(lost if further is None else further)
    confirming = RemovedSets(experiments, list(outcomes), np.full(len(outcomes), 0.1))
    return confirming.confirmed(removed_sets(lost, outcomes).may_share())


@pytest.mark.parametrize(
    ("lost", "one_outcome", "two_outcomes"),
    # p of a t test with a standard error of at least one answer: 0.077, 0.047, 0.028, 0.016; twice that for two
    [(11, False, False), (12, True, False), (13, True, False), (14, True, True)],
)
def test_a_set_is_suspected_at_five_percent_over_all_outcomes(lost, one_outcome, two_outcomes):
    alone = frozenset([A])
    assert removed_sets({(A,): (lost, 0)}).by_heads[alone].costs_accuracy == one_outcome
    for losses in ((lost, 0), (0, lost), (lost, lost)):
        assert removed_sets({(A,): losses}, outcomes=(0, 1)).by_heads[alone].costs_accuracy == two_outcomes


def test_a_costly_set_costs_accuracy_beyond_its_heads():
    sets = removed_sets({
        (A,): (-20, 0), (B,): (-20, 0), (A, B): (0, 0),  # 40 beyond its heads, and costs nothing
        (C,): (12, 0), (D,): (12, 0), (C, D): (24, 0),  # costs 24, nothing beyond its heads
        (A, C): (32, 0),  # costs 32, and 40 beyond its heads
    })  # fmt: skip
    costing = {heads for heads, removed in sets.by_heads.items() if removed.costs_accuracy}
    assert costing == {frozenset(heads) for heads in ([C], [D], [C, D], [A, C])}
    costly = [heads for heads, removed in sets.by_heads.items() if removed.is_costly and len(heads) > 1]
    assert costly == [frozenset([A, C])]


def test_a_head_is_tested_beyond_others_also_if_one_of_them_is_needed_alone():
    """Without B 15 answers are lost, without A none, without both 39: A adds 24, and B, after A, all of them."""
    sets = sets_to_test({(A,): (0, 0), (B,): (15, 0), (A, B): (39, 0)})
    assert sets == {A: ((A, B),), B: ((A, B),)}


def test_what_a_head_costs_alone_is_not_shared():
    """Without both as many answers are lost as without A and without B, or nearly as many."""
    assert sets_to_test({(A,): (20, 0), (B,): (36, 0), (A, B): (56, 0)}) == {}
    assert sets_to_test({(A,): (0, 0), (B,): (36, 0), (A, B): (38, 0)}) == {}


def test_whoever_is_in_a_set_is_tested_in_it():
    """A adds 24 answers beyond B and C, and they nothing: they are tested all the same."""
    lost = {
        (A,): (0, 0),
        (B, C): (15, 0),
        (A, B): (0, 0),
        (A, C): (0, 0),
        (A, B, C): (39, 0),
        (B,): (15, 0),
        (C,): (0, 0),
    }
    sets = sets_to_test(lost)
    assert sets[A] == sets[B] == sets[C] == ((A, B, C),)
    assert D not in sets


def test_a_set_without_a_head_is_removed_where_the_search_has_not():
    lost = {(A, B, C): (44, 0), (B, C): (0, 0)}
    further = RemovedSets(Removals(lost), [0], np.array([0.1]))
    assert further.confirmed(removed_sets(lost).may_share())[B] == ((A, B, C),)
    assert {frozenset([A, B]), frozenset([A, C])} <= set(further.by_heads)


def test_a_set_must_cost_accuracy_on_further_sequences_too():
    """Threshold 0.1: at least 4.8 of 64 answers beyond the other head, and 1.5 times its cost alone."""
    lost = {(A,): (0, 0), (B,): (0, 0), (A, B): (40, 0)}
    for answers, is_tested in ((5, True), (4, False), (0, False)):
        assert bool(sets_to_test(lost, further={**lost, (A, B): (answers, 0)})) == is_tested
    shared = {A: ((A, B),), B: ((A, B),)}
    needed_alone = {**lost, (A,): (18, 0), (B,): (18, 0)}
    assert sets_to_test(lost, further={**needed_alone, (A, B): (45, 0)}) == shared
    assert sets_to_test(lost, further={**needed_alone, (A, B): (44, 0)}) == {}


def test_of_equally_small_sets_the_most_costly_come_first():
    lost = {(A, B): (20, 0), (A, C): (60, 0), (A, D): (40, 0)}
    assert sets_to_test(lost)[A] == ((A, C), (A, D), (A, B))
    assert len(sets_to_test(lost)[A]) == MOST_SETS_OF_HEAD
    lost |= {(A, B): (4, 0)}
    assert sets_to_test(lost)[A] == ((A, C), (A, D))


@pytest.mark.parametrize(("lost_before", "is_tested"), [(18, True), (20, False)])
def test_what_a_head_costs_in_a_broken_model_is_not_its_work(lost_before, is_tested):
    """Without any two of three heads 18 or 20 answers are lost: 2.8 or 3.1 thresholds."""
    lost = {(A,): (0, 0), (B,): (10, 0), (C,): (10, 0), (A, B, C): (60, 0)}
    lost |= dict.fromkeys([(A, B), (A, C), (B, C)], (lost_before, 0))
    sets = sets_to_test(lost)
    assert ((A, B, C) in sets.get(A, ())) == is_tested


@pytest.mark.parametrize(("lost_without_b", "is_tested"), [(15, True), (40, False)])
def test_what_the_others_mend_for_each_other_is_no_work_of_a_head(lost_without_b, is_tested):
    """Without B 2.3 or 6.3 thresholds are lost, without B and C nothing, and without A too 4.7."""
    lost = {(B,): (lost_without_b, 0), (A, B): (lost_without_b, 0), (B, C): (0, 0), (A, B, C): (30, 0)}
    assert ((A, B, C) in sets_to_test(lost).get(A, ())) == is_tested


def test_sets_are_those_of_any_outcome():
    """A and B back each other up on the first outcome; on the second, A is needed alone, and B does nothing."""
    lost = {(A,): (0, 30), (B,): (0, 0), (A, B): (40, 30)}
    assert sets_to_test(lost, outcomes=(0, 1)) == {A: ((A, B),), B: ((A, B),)}
    assert sets_to_test(lost, outcomes=(1,)) == {}


def brute_force(lost, outcomes, threshold):
    """Sets to test by their definition, from the loss of every subset of the heads on every outcome.

    A head is tested in the smallest minimal costly sets beyond whose others it costs enough, and in a set in which it
    costs clearly more; and so is everybody in these sets.
    """
    removals = Removals(lost)
    every = [frozenset(members) for size in range(1, 5) for members in combinations(HEADS, size)]
    drop = {heads: removals.removed([tuple(sorted(heads))])[:, :, outcomes] for heads in every}
    loss = {heads: drop[heads].sum((0, 1)) / N / threshold for heads in every}
    total = np.ones((N, 1, len(outcomes)))

    def is_costly(heads):
        beyond = drop[heads] - sum(drop[frozenset([head])] for head in heads)
        return all(is_suspected(values, total, threshold)[0] for values in (drop[heads], beyond))

    costly = [heads for heads in every if is_costly(heads)]
    minimal = [heads for heads in costly if not any(smaller < heads for smaller in costly)]

    def cost_in(head, heads, least):
        """What a head costs beyond the others, on the outcome on which that is most; 0 if it cannot share its work."""
        best = 0.0
        for index in range(len(outcomes)):
            before, alone = loss[heads - {head}][index], loss[frozenset([head])][index]
            beyond = loss[heads][index] - before
            if before <= MOST_LOST_BEFORE and beyond >= max(least, SHARED * alone):
                best = max(best, beyond)
        return best

    def smallest(costs):
        size = min(map(len, costs), default=0)
        ordered = sorted(costs, key=lambda heads: (len(heads) != size, -costs[heads], sorted(heads)))
        return [heads for heads in ordered if len(heads) == size][:MOST_SETS_OF_HEAD]

    tested = set()
    for head in HEADS:
        costs = {heads: cost_in(head, heads, MAY_COUNT) for heads in every if head in heads and len(heads) > 1}
        in_minimal = {heads: cost for heads, cost in costs.items() if cost > 0 and heads in minimal}
        found = smallest(in_minimal)
        most = min(costs, key=lambda heads: (-costs[heads], len(heads), sorted(heads)))
        if costs[most] > 0 and costs[most] >= max(in_minimal.values(), default=0) + MAY_COUNT:
            found.append(most)
        # The losses on further sequences are the same here
        confirmed = {heads: cost_in(head, heads, LIKELY_TO_COUNT) for heads in found}
        confirmed = {heads: cost for heads, cost in confirmed.items() if cost > 0}
        tested.update(smallest(confirmed))
        if confirmed:
            tested.add(max(confirmed, key=lambda heads: (confirmed[heads], sorted(heads))))
    return {head: {tuple(sorted(heads)) for heads in tested if head in heads} for head in HEADS}


def drawn_losses(seed):
    """Answers lost without each subset of four heads on two outcomes: some heads share work, some are needed alone."""
    rng = np.random.default_rng(seed)
    lost = {}
    work = [set(rng.choice(4, size=rng.integers(1, 4), replace=False)) for _ in range(3)]
    worth = rng.integers(0, 30, size=(3, 2))
    for size in range(1, 5):
        for members in combinations(range(4), size):
            # Work is lost once all who share it are gone; a little is lost by chance
            counts = sum(value for shared, value in zip(work, worth, strict=True) if shared <= set(members))
            counts = np.minimum(N, counts + rng.integers(0, 3, size=2))
            lost[tuple(HEADS[index] for index in members)] = tuple(int(count) for count in counts)
    return lost


@pytest.mark.parametrize("outcomes", [(0,), (0, 1)])
def test_sets_to_test_are_those_of_brute_force(outcomes):
    n_sets = 0
    for seed in range(40):
        lost, threshold = drawn_losses(seed), np.full(len(outcomes), 0.1)
        found = sets_to_test(lost, outcomes)
        expected = brute_force(lost, list(outcomes), threshold)
        assert {head: set(sets) for head, sets in found.items()} == {
            head: sets for head, sets in expected.items() if sets
        }
        assert all(len(sets) == len(set(sets)) for sets in found.values())
        n_sets += sum(map(len, found.values()))
    assert n_sets > 40


def test_whoever_is_in_a_set_that_is_tested_is_tested_in_it_too():
    for seed in range(40):
        sets_of_head = sets_to_test(drawn_losses(seed), (0, 1))
        for sets in sets_of_head.values():
            assert all(members in sets_of_head[member] for members in sets for member in members)


def test_of_every_input_a_set_costs_accuracy_or_does_not():
    # the threshold is 6.4 of 64 answers
    lost = {(A, B): (6, 0), (A, C): (7, 0), (B, C): (64, 0)}
    sets = RemovedSets(Removals(lost), [0], np.array([0.1]), every_input=True)
    sets.remove([frozenset(heads) for heads in lost])
    assert [sets.is_costly(frozenset(heads)) for heads in lost] == [False, True, True]
    assert not removed_sets(lost).is_costly(frozenset((A, C)))  # of a sample that would not be suspected
    # a head is tested in the sets in which it costs more than the threshold, but not (A, B)
    tested = sets.confirmed(sets.may_share())
    assert tested == {A: ((A, C),), B: ((B, C),), C: ((A, C), (B, C))}
