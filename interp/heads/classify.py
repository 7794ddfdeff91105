"""Classification of attention heads by their attention mass on relations, against chance and untrained models."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from scipy import special

from hooks.checks import check_names, shown
from hooks.interventions.clean_pass import Net
from hooks.state import restores_state
from hooks.typed import COUNT, DISTINCT, MAY_BE_MISSING, ROUNDING, SHARE, SIZE, Axes, checks_types
from interp.core.consistency import check_known, check_that
from interp.core.inputs import all_inputs_text, inputs_or_sample
from interp.core.intervals import Interval
from interp.core.progress import Count
from interp.core.randomness import derived_generator
from interp.core.results import Result
from interp.core.statistics import check_level, holm, t_half_width
from interp.core.verbs import HEAD_INPUTS, AnyModel, Needs, prepare_model
from interp.heads.kinds import PackedRelations, kinds_of, kinds_of_task, last_kinds, yielding_kinds
from interp.heads.measures import Measures, measure
from interp.heads.queries import Queries
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
from interp.tasks.splits import ALL, EveryInput, check_sample_size

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

MIN_SCORE = 0.3
"""A head is labelled only if the lower end of its score's interval is at least this."""
MIN_SCORE_OF_FEW = 0.5
"""The same where few queries are scored: at the scored positions alone, and in layers of which few queries are read.
There a head that attends by the kind of its input may score 0.4 in the mean by coincidence, so the label must describe
most of what the head attends to."""
FEW = 0.5
"""The queries of a layer that are read are few if they are less than this share of the real ones: the label then is
about the smaller part of the head's rows."""
MAX_STRUCTURE_ELSEWHERE = 0.5
"""A head is labelled at the scored positions alone only if at most this share of its attention in the other rows that
are read is neither that of a uniform row nor on the first key: else these rows show another pattern, which is read."""
MIN_UNIFORMITY = 0.9
"""A head is called uniform only if its uniformity is at least this."""
MORE_UNIFORM = 0.1
"""Least difference from the mean of the most uniform heads of untrained models."""
SAME_SCORE = 0.02
"""Scores closer than this count as equal; the head then gets the kind with fewer related keys, the stricter one."""


@dataclass(frozen=True, kw_only=True)
class HeadPatterns(Result):
    """Score on every kind, and label, of every head."""

    kinds: Annotated[tuple[str, ...], Axes("kind"), DISTINCT]
    """Names of the kinds."""
    label: Annotated[tuple[tuple[str, ...], ...], Axes("layer head")]
    """For each layer and head: a kind, `uniform`, or `unclassified`."""
    why_not: Annotated[tuple[tuple[str, ...], ...], Axes("layer head")]
    """For each layer and head without a label: the condition that fails for its nearest kind, with the numbers; else
    empty."""
    queries: Annotated[tuple[tuple[str, ...], ...], Axes("layer head")]
    """For each layer and head: the queries at which it is scored. `read`: those whose output can reach a scored
    position; `scored`: the scored positions, of a head that fits a kind only there; or `all` real ones."""
    read_share: Annotated[Float[np.ndarray, " layer"], SHARE]
    """Share of the real queries that are read, or 1."""
    score: Annotated[Interval, Axes("layer head kind"), MAY_BE_MISSING]
    """Per layer, head and kind: attention mass on related keys, scaled to 0 at chance and 1 if all of it is on related
    keys, with its 95 % t interval over sequences."""
    p: Annotated[Float[np.ndarray, "layer head kind"], SHARE, MAY_BE_MISSING]
    """Probability of a score at least as high if the keys of each query are permuted."""
    p_holm: Annotated[Float[np.ndarray, "layer head kind"], SHARE, MAY_BE_MISSING]
    """p corrected for all heads and kinds (Holm)."""
    untrained: Annotated[Float[np.ndarray, " kind"], MAY_BE_MISSING]
    """Highest score of any head of the untrained models."""
    p_untrained: Annotated[Float[np.ndarray, "layer head kind"], SHARE, MAY_BE_MISSING]
    """Exact p value of the hypothesis that the model is untrained, corrected for all heads and kinds, or that of the
    comparison with untrained models on this kind alone, corrected for all heads, if it is larger."""
    value_weighted: Annotated[Float[np.ndarray, "layer head kind"], MAY_BE_MISSING]
    """Score with attention weighted by the norm of what each key writes (Kobayashi et al. 2020)."""
    uniformity: Annotated[Float[np.ndarray, "layer head"], MAY_BE_MISSING]
    """1 if rows are uniform, 0 if each is on a single key."""
    entropy: Annotated[Float[np.ndarray, "layer head"], MAY_BE_MISSING]
    """Mean row entropy, as a fraction of its maximum."""
    moved: Annotated[Float[np.ndarray, "layer head"], SIZE, MAY_BE_MISSING]
    """Mean over queries of the attention-weighted norms of what keys write, in units of the residual stream."""
    alpha: Annotated[float, SHARE]
    """Level of the Holm correction."""
    level: Annotated[float, SHARE]
    """Largest share of untrained models with a labelled head: alpha, or more if there were too few untrained models for
    it. Labels are then exploratory."""
    n: Annotated[int, COUNT]
    """Sequences behind each score."""
    n_untrained: Annotated[int, COUNT]
    """Untrained models that were compared: fewer than planned if no head could get a label any more."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_that(not (self.p_holm < self.p - ROUNDING).any(), "p_holm is below p, which it corrects.")
        check_that(self.level >= self.alpha - ROUNDING, f"level is {self.level:g}, below alpha, {self.alpha:g}.")
        for layer, head in np.ndindex(self.score.shape[:2]):
            label, kind, name = self.label[layer][head], self.best_kind(layer, head), f"label of head {layer}.{head}"
            check_known(name, [label], (*self.kinds, "uniform", "unclassified"), "kinds and no kind")
            queries = f"queries of head {layer}.{head}"
            check_known(queries, [self.queries[layer][head]], ("read", "scored", "all"), "a score")
            reason = self.why_not[layer][head]
            text = f"{name} is {shown(label)}, but why_not is {shown(reason)}."
            check_that(label == "unclassified" or not reason, text)
            p_holm, p_untrained = self.p_holm[layer, head, kind], self.p_untrained[layer, head, kind]
            is_shown = p_holm <= self.alpha + ROUNDING and p_untrained <= self.level + ROUNDING
            text = f"{name} is {shown(label)}, but p_holm is {p_holm:g} and p_untrained {p_untrained:g}."
            check_that(label not in self.kinds or is_shown, text)

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

    def comparison_text(self) -> str:
        """The comparison with untrained models in words: their number, and the level of a label if any is possible."""
        models = "1 untrained model was" if self.n_untrained == 1 else f"{self.n_untrained} untrained models were"
        # With so few models no label has this level: the comparison ended early
        if (1 + self.n_untrained) * self.level < 1 - 1e-9:
            return f"{models} compared, after which no head could pass any more"
        return f"{models} compared, and at most {self.level:.0%} of untrained models have a head that passes"

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per head and kind."""
        n_layers, n_heads, _ = self.score.shape
        axes = {"layer": range(n_layers), "head": range(n_heads), "kind": self.kinds}
        columns = self.score.columns("score")
        for name in ("p", "p_holm", "p_untrained", "value_weighted", "uniformity", "entropy", "moved"):
            columns[name] = getattr(self, name)
        highest = np.broadcast_to(self.untrained, self.score.shape)
        return self._table(axes, "label", "why_not", "queries", **columns, untrained=highest, n=self.n)

    def plot(self) -> "alt.TopLevelMixin":
        """Layer x head maps of the score, one for each kind."""
        from interp.view.charts import head_maps

        panels = {name: self.score.value[:, :, kind] for kind, name in enumerate(self.kinds)}
        accuracy = "exact" if self.score.exact else f"95 % within ±{self.score.half_width:.3f}"
        title = f"attention score on each kind, n = {self.n} sequences ({accuracy}); 0 is chance"
        return head_maps(panels, title=title, value="score")

    def __str__(self) -> str:
        lines = []
        for layer, row in enumerate(self.label):
            for head, label in enumerate(row):
                kind = self.best_kind(layer, head)
                score = self.score[layer, head, kind]
                if label == "unclassified":
                    note = self.why_not[layer][head] or f"nearest {self.kinds[kind]} {score:.2f}"
                elif label == "uniform":
                    note = f"uniformity {self.uniformity[layer, head]:.2f}"
                else:
                    note = score.text(2)
                    if self.queries[layer][head] == "scored":
                        note += " at the scored positions"
                lines.append(f"{layer}.{head:<3} {label:<14} {note}")
        sequences = all_inputs_text(self.n) if self.score.exact else f"{self.n} sequences"
        lines.append(f"{sequences}, Holm at {self.alpha}")
        if (self.read_share < 1).any():
            shares = ", ".join(f"{share:.0%}" for share in self.read_share)
            lines.append(f"queries that are read, by layer: {shares}")
        highest = ", ".join(f"{name} {score:.2f}" for name, score in zip(self.kinds, self.untrained, strict=True))
        lines.append(f"{self.comparison_text()}; their heads score at most: {highest}")
        if self.level > self.alpha and any(label != "unclassified" for row in self.label for label in row):
            lines.append(f"labels are exploratory: up to {self.level:.0%} of untrained models have one")
        return "\n".join(lines)


NEEDS = Needs("classify_heads", reads=["hook_resid_pre", *HEAD_INPUTS], untrained=True)


@checks_types
@restores_state
def classify_heads(
    model: AnyModel,
    task: Task,
    *,
    kinds: Sequence[str] | None = None,
    queries: Queries = "read",
    n: int | EveryInput = 256,
    alpha: float = 0.01,
    untrained: Untrained = None,
    seed: int = 0,
) -> HeadPatterns:
    """Score every head on every kind of attention, and label the heads that match one.

    The score of a head on a relation is its attention mass on related keys, scaled to 0 at chance (uniform over the
    visible keys) and 1 if all of it is on related keys, averaged over the queries that are read and have related and
    unrelated keys, then over the sequences in which these are at least half of the read queries with related keys. A
    query is read if it is a scored position, or if a head of the next layer attends to it from a read query with at
    least its share under uniform attention; heads that write nothing do not count.

    A head gets the label of its best kind under four conditions: its p value (permuted keys; Holm over all heads and
    kinds) is at most `alpha`; the lower end of its 95 % interval over sequences is at least 0.3, or 0.5 in a layer of
    which less than half of the real queries are read; so is its score without the position that raises it most, if
    there are several; some head of the model has a standardised score that exceeds those of untrained models on any
    kind, and this head exceeds them on its kind (exact Monte Carlo tests at level `alpha`, see
    `interp.heads.untrained`).

    A head that meets them for no kind is scored at the scored positions alone. There the least score is 0.5, and a
    fifth condition holds: of its attention in the other rows that are read, at least half says nothing, since it is
    that of a uniform row or on the first key.

    Otherwise it is `uniform` if its uniformity is at least 0.9, exceeds the mean of that of the most uniform heads of
    untrained models by 0.1, and passes the same test, else `unclassified`; `why_not` then has the condition that
    failed.

    Args:
        model: Model to read. It is not changed.
        task: Source of sequences and relations.
        kinds: Names of kinds, default: all that the task has.
        queries: `read`, or `all` that are no padding.
        n: Number of sequences, the independent units of every interval. "all": every input of the test split once, so
            that scores are exact; p values are about permuted keys and untrained models, not about a sample.
        alpha: Level of the Holm correction and of the comparison with untrained models, strictly between 0 and 1.
        untrained: Untrained models to compare with, or their number. Default: the number that the level needs (99; at
            most 19 of a wrapped model, and fewer above 10 million parameters), with fresh weights of the same config in
            which hard-coded heads are learned. If the model had a special initialisation (mimicking, W_Q copied into
            W_K), pass models initialised the same way.
        seed: Determines the sequences and the fresh weights.

    Raises:
        ValueError: fewer than 8 sequences, a level outside (0, 1), an error of `relations_of`; no untrained models, or
            ones of another architecture or with the model's weights.

    Example:
        >>> import interp
        >>> from interp.known_answers import lego_loop
        >>> task = interp.tasks.Lego(n_vars=2)
        >>> interp.classify_heads(lego_loop(task), task, n=16, untrained=19).label[0]
        ('association', 'manipulation')

    Source: value-weighted attention: Kobayashi et al. 2020 (arXiv:2004.10102). The null permutes the visible keys of
    each query; its variance is that of sampling without replacement, its tail is normal.
    """
    model = prepare_model(model, NEEDS, task)
    check_sample_size("n", n)
    if n != ALL and n < 8:
        raise ValueError(f"n is {n}; at least 8 sequences are needed for an interval.")
    check_level(alpha)
    check_names("kinds", kinds)
    n_models, models = untrained_models(untrained, model, task, NEEDS, alpha=alpha)
    batch = inputs_or_sample(task, n, generator=derived_generator(seed, "classify"))
    names = kinds_of(task, batch, kinds)
    if not names:
        raise ValueError("this task has none of the registered kinds; register one with interp.heads.register_kind.")
    with Count("classifying heads", 2) as count:
        measures = measure(model, task, batch, names, queries=queries)
        count.advance()
        # Mean scores, and their p values if the keys of each query are permuted.
        mean = mean_over_sequences(measures.score)
        half_width = np.zeros_like(mean) if n == ALL else _half_width(measures.score)
        spread = np.sqrt(measures.null_variance.sum(0)) / np.isfinite(measures.score).sum(0).clip(1)
        p = special.ndtr(-mean / np.maximum(spread, 1e-12))
        p_holm = holm(p)
        # Candidates for a label of each kind, and for `uniform`, are compared with untrained models.
        low = mean - half_width
        least = _least_scores(measures, len(names))
        fits = (p_holm <= alpha) & (low >= least[:, None]) & (measures.without_best >= least[:, None])
        # Later columns are of the scored positions alone, which describe a head only if its other rows say nothing.
        structure = measures.structure_elsewhere.mean(0)
        fits_alone = fits[..., len(names) :] & ~fits[..., : len(names)].any(-1, keepdims=True)
        fits[..., len(names) :] &= (structure <= MAX_STRUCTURE_ELSEWHERE)[..., None]
        uniformity = measures.uniformity.mean(0)
        candidates = np.concatenate([fits, uniformity[..., None] >= MIN_UNIFORMITY], -1)
        comparison = _compare(
            model, task, batch, measures, candidates, names, models=models, n_models=n_models, alpha=alpha, seed=seed
        )
        count.advance()
    # Label the heads; each is then described at the queries where its label fits.
    passed = candidates & (comparison.p <= comparison.level)
    uniform = passed[..., -1] & (uniformity > comparison.highest[:, -1].mean() + MORE_UNIFORM)
    precedence = _precedence(names, measures.chance, kinds_of_task(task, batch.select(slice(1))))
    column = np.zeros(uniform.shape, dtype=int)
    anywhere = mean_over_sequences(measures.score_anywhere)
    for place in np.ndindex(uniform.shape):
        column[place] = _column(mean[place], passed[place][:-1], anywhere[place], precedence)
    is_labelled = column >= 0
    query_set = np.where(is_labelled, column, 0) // len(names)

    def chosen(values: Shaped[np.ndarray, "layer head column"]) -> Shaped[np.ndarray, "layer head kind"]:
        by_set = values.reshape(*values.shape[:2], -1, len(names))
        return np.take_along_axis(by_set, query_set[..., None, None], 2)[:, :, 0]

    described = _Conditions(
        names=names,
        n_sequences=chosen(np.isfinite(measures.score).sum(0)),
        score=chosen(mean),
        low=chosen(mean - half_width),
        p_holm=chosen(p_holm),
        without_best=chosen(measures.without_best),
        p_untrained=chosen(comparison.p[..., :-1]),
        untrained=comparison.highest[:, :-1].max(0).reshape(-1, len(names)).max(0),
        alpha=alpha,
        level=comparison.level,
        least=least[:, 0],
        where=[_where(share, queries) for share in measures.read_share],
        alone=np.where(fits_alone, mean[..., len(names) :], 0),
        structure_elsewhere=structure,
    )
    label = _by_layer(uniform.shape, lambda place: _label(names, int(column[place]), bool(uniform[place])))
    return HeadPatterns(
        kinds=names,
        label=label,
        why_not=_by_layer(
            uniform.shape,
            lambda place: described.why_not(place) if not is_labelled[place] and not uniform[place] else "",
        ),
        queries=_by_layer(uniform.shape, lambda place: measures.query_sets[query_set[place]]),
        read_share=measures.read_share,
        score=Interval(
            value=described.score, low=described.low, high=chosen(mean + half_width), n=len(batch), exact=n == ALL
        ),
        p=chosen(p),
        p_holm=described.p_holm,
        untrained=described.untrained,
        p_untrained=described.p_untrained,
        value_weighted=chosen(mean_over_sequences(measures.value_weighted)),
        uniformity=uniformity,
        entropy=measures.entropy.mean(0),
        moved=measures.moved.mean(0),
        alpha=alpha,
        level=comparison.level,
        n=len(batch),
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
    models: Sequence[Net],
    n_models: int,
    alpha: float,
    seed: int,
) -> UntrainedComparison:
    """Comparison of the candidates for a label, in every column and then `uniform`, with untrained models."""
    # Scores on the sequences of the comparison, which do not depend on the model: of every kind, then the uniformity.
    rows = sequences_to_compare(measures.comparable)
    compared = batch.select(torch.from_numpy(rows))
    related = PackedRelations.of(task, compared, names)
    scores = np.concatenate([measures.score, measures.uniformity[..., None]], -1)[rows]
    # The least scores must not depend on which queries this model reads, so those of layers with few do not count here.
    least = np.append(np.repeat(_least_by_set(measures), len(names)), MIN_UNIFORMITY)
    queries = "all" if measures.query_sets == ("all",) else "read"
    return compare_with_untrained(
        mean_over_sequences(scores),
        candidates,
        least,
        highest=highest_scores(model, models, compared, related, queries=queries, seed=seed),
        n_models=n_models,
        alpha=alpha,
    )


def _least_by_set(measures: Measures) -> Float[np.ndarray, " set"]:
    """Where the interval of a score must begin at each set of queries, of a layer of which many queries are read."""
    return np.array([MIN_SCORE_OF_FEW if name == "scored" else MIN_SCORE for name in measures.query_sets])


def _least_scores(measures: Measures, n_kinds: int) -> Float[np.ndarray, "layer column"]:
    """Where the interval of a score must begin in each layer."""
    few_are_read = measures.read_share < FEW
    least = np.where(few_are_read[:, None], MIN_SCORE_OF_FEW, _least_by_set(measures))
    return least.repeat(n_kinds, axis=1)


def _half_width(values: Float[np.ndarray, "sample *cells"]) -> Float[np.ndarray, "*cells"]:
    """Half-width of the t interval of the mean; 1, the whole range, if fewer than two sequences have a value."""
    return np.nan_to_num(t_half_width(values), nan=1.0)


def _by_layer(shape: tuple[int, ...], text: Callable[[tuple[int, ...]], str]) -> tuple[tuple[str, ...], ...]:
    """A text for each layer and head."""
    n_layers, n_heads = shape
    return tuple(tuple(text((layer, head)) for head in range(n_heads)) for layer in range(n_layers))


def _where(read_share: float, queries: Queries) -> str:
    """Words for the queries of a layer at which heads are scored."""
    if queries == "all":
        return ""
    return f" at the {'few ' if read_share < FEW else ''}queries that are read"


@dataclass(frozen=True, kw_only=True)
class _Conditions:
    """What the conditions of a label are judged by, for every head and kind."""

    names: Sequence[str]
    n_sequences: Int[np.ndarray, "layer head kind"]
    score: Float[np.ndarray, "layer head kind"]
    low: Float[np.ndarray, "layer head kind"]
    p_holm: Float[np.ndarray, "layer head kind"]
    without_best: Float[np.ndarray, "layer head kind"]
    p_untrained: Float[np.ndarray, "layer head kind"]
    untrained: Float[np.ndarray, " kind"]
    alpha: float
    level: float
    least: Float[np.ndarray, " layer"]
    """Where the interval must begin."""
    where: Sequence[str]
    """Words for the queries of each layer."""
    alone: Float[np.ndarray, "layer head alone"]
    """Score of each kind at the scored positions alone, if it passes the first three conditions only there, else 0.
    Empty if all queries are scored."""
    structure_elsewhere: Float[np.ndarray, "layer head"]

    def why_not(self, place: tuple[int, ...]) -> str:
        """The condition that fails first, for the nearest kind."""
        structure = self.structure_elsewhere[place]
        if self.alone[place].any() and structure > MAX_STRUCTURE_ELSEWHERE:
            kind = int(self.alone[place].argmax())
            return (
                f"{self.names[kind]} {self.alone[(*place, kind)]:.2f} at the scored positions alone: the other queries "
                f"that are read have another pattern, {structure:.2f} of their attention, above "
                f"{MAX_STRUCTURE_ELSEWHERE:g}"
            )
        kind = int(self.score[place].argmax())
        cell = (*place, kind)
        where = self.where[place[0]]
        if self.n_sequences[cell] == 0:
            return f"no kind relates a query to some of its keys{where}"
        text = f"nearest {self.names[kind]} {self.score[cell]:.2f}{where}: "
        least = float(self.least[place[0]])
        if self.score[cell] < least:
            return f"{text}below {least:g}"
        if self.low[cell] < least:
            return f"{text}the 95 % interval begins at {self.low[cell]:.2f}, below {least:g}"
        if self.p_holm[cell] > self.alpha:
            return f"{text}p is {self.p_holm[cell]:.2g} (Holm), above {self.alpha:g}"
        if self.without_best[cell] < least:
            return f"{text}only {self.without_best[cell]:.2f} without the position that raises it most"
        return (
            f"{text}untrained models reach {self.untrained[kind]:.2f} and p against them is "
            f"{self.p_untrained[cell]:.2g}, above {self.level:g}"
        )


@dataclass(frozen=True)
class _Precedence:
    """Which of the kinds with nearly the same score is a head's label."""

    chance: Float[np.ndarray, " kind"]
    """Share of related keys: the kind with the smallest is the strictest one."""
    of_task: Bool[np.ndarray, " kind"]
    """Kinds that rest on a relation of the task."""
    by_distance: Bool[np.ndarray, " kind"]
    """`previous` and `current`."""
    yields: Bool[np.ndarray, " kind"]
    """Kinds that are a label only if none of those describes the head as well."""
    is_last: Bool[np.ndarray, " kind"]
    """Kinds that are a label only if no other describes the head."""


def _precedence(names: Sequence[str], chance: Float[np.ndarray, " kind"], kinds_of_task: Sequence[str]) -> _Precedence:
    """Precedence of these kinds."""
    of_task = np.isin(names, kinds_of_task)
    return _Precedence(
        chance=chance,
        of_task=of_task,
        by_distance=np.isin(names, ("previous", "current")),
        # a relation of the task that has the name of such a kind is the task's own
        yields=np.isin(names, yielding_kinds()) & ~of_task,
        is_last=np.isin(names, last_kinds()),
    )


def _column(
    score: Float[np.ndarray, " column"],
    fits: Bool[np.ndarray, " column"],
    anywhere: Float[np.ndarray, " kind"],
    precedence: _Precedence,
) -> int:
    """The column of a head's label, from its scores and whether they are high enough; -1 if none is.

    Args:
        score: Scores in all columns.
        fits: Columns that pass all conditions.
        anywhere: Scores at all real queries.
        precedence: Which of several kinds with nearly the same score is the label.
    """
    n_kinds = len(precedence.chance)
    # The first set of queries at which some kind fits.
    by_set = fits.reshape(-1, n_kinds)
    if not by_set.any():
        return -1
    if by_set[:, ~precedence.is_last].any():
        by_set = by_set & ~precedence.is_last
    query_set = int(by_set.any(-1).argmax())
    fits_in_set, score_in_set = by_set[query_set], score.reshape(-1, n_kinds)[query_set]
    # The kinds with nearly the highest score; if some describe the queries that are not read as well, those.
    close = fits_in_set & (score_in_set >= score_in_set[fits_in_set].max() - SAME_SCORE)
    best_anywhere = anywhere[close].max()
    if best_anywhere >= MIN_SCORE:
        close &= anywhere >= best_anywhere - SAME_SCORE
    if (close & (precedence.of_task | precedence.by_distance)).any():
        close &= ~precedence.yields
    # Of these the one with the fewest related keys, and one of the task before others with as many.
    kinds = np.flatnonzero(close).tolist()
    kind = min(kinds, key=lambda index: (precedence.chance[index], not precedence.of_task[index]))
    return query_set * n_kinds + kind


def _label(names: Sequence[str], column: int, uniform: bool) -> str:
    """Label of one head, from the column that it fits and whether it is uniform."""
    if column >= 0:
        return names[column % len(names)]
    return "uniform" if uniform else "unclassified"
