"""How well scores order the heads of each model: rank correlation, AUROC, and heads missed or found by cause."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from scipy import stats

from case_studies.recipes.intervals import as_interval, bootstrap_interval, clipped
from interp.core.intervals import Interval
from interp.core.statistics import bootstrap_mean, pooled_interval
from tool_studies.approximations.scores import EXACT, FOUND_CAUSES, ModelScores

FEWEST = 3
"""Smallest number of heads of a model whose order is judged."""
PERCENTILE = 95.0
"""A head is found if its score, as a share of its model's largest, is above this percentile of the idle heads."""
RESOLUTION = 0.01
"""Distance of rank correlations that counts as a difference where all models have the same."""


def rank_correlations(models: Sequence[ModelScores], method: str) -> Float[np.ndarray, " model"]:
    """Spearman's correlation of a score with the exact effect, of each model with three heads and different effects.

    It is 0 where all heads of a model have the same score.
    """
    correlations = []
    for model in models:
        score, effect = model.scores[method], model.scores[EXACT]
        if len(effect) >= FEWEST and np.ptp(effect):
            correlations.append(_spearman(score, effect) if np.ptp(score) else 0.0)
    return np.array(correlations)


def _spearman(x: np.ndarray, y: np.ndarray) -> float:
    return float(np.corrcoef(stats.rankdata(x), stats.rankdata(y))[0, 1])


def mean_rank_correlation(models: Sequence[ModelScores], method: str, *, seed: int) -> Interval:
    """Mean of `rank_correlations` with its bootstrap interval over models; 0 [-1, 1] without models."""
    correlations = rank_correlations(models, method)
    if not len(correlations):
        return as_interval(0.0, -1.0, 1.0, 0)
    interval = bootstrap_interval(correlations, seed=seed, resolution=RESOLUTION)
    return clipped(interval, -1.0, 1.0)


def pairs_in_order(
    models: Sequence[ModelScores], method: str
) -> tuple[Float[np.ndarray, " model"], Float[np.ndarray, " model"]]:
    """In each model, the pairs of a needed and another head in which the needed one has the higher score; all pairs.

    A tie counts one half. Heads of which it is not known whether they are needed are in no pair.
    """
    right, total = [], []
    for model in models:
        score = model.scores[method]
        needed, not_needed = score[model.needed & model.decided], score[~model.needed & model.decided]
        difference = needed[:, None] - not_needed[None]
        right.append(float((difference > 0).sum() + (difference == 0).sum() / 2))
        total.append(float(difference.size))
    return np.array(right), np.array(total)


def auroc(models: Sequence[ModelScores], method: str) -> Interval:
    """Chance that a needed head has a higher score than another head of its model, over all such pairs.

    The interval takes models as independent. n is the number of models with both; 0.5 [0, 1] without any.
    """
    right, total = pairs_in_order(models, method)
    n = int((total > 0).sum())
    if not n:
        return as_interval(0.5, 0.0, 1.0, 0)
    value, low, high = pooled_interval(right, total)
    return as_interval(float(value), float(low), float(high), n)


def auroc_difference(models: Sequence[ModelScores], a: str, b: str, *, seed: int) -> Interval:
    """AUROC of one score minus that of another on the same pairs, with a bootstrap interval over models."""
    of_a, total = pairs_in_order(models, a)
    of_b, _ = pairs_in_order(models, b)
    return _ratio(of_a - of_b, total, seed=seed)


def bar(models: Sequence[ModelScores], method: str) -> float:
    """Share of the largest score of a model above which a head is found, from the idle heads of these models."""
    idle = [share for model in models for share in model.shares[method][model.idle]]
    return float(np.percentile(idle, PERCENTILE)) if idle else 0.0


def wrong_heads(
    models: Sequence[ModelScores], method: str, cause: str
) -> tuple[Float[np.ndarray, " model"], Float[np.ndarray, " model"]]:
    """In each model, the heads that a cause concerns and on which a score is wrong; all that the cause concerns.

    Wrong is a needed head that is not found, or for `FOUND_CAUSES` one that is not needed and is found.
    """
    least = bar(models, method)
    # Needed heads that are not found, or for the other causes heads that are found
    hits = [model.shares[method] > least for model in models]
    concerned = [model.causes.get(cause, np.zeros(len(model.needed), dtype=bool)) for model in models]
    wrong = [mask & (hit == (cause in FOUND_CAUSES)) for hit, mask in zip(hits, concerned, strict=True)]
    n_wrong = np.array([mask.sum() for mask in wrong], dtype=float)
    n_concerned = np.array([mask.sum() for mask in concerned], dtype=float)
    return n_wrong, n_concerned


def wrong_share(models: Sequence[ModelScores], method: str, cause: str) -> Interval:
    """Share of the heads that a cause concerns on which a score is wrong.

    The interval takes models, not heads, as independent. n is the number of models with such heads; 0 [0, 1] without.
    """
    wrong, concerned = wrong_heads(models, method, cause)
    n = int((concerned > 0).sum())
    if not n:
        return as_interval(0.0, 0.0, 1.0, 0)
    value, low, high = pooled_interval(wrong, concerned)
    return as_interval(float(value), float(low), float(high), n)


def n_concerned(models: Sequence[ModelScores], cause: str) -> int:
    """Number of heads that a cause concerns."""
    return sum(int(model.causes[cause].sum()) for model in models if cause in model.causes)


def wrong_difference(models: Sequence[ModelScores], a: str, b: str, cause: str, *, seed: int) -> Interval:
    """Share on which one score is wrong minus that of another, with a bootstrap interval over models."""
    of_a, total = wrong_heads(models, a, cause)
    of_b, _ = wrong_heads(models, b, cause)
    return _ratio(of_a - of_b, total, seed=seed)


def _ratio(values: np.ndarray, weight: np.ndarray, *, seed: int) -> Interval:
    """Ratio of sums over models with a bootstrap interval, at least one unit of weight wide on either side."""
    weighted = weight > 0
    if not weighted.any():
        return as_interval(0.0, -1.0, 1.0, 0)
    value, low, high = (float(end) for end in bootstrap_mean(values[weighted], seed=seed, weight=weight[weighted]))
    least = 1 / float(weight.sum())
    interval = as_interval(value, min(low, value - least), max(high, value + least), int(weighted.sum()))
    return clipped(interval, -1.0, 1.0)
