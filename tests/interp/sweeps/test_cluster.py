"""Training in processes that are killed, and on a cluster."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest
from killed import killed, once_killed

import interp
from hooks.extras import MissingExtra
from interp import TrainSettings
from interp.core.processes import LostWorkers, in_processes
from interp.sweeps import ModelSpec, Sweep, SweepRuns
from interp.tasks import Lego
from interp.training import folder as folders
from interp.training.folder import RunFolder

TASK = Lego(n_vars=2, sentence_format="compact")
CONFIG = interp.config_for(TASK, "lego", n_layers=1, d_model=8, n_heads=2, d_head=4, d_mlp=8)
SETTINGS = TrainSettings(steps=6, tokens_per_step=64, eval_every=3, n_eval=20, snapshots=(0, 6))
GRID = Sweep(ModelSpec(task=TASK, config=CONFIG, settings=SETTINGS, seed=0), {"seed": range(6)})


@pytest.fixture(scope="module")
def cluster():
    """Workers in threads of this process, which get their calls over TCP."""
    distributed = pytest.importorskip("distributed")
    sizes = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(processes=False, protocol="tcp", **sizes) as cluster:
        yield cluster


def test_what_a_killed_process_did_is_done_again(tmp_path):
    assert sorted(in_processes([(once_killed, (i, tmp_path)) for i in range(8)], n_jobs=2)) == list(range(8))


def test_processes_that_are_always_killed_are_an_error(monkeypatch):
    monkeypatch.setattr("interp.core.processes.MOST_LOST", 2)
    with pytest.raises(LostWorkers, match=r"killed 2 times in a row before one of 3 calls .*n_jobs is 2"):
        list(in_processes([(killed, (i,)) for i in range(3)], n_jobs=2))


def worker_is_lost(marks, index):
    """Raise what a cluster raises when a worker was lost, the first time that every third call is made."""
    from distributed import KilledWorker

    if index % 3 == 0 and not (mark := marks / str(index)).exists():
        mark.touch()
        raise KilledWorker("call", SimpleNamespace(address="nowhere"), 1)
    return index


def test_the_call_of_a_lost_worker_is_made_again(cluster, tmp_path, monkeypatch):
    calls = [(worker_is_lost, (tmp_path, index)) for index in range(8)]
    assert sorted(in_processes(calls, n_jobs=1, scheduler=cluster.scheduler_address)) == list(range(8))
    monkeypatch.setattr("interp.core.processes.MOST_LOST", 1)
    with pytest.raises(LostWorkers, match="were lost again and again while they did one call"):
        list(in_processes([(worker_is_lost, (tmp_path, 9))], n_jobs=1, scheduler=cluster.scheduler_address))


@pytest.mark.slow
def test_a_killed_worker_of_a_cluster_is_replaced(tmp_path, monkeypatch):
    from distributed import Client, LocalCluster

    calls = [(once_killed, (index, tmp_path)) for index in range(8)]
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        assert sorted(in_processes(calls, n_jobs=1, scheduler=cluster.scheduler_address)) == list(range(8))
        monkeypatch.setattr("interp.core.processes.MOST_LOST", 2)
        cluster.scheduler.allowed_failures = 0
        with pytest.raises(LostWorkers, match="were lost again and again while they did one call"):
            list(in_processes([(killed, (0,))], n_jobs=1, scheduler=cluster.scheduler_address))
        # A cluster that is closed while it starts a worker in place of a lost one fails in doing so.
        with Client(cluster, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=60)


def runs_of(folder):
    """The files of every run, without those parts that differ from run to run."""
    found = {}
    for key in GRID.keys:
        run = RunFolder(folder / key)
        assert run.finished
        manifest = {**run.read_manifest(), "time": "", "hardware": "", "threads": "", "sha256": ""}
        metrics = [{**record, "seconds": 0} for record in run.read_metrics()]
        weights = {path.name: path.read_bytes() for path in (folder / key).rglob("*.safetensors")}
        names = {path.relative_to(folder) for path in (folder / key).rglob("*")}
        found[key] = manifest, metrics, weights, names
    return found


def test_a_cluster_trains_the_same_models(cluster, tmp_path):
    interp.sweep(GRID, tmp_path / "here", n_jobs=1)
    interp.sweep(GRID, tmp_path / "cluster", scheduler=cluster.scheduler_address)
    from distributed import Client

    with Client(cluster, set_as_default=False) as client:
        interp.sweep(GRID, tmp_path / "sent", scheduler=client, shared_folder=False)
        assert client.status == "running"  # it is the user's
    expected = runs_of(tmp_path / "here")
    assert runs_of(tmp_path / "cluster") == expected
    assert runs_of(tmp_path / "sent") == expected


def test_a_cluster_reports_what_fails(cluster, tmp_path):
    bad = Sweep(GRID.base, {"settings.learning_rate": [1e30]})
    for shared in (True, False):
        found = interp.sweep(bad, tmp_path, scheduler=cluster.scheduler_address, shared_folder=shared)
        assert found.status == ["failed"]
        assert "Diverged" in str(found)


def test_a_run_that_is_sent_back_does_not_replace_a_finished_one(cluster, tmp_path, monkeypatch):
    from interp.sweeps import parallel

    interp.sweep(Sweep(GRID.base, {}), tmp_path, n_jobs=1)
    run = RunFolder(tmp_path / GRID.keys[0])
    run.metrics_path.unlink()
    packed = parallel._train_and_send(run.path, GRID[0], None, False)[1]
    assert parallel._receive(run.path, GRID[0], packed, False) is None
    assert not run.metrics_path.exists()
    assert parallel._receive(run.path, GRID[0], packed, True) is None
    assert run.metrics_path.exists()
    written = []
    monkeypatch.setattr(folders, "write_bytes", lambda path, content: written.append(path.name))
    parallel._receive(run.path, GRID[0], packed, True)
    assert written[-1] == "model.safetensors"  # which says that the run is whole
    assert len(written) == 5
    with run.writing():
        assert "writes to" in str(parallel._receive(run.path, GRID[0], packed, True))


def test_a_scheduler_that_is_not_there_is_named(tmp_path, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr("interp.core.processes.CONNECT", 0.3)
    with pytest.raises(LostWorkers, match=r"the connection to the scheduler at tcp://127\.0\.0\.1:9 is lost"):
        interp.sweep(GRID, tmp_path, scheduler="tcp://127.0.0.1:9")


def test_a_cluster_needs_an_extra(tmp_path, monkeypatch):
    monkeypatch.setattr("hooks.extras.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r'pip install "\.\[cluster\]"'):
        interp.sweep(GRID, tmp_path, scheduler="tcp://127.0.0.1:9")


@pytest.mark.long
def test_forty_models_are_trained_once_each_though_workers_are_killed(tmp_path):
    from distributed import Client, LocalCluster

    grid = Sweep(GRID.base, {"settings.steps": [100], "seed": range(40)})
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        killed = []

        def kill_five():
            while len(killed) < 5:
                if SweepRuns(grid=grid, folder=tmp_path).status.count("trained") > 4 * (1 + len(killed)):
                    running = client.run(os.getpid, on_error="ignore")  # none, while both are being replaced
                    for process in [*running.values()][:1]:
                        os.kill(process, signal.SIGKILL)
                        killed.append(process)
                time.sleep(0.2)

        killer = threading.Thread(target=kill_five, daemon=True)
        killer.start()
        found = interp.sweep(grid, tmp_path, scheduler=cluster.scheduler_address)
        assert found.status == ["trained"] * 40
        assert len(killed) == 5
    for key in grid.keys:
        assert [record["steps_done"] for record in RunFolder(tmp_path / key).read_metrics()] == [*range(3, 100, 3), 100]
        RunFolder(tmp_path / key).load_model()


@pytest.mark.slow
def test_when_the_scheduler_is_killed_the_same_call_resumes(tmp_path):
    def start(*arguments):
        return subprocess.Popen([sys.executable, "-m", "distributed.cli." + arguments[0], *arguments[1:]])

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address, grid = f"tcp://127.0.0.1:{port}", Sweep(GRID.base, {"settings.steps": [100], "seed": range(6)})
    for attempt in range(2):
        scheduler = start("dask_scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard")
        workers = [start("dask_worker", address, "--nthreads", "1", "--no-dashboard", "--death-timeout", "300")]
        try:
            if attempt:
                assert interp.sweep(grid, tmp_path, scheduler=address).status == ["trained"] * 6
                break
            runs = SweepRuns(grid=grid, folder=tmp_path)
            killer = threading.Thread(target=_kill_after, args=(scheduler, runs, 2), daemon=True)
            killer.start()
            with pytest.raises(LostWorkers, match=f"the connection to the scheduler at {re.escape(address)} is lost"):
                interp.sweep(grid, tmp_path, scheduler=address)
            assert runs.status.count("trained") >= 2
        finally:
            for one in (*workers, scheduler):
                one.terminate()
                one.wait(timeout=60)
    for key in grid.keys:
        assert [record["steps_done"] for record in RunFolder(tmp_path / key).read_metrics()] == [*range(3, 100, 3), 100]


def _kill_after(process, runs, n):
    while runs.status.count("trained") < n:
        time.sleep(0.2)
    process.kill()
