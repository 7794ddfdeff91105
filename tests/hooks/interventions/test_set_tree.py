"""Sets of heads as a tree: which layers follow, and when a branch has only one set."""

import pytest

from hooks.interventions.set_tree import SetTree


def tree(*sets):
    root = SetTree()
    for some in sets:
        root.add(some)
    return root


@pytest.mark.parametrize(
    ("sets", "only"),
    [
        ([[(0, 1), (0, 0), (2, 3)]], {0: (0, 1), 2: (3,)}),
        ([[(0, 0)], [(0, 0), (1, 0)]], None),  # one set ends where the other goes on
        ([[(0, 0), (1, 0)], [(0, 0), (1, 1)]], None),
        ([[(0, 0)], [(1, 0)]], None),
        ([[]], None),
    ],
)
def test_the_only_set_of_a_branch(sets, only):
    assert tree(*sets).only() == only


def test_sets_share_the_layers_in_which_they_agree():
    root = tree([(0, 0), (1, 0)], [(1, 1), (0, 0)], [(3, 2)])
    assert root.layers.keys() == {0, 3}
    assert root.layers[0].keys() == {(0,)}
    assert root.layers[0][0,].layers[1].keys() == {(0,), (1,)}
    assert root.all_layers() == {0, 1, 3}
    assert not root.is_set
    assert root.layers[3][2,].is_set
