"""Experiments on heads: the effect of every intervention on every head, and of removing sets of heads."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hooks.interventions.ablation_engine import AblationEngine, Head, Net, every_head
from hooks.interventions.replacements import Replacement
from hooks.model.attention import visible_keys
from interp.auditing.interventions import (
    PAIRED_INTERVENTIONS,
    POOLED_CELLS,
    POOLED_PATTERNS,
    PatternPool,
    ValuePool,
    described_and_differing,
    pattern_of_partners,
    pattern_pool,
    pattern_replacements,
    random_numbers,
    random_orders,
    resampled_pattern,
    resampled_values,
    usual_tokens,
    value_pool,
    values_of_partners,
)
from interp.core.activations import TOKENS_PER_CHUNK, chunks
from interp.core.inputs import number_of_pairings, partners
from interp.core.progress import counted
from interp.core.randomness import derived_seed
from interp.heads.ablation_methods import (
    REMOVALS,
    ReplacementOf,
    reference_batch,
    replacements,
    replacements_on_all,
)
from interp.heads.kinds import PackedRelations, kinds_of, related_keys, sequences_at_once
from interp.tasks.base import Batch, Score, Task

CleanRun = tuple[Batch, slice, AblationEngine]
"""A chunk of the sequences, its rows among all of them, and the clean run from which interventions are computed."""


MOST_KEPT = 2**26
"""Most activations of clean runs that are kept: a quarter of a gigabyte in single precision."""


@dataclass(frozen=True)
class Effects:
    """Effects of interventions on heads, or on sets of heads, sequence by sequence."""

    total: Float[np.ndarray, "sample outcome"]
    """Answers scored."""
    drop: Mapping[str, Float[np.ndarray, "sample _ outcome"]]
    """Right answers lost under each intervention on each head or set; NaN where it was not tried."""
    every_input: bool = False
    """Whether the sequences are every input of the task, so that effects have no sampling error."""

    @property
    def n_sequences(self) -> int:
        """Number of sequences."""
        return len(self.total)

    def mean(self, name: str) -> Float[np.ndarray, "head outcome"]:
        """Accuracy lost under an intervention."""
        return self.drop[name].sum(0) / np.maximum(self.total.sum(0), 1e-300)

    def on(self, outcomes: Sequence[int]) -> "Effects":
        """The effects on some of the outcomes."""
        drop = {name: drop[:, :, outcomes] for name, drop in self.drop.items()}
        return Effects(self.total[:, outcomes], drop, self.every_input)

    def __or__(self, effects: "Effects") -> "Effects":
        """Effects of these and other interventions on the same sequences."""
        return Effects(self.total, {**self.drop, **effects.drop}, self.every_input)

    def with_heads_of(self, effects: "Effects") -> "Effects":
        """These effects, with others in the place of those on the heads that the others were tried on."""
        drop = dict(self.drop)
        for name, values in effects.drop.items():
            drop[name] = np.where(np.isfinite(values), values, drop[name])
        return Effects(self.total, drop, self.every_input)

    def followed_by(self, later: "Effects") -> "Effects":
        """Effects on these and further sequences; NaN where an intervention was not tried on the further ones."""
        drop = {}
        for name, values in self.drop.items():
            further = later.drop.get(name, np.full((later.n_sequences, *values.shape[1:]), np.nan))
            drop[name] = np.concatenate([values, further])
        return Effects(np.concatenate([self.total, later.total]), drop)

    def n(self, name: str) -> np.ndarray:
        """Number of sequences on which an intervention was tried on each head or set."""
        return np.isfinite(self.drop[name]).all(-1).sum(0)


@dataclass(frozen=True, eq=False)
class HeadExperiments:
    """Interventions on the heads of one model on one batch, which is run in chunks."""

    model: Net
    task: Task
    batch: Batch
    seed: int
    """Determines references and random rows."""
    first: int = 0
    """Number of sequences in earlier batches; with it, random draws differ from those for earlier batches."""
    inputs: Batch | None = None
    """Every input of the task, if the audit is about all of them; the batch has the first of them, or all. Means are
    then over these inputs, and what is drawn for each sequence is averaged over a fixed family of pairings."""
    chosen: tuple[Head, ...] | None = None
    """The heads to intervene on, in the order of the model; if None, all."""

    @property
    def heads(self) -> list[Head]:
        """The heads to intervene on."""
        return every_head(self.model) if self.chosen is None else list(self.chosen)

    @cached_property
    def score(self) -> Score:
        """Score of the unchanged model on each sequence."""
        scores = [self.task.score(engine.logits, chunk) for chunk, _, engine in self._clean_runs()]
        fields = {}
        for name in ("right", "loss", "total"):
            fields[name] = torch.cat([getattr(score, name) for score in scores])
        return Score(**fields)

    @property
    def logits(self) -> Float[Tensor, "batch target d_vocab_out"]:
        """Outputs of the unchanged model at the targets."""
        return torch.cat([engine.logits for _, _, engine in self._clean_runs()])

    def effects(
        self, interventions: Sequence[str], labels: Mapping[Head, str], heads: Collection[Head] | None = None
    ) -> Effects:
        """Apply each intervention to each head, one head at a time.

        Args:
            interventions: Names from `INTERVENTIONS`.
            labels: Kind that each labelled head is labelled with: decides which rows of its pattern are replaced.
            heads: Heads to intervene on; if None, all. Interventions that test a label need labelled heads, and
                `resampled_pattern` a kind whose keys are others in other sequences.
        """
        total = self.score.total.double().numpy()
        shape = (len(self.batch), len(self.heads), total.shape[1])
        drop = {name: np.full(shape, np.nan) for name in interventions}
        if heads is not None and not heads:
            return Effects(total, drop, self.inputs is not None)

        # Heads of which there are other sequences with other related keys, or with related keys at all
        tried = dict.fromkeys(interventions, self.heads if heads is None else list(heads))
        if "resampled_pattern" in interventions:
            varying = self._heads_of_varying_kinds(labels)
            tried["resampled_pattern"] = [head for head in tried["resampled_pattern"] if head in varying]
        if "resampled_values" in interventions and self.inputs is not None:
            several = self._kinds_of_several_inputs(labels)
            tried["resampled_values"] = [head for head in tried["resampled_values"] if labels.get(head) in several]

        # From one clean run of a chunk, run every intervention on every head; what is drawn, for each pairing
        n_pairings = 1 if self.inputs is None else number_of_pairings(len(self.inputs))
        replacements_on = self._replacements(interventions, labels)
        n_chunks = -(-len(self.batch) // self._chunk_size)
        for chunk, rows, engine in counted("replacing heads", self._clean_runs(), total=n_chunks):
            right = self.task.score(engine.logits, chunk).right.double()
            for pairing in range(n_pairings):
                names = [name for name in interventions if pairing == 0 or name in PAIRED_INTERVENTIONS]
                new = replacements_on(chunk, rows, pairing, [name for name in names if tried[name]])
                for name in names:
                    n_draws = n_pairings if name in PAIRED_INTERVENTIONS else 1
                    for head, logits in engine.each_head(new[name], tried[name]) if tried[name] else ():
                        right_after = self.task.score(logits, chunk).right.double()
                        index = self.heads.index(head)
                        lost_so_far = drop[name][rows, index] if pairing else 0
                        drop[name][rows, index] = lost_so_far + (right - right_after).numpy() / n_draws
        return Effects(total, drop, self.inputs is not None)

    def removed(self, sets: Sequence[Sequence[Head]]) -> Float[np.ndarray, "sample set outcome"]:
        """Right answers lost when all heads of a set are replaced by their means, for each set."""
        drop = np.zeros((len(self.batch), len(sets), len(self.task.outcomes)))
        # A set may be asked for in several orders of its heads; it is removed once
        indices_of_set: dict[tuple[Head, ...], list[int]] = {}
        for index, heads in enumerate(sets):
            indices_of_set.setdefault(tuple(sorted(set(heads))), []).append(index)
        for chunk, rows, engine in self._clean_runs() if sets else ():
            right = self.task.score(engine.logits, chunk).right.double()
            for heads, logits in engine.each_set(sets, self._mean(rows)):
                right_after = self.task.score(logits, chunk).right.double()
                for index in indices_of_set[heads]:
                    drop[rows, index] = (right - right_after).numpy()
        return drop

    def effect_products(self) -> Float[np.ndarray, "head head"]:
        """Inner products of the changes of the logits when single heads are replaced by their means.

        Each change is centred over the possible answers, since a constant added to all logits changes no answer.
        """
        products = np.zeros((len(self.heads), len(self.heads)))
        for _, rows, engine in self._clean_runs():
            changes = [logits - engine.logits for _, logits in engine.each_head(self._mean(rows), self.chosen)]
            change = torch.stack(changes).double()
            change = (change - change.mean(-1, keepdim=True)).flatten(1)
            products += (change @ change.T).numpy()
        return products

    @property
    def _chunk_size(self) -> int:
        return max(1, TOKENS_PER_CHUNK // self.batch.tokens.shape[1])

    def _clean_runs(self) -> Iterable[CleanRun]:
        """The clean run of every chunk, kept for further calls if all of them are small enough."""
        batch, pos = self.batch.tokens.shape
        cfg = self.model.cfg
        activations_of_token = cfg.n_layers * (3 * cfg.d_model + cfg.n_heads * pos)
        return self._kept_runs if batch * pos * activations_of_token <= MOST_KEPT else self._run()

    @cached_property
    def _kept_runs(self) -> list[CleanRun]:
        return list(self._run())

    def _run(self) -> Iterator[CleanRun]:
        size = self._chunk_size
        for index, chunk in enumerate(chunks(self.batch, size)):
            rows = slice(index * size, index * size + len(chunk))
            inputs: Any = chunk.model_inputs()
            engine = AblationEngine(self.model, chunk.tokens, read_at=chunk.target_positions, **inputs)
            yield chunk, rows, engine

    def _replacements(
        self, interventions: Sequence[str], labels: Mapping[Head, str]
    ) -> Callable[[Batch, slice, int, Sequence[str]], dict[str, Replacement]]:
        """Function that returns replacements on a chunk: from it, its rows, the number of a pairing, and the names of
        interventions."""
        if self.inputs is not None:
            return self._replacements_on_all(labels)
        # What depends on all sequences: relations, usual tokens, references, and values to draw from
        kinds = sorted(set(labels.values()))
        relations = PackedRelations.of(self.task, self.batch, kinds).on
        usual = self._usual_tokens(kinds)
        removals = {name: self._removal(name) for name in REMOVALS if name in interventions}
        values = self._value_pool(labels) if "resampled_values" in interventions else None
        patterns = self._pattern_pool(labels) if "resampled_pattern" in interventions else None

        def replacements_on(chunk: Batch, rows: slice, pairing: int, names: Sequence[str]) -> dict[str, Replacement]:
            related = dict(zip(kinds, relations(rows).unbind(1), strict=True))
            first = self.first + rows.start
            new = pattern_replacements(self.model, chunk, related, labels, usual=usual, seed=self.seed, first=first)
            new |= {name: removal(rows) for name, removal in removals.items()}
            if values is not None:
                random = random_numbers(chunk, self.seed, first)
                new["resampled_values"] = resampled_values(values, related, labels, random)
            if patterns is not None:
                visible = visible_keys(self.model.cfg, chunk.tokens, chunk.attention_mask)
                draws = random_orders(patterns.n_draws, chunk, self.seed, first)
                new["resampled_pattern"] = resampled_pattern(patterns, related, visible, labels, draws)
            return new

        return replacements_on

    def _replacements_on_all(
        self, labels: Mapping[Head, str]
    ) -> Callable[[Batch, slice, int, Sequence[str]], dict[str, Replacement]]:
        """As `_replacements`, where the audit is about every input."""
        # What depends on all inputs: relations, usual tokens, and removals
        kinds = sorted(set(labels.values()))
        relations = self._relations_of_inputs(kinds)
        usual = self._usual_tokens(kinds)
        removals = self._removals_on_all
        keys_with_query = self._keys_with_query(kinds)
        several = self._kinds_of_several_inputs(labels)
        labels_of_several = {head: kind for head, kind in labels.items() if kind in several}

        def engine_of(sources: Int[Tensor, " batch"]) -> AblationEngine:
            chunk = self._inputs.select(sources)
            inputs: Any = chunk.model_inputs()
            return AblationEngine(self.model, chunk.tokens, read_at=chunk.target_positions, **inputs)

        def replacements_on(chunk: Batch, rows: slice, pairing: int, names: Sequence[str]) -> dict[str, Replacement]:
            # Draws of this pairing, the same for every seed of the audit
            seed = derived_seed(0, "pairing", pairing)
            related = dict(zip(kinds, relations.on(rows).unbind(1), strict=True))
            new = pattern_replacements(self.model, chunk, related, labels, usual=usual, seed=seed, first=rows.start)
            new |= {name: removals[name][pairing](rows) for name in REMOVALS if name in names}
            place = {"rows": rows, "pairing": pairing}
            if "resampled_values" in names:
                random = random_numbers(chunk, seed, rows.start)
                new["resampled_values"] = values_of_partners(
                    engine_of, keys_with_query, related, labels_of_several, random, **place
                )
            if "resampled_pattern" in names:
                visible = visible_keys(self.model.cfg, chunk.tokens, chunk.attention_mask)
                related_of = partial(self._related_in_inputs, kinds)
                new["resampled_pattern"] = pattern_of_partners(
                    engine_of, related_of, visible, labels, n_inputs=len(self._inputs), **place
                )
            return new

        return replacements_on

    @property
    def _inputs(self) -> Batch:
        """Every input, in an audit about all of them."""
        assert self.inputs is not None
        return self.inputs

    @cached_property
    def _removals_on_all(self) -> dict[str, list[ReplacementOf]]:
        return {name: replacements_on_all(name, self.model, self.task, self._inputs) for name in REMOVALS}

    def _relations_of_inputs(self, kinds: Sequence[str]) -> PackedRelations:
        """Relations of every input, which are computed once for the same kinds."""
        key = tuple(kinds)
        if key not in self._stored_relations:
            self._stored_relations[key] = PackedRelations.of(self.task, self._inputs, kinds)
        return self._stored_relations[key]

    @cached_property
    def _stored_relations(self) -> dict[tuple[str, ...], PackedRelations]:
        return {}

    def _related_in_inputs(
        self, kinds: Sequence[str], sources: Int[Tensor, " batch"]
    ) -> dict[str, Bool[Tensor, "batch query key"]]:
        """Visible related keys of each query of some inputs, for each kind; all keys for queries that are padding."""
        batch = self._inputs.select(sources)
        related = self._relations_of_inputs(kinds).on(sources.numpy())
        related &= visible_keys(self.model.cfg, batch.tokens, batch.attention_mask)[:, None]
        if batch.attention_mask is not None:
            related |= ~batch.attention_mask.bool()[:, None, :, None]
        return dict(zip(kinds, related.unbind(1), strict=True))

    def _keys_with_query(self, kinds: Sequence[str]) -> dict[str, Bool[Tensor, "input key"]]:
        """Keys of every input that are related to some query, for each kind."""
        relations = self._relations_of_inputs(kinds)
        keys = []
        for start in range(0, len(self._inputs), self._chunk_size):
            keys.append(relations.on(slice(start, start + self._chunk_size)).any(2))
        return dict(zip(kinds, torch.cat(keys).unbind(1), strict=True))

    def _kinds_of_several_inputs(self, labels: Mapping[Head, str]) -> set[str]:
        """Kinds of labels for which two inputs or more have related keys, so that values can be exchanged."""
        keys_with_query = self._keys_with_query(sorted(set(labels.values())))
        return {kind for kind, keys in keys_with_query.items() if keys.any(1).sum() > 1}

    def _removal(self, method: str) -> ReplacementOf:
        if method == "mean":  # also the removal of sets; its references are computed once
            return self._mean
        return replacements(method, self.model, self.task, self.batch, seed=self.seed, first=self.first)

    @cached_property
    def _mean(self) -> ReplacementOf:
        if self.inputs is not None:
            return self._removals_on_all["mean"][0]
        return replacements("mean", self.model, self.task, self.batch, seed=self.seed, first=self.first)

    def _value_pool(self, labels: Mapping[Head, str]) -> ValuePool:
        """Values at related keys of reference sequences, for each kind and layer of a label."""
        # Keys of reference sequences that are related to some query, then the values of a clean run there
        batch = reference_batch(self.task, self.seed)
        kinds = kinds_of(self.task, batch, sorted(set(labels.values())))
        to_some_query = []
        for chunk in chunks(batch, sequences_at_once(batch)):
            to_some_query.append(related_keys(self.task, chunk, kinds).any(2))
        related = dict(zip(kinds, torch.cat(to_some_query).unbind(1), strict=True))
        reference = HeadExperiments(self.model, self.task, batch, self.seed)
        return value_pool(reference._run(), related, labels, seed=self.seed)

    @cached_property
    def _pattern_reference(self) -> Batch:
        """The sequences from which patterns are drawn."""
        batch = reference_batch(self.task, self.seed)
        cells = len(self.heads) * batch.tokens.shape[1] ** 2
        return batch.select(slice(max(2, min(POOLED_PATTERNS, POOLED_CELLS // cells))))

    def _related_in_reference(self, kinds: Sequence[str]) -> dict[str, Bool[Tensor, "draw query key"]]:
        """Visible related keys of each query in the sequences from which patterns are drawn, for each kind.

        Queries that are padding count as related to all keys, so that no row is drawn from behind the end of a
        sequence.
        """
        batch = self._pattern_reference
        visible = visible_keys(self.model.cfg, batch.tokens, batch.attention_mask)
        names = kinds_of(self.task, batch, kinds)
        related = related_keys(self.task, batch, names) & visible[:, None]
        if batch.attention_mask is not None:
            related |= ~batch.attention_mask.bool()[:, None, :, None]
        return dict(zip(names, related.unbind(1), strict=True))

    def _pattern_pool(self, labels: Mapping[Head, str]) -> PatternPool:
        """Patterns of labelled heads in reference sequences."""
        related = self._related_in_reference(sorted(set(labels.values())))
        reference = HeadExperiments(self.model, self.task, self._pattern_reference, self.seed)
        return pattern_pool(reference._run(), related, labels)

    def _heads_of_varying_kinds(self, labels: Mapping[Head, str]) -> set[Head]:
        """Labelled heads whose related keys differ between sequences, for at least half of the described queries."""
        kinds = sorted(set(labels.values()))
        relations = PackedRelations.of(self.task, self.batch, kinds)
        in_reference = self._related_in_reference(kinds) if kinds and self.inputs is None else {}
        n_described, n_varying = dict.fromkeys(kinds, 0), dict.fromkeys(kinds, 0)
        for start in range(0, len(self.batch), self._chunk_size):
            rows = slice(start, start + self._chunk_size)
            for kind, relation in zip(kinds, relations.on(rows).unbind(1), strict=True):
                if self.inputs is None:
                    described, differs = described_and_differing(relation, in_reference[kind])
                else:
                    described, differs = relation.any(-1), self._differs_in_some_partner(kind, rows)
                n_described[kind] += int(described.sum())
                n_varying[kind] += int((described & differs).sum())
        return {head for head, kind in labels.items() if 2 * n_varying[kind] >= n_described[kind] > 0}

    def _differs_in_some_partner(self, kind: str, rows: slice) -> Bool[Tensor, "batch query"]:
        """Queries whose related keys are others, or none, in one of the inputs that they are paired with."""
        n_inputs = len(self._inputs)
        related_here = self._related_in_inputs([kind], torch.arange(n_inputs)[rows])[kind]
        differs = torch.zeros(related_here.shape[:2], dtype=torch.bool)
        for pairing in range(min(POOLED_PATTERNS, n_inputs - 1)):
            related = self._related_in_inputs([kind], partners(rows, n_inputs, pairing))[kind]
            differs |= ~(related & related_here).any(-1)
        return differs

    def _usual_tokens(self, kinds: Sequence[str]) -> dict[str, Bool[Tensor, "query token"]]:
        """Tokens at related keys of each query in the whole batch, for each kind."""
        pos, n_tokens = self.batch.tokens.shape[1], int(self.batch.tokens.max()) + 1
        usual = {kind: torch.zeros(pos, n_tokens, dtype=torch.bool) for kind in kinds}
        if kinds:
            kinds_of(self.task, self.batch, kinds)  # raises an error if the whole batch lacks a relation
        for chunk in chunks(self.batch, sequences_at_once(self.batch)):
            for kind, relation in zip(kinds, related_keys(self.task, chunk, kinds).unbind(1), strict=True):
                usual[kind] |= usual_tokens(chunk.tokens, relation, n_tokens)
        return usual


def check_relations(model: Net, task: Task, batch: Batch) -> None:
    """Check that the task has a relation which attention of the model can follow.

    Raises:
        ValueError: a task without registered kinds, or none whose related keys are visible.
    """
    kinds = kinds_of(task, batch)
    if not kinds:
        raise ValueError("this task has none of the registered kinds; register one with interp.heads.register_kind.")
    for chunk in chunks(batch, sequences_at_once(batch)):
        visible = visible_keys(model.cfg, chunk.tokens, chunk.attention_mask)
        if (related_keys(task, chunk, kinds) & visible[:, None]).any():
            return
    raise ValueError(
        f"none of the task's relations ({', '.join(kinds)}) reaches a key that is visible to the model, whose "
        f"attention is {model.cfg.attention}. Register one with interp.heads.register_kind."
    )
