"""Needed heads without a label: a planted one that acts like a kind, diffusely, and heads that are like none."""

from copy import deepcopy

import pytest
import torch

import interp
from interp.auditing.acts_like import kinds_to_try
from interp.known_answers import known_answer

PLACE = (0, 2)


@pytest.fixture(scope="module")
def diffuse():
    """A head that copies the previous token, whose scores are so small that it gets a third of the attention."""
    answer = known_answer("template copy, zero decoy", seed=0)
    model = deepcopy(answer.model)
    rows = slice(PLACE[1] * model.cfg.d_head, (PLACE[1] + 1) * model.cfg.d_head)
    with torch.no_grad():
        model.weights[0].attention.q.weight[rows] *= 0.012
    return model, answer.task


@pytest.fixture(scope="module")
def audited(diffuse):
    return interp.audit(*diffuse, n=128)


def test_a_diffuse_head_acts_like_its_kind(audited):
    head = audited.heads[PLACE[1]]
    assert (head.place, head.label, head.score < 0.3) == (PLACE, "unclassified", True)
    assert (head.verdict, head.reason, head.acts_like) == ("faithful", "like a kind", "previous")
    (sentence,) = [text for text in audited.sentences() if text.startswith("0.2 ")]
    assert (
        f"looks like no known kind (nearest: previous, {head.score:.2f}), but acts as previous, diffusely" in sentence
    )
    assert "Its attention to these keys would do" in sentence
    assert "0.2 works through attention to the previous token (previous)" in audited.summary()


def test_the_labels_of_other_heads_are_as_before(audited):
    assert [head.verdict for head in audited.heads[:2]] == ["idle", "misleading"]
    assert [head.acts_like for head in audited.heads[:2]] == ["", ""]


def test_no_kind_is_tried_of_heads_that_are_not_needed_or_have_a_label():
    answer = known_answer("template copy, zero decoy", seed=0)
    result = interp.audit(answer.model, answer.task, n=128)
    assert [head.acts_like for head in result.heads] == ["", "", ""]


def test_a_hidden_head_stays_hidden():
    answer = known_answer("lookup ties, unreadable", seed=0)
    result = interp.audit(answer.model, answer.task, n=128)
    hidden = [place for place, truth in answer.heads.items() if truth.truth == "hidden"]
    assert hidden
    assert {head.place: head.verdict for head in result.heads if head.place in hidden} == dict.fromkeys(
        hidden, "hidden"
    )


class Costs:
    """Experiments with given costs by kind: of the pattern of the kind alone, and of a uniform one."""

    heads = ((0, 0),)

    def __init__(self, costs):
        self.costs = costs

    def effects(self, interventions, labels, heads):
        assert heads == [(0, 0)]
        reading, uniform = self.costs[labels[0, 0]]
        return Given({"label_only_pattern": reading, "uniform": uniform})


class Given:
    def __init__(self, costs):
        self.drop = costs

    def mean(self, name):
        return torch.tensor([[self.drop[name]]]).double().numpy()


@pytest.mark.parametrize(
    ("costs", "kind"),
    [
        ({"previous": (0.0, 0.5), "local": (0.0, 0.5)}, "previous"),  # it has more attention
        ({"previous": (0.11, 0.5), "local": (0.09, 0.5)}, "local"),  # the pattern of the other costs too much
        ({"previous": (0.0, 0.09), "local": (0.0, 0.09)}, None),  # any pattern would do
        ({"previous": (0.2, 0.5), "local": (0.2, 0.5)}, None),
    ],
)
def test_the_kind_that_is_tried(diffuse, costs, kind):
    patterns = interp.classify_heads(*diffuse, n=16, kinds=["previous", "local"], untrained=19)
    scores = patterns.score.value[0, 0]
    scores[:] = [0.25, 0.15]
    chosen = kinds_to_try(Costs(costs), patterns, [(0, 0)], [0], torch.tensor([0.1]).double().numpy())
    assert chosen == ({} if kind is None else {(0, 0): kind})
    assert kinds_to_try(Costs(costs), patterns, [], [0], torch.tensor([0.1]).double().numpy()) == {}
