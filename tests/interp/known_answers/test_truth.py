"""The truth about every head of the suite, by brute force with plain hooks and by the labels of `classify_heads`."""

from dataclasses import replace

import pytest
from known_truth import check_labels, check_truth
from sampled import sampled

from interp.known_answers import SUITE, known_answer
from interp.known_answers.suite import DYCK_ANSWERS, SHORT_CHAINS, SHORT_GROUPS, TEMPLATE_ANSWERS

NAMES = (
    *(f"loop {name} {group.name}" for name in SHORT_CHAINS for group in SHORT_GROUPS),
    *(f"dyck {name}" for name in DYCK_ANSWERS),
    *(f"template {name}" for name in TEMPLATE_ANSWERS),
)
"""All but the longer chains, which take minutes; the same functions build those."""
CHOSEN = (
    "loop constant gate, unreadable Z2",
    # every function that builds one, and every decoy
    "dyck balanced", "dyck stack, redundant", "dyck stack among idle heads", "dyck stack, constant decoy",
    "dyck uneven, cancelled decoy", "dyck uniform, start decoy",
    "dyck stack, three cancel unreadably under noise", "dyck uniform, three cancel",
    "dyck levels divided with an uneven head", "dyck stack, constant unreadably", "dyck stack, masked redundancy",
    "dyck two layers, self then stack",
    "template same, redundant", "template same, constant decoy", "template copy, zero decoy", "template copy, misread",
    "template same, cancelled decoys", "template copy, two cancel under the noise of one",
    "template same, magnitude", "template same, divided", "template majority",
    "template copy in two hops, the first hidden", "template copy by kind", "template count, three cancel",
)  # fmt: skip


@pytest.mark.parametrize("name", sampled(NAMES, CHOSEN))
def test_the_truth_about_each_head(name):
    answer = known_answer(name, 0)
    check_labels(answer)
    removed = check_truth(answer, n=64 if name.startswith("loop") else 96)
    for head, truth in answer.heads.items():
        cancels = truth.truth in ("misleading", "idle") and truth.partners
        assert not cancels or not removed.costs([head, *truth.partners], "resample")
        assert not cancels or not removed.costs([head, *truth.partners], "zero")


@pytest.mark.parametrize("name", ["dyck stack, zero decoy", "dyck stack, redundant"])
@pytest.mark.parametrize("truth", ["faithful", "misleading", "hidden", "idle", "redundant"])
def test_a_wrong_truth_is_noticed(name, truth):
    answer = known_answer(name, 0)
    for head, right in answer.heads.items():
        if right.truth != truth:
            heads = {**answer.heads, head: replace(right, truth=truth)}
            with pytest.raises(AssertionError):
                check_truth(replace(answer, heads=heads), n=48)


def test_every_name_is_in_the_suite():
    assert set(NAMES) < set(SUITE)
