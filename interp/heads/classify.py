"""Classification of attention heads by their attention mass on relations, against chance and untrained models."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy import stats

from hooks.checks import checks_types
from hooks.interventions.ablation_engine import Net
from interp.core.evaluation_mode import in_evaluation_mode
from interp.core.intervals import Interval
from interp.core.progress import Count
from interp.core.randomness import derived_generator
from interp.core.results import Result
from interp.core.statistics import check_level, holm, t_half_width
from interp.core.verbs import AnyModel, prepare_model
from interp.heads.kinds import PackedRelations, kinds_of
from interp.heads.measures import Measures, measure
from interp.heads.untrained import (
    Untrained,
    UntrainedComparison,
    compare_with_untrained,
    highest_scores,
    mean_over_sequences,
    sequences_to_compare,
    untrained_models,
)
from interp.tasks.base import Batch, Task
from interp.tasks.splits import sample_split

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

MIN_SCORE = 0.3
"""A head is labelled only if the lower end of its score's interval is at least this."""
MIN_UNIFORMITY = 0.9
"""A head is called uniform only if its uniformity is at least this."""
MORE_UNIFORM = 0.1
"""Least difference from the mean of the most uniform heads of untrained models."""
SAME_SCORE = 0.02
"""Scores closer than this count as equal; the head then gets the kind with fewer related keys, the stricter one."""


@dataclass(frozen=True, kw_only=True)
class HeadPatterns(Result):
    """Score on every kind, and label, of every head."""

    former_fields: ClassVar = {"score": ("score", "low", "high", "n")}

    kinds: tuple[str, ...]
    """Names of the kinds."""
    label: tuple[tuple[str, ...], ...]
    """For each layer and head: a kind, `uniform`, or `unclassified`."""
    score: Interval
    """Per layer, head and kind: attention mass on related keys, scaled to 0 at chance and 1 if all of it is on related
    keys, with its 95 % t interval over sequences."""
    p: Float[np.ndarray, "layer head kind"]
    """Probability of a score at least as high if the keys of each query are permuted."""
    p_holm: Float[np.ndarray, "layer head kind"]
    """p corrected for all heads and kinds (Holm)."""
    untrained: Float[np.ndarray, " kind"]
    """Highest score of any head of the untrained models."""
    p_untrained: Float[np.ndarray, "layer head kind"]
    """Exact p value of the hypothesis that the model is untrained, corrected for all heads and kinds."""
    value_weighted: Float[np.ndarray, "layer head kind"]
    """Score with attention weighted by the norm of what each key writes (Kobayashi et al. 2020)."""
    uniformity: Float[np.ndarray, "layer head"]
    """1 if rows are uniform, 0 if each is on a single key."""
    entropy: Float[np.ndarray, "layer head"]
    """Mean row entropy, as a fraction of its maximum."""
    moved: Float[np.ndarray, "layer head"]
    """Mean over queries of the attention-weighted norms of what keys write, in units of the residual stream."""
    alpha: float
    """Level of the Holm correction."""
    level: float
    """Largest share of untrained models with a labelled head: alpha, or more if there were too few untrained models for
    it. Labels are then exploratory."""
    n: int
    """Sequences behind each score."""
    n_untrained: int
    """Untrained models that were compared: fewer than planned if no head could get a label any more."""

    def heads(self, label: str) -> tuple[tuple[int, int], ...]:
        """(layer, head) of every head with that label."""
        labelled = []
        for layer, row in enumerate(self.label):
            labelled += [(layer, head) for head, head_label in enumerate(row) if head_label == label]
        return tuple(labelled)

    def best_kind(self, layer: int, head: int) -> int:
        """Index of the kind of a head: that of its label, or else the kind with its highest score."""
        label = self.label[layer][head]
        return self.kinds.index(label) if label in self.kinds else int(self.score.value[layer, head].argmax())

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per head and kind."""
        n_layers, n_heads, _ = self.score.shape
        axes = {"layer": range(n_layers), "head": range(n_heads), "kind": self.kinds}
        columns = self.score.columns("score")
        for name in ("p", "p_holm", "p_untrained", "value_weighted", "uniformity", "entropy", "moved"):
            columns[name] = getattr(self, name)
        highest = np.broadcast_to(self.untrained, self.score.shape)
        return self._table(axes, "label", **columns, untrained=highest, n=self.n)

    def plot(self) -> "alt.TopLevelMixin":
        """Layer x head maps of the score, one for each kind."""
        from interp.view.charts import head_maps

        panels = {name: self.score.value[:, :, kind] for kind, name in enumerate(self.kinds)}
        accuracy = f"95 % within ±{self.score.half_width:.3f}"
        title = f"attention score on each kind, n = {self.n} sequences ({accuracy}); 0 is chance"
        return head_maps(panels, title=title, value="score")

    def __str__(self) -> str:
        lines = []
        for layer, row in enumerate(self.label):
            for head, label in enumerate(row):
                kind = self.best_kind(layer, head)
                score = self.score[layer, head, kind]
                if label == "unclassified":
                    note = f"nearest {self.kinds[kind]} {score:.2f}"
                elif label == "uniform":
                    note = f"uniformity {self.uniformity[layer, head]:.2f}"
                else:
                    note = score.text(2)
                lines.append(f"{layer}.{head:<3} {label:<14} {note}")
        lines.append(f"{self.n} sequences, Holm at {self.alpha}")
        highest = ", ".join(f"{name} {score:.2f}" for name, score in zip(self.kinds, self.untrained, strict=True))
        lines.append(f"untrained models: {self.n_untrained}, whose heads score at most: {highest}")
        if self.level > self.alpha:
            lines.append(f"labels are exploratory: up to {self.level:.0%} of untrained models have one")
        return "\n".join(lines)


@checks_types
@in_evaluation_mode
def classify_heads(
    model: AnyModel,
    task: Task,
    *,
    kinds: Sequence[str] | None = None,
    n: int = 256,
    alpha: float = 0.01,
    untrained: Untrained = None,
    seed: int = 0,
) -> HeadPatterns:
    """Score every head on every kind of attention, and label the heads that match one.

    The score of a head on a relation is its attention mass on related keys, scaled to 0 at chance (uniform over the
    visible keys) and 1 if all of it is on related keys, averaged over the queries that have related and unrelated keys,
    then over the sequences in which these are at least half of the queries with related keys. A head gets the label of
    its best kind under four conditions: its p value (permuted keys; Holm over all heads and kinds) is at most `alpha`;
    the lower end of its 95 % interval over sequences is at least 0.3; so is its score without the position that raises
    it most, if there are several; and its standardised score exceeds that of untrained models on any kind (an exact
    Monte Carlo test at level `alpha`, see `interp.heads.untrained`). Otherwise it is `uniform` if its uniformity is at
    least 0.9, exceeds the mean of that of the most uniform heads of untrained models by 0.1, and passes the same test,
    else `unclassified`.

    Args:
        model: Model to read. It is not changed.
        task: Source of sequences and relations.
        kinds: Names of registered kinds, default: all that the task has.
        n: Number of sequences, the independent units of every interval.
        alpha: Level of the Holm correction and of the comparison with untrained models, strictly between 0 and 1.
        untrained: Untrained models to compare with, or their number. Default: the number that the level needs (99; at
            most 19 of a wrapped model, and fewer above 10 million parameters), with fresh weights of the same config in
            which hard-coded heads are learned. If the model had a special initialisation (mimicking, W_Q copied into
            W_K), pass models initialised the same way.
        seed: Determines the sequences and the fresh weights.

    Raises:
        ValueError: fewer than 8 sequences, a level outside (0, 1), no untrained models, or an error of `relations_of`.

    Example:
        >>> import interp
        >>> from interp.known_answers import lego_loop
        >>> task = interp.tasks.Lego(n_vars=2)
        >>> interp.classify_heads(lego_loop(task), task, n=16, untrained=19).label[0]
        ('association', 'manipulation')

    Source: value-weighted attention: Kobayashi et al. 2020 (arXiv:2004.10102). The null permutes the visible keys of
    each query; its variance is that of sampling without replacement, its tail is normal.
    """
    model = prepare_model(model, "classify_heads", task)
    if n < 8:
        raise ValueError(f"n is {n}; at least 8 sequences are needed for an interval.")
    check_level(alpha)
    batch = sample_split(task, n, generator=derived_generator(seed, "classify"), split="test")
    names = kinds_of(task, batch, kinds)
    if not names:
        raise ValueError("this task has none of the registered kinds; register one with interp.heads.register_kind.")
    with Count("classifying heads", 2) as count:
        measures = measure(model, task, batch, names)
        count.advance()
        # Mean scores, and their p values if the keys of each query are permuted.
        mean = mean_over_sequences(measures.score)
        half_width = _half_width(measures.score)
        spread = np.sqrt(measures.null_variance.sum(0)) / np.isfinite(measures.score).sum(0).clip(1)
        p = stats.norm.sf(mean / np.maximum(spread, 1e-12))
        p_holm = holm(p)
        # Candidates for a label of each kind, and for `uniform`, are compared with untrained models.
        fits = (p_holm <= alpha) & (mean - half_width >= MIN_SCORE) & (measures.without_best >= MIN_SCORE)
        uniformity = measures.uniformity.mean(0)
        candidates = np.concatenate([fits, uniformity[..., None] >= MIN_UNIFORMITY], -1)
        comparison = _compare(
            model, task, batch, measures, candidates, names, untrained=untrained, alpha=alpha, seed=seed
        )
        count.advance()
    # Label the heads.
    passed = candidates & (comparison.p <= comparison.level)
    uniform = passed[..., -1] & (uniformity > comparison.highest[:, -1].mean() + MORE_UNIFORM)
    labels = []
    for layer, head in np.ndindex(uniform.shape):
        label = _label(names, mean[layer, head], passed[layer, head, :-1], measures.chance, bool(uniform[layer, head]))
        labels.append(label)
    n_heads = uniform.shape[1]
    label_rows = [tuple(labels[start : start + n_heads]) for start in range(0, len(labels), n_heads)]
    return HeadPatterns(
        kinds=names,
        label=tuple(label_rows),
        score=Interval(value=mean, low=mean - half_width, high=mean + half_width, n=n),
        p=p,
        p_holm=p_holm,
        untrained=comparison.highest[:, :-1].max(0),
        p_untrained=comparison.p[..., :-1],
        value_weighted=mean_over_sequences(measures.value_weighted),
        uniformity=uniformity,
        entropy=measures.entropy.mean(0),
        moved=measures.moved.mean(0),
        alpha=alpha,
        level=comparison.level,
        n=n,
        n_untrained=len(comparison.highest),
    )


def _compare(
    model: Net,
    task: Task,
    batch: Batch,
    measures: Measures,
    candidates: Bool[np.ndarray, "layer head column"],
    names: Sequence[str],
    *,
    untrained: Untrained,
    alpha: float,
    seed: int,
) -> UntrainedComparison:
    """Comparison of the candidates for a label, on every kind and then `uniform`, with untrained models."""
    n_models, models = untrained_models(untrained, model, alpha=alpha)
    # Scores on the sequences of the comparison: of every kind, then the uniformity.
    rows = sequences_to_compare(np.isfinite(measures.score[:, 0, 0]))
    compared = batch.select(torch.from_numpy(rows))
    related = PackedRelations.of(task, compared, names)
    scores = np.concatenate([measures.score, measures.uniformity[..., None]], -1)[rows]
    least = np.array([MIN_SCORE] * len(names) + [MIN_UNIFORMITY])
    return compare_with_untrained(
        mean_over_sequences(scores),
        candidates,
        least,
        highest=highest_scores(model, models, task, compared, related, seed=seed),
        n_models=n_models,
        alpha=alpha,
    )


def _half_width(values: Float[np.ndarray, "sample *cells"]) -> Float[np.ndarray, "*cells"]:
    """Half-width of the t interval of the mean; 1, the whole range, if fewer than two sequences have a value."""
    return np.nan_to_num(t_half_width(values), nan=1.0)


def _label(
    names: Sequence[str],
    score: Float[np.ndarray, " kind"],
    fits: Bool[np.ndarray, " kind"],
    chance: Float[np.ndarray, " kind"],
    uniform: bool,
) -> str:
    """Label of one head, from its score on each kind and whether that is high enough for a label."""
    if not fits.any():
        return "uniform" if uniform else "unclassified"
    # Of the kinds with nearly the highest score, the one with the fewest related keys.
    close = np.flatnonzero(fits & (score >= score[fits].max() - SAME_SCORE))
    return names[min(close.tolist(), key=lambda kind: chance[kind])]
