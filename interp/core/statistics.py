"""How sure a number is: intervals that come from sample sizes. scipy does the arithmetic."""

import numpy as np
from jaxtyping import Float, Int
from scipy import stats

CONFIDENCE = 0.95
"""Confidence of every interval in this package, unless it says otherwise."""
MISSED = 1e-12
"""What an interval inside a p value may miss; it is added to the p value."""


def check_level(alpha: float) -> None:
    """Refuse a level that no test can have.

    Raises:
        ValueError: not strictly between 0 and 1.
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha is {alpha}; it must lie strictly between 0 and 1.")


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
    return _clopper_pearson(successes, np.asarray(n), confidence)


def _clopper_pearson(
    hits: np.ndarray | np.floating, n: np.ndarray, confidence: float
) -> tuple[Float[np.ndarray, "*cells"], Float[np.ndarray, "*cells"]]:
    """Ends of the exact interval; neither the hits nor the trials need be whole numbers."""
    tail, little = (1 - confidence) / 2, 1e-12
    low = np.where(hits <= 0, 0.0, stats.beta.ppf(tail, np.maximum(hits, little), n - hits + 1))
    high = np.where(hits >= n, 1.0, stats.beta.isf(tail, hits + 1, np.maximum(n - hits, little)))
    return low, high


def holm(p: Float[np.ndarray, "*cells"]) -> Float[np.ndarray, "*cells"]:
    """p values corrected for all of them being looked at (Holm 1979): at most one false alarm in 1 / level families."""
    order = np.argsort(p, axis=None)
    steps = p.ravel()[order] * np.arange(p.size, 0, -1)
    corrected = np.empty(p.size)
    corrected[order] = np.minimum(np.maximum.accumulate(steps), 1)
    return corrected.reshape(p.shape)


def pooled_interval(
    right: Float[np.ndarray, "sample *cells"], asked: Float[np.ndarray, "sample *cells"]
) -> tuple[Float[np.ndarray, "*cells"], Float[np.ndarray, "*cells"], Float[np.ndarray, "*cells"]]:
    """Share of right answers, pooled over samples that were asked several times, with its exact interval.

    Answers within a sample depend on one another, so the trials behind the interval are not the answers but as many
    independent ones as would give the same variance between samples; where nothing varies, the samples.

    Args:
        right: Right answers of each sample.
        asked: Answers of each sample, some of them at least.

    Returns:
        Share, lower and upper end, as fractions; not a number where nobody was asked.

    Source: Korn & Graubard 1998, Clopper-Pearson with the effective sample size. With one answer per sample it
    is `proportion_interval`.
    """
    share, effective = effective_trials(right, asked)
    low, high = _clopper_pearson(share * effective, effective, CONFIDENCE)
    nobody = asked.sum(0) == 0
    return tuple(np.where(nobody, np.nan, part) for part in (share, low, high))  # pyright: ignore[reportReturnType]


def effective_trials(
    right: Float[np.ndarray, "sample *cells"], asked: Float[np.ndarray, "sample *#cells"]
) -> tuple[Float[np.ndarray, "*cells"], Float[np.ndarray, "*cells"]]:
    """Share of right answers, and as many independent trials as would give the variance that it has between samples.

    Where nothing varies, the samples that were asked; never more than the answers. See `pooled_interval`.
    """
    total = asked.sum(0)
    share = right.sum(0) / np.maximum(total, 1e-300)
    samples = (asked > 0).sum(0)
    residual = right - share * asked
    variance = (residual**2).sum(0) / np.maximum(total, 1) ** 2
    spread = share * (1 - share)
    effective = np.where(variance > 0, spread / np.maximum(variance, 1e-300), samples)
    return np.asarray(share), np.asarray(np.clip(effective, 1, np.maximum(total, 1)))


def drop_tests(
    drop: Float[np.ndarray, "sample *cells"],
    asked: Float[np.ndarray, "sample *#cells"],
    threshold: Float[np.ndarray, "*#cells"],
) -> tuple[Float[np.ndarray, "*cells"], Float[np.ndarray, "*cells"]]:
    """Is a drop of accuracy larger than a threshold, and is it smaller? Two p values, from the same samples.

    Larger: a t test of the drop per answer over samples, its standard error at least one answer in so many samples.
    A share above another varies more than it, up to a half, so this errs on the safe side. Smaller: a t test would
    not, and knows nothing where nothing was lost. Losses and gains are therefore counted apart, and p is the chance of
    so few losses if their share were the threshold plus the gains', the latter at the lower end of its interval; what
    that may miss (1e-12) is added. Exact where a sample has one answer; one with several counts as
    one trial at most.

    Args:
        drop: Right answers of each sample before, minus after.
        asked: Answers of each sample.
        threshold: Of each cell, as a fraction; broadcast.

    Returns:
        p of "the drop is at most the threshold" and p of "the drop is at least the threshold".
    """
    n, nobody = len(drop), asked.sum(0) == 0
    total = np.where(nobody, 1, asked.sum(0))
    share = drop.sum(0) / total
    variance = ((drop - share * asked) ** 2).sum(0) / total**2 * n / max(1, n - 1)
    error = np.sqrt(variance + 1 / n**2)
    larger = stats.t.sf((share - threshold) / error, max(1, n - 1))
    lost, trials = effective_trials(np.clip(drop, 0, None), asked)
    gained, trials_of_gain = effective_trials(np.clip(-drop, 0, None), asked)
    least = np.clip(threshold + _clopper_pearson(gained * trials_of_gain, trials_of_gain, 1 - 2 * MISSED)[0], 0, 1)
    trials = np.minimum(trials, np.maximum((asked > 0).sum(0), 1))
    losses = lost * trials
    few = np.where(losses >= trials, 1.0, stats.beta.sf(least, losses + 1, np.maximum(trials - losses, 1e-12)))
    return np.where(nobody, 1.0, larger), np.where(nobody, 1.0, np.minimum(few + MISSED, 1))


def drop_interval(
    drop: Float[np.ndarray, "sample *cells"], asked: Float[np.ndarray, "sample *#cells"]
) -> tuple[Float[np.ndarray, "*cells"], Float[np.ndarray, "*cells"], Float[np.ndarray, "*cells"]]:
    """Drop of accuracy with an interval that holds even where nothing was lost: exact ones of losses and of gains.

    Args:
        drop: Right answers of each sample before, minus after.
        asked: Answers of each sample.

    Returns:
        Drop, lower and upper end. Losses and gains have intervals of half the error each, so that coverage is at least
        that of every interval here; not a number where the drops are not.
    """
    ends = []
    for part in (drop, -drop):
        share, trials = effective_trials(np.clip(np.nan_to_num(part), 0, None), asked)
        ends.append((share, *_clopper_pearson(share * trials, trials, (1 + CONFIDENCE) / 2)))
    (lost, lost_low, lost_high), (gained, gained_low, gained_high) = ends
    missing = ~np.isfinite(drop).all(0)
    values = (lost - gained, lost_low - gained_high, lost_high - gained_low)
    return tuple(np.where(missing, np.nan, value) for value in values)  # pyright: ignore[reportReturnType]


def t_half_width(
    values: Float[np.ndarray, "sample *cells"], *, confidence: float = CONFIDENCE
) -> Float[np.ndarray, "*cells"]:
    """Half the width of the t interval of the mean over samples, for many cells at once.

    Args:
        values: Independent samples along the first axis; those that are not a number are left out.
        confidence: Coverage.

    Returns:
        Half widths; not a number where fewer than two samples are left.
    """
    n = np.isfinite(values).sum(0)
    mean = np.nansum(values, 0) / n.clip(1)
    variance = np.nansum((values - mean) ** 2, 0) / (n - 1).clip(1)
    half = stats.t.isf((1 - confidence) / 2, (n - 1).clip(1)) * np.sqrt(variance / n.clip(1))
    return np.where(n < 2, np.nan, half)


def bootstrap_mean(
    values: Float[np.ndarray, "sample *cells"],
    *,
    seed: int,
    weight: Float[np.ndarray, "sample *part"] | None = None,
    resamples: int = 2000,
    confidence: float = CONFIDENCE,
) -> tuple[Float[np.ndarray, "*cells"], Float[np.ndarray, "*cells"], Float[np.ndarray, "*cells"]]:
    """Mean over samples with its percentile bootstrap interval, for many cells at once.

    Every cell is resampled alike, so paired cells stay paired. One matrix product of resampling counts with the
    values takes the place of drawing each resample.

    Args:
        values: Independent samples along the first axis.
        seed: Decides the resamples.
        weight: How many answers each sample's value sums up, broadcast over cells; the mean is then per answer.
        resamples: How many.
        confidence: Coverage.

    Returns:
        Mean, lower and upper end; not a number where the weights are all 0.
    """
    n, cells = len(values), values.shape[1:]
    counts = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), size=resamples)
    sums = (counts @ values.reshape(n, -1)).reshape(resamples, *cells)
    whole = np.ones(n) if weight is None else weight
    asked = (counts @ whole.reshape(n, -1)).reshape(resamples, *whole.shape[1:])
    asked = asked.reshape(resamples, *(1,) * (len(cells) - whole.ndim + 1), *whole.shape[1:])
    low, high = np.quantile(sums / np.maximum(asked, 1e-300), [(1 - confidence) / 2, (1 + confidence) / 2], axis=0)
    total = whole.sum(0)
    mean = values.sum(0) / np.maximum(total, 1e-300)
    return tuple(np.where(total > 0, part, np.nan) for part in (mean, low, high))  # pyright: ignore[reportReturnType]
