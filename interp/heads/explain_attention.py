"""Why does a head attend where it does? Its scores, taken apart into pairs of what wrote into query and key."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import TYPE_CHECKING, Annotated, Any, cast

import numpy as np
import torch
from einops import einsum
from jaxtyping import Bool, Float
from torch import Tensor

from hooks import TransformerStack
from hooks.checks import check_number, shown
from hooks.interventions.ablation_engine import AblationEngine, Head, head_output_point
from hooks.interventions.clean_pass import Net
from hooks.interventions.head_reading import HeadReading
from hooks.interventions.replacements import Pattern
from hooks.model.attention import visible_keys
from hooks.state import restores_state
from hooks.typed import COUNT, DIFFERENCE, DISTINCT, MAY_BE_MISSING, SHARE, SIZE, Axes, checks_types
from interp.core.activations import TOKENS_PER_CHUNK
from interp.core.consistency import check_lost_accuracy, check_same_numbers, check_that
from interp.core.heads import check_heads
from interp.core.inputs import all_inputs_text, repeats_text
from interp.core.intervals import Interval
from interp.core.results import Result
from interp.core.sample import Sample
from interp.core.statistics import drop_interval, mean_interval
from interp.core.verbs import HEAD_INPUTS, HEAD_OUTPUTS, AnyModel, Needs, prepare_model, without_sums
from interp.heads.part_names import named_part
from interp.tasks.base import Batch, Task
from interp.tasks.splits import EveryInput

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

TOKENS, POSITIONS, BIASES = "tokens", "positions", "biases"
"""Parts that belong to no head and no MLP."""
ALL_PAIRS, OTHER_PAIRS = "all pairs", "all other pairs"
"""Removals of many pairs: of all, which leaves even attention, and of all but those that are removed one by one."""
LEAST_SHARE = 0.05
"""Share of the variance from which on a pair has a sentence; the first pair always has."""
EXPLAINED = 0.9
"""Share of the variance that the listed pairs explain together, where `MOST_PAIRS` are enough."""
MOST_PAIRS = 12
"""Largest number of pairs that are listed by default."""
TOLERANCE = 1e-3
"""Largest distance of the pattern that the sum of all pairs gives from the model's, in single precision: rounding."""
DECIMALS = 6
"""Shares that are equal to this many decimals differ by rounding only."""


@dataclass(frozen=True, kw_only=True)
class AttentionExplanation(Result):
    """The scores of one head as a sum over pairs: what one part wrote into the query, times what another wrote into
    the key, with the scale of the norm before attention held at its value.

    Softmax ignores what is added to all keys of a query, so that a pair counts by how it varies over keys. The
    independent units of every interval are distinct inputs.
    """

    head: Annotated[tuple[int, int], COUNT]
    """(layer, head)."""
    parts: Annotated[tuple[str, ...], Axes("query_part"), Axes("key_part"), DISTINCT]
    """What writes: `tokens`, `positions`, heads (`0.1`) and MLPs (`0 MLP`) of earlier layers, and `biases` of all."""
    share: Annotated[Interval, Axes("query_part key_part"), MAY_BE_MISSING]
    """Per pair: share of the variance of the scores over the visible keys of a query that the pair accounts for
    (covariance with the scores over their variance), with its 95 % interval. All pairs sum to 1; a pair that opposes
    the scores has a negative share."""
    control: Annotated[Float[np.ndarray, "query_part key_part"], MAY_BE_MISSING]
    """The same with the scores of the next sequence of the sample, of the last one with those of the first: what a pair
    accounts for whatever the sequence is."""
    removals: Annotated[tuple[str, ...], Axes("removal")]
    """Pairs that were removed (`1.0 of keys x tokens of queries`), then `all other pairs` and `all pairs`."""
    pairs: Annotated[tuple[tuple[int, int], ...], COUNT, Axes("pair")]
    """For each removed pair, the indices of the parts of its query and key."""
    explained: Annotated[Interval, Axes("pair"), MAY_BE_MISSING]
    """Per removed pair: share of the variance that it and those before it explain together (one minus the variance of
    what is left of the scores), with its interval."""
    pattern_change: Annotated[Interval, Axes("removal"), SHARE, MAY_BE_MISSING]
    """Per removal: share of the attention of a query that moves to other keys, mean over queries, with its interval."""
    outcomes: Annotated[tuple[str, ...], Axes("outcome"), DISTINCT]
    """Names of the accuracies."""
    clean: Annotated[Float[np.ndarray, " outcome"], SHARE, MAY_BE_MISSING]
    """Accuracy of the model."""
    drop: Annotated[Interval, Axes("removal outcome"), DIFFERENCE, MAY_BE_MISSING]
    """Per removal and outcome: drop in accuracy with its conservative 95 % interval."""
    remainder: Annotated[float, SIZE]
    """Largest distance of the pattern that the sum of all pairs gives from the model's: rounding."""
    n: Annotated[int, COUNT]
    """Sequences sampled, or all that there are."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in set(self.parts) - {TOKENS, POSITIONS, BIASES}:
            named = named_part(name)
            is_earlier = named.kind in ("head", "MLP") and (named.layer or 0) < self.head[0]
            check_that(is_earlier, f"parts has {shown(name)}, which is no part before the layer of head {self.head}.")
        check_same_numbers("share", self.share.value.sum(), 1, "the sum over all pairs")
        # A removal for each pair, then of the others, and of all
        for index, (query, key) in enumerate(self.pairs):
            text = f"pairs[{index}] is {(query, key)}; parts has {len(self.parts)}."
            check_that(max(query, key) < len(self.parts), text)
        removals = (*[_pair_name(self.parts, *pair) for pair in self.pairs], OTHER_PAIRS, ALL_PAIRS)
        text = f"removals is {shown(self.removals)}; of these pairs it must be {shown(removals)}."
        check_that(self.removals == removals, text)
        check_lost_accuracy("drop", self.drop.value, self.clean)

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per pair."""
        axes = {"query_part": self.parts, "key_part": self.parts}
        return self._table(axes, "control", **self.share.columns("share"), n=self.n)

    def plot(self) -> "alt.TopLevelMixin":
        """Query part x key part map of the shares."""
        from interp.view.charts import heatmaps

        layer, head = self.head
        within = "exact" if self.share.exact else f"95 % within ±{self.share.half_width:.2f}"
        return heatmaps(
            {f"head {layer}.{head}": self.share.value},
            x=self.parts,
            x_title="key",
            y=self.parts,
            y_title="query",
            title=f"share of the variance of scores, n = {self.n} ({within})",
            value="share",
            domain=(-1.0, 1.0),
        )

    def sentences(self) -> list[str]:
        """What the head attends by, and what goes with it."""
        layer, head = self.head
        sentences = []
        for index, (query, key) in enumerate(self.pairs):
            if index and abs(self.share.value[query, key]) < LEAST_SHARE:
                continue
            share, change = self.share[query, key], self.pattern_change[index]
            largest = int(np.nan_to_num(self.drop.value[index]).argmax())
            opposes = bool(self.share.value[query, key] < 0)
            subject = f"Head {layer}.{head} attends {'against' if opposes else 'by'}"
            if index:
                subject = "It attends against" if opposes else "Then by"
            sentences.append(
                f"{subject} what {self.parts[key]} wrote into the keys and {self.parts[query]} into the queries: "
                f"{share.text(2)} of the variance of its scores. Without it {change.text(2)} of the attention moves, "
                f"and {self.drop[index, largest].text(2)} of {self.outcomes[largest]} is lost."
            )
        n_pairs, n_all = len(self.pairs), len(self.parts) ** 2
        largest_pairs = f"The {n_pairs} largest of {n_all} pairs together explain"
        if n_pairs == 1:
            largest_pairs = f"The largest of {n_all} pairs explains"
        remaining = max(1 - float(self.explained.value[-1]), 0.0)
        sentences.append(
            f"{largest_pairs} {self.explained[-1].text(2)} of the variance; {remaining:.2f} is left to the others. "
            f"Without all others {self.pattern_change[-2].text(2)} of the attention moves, without any "
            f"{self.pattern_change[-1].text(2)}."
        )
        return sentences

    def __str__(self) -> str:
        width = max(map(len, self.removals))
        header = f"{'removed':<{width}}{'share':>21}{'explained so far':>18}{'other sequence':>16}"
        header += f"{'attention that moves':>23}"
        lines = [header + "".join(f"{name:>23}" for name in self.outcomes)]
        for index, name in enumerate(self.removals):
            cells = f"{'':>55}"
            if index < len(self.pairs):
                pair = self.pairs[index]
                together = f"{self.explained.value[index]:.2f}"
                cells = f"{self.share[pair].text(2):>21}{together:>18}{self.control[pair]:>16.2f}"
            cells += f"{self.pattern_change[index].text(2):>23}"
            cells += "".join(f"{self.drop[index, outcome].text(2):>23}" for outcome in range(len(self.outcomes)))
            lines.append(f"{name:<{width}}{cells}")
        sequences = f"{self.n} sequences{repeats_text(self.n, int(np.max(self.drop.n)))}, 95 % intervals"
        if self.share.exact:
            sequences = all_inputs_text(self.n)
        lines.append(f"accuracy lost by outcome; {sequences}; remainder at most {self.remainder:.1g}")
        return "\n".join([*lines, *self.sentences()])


NEEDS = Needs(
    "explain_attention",
    edits=HEAD_OUTPUTS,
    reads=[*HEAD_INPUTS, "attn.hook_q", "attn.hook_k"],
    answers=True,
    sums="scores",
    instead="show_attention",
    lacks=without_sums(
        "the model's block is {block}, whose layers do not add the outputs of heads and MLPs to the residual stream, "
        "so that scores are no sum over them. Blocks that do: pre_ln, no_norm. Use interp.edges."
    ),
)


@checks_types
@restores_state
def explain_attention(
    model: AnyModel,
    task: Task,
    head: Head,
    *,
    n: int | EveryInput = 256,
    n_pairs: int | None = None,
    seed: int = 0,
) -> AttentionExplanation:
    """Take the scores of a head apart into what wrote into its queries times what wrote into its keys.

    The stream that attention reads is a sum over parts, and with the scale of its norm held at the value for each
    position, queries and keys are sums too; so each score is a sum over pairs of parts, exactly. The pairs that account
    for most of the variance of the scores over keys are then removed, one at a time: their scores become even over the
    keys of each query, and the model is run with that pattern.

    A preference for one position may be nearly all of the variance and carry no answer. It is the same in every
    sequence, so that pairs are listed in turn by their share and by their share beyond the control.

    Args:
        model: A transformer whose layers add to the residual stream, of `hooks` or wrapped. It is not changed.
        task: Source of the sequences and their labels.
        head: (layer, head), with learned queries and keys.
        n: Number of held-out sequences. "all": every input of the test split once, without sampling error.
        n_pairs: Number of pairs to list and remove, in turn those with the largest shares and those with the largest
            shares beyond the control. Default: as many as explain 0.9 of the variance together and without all others
            of which no accuracy is lost (the interval of its drop has 0), at most 12.
        seed: Determines the sequences.

    Raises:
        ValueError: layers that normalise the stream or do not add to it, a wrapped model whose scores are no sums over
            pairs (`supported_verbs`), a head that does not exist or is hard-coded, too few sequences or pairs, scores
            that do not vary, or a hook that changes them.

    Source: Elhage et al. 2021, A Mathematical Framework for Transformer Circuits (the QK circuit; composition of
    queries and keys). Differs: pairs are of all parts, and each is verified by removing it.

    Example:
        >>> import interp
        >>> from interp.known_answers import lego_loop
        >>> task = interp.tasks.Lego(n_vars=2)
        >>> why = interp.explain_attention(lego_loop(task), task, (1, 0), n=32)
        >>> why.removals[0], bool(why.remainder < 1e-5)
        ('positions of keys x positions of queries', True)
    """
    net = prepare_model(model, NEEDS, task)
    if len(head) != 2 or not all(isinstance(number, Integral) for number in head):
        raise ValueError(f"head is {shown(head)}; it must be (layer, head), such as (0, 1).")
    ((layer, index),) = check_heads("head", [head], net)
    patterns = net.cfg.patterns_of(layer)
    if patterns and not patterns[index].learned:
        raise ValueError(
            f"head is {(layer, index)}, whose pattern is hard-coded ({patterns[index].kind}): it has no queries."
        )
    if n_pairs is not None:
        check_number("n_pairs", n_pairs, integer=True, low=1)
    inputs = Sample.of(task, n, seed=seed, name="explain attention")
    net.eval()
    size = max(1, TOKENS_PER_CHUNK // inputs.batch.tokens.shape[1])
    sample = HeadSample(reading=HeadReading.of(net, (layer, index)), inputs=inputs, size=size)
    # Shares of the variance of scores, of every pair
    shares = _shares(sample)
    parts = shares.parts
    pairs = _ranked(shares.share.value, shares.control)[: n_pairs or MOST_PAIRS]
    explained = _explained(sample, pairs)
    if n_pairs is None:
        n_listed = _n_sufficient(sample, pairs, explained.value)
        pairs, explained = pairs[:n_listed], explained[:n_listed]

    # These pairs are removed, one at a time; then all others, and all
    def scores_without(parts: ScoreParts) -> list[Tensor]:
        of_pairs = [parts.pair(*pair) for pair in pairs]
        without_each = [parts.scores - of_pair for of_pair in of_pairs]
        return [*without_each, torch.stack(of_pairs).sum(0), torch.zeros_like(parts.scores)]

    removals = _removals(sample, scores_without)
    names = [_pair_name(parts, *pair) for pair in pairs]
    return AttentionExplanation(
        head=(layer, index),
        parts=parts,
        share=shares.share,
        control=shares.control,
        removals=(*names, OTHER_PAIRS, ALL_PAIRS),
        pairs=tuple(pairs),
        explained=explained,
        pattern_change=removals.pattern_change,
        outcomes=tuple(task.outcomes),
        clean=removals.clean,
        drop=removals.drop,
        remainder=shares.remainder,
        n=len(inputs),
    )


def _pair_name(parts: Sequence[str], query: int, key: int) -> str:
    return f"{parts[key]} of keys x {parts[query]} of queries"


@dataclass(frozen=True, kw_only=True)
class ScoreParts:
    """Queries and keys of one head on some sequences, as sums over parts."""

    names: list[str]
    head: Head
    queries: Float[Tensor, "part batch pos width"]
    """Scaled so that the dot product with keys is a score."""
    keys: Float[Tensor, "part batch pos width"]
    scores: Float[Tensor, "batch query key"]
    """The sum of all pairs."""
    visible: Bool[Tensor, "batch query key"]
    """Keys that each real query sees; none of a query that is padding."""
    remainder: float
    """Largest distance of their pattern from the model's."""

    @staticmethod
    @torch.no_grad()
    def of(reading: HeadReading, batch: Batch) -> "ScoreParts":
        """The parts of the scores of a head, in double precision.

        Raises:
            ValueError: a pattern that is not that of the sum of all pairs, because of a hook or of the model.
        """
        model, (layer, index) = reading.model, reading.head
        pattern_point = f"blocks.{layer}.attn.hook_pattern"
        names, streams, constant, cache = _streams(model, batch, layer, [*reading.points, pattern_point])
        queries, keys, inputs = reading.inputs(streams, constant, cache)
        queries = queries / model.cfg.attn_scale
        if model.cfg.qk_identity:  # a I: the scores gain a dot product of the inputs
            a: Any = cast(TransformerStack, model).block(layer).attention.a
            queries = torch.cat([queries, inputs * a[index].double()], -1)
            keys = torch.cat([keys, inputs], -1)
        visible = visible_keys(model.cfg, batch.tokens, batch.attention_mask)
        if batch.attention_mask is not None:
            visible = visible & batch.attention_mask.bool()[:, :, None]
        scores = (queries.sum(0) @ keys.sum(0).mT).masked_fill(~visible, 0)
        parts = ScoreParts(
            names=[*names, BIASES],
            head=reading.head,
            queries=queries,
            keys=keys,
            scores=scores,
            visible=visible,
            remainder=0.0,
        )
        pattern = cache[pattern_point][:, index]
        remainder = float((parts.pattern(scores) - pattern.masked_fill(~visible, 0)).abs().max())
        if remainder > max(TOLERANCE, 4 * torch.finfo(pattern.dtype).eps):
            raise ValueError(
                f"the attention of head {layer}.{index} differs from that of the sum over parts by {remainder:.2g}: a "
                f"hook changes it, or the layer computes scores in another way. Remove the hooks of layer {layer}, or "
                f"use interp.edges or interp.show_attention."
            )
        return replace(parts, remainder=remainder)

    def pair(self, query: int, key: int) -> Float[Tensor, "batch query key"]:
        """What a pair adds to the scores, even over keys removed."""
        return self.centred(self.queries[query] @ self.keys[key].mT)

    def centred(self, scores: Float[Tensor, "batch query key"]) -> Float[Tensor, "batch query key"]:
        """Scores minus their mean over the visible keys of each query; zero where there are none."""
        scores = scores.masked_fill(~self.visible, 0)
        mean = scores.sum(-1, keepdim=True) / self.visible.sum(-1, keepdim=True).clamp_min(1)
        return (scores - mean).masked_fill(~self.visible, 0)

    def covariance(self, scores: Float[Tensor, "batch query key"]) -> Float[Tensor, "batch query_part key_part"]:
        """Covariance over keys of what each pair adds with some scores, summed over queries."""
        weighted_keys = einsum(self.centred(scores), self.keys, "b i j, p b j e -> b p i e")
        return einsum(self.queries, weighted_keys, "q b i e, b p i e -> b q p")

    def variance(self) -> Float[Tensor, " batch"]:
        """Variance of the scores over keys, summed over queries."""
        return self.centred(self.scores).square().sum((1, 2))

    def n_queries(self) -> Float[Tensor, " batch"]:
        """Real queries of each sequence."""
        return self.visible.any(-1).double().sum(-1)

    def pattern(self, scores: Float[Tensor, "batch query key"]) -> Float[Tensor, "batch query key"]:
        """The attention that scores give; zero for queries that are padding."""
        return scores.masked_fill(~self.visible, -torch.inf).softmax(-1).nan_to_num(0)


def _streams(
    net: Net, batch: Batch, layer: int, points: Sequence[str]
) -> tuple[list[str], Float[Tensor, "part batch pos d_model"], Float[Tensor, " d_model"], Mapping[str, Tensor]]:
    """What each part wrote into the stream before a layer, the sum of biases, and activations at further points."""
    point = head_output_point(net.cfg)
    names = ["blocks.0.hook_resid_pre", "hook_pos_embed", *points]
    for earlier in range(layer):
        names += [f"blocks.{earlier}.{point}", f"blocks.{earlier}.hook_mlp_out"]
    inputs: dict[str, Any] = batch.model_inputs()
    names = [name for name in names if name in net.hook_dict]
    _, cache = net.run_with_cache(batch.tokens, **inputs, names_filter=names)
    embedding = cache["blocks.0.hook_resid_pre"].double()
    parts = {TOKENS: embedding}
    if "hook_pos_embed" in names:
        parts[POSITIONS] = cache["hook_pos_embed"].double().expand_as(embedding)
        parts[TOKENS] = embedding - parts[POSITIONS]
    constant = torch.zeros_like(embedding[0, 0])
    for earlier in range(layer):
        sites: Any = net.blocks[earlier].attn
        heads = cache[f"blocks.{earlier}.{point}"].double()
        if not net.cfg.vo_identity:
            heads = einsum(heads, sites.W_O.double(), "b p h e, h e d -> b p h d")
        parts |= {f"{earlier}.{index}": written for index, written in enumerate(heads.unbind(2))}
        constant = constant + sites.b_O.double()
        if f"blocks.{earlier}.hook_mlp_out" in names:
            parts[f"{earlier} MLP"] = cache[f"blocks.{earlier}.hook_mlp_out"].double()
    return list(parts), torch.stack(list(parts.values())), constant, cache.cache_dict


@dataclass(frozen=True, kw_only=True)
class HeadSample:
    """A head, and the sequences on which it is explained."""

    reading: HeadReading
    inputs: Sample
    size: int
    """Sequences that are run at a time; no result depends on it."""

    def chunks(self) -> Iterator[tuple[Batch, "ScoreParts"]]:
        """Some sequences at a time, with the parts of their scores."""
        for _, chunk in self.inputs.chunks(self.size):
            yield chunk, ScoreParts.of(self.reading, chunk)

    def chunks_with_next(self) -> Iterator["ScoreParts"]:
        """Parts of the scores of some sequences at a time and of the one after them; the first follows the last."""
        n = len(self.inputs)
        for start in range(0, n, self.size):
            rows = torch.arange(start, min(start + self.size, n) + 1) % n
            yield ScoreParts.of(self.reading, self.inputs.batch.select(rows))

    def interval(
        self,
        values: Float[np.ndarray, "sample *cells"],
        weight: Float[np.ndarray, "sample *#cells"],
        *,
        least: float = -np.inf,
        most: float = np.inf,
    ) -> Interval:
        """Mean of sums over sequences, with its interval over distinct inputs between the values that are possible."""
        interval = self.inputs.estimate(values, weight, mean_interval)
        low, high = np.maximum(interval.low, least), np.minimum(interval.high, most)
        return interval if self.inputs.exact else replace(interval, low=low, high=high)


@dataclass(frozen=True, kw_only=True)
class PairShares:
    """Shares of all pairs in the variance of scores, and the rounding of their sum."""

    parts: tuple[str, ...]
    share: Interval
    control: Float[np.ndarray, "query_part key_part"]
    remainder: float


def _shares(sample: HeadSample) -> PairShares:
    """Covariance with the scores, and with those of the next sequence, over the variance of the scores."""
    statistics = []
    remainder, parts = 0.0, []
    for scores in sample.chunks_with_next():
        # The last sequence only gives its scores to the one before
        of_own, of_next = scores.covariance(scores.scores), scores.covariance(scores.scores.roll(-1, 0))
        statistics.append((of_own[:-1], of_next[:-1], scores.variance()[:-1]))
        remainder, parts = max(remainder, scores.remainder), scores.names
    covariance, of_others, variance = (torch.cat(blocks).cpu().numpy() for blocks in zip(*statistics, strict=True))
    scale = variance.mean()
    if not np.isfinite(scale):
        raise ValueError(
            f"head is {sample.reading.head}, whose scores are not finite. The model's weights may be too large."
        )
    if not scale > 0:
        raise ValueError(
            f"head is {sample.reading.head}, whose scores are the same for all keys: there is nothing to explain."
        )
    return PairShares(
        parts=tuple(parts),
        share=sample.interval(covariance / scale, variance[:, None, None] / scale),
        control=of_others.sum(0) / variance.sum(),
        remainder=remainder,
    )


def _ranked(
    share: Float[np.ndarray, "query_part key_part"], control: Float[np.ndarray, "query_part key_part"]
) -> list[tuple[int, int]]:
    """All pairs, in turn the largest by share and the largest by share beyond the control.

    The first of these has what is the same in every sequence, such as a preference for a position, and the second has
    not: there a pair that matches contents comes early however strong the preference is. Where sequences make no
    difference both orders are that of the shares.
    """
    size, beyond_control = np.abs(share).ravel(), np.abs(share - control).ravel().round(DECIMALS)
    by_share = np.argsort(-size, kind="stable")
    by_difference = np.lexsort([-size, -beyond_control])
    cells = dict.fromkeys(np.stack([by_share, by_difference], 1).ravel().tolist())
    return [divmod(cell, share.shape[1]) for cell in cells]


def _explained(sample: HeadSample, pairs: Sequence[tuple[int, int]]) -> Interval:
    """Share of the variance that the first pair, the first two and so on explain together."""
    explained, variance = [], []
    for _, parts in sample.chunks():
        sums = torch.stack([parts.pair(*pair) for pair in pairs]).cumsum(0)
        remaining = (parts.centred(parts.scores) - sums).square().sum((2, 3)).T
        variance.append(parts.variance())
        explained.append(parts.variance()[:, None] - remaining)
    of_pairs, of_scores = torch.cat(explained).cpu().numpy(), torch.cat(variance).cpu().numpy()
    scale = of_scores.mean()
    return sample.interval(of_pairs / scale, of_scores[:, None] / scale, most=1.0)


def _n_sufficient(sample: HeadSample, pairs: Sequence[tuple[int, int]], together: Float[np.ndarray, " pair"]) -> int:
    """Number of the first pairs that explain enough of the variance, and without all others of which nothing is lost.

    It is that of all pairs where none is enough. A loss counts from where its interval is above 0.
    """
    for index in np.flatnonzero(together >= EXPLAINED).tolist():
        listed = pairs[: index + 1]

        def scores_of_listed(parts: ScoreParts, listed: Sequence[tuple[int, int]] = listed) -> list[Tensor]:
            return [torch.stack([parts.pair(*pair) for pair in listed]).sum(0)]

        if not (_removals(sample, scores_of_listed).drop.low > 0).any():
            return len(listed)
    return len(pairs)


@dataclass(frozen=True, kw_only=True)
class PairRemovals:
    """What removals of pairs do."""

    pattern_change: Interval
    drop: Interval
    clean: Float[np.ndarray, " outcome"]


@torch.no_grad()
def _removals(sample: HeadSample, scores_without: Callable[["ScoreParts"], Sequence[Tensor]]) -> PairRemovals:
    """Attention that moves, and accuracy that is lost, with other scores of the head.

    Args:
        sample: The head and its sequences.
        scores_without: The scores after each removal.
    """
    changes, drops, queries, right, total = [], [], [], [], []
    for chunk, parts in sample.chunks():
        inputs: Any = chunk.model_inputs()
        engine = AblationEngine(sample.reading.model, chunk.tokens, read_at=chunk.target_positions, **inputs)
        score = sample.inputs.task.score(engine.logits, chunk)
        clean_pattern = parts.pattern(parts.scores)
        moved, lost = [], []
        for scores in scores_without(parts):
            pattern = parts.pattern(scores)
            moved.append((pattern - clean_pattern).abs().sum((1, 2)) / 2)
            after = sample.inputs.task.score(engine.head_set([parts.head], _pattern_of_head(parts, pattern)), chunk)
            lost.append((score.right - after.right).double())
        changes.append(torch.stack(moved, 1))
        drops.append(torch.stack(lost, 1))
        queries.append(parts.n_queries())
        right.append(score.right.double())
        total.append(score.total.double())
    blocks = (changes, drops, queries, right, total)
    of_changes, of_drops, n_queries, n_right, n_total = (torch.cat(block).cpu().numpy() for block in blocks)
    return PairRemovals(
        pattern_change=sample.interval(of_changes, n_queries[:, None], least=0.0, most=1.0),
        drop=sample.inputs.estimate(of_drops, n_total[:, None], drop_interval),
        clean=n_right.sum(0) / np.where(n_total.sum(0) > 0, n_total.sum(0), np.nan),
    )


def _pattern_of_head(parts: ScoreParts, pattern: Float[Tensor, "batch query key"]) -> Pattern:
    """A replacement of the pattern of the head; rows of padding stay as they are."""

    def rows(layer: int, clean: Tensor) -> Tensor:
        edited = clean.clone()
        real = parts.visible.any(-1)[..., None]
        edited[:, parts.head[1]] = torch.where(real, pattern.to(clean), clean[:, parts.head[1]])
        return edited

    return Pattern(rows)
