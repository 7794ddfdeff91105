"""Accuracy curves of LEGO models with given values, in place of measured ones."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np

from case_studies.frame.evidence import Evidence
from case_studies.lego import curves
from interp.core.intervals import Interval
from interp.evaluation import ExtrapolationResult


def curve(accuracy, supervised, depths=(1, 2)):
    """A curve with these accuracies (depth, variable); the first depth is the trained one."""
    accuracy = np.array(accuracy, dtype=float)
    return ExtrapolationResult(
        depths=depths,
        targets=tuple(f"#{i}" for i in range(accuracy.shape[1])),
        supervised=tuple(map(bool, supervised)),
        accuracy=Interval(value=accuracy, low=accuracy, high=accuracy, n=1000),
        chance=0.5,
        n=1000,
        n_scored=np.full(accuracy.shape[1], 1000),
        split="test",
        trained_depth=depths[0],
    )


def evidence_of(monkeypatch, found, *modules):
    """Evidence whose models have the given curves, by group and seed; charts of these modules are not drawn."""
    monkeypatch.setattr(curves, "depth_curve", lambda evidence, spec: found[spec.name][spec.seed])
    for module in modules:
        for chart in ("depth_chart", "learning_chart"):
            monkeypatch.setattr(module, chart, lambda *_: {"mark": "line"}, raising=False)
    specs = {
        name: tuple(SimpleNamespace(name=name, seed=seed) for seed in range(len(seeds)))
        for name, seeds in found.items()
    }
    return Evidence(size="standard", seed=0, groups=specs, folder=Path())  # type: ignore[arg-type]
