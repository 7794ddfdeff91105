"""Sweeps: a Dask cluster against processes, models that are there, plans of many models, stacked training on a GPU."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

import interp
from benchmarks.timing import BenchmarkResult, elapsed, ratio, seconds
from interp.cli.demo_run import demo_spec
from interp.sweeps import ModelSpec, Sweep, SweepRuns
from interp.tasks import Lego
from interp.training.folder import RunFolder

JOBS, ROUNDS, TRAINED = 8, 3, 1000
PLANNED = """
import resource, time
from benchmarks.bench_sweep import grid
from interp.sweeps import Sweep, SweepRuns
from pathlib import Path
from typing import Any
start = time.perf_counter()
many = Sweep(grid(1).base, {"settings.learning_rate": [1e-6 * (1 + i) for i in range(2500)], "seed": range(40)})
table = SweepRuns(grid=many, folder=Path("nowhere")).table()
assert len(table) == 100_000
print(time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)
"""


def grid(n: int, steps: int = 20, *, n_layers: int = 6, d_model: int = 64) -> Sweep:
    """LEGO models that differ by their seeds."""
    task = Lego(n_vars=4, sentence_format="compact")
    spec = demo_spec(0)
    settings = replace(spec.settings, curriculum=(), steps=steps, association="none", eval_every=steps)
    config = interp.config_for(task, "lego", n_layers=n_layers, d_model=d_model)
    return Sweep(ModelSpec(task=task, config=config, settings=settings, seed=0), {"seed": range(n)})


def comparisons() -> Iterator[BenchmarkResult]:
    models = grid(JOBS)
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        with local_cluster() as cluster:
            # Start both kinds of workers, then train on each in turn
            address = cluster.scheduler_address
            interp.sweep(grid(2, steps=1), folder / "warm", scheduler=address)
            interp.sweep(grid(2, steps=1), folder / "warmer", n_jobs=2)
            cluster_times, process_times = [], []
            for index in range(ROUNDS):
                sweep = partial(interp.sweep, models, folder / f"cluster {index}", scheduler=address)
                cluster_times.append(elapsed(sweep))
                process_times.append(elapsed(partial(interp.sweep, models, folder / f"processes {index}", n_jobs=2)))
            for key in models.keys:
                files = [RunFolder(folder / f"{kind} 0" / key).model_path for kind in ("cluster", "processes")]
                assert files[0].read_bytes() == files[1].read_bytes()
        name = f"{JOBS} models on a Dask cluster of 2, against 2 processes"
        yield ratio(name, cluster_times, process_times, bar=1.15)
        # Many small models, trained before
        interp.sweep(small_models(), folder / "trained", n_jobs=2)
        times = [elapsed(partial(skip_and_list, folder / "trained")) for _ in range(ROUNDS)]
        yield seconds(f"{TRAINED} models that are there, skipped and listed", times, bar=2.0)
        # Plans need time and memory of their own process
        process = subprocess.run([sys.executable, "-c", PLANNED], capture_output=True, text=True, check=True)
        planning_time, gigabytes = map(float, process.stdout.split())
        assert gigabytes < 1, f"planning took {gigabytes:.2f} GB"
        yield seconds(f"100,000 models planned, keyed and listed ({gigabytes:.2f} GB)", [planning_time], bar=60.0)
        if torch.cuda.is_available():
            for n, bar in ((16, 0.35), (64, 0.15)):
                yield stacked(folder / f"cuda {n}", n, bar)


def small_models() -> Sweep:
    """Models of one step each."""
    return grid(TRAINED, steps=1, n_layers=1, d_model=8)


def skip_and_list(folder: Path) -> None:
    """A sweep over models that are trained already, and its table."""
    models = small_models()
    assert interp.sweep(models, folder).status.count("trained") == TRAINED
    assert len(SweepRuns(grid=models, folder=folder).table()) == TRAINED


def local_cluster() -> Any:
    """A Dask cluster of two workers on this machine."""
    from distributed import LocalCluster

    options: Any = {"dashboard_address": None}
    return LocalCluster(n_workers=2, threads_per_worker=1, **options)


def stacked(folder: Path, n: int, bar: float) -> BenchmarkResult:
    """Models trained as one on a GPU against one after another."""
    models = grid(n)
    times: dict[bool, list[float]] = {True: [], False: []}
    for index in range(ROUNDS):
        for stack in times:
            path = folder / f"{stack} {index}"
            sweep = partial(interp.sweep, models, path, n_jobs=1, device="cuda", stacked=stack)
            times[stack].append(elapsed(sweep))
    return ratio(f"{n} models stacked on a GPU, against one after another", times[True], times[False], bar=bar)
