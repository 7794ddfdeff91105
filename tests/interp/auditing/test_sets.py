"""Sets of heads that are needed together or cancel: all subsets, and the search, on made-up effects and on models."""

from itertools import combinations

import numpy as np
import pytest
import torch
from sampled import sampled

from benchmarks.committees import Bits, drawn_committee, sets_of
from interp.auditing import sets as searching
from interp.auditing.interventions import CANCELLING, MOSTLY_SHARED, NEEDED_IN, TOGETHER
from interp.auditing.sets import MOST_HEADS_EXHAUSTIVE, HeadSets, effects_of_sets, find_sets, undecided_sets
from interp.auditing.significance import PValues, uncorrected_p_values
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
    further = Table(table.lost, table.heads)  # the same losses on other sequences
    return find_sets(table, needed, outcomes=[0], threshold=np.array([0.1]), further=further, most_exact=most_exact)


@pytest.fixture
def many_sets(monkeypatch):
    """No bound on the number of sets of a head."""
    monkeypatch.setattr("interp.auditing.removed_sets.MOST_SETS_OF_HEAD", 100)


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
    needed = {(0, 0), (0, 1), (1, 2)}
    found = sets(Table(lambda removed: loss.get(removed, float(not removed.isdisjoint(needed)))), most_exact)
    assert found.harmless == {(0, 0): ((0, 0), (1, 2)), (0, 1): ((0, 0), (0, 1)), (1, 2): ((0, 0), (1, 2))}


def costly_but_for(*cancelling, needed=((0, 0),)):
    """Everything is lost without one of the needed heads, unless exactly one of these sets is removed."""
    return lambda removed: float(not removed.isdisjoint(needed) and set(removed) not in map(set, cancelling))


def test_a_needed_head_is_tried_with_heads_that_hardly_change_the_logits(monkeypatch):
    """Its triple is among the three strongest heads, of which all subsets are tried; its pair is not."""
    monkeypatch.setattr(searching, "MOST_PAIRED", 3)
    pair, triple = ((0, 0), (1, 3)), ((0, 0), (0, 1), (0, 2))
    effects = np.array([[{(0, 0): 2.0, (0, 1): -1.0, (0, 2): -1.0}.get(head, 0.0)] for head in HEADS])
    table = Table(costly_but_for(pair, triple, needed=pair), effects=effects)
    assert sets(table, most_exact=0).harmless == {(0, 0): pair, (1, 3): pair}
    assert frozenset(triple) in table.calls


def test_more_than_the_most_cancelling_set_is_tried():
    """Of 10 + a + b, the triple that cancels leaves 0.1, another nothing; a greedy choice begins with the -9."""
    change_of_head = dict(zip(MANY, [10, -4.5, -5.4, -5, -5, -9, *[40, -40] * 4, 0], strict=True))
    triple = ((0, 0), (0, 1), (0, 2))
    effects = np.array([[float(change_of_head[head])] for head in MANY])
    result = sets(Table(costly_but_for(triple, needed=MANY[:6]), heads=MANY, effects=effects), most_exact=0)
    assert result.harmless == dict.fromkeys(triple, triple)


@BOTH_WAYS
def test_a_head_that_only_reroutes_cancels_nothing(most_exact):
    """Without a needed head a reader sends everything astray; without both nothing is lost."""
    reader, four = (1, 3), tuple(HEADS[:4])

    def lost(removed):
        if reader in removed or set(removed) == set(four):
            return 0.0
        return float(not removed.isdisjoint(four))

    assert sets(Table(lost), most_exact).harmless == dict.fromkeys(four, four)


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
    assert found.n_pairs == 15 * 14 // 2


def test_pairs_of_the_strongest_heads_and_of_needed_ones_are_tried(monkeypatch):
    monkeypatch.setattr(searching, "MOST_PAIRED", 6)
    needed = frozenset([(0, 0)])
    strongest = np.zeros((15, 1))
    strongest[5:11] = 1
    found = sets(Table(lambda removed: float(needed <= removed), heads=MANY, effects=strongest))
    # 15 pairs of the six strongest, and 14 with the needed head; random orders begin with a pair each
    assert 15 + 14 <= found.n_pairs <= 15 + 14 + searching.ORDERS


@pytest.mark.usefixtures("many_sets")
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


@pytest.mark.usefixtures("many_sets")
def test_every_majority_of_five_is_found():
    """Three of five equal votes are needed; each head is in six sets of three."""
    five = [(0, 0), (0, 3), (1, 1), (2, 0), (2, 4)]
    found = sets(Table(votes(dict.fromkeys(five, 1), 3), heads=MANY))
    assert set(found.costly) == set(combinations(five, 3))


@pytest.mark.usefixtures("many_sets")
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


# effects in an audit

A, B, C = HEADS[:3]
TESTED_SETS = HeadSets(
    needed_in={A: ((A, B), (A, C)), B: ((A, B),)},
    harmless={C: (B, C)},
    largest_harmless=(),
    smallest_costly=(),
    exact=True,
    n_removals=0,
    n_pairs=0,
)


def effects_on(lost, pairs=TESTED_SETS.needed_pairs, cancelling=TESTED_SETS.cancelling):
    """Effects of sets, from the share of the sequences that are lost without each; the first ones are."""
    table = Table(lambda removed: lost.get(tuple(sorted(removed)), 0.0))
    return effects_of_sets(table, TESTED_SETS, [0], pairs=pairs, cancelling=cancelling)


def test_effects_of_sets_by_hand():
    """Without A 1/8 of the answers are lost, without B 1/4, without both 3/4: beyond B, A costs 1/2."""
    effects = effects_on({(A,): 1 / 8, (B,): 1 / 4, (A, B): 3 / 4, (A, C): 1 / 8, (B, C): 1 / 16})
    assert effects.mean(NEEDED_IN)[:, 0].tolist() == [1 / 2, 1 / 8, 5 / 8]
    assert effects.mean(CANCELLING)[:, 0].tolist() == [1 / 16]
    assert effects.mean(TOGETHER)[:, 0].tolist() == [3 / 4, 1 / 8, 1 / 16]
    # Beyond the others, less twice its cost alone: 1/4, -1/8, 1/8
    mostly = effects.mean(MOSTLY_SHARED)[:, 0]
    np.testing.assert_allclose(mostly / mostly[0], [1, -1 / 2, 1 / 2])
    assert mostly[0] > 0


def test_sets_that_are_not_tried_again_have_no_effect():
    effects = effects_on({(A, B): 1 / 2}, pairs=[(A, (A, B))], cancelling=[])
    for name in (NEEDED_IN, MOSTLY_SHARED):
        assert np.isnan(effects.drop[name]).any((0, 2)).tolist() == [False, True, True]
    assert np.isnan(effects.drop[CANCELLING]).all()
    assert np.isnan(effects.drop[TOGETHER]).any((0, 2)).tolist() == [False, True, True]


@pytest.mark.parametrize(
    ("alone", "together", "shown"),
    [
        (0.0, 0.5, "matters"),  # nothing alone, all of it together
        (0.125, 0.875, "matters"),
        (0.5, 1.0, None),  # three quarters more than the half of its work that it does alone
        (0.5, 0.5, "harmless"),  # all of its work alone
        (1.0, 1.0, "harmless"),
    ],
)
def test_work_is_mostly_shared_if_a_head_costs_twice_as_much_beyond_others(alone, together, shown):
    """B costs nothing alone. With A alone at one half, and all lost together, A does exactly half of its work alone."""
    effects = effects_on({(A,): alone, (B,): 0.0, (A, B): together})
    p = uncorrected_p_values(effects, np.array([0.1]), times=40.0)  # as of 40 times the sequences
    for question in ("matters", "harmless"):
        assert (getattr(p, question)[MOSTLY_SHARED][0, 0] < 0.001) == (question == shown)


def test_undecided_sets_are_those_that_may_decide_an_undecided_head():
    """Pairs (A, AB), (A, AC), (B, AB): open by what is lost beyond others, by whether that is mostly shared, or not."""

    def p_of(needed_in, mostly, cancels):
        p = {NEEDED_IN: needed_in, MOSTLY_SHARED: mostly, CANCELLING: cancels}
        smallest = {name: np.array(values, dtype=float)[:, None] for name, values in p.items()}
        ones = {name: np.ones_like(values) for name, values in smallest.items()}
        return PValues(matters=ones, harmless=smallest, more_than_little=ones, limited=ones)

    def undecided(p, heads):
        return undecided_sets(p, TESTED_SETS, heads, alpha=0.01)

    pairs = TESTED_SETS.needed_pairs
    assert undecided(p_of([0.5, 0, 0], [0, 0, 0], [0]), [A, B, C]) == (pairs[:1], [])
    assert undecided(p_of([0, 0, 0], [0, 0.5, 0], [0]), [A, B, C]) == (pairs[1:2], [])
    assert undecided(p_of([0.5] * 3, [0.5] * 3, [0.5]), [B]) == (pairs[2:], [(B, C)])
    assert undecided(p_of([0.5] * 3, [0.5] * 3, [0.5]), [A]) == (pairs[:2], [])
    assert undecided(p_of([0.01] * 3, [0.01] * 3, [0.01]), [A, B, C]) == ([], [])
