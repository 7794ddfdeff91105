"""The search for sets of heads that cannot go together: all of them, nothing else, in few removals."""

import itertools
import random

import pytest

from interp.auditing.redundancy import fatal_sets

HEADS = [(layer, head) for layer in range(6) for head in range(8)]


class Lab:
    """Answers as a model would whose fatal sets are these and all that hold one of them."""

    def __init__(self, *sets):
        self.sets = [frozenset(one) for one in sets]
        self.asked = []

    def __call__(self, chosen):
        self.asked.append(chosen)
        return any(one <= chosen for one in self.sets)


def minimal(lab, heads):
    """By brute force."""
    every = [frozenset(one) for size in range(len(heads) + 1) for one in itertools.combinations(heads, size)]
    fatal = {one for one in every if any(planted <= one for planted in lab.sets)}
    return {one for one in fatal if not any(one - {head} in fatal for head in one)}


def random_system(seed):
    rng = random.Random(seed)
    heads = HEADS[: rng.randint(2, 8)]
    sizes = [rng.choice([2, 3]) for _ in range(rng.randint(0, 5))]
    sets = [rng.sample(heads, min(size, len(heads))) for size in sizes]
    rng.shuffle(heads)
    return heads, Lab(*sets)


@pytest.mark.parametrize("seeds", [range(start, start + 100) for start in range(0, 400, 100)])
def test_all_minimal_sets_are_found_and_nothing_else(seeds):
    for seed in seeds:
        heads, lab = random_system(seed)
        found = fatal_sets(heads, lab, most=10**6)
        assert {frozenset(one) for one in found.sets} == minimal(lab, heads), seed
        assert len(set(map(frozenset, found.sets))) == len(found.sets)
        assert all(list(one) == sorted(one) for one in found.sets)
        assert found.complete
        assert found.removals == len(lab.asked) == len(set(lab.asked)), "none is asked twice"
        assert all(chosen <= set(heads) for chosen in lab.asked)


@pytest.mark.parametrize("most", [1, 3, 6, 10, 15])
def test_what_is_found_before_removals_run_out_is_minimal(most):
    stopped = 0
    for seed in range(200):
        heads, lab = random_system(seed)
        whole = fatal_sets(heads, lab, most=10**6)
        lab.asked.clear()
        found = fatal_sets(heads, lab, most=most)
        assert len(lab.asked) == found.removals <= most
        assert found.complete == (whole.removals <= most)
        assert found.sets == whole.sets[: len(found.sets)]
        if found.complete:
            assert found == whole
        stopped += not found.complete
    assert stopped > 0


def test_one_removal_tells_that_nothing_is_fatal():
    lab = Lab()
    found = fatal_sets(HEADS, lab, most=100)
    assert (found.sets, found.complete, found.removals) == ((), True, 1)
    assert lab.asked == [frozenset(HEADS)]


@pytest.mark.parametrize("heads", [[], HEADS[:1]])
def test_fewer_than_two_heads_need_no_removal(heads):
    lab = Lab(heads)
    assert fatal_sets(heads, lab, most=100).sets == ()
    assert lab.asked == []


def test_a_pair_among_48_heads_takes_few_removals():
    most = 0
    for pair in itertools.combinations(HEADS, 2):
        found = fatal_sets(HEADS, Lab(pair), most=2 * len(HEADS))
        assert found.sets == (pair,)
        assert found.complete
        most = max(most, found.removals)
    assert most <= 16  # the whole, two halvings of 48, and once more with each of the two kept


def test_all_heads_together_are_one_set():
    heads = HEADS[:8]
    found = fatal_sets(heads, Lab(heads), most=100)
    assert found.sets == (tuple(heads),)


def test_pairs_of_pairs_among_many_heads():
    pairs = [(HEADS[at], HEADS[at + 9]) for at in (0, 3, 20)]
    found = fatal_sets(HEADS, Lab(*pairs), most=2 * len(HEADS))
    assert set(found.sets) == set(pairs)
    assert found.complete


def test_removals_run_out_without_a_set():
    found = fatal_sets(HEADS, Lab(HEADS[:2]), most=3)
    assert (found.sets, found.complete, found.removals) == ((), False, 3)
