"""Experiments on heads: the effect of every intervention on every head, and of removing sets of heads."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hooks.interventions.ablation_engine import AblationEngine, Head, every_head
from hooks.interventions.clean_pass import Net
from hooks.interventions.replacements import Replacement
from hooks.model.attention import visible_keys
from interp.auditing.interventions import (
    PAIRED_INTERVENTIONS,
    POOLED_CELLS,
    POOLED_PATTERNS,
    OfLabels,
    OnRows,
    PatternPool,
    ValuePool,
    described_and_differing,
    pattern_of_partners,
    pattern_pool,
    pattern_replacement,
    random_numbers,
    random_orders,
    resampled_pattern,
    resampled_values,
    usual_tokens,
    value_pool,
    values_of_partners,
)
from interp.core.activations import chunks
from interp.core.inputs import partners
from interp.core.sample import Sample
from interp.heads.experiment import CleanRun, Edit, Experiment
from interp.heads.interventions import OF_PARTS, HeadIntervention
from interp.heads.kinds import PackedRelations, kinds_of, related_keys, sequences_at_once
from interp.tasks.base import Batch, Score, Task

MEAN = OF_PARTS["mean"]
RelatedOn = Callable[[slice], Mapping[str, Bool[Tensor, "batch query key"]]]
"""Related keys of each query on some rows of the sample, for every kind that is a label."""


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
    """Interventions on the heads of one model on one sample."""

    model: Net
    sample: Sample
    chosen: tuple[Head, ...] | None = None
    """The heads to intervene on, in the order of the model; if None, all."""
    further: Mapping[str, HeadIntervention] = field(default_factory=dict)
    """Interventions of the caller's, by name."""

    @property
    def task(self) -> Task:
        """The task of the sample."""
        return self.sample.task

    @property
    def batch(self) -> Batch:
        """The sequences of the sample."""
        return self.sample.batch

    @property
    def heads(self) -> list[Head]:
        """The heads to intervene on."""
        return every_head(self.model) if self.chosen is None else list(self.chosen)

    @cached_property
    def experiment(self) -> Experiment:
        """Edits of the model on the sample, from clean runs that are kept."""
        return Experiment(self.model, self.sample, measures=("right",), keeps_runs=True)

    @cached_property
    def score(self) -> Score:
        """Score of the unchanged model on each sequence."""
        scores = [self.task.score(engine.logits, chunk) for _, chunk, engine in self.experiment.clean_runs()]
        fields = {}
        for name in ("right", "loss", "total"):
            fields[name] = torch.cat([getattr(score, name) for score in scores])
        return Score(**fields)

    @property
    def logits(self) -> Float[Tensor, "batch target d_vocab_out"]:
        """Outputs of the unchanged model at the targets."""
        return torch.cat([engine.logits for _, _, engine in self.experiment.clean_runs()])

    def effects(
        self, interventions: Sequence[str], labels: Mapping[Head, str], heads: Collection[Head] | None = None
    ) -> Effects:
        """Apply each intervention to each head, one head at a time.

        Args:
            interventions: Names from `INTERVENTIONS`, or of `further`.
            labels: Kind that each labelled head is labelled with: decides which rows of its pattern are replaced.
            heads: Heads to intervene on; if None, all. Interventions that test a label need labelled heads, and
                `resampled_pattern` a kind whose keys are others in other sequences.
        """
        total = self.score.total.double().numpy()
        shape = (len(self.batch), len(self.heads), total.shape[1])
        drop = {name: np.full(shape, np.nan) for name in interventions}
        if heads is not None and not heads:
            return Effects(total, drop, self.sample.exact)

        # Heads of which there are other sequences with other related keys, or with related keys at all
        tried = dict.fromkeys(interventions, self.heads if heads is None else list(heads))
        if "resampled_pattern" in interventions:
            varying = self._heads_of_varying_kinds(labels)
            tried["resampled_pattern"] = [head for head in tried["resampled_pattern"] if head in varying]
        if "resampled_values" in interventions and self.sample.exact:
            several = self._kinds_of_several_inputs(labels)
            tried["resampled_values"] = [head for head in tried["resampled_values"] if labels.get(head) in several]

        # Each head alone, under each intervention
        by_name = self._interventions([name for name in interventions if tried[name]], labels)
        edits = [Edit((head,), by_name[name]) for name in by_name for head in tried[name]]
        lost = iter(self.experiment.run(edits, name="replacing heads").lost[:, :, 0].swapaxes(0, 1))
        for name in by_name:
            for head in tried[name]:
                drop[name][:, self.heads.index(head)] = next(lost)
        return Effects(total, drop, self.sample.exact)

    def removed(self, sets: Sequence[Sequence[Head]]) -> Float[np.ndarray, "sample set outcome"]:
        """Right answers lost when all heads of a set are replaced by their means, for each set."""
        return self.experiment.run([Edit(tuple(heads), MEAN) for heads in sets]).lost[:, :, 0]

    def effect_products(self) -> Float[np.ndarray, "head head"]:
        """Inner products of the changes of the logits when single heads are replaced by their means."""
        products = np.zeros((len(self.heads), len(self.heads)))
        for rows, _, engine in self.experiment.clean_runs():
            mean = MEAN.replacement(self.experiment.references, rows, 0)
            changes = [logits - engine.logits for _, logits in engine.each_head(mean, self.chosen)]
            products += inner_products(torch.stack(changes))
        return products

    def check_relations(self) -> None:
        """Check that the task has a relation which attention of the model can follow.

        Raises:
            ValueError: a task without registered kinds, or none whose related keys are visible.
        """
        kinds = kinds_of(self.task, self.batch)
        if not kinds:
            raise ValueError(
                "this task has none of the registered kinds; register one with interp.heads.register_kind."
            )
        for chunk in chunks(self.batch, sequences_at_once(self.batch)):
            visible = visible_keys(self.model.cfg, chunk.tokens, chunk.attention_mask)
            if (related_keys(self.task, chunk, kinds) & visible[:, None]).any():
                return
        raise ValueError(
            f"none of the task's relations ({', '.join(kinds)}) reaches a key that is visible to the model, whose "
            f"attention is {self.model.cfg.attention}. Register one with interp.heads.register_kind."
        )

    def _interventions(self, names: Sequence[str], labels: Mapping[Head, str]) -> dict[str, HeadIntervention]:
        """Interventions by name; those on patterns and values depend on the labels."""
        kinds = sorted(set(labels.values()))
        relations = self._relations(kinds)
        usual = self._usual_tokens(kinds)

        def related_on(rows: slice) -> dict[str, Bool[Tensor, "batch query key"]]:
            return dict(zip(kinds, relations.on(rows).unbind(1), strict=True))

        def new_pattern(rows: slice, draw: int, *, name: str) -> Replacement:
            place = {"seed": self.sample.draw_seed(draw), "first": self.sample.first + rows.start}
            chunk = self.batch.select(rows)
            return pattern_replacement(name, self.model, chunk, related_on(rows), labels, usual=usual, **place)

        by_name: dict[str, HeadIntervention] = {}
        for name in names:
            if name in OF_PARTS:
                by_name[name] = OF_PARTS[name]
            elif name in self.further:
                by_name[name] = self.further[name]
            elif name == "resampled_values":
                by_name[name] = OfLabels(name, True, self._new_values(labels, related_on))
            elif name == "resampled_pattern":
                by_name[name] = OfLabels(name, True, self._patterns_of_others(labels, related_on))
            else:
                by_name[name] = OfLabels(name, name in PAIRED_INTERVENTIONS, partial(new_pattern, name=name))
        return by_name

    def _new_values(self, labels: Mapping[Head, str], related_on: RelatedOn) -> OnRows:
        """Replacement of the values at related keys: from a pool, or from the partners of every input."""
        if not self.sample.exact:
            pool = self._value_pool(labels)

            def of_pool(rows: slice, draw: int) -> Replacement:
                random = random_numbers(self.batch.select(rows), self.sample.seed, self.sample.first + rows.start)
                return resampled_values(pool, related_on(rows), labels, random)

            return of_pool
        keys_with_query = self._keys_with_query(sorted(set(labels.values())))
        several = self._kinds_of_several_inputs(labels)
        labels_of_several = {head: kind for head, kind in labels.items() if kind in several}

        def of_partners(rows: slice, draw: int) -> Replacement:
            random = random_numbers(self.batch.select(rows), self.sample.draw_seed(draw), rows.start)
            place = {"rows": rows, "pairing": draw}
            return values_of_partners(
                self._engine_of, keys_with_query, related_on(rows), labels_of_several, random, **place
            )

        return of_partners

    def _patterns_of_others(self, labels: Mapping[Head, str], related_on: RelatedOn) -> OnRows:
        """Replacement of the rows that a label describes: from a pool, or from the partners of every input."""
        kinds = sorted(set(labels.values()))
        pool = None if self.sample.exact else self._pattern_pool(labels)

        def of_others(rows: slice, draw: int) -> Replacement:
            chunk = self.batch.select(rows)
            visible = visible_keys(self.model.cfg, chunk.tokens, chunk.attention_mask)
            if pool is not None:
                draws = random_orders(pool.n_draws, chunk, self.sample.seed, self.sample.first + rows.start)
                return resampled_pattern(pool, related_on(rows), visible, labels, draws)
            related_of = partial(self._related_in_inputs, kinds)
            place = {"rows": rows, "pairing": draw, "n_inputs": len(self._inputs)}
            return pattern_of_partners(self._engine_of, related_of, visible, labels, **place)

        return of_others

    def _engine_of(self, sources: Int[Tensor, " batch"]) -> AblationEngine:
        """Clean run on some of every input."""
        chunk = self._inputs.select(sources)
        inputs: Any = chunk.model_inputs()
        return AblationEngine(self.model, chunk.tokens, read_at=chunk.target_positions, **inputs)

    @property
    def _inputs(self) -> Batch:
        """Every input in an audit about all of them, else the sequences."""
        return self.sample.reference if self.sample.exact else self.batch

    def _relations(self, kinds: Sequence[str]) -> PackedRelations:
        """Relations of `_inputs`, which are computed once for the same kinds."""
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
        related = self._relations(kinds).on(sources.numpy())
        related &= visible_keys(self.model.cfg, batch.tokens, batch.attention_mask)[:, None]
        if batch.attention_mask is not None:
            related |= ~batch.attention_mask.bool()[:, None, :, None]
        return dict(zip(kinds, related.unbind(1), strict=True))

    def _keys_with_query(self, kinds: Sequence[str]) -> dict[str, Bool[Tensor, "input key"]]:
        """Keys of every input that are related to some query, for each kind."""
        relations, size = self._relations(kinds), self.experiment.size
        keys = []
        for start in range(0, len(self._inputs), size):
            keys.append(relations.on(slice(start, start + size)).any(2))
        return dict(zip(kinds, torch.cat(keys).unbind(1), strict=True))

    def _kinds_of_several_inputs(self, labels: Mapping[Head, str]) -> set[str]:
        """Kinds of labels for which two inputs or more have related keys, so that values can be exchanged."""
        keys_with_query = self._keys_with_query(sorted(set(labels.values())))
        return {kind for kind, keys in keys_with_query.items() if keys.any(1).sum() > 1}

    def _value_pool(self, labels: Mapping[Head, str]) -> ValuePool:
        """Values at related keys of reference sequences, for each kind and layer of a label."""
        # Keys of reference sequences that are related to some query, then the values of a clean run there
        batch = self.sample.reference
        kinds = kinds_of(self.task, batch, sorted(set(labels.values())))
        to_some_query = []
        for chunk in chunks(batch, sequences_at_once(batch)):
            to_some_query.append(related_keys(self.task, chunk, kinds).any(2))
        related = dict(zip(kinds, torch.cat(to_some_query).unbind(1), strict=True))
        return value_pool(self._runs_of_others(batch), related, labels, seed=self.sample.seed)

    @cached_property
    def _pattern_reference(self) -> Batch:
        """The sequences from which patterns are drawn."""
        batch = self.sample.reference
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
        return pattern_pool(self._runs_of_others(self._pattern_reference), related, labels)

    def _runs_of_others(self, batch: Batch) -> Iterable[CleanRun]:
        """Clean runs on other sequences."""
        return Experiment(self.model, Sample(self.task, batch, self.sample.seed)).clean_runs()

    def _heads_of_varying_kinds(self, labels: Mapping[Head, str]) -> set[Head]:
        """Labelled heads whose related keys differ between sequences, for at least half of the described queries."""
        kinds = sorted(set(labels.values()))
        relations = self._relations(kinds)
        in_reference = self._related_in_reference(kinds) if kinds and not self.sample.exact else {}
        n_described, n_varying = dict.fromkeys(kinds, 0), dict.fromkeys(kinds, 0)
        for rows, _ in self.sample.chunks(self.experiment.size):
            for kind, relation in zip(kinds, relations.on(rows).unbind(1), strict=True):
                if not self.sample.exact:
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


def inner_products(changes: Float[Tensor, "head batch read d_vocab_out"]) -> Float[np.ndarray, "head head"]:
    """Inner products of changes of the logits.

    Each change is centred over the possible answers, since a constant added to all logits changes no answer.
    """
    centred = changes.double()
    centred = (centred - centred.mean(-1, keepdim=True)).flatten(1)
    return (centred @ centred.T).cpu().numpy()
