"""The intervals that measures share; units are models or seeds."""

import math

import numpy as np
from jaxtyping import Float
from scipy import stats

from interp.core.statistics import bootstrap_mean, proportion_interval, t_half_width


def t_interval(
    values: Float[np.ndarray, " seed"], *, confidence: float = 0.95, resolution: float = 0.0
) -> tuple[float, float, float]:
    """Mean over seeds with its t interval; unbounded with one seed.

    Args:
        values: One value per seed.
        confidence: Confidence of the interval.
        resolution: Distance of the values that a measurement can give. Their standard deviation is at least that of a
            rounding error (Sheppard), resolution / sqrt(12), so that equal values have an interval too.
    """
    mean = float(values.mean())
    if len(values) < 2:
        return mean, -math.inf, math.inf
    rounding = resolution / math.sqrt(12 * len(values)) * float(stats.t.ppf((1 + confidence) / 2, len(values) - 1))
    half = max(float(t_half_width(values, confidence=confidence)), rounding)
    return mean, mean - half, mean + half


def bootstrap_interval(
    values: Float[np.ndarray, " seed"], *, seed: int, resolution: float = 0.0
) -> tuple[float, float, float]:
    """Mean over seeds with its 95 % percentile bootstrap interval; that of `t_interval` if all values are equal."""
    if np.ptp(values) == 0:
        return t_interval(values, resolution=resolution)
    mean, low, high = (float(end) for end in bootstrap_mean(values, seed=seed))
    return mean, low, high


def proportion(hits: int, n: int) -> tuple[float, float, float]:
    """A share with its exact (Clopper-Pearson) 95 % interval."""
    low, high = proportion_interval(np.array(hits), n)
    return hits / n, float(low), float(high)


def difference_interval(
    a: Float[np.ndarray, " seed"],
    b: Float[np.ndarray, " other"],
    *,
    confidence: float = 0.95,
    resolution: float = 0.0,
) -> tuple[float, float, float]:
    """Mean of `a` minus mean of `b` with Welch's t interval, for two groups of seeds that are not paired.

    Unbounded if a group has one seed; `resolution` as in `t_interval`.
    """
    mean = float(a.mean() - b.mean())
    if min(len(a), len(b)) < 2:
        return mean, -math.inf, math.inf
    # Squared standard error of each mean; the variance is at least that of a rounding error
    errors = [max(float(values.var(ddof=1)), resolution**2 / 12) / len(values) for values in (a, b)]
    if not sum(errors):
        return mean, mean, mean
    # Welch-Satterthwaite degrees of freedom
    freedom = sum(errors) ** 2 / sum(error**2 / (len(values) - 1) for error, values in zip(errors, (a, b), strict=True))
    half = float(stats.t.ppf((1 + confidence) / 2, freedom)) * math.sqrt(sum(errors))
    return mean, mean - half, mean + half


def correlation(
    x: Float[np.ndarray, " model"], y: Float[np.ndarray, " model"], *, seed: int
) -> tuple[float, float, float]:
    """Spearman's rank correlation with its 95 % percentile bootstrap interval over models.

    0 [-1, 1] with fewer than three models, or if all have the same value. Resamples of a perfect correlation are all
    perfect, so its interval is Fisher's, about the correlation of the same ranks with two neighbours exchanged.
    """
    if len(x) < 3 or not (np.ptp(x) and np.ptp(y)):
        return 0.0, -1.0, 1.0

    def rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
        return float(np.corrcoef(stats.rankdata(a), stats.rankdata(b))[0, 1]) if np.ptp(a) and np.ptp(b) else 0.0

    interval = stats.bootstrap(
        (x, y),
        rank_correlation,
        paired=True,
        vectorized=False,
        n_resamples=2000,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    value, low, high = rank_correlation(x, y), float(interval.low), float(interval.high)
    if high - low > 1e-9:
        return value, low, high
    n = len(x)
    half = float(stats.norm.ppf(0.975)) / math.sqrt(n - 3) if n > 3 else math.inf
    inner = math.tanh(math.atanh(1 - 12 / (n * (n**2 - 1))) - half)
    return (value, inner, 1.0) if value > 0 else (value, -1.0, -inner)
