"""Snapshots of the demo's training: what they cost, and how long analyses of them take."""

import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch

import interp
from benchmarks.timing import Result, ratio, seconds
from hooks import make_model
from interp.cli.demo import demo_jobs
from interp.training import TrainingRun

MANY, FEW = 50, 20
ROUNDS = 3


def comparisons() -> Iterator[Result]:
    with tempfile.TemporaryDirectory() as folder:
        taken: dict[int, list[float]] = {0: [], MANY: []}
        runs: dict[int, TrainingRun] = {}
        for index in range(ROUNDS):
            for snapshots in taken:
                start = time.perf_counter()
                runs[snapshots] = trained(Path(folder) / f"{snapshots}-{index}", snapshots)
                taken[snapshots].append(time.perf_counter() - start)
        with_them, without = (runs[snapshots].model.state_dict() for snapshots in (MANY, 0))
        assert all(torch.equal(with_them[name], value) for name, value in without.items())
        assert len(runs[MANY].snapshots) == MANY
        yield ratio(f"training with {MANY} snapshots, demo model", taken[MANY], taken[0], bar=1.03)
        steps = runs[MANY].snapshots
        chosen = [steps[round(index * (len(steps) - 1) / (FEW - 1))] for index in range(FEW)]
        start = time.perf_counter()
        for verb in (interp.probe, interp.audit):
            interp.over_training(runs[MANY], verb, steps=chosen, n_jobs=2)
        yield seconds(f"probe and audit of {FEW} snapshots, two processes", [time.perf_counter() - start], bar=180.0)


def trained(folder: Path, snapshots: int) -> TrainingRun:
    """The demo's model."""
    job = next(iter(demo_jobs(folder, 0).values()))
    settings = replace(job.settings, snapshots=snapshots or None)
    return interp.train(make_model(job.config, seed=0), job.task, settings, folder=folder)
