"""Measures of heads on every sequence: scores on relations, their permutation null, uniformity, entropy, norms."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from einops import einsum
from jaxtyping import Bool, Float
from torch import Tensor

from hooks.interventions.ablation_engine import Net, projected_values
from hooks.model.attention import visible_keys
from interp.core.activations import chunks
from interp.heads.kinds import PackedRelations, related_keys, sequences_at_once
from interp.tasks.base import Batch, Task

MOST_SEQUENCES = 64
"""Most sequences per pass."""
CELLS = 2**24
"""Most (query, key) pairs of the sequences of a pass: longer sequences are measured fewer at a time."""
ROW_CELLS = 2**18
"""Most (query, key) pairs of a sequence that are measured at the same time: of longer ones, few queries at a time."""


@dataclass(frozen=True, kw_only=True)
class Measures:
    """Measures of every head on every sequence; a score is nan where `RelationRows.counts` has no scored query."""

    score: Float[np.ndarray, "sample layer head kind"]
    null_variance: Float[np.ndarray, "sample layer head kind"]
    value_weighted: Float[np.ndarray, "sample layer head kind"]
    uniformity: Float[np.ndarray, "sample layer head"]
    entropy: Float[np.ndarray, "sample layer head"]
    moved: Float[np.ndarray, "sample layer head"]
    chance: Float[np.ndarray, " kind"]
    without_best: Float[np.ndarray, "layer head kind"]
    """Mean score without the query position that raises it most; of all positions if most sequences score one query."""


@torch.no_grad()
def measure(model: Net, task: Task, batch: Batch, kinds: Sequence[str]) -> Measures:
    """Measure every head on every kind and sequence in one pass, without storing the patterns."""
    model.eval()
    # Measures of each sequence, and sums over the sequences of each chunk.
    by_sequence, sums, chances = [], [], []
    for chunk, related in _chunks_with_relations(task, batch, kinds):
        rows = _rows(model, chunk, related)
        values = _measure_chunk(model, chunk, rows)
        sums.append({"above": values.pop("above").transpose(0, 1), **rows.totals()})
        by_sequence.append(values)
        chances.append(rows.chance.mean((0, 2)))
    # Those of all chunks.
    measures = {name: torch.cat([values[name] for values in by_sequence]).double().numpy() for name in by_sequence[0]}
    totals = {name: torch.stack([values[name] for values in sums]).double().sum(0) for name in sums[0]}
    chance = torch.stack(chances).mean(0).numpy()
    return Measures(**measures, chance=chance, without_best=_without_best(**totals))


def _chunks_with_relations(
    task: Task, batch: Batch, kinds: Sequence[str]
) -> Iterator[tuple[Batch, Bool[Tensor, "batch kind query key"]]]:
    """Chunks of a batch for one pass each, with their relations, which are computed for several chunks together."""
    size = sequences_per_pass(batch)
    for block in chunks(batch, sequences_at_once(batch, multiple_of=size)):
        relations = related_keys(task, block, kinds).split(size)
        yield from zip(chunks(block, size), relations, strict=True)


def sequences_per_pass(batch: Batch) -> int:
    """The number of sequences of this length whose patterns are in memory at the same time."""
    return max(1, min(MOST_SEQUENCES, CELLS // batch.tokens.shape[1] ** 2))


@torch.no_grad()
def pattern_scores(model: Net, batch: Batch, related: PackedRelations) -> Float[np.ndarray, "sample layer head column"]:
    """Score on every kind, then the uniformity, of every head: the measures that need only the patterns."""
    size = sequences_per_pass(batch)
    scores = []
    for index, chunk in enumerate(chunks(batch, size)):
        rows = slice(index * size, (index + 1) * size)
        scores.append(_pattern_scores(model, chunk, related.on(rows)))
    return torch.cat(scores).double().numpy()


def _pattern_scores(
    model: Net, batch: Batch, related: Bool[Tensor, "batch kind query key"]
) -> Float[Tensor, "sample layer head column"]:
    rows = _rows(model, batch, related)
    layers: dict[int, Tensor] = {}

    def measure_pattern(pattern: Tensor, hook) -> None:
        layers[hook.layer()] = torch.cat([rows.score(pattern), rows.uniformity(pattern)[..., None]], -1)

    hooks = [(f"blocks.{layer}.attn.hook_pattern", measure_pattern) for layer in range(model.cfg.n_layers)]
    with model.hooks(hooks):
        model(batch.tokens, **batch.model_inputs())
    return torch.stack([layers[layer] for layer in range(model.cfg.n_layers)], 1)


def _rows(model: Net, chunk: Batch, related: Bool[Tensor, "batch kind query key"]) -> "RelationRows":
    allowed = visible_keys(model.cfg, chunk.tokens, chunk.attention_mask)
    real = torch.ones_like(chunk.tokens, dtype=torch.bool) if chunk.attention_mask is None else chunk.attention_mask
    return RelationRows(related & allowed[:, None], allowed, real)


def _measure_chunk(model: Net, chunk: Batch, rows: "RelationRows") -> dict[str, Tensor]:
    """The fields of `Measures` by sequence for one chunk, by name, and `above` of `RelationRows.measure`.

    Each pattern is measured in a hook, so that only one layer's pattern is in memory. What a value writes is known from
    another hook, which may come earlier or later; the two are combined once both are there.
    """
    layers: list[dict[str, Tensor]] = [{} for _ in range(model.cfg.n_layers)]

    def record_resid(resid: Tensor, hook) -> None:
        layers[hook.layer()]["resid"] = resid

    def record_norm(v: Tensor, hook) -> None:
        layer = hook.layer()
        layers[layer]["norm"] = _write_norm(model, layer, v, layers[layer].pop("resid")).float()
        weigh_values(layers[layer])

    def measure_pattern(pattern: Tensor, hook) -> None:
        layers[hook.layer()].update(rows.measure(pattern), pattern=pattern)
        weigh_values(layers[hook.layer()])

    def weigh_values(layer: dict[str, Tensor]) -> None:
        if "pattern" in layer and "norm" in layer:
            layer.update(rows.weigh_values(layer.pop("pattern"), layer.pop("norm")))

    hooks = []
    for layer in range(len(layers)):
        hooks += [
            (f"blocks.{layer}.hook_resid_pre", record_resid),
            (f"blocks.{layer}.attn.hook_v", record_norm),
            (f"blocks.{layer}.attn.hook_pattern", measure_pattern),
        ]
    with model.hooks(hooks):
        model(chunk.tokens, **chunk.model_inputs())
    return {name: torch.stack([layer[name] for layer in layers], 1) for name in layers[0]}


def _without_best(
    above: Float[Tensor, "layer head kind query"],
    room: Float[Tensor, "kind query"],
    several: Float[Tensor, " kind"],
    scored: Float[Tensor, " kind"],
) -> Float[np.ndarray, "layer head kind"]:
    """`Measures.without_best` from sums over sequences."""
    # The lowest score without one query position, which is the score without the position that raises it most.
    room_of_others = room.sum(-1, keepdim=True) - room
    above_of_others = above.sum(-1, keepdim=True) - above
    score_of_others = torch.where(room_of_others > 1e-6, above_of_others / room_of_others.clamp_min(1e-6), torch.inf)
    without_best = score_of_others.amin(-1)
    # The score of all positions, which counts alone if most sequences score a single query.
    mean = above.sum(-1) / scored.clamp_min(1)
    return torch.where(2 * several >= scored, without_best.minimum(mean), mean).numpy()


def _write_norm(
    model: Net, layer: int, v: Float[Tensor, "batch key head d_head"], resid: Float[Tensor, "batch key d_model"]
) -> Float[Tensor, "batch head key"]:
    """Norm of what each key writes through each head at full attention."""
    if model.cfg.vo_identity:
        return projected_values(model, layer, v, resid).norm(dim=-1).transpose(1, 2)
    # |v W_O| = |R v| where W_O^T = Q R, and R is small
    block: Any = model.blocks[layer]
    w_o = block.attn.W_O.mT
    if w_o.dtype in (torch.float16, torch.bfloat16):
        w_o = w_o.float()
    small = torch.linalg.qr(w_o, mode="r").R
    return (v.transpose(1, 2).to(small) @ small.mT).norm(dim=-1)


class RelationRows:
    """The queries of one batch: their visible keys, the related ones among these, and the score at chance."""

    counts: Float[Tensor, "batch kind query"]
    """1 for each query that is scored: a real token with related and unrelated visible keys. None in a sequence in
    which fewer than half of the real queries with related keys have unrelated ones too, since few rows, such as that of
    a special token, would then decide what the head looks like."""

    def __init__(
        self,
        related: Bool[Tensor, "batch kind query key"],
        allowed: Bool[Tensor, "batch query key"],
        real: Bool[Tensor, "batch query"],
    ):
        pos = related.shape[-1]
        size = max(1, ROW_CELLS // pos)
        self._blocks = [slice(start, start + size) for start in range(0, pos, size)]
        self.real = real.float()
        # Numbers of visible and of related keys of each query, and the attention on related keys at chance.
        self.n_keys = allowed.sum(-1).float()
        n_related = torch.zeros(related.shape[:3], device=related.device)
        for queries in self._blocks:
            n_related[:, :, queries] = related[:, :, queries].sum(-1).float()
        self.chance = n_related / self.n_keys[:, None]
        # The queries that are scored, in the sequences in which enough of them are.
        described = (n_related > 0) & real[:, None]
        counts = (described & (self.chance < 1)).float()
        enough = 2 * counts.sum(-1, keepdim=True) >= described.sum(-1, keepdim=True)
        self.counts = counts * enough
        # The highest mass above chance, and the mass at chance, summed over the scored queries.
        self.room = (self.counts * (1 - self.chance)).sum(-1)
        self.at_chance = (self.counts * self.chance).sum(-1)
        self.related = related
        self.weight = torch.where(self.room > 0, 1 / self.room.clamp_min(1e-9), 0)
        # variance of the mass on r of K keys drawn without replacement is this times the row's variance
        self.factor = n_related * (self.n_keys[:, None] - n_related) / (self.n_keys[:, None] - 1).clamp_min(1)
        self._all_scored = self._scored_keys(slice(None)) if len(self._blocks) == 1 else None

    def _scored_keys(self, queries: slice) -> Float[Tensor, "batch kind query key"]:
        """1 at the related keys of the scored ones of some queries."""
        return self.related[:, :, queries] * self.counts[:, :, queries, None]

    def _each_block(
        self, pattern: Float[Tensor, "batch head query key"]
    ) -> Iterator[tuple[slice, Float[Tensor, "batch head query key"], Float[Tensor, "batch kind query key"]]]:
        """Some of the queries, their rows of a pattern, and `_scored_keys`."""
        for queries in self._blocks:
            scored_keys = self._scored_keys(queries) if self._all_scored is None else self._all_scored
            yield queries, pattern[:, :, queries].float(), scored_keys

    def totals(self) -> dict[str, Tensor]:
        """Sums over sequences: weight of each query in the score, and whether several, or any, are scored."""
        n_counted = self.counts.sum(-1)
        room = (self.counts * (1 - self.chance) * self.weight[..., None]).sum(0)
        return {"room": room, "several": (n_counted > 1).sum(0), "scored": (n_counted > 0).sum(0)}

    def measure(self, pattern: Float[Tensor, "batch head query key"]) -> dict[str, Tensor]:
        """Measures of the heads of a layer that need only the pattern; `above` is summed over sequences."""
        return {
            "score": self.score(pattern),
            "above": self.above_chance(pattern),
            "null_variance": self.null_variance(pattern),
            "uniformity": self.uniformity(pattern),
            "entropy": self.entropy(pattern),
        }

    def score(self, pattern: Float[Tensor, "batch head query key"]) -> Float[Tensor, "batch head kind"]:
        """Attention mass on related keys, 0 at chance and 1 if all of it is on them; 0 / 0 if no query is scored."""
        mass = self._zeros(pattern, len(self.counts[0]))
        for _, rows, scored_keys in self._each_block(pattern):
            mass += _mass(rows, scored_keys)
        return self._scaled(mass)

    def above_chance(self, pattern: Float[Tensor, "batch head query key"]) -> Float[Tensor, "head kind query"]:
        """What each query position adds to the score, summed over sequences."""
        above = self._zeros(pattern, *self.counts.shape[1:])[0]
        for queries, rows, scored_keys in self._each_block(pattern):
            weighted = scored_keys * self.weight[..., None, None]
            above[:, :, queries] = einsum(rows, weighted, "b h q k, b c q k -> h c q")
        return above - (self.counts * self.chance * self.weight[..., None]).sum(0)

    def null_variance(self, pattern: Float[Tensor, "batch head query key"]) -> Float[Tensor, "batch head kind"]:
        """Variance of the score if the visible keys of each query are permuted."""
        squares = self._by_query(pattern, lambda queries, rows: rows.square().sum(-1))
        keys = self.n_keys[:, None]
        row_variance = (squares / keys - 1 / keys.square()).clamp_min(0)
        variance = einsum(row_variance, self.factor * self.counts, "b h q, b c q -> b h c")
        return variance / self.room[:, None].square().clamp_min(1e-9)

    def uniformity(self, pattern: Float[Tensor, "batch head query key"]) -> Float[Tensor, "batch head"]:
        """1 if rows are uniform, 0 if each is on a single key."""
        return 1 - self._mean_of_several(self._by_query(pattern, self._excess))

    def entropy(self, pattern: Float[Tensor, "batch head query key"]) -> Float[Tensor, "batch head"]:
        """Mean row entropy, as a fraction of its maximum."""
        entropy = self._by_query(pattern, lambda queries, rows: -(rows * rows.clamp_min(1e-30).log()).sum(-1))
        return self._mean_of_several(entropy / self.n_keys[:, None].log().clamp_min(1e-9))

    def _by_query(
        self,
        pattern: Float[Tensor, "batch head query key"],
        function: Callable[[slice, Float[Tensor, "batch head query key"]], Float[Tensor, "batch head query"]],
    ) -> Float[Tensor, "batch head query"]:
        """A number for each row of a pattern, from a function of some queries and their rows."""
        values = self._zeros(pattern, pattern.shape[2])
        for queries in self._blocks:
            values[:, :, queries] = function(queries, pattern[:, :, queries].float())
        return values

    def _zeros(self, pattern: Float[Tensor, "batch head query key"], *sizes: int) -> Float[Tensor, "batch head ..."]:
        """Zeros for each sequence and head.

        Results are written into tensors that are made before the first block: small tensors kept from each block would
        keep the memory of the large ones next to them from being used again.
        """
        return torch.zeros(*pattern.shape[:2], *sizes, device=pattern.device)

    def _scaled(self, mass: Float[Tensor, "batch head kind"]) -> Float[Tensor, "batch head kind"]:
        """Score from the attention mass on related keys."""
        above = mass - self.at_chance[:, None]
        return above / self.room[:, None]  # 0 / 0 where no query counts

    def _excess(self, queries: slice, rows: Float[Tensor, "batch head query key"]) -> Float[Tensor, "batch head query"]:
        """Attention above a uniform row's, as a fraction of its maximum."""
        keys = self.n_keys[:, None, queries]
        return (rows - 1 / keys[..., None]).clamp_min(0).sum(-1) / (1 - 1 / keys).clamp_min(1e-9)

    def _mean_of_several(self, values: Float[Tensor, "batch head query"]) -> Float[Tensor, "batch head"]:
        """Mean over the queries that see several keys."""
        several = self.real[:, None] * (self.n_keys[:, None] > 1)
        return (values * several).sum(-1) / several.sum(-1).clamp_min(1)

    def weigh_values(
        self, pattern: Float[Tensor, "batch head query key"], norm: Float[Tensor, "batch head key"]
    ) -> dict[str, Tensor]:
        """The value-weighted score and the mean norm moved: the pattern times the norm of what each key writes."""
        mass = self._zeros(pattern, len(self.counts[0]))
        totals = self._zeros(pattern, pattern.shape[2])
        for queries, rows, scored_keys in self._each_block(pattern):
            weighted = rows * norm[:, :, None]
            total = weighted.sum(-1, keepdim=True)
            share = torch.where(total > 0, weighted / total.clamp_min(1e-30), 0)
            mass += _mass(share, scored_keys)
            totals[:, :, queries] = total[..., 0]
        real = self.real[:, None]
        moved = (totals * real).sum(-1) / real.sum(-1).clamp_min(1)
        return {"value_weighted": self._scaled(mass), "moved": moved}


def _mass(
    pattern: Float[Tensor, "batch head query key"], scored_keys: Float[Tensor, "batch kind query key"]
) -> Float[Tensor, "batch head kind"]:
    """Attention on the related keys of scored queries, summed over queries."""
    return pattern.flatten(2) @ scored_keys.flatten(2).mT
