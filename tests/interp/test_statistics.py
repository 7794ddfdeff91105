"""Intervals of proportions: scipy's own one at a time, and coverage by simulation."""

import numpy as np
import pytest
from scipy import stats

from interp.statistics import proportion_interval


@pytest.mark.parametrize("n", [1, 2, 7, 100, 2000])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_equals_scipys_exact_interval(n, confidence):
    successes = np.unique(np.linspace(0, n, 9).astype(int))
    low, high = proportion_interval(successes, n, confidence=confidence)
    for count, below, above in zip(successes, low, high, strict=True):
        theirs = stats.binomtest(int(count), n).proportion_ci(confidence, method="exact")
        # scipy searches for the root, we invert the beta distribution
        assert (below, above) == pytest.approx((theirs.low, theirs.high), abs=1e-8)


def test_keeps_the_shape_of_the_counts():
    low, high = proportion_interval(np.array([[0, 1, 2], [3, 4, 5]]), 5)
    assert low.shape == high.shape == (2, 3)
    assert low[0, 0] == 0
    assert high[1, 2] == 1
    assert (low < high).all()


@pytest.mark.parametrize("share", [0.02, 0.5, 0.93])
def test_covers_the_truth_as_often_as_it_says(share):
    draws, n = 20_000, 60
    counts = np.random.default_rng(0).binomial(n, share, draws)
    low, high = proportion_interval(counts, n)
    covered = ((low <= share) & (share <= high)).mean()
    # at least 95 %, within five standard deviations of the simulation; and not by covering everything
    assert covered >= 0.95 - 5 * (0.95 * 0.05 / draws) ** 0.5
    assert (high - low).max() < 0.3


@pytest.mark.parametrize(
    ("successes", "n", "words"),
    [
        ([0], 0, "successes go from 0 to 0 of n = 0; need 0 to n, n >= 1"),
        ([-1, 3], 5, "successes go from -1 to 3 of n = 5"),
        ([2, 6], 5, "successes go from 2 to 6 of n = 5"),
    ],
)
def test_impossible_counts_are_refused(successes, n, words):
    with pytest.raises(ValueError, match=words):
        proportion_interval(np.array(successes), n)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0])
def test_impossible_confidence_is_refused(confidence):
    with pytest.raises(ValueError, match=f"confidence is {confidence}; it must lie strictly between 0 and 1"):
        proportion_interval(np.array([1]), 5, confidence=confidence)
