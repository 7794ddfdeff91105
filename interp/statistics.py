"""How sure a number is: intervals that come from sample sizes. scipy does the arithmetic."""

import numpy as np
from jaxtyping import Float, Int
from scipy import stats

CONFIDENCE = 0.95
"""Confidence of every interval in this package, unless it says otherwise."""


def proportion_interval(
    successes: Int[np.ndarray, "*cells"], n: int, *, confidence: float = CONFIDENCE
) -> tuple[Float[np.ndarray, "*cells"], Float[np.ndarray, "*cells"]]:
    """Exact interval of a proportion, for many counts at once.

    Args:
        successes: Counts, 0 to n.
        n: Independent trials behind each count.
        confidence: Coverage, strictly between 0 and 1.

    Returns:
        Lower and upper end, as fractions.

    Raises:
        ValueError: no trials, a count outside 0 to n, or a confidence outside (0, 1).

    Source: Clopper & Pearson 1934; coverage is at least `confidence` for every n.
    """
    successes = np.asarray(successes)
    if n < 1 or successes.min(initial=0) < 0 or successes.max(initial=0) > n:
        raise ValueError(f"successes go from {successes.min()} to {successes.max()} of n = {n}; need 0 to n, n >= 1.")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}; it must lie strictly between 0 and 1.")
    tail = (1 - confidence) / 2
    low = np.where(successes == 0, 0.0, stats.beta.ppf(tail, np.maximum(successes, 1), n - successes + 1))
    high = np.where(successes == n, 1.0, stats.beta.isf(tail, successes + 1, np.maximum(n - successes, 1)))
    return low, high
