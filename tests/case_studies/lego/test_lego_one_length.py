"""Models of one chain length: pairs by seed, the condition on the last trained variable, and when they extrapolate."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from lego_curves import curve, evidence_of
from toys import measured

from case_studies.frame.evidence import Evidence
from case_studies.lego import lag, one_length
from case_studies.lego.study import STUDY

CLAIMS = {claim.id: claim for claim in STUDY.claims}
SUPERVISED = [1, 1, 0, 0]


def curves_of(rows):
    return [curve([row], SUPERVISED, depths=(2,)) for row in rows]


def test_pairs_count_if_both_models_have_fitted_the_last_trained_variable(monkeypatch):
    found = {
        "spare-tied": curves_of([[1, 1, 0.9, 0.6], [1, 0.99, 0.8, 0.7], [1, 0.94, 0.1, 0.1], [1, 1, 0.1, 0.1]]),
        "spare-untied": curves_of([[1, 1, 0.7, 0.6], [1, 0.96, 0.6, 0.6], [1, 1, 0.9, 0.9], [1, 0.95, 0.9, 0.9]]),
    }
    evidence = evidence_of(monkeypatch, found, one_length)
    for place, difference in (("first", 0.2), ("second", 0.05)):
        said = CLAIMS[f"beyond.tied.{place}"].measurement(evidence)
        assert (said.value, said.n) == (pytest.approx(difference), 2)
        assert said.numbers["pairs"] == 2
    assert CLAIMS["beyond.tied.third"].sizes == ("paper",)


def test_equal_differences_have_the_interval_of_the_sentences_and_no_pair_decides_nothing(monkeypatch):
    rows = {"spare-tied": [[1, 1, 0.9, 0.5]] * 3, "spare-untied": [[1, 1, 0.8, 0.5]] * 3}
    evidence = evidence_of(monkeypatch, {name: curves_of(values) for name, values in rows.items()}, one_length)
    said = CLAIMS["beyond.tied.first"].measurement(evidence)
    assert 0 < said.high - said.low < 0.01
    assert CLAIMS["beyond.tied.first"].verdict(said) == "reproduced"
    unfitted = {name: curves_of([[1, 0.5, 0.9, 0.5]] * 3) for name in rows}
    none = CLAIMS["beyond.tied.first"].measurement(evidence_of(monkeypatch, unfitted, one_length))
    assert CLAIMS["beyond.tied.first"].verdict(none) == "inconclusive"


def test_somewhat_better_than_random_is_above_chance_and_less_than_half_way(monkeypatch):
    rows = [[1, 1, 0.6, 0.5], [1, 1, 0.62, 0.5], [1, 1, 0.64, 0.5], [1, 0.7, 1, 1]]
    said = CLAIMS["beyond.untied"].measurement(evidence_of(monkeypatch, {"plain-untied": curves_of(rows)}, one_length))
    assert (said.value, said.n) == (pytest.approx(0.62), 3)
    assert CLAIMS["beyond.untied"].verdict(said) == "reproduced"
    for low, high, verdict in (
        (0.76, 0.9, "not reproduced"),
        (0.4, 0.5, "not reproduced"),
        (0.49, 0.6, "inconclusive"),
    ):
        assert CLAIMS["beyond.untied"].verdict(replace(said, low=low, high=high)) == verdict


def history(*rows):
    """Accuracies of the last trained variable and the next one, evaluated every 100 steps."""
    return [{"steps_done": 100 * (i + 1), "accuracy": [1.0, *row]} for i, row in enumerate(rows)]


AT_ONCE = history((0.5, 0.5), (0.9, 0.8), (1.0, 0.9), (1.0, 0.9))
LATER = history((0.5, 0.5), (0.9, 0.5), (1.0, 0.6), (1.0, 0.8))
NEVER = history((0.5, 0.5), (0.5, 0.5), (0.9, 0.5), (1.0, 0.7))
UNFITTED = history((0.5, 0.5), (0.9, 0.9), (0.9, 0.9), (0.9, 0.9))


@pytest.mark.parametrize(("records", "share"), [(AT_ONCE, 0), (LATER, 0.5), (NEVER, 0.25), (UNFITTED, None)])
def test_lag_is_from_half_way_to_half_way(records, share):
    assert lag.lag(records, (0, 1)) == share


def test_a_tied_model_that_extrapolates_at_once_is_ahead_of_an_untied_one_that_does_so_later(monkeypatch):
    histories = {"spare-tied": [AT_ONCE] * 3 + [UNFITTED], "spare-untied": [LATER] * 4}
    evidence = evidence_of(monkeypatch, {name: [None] * 4 for name in histories}, lag)
    for specs in evidence.groups.values():
        for spec in specs:
            spec.description = {"task": {"supervised": [0, 1]}}  # type: ignore[misc]
            spec.settings = SimpleNamespace(eval_every=100, steps=400)  # type: ignore[misc]
    monkeypatch.setattr(Evidence, "history", lambda self, spec: histories[spec.name][spec.seed])
    said = CLAIMS["lag.tied"].measurement(evidence)
    assert (said.value, said.n, said.numbers["pairs"]) == (-0.5, 3, 3)
    assert CLAIMS["lag.tied"].verdict(said) == "reproduced"
    histories.update({"spare-tied": [LATER] * 4, "spare-untied": [AT_ONCE] * 4})
    assert CLAIMS["lag.tied"].verdict(CLAIMS["lag.tied"].measurement(evidence)) == "not reproduced"
    assert CLAIMS["lag.tied"].verdict(measured(-0.1, -0.2, 0.01)) == "inconclusive"


def test_both_models_of_a_pair_see_the_same_sentences():
    groups = STUDY.groups("standard")
    tied, untied = (groups[name] for name in CLAIMS["beyond.tied.first"].needs)
    assert len(tied) == len(untied) == 12
    for a, b in zip(tied, untied, strict=True):
        assert (a.task, a.settings, a.seed) == (b.task, b.settings, b.seed)
