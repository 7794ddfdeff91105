"""How sure a number is: intervals that come from sample sizes. scipy does the arithmetic."""

import numpy as np
from jaxtyping import Float, Int
from scipy import stats

CONFIDENCE = 0.95
"""Confidence of every interval in this package, unless it says otherwise."""


def proportion_interval(
    successes: Int[np.ndarray, "*cells"], n: int | Int[np.ndarray, "*cells"], *, confidence: float = CONFIDENCE
) -> tuple[Float[np.ndarray, "*cells"], Float[np.ndarray, "*cells"]]:
    """Exact interval of a proportion, for many counts at once.

    Args:
        successes: Counts, 0 to n.
        n: Independent trials behind each count, one number or one per count.
        confidence: Coverage, strictly between 0 and 1.

    Returns:
        Lower and upper end, as fractions.

    Raises:
        ValueError: no trials, a count outside 0 to n, or a confidence outside (0, 1).

    Source: Clopper & Pearson 1934; coverage is at least `confidence` for every n.
    """
    successes = np.asarray(successes)
    if np.min(n) < 1 or successes.min(initial=0) < 0 or np.any(successes > n):
        raise ValueError(f"successes go from {successes.min()} to {successes.max()} of n = {n}; need 0 to n, n >= 1.")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}; it must lie strictly between 0 and 1.")
    tail = (1 - confidence) / 2
    low = np.where(successes == 0, 0.0, stats.beta.ppf(tail, np.maximum(successes, 1), n - successes + 1))
    high = np.where(successes == n, 1.0, stats.beta.isf(tail, successes + 1, np.maximum(n - successes, 1)))
    return low, high


def holm(p: Float[np.ndarray, "*cells"]) -> Float[np.ndarray, "*cells"]:
    """p values corrected for all of them being looked at (Holm 1979): at most one false alarm in 1 / level families."""
    order = np.argsort(p, axis=None)
    steps = p.ravel()[order] * np.arange(p.size, 0, -1)
    corrected = np.empty(p.size)
    corrected[order] = np.minimum(np.maximum.accumulate(steps), 1)
    return corrected.reshape(p.shape)


def bootstrap_mean(
    values: Float[np.ndarray, "sample *cells"], *, seed: int, resamples: int = 2000, confidence: float = CONFIDENCE
) -> tuple[Float[np.ndarray, "*cells"], Float[np.ndarray, "*cells"], Float[np.ndarray, "*cells"]]:
    """Mean over samples with its percentile bootstrap interval, for many cells at once.

    Every cell is resampled alike, so paired cells stay paired. One matrix product of resampling counts with the
    values takes the place of drawing each resample.

    Args:
        values: Independent samples along the first axis.
        seed: Decides the resamples.
        resamples: How many.
        confidence: Coverage.

    Returns:
        Mean, lower and upper end.
    """
    n = len(values)
    counts = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=resamples)
    means = counts @ values.reshape(n, -1) / n
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0)
    cells = values.shape[1:]
    return values.mean(0), low.reshape(cells), high.reshape(cells)
