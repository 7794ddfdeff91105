"""Untrained variables of models from different starts: the first one counts, if the start has learned the others."""

from dataclasses import replace

import pytest
from lego_curves import curve, evidence_of

from case_studies.lego import lengths
from case_studies.lego.study import STUDY

CLAIMS = {claim.id: claim for claim in STUDY.claims if claim.id.startswith("start.lengths-")}
SUPERVISED = [1, 1, 0, 0]


def measured(monkeypatch, worst_trained):
    accuracies = {"plain-mimic": [1, worst_trained, 0.8, 0.1], "plain-random": [1, 0.5, 0.5, 0.9]}
    found = {name: [curve([values], SUPERVISED, depths=(2,))] * 3 for name, values in accuracies.items()}
    return CLAIMS["start.lengths-mimic"].measurement(evidence_of(monkeypatch, found, lengths))


def test_the_first_untrained_variable_is_compared(monkeypatch):
    said = measured(monkeypatch, 0.95)
    assert said.value == pytest.approx(0.3)
    assert said.numbers[lengths.TRAINED] == pytest.approx(0.95)
    assert said.numbers["mean first untrained variable, plain-random"] == pytest.approx(0.5)
    assert CLAIMS["start.lengths-mimic"].verdict(said) == "reproduced"
    refuted = replace(said, value=-0.1, low=-0.2, high=-0.05)
    assert CLAIMS["start.lengths-mimic"].verdict(refuted) == "not reproduced"


def test_a_start_that_has_not_learned_its_variables_decides_nothing(monkeypatch):
    assert CLAIMS["start.lengths-mimic"].verdict(measured(monkeypatch, 0.85)) == "inconclusive"


def test_both_starts_are_compared_with_the_random_one_on_longer_chains():
    groups = STUDY.groups("standard")
    for name in ("mimic", "pretrained"):
        stated = CLAIMS[f"start.lengths-{name}"]
        assert "LEGO, Section 4.2 and Figure 6, dashed curves" in stated.source
        assert stated.needs == (f"plain-{name}", "plain-random")
        for start, random in zip(*(groups[group] for group in stated.needs), strict=False):
            assert start.task == random.task
            assert len(start.task.supervised) < start.task.n_vars
            assert start.settings.steps == random.settings.steps
            assert (random.settings.association, random.pretrained) == ("none", None)
