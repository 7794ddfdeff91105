"""Ablation and pattern replacement of every head, and of sets of heads."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from hooks.interventions.ablation_engine import AblationEngine, Head, Net, every_head
from hooks.interventions.replacements import Pattern, Replacement
from interp.core.activations import chunks
from interp.core.verbs import visible_keys
from interp.heads.kinds import relations_of
from interp.heads.methods import REMOVALS, ReplacementOf, normalised, random_weights, replacements
from interp.tasks.base import Batch, Score, Task

TOKENS_PER_CHUNK = 1536
READINGS = ("ideal", "read_part")
"""Interventions that test a label; see `_reading`."""
INTERVENTIONS = (*REMOVALS, "uniform", "random_rows", *READINGS)


@dataclass(frozen=True)
class Effects:
    """Effects of every intervention on every head, sequence by sequence."""

    total: Float[np.ndarray, "sample outcome"]
    """Answers scored."""
    drop: Mapping[str, Float[np.ndarray, "sample head outcome"]]
    """Right answers lost, by intervention; NaN where it was not tried."""

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

    _removals: dict[str, ReplacementOf] = field(init=False, default_factory=dict)

    @property
    def heads(self) -> list[Head]:
        """All heads of the model."""
        return every_head(self.model)

    def _removal(self, method: str) -> ReplacementOf:
        if method not in self._removals:  # references are drawn once
            self._removals[method] = replacements(method, self.model, self.task, self.batch, seed=self.seed)
        return self._removals[method]

    def parts(self) -> Iterable[tuple[Batch, slice, AblationEngine]]:
        """Parts of the batch, each with its rows and an ablation engine."""
        return self._kept if self.keep else self._run()

    @cached_property
    def _kept(self) -> list[tuple[Batch, slice, AblationEngine]]:
        return list(self._run())

    def _run(self) -> Iterator[tuple[Batch, slice, AblationEngine]]:
        self.model.eval()
        size = max(1, TOKENS_PER_CHUNK // self.batch.tokens.shape[1])
        for index, part in enumerate(chunks(self.batch, size)):
            rows = slice(index * size, index * size + len(part))
            engine = AblationEngine(self.model, part.tokens, read_at=part.target_positions, **part.model_inputs())
            yield part, rows, engine

    def score(self) -> Score:
        """Score of the unchanged model on each sequence."""
        scores = [self.task.score(engine.logits, part) for part, _, engine in self.parts()]
        return Score(**{name: torch.cat([getattr(one, name) for one in scores]) for name in ("right", "loss", "total")})

    def effects(
        self, labels: Mapping[Head, str], *, negligible: Float[np.ndarray, " outcome"] | float = -np.inf
    ) -> Effects:
        """Apply every intervention to every head.

        Args:
            labels: Kind that each readable head is labelled with; `ideal` and `read_part` are tried on these only.
            negligible: Loss of accuracy on each outcome; `read_part` is not tried on heads whose removal costs less on
                all of them, since no verdict depends on it.
        """
        drop, total = self._each_head(INTERVENTIONS[:-1], labels)
        cost = drop["mean"].sum(0) / np.maximum(total.sum(0), 1e-300)
        costly = dict(zip(self.heads, (cost >= negligible).any(-1), strict=True))
        labels = {head: label for head, label in labels.items() if costly[head]}
        drop["read_part"] = np.full_like(drop["mean"], np.nan)
        if labels:
            drop |= self._each_head(("read_part",), labels)[0]
        return Effects(total=total, drop=drop)

    def _each_head(
        self, names: Sequence[str], labels: Mapping[Head, str]
    ) -> tuple[dict[str, Float[np.ndarray, "sample head outcome"]], Float[np.ndarray, "sample outcome"]]:
        """Right answers lost under each of these interventions, and answers scored."""
        kinds = sorted(set(labels.values()))
        related = relations_of(self.task, self.batch, kinds) if kinds else {}
        n_outcomes = len(self.task.outcomes)
        drop = {name: np.full((len(self.batch), len(self.heads), n_outcomes), np.nan) for name in names}
        total = np.empty((len(self.batch), n_outcomes))
        for part, rows, engine in self.parts():
            clean = self.task.score(engine.logits, part)
            right, total[rows] = clean.right.double(), clean.total.double().numpy()
            changes = self._patterns(part, rows, {kind: relation[rows] for kind, relation in related.items()}, labels)
            changes |= {name: self._removal(name)(rows) for name in REMOVALS if name in names}
            for name in names:
                for head, logits in engine.each_head(changes[name], labels if name in READINGS else None):
                    after = self.task.score(logits, part).right.double()
                    drop[name][rows, self.heads.index(head)] = (right - after).numpy()
        return drop, total

    def removed(self, sets: Sequence[Sequence[Head]]) -> Float[np.ndarray, "sample set outcome"]:
        """Right answers lost when all heads of a set are replaced by their means, for each set."""
        drop = np.zeros((len(self.batch), len(sets), len(self.task.outcomes)))
        for part, rows, engine in self.parts() if sets else ():
            before = self.task.score(engine.logits, part).right.double()
            replace = self._removal("mean")(rows)
            for index, chosen in enumerate(sets):
                after = self.task.score(engine.head_set(chosen, replace), part).right.double()
                drop[rows, index] = (before - after).numpy()
        return drop

    def _patterns(
        self, part: Batch, rows: slice, related: Mapping[str, Tensor], labels: Mapping[Head, str]
    ) -> dict[str, Replacement]:
        """Replacement patterns for a part of the batch.

        A label describes the queries that have related keys. For labelled heads only those rows are replaced, so that
        the other rows affect neither test of the label; for other heads, all rows.
        """
        model = self.model
        allowed = visible_keys(model, part.tokens, part.attention_mask)
        seen = {kind: relation & allowed for kind, relation in related.items()}
        described = {kind: relation.any(-1, keepdim=True) for kind, relation in seen.items()}
        uniform = normalised(allowed.double(), allowed)
        random = normalised(random_weights(allowed, self.seed, rows.start), allowed)

        def row_by_row(new: Float[Tensor, "batch query key"]) -> Replacement:
            def new_pattern(layer: int, clean: Tensor) -> Tensor:
                pattern = new.to(clean)[:, None].expand_as(clean).clone()
                for head in range(model.cfg.n_heads):
                    if kind := labels.get((layer, head)):
                        pattern[:, head] = torch.where(described[kind], pattern[:, head], clean[:, head])
                return pattern

            return Pattern(new_pattern)

        def reading(ideal: bool) -> Replacement:
            def new_pattern(layer: int, clean: Tensor) -> Tensor:
                pattern = clean.clone()
                for head in range(model.cfg.n_heads):
                    if kind := labels.get((layer, head)):
                        pattern[:, head] = _reading(pattern[:, head], seen[kind], allowed, ideal=ideal)
                return pattern

            return Pattern(new_pattern)

        return {
            "uniform": row_by_row(uniform),
            "random_rows": row_by_row(random),
            "ideal": reading(True),
            "read_part": reading(False),
        }


def _reading(
    pattern: Float[Tensor, "batch query key"],
    related: Bool[Tensor, "batch query key"],
    allowed: Bool[Tensor, "batch query key"],
    *,
    ideal: bool,
) -> Float[Tensor, "batch query key"]:
    """The part of a pattern that the label describes; rows without related keys are unchanged.

    `ideal`: attention is spread evenly over the related keys. Otherwise attention on related keys is unchanged, and the
    rest is spread evenly over the other keys.
    """
    described = related.any(-1, keepdim=True)
    if ideal:
        return torch.where(described, (related / related.sum(-1, keepdim=True).clamp_min(1)).to(pattern), pattern)
    others = (allowed & ~related).to(pattern)
    kept = pattern * related
    rest = (1 - kept.sum(-1, keepdim=True)).clamp_min(0)
    spread = kept + rest * others / others.sum(-1, keepdim=True).clamp_min(1)
    return torch.where(described & others.any(-1, keepdim=True), spread, pattern)
