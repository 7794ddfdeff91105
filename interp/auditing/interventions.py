"""Interventions on one head: what takes the place of its output, its pattern, or the values at related keys.

A label describes the queries that have related keys. For labelled heads only those rows of the pattern are replaced, so
that the other rows affect no test of the label; for other heads, all rows.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hooks.interventions.ablation_engine import AblationEngine, Head
from hooks.interventions.clean_pass import Net
from hooks.interventions.replacements import HeadInputs, Pattern, Replacement
from hooks.model.attention import visible_keys
from interp.core.inputs import partners
from interp.core.randomness import derived_generator
from interp.heads.interventions import REMOVALS, HeadIntervention, References, normalised, random_weights
from interp.tasks.base import Batch

ON_ALL_HEADS = (*REMOVALS, "uniform", "random_rows")
"""Interventions that are tried on every head."""
ROWS_OF_LABEL = ("uniform", "random_rows")
"""Those of them that replace only the rows which a label describes, if there is one."""
PAIRED_INTERVENTIONS = ("resample", "random_rows", "wrong_key", "resampled_pattern", "resampled_values")
"""Interventions that draw something for each sequence. On every input of a task, their effect is averaged over a fixed
family of pairings of inputs (`interp.core.inputs`)."""
ON_UNDECIDED_HEADS = ("mean", "resample", "uniform")
"""Those of them that a verdict depends on: further sequences are spent on these."""
READINGS = ("ideal", "label_only_pattern")
"""Patterns that do what the label says: one of them must be harmless if a head acts through its label."""
ITS_OWN_READING = "label_only_pattern"
"""The one of them that keeps the head's own attention to these keys."""
LABEL_TESTS = (*READINGS, "wrong_key", "resampled_pattern", "resampled_values")
"""Interventions that test a label, tried on labelled heads."""
INTERVENTIONS = (*ON_ALL_HEADS, *LABEL_TESTS)
TESTED = tuple(name for name in INTERVENTIONS if name != "random_rows")
"""Interventions that have p values; `random_rows` is only reported."""
NEEDED_IN, MOSTLY_SHARED, CANCELLING, TOGETHER = "needed in", "mostly shared", "cancelling", "together"
"""Effects of sets: what a head costs beyond the other heads of its set; how much more that is than twice what it costs
alone; and the cost of a set that may cancel, which are tested; and the cost of every set."""
MOST_POOLED_KEYS = 512
"""Largest number of related keys of other sequences to draw values from."""
POOLED_PATTERNS = 32
"""Number of other sequences to draw patterns from; fewer of sequences so long that these patterns of all labelled heads
would have more entries than `POOLED_CELLS`. On every input of a task, the number of other inputs that are tried for a
query until its related keys differ."""
POOLED_CELLS = 2**27

NewRows = Callable[[Float[Tensor, "batch query key"], str | None], Float[Tensor, "batch query key"]]
"""The new pattern of a head, from its clean pattern and its label."""
ValuePool = Mapping[tuple[str, int], Float[Tensor, "draw head width"]]
"""Values at keys that are related under a kind, in a layer, in reference sequences."""


OnRows = Callable[[slice, int], Replacement]
"""The replacement on some rows of a sample, in one of the draws."""


class OfLabels(HeadIntervention):
    """An intervention that depends on the labels of the heads."""

    def __init__(self, name: str, draws: bool, on_rows: OnRows):
        self.name, self.draws, self.on_rows = name, draws, on_rows

    def replacement(self, references: References, rows: slice, draw: int) -> Replacement:
        return self.on_rows(rows, draw)


def pattern_replacement(
    name: str,
    model: Net,
    batch: Batch,
    related: Mapping[str, Bool[Tensor, "batch query key"]],
    labels: Mapping[Head, str],
    *,
    usual: Mapping[str, Bool[Tensor, "query token"]],
    seed: int,
    first: int,
) -> Replacement:
    """Replacement of patterns, by the name of the intervention.

    Args:
        name: Name of the intervention.
        model: Model whose heads are replaced.
        batch: Sequences; a chunk of all.
        related: Related keys of each query, for every kind that is a label.
        labels: Kind that each labelled head is labelled with.
        usual: Tokens at related keys of each query in all sequences, for every kind that is a label (`usual_tokens`).
        seed: Determines the random rows and keys of a sequence, together with its index among all sequences.
        first: Index of the first sequence of the chunk.
    """
    # A head cannot attend to keys that are not visible, related or not
    visible = visible_keys(model.cfg, batch.tokens, batch.attention_mask)
    visible_related = {kind: relation & visible for kind, relation in related.items()}

    # A label describes rows; of heads without one, all rows are replaced by uniform and random ones
    def described_rows(rows: Float[Tensor, "batch query key"]) -> NewRows:
        def new_rows(pattern: Tensor, label: str | None) -> Tensor:
            if label is None:
                return rows.to(pattern)
            described = visible_related[label].any(-1, keepdim=True)
            return torch.where(described, rows.to(pattern), pattern)

        return new_rows

    # Tests of a label leave other heads as they are
    def label_test(rows: Callable[[Tensor, str], Tensor]) -> NewRows:
        return lambda pattern, label: pattern if label is None else rows(pattern, label)

    def wrong_key(pattern: Tensor, label: str) -> Tensor:
        # Keys whose token is at a related key of this query in some sequence, or of any query
        usual_for_query = usual[label][:, batch.tokens].transpose(0, 1)
        usual_for_any_query = usual[label].any(0)[batch.tokens][:, None]
        choices = (usual_for_query, usual_for_any_query)
        return wrong_key_rows(pattern, visible_related[label], visible, choices, random)

    random = visible.double()
    if name in ("random_rows", "wrong_key"):
        random = random_weights(visible, seed, first)
    new_rows: dict[str, NewRows] = {
        "uniform": described_rows(normalised(visible.double(), visible)),
        "random_rows": described_rows(normalised(random, visible)),
        "ideal": label_test(lambda pattern, label: ideal_rows(pattern, visible_related[label])),
        "label_only_pattern": label_test(
            lambda pattern, label: label_only_rows(pattern, visible_related[label], visible)
        ),
        "wrong_key": label_test(wrong_key),
    }
    return _for_each_head(model, labels, new_rows[name])


def _for_each_head(model: Net, labels: Mapping[Head, str], new_rows: NewRows) -> Replacement:
    """The replacement that gives every head its new rows."""

    def new_pattern(layer: int, clean: Float[Tensor, "batch head query key"]) -> Tensor:
        patterns = [new_rows(clean[:, head], labels.get((layer, head))) for head in range(model.cfg.n_heads)]
        return torch.stack(patterns, dim=1)

    return Pattern(new_pattern)


def ideal_rows(
    pattern: Float[Tensor, "batch query key"], related: Bool[Tensor, "batch query key"]
) -> Float[Tensor, "batch query key"]:
    """Attention spread evenly over the related keys."""
    even = related / related.sum(-1, keepdim=True).clamp_min(1)
    return torch.where(related.any(-1, keepdim=True), even.to(pattern), pattern)


def label_only_rows(
    pattern: Float[Tensor, "batch query key"],
    related: Bool[Tensor, "batch query key"],
    visible: Bool[Tensor, "batch query key"],
) -> Float[Tensor, "batch query key"]:
    """Attention to related keys is unchanged; all other attention is spread evenly over the unrelated keys."""
    # Whatever attention is left over goes to unrelated keys, where a row has both
    unrelated = (visible & ~related).to(pattern)
    to_related = pattern * related
    remainder = (1 - to_related.sum(-1, keepdim=True)).clamp_min(0)
    rows = to_related + remainder * unrelated / unrelated.sum(-1, keepdim=True).clamp_min(1)
    has_both = related.any(-1, keepdim=True) & unrelated.any(-1, keepdim=True)
    return torch.where(has_both, rows, pattern)


def usual_tokens(
    tokens: Int[Tensor, "batch key"], related: Bool[Tensor, "batch query key"], d_vocab: int
) -> Bool[Tensor, "query token"]:
    """Tokens that are at a related key of each query in some sequence."""
    sample, query, key = related.nonzero().unbind(1)
    usual = torch.zeros(related.shape[1], d_vocab, dtype=torch.bool)
    usual[query, tokens[sample, key]] = True
    return usual


def wrong_key_rows(
    pattern: Float[Tensor, "batch query key"],
    related: Bool[Tensor, "batch query key"],
    visible: Bool[Tensor, "batch query key"],
    usual: Sequence[Bool[Tensor, "batch #query key"]],
    random: Float[Tensor, "batch query key"],
) -> Float[Tensor, "batch query key"]:
    """All attention on one random key that is not related to the query.

    It is drawn among the usual keys if an unrelated one of these is visible: its content is then of the kind that the
    head usually moves, and only the choice of the key is wrong. Otherwise it is drawn among all unrelated keys.

    Args:
        pattern: Clean pattern of the head.
        related: Related keys of each query, all of them visible.
        visible: Visible keys of each query.
        usual: Usual keys of each query, the narrowest choice first; the first with an unrelated key is used.
        random: Random weights; the key with the largest one is used.
    """
    # From the widest choice to the narrowest, wherever a row has an unrelated key in it
    unrelated = visible & ~related
    candidates = unrelated
    for choice in reversed(usual):
        narrower = unrelated & choice
        candidates = torch.where(narrower.any(-1, keepdim=True), narrower, candidates)
    drawn_key = (random * candidates).argmax(-1, keepdim=True)
    rows = torch.zeros_like(pattern).scatter_(-1, drawn_key, 1)
    has_both = related.any(-1, keepdim=True) & candidates.any(-1, keepdim=True)
    return torch.where(has_both, rows, pattern)


def value_pool(
    runs: Iterable[tuple[slice, Batch, AblationEngine]],
    related: Mapping[str, Bool[Tensor, "sample key"]],
    labels: Mapping[Head, str],
    *,
    seed: int,
) -> ValuePool:
    """Values at keys that are related to some query of their sequence, for each kind and layer of a label.

    Args:
        runs: Chunks of the reference sequences, each with its rows and a clean run.
        related: Keys of these sequences that are related to some query, for every kind that is a label.
        labels: Kind that each head is labelled with.
        seed: Determines which keys are used if there are more than `MOST_POOLED_KEYS`.
    """
    # Draw keys, the same for all layers
    drawn_keys = {}
    for kind in sorted(set(labels.values())):
        keys = related[kind].nonzero()
        order = torch.randperm(len(keys), generator=derived_generator(seed, "related keys", kind))
        drawn_keys[kind] = torch.zeros_like(related[kind])
        drawn_keys[kind][tuple(keys[order[:MOST_POOLED_KEYS]].T)] = True
    # Collect the values of all heads of a layer at these keys
    kinds_by_layer: dict[int, set[str]] = {}
    for (layer, _), kind in labels.items():
        kinds_by_layer.setdefault(layer, set()).add(kind)
    values: dict[tuple[str, int], list[Tensor]] = {}
    for rows, _, engine in runs:
        for layer in sorted(kinds_by_layer):
            _, v = engine.heads(layer).mixed()
            for kind in sorted(kinds_by_layer[layer]):
                values.setdefault((kind, layer), []).append(v[drawn_keys[kind][rows]])
    return {key: torch.cat(chunks) for key, chunks in values.items()}


def resampled_values(
    pool: ValuePool,
    related: Mapping[str, Bool[Tensor, "batch query key"]],
    labels: Mapping[Head, str],
    random: Float[Tensor, "batch key"],
) -> Replacement:
    """Resample the values at related keys from related keys of other sequences; keep the attention pattern.

    Args:
        pool: Values to draw from.
        related: Related keys of each query, for every kind that is a label.
        labels: Kind that each head is labelled with.
        random: Random numbers, at least 0 and below 1, that determine which value each key gets.
    """

    def values_from_pool(layer: int, head: int, label: str) -> Float[Tensor, "batch key width"]:
        values = pool[label, layer][:, head]
        return values[(random * len(values)).long()]

    return _replaced_values(values_from_pool, related, labels)


def _replaced_values(
    new_values: Callable[[int, int, str], Float[Tensor, "batch key width"]],
    related: Mapping[str, Bool[Tensor, "batch query key"]],
    labels: Mapping[Head, str],
) -> Replacement:
    """Replace the values at related keys; keep the attention pattern.

    Args:
        new_values: Values at every key, for a layer, a head of it, and the head's label.
        related: Related keys of each query, for every kind that is a label.
        labels: Kind that each head is labelled with.
    """

    def new_outputs(layer: int, clean: HeadInputs) -> Float[Tensor, "batch pos head width"]:
        outputs = clean.z.clone()
        pattern, v = clean.mixed()
        # Only z changes: the attention to related keys times the change of their values
        label_by_index = {index: label for (label_layer, index), label in labels.items() if label_layer == layer}
        for index, label in label_by_index.items():
            change = new_values(layer, index, label).to(v) - v[:, :, index]
            outputs[:, :, index] += (pattern[:, index] * related[label]) @ change
        return outputs

    return new_outputs


def values_of_partners(
    engine_of: Callable[[Int[Tensor, " batch"]], AblationEngine],
    has_related: Mapping[str, Bool[Tensor, "input key"]],
    related: Mapping[str, Bool[Tensor, "batch query key"]],
    labels: Mapping[Head, str],
    random: Float[Tensor, "batch key"],
    *,
    rows: slice,
    pairing: int,
) -> Replacement:
    """Replace the values at related keys by those at random related keys of the input that a pairing gives.

    Of each kind, the inputs that have related keys are paired among themselves, in their order.

    Args:
        engine_of: Clean run on some inputs, by their indices.
        has_related: Keys of each input that are related to some query, for every kind that is a label; two inputs or
            more have some.
        related: Related keys of each query of the sequences, for every kind that is a label.
        labels: Kind that each head is labelled with.
        random: Random numbers, at least 0 and below 1, that determine which related key replaces each key.
        rows: Indices of the sequences among all inputs.
        pairing: Number of the pairing.
    """
    # Of each kind: the values at one related key of the partner for every key of a sequence
    values: dict[tuple[str, int], Float[Tensor, "batch key head width"]] = {}
    for kind in sorted(set(labels.values())):
        with_keys = has_related[kind].any(1)
        inputs = with_keys.nonzero()[:, 0]
        # The place of each sequence among these inputs; one without related keys may have any partner
        place = (with_keys.cumsum(0) - 1).clamp_min(0)[rows]
        sources = inputs[partners(slice(None), len(inputs), pairing)[place]]
        # Related keys of the source first, in order, of which the random number chooses one
        keys = has_related[kind][sources]
        in_order = keys.int().argsort(dim=1, descending=True, stable=True)
        chosen_key = in_order.gather(1, (random * keys.sum(1, keepdim=True)).long())
        engine = engine_of(sources)
        for layer in {layer for (layer, _), label in labels.items() if label == kind}:
            _, v = engine.heads(layer).mixed()
            values[kind, layer] = v.gather(1, chosen_key[..., None, None].expand(-1, -1, *v.shape[2:]))
    return _replaced_values(lambda layer, head, label: values[label, layer][:, :, head], related, labels)


@dataclass(frozen=True)
class PatternPool:
    """Patterns of labelled heads in reference sequences, and which keys are related to each query there."""

    patterns: Mapping[Head, Float[Tensor, "draw query key"]]
    related: Mapping[str, Bool[Tensor, "draw query key"]]

    @property
    def n_draws(self) -> int:
        """Number of reference sequences."""
        return len(next(iter(self.related.values())))


def described_and_differing(
    related: Bool[Tensor, "batch query key"], in_reference: Bool[Tensor, "draw query key"]
) -> tuple[Bool[Tensor, "batch query"], Bool[Tensor, "batch query"]]:
    """Queries that have related keys, and those that have none of these in some reference sequence.

    Of a kind like the previous token the related key of a query is the same in every sequence.
    """
    differs = torch.zeros(related.shape[:2], dtype=torch.bool)
    for relation in in_reference:
        differs |= ~(relation & related).any(-1)
    return related.any(-1), differs


def pattern_pool(
    runs: Iterable[tuple[slice, Batch, AblationEngine]],
    related: Mapping[str, Bool[Tensor, "draw query key"]],
    labels: Mapping[Head, str],
) -> PatternPool:
    """Patterns of labelled heads in reference sequences.

    Args:
        runs: Chunks of the reference sequences, each with its rows and a clean run.
        related: Related keys of each query of these sequences, for every kind that is a label.
        labels: Kind that each head is labelled with.
    """
    patterns: dict[Head, list[Tensor]] = {head: [] for head in labels}
    for _, _, engine in runs:
        for layer in sorted({layer for layer, _ in labels}):
            pattern, _ = engine.heads(layer).mixed()
            for head in labels:
                if head[0] == layer:
                    patterns[head].append(pattern[:, head[1]])
    return PatternPool({head: torch.cat(chunks) for head, chunks in patterns.items()}, related)


def resampled_pattern(
    pool: PatternPool,
    related: Mapping[str, Bool[Tensor, "batch query key"]],
    visible: Bool[Tensor, "batch query key"],
    labels: Mapping[Head, str],
    draws: Int[Tensor, "batch draw"],
) -> Replacement:
    """Replace the rows that a label describes by those of another sequence in which other keys are related.

    The values stay those of this sequence. A head of whose values any would do loses nothing.

    Args:
        pool: Patterns to draw from.
        related: Related keys of each query, for every kind that is a label.
        visible: Visible keys of each query.
        labels: Kind that each head is labelled with.
        draws: Reference sequences in random order, for each sequence; a row is taken from the first in which its query
            is related to other keys only, or to none.
    """
    # The row that each query gets: index of a reference sequence, or -1 if its related keys are the same in all
    sources = {}
    for kind in set(labels.values()):
        source = torch.full(related[kind].shape[:2], -1)
        for drawn in draws.T:
            differs = ~(pool.related[kind][drawn] & related[kind]).any(-1)
            is_open = (source < 0) & related[kind].any(-1)
            source = torch.where(is_open & differs, drawn[:, None], source)
        sources[kind] = source

    def rows_from_pool(place: Head, label: str) -> tuple[Tensor, Tensor]:
        source = sources[label]
        query = torch.arange(source.shape[1])
        return pool.patterns[place][source.clamp_min(0), query], source >= 0

    return _replaced_rows(rows_from_pool, visible, labels)


def _replaced_rows(
    new_rows: Callable[[Head, str], tuple[Float[Tensor, "batch query key"], Bool[Tensor, "batch query"]]],
    visible: Bool[Tensor, "batch query key"],
    labels: Mapping[Head, str],
) -> Replacement:
    """Replace rows of patterns by those of other sequences.

    Args:
        new_rows: New rows of a head with a label, and which of them replace the clean ones.
        visible: Visible keys of each query.
        labels: Kind that each labelled head is labelled with.
    """

    def new_pattern(layer: int, clean: Float[Tensor, "batch head query key"]) -> Tensor:
        new = clean.clone()
        for place, label in labels.items():
            label_layer, head = place
            if label_layer != layer:
                continue
            # Attention to keys that this sequence does not show is spread over the others, in proportion
            rows, is_new = new_rows(place, label)
            rows = rows.to(clean) * visible
            weight = rows.sum(-1, keepdim=True)
            replaced = is_new[..., None] & (weight > 0)
            new[:, head] = torch.where(replaced, rows / weight.clamp_min(1e-30), clean[:, head])
        return new

    return Pattern(new_pattern)


def pattern_of_partners(
    engine_of: Callable[[Int[Tensor, " batch"]], AblationEngine],
    related_of: Callable[[Int[Tensor, " batch"]], Mapping[str, Bool[Tensor, "batch query key"]]],
    visible: Bool[Tensor, "batch query key"],
    labels: Mapping[Head, str],
    *,
    rows: slice,
    n_inputs: int,
    pairing: int,
) -> Replacement:
    """Replace the rows that a label describes by those of the input that a pairing gives, if other keys are related
    there; else by those of the next pairing for which this is so.

    Args:
        engine_of: Clean run on some inputs, by their indices.
        related_of: Visible related keys of each query of some inputs, for every kind that is a label; all keys for
            queries that are padding.
        visible: Visible keys of each query of the sequences.
        labels: Kind that each labelled head is labelled with.
        rows: Indices of the sequences among all inputs.
        n_inputs: Number of all inputs.
        pairing: Number of the first pairing.
    """
    related_here = related_of(torch.arange(n_inputs)[rows])
    new_rows = {head: torch.zeros(visible.shape) for head in labels}
    is_new = {kind: torch.zeros(visible.shape[:2], dtype=torch.bool) for kind in set(labels.values())}
    for attempt in range(min(POOLED_PATTERNS, n_inputs - 1)):
        is_open = {kind: related_here[kind].any(-1) & ~done for kind, done in is_new.items()}
        if not any(queries.any() for queries in is_open.values()):
            break
        # Queries whose related keys are others in this partner, or none
        sources = partners(rows, n_inputs, pairing + attempt)
        related = related_of(sources)
        differs = {kind: is_open[kind] & ~(related[kind] & related_here[kind]).any(-1) for kind in is_open}
        if any(queries.any() for queries in differs.values()):
            engine = engine_of(sources)
            for (layer, head), kind in labels.items():
                pattern, _ = engine.heads(layer).mixed()
                rows_of_partner = pattern[:, head].to(new_rows[layer, head])
                new_rows[layer, head][differs[kind]] = rows_of_partner[differs[kind]]
        for kind, queries in differs.items():
            is_new[kind] |= queries
    return _replaced_rows(lambda place, label: (new_rows[place], is_new[label]), visible, labels)


def random_orders(n_draws: int, batch: Batch, seed: int, first: int) -> Int[Tensor, "batch draw"]:
    """Reference sequences in random order, for each sequence.

    Args:
        n_draws: Number of reference sequences.
        batch: Sequences; a chunk of all.
        seed: Determines the order of a sequence, together with its index among all sequences.
        first: Index of the first sequence of the chunk.
    """
    generators = [derived_generator(seed, "other patterns", first + index) for index in range(len(batch))]
    return torch.stack([torch.randperm(n_draws, generator=generator) for generator in generators])


def random_numbers(batch: Batch, seed: int, first: int) -> Float[Tensor, "batch key"]:
    """A random number for each key, at least 0 and below 1.

    Args:
        batch: Sequences; a chunk of all.
        seed: Determines the numbers of a sequence, together with its index among all sequences.
        first: Index of the first sequence of the chunk.
    """
    n_keys = batch.tokens.shape[1]
    generators = [derived_generator(seed, "other keys", first + index) for index in range(len(batch))]
    return torch.stack([torch.rand(n_keys, generator=generator, dtype=torch.float32) for generator in generators])
