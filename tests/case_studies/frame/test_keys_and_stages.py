"""What the key of a measurement covers besides code, and which pretrained models are trained."""

from dataclasses import replace
from pathlib import Path

import pytest
from toys import PASSING, SETTINGS, STUDY, TASK, specs

import interp
from case_studies.frame import measuring
from case_studies.frame.evidence import Evidence
from case_studies.frame.running import Run
from case_studies.frame.training import missing_models
from case_studies.study import Study
from interp.sweeps.spec import ModelSpec
from interp.training.folder import RunFolder
from interp.training.pretrained import pretrained_config


def key_of(measure):
    evidence = Evidence(size="quick", seed=0, groups={"few": tuple(specs(2))}, folder=Path("x"))
    return measuring.measurement_file(Path("x"), "toy", replace(PASSING, measure=measure), evidence).key


class Scaled:
    """A measure that is an object."""

    def __call__(self, evidence): ...

    def __repr__(self):
        return "scaled"


@pytest.mark.parametrize("package", ["hooks", "interp", "case_studies", "test_keys_and_stages"])
def test_the_code_of_the_toolkit_and_of_the_measures_package_is_part_of_the_key(package, monkeypatch):
    before, digest = key_of(Scaled()), measuring.source_digest
    assert key_of(Scaled()) == before
    monkeypatch.setattr(measuring, "source_digest", lambda name: "changed" if name == package else digest(name))
    assert key_of(Scaled()) != before


def test_versions_of_packages_are_part_of_the_key(monkeypatch):
    before, environment = key_of(Scaled()), measuring.environment()
    monkeypatch.setattr(measuring, "environment", lambda: environment)
    assert key_of(Scaled()) == before
    changed = {**environment, "versions": {**environment["versions"], "torch": "0"}}
    monkeypatch.setattr(measuring, "environment", lambda: changed)
    assert key_of(Scaled()) != before


def test_the_source_of_a_finished_model_is_not_trained_again(tmp_path, monkeypatch):
    monkeypatch.setattr(RunFolder, "is_trained", lambda files, expected: files.finished)  # its file is not a model
    source = ModelSpec(task=TASK, config=interp.config_for(TASK, n_layers=1), settings=SETTINGS, seed=7)
    config = pretrained_config(TASK, source.config)
    done, missing = (
        ModelSpec(task=TASK, config=config, settings=SETTINGS, seed=seed, pretrained=source) for seed in (0, 1)
    )
    claim = replace(PASSING, needs=("models",))

    def seeds_by_stage(*models):
        study = Study(name="toy", title="", lead="", claims=[claim], groups=lambda size: {"models": models})
        run = Run(study, size="quick", folder=tmp_path, n_jobs=1, seed=0)
        stages = missing_models(run._specs([claim]), run.models, fresh=False)
        return [[spec.seed for spec in stage] for stage in stages]

    assert seeds_by_stage(done) == [[7], [0]]
    finished = RunFolder(tmp_path / "models" / done.key)
    finished.path.mkdir(parents=True)
    finished.model_path.write_text("")
    assert seeds_by_stage(done) == []
    assert seeds_by_stage(done, missing) == [[7], [1]]


def test_claims_are_chosen_by_the_beginning_of_their_ids():
    ids = [claim.id for claim in STUDY.claims]
    assert "figure-1.some" in ids
    assert {claim.id for claim in STUDY.choose(["figure-1"])} == {name for name in ids if name.startswith("figure-1")}
    assert [claim.id for claim in STUDY.choose(["figure-1.some"])] == ["figure-1.some"]
    for middle in ("some", "-1.some", "1"):
        with pytest.raises(ValueError, match=f"has no claim '{middle}'"):
            STUDY.choose([middle])
