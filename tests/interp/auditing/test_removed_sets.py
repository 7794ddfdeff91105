"""Sets that were removed: the level at which one is suspected, and what counts beyond single heads."""

import numpy as np
import pytest
import torch

from interp.auditing.removed_sets import Trials
from interp.tasks.base import Score

N = 64
A, B, C, D = HEADS = [(0, 0), (0, 1), (1, 0), (1, 1)]


class Removals:
    """Removals that lose, or gain, the answers of the first sequences: their number on each of two outcomes."""

    def __init__(self, lost):
        self.lost, self.heads = lost, HEADS

    def score(self):
        return Score(right=torch.ones(N, 2), loss=torch.ones(N, 2), total=torch.ones(N, 2))

    def removed(self, sets):
        counts = np.array([self.lost.get(tuple(one), (0, 0)) for one in sets])
        return (np.arange(N)[:, None, None] < abs(counts)) * np.sign(counts).astype(float)

    def effect_products(self):
        return np.zeros((len(HEADS), len(HEADS)))


def trials(lost, outcomes=(0,)):
    found = Trials(Removals(lost), list(outcomes), np.full(len(outcomes), 0.1))
    found.run([frozenset(one) for one in lost])
    return found


@pytest.mark.parametrize(
    ("lost", "one_outcome", "two_outcomes"),
    # p of a t test with a standard error of at least one answer: 0.077, 0.047, 0.028, 0.016; twice that for two
    [(11, False, False), (12, True, False), (13, True, False), (14, True, True)],
)
def test_a_set_is_suspected_at_five_percent_over_all_outcomes(lost, one_outcome, two_outcomes):
    assert trials({(A,): (lost, 0)}).costs[frozenset([A])] == one_outcome
    for each in ((lost, 0), (0, lost), (lost, lost)):
        assert trials({(A,): each}, outcomes=(0, 1)).costs[frozenset([A])] == two_outcomes


def test_a_harmful_set_costs_accuracy_beyond_its_heads():
    found = trials({
        (A,): (-20, 0), (B,): (-20, 0), (A, B): (0, 0),  # 40 beyond its heads, and costs nothing
        (C,): (12, 0), (D,): (12, 0), (C, D): (24, 0),  # costs 24, nothing beyond its heads
        (A, C): (32, 0),  # costs 32, and 40 beyond its heads
    })  # fmt: skip
    costs = {some for some, one in found.costs.items() if one}
    assert costs == {frozenset(one) for one in ([C], [D], [C, D], [A, C])}
    assert [some for some in found.harmful if found.harmful[some] and len(some) > 1] == [frozenset([A, C])]


def test_only_what_a_head_adds_to_the_others_makes_it_needed_in_a_set():
    """B alone loses 36 answers. With A, 60 or 40 are lost: A adds 24 or 4, and B, after A, all of them."""
    found = trials({(A,): (0, 0), (B,): (36, 0), (A, B): (60, 0)})
    found.harmful[frozenset([B])] = False  # as if it were only needed with A
    assert found.needed_in(frozenset(HEADS)) == {A: ((A, B),), B: ((A, B),)}
    found = trials({(A,): (0, 0), (B,): (36, 0), (A, B): (40, 0)})
    found.harmful |= {frozenset([B]): False, frozenset([A, B]): True}
    assert found.needed_in(frozenset(HEADS)) == {B: ((A, B),)}


def test_of_equally_small_sets_the_most_costly_come_first():
    lost = {(A, B): (20, 0), (A, C): (60, 0), (A, D): (40, 0)}
    assert trials(lost).needed_in(frozenset(HEADS))[A] == ((A, C), (A, D), (A, B))
