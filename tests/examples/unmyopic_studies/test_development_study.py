"""The development study: what comes first is read from tables whose onsets are known, and the study runs."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from tool_studies.development import models, order, roles, shortcut
from tool_studies.development.models import groups
from tool_studies.development.study import STUDY
from toys import check_measured

from case_studies.frame.evidence import SIZES
from interp.comparison import OverTraining
from interp.training.snapshots import snapshot_steps

STEPS = (0, 1, 2, 4, 8)


def judged(name, evidence):
    """The measurement of a claim."""
    (claim,) = (claim for claim in STUDY.claims if claim.id == name)
    return claim.measurement(evidence)


def table(rows):
    """A result with one row per step of each (labels, onset)."""
    found = {"seed": [], "step": []}
    for labels, onset in rows:
        for step in STEPS:
            cells = {"seed": 0, "step": step, **labels, "score": float(step >= onset), "untrained": 0.5}
            for name, value in cells.items():
                found.setdefault(name, []).append(value)
    return OverTraining(verb="planted", seeds=(0,), steps=STEPS, columns=found)


@pytest.fixture
def evidence(monkeypatch):
    monkeypatch.setattr(shortcut, "knows_last", lambda _, spec: spec.seed >= 0)
    for module in (order, roles):
        monkeypatch.setattr(module, "has_learned", lambda _, spec: spec.seed >= 0)
        monkeypatch.setattr(module, "excluded_models", lambda *_: [])
    task = SimpleNamespace(targets=("#0", "#1", "#2"), audited_outcomes=("#0", "#2"))
    specs = [SimpleNamespace(seed=seed, key=str(seed), task=task) for seed in (0, 1, -1)]
    return SimpleNamespace(size="quick", seed=0, folder="nowhere", specs=lambda group: specs)


@pytest.mark.parametrize(("association", "manipulation", "share"), [(1, 4, 1.0), (4, 4, 0.0), (99, 2, 0.0)])
def test_association_comes_first_only_if_it_is_earlier(monkeypatch, evidence, association, manipulation, share):
    steps = {"association": association, "manipulation": manipulation}
    rows = [({"layer": 0, "head": 0, "kind": kind, "label": kind}, step) for kind, step in steps.items()]
    monkeypatch.setattr(order, "looks", lambda *_: table(rows))
    measurement = judged("association.first", evidence)
    assert (measurement.value, measurement.n) == (share, 2)


def answers(count, chain, last=1.0):
    """Answers to broken and whole chains; the count is `last` above chance at the end."""
    found = table([({"measure": "broken", "target": "#2"}, count), ({"measure": "right", "target": "#1"}, chain)])
    share = 0.5 + np.array(found.columns["score"]) / 4
    share[len(STEPS) - 1] = 0.5 + last / 4
    columns = found.columns | {"share": share.tolist(), "low": (share - 0.1).tolist()}
    return replace(found, columns=columns)


@pytest.mark.parametrize(("accuracy", "known"), [(0.59, False), (0.6, True)])
def test_a_model_that_knows_nothing_of_the_last_variable_is_left_out(accuracy, known):
    histories = SimpleNamespace(history=lambda spec: [{"accuracy": [1.0, 0.9]}, {"accuracy": [1.0, accuracy]}])
    assert shortcut.knows_last(histories, None) == known


@pytest.mark.parametrize(("count", "chain", "share"), [(1, 4, 1.0), (4, 1, 0.0), (2, 99, 1.0), (99, 1, 0.0)])
def test_the_shortcut_is_first_if_it_has_an_earlier_onset(monkeypatch, evidence, count, chain, share):
    monkeypatch.setattr(shortcut, "counting", lambda *_: answers(count, chain, last=float(count < 99)))
    assert judged("shortcut.first", evidence).value == share


def test_what_is_kept_of_the_shortcut(monkeypatch, evidence):
    monkeypatch.setattr(shortcut, "counting", lambda *_: answers(1, 4, last=0.6))
    assert judged("shortcut.kept", evidence).value == pytest.approx(0.6)
    monkeypatch.setattr(shortcut, "counting", lambda *_: answers(1, 4, last=0.0))
    assert judged("shortcut.kept", evidence).note == "No model counts at the end of training."


def test_changes_of_labels_count_only_after_the_task_is_learned(monkeypatch, evidence):
    history = [{"steps_done": step, "accuracy": [1.0, accuracy]} for step, accuracy in ((1, 0.995), (2, 0.9), (3, 1.0))]
    evidence.history = lambda spec: history
    assert roles.learned_from(evidence, evidence.specs("one")[0]) == 3
    kinds = [({"layer": 0, "head": head, "kind": kind}, 0) for head in range(4) for kind in ("a", "b")]
    label = {0: lambda step: "a", 1: lambda step: "a" if step < 3 else "b", 2: lambda step: "a" if step < 8 else "b",
             3: lambda step: "a" if step < 8 else "unclassified"}  # fmt: skip
    found = table(kinds)
    labels = [label[head](step) for head, step in zip(found.columns["head"], found.columns["step"], strict=True)]
    found = replace(found, columns=found.columns | {"label": labels})
    monkeypatch.setattr(roles, "looks", lambda *_: found)
    monkeypatch.setattr(roles, "CHAINS", ("one",))
    measured = judged("roles.late", evidence)
    assert measured.value == pytest.approx(0.5)  # heads 2 and 3; head 1 changed before
    assert measured.tables[0][1][1][-3:] == ["2", "1", "4"]


@pytest.mark.parametrize("size", SIZES)
def test_every_group_keeps_snapshots_and_enough_seeds(size):
    found = groups(size)
    assert {name for claim in STUDY.claims for name in claim.needs} == set(found)
    assert bool(found.pop(models.CHAINS[0])) == (size != "quick")
    for name, specs in found.items():
        further = name == models.FURTHER and size == "standard"
        assert len(specs) == (models.FURTHER_SEEDS if further else models.SEEDS[size])
        settings = specs[0].settings
        total = settings.total_steps
        assert {0, total} <= set(settings.snapshots), name
        assert set(snapshot_steps(models.LOGARITHMIC[size], total)) <= set(settings.snapshots)
        assert np.diff(settings.snapshots).max() <= total / models.EVEN[size] + 1


@pytest.mark.slow
def test_the_study_runs_on_untrained_models(tmp_path, monkeypatch):
    monkeypatch.setitem(models.SEQUENCES, "quick", 40)

    def few(size):
        small = {"steps": 4, "curriculum": (), "eval_every": 2, "n_eval": 40, "snapshots": (0, 2, 4)}
        return {name: [replace(spec, settings=replace(spec.settings, association="none", **small)) for spec in specs]
                for name, specs in groups(size).items()}  # fmt: skip

    study = replace(STUDY, groups=few)
    found = check_measured(STUDY, study.run(folder=tmp_path, n_jobs=1))
    assert {one.label for one in found.values()} == {"inconclusive"}  # nothing has been learned
