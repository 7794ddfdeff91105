"""Confidence intervals and tests, computed for many cells at once.

Distributions are those of scipy.special: importing scipy.stats takes longer than most analyses of a small model.
"""

import numpy as np
from jaxtyping import Float, Int
from scipy import special

from hooks.randomness import usable_seed

CONFIDENCE = 0.95
"""Default confidence of every interval."""
COUNTS = 2**22
"""Most counts of samples in resamples that are in memory at the same time."""
MISSED = 1e-12
"""Error probability of the interval inside a p value; it is added to the p value."""
SHARE_THAT_COUNTS = 0.2
"""A head, a part or an edge is needed if removing it costs more than this fraction of the accuracy above chance on some
outcome; a label is used if edits change more than this fraction of the answers."""
EQUAL = 1e-12
"""Losses of every input this close to a threshold are equal to it. Both are ratios of sums of a few hundred thousand
answers, with relative rounding errors below 1e-14; two that differ, do so by more than 1e-11."""


def check_level(alpha: float) -> None:
    """Raise ValueError unless a significance level is strictly between 0 and 1."""
    if not 0 < alpha < 1:
        raise ValueError(f"alpha is {alpha}; it must be strictly between 0 and 1.")


def proportion_interval(
    successes: Int[np.ndarray, "*cells"], n: int | Int[np.ndarray, "*cells"], *, confidence: float = CONFIDENCE
) -> tuple[Float[np.ndarray, "*cells"], Float[np.ndarray, "*cells"]]:
    """Exact (Clopper-Pearson) interval of a proportion.

    Args:
        successes: Counts, 0 to n.
        n: Number of independent trials, one for all counts or one per count.
        confidence: Coverage, strictly between 0 and 1; the interval's coverage is at least this for every n.

    Returns:
        Lower and upper end, as fractions.

    Raises:
        ValueError: no trials, a count outside 0 to n, or a confidence outside (0, 1).

    Source: Clopper & Pearson 1934.
    """
    successes = np.asarray(successes)
    if np.min(n) < 1 or successes.min(initial=0) < 0 or np.any(successes > n):
        raise ValueError(f"successes go from {successes.min()} to {successes.max()} of n = {n}; need 0 to n, n >= 1.")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}; it must be strictly between 0 and 1.")
    return _clopper_pearson(successes, np.asarray(n), confidence)


def share_interval(
    share: Float[np.ndarray, "*cells"], n: Float[np.ndarray, "*#cells"] | Int[np.ndarray, "*#cells"]
) -> tuple[Float[np.ndarray, "*cells"], Float[np.ndarray, "*cells"]]:
    """Exact 95 % interval of a share measured on n independent units, of which share times n need not be whole."""
    return _clopper_pearson(share * n, np.asarray(n), CONFIDENCE)


def _clopper_pearson(
    hits: np.ndarray | np.floating, n: np.ndarray, confidence: float
) -> tuple[Float[np.ndarray, "*cells"], Float[np.ndarray, "*cells"]]:
    """Ends of the exact interval; hits and trials may be fractional."""
    tail = (1 - confidence) / 2
    tiny = 1e-12  # in place of a parameter 0, where the end is 0 or 1
    # Quantiles of beta distributions, from below and from above
    low = np.where(hits <= 0, 0.0, special.betaincinv(np.maximum(hits, tiny), n - hits + 1, tail))
    high = np.where(hits >= n, 1.0, special.betainccinv(hits + 1, np.maximum(n - hits, tiny), tail))
    return low, high


def holm(p: Float[np.ndarray, "*cells"]) -> Float[np.ndarray, "*cells"]:
    """Holm-corrected p values of a family of tests (Holm 1979); they control the family-wise error rate."""
    # Step down: the smallest p times the number of tests, the next times one less, never below those before
    order = np.argsort(p, axis=None)
    steps = p.ravel()[order] * np.arange(p.size, 0, -1)
    corrected = np.empty(p.size)
    corrected[order] = np.minimum(np.maximum.accumulate(steps), 1)
    return corrected.reshape(p.shape)


def pooled_interval(
    right: Float[np.ndarray, "sample *cells"], total: Float[np.ndarray, "sample *cells"]
) -> tuple[Float[np.ndarray, "*cells"], Float[np.ndarray, "*cells"], Float[np.ndarray, "*cells"]]:
    """Accuracy pooled over samples with several answers each, with its interval.

    Answers within a sample are dependent, so the interval is computed from the effective number of independent trials
    (see `effective_trials`). With one answer per sample it is `proportion_interval`.

    Args:
        right: Correct answers in each sample.
        total: Answers scored in each sample.

    Returns:
        Accuracy, lower and upper end, as fractions; NaN in cells without answers.

    Source: Korn & Graubard 1998: Clopper-Pearson with the effective sample size.
    """
    share, effective = effective_trials(right, total)
    low, high = share_interval(share, effective)
    empty = total.sum(0) == 0
    return np.where(empty, np.nan, share), np.where(empty, np.nan, low), np.where(empty, np.nan, high)


def effective_trials(
    right: Float[np.ndarray, "sample *cells"], total: Float[np.ndarray, "sample *#cells"]
) -> tuple[Float[np.ndarray, "*cells"], Float[np.ndarray, "*cells"]]:
    """Accuracy, and the number of independent trials that would have its variance between samples.

    At zero variance it is the number of samples with answers; it is at most the number of answers.
    """
    answers = total.sum(0)
    share = right.sum(0) / np.maximum(answers, 1e-300)
    samples = (total > 0).sum(0)
    residual = right - share * total
    variance = (residual**2).sum(0) / np.maximum(answers, 1) ** 2
    spread = share * (1 - share)
    effective = np.where(variance > 0, spread / np.maximum(variance, 1e-300), samples)
    return np.asarray(share), np.asarray(np.clip(effective, 1, np.maximum(answers, 1)))


def drop_tests(
    drop: Float[np.ndarray, "sample *cells"],
    total: Float[np.ndarray, "sample *#cells"],
    threshold: Float[np.ndarray, "*#cells"],
    n: Int[np.ndarray, "*#cells"] | None = None,
    *,
    times: float = 1.0,
) -> tuple[Float[np.ndarray, "*cells"], Float[np.ndarray, "*cells"]]:
    """Test whether a drop of accuracy is larger, and whether it is smaller, than a threshold.

    Larger: a t test over samples of the drop per answer, with a standard error of at least one answer in n samples. It
    is conservative: below one half, a larger proportion has a larger variance. Smaller: a t test would not be, and is
    undefined where no answer was lost. Losses and gains are therefore counted separately; p is the probability of at
    most this number of losses if their rate were the threshold plus the rate of gains, the latter at the lower end of
    its interval, whose error probability (1e-12) is added. This is exact for samples with one answer; a sample with
    several counts as at most one trial.

    Args:
        drop: Correct answers in each sample before the intervention minus those after.
        total: Answers scored in each sample.
        threshold: One fraction per cell; broadcast.
        n: Number of samples of each cell, at least 1, if not all samples belong to it; the others have a total of 0.
        times: The p values are those of this many times the samples, all like these.

    Returns:
        p values of "the drop is at most the threshold" and of "the drop is at least the threshold".
    """
    n = np.array(len(drop)) if n is None else n
    empty = total.sum(0) == 0
    # "Larger": t test of the drop per answer
    answers = np.where(empty, 1, total.sum(0))
    drop_per_answer = drop.sum(0) / answers
    variance = ((drop - drop_per_answer * total) ** 2).sum(0) / answers**2 * n / np.maximum(1, n - 1)
    error = np.sqrt(variance / times + 1 / (n * times) ** 2)
    p_larger = special.stdtr(np.maximum(1, n * times - 1), -(drop_per_answer - threshold) / error)
    # "Smaller": at most this number of losses, at the least rate of losses that the threshold and the gains allow
    loss_rate, trials = effective_trials(np.clip(drop, 0, None), total)
    gain_rate, gain_trials = effective_trials(np.clip(-drop, 0, None), total)
    gain_trials = gain_trials * times
    least_gain_rate, _ = _clopper_pearson(gain_rate * gain_trials, gain_trials, 1 - 2 * MISSED)
    least_loss_rate = np.clip(threshold + least_gain_rate, 0, 1)
    trials = np.minimum(trials, np.maximum((total > 0).sum(0), 1)) * times
    losses = loss_rate * trials
    p_losses = special.betaincc(losses + 1, np.maximum(trials - losses, 1e-12), least_loss_rate)
    p_smaller = np.minimum(np.where(losses >= trials, 1.0, p_losses) + MISSED, 1)
    return np.where(empty, 1.0, p_larger), np.where(empty, 1.0, p_smaller)


def drop_interval(
    drop: Float[np.ndarray, "sample *cells"], total: Float[np.ndarray, "sample *#cells"]
) -> tuple[Float[np.ndarray, "*cells"], Float[np.ndarray, "*cells"], Float[np.ndarray, "*cells"]]:
    """Drop of accuracy with a conservative interval, valid even where no answer was lost.

    The interval is that of the losses minus that of the gains, each exact and with half the error probability.

    Args:
        drop: Correct answers in each sample before the intervention minus those after.
        total: Answers scored in each sample.

    Returns:
        Drop, lower and upper end; NaN in cells with drops that are not finite.
    """
    losses, loss_low, loss_high = _rate_of_positive(drop, total)
    gains, gain_low, gain_high = _rate_of_positive(-drop, total)
    missing = ~np.isfinite(drop).all(0)
    value = np.where(missing, np.nan, losses - gains)
    low = np.where(missing, np.nan, loss_low - gain_high)
    high = np.where(missing, np.nan, loss_high - gain_low)
    return value, low, high


def _rate_of_positive(
    drop: Float[np.ndarray, "sample *cells"], total: Float[np.ndarray, "sample *#cells"]
) -> tuple[Float[np.ndarray, "*cells"], Float[np.ndarray, "*cells"], Float[np.ndarray, "*cells"]]:
    """Sum of the positive values per answer, with an exact interval at half the error probability."""
    rate, trials = effective_trials(np.clip(np.nan_to_num(drop), 0, None), total)
    return rate, *_clopper_pearson(rate * trials, trials, (1 + CONFIDENCE) / 2)


def t_half_width(
    values: Float[np.ndarray, "sample *cells"], *, confidence: float = CONFIDENCE
) -> Float[np.ndarray, "*cells"]:
    """Half the width of the t interval of the mean over samples; NaN values are ignored.

    Returns:
        Half widths; NaN in cells with fewer than two samples.
    """
    n = np.isfinite(values).sum(0)
    mean = np.nansum(values, 0) / n.clip(1)
    variance = np.nansum((values - mean) ** 2, 0) / (n - 1).clip(1)
    half_width = -special.stdtrit((n - 1).clip(1), (1 - confidence) / 2) * np.sqrt(variance / n.clip(1))
    return np.where(n < 2, np.nan, half_width)


def mean_interval(
    values: Float[np.ndarray, "unit *cells"], weight: Float[np.ndarray, "unit *#cells"]
) -> tuple[Float[np.ndarray, "*cells"], Float[np.ndarray, "*cells"], Float[np.ndarray, "*cells"]]:
    """Mean of sums over independent units, and its 95 % t interval.

    Args:
        values: Sum of the values of each unit; 0 if it has none.
        weight: Number of values in each sum. With one value each it is the t interval of the mean.

    Returns:
        Mean, lower and upper end; NaN in cells without values, and ends also with one unit.

    Source: the linearised variance of a ratio of means (Cochran 1977, Sampling Techniques, Section 6.4).
    """
    total = np.broadcast_to(weight.sum(0), values.shape[1:])
    n = np.broadcast_to((weight > 0).sum(0), values.shape[1:])
    mean = values.sum(0) / np.where(total > 0, total, np.nan)
    variance = ((values - np.nan_to_num(mean) * weight) ** 2).sum(0) / np.maximum(total, 1) ** 2
    quantile = -special.stdtrit((n - 1).clip(1), (1 - CONFIDENCE) / 2)
    half_width = quantile * np.sqrt(variance * n / (n - 1).clip(1))
    half_width = np.where(n < 2, np.nan, half_width)
    return mean, mean - half_width, mean + half_width


def bootstrap_mean(
    values: Float[np.ndarray, "sample *cells"],
    *,
    seed: int,
    weight: Float[np.ndarray, "sample *leading_cells"] | None = None,
    resamples: int = 2000,
    confidence: float = CONFIDENCE,
) -> tuple[Float[np.ndarray, "*cells"], Float[np.ndarray, "*cells"], Float[np.ndarray, "*cells"]]:
    """Mean over samples with its percentile bootstrap interval.

    All cells share the resamples, so paired cells stay paired. Means of resamples are one matrix product, of
    multinomial counts with the values.

    Args:
        values: Independent samples along the first axis.
        seed: Seed of the resamples.
        weight: Number of answers summed in each value, broadcast over cells; the mean is then per answer.
        resamples: Number of resamples.
        confidence: Coverage.

    Returns:
        Mean, lower and upper end; NaN in cells whose weights are all 0.
    """
    n = len(values)
    cells = values.shape[1:]
    answers = np.ones(n) if weight is None else weight
    # Sums of values and answers in every resample, a block of resamples at a time
    generator = np.random.default_rng(usable_seed(seed))
    block = max(1, COUNTS // n)
    value_sums = []
    answer_sums = []
    for start in range(0, resamples, block):
        counts = generator.multinomial(n, np.full(n, 1 / n), size=min(block, resamples - start))
        value_sums.append(counts @ values.reshape(n, -1))
        answer_sums.append(counts @ answers.reshape(n, -1))
    sums = np.concatenate(value_sums).reshape(resamples, *cells)
    missing_axes = (1,) * (len(cells) - answers.ndim + 1)
    weights = np.concatenate(answer_sums).reshape(resamples, *missing_axes, *answers.shape[1:])
    # Means of the resamples and of the sample
    tails = [(1 - confidence) / 2, (1 + confidence) / 2]
    low, high = np.quantile(sums / np.maximum(weights, 1e-300), tails, axis=0)
    total = answers.sum(0)
    mean = values.sum(0) / np.maximum(total, 1e-300)
    scored = total > 0
    # With few resamples all of them may be on one side of the mean
    low, high = np.minimum(low, mean), np.maximum(high, mean)
    return np.where(scored, mean, np.nan), np.where(scored, low, np.nan), np.where(scored, high, np.nan)
