"""Snapshots of the demo's training: what they cost, and how long analyses of them take.

The time of saving is measured inside one run, since runs differ by more than it.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

import interp
from benchmarks.timing import BenchmarkResult, elapsed, ratio, seconds
from hooks import make_model
from interp.cli.demo_run import demo_spec
from interp.training import TrainingRun
from interp.training.folder import RunFolder

MANY, FEW = 50, 5
ROUNDS = 3


def comparisons() -> Iterator[BenchmarkResult]:
    with tempfile.TemporaryDirectory() as folder:
        run = without_snapshots = trained(Path(folder) / "without", 0)
        # Train with snapshots, and check that they change nothing
        training_times, times_without_saving = [], []
        for index in range(ROUNDS):
            saving_times: list[float] = []
            with patch.object(RunFolder, "save_snapshot", timed(RunFolder.save_snapshot, saving_times)):
                start = time.perf_counter()
                run = trained(Path(folder) / str(index), MANY)
            training_times.append(time.perf_counter() - start)
            times_without_saving.append(training_times[-1] - sum(saving_times))
            assert len(saving_times) == len(run.snapshots) == MANY
            weights, expected = run.model.state_dict(), without_snapshots.model.state_dict()
            assert all(torch.equal(weights[name], value) for name, value in expected.items())
        name = f"training with {MANY} snapshots, without the time of saving"
        yield ratio(name, training_times, times_without_saving, bar=1.03)
        # Analyses of evenly spaced snapshots of the last run
        steps = [run.snapshots[round(index * (MANY - 1) / (FEW - 1))] for index in range(FEW)]
        verbs = (interp.probe, interp.audit)
        analysis_time = sum(elapsed(partial(interp.over_training, run, verb, steps=steps, n_jobs=2)) for verb in verbs)
        yield seconds(f"probe and audit of {FEW} snapshots, two processes", [analysis_time], bar=45.0)


def timed(save: Callable[..., None], times: list[float]) -> Callable[..., None]:
    """A function that adds the time of each call to a list."""

    def run(*args: Any) -> None:
        times.append(elapsed(partial(save, *args)))

    return run


def trained(folder: Path, snapshots: int) -> TrainingRun:
    """The demo's model."""
    spec = demo_spec(0)
    settings = replace(spec.settings, snapshots=snapshots or None)
    return interp.train(make_model(spec.config, seed=0), spec.task, settings, folder=folder)
