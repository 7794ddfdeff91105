"""Measures of heads on every sequence: scores on relations, their permutation null, uniformity, entropy, norms."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from einops import einsum
from jaxtyping import Bool, Float
from torch import Tensor

from hooks.interventions.ablation_engine import projected_values
from hooks.interventions.clean_pass import Net
from hooks.model.attention import visible_keys
from interp.core.activations import chunks
from interp.heads.kinds import PackedRelations, related_keys, sequences_at_once
from interp.heads.queries import Queries, attended_keys, read_positions, real_positions, scored_positions, writing_heads
from interp.tasks.base import Batch, Task

MOST_SEQUENCES = 64
"""Most sequences per pass."""
CELLS = 2**24
"""Most (query, key) pairs of the sequences of a pass: longer sequences are measured fewer at a time."""
ROW_CELLS = 2**18
"""Most (query, key) pairs of a sequence that are measured at the same time: of longer ones, few queries at a time."""


QUERY_SETS: Mapping[Queries, tuple[str, ...]] = {"read": ("read", "scored"), "all": ("all",)}
"""Sets of queries at which every kind is scored. A layer whose output is read nearly everywhere may have heads that act
at the scored positions only, so these are also a set of their own."""


@dataclass(frozen=True, kw_only=True)
class Measures:
    """Measures of every head on every sequence; a score is nan where `RelationRows.counted` has no scored query.

    A column is a kind at a set of queries: all kinds at the first of `query_sets`, then all at the next one.
    """

    query_sets: tuple[str, ...]
    """`read` and `scored`, or `all`."""
    score: Float[np.ndarray, "sample layer head column"]
    null_variance: Float[np.ndarray, "sample layer head column"]
    value_weighted: Float[np.ndarray, "sample layer head column"]
    uniformity: Float[np.ndarray, "sample layer head"]
    """At the first set of queries."""
    entropy: Float[np.ndarray, "sample layer head"]
    structure_elsewhere: Float[np.ndarray, "sample layer head"]
    """Share of attention that is neither that of a uniform row nor on the first key, in the rows of the first set of
    queries that are not scored: 0 if there are none, 1 if each is on another key."""
    moved: Float[np.ndarray, "sample layer head"]
    chance: Float[np.ndarray, " kind"]
    without_best: Float[np.ndarray, "layer head column"]
    """Mean score without the query position that raises it most; of all positions if most sequences score one query."""
    read_share: Float[np.ndarray, " layer"]
    """Share of the real queries that are in the first set."""
    score_anywhere: Float[np.ndarray, "sample layer head kind"]
    """Score at all real queries, whether they are read or not."""
    comparable: Bool[np.ndarray, "sample kind"]
    """Sequences that score a kind at scored positions, or at any if none does; the same for every model."""


@torch.no_grad()
def measure(model: Net, task: Task, batch: Batch, kinds: Sequence[str], *, queries: Queries = "read") -> Measures:
    """Measure every head on every kind and sequence in one pass, without storing the patterns."""
    model.eval()
    # Measures of each sequence, and sums over the sequences of each chunk.
    by_sequence, sums, chances = [], [], []
    for chunk, related in _chunks_with_relations(task, batch, kinds):
        rows = _rows(model, chunk, related)
        values, totals = _measure_chunk(model, chunk, rows, queries)
        by_sequence.append(values)
        sums.append(totals)
        chances.append(rows.chance.mean((0, 2)))
    # Those of all chunks.
    measures = {name: torch.cat([values[name] for values in by_sequence]) for name in by_sequence[0]}
    at_scored, anywhere = (measures.pop(name).numpy() for name in ("at_scored", "anywhere"))
    totals = {name: torch.stack([values[name] for values in sums]).double().sum(0) for name in sums[0]}
    n_read, n_real = totals.pop("n_read"), totals.pop("n_real")
    return Measures(
        **{name: value.double().numpy() for name, value in measures.items()},
        query_sets=QUERY_SETS[queries],
        chance=torch.stack(chances).mean(0).numpy(),
        without_best=_without_best(**totals),
        read_share=(n_read / n_real.clamp_min(1)).numpy(),
        comparable=np.where(at_scored.any(0) & (queries == "read"), at_scored, anywhere),
    )


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
def pattern_scores(
    model: Net, batch: Batch, related: PackedRelations, *, queries: Queries = "read"
) -> Float[np.ndarray, "sample layer head column"]:
    """Score in every column of `Measures`, then the uniformity, of every head: what needs only the patterns."""
    size = sequences_per_pass(batch)
    scores = []
    for index, chunk in enumerate(chunks(batch, size)):
        rows = slice(index * size, (index + 1) * size)
        scores.append(_pattern_scores(model, chunk, related.on(rows), queries))
    return torch.cat(scores).double().numpy()


def _pattern_scores(
    model: Net, batch: Batch, related: Bool[Tensor, "batch kind query key"], queries: Queries
) -> Float[Tensor, "sample layer head column"]:
    rows, writing = _rows(model, batch, related), writing_heads(model)
    layers: list[dict[str, Tensor]] = [{} for _ in range(model.cfg.n_layers)]

    def measure_pattern(pattern: Tensor, hook) -> None:
        layers[hook.layer()] = {
            "mass": rows.mass(pattern),
            "excess": rows.excess(pattern),
            "attended": attended_keys(pattern, rows.n_keys, writing[hook.layer()]),
        }

    hooks = [(f"blocks.{layer}.attn.hook_pattern", measure_pattern) for layer in range(model.cfg.n_layers)]
    with model.hooks(hooks):
        model(batch.tokens, **batch.model_inputs())
    scores = []
    for layer, query_sets in zip(layers, _query_sets(batch, layers, queries), strict=True):
        counted = rows.counted(query_sets)
        score = counted.scaled(layer["mass"])
        scores.append(torch.cat([score, rows.uniformity(layer["excess"], query_sets[:, 0])[..., None]], -1))
    return torch.stack(scores, 1)


def _query_sets(
    batch: Batch, layers: Sequence[dict[str, Tensor]], queries: Queries
) -> list[Bool[Tensor, "batch set query"]]:
    """The sets of queries of each layer at which kinds are scored (`QUERY_SETS`)."""
    if queries == "all":
        return [real_positions(batch)[:, None]] * len(layers)
    scored = scored_positions(batch)
    read = read_positions([layer["attended"] for layer in layers[1:]], scored)
    return [torch.stack([read_in_layer, scored], 1) for read_in_layer in read.unbind(1)]


def _rows(model: Net, chunk: Batch, related: Bool[Tensor, "batch kind query key"]) -> "RelationRows":
    allowed = visible_keys(model.cfg, chunk.tokens, chunk.attention_mask)
    return RelationRows(related & allowed[:, None], allowed, real_positions(chunk))


def _measure_chunk(
    model: Net, chunk: Batch, rows: "RelationRows", queries: Queries
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The fields of `Measures` by sequence for one chunk, by name, and sums over its sequences.

    Each pattern is measured in a hook, query by query, so that only one layer's pattern is in memory. What a value
    writes is known from another hook, which may come earlier or later; the two are combined once both are there. Which
    queries are read is known after the last layer.
    """
    layers: list[dict[str, Tensor]] = [{} for _ in range(model.cfg.n_layers)]
    writing = writing_heads(model)

    def record_resid(resid: Tensor, hook) -> None:
        layers[hook.layer()]["resid"] = resid

    def record_norm(v: Tensor, hook) -> None:
        layer = hook.layer()
        layers[layer]["norm"] = _write_norm(model, layer, v, layers[layer].pop("resid")).float()
        weigh_values(layers[layer])

    def measure_pattern(pattern: Tensor, hook) -> None:
        layer = layers[hook.layer()]
        layer.update(rows.measure(pattern), pattern=pattern)
        layer["attended"] = attended_keys(pattern, rows.n_keys, writing[hook.layer()])
        weigh_values(layer)

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
    # Scores at the sets of queries of each layer
    by_layer, sums = [], []
    sets_by_layer = _query_sets(chunk, layers, queries)
    anywhere = rows.counted(real_positions(chunk)[:, None])
    for layer, query_sets in zip(layers, sets_by_layer, strict=True):
        counted = rows.counted(query_sets)
        score = counted.scaled(layer["mass"])
        by_layer.append(
            {
                "score": score,
                "null_variance": counted.null_variance(layer["row_variance"]),
                "score_anywhere": score if queries == "all" else anywhere.scaled(layer["mass"]),
                "value_weighted": counted.scaled(layer["value_weighted_mass"]),
                "uniformity": rows.uniformity(layer["excess"], query_sets[:, 0]),
                "entropy": layer["entropy"],
                "structure_elsewhere": rows.structure(
                    layer["excess"], layer["on_first"], query_sets[:, 0] & ~query_sets[:, -1]
                ),
                "moved": layer["moved"],
            }
        )
        n_read = query_sets[:, 0].sum().float()
        sums.append({"above": counted.above_chance(layer["mass"]), "n_read": n_read, **counted.totals()})
    values = {name: torch.stack([layer[name] for layer in by_layer], 1) for name in by_layer[0]}
    totals = {name: torch.stack([layer[name] for layer in sums]) for name in sums[0]}
    totals["n_real"] = rows.real.sum()
    # Sequences that score a kind whatever the model attends to
    at_scored = rows.counted(scored_positions(chunk)[:, None])
    values["at_scored"], values["anywhere"] = at_scored.room > 0, anywhere.room > 0
    return values, totals


def _without_best(
    above: Float[Tensor, "layer head column query"],
    room: Float[Tensor, "layer column query"],
    several: Float[Tensor, "layer column"],
    scored: Float[Tensor, "layer column"],
) -> Float[np.ndarray, "layer head column"]:
    """`Measures.without_best` from sums over sequences."""
    # The lowest score without one query position, which is the score without the position that raises it most.
    room_of_others = (room.sum(-1, keepdim=True) - room)[:, None]
    above_of_others = above.sum(-1, keepdim=True) - above
    score_of_others = torch.where(room_of_others > 1e-6, above_of_others / room_of_others.clamp_min(1e-6), torch.inf)
    without_best = score_of_others.amin(-1)
    # The score of all positions, which counts alone if most sequences score a single query.
    mean = above.sum(-1) / scored[:, None].clamp_min(1)
    mostly_several = (2 * several >= scored)[:, None]
    return torch.where(mostly_several, without_best.minimum(mean), mean).numpy()


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
        # The queries that a relation describes, and those of them with unrelated keys too.
        described = (n_related > 0) & real[:, None]
        self.described = described.float()
        self.undecided = (described & (self.chance < 1)).float()
        self._related = related
        self._related_by_query = self._keys_by_query(slice(None)) if len(self._blocks) == 1 else None
        # variance of the mass on r of K keys drawn without replacement is this times the row's variance
        self.factor = n_related * (self.n_keys[:, None] - n_related) / (self.n_keys[:, None] - 1).clamp_min(1)

    def _keys_by_query(self, queries: slice) -> Float[Tensor, "batch query key kind"]:
        """1 at the related keys of some queries."""
        return self._related[:, :, queries].permute(0, 2, 3, 1).float()

    def _each_block(
        self, pattern: Float[Tensor, "batch head query key"]
    ) -> Iterator[tuple[slice, Float[Tensor, "batch head query key"], Float[Tensor, "batch query key kind"]]]:
        """Some of the queries, their rows of a pattern, and their related keys."""
        for queries in self._blocks:
            related = self._keys_by_query(queries) if self._related_by_query is None else self._related_by_query
            yield queries, pattern[:, :, queries].float(), related

    def counted(self, query_sets: Bool[Tensor, "batch set query"]) -> "CountedRows":
        """The queries of each set that are scored on each kind."""
        return CountedRows(self, query_sets)

    def score(self, pattern: Float[Tensor, "batch head query key"]) -> Float[Tensor, "batch head kind"]:
        """Score at all real queries: 0 at chance, 1 if all attention is on related keys; 0 / 0 if no query counts."""
        return self.counted(self.real.bool()[:, None]).scaled(self.mass(pattern))

    def measure(self, pattern: Float[Tensor, "batch head query key"]) -> dict[str, Tensor]:
        """Measures of the heads of a layer that need only the pattern.

        Raises:
            ValueError: a pattern that is not finite.
        """
        if not pattern.sum().isfinite():
            raise ValueError(
                "the model has an attention pattern that is not finite. Did training diverge? Check its weights, which "
                "may be too large."
            )
        return {
            "mass": self.mass(pattern),
            "row_variance": self.row_variance(pattern),
            "excess": self.excess(pattern),
            "entropy": self.entropy(pattern),
            "on_first": self.on_first(pattern),
        }

    def mass(self, pattern: Float[Tensor, "batch head query key"]) -> Float[Tensor, "batch head query kind"]:
        """Attention of each query on its related keys."""
        mass = self._zeros(pattern, pattern.shape[2], self.chance.shape[1])
        for queries, rows, related in self._each_block(pattern):
            mass[:, :, queries] = _mass(rows, related)
        return mass

    def row_variance(self, pattern: Float[Tensor, "batch head query key"]) -> Float[Tensor, "batch head query"]:
        """Variance of the attention of each query over its visible keys."""
        squares = self._by_query(pattern, lambda queries, rows: rows.square().sum(-1))
        keys = self.n_keys[:, None]
        return (squares / keys - 1 / keys.square()).clamp_min(0)

    def excess(self, pattern: Float[Tensor, "batch head query key"]) -> Float[Tensor, "batch head query"]:
        """Attention of each query above a uniform row's, as a fraction of its maximum."""
        return self._by_query(pattern, self._excess)

    def on_first(self, pattern: Float[Tensor, "batch head query key"]) -> Float[Tensor, "batch head query"]:
        """Attention of each query on the first key that is no padding."""
        first = self.real.argmax(-1)[:, None, None, None].expand(*pattern.shape[:3], 1)
        return pattern.gather(-1, first)[..., 0].float()

    def structure(
        self,
        excess: Float[Tensor, "batch head query"],
        on_first: Float[Tensor, "batch head query"],
        queries: Bool[Tensor, "batch query"],
    ) -> Float[Tensor, "batch head"]:
        """1 if the rows of some queries are on a single key that is not the first, 0 if uniform or on the first key."""
        return self._mean_of_several(excess.minimum(1 - on_first), queries.float())

    def uniformity(
        self, excess: Float[Tensor, "batch head query"], queries: Bool[Tensor, "batch query"]
    ) -> Float[Tensor, "batch head"]:
        """1 if the rows of some queries are uniform, 0 if each is on a single key."""
        return 1 - self._mean_of_several(excess, queries.float())

    def entropy(self, pattern: Float[Tensor, "batch head query key"]) -> Float[Tensor, "batch head"]:
        """Mean row entropy of all real queries, as a fraction of its maximum."""
        entropy = self._by_query(pattern, lambda queries, rows: -(rows * rows.clamp_min(1e-30).log()).sum(-1))
        return self._mean_of_several(entropy / self.n_keys[:, None].log().clamp_min(1e-9), self.real)

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

    def _excess(self, queries: slice, rows: Float[Tensor, "batch head query key"]) -> Float[Tensor, "batch head query"]:
        keys = self.n_keys[:, None, queries]
        return (rows - 1 / keys[..., None]).clamp_min(0).sum(-1) / (1 - 1 / keys).clamp_min(1e-9)

    def _mean_of_several(
        self, values: Float[Tensor, "batch head query"], queries: Float[Tensor, "batch query"]
    ) -> Float[Tensor, "batch head"]:
        """Mean over those of some queries that see several keys."""
        several = queries[:, None] * (self.n_keys[:, None] > 1)
        return (values * several).sum(-1) / several.sum(-1).clamp_min(1)

    def weigh_values(
        self, pattern: Float[Tensor, "batch head query key"], norm: Float[Tensor, "batch head key"]
    ) -> dict[str, Tensor]:
        """The value-weighted mass and the mean norm moved: the pattern times the norm of what each key writes."""
        mass = self._zeros(pattern, pattern.shape[2], self.chance.shape[1])
        totals = self._zeros(pattern, pattern.shape[2])
        for queries, rows, related in self._each_block(pattern):
            weighted = rows * norm[:, :, None]
            total = weighted.sum(-1, keepdim=True)
            share = torch.where(total > 0, weighted / total.clamp_min(1e-30), 0)
            mass[:, :, queries] = _mass(share, related)
            totals[:, :, queries] = total[..., 0]
        real = self.real[:, None]
        moved = (totals * real).sum(-1) / real.sum(-1).clamp_min(1)
        return {"value_weighted_mass": mass, "moved": moved}


class CountedRows:
    """The queries of some sets that are scored on each kind. A column is a kind at a set: all kinds at the first set
    come first."""

    counts: Float[Tensor, "batch column query"]
    """1 for each query that is scored: one of the set with related and unrelated visible keys. None in a sequence in
    which fewer than half of the set's queries with related keys have unrelated ones too, since few rows, such as that
    of a special token, would then decide what the head looks like."""
    room: Float[Tensor, "batch column"]
    """The highest mass above chance, summed over the scored queries."""

    def __init__(self, rows: RelationRows, query_sets: Bool[Tensor, "batch set query"]):
        in_set = query_sets.float()[:, :, None]
        described = rows.described[:, None] * in_set
        counts = rows.undecided[:, None] * in_set
        enough = 2 * counts.sum(-1, keepdim=True) >= described.sum(-1, keepdim=True)
        by_set = counts * enough
        self._n_sets = query_sets.shape[1]
        self.counts = by_set.flatten(1, 2)
        self._at_chance_by_query = (by_set * rows.chance[:, None]).flatten(1, 2)
        self._factor = (by_set * rows.factor[:, None]).flatten(1, 2)
        self._room_by_query = self.counts - self._at_chance_by_query
        self.room = self._room_by_query.sum(-1)
        self.at_chance = self._at_chance_by_query.sum(-1)
        self._weight = torch.where(self.room > 0, 1 / self.room.clamp_min(1e-9), 0)

    def scaled(self, mass: Float[Tensor, "batch head query kind"]) -> Float[Tensor, "batch head column"]:
        """Score from the attention on related keys."""
        by_set = self.counts.unflatten(1, (self._n_sets, -1))
        total = einsum(mass, by_set, "b h q c, b s c q -> b h s c").flatten(2)
        return (total - self.at_chance[:, None]) / self.room[:, None]  # 0 / 0 where no query counts

    def above_chance(self, mass: Float[Tensor, "batch head query kind"]) -> Float[Tensor, "head column query"]:
        """What each query position adds to the score, summed over sequences."""
        weights = (self.counts * self._weight[..., None]).unflatten(1, (self._n_sets, -1))
        above = einsum(mass, weights, "b h q c, b s c q -> h s c q").flatten(1, 2)
        return above - (self._at_chance_by_query * self._weight[..., None]).sum(0)

    def null_variance(self, row_variance: Float[Tensor, "batch head query"]) -> Float[Tensor, "batch head column"]:
        """Variance of the score if the visible keys of each query are permuted."""
        variance = row_variance @ self._factor.mT
        return variance / self.room[:, None].square().clamp_min(1e-9)

    def totals(self) -> dict[str, Tensor]:
        """Sums over sequences: weight of each query in the score, and whether several, or any, are scored."""
        n_counted = self.counts.sum(-1)
        room = (self._room_by_query * self._weight[..., None]).sum(0)
        several = (n_counted > 1).sum(0).float()
        return {"room": room, "several": several, "scored": (n_counted > 0).sum(0).float()}


def _mass(
    rows: Float[Tensor, "batch head query key"], related: Float[Tensor, "batch query key kind"]
) -> Float[Tensor, "batch head query kind"]:
    """Attention of each query on its related keys."""
    return (rows.transpose(1, 2) @ related).transpose(1, 2)
