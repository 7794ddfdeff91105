import numpy as np
import pytest
import torch
from scipy import stats

from interp.core.statistics import (
    bootstrap_mean,
    drop_interval,
    drop_tests,
    effective_trials,
    holm,
    pooled_interval,
    proportion_interval,
    t_half_width,
)


@pytest.mark.parametrize("n", [1, 2, 7, 100, 2000])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_interval_equals_scipys_exact_interval(n, confidence):
    successes = np.unique(np.linspace(0, n, 9).astype(int))
    low, high = proportion_interval(successes, n, confidence=confidence)
    for count, below, above in zip(successes, low, high, strict=True):
        theirs = stats.binomtest(int(count), n).proportion_ci(confidence, method="exact")
        # scipy searches for the root, we invert the beta distribution
        assert (below, above) == pytest.approx((theirs.low, theirs.high), abs=1e-8)


def test_interval_keeps_the_shape_of_the_counts():
    low, high = proportion_interval(np.array([[0, 1, 2], [3, 4, 5]]), 5)
    assert low.shape == high.shape == (2, 3)
    assert low[0, 0] == 0
    assert high[1, 2] == 1
    assert (low < high).all()


@pytest.mark.parametrize("share", [0.02, 0.5, 0.93])
def test_interval_has_its_nominal_coverage(share):
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


def test_holm_by_hand():
    """Smallest p times m, next times m - 1 ...; never below one that came before, never above 1."""
    p = np.random.default_rng(0).uniform(size=(3, 4)) ** 4
    expected, largest = {}, 0.0
    for rank, value in enumerate(sorted(p.ravel())):
        largest = max(largest, min(1.0, (p.size - rank) * value))
        expected[value] = largest
    np.testing.assert_allclose(holm(p), np.vectorize(expected.get)(p))


@pytest.mark.parametrize("level", [0.05, 0.3])
def test_holm_controls_the_family_wise_error_rate(level):
    families = 4000
    alarms = np.mean([(holm(p) <= level).any() for p in np.random.default_rng(1).uniform(size=(families, 12))])
    exact = 1 - (1 - level / 12) ** 12  # independent p: the smallest one decides
    assert abs(alarms - exact) < 5 * (exact * (1 - exact) / families) ** 0.5


def test_bootstrap_keeps_shapes_and_depends_on_the_seed():
    values = np.random.default_rng(2).normal(size=(30, 2, 3))
    mean, low, high = bootstrap_mean(values, seed=0)
    assert mean.shape == low.shape == high.shape == (2, 3)
    assert (low < mean).all()
    assert (mean < high).all()
    assert np.array_equal(low, bootstrap_mean(values, seed=0)[1])
    assert not np.array_equal(low, bootstrap_mean(values, seed=1)[1])
    narrow = bootstrap_mean(values, seed=0, confidence=0.5)
    assert (high - low > narrow[2] - narrow[1]).all()


def test_bootstrap_resamples_cells_together():
    """The difference of two cells has the interval of their difference: pairs stay pairs."""
    values = np.random.default_rng(3).normal(size=(40, 1))
    _, low, high = bootstrap_mean(np.concatenate([values, values + 1, -values], 1), seed=0)
    assert low[1] == pytest.approx(low[0] + 1)
    assert low[2] == pytest.approx(-high[0])


def test_bootstrap_has_nearly_its_nominal_coverage():
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


MISSING = 5
"""Standard deviations of every simulation's band: false alarm below one in a million."""


def clustered(rng, runs, samples, share, within):
    """Beta-binomial answers, (sample, run): each sample has its own rate; `within` is their correlation."""
    total = rng.integers(4, 17, (samples, runs))
    spread = 1 / within - 1
    rate = rng.beta(share * spread, (1 - share) * spread, (samples, runs))
    return rng.binomial(total, rate).astype(float), total.astype(float)


def coverage(low, high, share):
    return ((low <= share) & (share <= high)).mean()


def at_least(level, draws):
    return level - MISSING * (level * (1 - level) / draws) ** 0.5


@pytest.mark.parametrize("n", [1, 2, 7, 60, 1000])
def test_pooled_interval_is_exact_for_one_answer_per_sample(n):
    counts = np.unique(np.linspace(0, n, 9).astype(int))
    right = (np.arange(n)[:, None] < counts).astype(float)
    share, low, high = pooled_interval(right, np.ones_like(right))
    below, above = proportion_interval(counts, n)
    np.testing.assert_allclose(share, counts / n, atol=1e-15)
    np.testing.assert_allclose(low, below, atol=1e-10)
    np.testing.assert_allclose(high, above, atol=1e-10)
    assert low[0] == 0
    assert high[-1] == 1


def test_samples_without_answers_change_nothing():
    right, total = clustered(np.random.default_rng(0), 1, 50, 0.7, 0.3)
    never = np.zeros((30, 1))
    wider = np.concatenate([never, right, never]), np.concatenate([never, total, never])
    np.testing.assert_allclose(pooled_interval(*wider), pooled_interval(right, total), rtol=1e-12)


@pytest.mark.parametrize("answer", [0.0, 1.0])
def test_the_effective_size_is_the_number_of_samples_if_all_answers_agree(answer):
    total = np.array([[3.0], [0.0], [5.0], [2.0], [9.0]])
    share, low, high = pooled_interval(answer * total, total)
    below, above = proportion_interval(np.array([4 * int(answer)]), 4)
    assert (share.item(), low.item(), high.item()) == (answer, pytest.approx(below.item()), pytest.approx(above.item()))


def test_repeated_answers_count_once():
    right = (np.arange(80) < 31).astype(float)[:, None]
    np.testing.assert_allclose(
        pooled_interval(5 * right, np.full_like(right, 5)), pooled_interval(right, np.ones_like(right)), rtol=1e-9
    )


def test_independent_answers_count_separately():
    rng, runs = np.random.default_rng(1), 400
    total = np.full((300, runs), 8.0)
    right = rng.binomial(8, 0.7, total.shape).astype(float)
    _, low, high = pooled_interval(right, total)
    below, above = proportion_interval(right.sum(0).astype(int), 2400)
    assert np.median((high - low) / (above - below)) == pytest.approx(1, abs=0.03)


@pytest.mark.parametrize("within", [0.2, 0.6])
@pytest.mark.parametrize("share", [0.5, 0.85])
def test_pooled_interval_covers_clustered_answers_and_the_naive_interval_does_not(share, within):
    runs, samples = 4000, 200
    right, total = clustered(np.random.default_rng(2), runs, samples, share, within)
    pooled, low, high = pooled_interval(right, total)
    # the variance between samples is estimated: coverage of a normal interval under a t distribution
    promised = 2 * stats.t.cdf(stats.norm.ppf(0.975) * ((samples - 1) / samples) ** 0.5, samples - 1) - 1
    assert coverage(low, high, share) > at_least(promised, runs)
    assert coverage(low, high, share) < 0.97  # not trivially
    naive = proportion_interval(right.sum(0).astype(int), total.sum(0).astype(int))
    assert coverage(*naive, share) < 0.85
    assert abs(pooled.mean() - share) < MISSING * pooled.std() / runs**0.5


def test_a_cell_without_answers_is_nan():
    right, total = clustered(np.random.default_rng(3), 3, 20, 0.7, 0.3)
    right[:, 1] = total[:, 1] = 0
    found = np.array(pooled_interval(right, total))
    assert np.isnan(found[:, 1]).all()
    assert np.isfinite(found[:, [0, 2]]).all()


def test_cells_are_independent():
    rng = np.random.default_rng(4)
    right, total = clustered(rng, 12, 40, 0.6, 0.3)
    right[:, 3], right[:, 5] = 0, total[:, 5]
    cells = right.reshape(40, 3, 4), total.reshape(40, 3, 4)
    found = pooled_interval(*cells)
    for row in range(3):
        for column in range(4):
            one = pooled_interval(*(part[:, row, column] for part in cells))
            np.testing.assert_allclose([part[row, column] for part in found], one, rtol=1e-12)


def test_pooled_interval_ignores_the_order_of_samples_and_contains_the_share():
    rng = np.random.default_rng(5)
    right, total = clustered(rng, 100, 30, 0.9, 0.5)
    order = rng.permutation(30)
    share, low, high = pooled_interval(right, total)
    assert ((low <= share) & (share <= high) & (low >= 0) & (high <= 1)).all()
    np.testing.assert_allclose(pooled_interval(right[order], total[order]), (share, low, high), rtol=1e-9)


def test_a_weight_of_ones_is_the_unweighted_bootstrap():
    values = np.random.default_rng(6).normal(size=(40, 2, 3))
    plain = bootstrap_mean(values, seed=0)
    for weight in (np.ones(40), np.ones((40, 3)), np.ones((40, 2, 3))):
        np.testing.assert_allclose(bootstrap_mean(values, seed=0, weight=weight), plain, rtol=1e-12)


def test_a_weighted_bootstrap_is_a_ratio_of_sums_in_every_resample():
    rng = np.random.default_rng(7)
    weight = rng.integers(0, 6, (25, 3)).astype(float)
    values = rng.normal(size=(25, 4, 2, 3)) * weight[:, None, None]
    mean, low, high = bootstrap_mean(values, seed=3, weight=weight, resamples=200, confidence=0.8)
    counts = np.random.default_rng(3).multinomial(25, np.full(25, 1 / 25), size=200)
    for set_, measure, part in np.ndindex(4, 2, 3):
        column, total = values[:, set_, measure, part], weight[:, part]
        assert mean[set_, measure, part] == pytest.approx(column.sum() / total.sum())
        drawn = [sum(n * x for n, x in zip(times, column, strict=True)) for times in counts]
        trials = [sum(n * x for n, x in zip(times, total, strict=True)) for times in counts]
        ends = np.quantile(np.array(drawn) / np.array(trials), [0.1, 0.9])
        assert (low[set_, measure, part], high[set_, measure, part]) == pytest.approx(tuple(ends))


def test_a_weighted_bootstrap_covers_a_clustered_share():
    runs, samples, share = 1500, 200, 0.7
    right, total = clustered(np.random.default_rng(8), runs, samples, share, 0.4)
    _, low, high = bootstrap_mean(right, seed=0, weight=total, resamples=500)
    assert at_least(0.94, runs) < coverage(low, high, share) < 0.97


def test_there_are_at_most_as_many_trials_as_answers():
    """Nine samples with one of two answers right and one with both vary less than 20 separate answers."""
    right, total = np.array([1.0] * 9 + [2.0]), np.full(10, 2.0)
    share, trials = effective_trials(right, total)  # 0.55 * 0.45 / (0.9 / 400) = 110 without the limit
    assert (share, trials) == (pytest.approx(0.55), 20)
    assert effective_trials(np.ones(10), total)[1] == 10  # no variance: one trial per sample
    assert effective_trials(np.array([2.0] * 5 + [0.0] * 5), total)[1] == pytest.approx(10)


def test_half_width_of_three_values_worked_by_hand():
    """1, 2 and 3 have a variance of 1; t for two degrees of freedom is 4.303."""
    assert t_half_width(np.array([1.0, 2.0, 3.0])) == pytest.approx(4.302653 / 3**0.5)
    assert t_half_width(np.array([1.0, np.nan, 2.0, 3.0])) == pytest.approx(4.302653 / 3**0.5)
    assert np.isnan(t_half_width(np.array([1.0, np.nan])))


@pytest.mark.parametrize("times", [1.0, 3.0])
def test_drop_tests_are_those_of_scipy_with_an_error_of_at_least_one_answer(times):
    """13 of 64 answers lost, none gained, against 0.1: a t test and a binomial one."""
    drop, n = (np.arange(64)[:, None] < 13).astype(float), 64 * times
    total, threshold = np.ones((64, 1)), np.array([0.1])
    larger, smaller = drop_tests(drop, total, threshold, times=times)
    error = np.sqrt(np.var(drop, ddof=1) / n + 1 / n**2)
    assert larger == pytest.approx(stats.t.sf((13 / 64 - 0.1) / error, n - 1), rel=1e-9)
    assert smaller == pytest.approx(stats.binom.cdf(13 * times, n, 0.1), abs=1e-9)
    gained = drop_tests(-drop, total, threshold, times=times)
    assert gained[0] > 0.99
    assert gained[1] < smaller
    assert drop_tests(0 * drop, 0 * total, threshold)[0] == 1  # no answers


def test_drop_intervals_are_losses_minus_gains():
    """12 of 40 lost and 4 gained: each end is that of an exact 97.5 % interval."""
    drop = np.array([1.0] * 12 + [-1.0] * 4 + [0.0] * 24)
    lost, gained = (stats.binomtest(count, 40).proportion_ci(0.975, method="exact") for count in (12, 4))
    found = drop_interval(drop, np.ones(40))
    assert found[0] == pytest.approx(0.2)
    assert found[1] == pytest.approx(lost.low - gained.high, abs=1e-8)
    assert found[2] == pytest.approx(lost.high - gained.low, abs=1e-8)
    assert np.isnan(drop_interval(np.where(np.arange(40) < 1, np.nan, drop), np.ones(40))[0])
