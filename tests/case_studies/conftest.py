"""Fixtures that run a toy study in this process and count trainings and measurements."""

import json
import lzma
from types import SimpleNamespace

import pytest
import toys

import interp.training.jobs


@pytest.fixture
def trained(monkeypatch):
    """Seeds of the models trained in this process, in order."""
    seeds = []
    train = interp.training.jobs.train

    def counted(model, task, settings, **options):
        seeds.append(options["seed"])
        return train(model, task, settings, **options)

    monkeypatch.setattr("interp.training.jobs.train", counted)
    return seeds


@pytest.fixture
def reproduce(tmp_path, trained):
    """Run a study (default: the toy study); returns its result, files, and what was trained and measured."""

    def run(study=toys.STUDY, **options):
        trained.clear()
        toys.MEASURED.clear()
        result = study.run(folder=tmp_path, n_jobs=1, **options)
        folder = tmp_path / study.name / result.size
        return SimpleNamespace(
            result=result,
            trained=sorted(trained),
            measured=sorted(toys.MEASURED),
            content=json.loads((folder / "claims.json").read_text()),
            groups=json.loads(lzma.decompress((folder / "details.json.xz").read_bytes()))["groups"],
            page=(folder / "report.html").read_text(),
        )

    return run
