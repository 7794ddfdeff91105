"""Sets of heads that are needed together or cancel: all subsets, and the search, on made-up effects and on models."""

from itertools import combinations

import numpy as np
import pytest
import torch
from sampled import sampled

from benchmarks.committees import Bits, drawn_committee, sets_of
from interp.auditing import sets as searching
from interp.auditing.sets import MOST_HEADS_EXHAUSTIVE, find_sets
from interp.tasks.base import Score

N = 64
HEADS = [(layer, head) for layer in range(2) for head in range(4)]
MANY = [(layer, head) for layer in range(3) for head in range(5)]
BOTH_WAYS = pytest.mark.parametrize("most_exact", [MOST_HEADS_EXHAUSTIVE, 0], ids=["exact", "search"])


class Table:
    """Removals whose loss is a function of the set: a share of the sequences."""

    def __init__(self, lost, heads=HEADS, effects=None):
        self.lost, self.heads, self.calls = lost, heads, []
        self.effects = np.zeros((len(heads), 1)) if effects is None else effects

    @property
    def score(self):
        ones = torch.ones(N, 1)
        return Score(right=ones, loss=ones, total=ones)

    def removed(self, sets):
        self.calls += [frozenset(one) for one in sets]
        lost = np.array([round(N * self.lost(frozenset(one))) for one in sets])
        return (np.arange(N)[:, None] < lost)[:, :, None].astype(float)

    def effect_products(self):
        return self.effects @ self.effects.T


def sets(table, most_exact=MOST_HEADS_EXHAUSTIVE):
    needed = [head for head in table.heads if table.lost(frozenset([head])) > 0.1]
    return find_sets(table, needed, outcomes=[0], threshold=np.array([0.1]), most_exact=most_exact)


def any_of(*harmful):
    """Everything is lost without all heads of one of these sets, and nothing otherwise."""
    return lambda removed: float(any(set(one) <= removed for one in harmful))


def votes(weights, needed):
    """The answer is right while the votes of the other heads add up to what is needed."""
    return lambda removed: float(sum(vote for head, vote in weights.items() if head not in removed) < needed)


@BOTH_WAYS
def test_pairs_triples_and_a_set_of_five(most_exact):
    harmful = {((0, 0), (1, 1)), ((0, 1), (0, 2), (1, 3)), tuple(sorted([(0, 0), *HEADS[2:4], *HEADS[6:]]))}
    found = sets(Table(any_of(*harmful)), most_exact)
    assert set(found.costly) == harmful
    assert found.smallest_costly == ((0, 0), (1, 1))
    assert found.harmless == {}
    assert found.exact == (most_exact > 0)


@BOTH_WAYS
def test_a_harmful_set_of_five_heads(most_exact):
    five = tuple(HEADS[1:6])
    found = sets(Table(any_of(five)), most_exact)
    assert found.costly == (five,)
    assert found.smallest_costly == five
    assert len(found.largest_harmless) == 7


@BOTH_WAYS
def test_masked_redundancy(most_exact):
    """Two backups of each other, and a head that nothing reads without either: without all three nothing is lost."""
    pair, reader = frozenset([(0, 1), (0, 2)]), (1, 0)
    table = Table(lambda removed: float(pair <= removed and reader not in removed))
    found = sets(table, most_exact)
    assert found.costly == (tuple(sorted(pair)),)
    assert found.largest_harmless == tuple(HEADS)
    assert found.smallest_costly == tuple(sorted(pair))


@BOTH_WAYS
def test_three_heads_of_which_two_suffice(most_exact):
    three = [(0, 1), (0, 2), (1, 3)]
    found = sets(Table(any_of(*combinations(three, 2))), most_exact)
    assert set(found.costly) == set(combinations(three, 2))


@BOTH_WAYS
def test_cancellation_of_three(most_exact):
    """Votes of +16, -8 and -8 next to one of 4, of which 4 are needed."""
    weights = {(0, 0): 16, (0, 3): -8, (1, 1): -8, (1, 2): 4}
    effects = np.array([[-weights.get(head, 0)] for head in HEADS], dtype=float)
    answer = lambda removed: float(sum(v for head, v in weights.items() if head not in removed) != 4)  # noqa: E731
    found = sets(Table(answer, effects=effects), most_exact)
    cancel = ((0, 0), (0, 3), (1, 1))
    assert {head: found.harmless[head] for head in cancel} == dict.fromkeys(cancel, cancel)
    assert (1, 2) not in found.harmless  # nothing replaces it
    assert set(cancel) < set(found.largest_harmless)
    assert len(found.largest_harmless) == 7
    assert found.costly == ()
    assert len(found.smallest_costly) == 1


@BOTH_WAYS
def test_cancellation_that_the_effects_do_not_show(most_exact):
    """The loss shrinks with each of four heads removed, and single effects on the logits show nothing."""
    four = {(0, 0): 0.8, (0, 3): 0.6, (1, 1): 0.4, (1, 2): 0.0}

    def lost(removed):
        inside = [head for head in removed if head in four]
        return {0: 0.0, 1: 0.9, 2: 0.6, 3: 0.3, 4: 0.0}[len(inside)]

    generator = np.random.default_rng(0)
    found = sets(Table(lost, effects=generator.normal(size=(8, 20))), most_exact)
    assert {head: found.harmless[head] for head in four} == dict.fromkeys(four, tuple(sorted(four)))


@BOTH_WAYS
def test_the_smallest_loss_is_chosen_among_equals(most_exact):
    loss = {frozenset([(0, 0), (0, 1)]): 0.08, frozenset([(0, 0), (1, 2)]): 0.03}
    found = sets(Table(lambda removed: loss.get(removed, float((0, 0) in removed))), most_exact)
    assert found.harmless == {(0, 0): ((0, 0), (1, 2))}


def costly_but_for(*cancelling):
    """Everything is lost without the first head, unless exactly one of these sets is removed."""
    return lambda removed: float((0, 0) in removed and set(removed) not in map(set, cancelling))


def test_a_needed_head_is_tried_with_heads_that_hardly_change_the_logits(monkeypatch):
    """Its triple is among the three strongest heads, of which all subsets are tried; its pair is not."""
    monkeypatch.setattr(searching, "MOST_PAIRED", 3)
    pair, triple = ((0, 0), (1, 3)), ((0, 0), (0, 1), (0, 2))
    effects = np.array([[{(0, 0): 2.0, (0, 1): -1.0, (0, 2): -1.0}.get(head, 0.0)] for head in HEADS])
    table = Table(costly_but_for(pair, triple), effects=effects)
    assert sets(table, most_exact=0).harmless == {(0, 0): pair}
    assert frozenset(triple) in table.calls


def test_more_than_the_most_cancelling_set_is_tried():
    """Of 10 + a + b, the triple that cancels leaves 0.1, another nothing; a greedy choice begins with the -9."""
    change_of_head = dict(zip(MANY, [10, -4.5, -5.4, -5, -5, -9, *[40, -40] * 4, 0], strict=True))
    triple = ((0, 0), (0, 1), (0, 2))
    effects = np.array([[float(change_of_head[head])] for head in MANY])
    result = sets(Table(costly_but_for(triple), heads=MANY, effects=effects), most_exact=0)
    assert result.harmless == {(0, 0): triple}


def test_what_heads_cost_alone_does_not_count():
    """Two heads that cost 0.09 each cost 0.18 together: more than the threshold, and not more than alone."""
    cost = {(0, 0): 0.095, (0, 1): 0.095}
    found = sets(Table(lambda removed: 2.0 * sum(cost.get(head, 0) for head in removed) / 2))
    assert found.costly == ()


def test_a_head_that_is_needed_alone_is_in_no_harmful_set():
    found = sets(Table(any_of([(0, 0)], [(0, 1), (0, 2)])))
    assert found.costly == (((0, 1), (0, 2)),)
    assert found.smallest_costly == ((0, 0),)


def test_all_subsets_are_tried_once():
    table = Table(any_of())
    found = sets(table)
    assert len(table.calls) == len(set(table.calls)) == found.n_removals == 2 ** len(HEADS) - 1
    assert found.costly == ()
    assert found.smallest_costly == ()
    assert found.largest_harmless == tuple(HEADS)


def test_more_heads_are_searched():
    pair, three = ((0, 1), (2, 4)), ((0, 0), (1, 1), (2, 2))
    table = Table(any_of(pair, three), heads=MANY)
    found = sets(table)
    assert not found.exact
    assert set(found.costly) == {pair, three}
    assert found.n_removals == len(table.calls) == len(set(table.calls)) < 1000


def test_every_harmful_pair_is_found():
    """Any two of nine heads are harmful, and no larger set is."""
    nine = MANY[:9]
    result = sets(Table(lambda removed: float(len(removed) == 2 and removed <= set(nine)), heads=MANY))
    assert set(result.costly) == set(combinations(nine, 2))


def test_triples_with_large_predicted_effects_are_tried():
    """Three heads that are not among the eight strongest add up to 15, fewer than 80 triples to more."""
    triple = tuple(MANY[8:11])
    effects = np.array([[6, 0], [-6, 0]] * 4 + [[0, 5]] * 3 + [[0, 0]] * 4, dtype=float)
    result = sets(Table(lambda removed: float(removed == frozenset(triple)), heads=MANY, effects=effects))
    assert result.costly == (triple,)


def test_every_majority_of_five_is_found():
    """Three of five equal votes are needed; each head is in six sets of three."""
    five = [(0, 0), (0, 3), (1, 1), (2, 0), (2, 4)]
    found = sets(Table(votes(dict.fromkeys(five, 1), 3), heads=MANY))
    assert set(found.costly) == set(combinations(five, 3))


def test_sets_that_differ_in_one_head_are_all_found():
    """Two of eight equal votes are needed: any seven of the eight are a minimal harmful set."""
    eight = MANY[::2]
    found = sets(Table(votes(dict.fromkeys(eight, 1), 2), heads=MANY))
    assert set(found.costly) == set(combinations(eight, 7))


@BOTH_WAYS
def test_a_model_of_one_head(most_exact):
    found = sets(Table(any_of(), heads=HEADS[:1]), most_exact)
    assert (found.costly, found.cancelling, found.smallest_costly) == ((), (), ())
    assert found.largest_harmless == tuple(HEADS[:1])


@pytest.mark.parametrize("seed", sampled(range(15), range(4)))
def test_the_search_equals_the_exact_answer_on_random_models(seed):
    model = drawn_committee(seed, n_heads=4)
    exact, found = (sets_of(model, Bits(), seed=seed, most_exact=most) for most in (MOST_HEADS_EXHAUSTIVE, 0))
    assert (exact.exact, found.exact) == (True, False)
    assert (set(found.costly), found.harmless) == (set(exact.costly), exact.harmless)
