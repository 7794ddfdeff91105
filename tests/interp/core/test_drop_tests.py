"""Losses against a threshold: exact where they can be, false alarms as rare as promised, intervals that hold."""

import numpy as np
import pytest
from scipy import stats

from interp.core.statistics import (
    CONFIDENCE,
    MISSED,
    drop_interval,
    drop_tests,
    effective_trials,
    pooled_interval,
    proportion_interval,
)

CELLS = 4000


def of_counts(n, lost, gained=0):
    """One cell of `n` samples of one answer, of which some are lost and some gained."""
    drop = np.zeros((n, 1))
    drop[:lost], drop[n - gained :] = 1, -1 if gained else 0
    return drop, np.ones((n, 1))


def single_answers(n, lost, gained, cells=CELLS, seed=0):
    drawn = np.random.default_rng(seed).random((n, cells))
    return (drawn < lost).astype(float) - (drawn > 1 - gained), np.ones((n, cells))


def clusters(n, lost, gained, *, correlation, answers=6, cells=CELLS, seed=0):
    """Several answers per sample with a given correlation between their losses; at 1 all are lost together."""
    rng = np.random.default_rng(seed)
    lose, gain, stay = (
        rng.standard_gamma(rate * (1 / correlation - 1), (n, cells)) for rate in (lost, gained, 1 - lost - gained)
    )
    asked = np.full((n, cells), answers)
    losses = rng.binomial(asked, lose / np.maximum(lose + gain + stay, 1e-300))
    gains = rng.binomial(asked - losses, gain / np.maximum(gain + stay, 1e-300))
    return (losses - gains).astype(float), asked.astype(float)


def rarely(level, cells=CELLS):
    """The share of p values below a level that sampling may give, once in a million, where it is exact."""
    return stats.binom.isf(1e-6, cells, level) / cells


def few(drop, asked, threshold):
    return drop_tests(drop, asked, np.array(threshold))[1]


def many(drop, asked, threshold):
    return drop_tests(drop, asked, np.array(threshold))[0]


# how likely are so few losses?


@pytest.mark.parametrize("threshold", [0.05, 0.1, 0.5])
@pytest.mark.parametrize("n", [20, 256])
def test_so_few_losses_have_the_binomial_tail(n, threshold):
    for lost in {0, 1, 3, n // 4, n - 1}:
        wanted = stats.binom.cdf(lost, n, threshold) + MISSED
        assert few(*of_counts(n, lost), threshold)[0] == pytest.approx(min(wanted, 1), rel=1e-9, abs=1e-15)


def test_where_all_is_lost_nothing_speaks_for_little_loss():
    assert few(*of_counts(30, 30), 0.1) == 1
    assert many(*of_counts(30, 30), 0.1) < 1e-9


@pytest.mark.parametrize(("lost", "gained"), [(10, 5), (30, 40), (3, 1)])
def test_gains_count_at_the_lower_end_of_their_interval(lost, gained):
    low, _ = proportion_interval(np.array(gained), 200, confidence=1 - 2 * MISSED)
    wanted = stats.binom.cdf(lost, 200, 0.1 + low) + MISSED
    assert few(*of_counts(200, lost, gained), 0.1)[0] == pytest.approx(float(wanted), rel=1e-9)


def test_gains_never_make_a_head_look_more_harmful():
    alone, with_gains = (few(*of_counts(200, 20, gained), 0.1)[0] for gained in (0, 30))
    assert with_gains < alone


# p values of counts


@pytest.mark.parametrize(("n", "lost", "gained"), [(100, 30, 0), (100, 30, 12), (40, 9, 3)])
def test_so_many_losses_have_the_t_test_of_the_drop(n, lost, gained):
    drop, asked = of_counts(n, lost, gained)
    values = drop[:, 0]
    error = np.hypot(stats.sem(values), 1 / n)
    wanted = stats.t.sf((values.mean() - 0.1) / error, n - 1)
    assert many(drop, asked, 0.1)[0] == pytest.approx(wanted, rel=1e-9)


def test_a_hundred_losses_of_a_hundred_are_no_certainty_beyond_reason():
    assert 0 < many(*of_counts(100, 100), 0.1)[0] < 1e-50
    assert many(*of_counts(8, 1), 0.1)[0] > 0.3


@pytest.mark.parametrize("gained", [0, 9])
def test_p_of_many_times_the_samples_is_that_of_so_many_copies(gained):
    drop, asked = of_counts(200, 36, gained)
    times = drop_tests(drop, asked, np.array(0.2), times=4.0)
    copies = drop_tests(np.tile(drop, (4, 1)), np.tile(asked, (4, 1)), np.array(0.2))
    assert times[1] == pytest.approx(copies[1], rel=1e-9)
    assert times[0] == pytest.approx(copies[0], rel=0.01)


# false alarms


@pytest.mark.parametrize("gained", [0.0, 0.2])
@pytest.mark.parametrize("threshold", [0.05, 0.1, 0.2])
@pytest.mark.parametrize("n", [64, 256])
def test_alarms_at_the_threshold_are_as_rare_as_they_are_called(n, threshold, gained):
    drop, asked = single_answers(n, threshold + gained, gained)
    for p in drop_tests(drop, asked, np.array(threshold)):
        for level in (0.05, 0.01, 0.001):
            assert (p <= level).mean() <= rarely(level)


@pytest.mark.parametrize("gained", [0.0, 0.2])
@pytest.mark.parametrize("threshold", [0.1, 0.2])
@pytest.mark.parametrize("correlation", [0.1, 0.5, 0.95])
def test_answers_that_depend_on_one_another_raise_no_more_alarms(threshold, gained, correlation):
    drop, asked = clusters(256, threshold + gained, gained, correlation=correlation, cells=2000)
    for p in drop_tests(drop, asked, np.array(threshold)):
        for level in (0.05, 0.01):
            assert (p <= level).mean() <= rarely(level, 2000)


def test_a_first_loss_never_speaks_for_harmlessness():
    asked = np.full((64, 2), 6.0)
    drop = np.zeros((64, 2))
    drop[0, 1] = 1
    nothing, one = few(drop, asked, 0.05)
    assert one >= nothing


def test_rare_losses_that_come_together_raise_no_more_alarms():
    drop, asked = clusters(64, 0.05, 0, correlation=0.9)
    assert (few(drop, asked, 0.05) <= 0.001).mean() <= rarely(0.001)


# power


def test_what_is_far_from_the_threshold_is_told():
    n = 200
    assert many(*of_counts(n, 100), 0.1)[0] < 1e-12
    assert few(*of_counts(n, 100), 0.1)[0] > 0.999
    assert few(*of_counts(n, 0), 0.1)[0] < 1e-6
    assert many(*of_counts(n, 0), 0.1)[0] > 0.999
    drop, asked = clusters(n, 0.4, 0.0, correlation=0.5, cells=50)
    assert many(drop, asked, 0.1).max() < 1e-4
    drop, asked = clusters(n, 0.005, 0.0, correlation=0.1, cells=50)
    assert few(drop, asked, 0.2).max() < 1e-4


@pytest.mark.parametrize("sample", [single_answers, lambda *rates: clusters(*rates, correlation=0.5)])
def test_p_is_monotone_in_the_threshold(sample):
    drop, asked = sample(64, 0.2, 0.05)
    thresholds = np.linspace(0.01, 0.9, 12)
    rows = [drop_tests(drop[:, :40], asked[:, :40], np.array(one)) for one in thresholds]
    larger, smaller = (np.stack([row[part] for row in rows]) for part in (0, 1))
    assert (np.diff(larger, axis=0) >= -1e-12).all()
    assert (np.diff(smaller, axis=0) <= 1e-12).all()


def test_every_cell_has_its_own_threshold():
    drop, asked = single_answers(100, 0.2, 0.0, cells=3)
    together = drop_tests(drop, asked, np.array([0.05, 0.2, 0.5]))
    for cell, threshold in enumerate((0.05, 0.2, 0.5)):
        alone = drop_tests(drop[:, [cell]], asked[:, [cell]], np.array(threshold))
        assert [part[cell] for part in together] == pytest.approx([part[0] for part in alone], rel=1e-9)


def test_nothing_asked_nothing_known():
    nobody = np.zeros((50, 2))
    assert all((p == 1).all() for p in drop_tests(nobody, nobody, np.array(0.1)))


def test_only_samples_that_were_asked_count():
    asked = np.zeros((50, 2))
    asked[:3] = 1
    larger, smaller = drop_tests(np.zeros((50, 2)), asked, np.array(0.1))
    assert smaller == pytest.approx(0.9**3 + MISSED)
    assert (larger > 0.5).all()


# intervals


@pytest.mark.parametrize("gained", [0.0, 0.2])
@pytest.mark.parametrize("drop", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("correlation", [None, 0.5])
def test_intervals_hold_the_drop(drop, gained, correlation):
    sizes = (100, drop + gained, gained)
    drops, asked = (
        single_answers(*sizes) if correlation is None else clusters(*sizes, correlation=correlation, cells=2000)
    )
    shown, low, high = drop_interval(drops, asked)
    assert np.allclose(shown, drops.sum(0) / asked.sum(0))
    assert ((low <= drop) & (drop <= high)).mean() >= CONFIDENCE
    assert ((low <= shown) & (shown <= high)).all()
    assert (high - low).mean() < 0.6


@pytest.mark.parametrize("drop", [0.0, 0.005, 0.01, 0.05])
@pytest.mark.parametrize("n", [50, 200])
def test_intervals_hold_small_drops(n, drop):
    """One answer a sequence and no gains: where few losses or none are seen, the interval still holds the rate."""
    drops, asked = single_answers(n, drop, 0.0, cells=2000)
    _, low, high = drop_interval(drops, asked)
    assert ((low <= drop) & (drop <= high)).mean() >= CONFIDENCE
    assert (high - low).mean() < 2 / n**0.5


def test_an_interval_is_wider_than_zero_where_nothing_was_lost():
    _, low, high = drop_interval(*of_counts(100, 0))
    end = 1 - (1 - CONFIDENCE) ** 0.01 * 0.25**0.01
    assert -low[0] == high[0] == pytest.approx(end, rel=1e-9)
    assert 0.03 < high[0] < 0.05


def test_turning_the_sign_turns_the_interval():
    drop, asked = single_answers(60, 0.3, 0.1, cells=20)
    shown, low, high = drop_interval(drop, asked)
    turned = drop_interval(-drop, asked)
    assert np.allclose(turned, (-shown, -high, -low))


def test_what_is_not_a_number_stays_so():
    drop, asked = single_answers(40, 0.3, 0.1, cells=4)
    drop[:, 2] = np.nan
    for part, whole in zip(drop_interval(drop, asked), drop_interval(np.nan_to_num(drop), asked), strict=True):
        assert np.isnan(part).tolist() == [False, False, True, False]
        assert (part[[0, 1, 3]] == whole[[0, 1, 3]]).all()


# trials


def test_trials_are_the_samples_where_each_has_one_answer():
    right, asked = of_counts(80, 30)
    share, trials = effective_trials(right, asked)
    assert (share[0], trials[0]) == (pytest.approx(30 / 80), pytest.approx(80))


def test_effective_trials_of_equal_and_of_independent_answers():
    correlation = np.repeat([[6.0], [0.0]], 50, 0)
    _, trials = effective_trials(correlation, np.full((100, 1), 6.0))
    assert trials[0] == pytest.approx(100)
    apart, asked = clusters(500, 0.3, 0.0, correlation=1e-6, cells=20)
    assert effective_trials(apart, asked)[1].mean() == pytest.approx(3000, rel=0.05)


@pytest.mark.parametrize("correlation", [0.1, 0.9])
def test_trials_are_those_behind_the_pooled_interval(correlation):
    right, asked = clusters(60, 0.3, 0.0, correlation=correlation, cells=10)
    share, trials = effective_trials(right, asked)
    pooled, low, high = pooled_interval(right, asked)
    assert np.allclose(pooled, share)
    assert np.allclose(low, stats.beta.ppf(0.025, share * trials, trials - share * trials + 1))
    assert np.allclose(high, stats.beta.isf(0.025, share * trials + 1, trials - share * trials))


def test_samples_that_do_not_belong_to_a_cell_do_not_count():
    """Cells of 40, 25 and 3 of 40 samples: the p values of the smaller samples alone."""
    drop, total = single_answers(40, 0.4, 0.1, cells=3)
    sizes = np.array([40, 25, 3])
    inside = np.arange(40)[:, None] < sizes
    mixed = drop_tests(drop * inside, total * inside, np.array(0.2), sizes)
    for cell, n in enumerate(sizes):
        alone = drop_tests(drop[:n, [cell]], total[:n, [cell]], np.array(0.2))
        assert [p[cell] for p in mixed] == pytest.approx([p[0] for p in alone], rel=1e-12)
    assert all(
        np.array_equal(*both)
        for both in zip(
            drop_tests(drop, total, np.array(0.2)), drop_tests(drop, total, np.array(0.2), np.full(3, 40)), strict=True
        )
    )
