"""Snapshots of the demo's training: what they cost, and how long analyses of them take.

The time of saving is measured inside one run, since runs differ by more than it.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

import interp
from benchmarks.timing import Result, ratio, seconds
from hooks import make_model
from interp.cli.demo_run import demo_specs
from interp.training import TrainingRun
from interp.training.folder import RunFolder

MANY, FEW = 50, 20
ROUNDS = 3


def comparisons() -> Iterator[Result]:
    with tempfile.TemporaryDirectory() as folder:
        run = without = trained(Path(folder) / "without", 0)
        whole, rest = [], []
        for index in range(ROUNDS):
            saving: list[float] = []
            with patch.object(RunFolder, "save_snapshot", timed(RunFolder.save_snapshot, saving)):
                start = time.perf_counter()
                run = trained(Path(folder) / str(index), MANY)
            whole.append(time.perf_counter() - start)
            rest.append(whole[-1] - sum(saving))
            assert len(saving) == len(run.snapshots) == MANY
            ours, theirs = run.model.state_dict(), without.model.state_dict()
            assert all(torch.equal(ours[name], value) for name, value in theirs.items())
        yield ratio(f"training with {MANY} snapshots, without the time of saving", whole, rest, bar=1.03)
        chosen = [run.snapshots[round(index * (MANY - 1) / (FEW - 1))] for index in range(FEW)]
        start = time.perf_counter()
        for verb in (interp.probe, interp.audit):
            interp.over_training(run, verb, steps=chosen, n_jobs=2)
        taken = time.perf_counter() - start
        yield seconds(f"probe and audit of {FEW} snapshots, two processes", [taken], bar=180.0)


def timed(save: Callable[..., None], taken: list[float]) -> Callable[..., None]:
    """A function that adds the time of each call to a list."""

    def run(*args: Any) -> None:
        start = time.perf_counter()
        save(*args)
        taken.append(time.perf_counter() - start)

    return run


def trained(folder: Path, snapshots: int) -> TrainingRun:
    """The demo's model."""
    spec = next(iter(demo_specs(0).values()))
    settings = replace(spec.settings, snapshots=snapshots or None)
    return interp.train(make_model(spec.config, seed=0), spec.task, settings, folder=folder)
