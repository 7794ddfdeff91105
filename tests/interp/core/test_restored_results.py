"""Saved results with one place changed: they are refused by an error that names file and field, or can be used."""

import json
import random

import numpy as np
import pytest
from saved_results import changed, classes, outcome, stored, use

from interp.auditing import AuditResult
from interp.core.intervals import Interval
from interp.evaluation import EvaluationResult

pytestmark = pytest.mark.usefixtures("as_a_user")
STORED = {one["result"]: one for one in stored()}
TRIES = 2


def test_there_is_a_saved_result_of_every_class():
    assert set(STORED) == set(classes())


@pytest.mark.parametrize("name", STORED)
def test_a_changed_result_is_refused_or_can_be_used(name, tmp_path):
    assert outcome(STORED[name], tmp_path) == ("harmless", "")
    rng = random.Random(name)
    for _ in range(TRIES):
        content, what = changed(STORED[name], rng)
        assert outcome(content, tmp_path)[0] in ("refused", "harmless"), what


def test_results_are_equal_that_are_saved_alike(tmp_path):
    for name, content in STORED.items():
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(content))
        result, again = (classes()[name].load(path) for _ in range(2))
        assert result == again, name
        assert hash(result) == hash(again), name
        assert result != STORED[name], name
    path = saved_with(tmp_path, "AuditResult", n=STORED["AuditResult"]["values"]["n"] + 1)
    assert AuditResult.load(path) != AuditResult.load(tmp_path / "AuditResult.json")


def saved_with(tmp_path, name, **values):
    content = json.loads(json.dumps(STORED[name]))
    content["values"] |= values
    path = tmp_path / "result.json"
    path.write_text(json.dumps(content))
    return path


def array(values, dtype="float64"):
    return {"array": values, "dtype": dtype}


def interval(ends_at, **changes):
    ends = {name: array(ends_at) for name in ("value", "low", "high")} | {"n": 4, "exact": False}
    return ends | changes


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"accuracy": interval([9.0, -4.0])}, r"accuracy has 9.0 at \[0\]; it must be from 0 to 1"),
        (
            {"accuracy": interval([0.5, 0.5], value=array([0.5, 0.5], "int64"))},
            r"accuracy.value\[0\] is 0.5; it must",
        ),
        ({"accuracy": interval([0.5, 0.5], n=-3)}, r"accuracy .*n is -3; it must be integers"),
        ({"accuracy": interval([0.5, 0.5], low=array([0.6, 0.5]))}, r"accuracy .*value is 0.5, outside its interval"),
        ({"accuracy": interval([0.5, "0.5"])}, r"accuracy.value\[1\] is '0.5'; it must be a finite number"),
        ({"accuracy": interval([0.5])}, r"accuracy has 1 along the axis 'target'; it must have 2 as in targets"),
        ({"n": 3.5}, r"n is 3.5; it must be an integer"),
        ({"n": True}, r"n is True; it must be an integer"),
        ({"n": "4"}, r"n is '4'; it must be an integer"),
        ({"chance": None}, r"chance is None; it must be a finite number"),
        ({"chance": 1.5}, r"chance is 1.5; it must be from 0 to 1"),
        ({"split": "\ud800"}, r"split has a lone surrogate \('\\ud800', at character 0\)"),
        ({"split": 5 * ["x" * 5000]}, r"split is \('x+"),
        ({"surplus": 1, "y" * 5000: 2}, r"has unknown fields 'surplus', 'y"),
    ],
)
def test_an_error_names_file_and_field(tmp_path, changes, words):
    path = saved_with(tmp_path, "EvaluationResult", **changes)
    with pytest.raises(ValueError, match=rf"result\.json is not .*{words}") as raised:
        EvaluationResult.load(path)
    assert len(str(raised.value)) < 500


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("EvaluationResult", {"accuracy": interval([0.5, 0.5], low=array([None, 0.5]))}, "one of its ends is missing"),
        (
            "TemplateMatrix",
            {"smallest": {"value": 0.5, "low": 0.4, "high": None, "n": 3, "exact": False}},
            "one of its",
        ),
        ("VariationResult", {"baselines": list("abcdefg")}, "baselines has no '.*', to which charts"),
        (
            "OverTraining",
            {"columns": {"seed": [0, 0], "step": [0, 1], "accuracy": [0.5, "0.5"]}},
            "the column 'accuracy' has numbers and texts",
        ),
    ],
)
def test_fields_that_do_not_fit_together(tmp_path, name, values, words):
    with pytest.raises(ValueError, match=rf"result\.json.*{words}"):
        classes()[name].load(saved_with(tmp_path, name, **values))


def test_an_error_within_a_record_has_its_path(tmp_path):
    heads = json.loads(json.dumps(STORED["AuditResult"]["values"]["heads"]))
    heads[1]["costs"]["mean"]["drop"][0] = "much"
    with pytest.raises(ValueError, match=r"heads\[1\]\.costs\.mean\.drop\[0\] is 'much'; it must be a finite number"):
        AuditResult.load(saved_with(tmp_path, "AuditResult", heads=heads))


@pytest.mark.parametrize("text", ['{"result": 1, "result": 2}', '{"result": NaN}', '{"a": Infinity}'])
def test_keys_twice_and_numbers_that_json_has_not_are_refused(tmp_path, text):
    (tmp_path / "result.json").write_text(text)
    with pytest.raises(ValueError, match=r"result\.json is not readable JSON \(.*(there twice|not a number of JSON)"):
        EvaluationResult.load(tmp_path / "result.json")


def test_a_wrong_result_cannot_be_made():
    half = Interval(value=np.array([0.5]), low=np.array([0.4]), high=np.array([0.6]), n=4)
    parts = {"targets": ("a",), "accuracy": half, "chance": 0.5, "n": 4, "split": "test"}
    assert "0.5" in use(EvaluationResult(**parts))
    for wrong in ({"targets": ("a", "b")}, {"chance": 2.0}, {"n": -1}, {"n": 2.5}, {"split": 3}, {"chance": np.nan}):
        with pytest.raises(ValueError, match=rf"({next(iter(wrong))}|accuracy) (is|has) "):
            EvaluationResult(**parts | wrong)


def test_steps_that_never_come_are_saved(tmp_path):
    """An onset that is infinite is not one that was not measured."""
    onsets = classes()["Onsets"].load(saved_with(tmp_path, "Onsets"))
    assert onsets.onset[0].tolist() == [4, 8, np.inf]
    assert np.isnan(onsets.onset[1, 1])
