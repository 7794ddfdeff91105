"""Measurements on examples: means, shares and differences, each with its interval and n."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from case_studies.frame.measurement import Measurement
from case_studies.recipes.intervals import bootstrap_interval, difference_interval, proportion, t_interval
from published_readings.packs import Pack
from published_readings.runs import Edit, Runs, losses, runs, shares_right

RESOLUTION = 1e-6
"""Numbers are single precision."""


def mean_of(values: Float[Tensor, " example"], *, unit: str = "examples", **more: Any) -> Measurement:
    """Mean over examples with its t interval."""
    interval = t_interval(values.double().numpy(), resolution=RESOLUTION)
    return Measurement.from_interval(interval, unit=unit, **more)


def share_of(hits: Bool[Tensor, " unit"], *, unit: str = "examples", **more: Any) -> Measurement:
    """Share of hits with its exact interval."""
    return Measurement.from_interval(proportion(int(hits.sum()), len(hits)), unit=unit, **more)


def difference_of(
    a: Float[Tensor, " example"], b: Float[Tensor, " other"], *, unit: str = "examples", **more: Any
) -> Measurement:
    """Mean of `a` minus mean of `b`, different examples, with Welch's interval."""
    one, other = a.double().numpy(), b.double().numpy()
    value, low, high = difference_interval(one, other, resolution=RESOLUTION).floats()
    return Measurement(value=value, low=low, high=high, n=len(one) + len(other), unit=unit, **more)


def number(value: float, *, n: int = 1, unit: str = "weights", **more: Any) -> Measurement:
    """A number without sampling error: it is computed from weights, or from every case there is."""
    return Measurement(value=value, low=value, high=value, n=n, unit=unit, exact=True, **more)


def correlation_of(x: Float[Tensor, " example"], y: Float[Tensor, " example"], **more: Any) -> Measurement:
    """Pearson's correlation over examples, with a percentile bootstrap interval of 1,000 resamples."""
    a, b = x.double().numpy(), y.double().numpy()
    rows = np.random.default_rng(0).integers(len(a), size=(1000, len(a)))
    low, high = np.quantile([np.corrcoef(a[one], b[one])[0, 1] for one in rows], [0.025, 0.975])
    value = float(np.corrcoef(a, b)[0, 1])
    return Measurement(value=value, low=min(low, value), high=max(high, value), n=len(a), unit="examples", **more)


def per_example(values: Float[Tensor, "example pos"], at: Bool[Tensor, "example pos"]) -> Float[Tensor, " some"]:
    """Mean of each example over the positions chosen in it, of the examples with any."""
    some = at.any(1)
    return (values * at).sum(1)[some] / at.sum(1)[some]


def loss_added(seen: Runs, edits: dict[str, Edit]) -> Float[Tensor, " example"]:
    """Rise of each example's loss, in nats, under edits."""
    assert seen.targets is not None
    return losses(seen.logits(edits), seen.targets) - losses(seen.logits(), seen.targets)


def accuracy_lost(seen: Runs, edits: dict[str, Edit]) -> Float[Tensor, " example"]:
    """Fall of the share of right answers of each example under edits."""
    assert seen.targets is not None
    return shares_right(seen.logits(), seen.targets) - shares_right(seen.logits(edits), seen.targets)


def removal(pack: Pack, edits: dict[str, Edit], seen: Runs | None = None) -> Measurement:
    """Accuracy lost under edits; the rise of the loss and both losses are among the numbers."""
    seen = seen or runs(pack)
    assert seen.targets is not None
    added, clean = loss_added(seen, edits), losses(seen.logits(), seen.targets)
    values = {"loss": float(clean.mean()), "loss without it": float((clean + added).mean())}
    added_mean, low, high = bootstrap_interval(added.double().numpy(), seed=0, resolution=RESOLUTION).floats()
    values |= {"loss added": added_mean, "loss added, low": low, "loss added, high": high}
    return mean_of(accuracy_lost(seen, edits), numbers=values)


def guess_loss(pack: Pack) -> float:
    """Loss, in nats, of a model that knows only how frequent each answer is."""
    labels = pack.task.labels[pack.task.labels >= 0]
    share = torch.bincount(labels) / len(labels)
    share = share[share > 0]
    return float(-(share * share.log()).sum())
