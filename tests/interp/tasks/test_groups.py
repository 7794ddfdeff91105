"""Groups as checked tables: what is an action, what is refused, and with which words."""

from itertools import product

import pytest
import torch

from interp.tasks import S3, Z2, GroupAction, Lego, cyclic, symmetric

GOOD = {
    "name": "Z2",
    "elements": ("+", "-"),
    "points": ("+1", "-1"),
    "product": ((0, 1), (1, 0)),
    "act": ((0, 1), (1, 0)),
}

RESET = GroupAction(
    name="reset",
    elements=("I", "R", "S"),
    points=("x", "y"),
    product=((0, 1, 2), (1, 1, 1), (2, 2, 2)),
    act=((0, 1), (0, 0), (1, 1)),
)
"""Do nothing, or set the value to x, or to y: a monoid without inverses."""


@pytest.mark.parametrize("group", [Z2, S3, cyclic(5), symmetric(4), RESET], ids=lambda group: group.name)
def test_acting_twice_is_acting_with_the_product(group):
    for g, h in product(range(len(group.elements)), repeat=2):
        for x in range(len(group.points)):
            assert group.act[group.product[g][h]][x] == group.act[g][group.act[h][x]]


@pytest.mark.parametrize("group", [Z2, S3, cyclic(5), symmetric(4)], ids=lambda group: group.name)
def test_a_group_has_inverses_and_moves_every_point_differently(group):
    n = len(group.elements)
    everything = list(range(n))
    for g in everything:
        assert sorted(group.product[g]) == everything
        assert sorted(group.act[g]) == everything
    assert list(group.act[0]) == everything


def test_cyclic_adds_and_symmetric_composes():
    assert cyclic(5).act[3][4] == (3 + 4) % 5
    swap, turn = S3.elements.index("(12)"), S3.elements.index("(123)")
    # first 1 -> 2 -> 3 -> 1, then 1 <-> 2: 1 goes to 1, 2 to 3, 3 to 2
    assert S3.elements[S3.product[swap][turn]] == "(23)"
    assert S3.elements[S3.product[turn][swap]] == "(13)"


def test_s3_is_not_abelian_and_z2_is():
    for group, abelian in ((S3, False), (Z2, True), (symmetric(4), False), (cyclic(4), True)):
        pairs = product(range(len(group.elements)), repeat=2)
        assert all(group.product[g][h] == group.product[h][g] for g, h in pairs) is abelian, group.name


def test_symmetric_has_every_permutation_once():
    assert len(S3.elements) == 6
    assert len(set(symmetric(4).elements)) == 24
    assert set(S3.elements) == {"()", "(12)", "(13)", "(23)", "(123)", "(132)"}


def test_a_semigroup_that_is_no_group_makes_right_sentences(generator):
    task = Lego(n_vars=4, group=RESET, sentence_format="compact")
    batch = task.sample(200, generator=generator)
    for operations, labels in zip(batch.operations.tolist(), batch.labels.tolist(), strict=True):
        value = "x"
        for operation, label in zip(operations, labels, strict=True):
            value = {"I": value, "R": "x", "S": "y"}[RESET.elements[operation]]
            assert RESET.points[label] == value
    assert set(batch.labels.unique().tolist()) == {0, 1}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"product": ((0, 1), (1, 2))}, r"product\[1\]\[1\] is 2: not closed, entries must be 0 to 1"),
        ({"act": ((0, 1), (-1, 0))}, r"act\[1\]\[0\] is -1: not closed, entries must be 0 to 1"),
        ({"product": ((0, 0), (1, 0))}, r"product of Z2 is not associative: \(- \+\) - differs from - \(\+ -\)"),
        ({"act": ((0, 1), (0, 0))}, r"act of Z2 is not an action: \(- -\) \. -1 differs from - \. \(- \. -1\)"),
        ({"product": ((0, 1),)}, r"product has 1 rows of \[2\]; it must be \(2, 2\)"),
        ({"act": ((0, 1), (1, 0, 0))}, r"act has 2 rows of \[2, 3\]; it must be \(2, 2\)"),
        ({"root": 2}, r"root is 2; Z2 has points 0 to 1"),
        ({"root": -1}, r"root is -1; Z2 has points 0 to 1"),
        ({"points": ("0",), "act": ((0,), (0,))}, r"Z2 has 2 elements and 1 points; it needs at least 1 and 2"),
    ],
)
def test_what_is_no_action_is_refused(change, words):
    with pytest.raises(ValueError, match=words):
        GroupAction(**{**GOOD, **change})


def test_the_root_decides_where_chains_start():
    second = GroupAction(**{**GOOD, "root": 1})
    operations = torch.tensor([[0, 1]])
    assert Lego(n_vars=2, group=Z2).values(operations).tolist() == [[0, 1]]
    assert Lego(n_vars=2, group=second).values(operations).tolist() == [[1, 0]]
