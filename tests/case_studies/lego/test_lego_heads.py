"""Heads of models that extrapolate, and of pretrained ones: counted over models, by labels."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
from lego_curves import curve, evidence_of

from case_studies.lego import evolved, portion
from case_studies.lego.study import STUDY

CLAIMS = {claim.id: claim for claim in STUDY.claims}
DEPTHS = (2, 3, 4, 5, 6)


def measured(monkeypatch, labels, accuracies):
    """The measurement of models with these accuracies of their first untrained variable, and these labels of heads."""
    found = {
        name: [curve([[1, 0.5], [1, 0.5], [1, value], [1, 1], [1, 1]], [1, 0], depths=DEPTHS) for value in values]
        for name, values in accuracies.items()
    }
    evidence = evidence_of(monkeypatch, found, evolved)
    for specs in evidence.groups.values():
        for spec in specs:
            spec.task = None  # type: ignore[misc]
    monkeypatch.setattr(type(evidence), "run", lambda self, spec: SimpleNamespace(model=spec))
    monkeypatch.setattr(
        evolved, "classify_heads", lambda model, task, n, seed: SimpleNamespace(label=labels[model.name][model.seed])
    )
    groups = tuple(name for name in accuracies if name != evolved.CONTROL)
    measure = partial(evolved.measure_evolved, groups=groups, control=evolved.CONTROL)
    return replace(CLAIMS["heads.extrapolating"], measure=measure).measurement(evidence)


BOTH = [["association", "unclassified"], ["manipulation", "broadcast"]]
ONE = [["association", "association"], ["unclassified", "unclassified"]]


def test_only_models_that_extrapolate_need_both_kinds_of_heads(monkeypatch):
    accuracies = {"long-tied": [0.9] * 8 + [0.6], "plain-untied": [0.5, 0.9]}
    labels = {"long-tied": [BOTH] * 8 + [ONE], "plain-untied": [BOTH, ONE]}
    said = measured(monkeypatch, labels, accuracies)
    assert (said.value, said.n) == (1, 8)
    assert said.numbers["with both kinds, of those that do not"] == {"long-tied": "0 of 1", "plain-untied": "1 of 1"}
    assert CLAIMS["heads.extrapolating"].verdict(said) == "reproduced"
    # One exception refutes a statement about all
    labels["long-tied"][0] = ONE
    said = measured(monkeypatch, labels, accuracies)
    assert said.value == pytest.approx(7 / 8)
    assert CLAIMS["heads.extrapolating"].verdict(said) == "not reproduced"


def test_few_extrapolating_models_decide_nothing(monkeypatch):
    accuracies = {"long-tied": [0.9] * 7, "plain-untied": [0.5]}
    said = measured(monkeypatch, {"long-tied": [BOTH] * 7, "plain-untied": [ONE]}, accuracies)
    assert CLAIMS["heads.extrapolating"].verdict(said) == "inconclusive"


def test_a_model_is_run_at_up_to_twice_its_trained_depth(monkeypatch):
    deep = curve([[1, 0.5], [1, 0.5], [1, 0.6], [1, 1], [1, 1]], [1, 0], depths=DEPTHS)
    evidence = evidence_of(monkeypatch, {"long-tied": [deep]}, evolved)
    assert evolved.reach(evidence, "long-tied") == [0.6]


def test_a_portion_of_the_heads_is_counted_over_models(monkeypatch):
    labels = [["association", "manipulation", "broadcast"], ["previous", "unclassified", "unclassified"]]
    blank = SimpleNamespace(label=[["unclassified"] * 3] * 2)
    monkeypatch.setattr(portion, "labels_of", lambda evidence, spec, task: (SimpleNamespace(label=labels), blank, None))
    evidence = evidence_of(monkeypatch, {"pretrained": [None] * 3})
    said = CLAIMS["heads.portion"].measurement(evidence)
    assert (said.value, said.n, said.unit) == (0.5, 3, "models")
    assert said.tables[0][1][1] == ["0", "6", "1", "1", "1", "3", "0.5", "0"]
    assert CLAIMS["heads.portion"].verdict(said) == "reproduced"
    labels[0][:] = ["unclassified"] * 3
    assert CLAIMS["heads.portion"].verdict(CLAIMS["heads.portion"].measurement(evidence)) == "not reproduced"
