import json
from dataclasses import replace

import pandas as pd
import pytest
import toys

import interp
from case_studies.frame.claims import BEFORE_ANY_MODEL, Claim
from case_studies.frame.rules import AtLeast, Value
from case_studies.frame.training import Plan, plan_training, train_models
from case_studies.recipes.judges import Row
from case_studies.study import Study
from interp import TrainSettings
from interp.sweeps.cost import training_memory, training_operations
from interp.sweeps.spec import ModelSpec
from interp.tasks import Lego
from interp.training.folder import RunFolder


def test_a_study_trains_on_the_device_and_keys_do_not_depend_on_it(tmp_path, monkeypatch):
    jobs, task = [], Lego(n_vars=2)
    monkeypatch.setattr("interp.sweeps.parallel.train", lambda *given, **options: jobs.append(options["device"]))
    spec = ModelSpec(task=task, config=interp.config_for(task), settings=TrainSettings(steps=2), seed=0)
    claim = Claim(
        id="some",
        source="Toy",
        statement="It is so.",
        method="Always",
        rule=Value(AtLeast(0)),
        preregistration=BEFORE_ANY_MODEL,
        measure=lambda evidence: pd.DataFrame([{"value": 0.0, "n": 1}]),
        judged=Row("value", unit="draws", exact=True),
        needs=["all"],
    )
    study = Study(name="toy", title="Toy", lead="Nothing.", claims=[claim], groups=lambda size: {"all": [spec]})
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(ValueError, match="device is 'cuda', not available; choose one of cpu"):
        study.run(folder=tmp_path / "none", device="cuda")
    assert not (tmp_path / "none").exists()
    monkeypatch.setattr("interp.core.devices.devices", lambda: ("cpu", "cuda:0"))
    for device in ("cuda", None):
        study.run(folder=tmp_path, n_jobs=2 if device else 1, device=device, fresh=True)
    assert jobs == ["cuda", None]
    assert "device" not in json.dumps(spec.description)


def test_a_study_runs_on_a_cluster(tmp_path, monkeypatch):
    given = []

    def here(calls, *, n_jobs, scheduler=None):
        given.append(scheduler)
        return [function(*arguments) for function, arguments in calls]

    monkeypatch.setattr("interp.sweeps.parallel.in_processes", here)
    monkeypatch.setattr("case_studies.frame.running.in_processes", here)
    monkeypatch.chdir(tmp_path)
    toys.STUDY.run(folder="runs", scheduler="tcp://there:1")
    assert given == ["tcp://there:1"] * 2
    given.clear()
    toys.STUDY.run(folder="other")
    assert given == [None, None]


def test_the_plan_of_a_study(tmp_path, capsys, monkeypatch):
    timed = []

    def one_minute_each(specs):
        timed.append(len(specs))
        return [60.0] * len(specs)

    monkeypatch.setattr("case_studies.frame.training.timed_trainings", one_minute_each)
    specs = {
        spec.key: spec
        for claim in toys.STUDY.claims
        for name in claim.needs
        for spec in toys.STUDY.groups("quick")[name]
        if "quick" in claim.sizes
    }
    # Nothing is trained: a few steps are timed; nothing was measured
    plan = toys.STUDY.plan(folder=tmp_path, n_jobs=2)
    assert (plan.trained, plan.missing, plan.seconds, timed) == (0, len(specs), 60.0 * len(specs), [len(specs)])
    assert plan.memory == max(training_memory(spec) for spec in specs.values())
    training, measuring = str(plan).splitlines()
    minutes = len(specs) * 60 / 2 / 60
    assert f"{len(specs)} to train: about {minutes:.0f} minutes in 2 processes, from a few steps timed on" in training
    assert measuring.endswith(
        " claims to measure: how long is not known until they have been measured once at this size"
    )
    assert "operations" not in str(plan)
    # A run times nothing, and says so
    toys.STUDY.run(folder=tmp_path, n_jobs=1, only=[toys.FAILING.id])
    printed = capsys.readouterr().out
    assert "to train: how long is not known until the first of them is trained; " in printed
    assert timed == [len(specs)]
    # Some are trained, and one claim was measured: their speed
    after = toys.STUDY.plan(folder=tmp_path, n_jobs=2)
    curves = [RunFolder(tmp_path / "models" / spec.key).read_metrics() for spec in toys.specs(2)]
    speed = sum(curve[-1]["seconds"] for curve in curves) / sum(map(training_operations, toys.specs(2)))
    assert after.seconds == pytest.approx(speed * training_operations(toys.specs(3)[2]))
    assert "to train: less than a minute, at the speed of the 2 that are trained; " in str(after)
    assert (after.claims, after.timed_claims) == (plan.claims - 1, 0)
    # All are trained and measured
    toys.STUDY.run(folder=tmp_path, n_jobs=1)
    capsys.readouterr()
    done = toys.STUDY.plan(folder=tmp_path)
    assert (done.trained, done.missing, str(done)) == (len(specs), 0, f"plan: {len(specs)} models, all trained")
    toys.STUDY.run(folder=tmp_path, n_jobs=1, fresh=False)
    assert "plan: " not in capsys.readouterr().out


def test_the_plan_knows_what_measuring_took(tmp_path):
    toys.STUDY.run(folder=tmp_path, n_jobs=1)
    size_folder = tmp_path / toys.STUDY.name / "quick"
    costs = {entry["id"]: entry["cost"] for entry in json.loads((size_folder / "claims.json").read_text())["claims"]}
    seconds = {claim_id: cost["seconds"] for claim_id, cost in costs.items() if cost}
    for file in (size_folder / "measured").iterdir():
        file.unlink()
    plan = toys.STUDY.plan(folder=tmp_path, n_jobs=1)
    assert (plan.claims, plan.timed_claims) == (len(seconds), len(seconds))
    assert plan.measuring_seconds == pytest.approx(sum(seconds.values()))
    assert "claims to measure: less than a minute, which is what they took before" in str(plan)
    # Other sizes took another time
    assert toys.STUDY.plan(folder=tmp_path, size="standard").timed_claims == 0


@pytest.mark.parametrize(
    ("seconds", "longest", "claims", "words"),
    [
        (59.0, 59.0, 0, "less than a minute"),
        (100.0, 60.0, 0, "about a minute"),
        (600.0, 60.0, 0, "about 5 minutes in 2 processes"),
        (600.0, 540.0, 0, "about 9 minutes in 2 processes"),  # no less than the longest
        (3600.0 * 20, 60.0, 0, "about 10 hours"),
        (3600.0 * 24 * 10, 60.0, 0, "about 5 days"),
        (
            600.0,
            60.0,
            1,
            "3 claims to measure: about 10 minutes for 1, which is what they took before; not known for 2",
        ),
    ],
)
def test_durations_of_a_plan(seconds, longest, claims, words):
    plan = Plan(
        trained=0, missing=4, seconds=seconds, longest=longest, speed="timed", processes=2, memory=0.0,
        claims=3 * claims, timed_claims=claims, measuring_seconds=600.0,
    )  # fmt: skip
    assert words in str(plan)


def test_a_plan_without_models():
    study = Study(name="toy", title="Toy", lead="Nothing.", claims=[toys.PASSING])
    assert str(study.plan(folder="nowhere")).splitlines()[0] == "plan: no models to train"


def test_on_an_accelerator_models_of_one_config_are_trained_as_one(tmp_path, monkeypatch):
    """Here on the CPU, which passes for an accelerator; a model that cannot be stacked with others is trained alone."""
    monkeypatch.setattr("case_studies.frame.training.is_accelerator", lambda device: True)
    pair = toys.specs(2)
    single = [replace(pair[0], config=interp.config_for(toys.TASK, n_layers=1, d_model=16))]
    folders = {spec.key: RunFolder(tmp_path / spec.key) for spec in (*pair, *single)}
    plan = plan_training([*pair, *single], tmp_path, n_jobs=1)
    train_models([[*pair, *single]], tmp_path, plan=plan, device="cpu")
    assert all(folder.finished for folder in folders.values())
    stacked = {key: folder.read_manifest().get("stacked") for key, folder in folders.items()}
    assert stacked == {**{spec.key: 2 for spec in pair}, single[0].key: None}
    # one that fails among them is named, as elsewhere
    failing = toys.specs(1, n_train=4, learning_rate=1e30)
    with pytest.raises(ValueError, match=r"model \w+ \(seed 0\): the loss is nan"):
        train_models([[*failing, *toys.specs(1, first=7)]], tmp_path, plan=plan, device="cpu")
    assert RunFolder(tmp_path / toys.specs(1, first=7)[0].key).finished
