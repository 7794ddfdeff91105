"""The intervals that measures share; units are models or seeds."""

import math
from dataclasses import replace

import numpy as np
from jaxtyping import Float
from scipy import stats

from interp.core.intervals import Interval
from interp.core.statistics import bootstrap_mean, proportion_interval, t_half_width


def as_interval(value: float, low: float, high: float, n: int) -> Interval:
    """A single estimate with its interval."""
    return Interval(value=np.array(value), low=np.array(low), high=np.array(high), n=n)


def interval_columns(interval: Interval, name: str) -> dict[str, float]:
    """A single estimate and its ends as the columns of a row of a frame: the name, `low` and `high`."""
    value, low, high = interval.floats()
    return {name: value, "low": low, "high": high}


def ends_text(interval: Interval, format_spec: str) -> str:
    """The ends of an interval as text."""
    return f"[{interval.low:{format_spec}}, {interval.high:{format_spec}}]"


def clipped(interval: Interval, least: float, largest: float) -> Interval:
    """The same estimate with its ends cut to the range of possible values."""
    low, high = np.maximum(interval.low, least), np.minimum(interval.high, largest)
    return replace(interval, low=low, high=high)


def t_interval(values: Float[np.ndarray, " seed"], *, confidence: float = 0.95, resolution: float = 0.0) -> Interval:
    """Mean over seeds with its t interval; unbounded with one seed.

    Args:
        values: One value per seed.
        confidence: Confidence of the interval.
        resolution: Distance of the values that a measurement can give. Their standard deviation is at least that of a
            rounding error (Sheppard), resolution / sqrt(12), so that equal values have an interval too.
    """
    n = len(values)
    mean = float(values.mean())
    if n < 2:
        return as_interval(mean, -math.inf, math.inf, n)
    rounding = resolution / math.sqrt(12 * n) * float(stats.t.ppf((1 + confidence) / 2, n - 1))
    half = max(float(t_half_width(values, confidence=confidence)), rounding)
    return as_interval(mean, mean - half, mean + half, n)


def geometric_interval(logs: Float[np.ndarray, " seed"], *, confidence: float = 0.95) -> Interval:
    """Geometric mean with its t interval, from natural logarithms."""
    interval = t_interval(logs, confidence=confidence)
    mean, low, high = (float(np.exp(end)) for end in interval.floats())
    return as_interval(mean, low, high, len(logs))


def bootstrap_interval(values: Float[np.ndarray, " seed"], *, seed: int, resolution: float = 0.0) -> Interval:
    """Mean over seeds with its 95 % percentile bootstrap interval; that of `t_interval` if all values are equal."""
    if np.ptp(values) == 0:
        return t_interval(values, resolution=resolution)
    mean, low, high = bootstrap_mean(values, seed=seed)
    return as_interval(float(mean), float(low), float(high), len(values))


def proportion(hits: int, n: int) -> Interval:
    """A share with its exact (Clopper-Pearson) 95 % interval; without units: 0, interval [0, 1]."""
    if n == 0:
        return as_interval(0.0, 0.0, 1.0, 0)
    low, high = proportion_interval(np.array(hits), n)
    return as_interval(hits / n, float(low), float(high), n)


def difference_interval(
    a: Float[np.ndarray, " seed"],
    b: Float[np.ndarray, " other"],
    *,
    confidence: float = 0.95,
    resolution: float = 0.0,
) -> Interval:
    """Mean of `a` minus mean of `b` with Welch's t interval, for two groups of seeds that are not paired.

    Unbounded if a group has one seed; `resolution` as in `t_interval`. n is that of the smaller group.
    """
    n = min(len(a), len(b))
    mean = float(a.mean() - b.mean())
    if n < 2:
        return as_interval(mean, -math.inf, math.inf, n)
    # Squared standard error of each mean; the variance is at least that of a rounding error
    errors = [max(float(values.var(ddof=1)), resolution**2 / 12) / len(values) for values in (a, b)]
    if not sum(errors):
        return as_interval(mean, mean, mean, n)
    # Welch-Satterthwaite degrees of freedom
    freedom = sum(errors) ** 2 / sum(error**2 / (len(values) - 1) for error, values in zip(errors, (a, b), strict=True))
    half = float(stats.t.ppf((1 + confidence) / 2, freedom)) * math.sqrt(sum(errors))
    return as_interval(mean, mean - half, mean + half, n)


def correlation(x: Float[np.ndarray, " model"], y: Float[np.ndarray, " model"], *, seed: int) -> Interval:
    """Spearman's rank correlation with its 95 % percentile bootstrap interval over models.

    0 [-1, 1] with fewer than three models, or if all have the same value. Resamples of a perfect correlation are all
    perfect, so its interval is Fisher's, about the correlation of the same ranks with two neighbours exchanged.
    """
    n = len(x)
    if n < 3 or not (np.ptp(x) and np.ptp(y)):
        return as_interval(0.0, -1.0, 1.0, n)

    def rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
        return float(np.corrcoef(stats.rankdata(a), stats.rankdata(b))[0, 1]) if np.ptp(a) and np.ptp(b) else 0.0

    resampled = stats.bootstrap(
        (x, y),
        rank_correlation,
        paired=True,
        vectorized=False,
        n_resamples=2000,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    value, low, high = rank_correlation(x, y), float(resampled.low), float(resampled.high)
    if high - low > 1e-9:
        return as_interval(value, low, high, n)
    # All resamples are perfect: the inner end is Fisher's
    half = float(stats.norm.ppf(0.975)) / math.sqrt(n - 3) if n > 3 else math.inf
    inner = math.tanh(math.atanh(1 - 12 / (n * (n**2 - 1))) - half)
    return as_interval(value, inner, 1.0, n) if value > 0 else as_interval(value, -1.0, -inner, n)
