"""Fixtures that run a toy study in this process and count trainings and measurements."""

import json
import lzma
import shutil
from types import SimpleNamespace

import pytest
import torch
import toys

import interp.sweeps.parallel


@pytest.fixture
def trained(monkeypatch):
    """Seeds of the models trained in this process, in order."""
    seeds = []
    train = interp.sweeps.parallel.train

    def counted(model, task, settings, **options):
        seeds.append(options["seed"])
        return train(model, task, settings, **options)

    monkeypatch.setattr("interp.sweeps.parallel.train", counted)
    return seeds


def read_run(folder, result, **counts):
    """The result of a run with what its files contain."""
    content = json.loads((folder / "claims.json").read_text())
    settings = json.loads(lzma.decompress((folder / "details.json.xz").read_bytes()))["groups"]
    digests = {name: digest for claim in content["claims"] for name, digest in claim["groups"].items()}
    return SimpleNamespace(
        result=result,
        content=content,
        groups={name: settings[digest] for name, digest in digests.items()},
        page=(folder / "report.html").read_text(),
        claim_pages={path.stem: path.read_text() for path in (folder / "claims").iterdir()},
        **counts,
    )


@pytest.fixture
def reproduce(tmp_path, trained):
    """Run a study (default: the toy study); returns its result, files, and what was trained and measured."""

    def run(study=toys.STUDY, **options):
        trained.clear()
        toys.MEASURED.clear()
        result = study.run(folder=tmp_path, n_jobs=1, **options)
        folder = tmp_path / study.name / result.size
        return read_run(folder, result, trained=sorted(trained), measured=sorted(toys.MEASURED))

    return run


@pytest.fixture(scope="session")
def toy_run(tmp_path_factory):
    """Folder and result of a finished run of the toy study, to copy and not to change."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("toy-run")
    return folder, toys.STUDY.run(folder=folder, n_jobs=1)


@pytest.fixture
def finished(tmp_path, toy_run, trained):
    """The files of a finished run of the toy study in `tmp_path`, as after `reproduce()`."""
    folder, result = toy_run
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    trained.clear()
    toys.MEASURED.clear()
    return read_run(tmp_path / "toy/quick", result)
