"""Interventions that test a label are tried only on labelled heads whose removal costs something."""

import numpy as np
import pytest
import torch

import interp
from hooks import Transformer
from interp.auditing.experiments import HeadExperiments
from interp.auditing.interventions import LABEL_TESTS, ON_ALL_HEADS, ROWS_OF_LABEL
from interp.auditing.significance import LITTLE
from interp.auditing.steps import labels_to_test
from interp.core.sample import Sample
from interp.heads.interventions import REMOVALS
from interp.known_answers import known_answer
from interp.tasks import Lego

HEADS = [(0, 0), (0, 1), (1, 0), (1, 1)]
LOSS = np.array([[0.5, 0.0], [0.05, 0.05], [0.0, 0.25], [0.5, 0.5]])
"""Accuracy lost without each head, on two outcomes."""


@pytest.mark.parametrize(
    ("negligible", "tried"),
    [(0.1, [0, 2, 3]), (0.3, [0, 3]), (0.5, [0, 3]), (0.6, []), (np.array([1.0, 0.25]), [2, 3])],
)
def test_labels_are_tested_of_heads_that_cost_enough_on_some_outcome(negligible, tried):
    labels = dict.fromkeys(HEADS, "association")
    threshold = np.broadcast_to(negligible, 2) / LITTLE
    expected = {HEADS[index]: "association" for index in tried}
    assert labels_to_test(labels, HEADS, LOSS, threshold) == expected
    del labels[HEADS[3]]
    expected.pop(HEADS[3], None)
    assert labels_to_test(labels, HEADS, LOSS, threshold) == expected


def test_an_audit_tests_the_labels_of_costly_heads_only(monkeypatch):
    calls, run = [], HeadExperiments.effects

    def effects(experiments, interventions, labels, heads=None):
        calls.append((interventions, dict(labels), heads))
        return run(experiments, interventions, labels, heads)

    monkeypatch.setattr(HeadExperiments, "effects", effects)
    known = known_answer("template copy, zero decoy", 0)
    result = interp.audit(known.model, known.task, n=128)
    (on_all, labels, no_choice), without_label, (tests, tested, chosen) = calls
    assert without_label == (ROWS_OF_LABEL, {}, {})  # each needed head has a label
    assert (on_all, no_choice, tests, chosen) == (ON_ALL_HEADS, None, LABEL_TESTS, tested)
    assert set(REMOVALS) <= set(ON_ALL_HEADS)
    assert not set(ON_ALL_HEADS) & set(LABEL_TESTS)
    costly = {head.place for head in result.heads if max(head.costs["mean"].drop) >= LITTLE * result.threshold.min()}
    assert tested == {head: label for head, label in labels.items() if head in costly}
    assert set(tested) < set(labels)  # the decoy has a label and costs nothing
    for head in result.heads:
        tried = set(LABEL_TESTS) & set(head.costs)
        if head.label == "previous":  # the related key is the same in every sequence
            assert "resampled_pattern" not in tried
            tried.add("resampled_pattern")
        assert tried == (set(LABEL_TESTS) if head.place in tested else {"resampled_pattern"} & tried)


def test_interventions_on_no_heads_are_not_tried():
    task = Lego(n_vars=2)
    model = Transformer(interp.config_for(task, n_layers=2, d_model=8, n_heads=2))
    batch = task.sample(6, generator=torch.Generator().manual_seed(0))
    effects = HeadExperiments(model, Sample(task, batch, 0)).effects(LABEL_TESTS, {}, heads=[])
    assert set(effects.drop) == set(LABEL_TESTS)
    assert all(np.isnan(drop).all() and drop.shape == (6, 4, 2) for drop in effects.drop.values())
