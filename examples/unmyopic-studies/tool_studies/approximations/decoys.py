"""Heads with a readable pattern that are not needed, found by a bar that best separates needed from idle heads."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from case_studies.frame.evidence import Evidence
from case_studies.frame.judge import Readings
from case_studies.recipes.intervals import as_interval, interval_columns
from interp.core.intervals import Interval
from tool_studies.approximations.estimates import MASS
from tool_studies.approximations.scores import DECOY, ModelScores, known_scores

BEST, UNUSED = "best", "unused found"
RESAMPLES = 2000
"""Bootstrap resamples of the models."""
TAILS = (0.025, 0.975)
"""Quantiles of the resamples that are the ends of a 95 % interval."""
PERCENTILES = (80, 90, 95, 99)
"""Percentiles of the idle heads that are shown as other bars."""


@dataclass(frozen=True, kw_only=True)
class HeadScores:
    """The heads of all models, in descending order of their score."""

    share: Float[np.ndarray, " head"]
    """Score of the head as a share of the largest of its model."""
    model: Int[np.ndarray, " head"]
    """Index of its model."""
    needed: Bool[np.ndarray, " head"]
    idle: Bool[np.ndarray, " head"]
    decoy: Bool[np.ndarray, " head"]
    """Whether its pattern is readable, and it is not needed."""
    n_models: int

    @classmethod
    def of_models(cls, models: Sequence[ModelScores], method: str) -> "HeadScores":
        """The heads of some models by the scores of one approximation."""
        share = np.concatenate([model.shares[method] for model in models])
        columns = {
            "model": np.concatenate([np.full(len(scores.needed), index) for index, scores in enumerate(models)]),
            "needed": np.concatenate([model.needed & model.decided for model in models]),
            "idle": np.concatenate([model.idle for model in models]),
            "decoy": np.concatenate([model.causes[DECOY] for model in models]),
        }
        order = np.argsort(-share, kind="stable")
        sorted_columns = {name: column[order] for name, column in columns.items()}
        return cls(share=share[order], n_models=len(models), **sorted_columns)

    @cached_property
    def last_of_ties(self) -> Int[np.ndarray, " bar"]:
        """Index of the last head of each group with the same score: a bar is below a whole group."""
        return np.append(np.flatnonzero(np.diff(self.share) != 0), len(self.share) - 1)

    def found_at(
        self, heads: Bool[np.ndarray, " head"], weight: Float[np.ndarray, " model"]
    ) -> Float[np.ndarray, " bar"]:
        """Share of some heads at or above each bar.

        Args:
            heads: The heads that the share is of.
            weight: Weight of each model.
        """
        counts = np.cumsum(heads * weight[self.model])
        return counts[self.last_of_ties] / max(counts[-1], 1e-300)

    def best_bar(self, weight: Float[np.ndarray, " model"]) -> int:
        """Index of the bar that best separates needed from idle heads; the highest if several do."""
        separation = self.found_at(self.needed, weight) - self.found_at(self.idle, weight)
        return int(np.argmax(separation))

    def decoys_found(self, weight: Float[np.ndarray, " model"]) -> float:
        """Share of the decoys that are found at the best bar."""
        return float(self.found_at(self.decoy, weight)[self.best_bar(weight)])

    def bar(self) -> float:
        """The lowest score that is found."""
        return float(self.share[self.last_of_ties[self.best_bar(np.ones(self.n_models))]])


def decoy_share(heads: HeadScores, *, seed: int) -> Interval:
    """Share of the decoys that are found at the best bar.

    Its bootstrap interval resamples the models, and chooses the bar again in each resample. n is the number of models
    with decoys; 0 [0, 1] without.
    """
    n = len(np.unique(heads.model[heads.decoy]))
    if not n:
        return as_interval(0.0, 0.0, 1.0, 0)
    # Resamples in which a model counts as often as it is drawn; one without decoys says nothing
    generator = np.random.default_rng(seed)
    even = np.full(heads.n_models, 1 / heads.n_models)
    weights = generator.multinomial(heads.n_models, even, size=RESAMPLES).astype(float)
    has_decoys = weights @ np.bincount(heads.model, weights=heads.decoy, minlength=heads.n_models) > 0
    shares = [heads.decoys_found(weight) for weight in weights[has_decoys]]
    value = heads.decoys_found(np.ones(heads.n_models))
    low, high = np.quantile(shares, TAILS)
    # The share can change by one head
    step = 1 / int(heads.decoy.sum())
    return as_interval(value, max(0.0, min(low, value - step)), min(1.0, max(high, value + step)), n)


def measure_decoys(evidence: Evidence) -> Readings:
    """Share of the unused readable heads of the known answers that attention mass finds, one row a bar."""
    heads = HeadScores.of_models(known_scores(evidence.size, evidence.seed), MASS)
    even = np.ones(heads.n_models)
    best = heads.best_bar(even)
    # The best bar, which is judged, and those that a share of the idle heads do not exceed
    kinds = {"needed found": heads.needed, "idle found": heads.idle, UNUSED: heads.decoy}
    of_best = {name: float(heads.found_at(kind, even)[best]) for name, kind in kinds.items()}
    interval = decoy_share(heads, seed=evidence.seed)
    judged = {**of_best, **interval_columns(interval, UNUSED), "models": interval.n}
    rows = [{"bar": BEST, "share of the largest score": heads.bar(), **judged}]
    for percentile in PERCENTILES:
        bar = float(np.percentile(heads.share[heads.idle], percentile)) if heads.idle.any() else 0.0
        shares = {name: float((heads.share[kind] > bar).mean()) if kind.any() else 0.0 for name, kind in kinds.items()}
        rows.append({"bar": f"{percentile} % of the idle heads", "share of the largest score": bar, **shares})
    return Readings(
        frame=pd.DataFrame(rows),
        title="Heads found by attention mass, by bar",
        numbers={
            "heads": int(heads.decoy.sum()),
            "bar": heads.bar(),
            "share of needed heads found": of_best["needed found"],
            "share of idle heads found": of_best["idle found"],
        },
        note="A head is found if its attention mass, as a share of the largest of its model, is at or above the bar.",
    )
