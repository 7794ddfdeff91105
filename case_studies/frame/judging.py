"""How an interval judges a claim, and intervals that several studies need."""

from typing import Any, cast

import numpy as np
from jaxtyping import Float
from scipy import stats

from case_studies.frame.claims import ClaimVerdict, Measurement
from interp.core.statistics import t_half_width


def above(m: Measurement, bar: float) -> ClaimVerdict:
    """The whole interval above the bar."""
    return "reproduced" if m.low > bar else "not reproduced" if m.high < bar else "inconclusive"


def at_least(m: Measurement, bar: float) -> ClaimVerdict:
    """The whole interval at the bar or above."""
    return "reproduced" if m.low >= bar else "not reproduced" if m.high < bar else "inconclusive"


def below(m: Measurement, bar: float) -> ClaimVerdict:
    """The whole interval below the bar."""
    return "reproduced" if m.high < bar else "not reproduced" if m.low > bar else "inconclusive"


def more_than_half(m: Measurement) -> ClaimVerdict:
    """Above one half."""
    return above(m, 0.5)


def correlation(
    x: Float[np.ndarray, " model"], y: Float[np.ndarray, " model"], *, seed: int
) -> tuple[float, float, float]:
    """Spearman's rank correlation with its 95 % percentile bootstrap interval over models."""

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
    return rank_correlation(x, y), float(interval.low), float(interval.high)


def t_interval(values: Float[np.ndarray, " seed"], *, confidence: float = 0.95) -> tuple[float, float, float]:
    """Mean over seeds with its t interval."""
    mean = float(values.mean())
    half = float(t_half_width(values, confidence=confidence)) if len(values) > 1 else 0.0
    return mean, mean - half, mean + half


def difference_interval(
    a: Float[np.ndarray, " seed"], b: Float[np.ndarray, " other"], *, confidence: float = 0.95
) -> tuple[float, float, float]:
    """Mean of `a` minus mean of `b`, with Welch's t interval: two groups of seeds that are not paired."""
    mean = float(a.mean() - b.mean())
    if min(len(a), len(b)) < 2 or (np.ptp(a) == 0 and np.ptp(b) == 0):
        return mean, mean, mean
    found = cast(Any, stats.ttest_ind(a, b, equal_var=False)).confidence_interval(confidence)
    return mean, float(found.low), float(found.high)


def within(m: Measurement, margin: float) -> ClaimVerdict:
    """The whole interval closer to 0 than the margin: no difference worth the name."""
    if -margin < m.low and m.high < margin:
        return "reproduced"
    return "not reproduced" if m.low >= margin or m.high <= -margin else "inconclusive"
