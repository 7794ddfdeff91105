import json

import pytest

import interp
from case_studies.frame.claims import BEFORE, Claim
from case_studies.frame.measurement import Measurement
from case_studies.frame.rules import AtLeast, Value
from case_studies.frame.study import Study
from interp import TrainSettings
from interp.tasks import Lego
from interp.training.spec import ModelSpec


def test_a_study_trains_on_the_device_and_keys_do_not_depend_on_it(tmp_path, monkeypatch):
    jobs, task = [], Lego(n_vars=2)
    monkeypatch.setattr("interp.training.jobs.train", lambda *given, **options: jobs.append(options["device"]))
    spec = ModelSpec(task=task, config=interp.config_for(task), settings=TrainSettings(steps=2), seed=0)
    claim = Claim(
        id="some",
        source="Toy",
        statement="It is so.",
        how="Always",
        rule=Value(AtLeast(0)),
        fixed=BEFORE,
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
