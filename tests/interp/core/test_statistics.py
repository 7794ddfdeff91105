"""Intervals, corrections and resampling: the definitions one at a time, and coverage by simulation."""

import numpy as np
import pytest
import torch
from scipy import stats

from interp.core.statistics import bootstrap_mean, holm, proportion_interval


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
    with pytest.raises(ValueError, match=f"confidence is {confidence}; it must be strictly between 0 and 1"):
        proportion_interval(np.array([1]), 5, confidence=confidence)


def test_holm_is_what_its_steps_say():
    """Smallest p times m, next times m - 1 ...; never below one that came before, never above 1."""
    p = np.random.default_rng(0).uniform(size=(3, 4)) ** 4
    expected, largest = {}, 0.0
    for rank, value in enumerate(sorted(p.ravel())):
        largest = max(largest, min(1.0, (p.size - rank) * value))
        expected[value] = largest
    np.testing.assert_allclose(holm(p), np.vectorize(expected.get)(p))


@pytest.mark.parametrize("level", [0.05, 0.3])
def test_holm_lets_one_family_in_so_many_raise_an_alarm(level):
    families = 4000
    alarms = np.mean([(holm(p) <= level).any() for p in np.random.default_rng(1).uniform(size=(families, 12))])
    exact = 1 - (1 - level / 12) ** 12  # independent p: the smallest one decides
    assert abs(alarms - exact) < 5 * (exact * (1 - exact) / families) ** 0.5


def test_bootstrap_keeps_shapes_and_its_seed():
    values = np.random.default_rng(2).normal(size=(30, 2, 3))
    mean, low, high = bootstrap_mean(values, seed=0)
    assert mean.shape == low.shape == high.shape == (2, 3)
    assert (low < mean).all()
    assert (mean < high).all()
    assert np.array_equal(low, bootstrap_mean(values, seed=0)[1])
    assert not np.array_equal(low, bootstrap_mean(values, seed=1)[1])
    narrow = bootstrap_mean(values, seed=0, confidence=0.5)
    assert (high - low > narrow[2] - narrow[1]).all()


def test_bootstrap_resamples_every_cell_alike():
    """The difference of two cells has the interval of their difference: pairs stay pairs."""
    values = np.random.default_rng(3).normal(size=(40, 1))
    _, low, high = bootstrap_mean(np.concatenate([values, values + 1, -values], 1), seed=0)
    assert low[1] == pytest.approx(low[0] + 1)
    assert low[2] == pytest.approx(-high[0])


def test_bootstrap_covers_the_mean_nearly_as_often_as_it_says():
    n, cells = 200, 2000
    values = np.random.default_rng(4).normal(0.3, 1.0, (n, cells))
    _, low, high = bootstrap_mean(values, seed=0)
    covered = ((low <= 0.3) & (high >= 0.3)).mean()
    # its width is that of a normal with the biased standard deviation: 94.6 % for 200; the rest is simulation
    exact = 2 * stats.t.cdf(stats.norm.ppf(0.975) * ((n - 1) / n) ** 0.5, n - 1) - 1
    assert abs(covered - exact) < 5 * (exact * (1 - exact) / cells) ** 0.5


def test_holm_on_a_worked_example():
    corrected = holm(np.array([[0.01, 0.04], [0.03, 0.005]]))
    np.testing.assert_allclose(corrected, [[0.03, 0.06], [0.06, 0.02]])
    assert holm(np.array([0.9, 0.8])).max() == 1


def test_bootstrap_equals_scipy(generator):
    values = torch.randn(200, 3, generator=generator).double().numpy() + 0.3
    mean, low, high = bootstrap_mean(values, seed=0, resamples=20_000)
    np.testing.assert_allclose(mean, values.mean(0))
    for cell in range(3):
        theirs = stats.bootstrap(
            (values[:, cell],), np.mean, method="percentile", n_resamples=20_000, rng=np.random.default_rng(1)
        ).confidence_interval
        # the ends of both are quantiles of 20,000 draws: about 0.01 standard deviations of the mean apart
        assert abs(low[cell] - theirs.low) < 0.05 / 200**0.5 * 3
        assert abs(high[cell] - theirs.high) < 0.05 / 200**0.5 * 3
