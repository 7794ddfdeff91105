"""Folders without locks, and processes that hold a folder and do not go on."""

import errno
import fcntl
import os
import re
import signal
import threading
from dataclasses import replace

import pytest
from holding import holding

import interp
from hooks import make_model
from interp import TrainSettings
from interp.core.processes import LostWorkers, in_processes, longest_wait
from interp.sweeps import ModelSpec, Sweep
from interp.sweeps.stacked import train_stacked
from interp.tasks import Lego
from interp.training import TrainingRun
from interp.training.folder import FolderInUse, NoLocks, RunFolder

TASK = Lego(n_vars=2, sentence_format="compact")
CONFIG = interp.config_for(TASK, "lego", n_layers=1, d_model=8, n_heads=2, d_head=4, d_mlp=8)
SETTINGS = TrainSettings(steps=2, tokens_per_step=64, eval_every=1, n_eval=20)
BASE = ModelSpec(task=TASK, config=CONFIG, settings=SETTINGS, seed=0)
GRID = Sweep(BASE, {"seed": [0, 1]})
ERRORS = ("ENOLCK", "EOPNOTSUPP", "ENOSYS", "EINVAL", "EIO", "EPERM", "EACCES", "EROFS", "ENOTSUP")


def raising(name):
    """An `fcntl.flock` of a file system that answers every call with an error."""

    def flock(file, operation):
        number = getattr(errno, name)
        raise OSError(number, os.strerror(number))

    return flock


@pytest.mark.parametrize("name", ERRORS)
def test_a_file_system_without_locks_is_named(tmp_path, monkeypatch, name):
    interp.sweep(Sweep(BASE, {"seed": [5]}), tmp_path, n_jobs=1)
    monkeypatch.setattr(fcntl, "flock", raising(name))
    for train in (
        lambda: interp.train(make_model(CONFIG), TASK, SETTINGS, folder=tmp_path / "run"),
        lambda: interp.sweep(GRID, tmp_path, n_jobs=1),
        lambda: train_stacked({tmp_path / spec.key: spec for spec in (GRID[0], GRID[1])}),
    ):
        with pytest.raises(NoLocks, match=re.escape(os.strerror(getattr(errno, name)))) as caught:
            train()
        assert str(tmp_path) in str(caught.value)
        assert "Choose a folder on a local disk" in str(caught.value)
    # What is trained can be read, and a sweep of it has nothing to write
    runs = interp.sweep(Sweep(BASE, {"seed": [5]}), tmp_path, n_jobs=1)
    assert runs.status == ["trained"]
    assert TrainingRun.load(tmp_path / replace(BASE, seed=5).key).manifest["seed"] == 5


@pytest.fixture
def holder(tmp_path):
    """The number of a process that holds the folder of the second model."""
    with holding(tmp_path / GRID.keys[1], beats=True) as process:
        yield process


@pytest.mark.parametrize("is_local", [True, False])
def test_a_process_that_is_stopped_is_not_awaited_for_ever(tmp_path, monkeypatch, capsys, holder, is_local):
    monkeypatch.setenv("INTERP_WAIT", "0.3")
    monkeypatch.setattr("interp.sweeps.parallel.WAIT", 0.05)
    if not is_local:
        monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")
    os.kill(holder, signal.SIGSTOP)
    advice = f"kill -CONT {holder} lets it go on" if is_local else "End it or wait for it"
    with pytest.raises(FolderInUse, match=rf"process {holder} on .* \(since .*\) holds .*{GRID.keys[1]} .*{advice}"):
        interp.sweep(GRID, tmp_path, n_jobs=1)
    assert f"waiting for process {holder} on" in capsys.readouterr().out
    # The other model is trained; when the process has ended, so is its own
    assert TrainingRun.load(tmp_path / GRID.keys[0])
    os.kill(holder, signal.SIGKILL)
    os.waitpid(holder, 0)
    (tmp_path / GRID.keys[1] / "beat").unlink(missing_ok=True)
    assert interp.sweep(GRID, tmp_path, n_jobs=1).status == ["trained"] * 2


def test_a_process_that_goes_on_is_awaited_longer(tmp_path, monkeypatch, holder):
    monkeypatch.setenv("INTERP_WAIT", "0.3")
    monkeypatch.setattr("interp.sweeps.parallel.WAIT", 0.05)

    def end():
        os.kill(holder, signal.SIGKILL)
        os.waitpid(holder, 0)

    timer = threading.Timer(1.0, end)  # more than the longest wait
    timer.start()
    assert interp.sweep(GRID, tmp_path, n_jobs=1).status == ["trained"] * 2
    timer.join()


@pytest.mark.parametrize("text", ["0", "-1", "ten", "inf", "nan", ""])
def test_the_longest_wait_is_a_number(monkeypatch, text):
    monkeypatch.setenv("INTERP_WAIT", text)
    with pytest.raises(ValueError, match=r"INTERP_WAIT is .* give a number of seconds above 0"):
        longest_wait()


def test_a_cluster_without_workers_is_not_awaited_for_ever(monkeypatch, capsys):
    distributed = pytest.importorskip("distributed")
    monkeypatch.setenv("INTERP_WAIT", "0.3")
    monkeypatch.setattr("interp.core.processes.LOOK_FOR_WORKERS", 0.1)
    with distributed.LocalCluster(n_workers=0, processes=False, protocol="tcp", dashboard_address=None) as cluster:
        address = cluster.scheduler_address
        with pytest.raises(LostWorkers, match=rf"{address} has had no workers.* for 0.3 seconds; 2 calls are not done"):
            list(in_processes([(int, (1,)), (int, (2,))], n_jobs=1, scheduler=address))
        assert f"waiting for workers: the scheduler at {address} has none" in capsys.readouterr().out


def test_a_full_disk_is_no_matter_of_locks(tmp_path, monkeypatch):
    def full(path, *args, **options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(os, "open", full)
    with pytest.raises(OSError, match="No space left on device") as caught, RunFolder(tmp_path).writing():
        pass
    assert not isinstance(caught.value, NoLocks)
    assert str(tmp_path) in str(caught.value)
