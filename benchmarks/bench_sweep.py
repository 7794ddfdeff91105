"""Sweeps: a Dask cluster against processes, models that are there, plans of many models, stacked training.

Stacked training is for accelerators; without one its ratio on one CPU thread is measured, and has no bar.
"""

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import interp
from benchmarks.timing import Result, ratio, seconds
from interp.cli.demo_run import demo_specs
from interp.sweeps import ModelSpec, Sweep, SweepRuns
from interp.tasks import Lego
from interp.training.folder import RunFolder

JOBS, ROUNDS, THERE = 16, 3, 1000
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


def grid(n: int, steps: int = 20) -> Sweep:
    """LEGO models of width 64 with 6 layers."""
    task = Lego(n_vars=4, sentence_format="compact")
    spec = demo_specs(0)["model"]
    settings = replace(spec.settings, curriculum=(), steps=steps, association="none", eval_every=steps)
    config = interp.config_for(task, "lego", n_layers=6, d_model=64)
    return Sweep(ModelSpec(task=task, config=config, settings=settings, seed=0), {"seed": range(n)})


def comparisons() -> Iterator[Result]:
    models = grid(JOBS)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        with local_cluster() as cluster:
            address = cluster.scheduler_address
            interp.sweep(grid(2, steps=1), folder / "warm", scheduler=address)
            interp.sweep(grid(2, steps=1), folder / "warmer", n_jobs=2)
            there, here = [], []
            for index in range(ROUNDS):
                start = time.perf_counter()
                interp.sweep(models, folder / f"cluster {index}", scheduler=address)
                there.append(time.perf_counter() - start)
                start = time.perf_counter()
                interp.sweep(models, folder / f"processes {index}", n_jobs=2)
                here.append(time.perf_counter() - start)
            for key in models.keys:
                files = [RunFolder(folder / f"{kind} 0" / key).model_path for kind in ("cluster", "processes")]
                assert files[0].read_bytes() == files[1].read_bytes()
        yield ratio(f"{JOBS} models on a Dask cluster of 2, against 2 processes", there, here, bar=1.15)
        many, first = grid(THERE), folder / "processes 0" / models.keys[0]
        for key in many.keys:
            shutil.copytree(first, folder / "there" / key)
        taken = []
        for _ in range(ROUNDS):
            start = time.perf_counter()
            again = grid(THERE)
            assert interp.sweep(again, folder / "there").status.count("trained") == THERE
            assert len(SweepRuns(grid=again, folder=folder / "there").table()) == THERE
            taken.append(time.perf_counter() - start)
        yield seconds(f"{THERE} models that are there, skipped and listed", taken, bar=2.0)
        done = subprocess.run([sys.executable, "-c", PLANNED], capture_output=True, text=True, check=True)
        planned, gigabytes = map(float, done.stdout.split())
        assert gigabytes < 1, f"planning took {gigabytes:.2f} GB"
        yield seconds(f"100,000 models planned, keyed and listed ({gigabytes:.2f} GB)", [planned], bar=60.0)
        if torch.cuda.is_available():
            for n, bar in ((16, 0.35), (64, 0.15)):
                yield stacked(folder / f"cuda {n}", n, "cuda", bar)
        else:
            yield stacked(folder / "cpu", JOBS, "cpu", None)


def local_cluster() -> Any:
    """A Dask cluster of two workers on this machine."""
    from distributed import LocalCluster

    options: Any = {"dashboard_address": None}
    return LocalCluster(n_workers=2, threads_per_worker=1, **options)


def stacked(folder: Path, n: int, device: str, bar: float | None) -> Result:
    """Models trained as one against one after another."""
    models, together, alone = grid(n), [], []
    for index in range(ROUNDS):
        for kind, taken in ((True, together), (False, alone)):
            start = time.perf_counter()
            interp.sweep(models, folder / f"{kind} {index}", n_jobs=1, device=device, stacked=kind)
            taken.append(time.perf_counter() - start)
    return ratio(f"{n} models stacked on {device}, against one after another", together, alone, bar=bar)
