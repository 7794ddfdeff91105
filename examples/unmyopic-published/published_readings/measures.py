"""What measures return: means, shares and differences over examples, each a row with its interval and n."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from case_studies.frame.judge import Readings
from case_studies.recipes.intervals import (
    as_interval,
    bootstrap_interval,
    difference_interval,
    interval_columns,
    proportion,
    t_interval,
)
from interp.core.intervals import Interval
from published_readings.packs import Pack
from published_readings.runs import Edit, Runs, losses

VALUE, UNITS = "value", "n"
"""Columns of the judged number, whose interval is `low` and `high`, and of the number of its units."""
RESOLUTION = 1e-6
"""Numbers are single precision."""


def mean_of(values: Float[Tensor, " example"]) -> Interval:
    """Mean over examples with its t interval."""
    return t_interval(values.double().numpy(), resolution=RESOLUTION)


def share_of(hits: Bool[Tensor, " unit"]) -> Interval:
    """Share of hits with its exact interval."""
    return proportion(int(hits.sum()), len(hits))


def difference_of(a: Float[Tensor, " example"], b: Float[Tensor, " other"]) -> Interval:
    """Mean of `a` minus mean of `b`, different examples, with Welch's interval; n counts both."""
    interval = difference_interval(a.double().numpy(), b.double().numpy(), resolution=RESOLUTION)
    return as_interval(*interval.floats(), len(a) + len(b))


def correlation_of(x: Float[Tensor, " example"], y: Float[Tensor, " example"]) -> Interval:
    """Pearson's correlation over examples, with a percentile bootstrap interval of 1,000 resamples."""
    a, b = x.double().numpy(), y.double().numpy()
    rows = np.random.default_rng(0).integers(len(a), size=(1000, len(a)))
    low, high = np.quantile([np.corrcoef(a[one], b[one])[0, 1] for one in rows], [0.025, 0.975])
    value = float(np.corrcoef(a, b)[0, 1])
    return as_interval(value, min(low, value), max(high, value), len(a))


def estimate(interval: Interval, **more: Any) -> Readings:
    """One row: an estimate over examples, which are too many to have a row each.

    Args:
        interval: The estimate.
        **more: What else is shown, such as `numbers`.
    """
    return Readings(frame=pd.DataFrame([_row(interval)]), **more)


def estimates(name: str, intervals: Mapping[Any, Interval], **more: Any) -> Readings:
    """One row for each head, neuron or position, of which one is judged.

    Args:
        name: The column that names them.
        intervals: The estimate of each.
        **more: What else is shown, such as `numbers`.
    """
    rows = [{name: label, **_row(interval)} for label, interval in intervals.items()]
    return Readings(frame=pd.DataFrame(rows), **more)


def number(value: float, *, n: int = 1, **more: Any) -> Readings:
    """One row without an interval: it is computed from weights, or from every case there is."""
    return Readings(frame=pd.DataFrame([{VALUE: value, UNITS: n}]), **more)


def _row(interval: Interval) -> dict[str, Any]:
    return {**interval_columns(interval, VALUE), UNITS: interval.n}


def per_example(values: Float[Tensor, "example pos"], at: Bool[Tensor, "example pos"]) -> Float[Tensor, " some"]:
    """Mean of each example over the positions chosen in it, of the examples with any."""
    some = at.any(1)
    return (values * at).sum(1)[some] / at.sum(1)[some]


def loss_added(seen: Runs, edits: dict[str, Edit]) -> Float[Tensor, " example"]:
    """Rise of each example's loss, in nats, under edits."""
    assert seen.targets is not None
    return losses(seen.logits(edits), seen.targets) - losses(seen.logits(), seen.targets)


def losses_of(seen: Runs, edits: dict[str, Edit]) -> dict[str, float]:
    """Loss of a model, its loss under edits, and its rise with a bootstrap interval over examples, in nats."""
    assert seen.targets is not None
    added, clean = loss_added(seen, edits), losses(seen.logits(), seen.targets)
    rise, low, high = bootstrap_interval(added.double().numpy(), seed=0, resolution=RESOLUTION).floats()
    return {
        "loss": float(clean.mean()),
        "loss without it": float((clean + added).mean()),
        "loss added": rise,
        "loss added, low": low,
        "loss added, high": high,
    }


def guess_loss(pack: Pack) -> float:
    """Loss, in nats, of a model that knows only how frequent each answer is."""
    labels = pack.task.labels[pack.task.labels >= 0]
    share = torch.bincount(labels) / len(labels)
    share = share[share > 0]
    return float(-(share * share.log()).sum())
