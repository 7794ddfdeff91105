"""The benchmark that audits every known answer: resumable, with every difference from the truth counted."""

import json

import pytest

from benchmarks import known_answers
from benchmarks.known_answers import kinds_of_difference, report, run

NAME = "template same, redundant"


def head(truth, verdict, *, ok=True, needed=()):
    return {
        "head": [0, 1], "truth": truth, "verdict": verdict, "reason": "r", "n": 256, "partners": [],
        "true partners": [[0, 2]], "partners ok": ok, "wrongly needed": list(needed), "sentence": "Head 0.1.",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "kinds"),
    [
        (head("idle", "idle"), []),
        (head("misleading", "faithful"), ["false faithful", "verdicts that differ"]),
        (head("hidden", "idle"), ["needed heads called idle", "verdicts that differ"]),
        (head("faithful", "misleading"), ["verdicts that differ"]),
        (head("faithful", "undecided"), ["undecided"]),
        (head("redundant", "redundant", ok=False), ["redundant sets incomplete", "partners that differ"]),
        (head("redundant", "undecided"), ["redundant sets incomplete", "undecided"]),
        (head("idle", "idle", needed=["zero"]), ["needed under another removal"]),
        (head("misleading", "misleading", ok=False), ["partners that differ"]),
    ],
)  # fmt: skip
def test_kinds_of_difference(given, kinds):
    assert kinds_of_difference(given) == kinds


def test_the_report_counts_and_lists():
    row = {"name": "one", "seed": 3, "n": "256", "seconds": 2.5, "heads": [head("misleading", "faithful")]}
    fine = {**row, "name": "two", "seconds": 0.5, "heads": [head("idle", "idle")] * 3}
    text = report([row, fine])
    assert "one, seed 3, head 0.1: false faithful, verdicts that differ; truth misleading with [[0, 2]]" in text
    assert "false faithful: 1\nneeded heads called idle: 0\n" in text
    assert text.endswith("2 models, 4 heads; 3 CPU seconds, 1.5 a model, most for one.")


def test_a_run_goes_on_where_it_stopped(tmp_path, monkeypatch):
    path = tmp_path / "results.jsonl"
    text = run(path, seeds=range(1), only=NAME)
    (row,) = map(json.loads, path.read_text().splitlines())
    assert "false faithful: 0" in text
    assert (row["name"], row["seed"]) == (NAME, 0)
    assert {one["verdict"] for one in row["heads"] if one["truth"] == "redundant"} == {"redundant"}
    audited = []
    monkeypatch.setattr(known_answers, "audit_answer", lambda *key: audited.append(key) or {**row, "seed": key[1]})
    assert run(path, seeds=range(1), only=NAME) == text
    assert audited == []
    with path.open("a") as file:
        file.write('{"name": "cut')
    run(path, seeds=range(2), only=NAME)
    assert audited == [(NAME, 1, "256")]
    assert json.loads(path.read_text().splitlines()[-1])["seed"] == 1
