"""Search for sets of heads that can be removed one by one, but not together."""

from itertools import combinations

import pytest
import torch

from interp.auditing.sets import fatal_sets

HEADS = [(layer, head) for layer in range(2) for head in range(4)]
MANY = [(layer, head) for layer in range(6) for head in range(8)]


def fatal_by(sets):
    """A function that calls sets fatal that contain one of these; and the list of its calls."""
    calls = []

    def fatal(chosen):
        calls.append(chosen)
        return any(set(one) <= chosen for one in sets)

    return fatal, calls


def random_sets(seed, n):
    """`n` sets of two or three heads, none within another."""
    generator, found = torch.Generator().manual_seed(seed), []
    while len(found) < n:
        size = int(torch.randint(2, 4, (), generator=generator))
        drawn = {HEADS[index] for index in torch.randperm(len(HEADS), generator=generator)[:size].tolist()}
        if not any(drawn <= one or one <= drawn for one in found):
            found.append(drawn)
    return found


def minimal(sets):
    """All minimal fatal sets, by brute force."""
    fatal, _ = fatal_by(sets)
    every = [frozenset(one) for size in range(1, 5) for one in combinations(HEADS, size) if fatal(frozenset(one))]
    return {one for one in every if not any(other < one for other in every)}


@pytest.mark.parametrize("seed", range(30))
def test_every_fatal_set_is_minimal(seed):
    sets = random_sets(seed, 1 + seed % 4)
    found = fatal_sets(HEADS, fatal_by(sets)[0])
    assert {frozenset(one) for one in found.sets} <= minimal(sets)


@pytest.mark.parametrize("seed", range(30))
def test_the_set_that_can_be_removed_is_maximal(seed):
    sets = random_sets(seed, 1 + seed % 4)
    fatal, _ = fatal_by(sets)
    found = fatal_sets(HEADS, fatal)
    assert not fatal(frozenset(found.together))
    outside = [head for head in HEADS if head not in found.together]
    assert all(fatal(frozenset([*found.together, head])) for head in outside)
    assert all(any(head in one for one in found.sets) for head in outside)
    assert len(found.sets) == len(outside)


def test_disjoint_pairs_are_all_found():
    pairs = {((0, 0), (1, 1)), ((0, 1), (0, 3)), ((1, 0), (1, 2))}
    assert set(fatal_sets(HEADS, fatal_by(pairs)[0]).sets) == pairs


def test_each_of_three_interchangeable_heads_has_a_partner():
    equal = [(0, 1), (0, 2), (1, 3)]
    found = fatal_sets(HEADS, fatal_by(list(combinations(equal, 2)))[0]).sets
    assert {head for one in found for head in one} == set(equal)
    assert all(len(one) == 2 for one in found)


def test_one_removal_suffices_if_nothing_is_fatal():
    fatal, calls = fatal_by([])
    found = fatal_sets(HEADS, fatal)
    assert (found.sets, found.together, found.removals, calls) == ((), tuple(HEADS), 1, [frozenset(HEADS)])


@pytest.mark.parametrize("heads", [[], [(0, 0)]])
def test_fewer_than_two_heads_need_no_removal(heads):
    fatal, calls = fatal_by([])
    assert fatal_sets(heads, fatal).sets == ()
    assert not calls


def test_number_of_removals_to_find_a_pair_among_48_heads():
    fatal, calls = fatal_by([((0, 3), (4, 5))])
    found = fatal_sets(MANY, fatal)
    assert found.sets == (((0, 3), (4, 5)),)
    assert found.removals == len(calls) <= len(MANY) + 12


def test_no_removal_is_tried_twice():
    fatal, calls = fatal_by(random_sets(3, 4))
    fatal_sets(HEADS, fatal)
    assert len(calls) == len(set(calls))


def test_all_heads_together_are_one_set():
    assert fatal_sets(HEADS, fatal_by([HEADS])[0]).sets == (tuple(HEADS),)
