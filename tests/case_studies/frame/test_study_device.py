import json

import pytest
import toys

import interp
from case_studies.frame.claims import BEFORE_ANY_MODEL, Claim
from case_studies.frame.measurement import Measurement
from case_studies.frame.rules import AtLeast, Value
from case_studies.study import Study
from interp import TrainSettings
from interp.sweeps.cost import training_memory, training_operations
from interp.sweeps.spec import ModelSpec
from interp.tasks import Lego


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
        measure=lambda evidence: Measurement(value=0.0, low=0.0, high=0.0, n=1, unit="draws", exact=True),
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


def test_the_plan_of_a_study(tmp_path, capsys):
    plan = toys.STUDY.plan(folder=tmp_path, n_jobs=1)
    assert (plan.trained, plan.seconds) == (0, None)
    specs = {one.key: one for claim in toys.STUDY.claims for name in claim.needs
             for one in toys.STUDY.groups("quick")[name] if "quick" in claim.sizes}  # fmt: skip
    assert plan.missing == len(specs)
    assert plan.operations == sum(training_operations(spec) for spec in specs.values())
    assert plan.memory == max(training_memory(spec) for spec in specs.values())
    assert f"{len(specs)} to train" in str(plan)
    assert "how long is known when some" in str(plan)
    toys.STUDY.run(folder=tmp_path, n_jobs=1, only=[toys.FAILING.id])
    assert "plan: " in capsys.readouterr().out
    after = toys.STUDY.plan(folder=tmp_path, n_jobs=2)
    if after.missing:
        assert after.seconds is not None
        assert "minutes in 2 at a time" in str(after)
    toys.STUDY.run(folder=tmp_path, n_jobs=1)
    capsys.readouterr()
    done = toys.STUDY.plan(folder=tmp_path)
    assert (done.trained, done.missing, str(done)) == (len(specs), 0, f"plan: {len(specs)} models, all trained")
    toys.STUDY.run(folder=tmp_path, n_jobs=1, fresh=False)
    assert "plan: " not in capsys.readouterr().out
