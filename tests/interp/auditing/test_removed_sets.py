"""Sets that were removed: the level at which one is suspected, and what counts beyond single heads."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from interp.auditing.removed_sets import RemovedSets
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


def set_costly(sets, *heads, costly):
    """As if the search had found this about a set."""
    sets.by_heads[frozenset(heads)] = replace(sets.by_heads[frozenset(heads)], is_costly=costly)


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


def test_only_what_a_head_adds_to_the_others_makes_it_needed_in_a_set():
    """B alone loses 36 answers. With A, 60 or 40 are lost: A adds 24 or 4, and B, after A, all of them."""
    sets = removed_sets({(A,): (0, 0), (B,): (36, 0), (A, B): (60, 0)})
    set_costly(sets, B, costly=False)  # as if it were only needed with A
    assert sets.needed_in(frozenset(HEADS)) == {A: ((A, B),), B: ((A, B),)}
    sets = removed_sets({(A,): (0, 0), (B,): (36, 0), (A, B): (40, 0)})
    set_costly(sets, B, costly=False)
    set_costly(sets, A, B, costly=True)
    assert sets.needed_in(frozenset(HEADS)) == {B: ((A, B),)}


def test_of_equally_small_sets_the_most_costly_come_first():
    lost = {(A, B): (20, 0), (A, C): (60, 0), (A, D): (40, 0)}
    assert removed_sets(lost).needed_in(frozenset(HEADS))[A] == ((A, C), (A, D), (A, B))
