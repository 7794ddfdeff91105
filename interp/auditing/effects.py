"""What does each head do? Every head under every intervention, sequence by sequence, on sequences cut into parts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from hooks.interventions.ablation_engine import AblationEngine, Head, Net
from hooks.interventions.replacements import Pattern, Replacement
from interp.core.activations import chunks
from interp.core.verbs import visible_keys
from interp.heads.kinds import relations_of
from interp.heads.methods import REMOVALS, ReplacementOf, normalised, random_weights, replacements
from interp.tasks.base import Batch, Task

TOKENS_PER_CHUNK = 1536
READINGS = ("ideal", "read_part")
"""Only for heads that look like something: see `_readings`."""
INTERVENTIONS = (*REMOVALS, "uniform", "random_rows", *READINGS)


@dataclass(frozen=True)
class Effects:
    """What each intervention costs, sequence by sequence."""

    total: Float[np.ndarray, "sample outcome"]
    drop: Mapping[str, Float[np.ndarray, "sample head outcome"]]
    """Right answers lost under each intervention, heads in the order of `every_head`; not a number for readings that
    were not tried."""


def every_head(model: Net) -> list[Head]:
    """All (layer, head), layer by layer."""
    return [(layer, head) for layer in range(model.cfg.n_layers) for head in range(model.cfg.n_heads)]


class Laboratory:
    """One batch and one model, ready for interventions.

    Args:
        model: What to intervene on. It is not changed.
        task: Where the batch is from.
        batch: Sequences.
        seed: Decides references and random rows.
    """

    def __init__(self, model: Net, task: Task, batch: Batch, *, seed: int):
        self.model, self.task, self.batch = model, task, batch
        self.seed = seed
        self.size = max(1, TOKENS_PER_CHUNK // batch.tokens.shape[1])
        self._removals: dict[str, ReplacementOf] = {}

    def removal(self, method: str) -> ReplacementOf:
        """What stands in for a head that is taken out; made when first asked for."""
        if method not in self._removals:
            self._removals[method] = replacements(method, self.model, self.task, self.batch, seed=self.seed)
        return self._removals[method]

    @cached_property
    def kept(self) -> list[tuple[Batch, slice, AblationEngine]]:
        """All parts at once, for a batch that is small enough to stay in memory."""
        return list(self.parts())

    @cached_property
    def total(self) -> Float[np.ndarray, "sample outcome"]:
        """Answers of each sequence."""
        scores = [self.task.score(engine.logits, part).total for part, _, engine in self.kept]
        return torch.cat(scores).double().numpy()

    def parts(self) -> Iterator[tuple[Batch, slice, AblationEngine]]:
        """The parts of the batch, each with its place and an engine that has run it once."""
        self.model.eval()
        for index, part in enumerate(chunks(self.batch, self.size)):
            place = slice(index * self.size, index * self.size + len(part))
            yield (
                part,
                place,
                AblationEngine(self.model, part.tokens, read_at=part.target_positions, **part.model_inputs()),
            )

    def effects(self, labels: Mapping[Head, str], *, little: Float[np.ndarray, " outcome"] | None = None) -> Effects:
        """Every head under every intervention.

        Args:
            labels: The kind that each readable head looks like; the readings are tried on these alone.
            little: Of heads whose removal costs no outcome as much as this, nothing depends on `read_part`: it is
                left out.
        """
        everywhere = self._each_head(INTERVENTIONS[:-1], labels)
        asked = np.concatenate([part["total"] for part in everywhere])
        drop = {name: np.concatenate([part[name] for part in everywhere]) for name in INTERVENTIONS[:-1]}
        if little is not None:
            cost = drop["mean"].sum(0) / np.maximum(asked.sum(0), 1e-300)
            costly = (cost >= little).any(-1)
            labels = {
                head: labels[head]
                for head, tried in zip(every_head(self.model), costly, strict=True)
                if tried and head in labels
            }
        drop["read_part"] = np.full_like(drop["mean"], np.nan)
        if labels:
            drop["read_part"] = np.concatenate([part["read_part"] for part in self._each_head(("read_part",), labels)])
        return Effects(total=asked, drop=drop)

    def _each_head(self, names: Sequence[str], labels: Mapping[Head, str]) -> list[dict[str, np.ndarray]]:
        """Part by part: right answers lost by head under each of these interventions, and what was `asked`."""
        heads, kinds = every_head(self.model), sorted(set(labels.values()))
        related = relations_of(self.task, self.batch, kinds) if kinds else {}
        parts = []
        for part, place, engine in self.parts():
            clean = self.task.score(engine.logits, part)
            right = clean.right.double()
            here = {kind: relation[place] for kind, relation in related.items()}
            changes = self._patterns(part, place, here, labels)
            changes |= {name: self.removal(name)(place) for name in REMOVALS if name in names}
            found = {name: np.full((len(part), len(heads), len(self.task.outcomes)), np.nan) for name in names}
            for name in names:
                for head, logits in engine.each_head(changes[name], labels if name in READINGS else None):
                    after = self.task.score(logits, part).right.double()
                    found[name][:, heads.index(head)] = (right - after).numpy()
            parts.append({**found, "total": clean.total.double().numpy()})
        return parts

    def removed(self, sets: Sequence[Sequence[Head]], *, keep: bool = False) -> Float[np.ndarray, "sample set outcome"]:
        """Right answers lost when sets of heads are set to their means.

        Args:
            sets: Heads that go together.
            keep: Keep what was run, for further calls; the batch must be small.
        """
        drops = []
        for part, place, engine in self.kept if keep else self.parts():
            before = self.task.score(engine.logits, part).right.double()
            replace = self.removal("mean")(place)
            after = [self.task.score(engine.head_set(chosen, replace), part).right.double() for chosen in sets]
            drops.append(torch.stack([before - one for one in after], 1))
        return torch.cat(drops).numpy()

    def _patterns(
        self, part: Batch, place: slice, related: Mapping[str, Tensor], labels: Mapping[Head, str]
    ) -> dict[str, Replacement]:
        """Other patterns for the values that heads have.

        A reading speaks of the queries that have related keys. Of a head that looks like something only those rows are
        replaced, so that what it does elsewhere cannot help or harm the reading; of other heads all rows.
        """
        model = self.model
        allowed = visible_keys(model, part.tokens, part.attention_mask)
        seen = {kind: relation & allowed for kind, relation in related.items()}
        spoken = {kind: relation.any(-1, keepdim=True) for kind, relation in seen.items()}
        uniform = normalised(allowed.double(), allowed)
        random = normalised(random_weights(allowed, self.seed, place.start), allowed)

        def row_by_row(new: Float[Tensor, "batch query key"]) -> Replacement:
            def rows(layer: int, clean: Tensor) -> Tensor:
                pattern = new.to(clean)[:, None].expand_as(clean).clone()
                for head in range(model.cfg.n_heads):
                    if kind := labels.get((layer, head)):
                        pattern[:, head] = torch.where(spoken[kind], pattern[:, head], clean[:, head])
                return pattern

            return Pattern(rows)

        def reading(ideal: bool) -> Replacement:
            def rows(layer: int, clean: Tensor) -> Tensor:
                pattern = clean.clone()
                for head in range(model.cfg.n_heads):
                    if kind := labels.get((layer, head)):
                        pattern[:, head] = _reading(pattern[:, head], seen[kind], allowed, ideal=ideal)
                return pattern

            return Pattern(rows)

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
    """What a reader has seen of a pattern, and nothing else; rows without related keys stay.

    `ideal`: all on related keys, evenly. Else what the head has on related keys stays, and the rest of its attention is
    spread evenly over the other keys.
    """
    spoken = related.any(-1, keepdim=True)
    if ideal:
        return torch.where(spoken, normalised(related.double(), allowed).to(pattern), pattern)
    others = (allowed & ~related).to(pattern)
    kept = pattern * related
    rest = (1 - kept.sum(-1, keepdim=True)).clamp_min(0)
    spread = kept + rest * others / others.sum(-1, keepdim=True).clamp_min(1)
    return torch.where(spoken & others.any(-1, keepdim=True), spread, pattern)


@torch.no_grad()
def opposed(laboratory: Laboratory, least: float) -> list[tuple[Head, Head]]:
    """Pairs of heads whose writes point against each other: cosine at most -`least`, their means taken out.

    What a head writes is taken over all positions of the batch, minus its mean over sequences at each position.
    """
    model, heads = laboratory.model, every_head(laboratory.model)
    written: list[Tensor] = []
    for _, _, engine in laboratory.kept:
        rows = []
        for layer in range(model.cfg.n_layers):
            z, at = engine.heads(layer).z, cast(Any, model.blocks[layer])
            out = z if model.cfg.vo_identity else torch.einsum("bphe,hed->bphd", z, at.attn.W_O)
            rows.append(out.permute(2, 0, 1, 3))
        written.append(torch.cat(rows))
    every = torch.cat(written, 1)
    flat = (every - every.mean(1, keepdim=True)).flatten(1)
    size = flat.norm(dim=1, keepdim=True)
    unit = torch.where(size > 1e-9 * size.max(), flat / size.clamp_min(1e-300), 0)
    cosine = unit @ unit.T
    return [(heads[i], heads[j]) for i in range(len(heads)) for j in range(i + 1, len(heads)) if cosine[i, j] <= -least]
