"""Ablation and pattern replacement of every head, and of sets of heads."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from hooks.interventions.ablation_engine import AblationEngine, Head, Net, every_head
from interp.auditing.contents import Pool, other_read, random_numbers, values_at_related_keys
from interp.auditing.interventions import LABEL_PATTERNS, PATTERNS, new_patterns, usual_tokens
from interp.core.activations import chunks
from interp.core.progress import counted
from interp.heads.kinds import kinds_of, related_keys, relations_by_rows, sequences_at_once
from interp.heads.methods import REMOVALS, ReplacementOf, reference_batch, replacements
from interp.tasks.base import Batch, Score, Task

TOKENS_PER_CHUNK = 1536
READINGS = (*LABEL_PATTERNS, "other_read")
"""Interventions that test a label."""
INTERVENTIONS = (*REMOVALS, *PATTERNS, "other_read")


@dataclass(frozen=True)
class Effects:
    """Effects of every intervention on every head, sequence by sequence."""

    total: Float[np.ndarray, "sample outcome"]
    """Answers scored."""
    drop: Mapping[str, Float[np.ndarray, "sample head outcome"]]
    """Right answers lost, by intervention; NaN where it was not tried."""

    def mean(self, name: str) -> Float[np.ndarray, "head outcome"]:
        """Accuracy lost under an intervention."""
        return self.drop[name].sum(0) / np.maximum(self.total.sum(0), 1e-300)

    def on(self, outcomes: Sequence[int]) -> "Effects":
        """The effects on some of the outcomes."""
        return Effects(self.total[:, outcomes], {name: drop[:, :, outcomes] for name, drop in self.drop.items()})


@dataclass
class HeadExperiments:
    """Interventions on the heads of one model on one batch, which is run in parts."""

    model: Net
    task: Task
    batch: Batch
    seed: int
    """Determines references and random rows."""
    keep: bool = False
    """Keep the clean run of every part for further calls; the batch must be small."""
    first: int = 0
    """Number of sequences in earlier batches; with it, the draws for this batch are others than for those."""

    _removals: dict[str, ReplacementOf] = field(init=False, default_factory=dict)
    _values: dict[tuple[str, int], Tensor] = field(init=False, default_factory=dict)

    @property
    def heads(self) -> list[Head]:
        """All heads of the model."""
        return every_head(self.model)

    def _removal(self, method: str) -> ReplacementOf:
        if method not in self._removals:  # references are drawn once
            self._removals[method] = replacements(
                method, self.model, self.task, self.batch, seed=self.seed, first=self.first
            )
        return self._removals[method]

    def _pool(self, labels: Mapping[Head, str]) -> Pool:
        """Values at related keys of other sequences, for each kind and layer of a label."""
        missing = {head: kind for head, kind in labels.items() if (kind, head[0]) not in self._values}
        if missing:
            batch = reference_batch(self.task, self.seed)
            kinds = kinds_of(self.task, batch, sorted(set(missing.values())))
            read = [related_keys(self.task, part, kinds).any(2) for part in chunks(batch, sequences_at_once(batch))]
            related = dict(zip(kinds, torch.cat(read).unbind(1), strict=True))
            parts = HeadExperiments(self.model, self.task, batch, self.seed).parts()
            self._values |= values_at_related_keys(parts, related, missing, seed=self.seed)
        return self._values

    def parts(self) -> Iterable[tuple[Batch, slice, AblationEngine]]:
        """Parts of the batch, each with its rows and an ablation engine."""
        return self._kept if self.keep else self._run()

    @cached_property
    def _kept(self) -> list[tuple[Batch, slice, AblationEngine]]:
        return list(self._run())

    @property
    def _part_size(self) -> int:
        return max(1, TOKENS_PER_CHUNK // self.batch.tokens.shape[1])

    def _run(self) -> Iterator[tuple[Batch, slice, AblationEngine]]:
        self.model.eval()
        size = self._part_size
        for index, part in enumerate(chunks(self.batch, size)):
            rows = slice(index * size, index * size + len(part))
            engine = AblationEngine(self.model, part.tokens, read_at=part.target_positions, **part.model_inputs())
            yield part, rows, engine

    def score(self) -> Score:
        """Score of the unchanged model on each sequence."""
        scores = [self.task.score(engine.logits, part) for part, _, engine in self.parts()]
        return Score(**{name: torch.cat([getattr(one, name) for one in scores]) for name in ("right", "loss", "total")})

    def effects(
        self,
        labels: Mapping[Head, str],
        *,
        negligible: Float[np.ndarray, " outcome"] | float = -np.inf,
        chosen: Collection[Head] | None = None,
        described: Mapping[Head, str] | None = None,
    ) -> Effects:
        """Apply every intervention to every head.

        Args:
            labels: Kind that each readable head is labelled with; `READINGS` are tried on these only.
            negligible: Loss of accuracy on each outcome; `READINGS` are not tried on heads whose removal costs less on
                all of them, since no verdict depends on it.
            chosen: Heads to try; if None, all.
            described: Labels that decide which rows of a pattern are replaced by a uniform or random one; if None,
                `labels`.
        """
        every = [name for name in INTERVENTIONS if name not in READINGS]
        drop, total = self._each_head(every, described or labels, chosen)
        cost = np.nan_to_num(drop["mean"], nan=-np.inf).sum(0) / np.maximum(total.sum(0), 1e-300)
        costly = dict(zip(self.heads, (cost >= negligible).any(-1), strict=True))
        labels = {head: label for head, label in labels.items() if costly[head] and (chosen is None or head in chosen)}
        drop |= {name: np.full_like(drop["mean"], np.nan) for name in READINGS}
        if labels:
            drop |= self._each_head(READINGS, labels, labels)[0]
        return Effects(total=total, drop=drop)

    def _each_head(
        self, names: Sequence[str], labels: Mapping[Head, str], chosen: Collection[Head] | None
    ) -> tuple[dict[str, Float[np.ndarray, "sample head outcome"]], Float[np.ndarray, "sample outcome"]]:
        """Right answers lost under each of these interventions, and answers scored."""
        kinds = sorted(set(labels.values()))
        usual, related = self._usual_tokens(kinds), relations_by_rows(self.task, self.batch, kinds)
        n_outcomes = len(self.task.outcomes)
        drop = {name: np.full((len(self.batch), len(self.heads), n_outcomes), np.nan) for name in names}
        total = np.empty((len(self.batch), n_outcomes))
        n_parts = -(-len(self.batch) // self._part_size)
        for part, rows, engine in counted("replacing heads", self.parts(), total=n_parts):
            clean = self.task.score(engine.logits, part)
            right, total[rows] = clean.right.double(), clean.total.double().numpy()
            here = dict(zip(kinds, related(rows).unbind(1), strict=True))
            changes = new_patterns(
                self.model, part, here, labels, usual=usual, seed=self.seed, first=self.first + rows.start
            )
            changes |= {name: self._removal(name)(rows) for name in REMOVALS if name in names}
            if "other_read" in names:
                drawn = random_numbers(part, self.seed, self.first + rows.start)
                changes["other_read"] = other_read(self._pool(labels), here, labels, drawn)
            for name in names:
                for head, logits in engine.each_head(changes[name], chosen):
                    after = self.task.score(logits, part).right.double()
                    drop[name][rows, self.heads.index(head)] = (right - after).numpy()
        return drop, total

    def _usual_tokens(self, kinds: Sequence[str]) -> dict[str, Bool[Tensor, "query token"]]:
        """Tokens at related keys of each query in the whole batch, for each kind."""
        pos, n_tokens = self.batch.tokens.shape[1], int(self.batch.tokens.max()) + 1
        found = {kind: torch.zeros(pos, n_tokens, dtype=torch.bool) for kind in kinds}
        if kinds:
            kinds_of(self.task, self.batch, kinds)  # raises an error if the whole batch lacks a relation
        for part in chunks(self.batch, sequences_at_once(self.batch)):
            for kind, relation in zip(kinds, related_keys(self.task, part, kinds).unbind(1), strict=True):
                found[kind] |= usual_tokens(part.tokens, relation, n_tokens)
        return found

    def removed(self, sets: Sequence[Sequence[Head]]) -> Float[np.ndarray, "sample set outcome"]:
        """Right answers lost when all heads of a set are replaced by their means, for each set."""
        drop = np.zeros((len(self.batch), len(sets), len(self.task.outcomes)))
        places: dict[tuple[Head, ...], list[int]] = {}
        for index, chosen in enumerate(sets):
            places.setdefault(tuple(sorted(set(chosen))), []).append(index)
        for part, rows, engine in self.parts() if sets else ():
            before = self.task.score(engine.logits, part).right.double()
            for heads, logits in engine.each_set(sets, self._removal("mean")(rows)):
                after = self.task.score(logits, part).right.double()
                for index in places[heads]:
                    drop[rows, index] = (before - after).numpy()
        return drop

    def effect_products(self) -> Float[np.ndarray, "head head"]:
        """Inner products of the changes of the logits when single heads are replaced by their means.

        Each change is centred over the possible answers, since a constant added to all logits changes no answer.
        """
        found = np.zeros((len(self.heads), len(self.heads)))
        for _, rows, engine in self.parts():
            changes = [logits - engine.logits for _, logits in engine.each_head(self._removal("mean")(rows))]
            each = torch.stack(changes).double()
            each = (each - each.mean(-1, keepdim=True)).flatten(1)
            found += (each @ each.T).numpy()
        return found
