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
    "loop constant gate, unreadable Z2", "loop uniform Z3",
    # every work and every decoy of a single layer
    "dyck balanced", "dyck stack, redundant", "dyck stack among idle heads", "dyck uniform, zero decoy",
    "dyck stack, constant decoy", "dyck uneven, cancelled decoy", "dyck uniform, start decoy",
    "dyck stack, three cancel unreadably under noise", "dyck uniform, three cancel",
    "dyck uneven, two cancel under the noise of one", "dyck levels divided with an uneven head",
    "dyck stack, magnitude", "dyck stack, constant unreadably", "dyck stack, masked redundancy",
    "dyck two layers, self then stack",
    "template same, redundant", "template same, constant decoy", "template copy, zero decoy",
    "template copy, hidden beside a decoy", "template copy, misread",
    "template same, cancelled decoys", "template same, three cancel unreadably under noise",
    "template copy, three cancel", "template copy, two cancel under the noise of one",
    "template same, magnitude", "template same, constant unreadably", "template same, divided", "template majority",
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


@pytest.mark.parametrize("name", [name for name in NAMES if "cancel" in name])
def test_all_heads_that_cancel_are_partners(name):
    answer = known_answer(name, 0)
    cancelling = [truth for truth in answer.heads.values() if truth.partners]
    assert len(cancelling) == (3 if "three" in name else 2)
    readable = "unreadabl" not in name
    assert {truth.truth for truth in cancelling} == {"misleading" if readable else "idle"}


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
