"""A sweep that is killed after or before any rename leaves nothing that the next one does not tidy."""

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import toys
from short_runs import same_weights

import interp
from hooks.files import _host, write_text
from interp import TrainSettings
from interp.sweeps import ModelSpec, Sweep, SweepRuns
from interp.tasks import Lego
from interp.training.folder import RunFolder

TASK = Lego(n_vars=2, sentence_format="compact")
CONFIG = interp.config_for(TASK, "lego", n_layers=1, d_model=8, n_heads=2, d_head=4, d_mlp=8)
SETTINGS = TrainSettings(
    steps=3, tokens_per_step=64, eval_every=1, checkpoint_every=1, n_eval=20, keep="best", snapshots=(0, 2)
)
GRID = Sweep(ModelSpec(task=TASK, config=CONFIG, settings=SETTINGS, seed=0), {"seed": [0, 1]})
MODEL_FILES = {"manifest.json", "metrics.jsonl", "model.safetensors", "snapshots"}


def killed_at(call, rename, *, before):
    """Call in a fork that is killed before or after a number of renames; whether it was killed."""
    process = os.fork()
    if not process:
        renames, rename_file = [], os.replace

        def kill(source, target):
            renames.append(target)
            if before and len(renames) == rename:
                os.kill(os.getpid(), signal.SIGKILL)
            rename_file(source, target)
            if len(renames) == rename:
                os.kill(os.getpid(), signal.SIGKILL)

        os.replace = kill
        try:
            call()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(process, 0)[1])


def hidden(folder):
    return [path for path in folder.rglob("*") if path.name.startswith(".")]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    runs = interp.sweep(GRID, tmp_path_factory.mktemp("whole"), n_jobs=1)
    runs.apply(interp.evaluate, n=8)
    return runs


@pytest.mark.parametrize(
    ("before", "every"),
    [
        (True, 12),
        (False, 12),
        pytest.param(True, 1, marks=pytest.mark.slow),
        pytest.param(False, 1, marks=pytest.mark.slow),
    ],
)
def test_what_a_killed_sweep_leaves_is_tidied(whole, tmp_path, before, every):
    rename = 1
    left = set()
    while True:
        rename += every
        folder = tmp_path / str(rename)

        def call(folder=folder):
            interp.sweep(GRID, folder, n_jobs=1).apply(interp.evaluate, n=8)

        if not killed_at(call, rename, before=before):
            break
        left |= {path.name for path in hidden(folder)}
        runs = interp.sweep(GRID, folder, n_jobs=1)
        assert runs.status == ["trained", "trained"]
        for key in GRID.keys:
            assert {path.name for path in (folder / key).iterdir()} - {"tables"} == MODEL_FILES
            assert same_weights(RunFolder(folder / key).load_model(), RunFolder(whole.folder / key).load_model())
        assert runs.apply(interp.evaluate, n=8) == whole.apply(interp.evaluate, n=8)
        assert not hidden(folder)
    assert rename > 30
    assert {".lock", ".writer.json"} <= left


def test_a_study_that_is_killed_leaves_nothing(tmp_path):
    claim = replace(toys.PASSING, needs=("few",))  # draws nothing, which a fork may not survive
    study = replace(toys.STUDY, claims=[claim])
    for rename in range(1, 40, 13):
        folder = tmp_path / str(rename)
        killed_at(lambda folder=folder: study.run(folder=folder, n_jobs=1), rename, before=bool(rename % 4))
        study.run(folder=folder, n_jobs=1)
        assert not hidden(folder)


def test_nothing_of_a_process_that_writes_is_removed(whole, tmp_path):
    runs = interp.sweep(GRID, tmp_path, n_jobs=1)
    files = RunFolder(tmp_path / GRID.keys[0])
    with files.writing():
        files.state_path.write_bytes(b"")
        (files.path / ".model.safetensors.x").write_bytes(b"")
        assert interp.sweep(GRID, tmp_path, n_jobs=1).status == runs.status
        assert files.state_path.exists()
        assert len(hidden(files.path)) == 3
    assert interp.sweep(GRID, tmp_path, n_jobs=1).status == ["trained", "trained"]
    assert not files.state_path.exists()
    assert not hidden(files.path)


def test_a_list_of_models_removes_nothing(tmp_path):
    interp.sweep(GRID, tmp_path, n_jobs=1)
    files = RunFolder(tmp_path / GRID.keys[0])
    (files.path / ".lock").write_text("")
    runs = SweepRuns(grid=GRID, folder=tmp_path)
    assert (runs.status, len(runs.table())) == (["trained", "trained"], 2)
    assert (files.path / ".lock").exists()


def test_temporary_files_of_processes_that_have_ended_are_removed(tmp_path):
    path = tmp_path / "a.json"
    ended = os.fork()
    if not ended:
        os._exit(0)
    os.waitpid(ended, 0)
    abandoned = Path(tmp_path, f".a.json.{_host()}-{ended}-x1")
    others = [
        f".a.json.{_host()}-{os.getpid()}-x1",  # of a process that lives
        f".a.json.00000000-{ended}-x1",  # of another machine
        f".b.json.{_host()}-{ended}-x1",  # of another file
        ".a.json.mine",
        f".a.json.{_host()}-",
        f".a.json.{_host()}-{10**30}x",
    ]
    for name in (abandoned.name, *others):
        (tmp_path / name).write_text("")
    write_text(path, "1")
    assert {entry.name for entry in tmp_path.iterdir()} == {"a.json", *others}
