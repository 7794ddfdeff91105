"""Measures of heads on every sequence: scores on relations, their permutation null, uniformity, entropy, norms."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from einops import einsum
from jaxtyping import Bool, Float
from torch import Tensor

from hooks.interventions.ablation_engine import Net, projected_values
from interp.core.activations import chunks
from interp.core.verbs import visible_keys
from interp.heads.kinds import relations_of
from interp.tasks.base import Batch, Task

CHUNK = 64


@dataclass(frozen=True, kw_only=True)
class Measures:
    """Measures of every head on every sequence. A score is nan where the relation is not scored (`Rows.counts`)."""

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
    # computed for the whole batch, since a part of it may lack a relation
    related = torch.stack(list(relations_of(task, batch, kinds).values()), 1)
    parts, sums, chances = [], [], []
    for part, relation in zip(chunks(batch, CHUNK), related.split(CHUNK), strict=True):
        rows = _rows(model, part, relation)
        values = _measure_part(model, part, rows)
        sums.append({"above": values.pop("above").transpose(0, 1), **rows.totals()})
        parts.append(values)
        chances.append(rows.chance.mean((0, 2)))
    joined = {name: torch.cat([values[name] for values in parts]).double().numpy() for name in parts[0]}
    total = {name: torch.stack([values[name] for values in sums]).double().sum(0) for name in sums[0]}
    return Measures(**joined, chance=torch.stack(chances).mean(0).numpy(), without_best=_without_best(**total))


@torch.no_grad()
def pattern_scores(
    model: Net, batch: Batch, related: Bool[Tensor, "batch kind query key"]
) -> Float[np.ndarray, "sample layer head column"]:
    """Score on every kind, then the uniformity, of every head: the measures that need only the patterns."""
    rows, layers = _rows(model, batch, related), {}

    def measure_pattern(pattern: Tensor, hook) -> None:
        pattern = pattern.float()
        layers[hook.layer()] = torch.cat([rows.score(pattern), rows.uniformity(pattern)[..., None]], -1)

    at = [(f"blocks.{layer}.attn.hook_pattern", measure_pattern) for layer in range(model.cfg.n_layers)]
    with model.hooks(at):
        model(batch.tokens, **batch.model_inputs())
    return torch.stack([layers[layer] for layer in range(model.cfg.n_layers)], 1).double().numpy()


def _rows(model: Net, part: Batch, related: Bool[Tensor, "batch kind query key"]) -> "Rows":
    allowed = visible_keys(model, part.tokens, part.attention_mask)
    real = torch.ones_like(part.tokens, dtype=torch.bool) if part.attention_mask is None else part.attention_mask
    return Rows(related & allowed[:, None], allowed, real)


def _measure_part(model: Net, part: Batch, rows: "Rows") -> dict[str, Tensor]:
    """The fields of `Measures` over sequences for a part of a batch, by name, and `above` of `Rows.measure`."""
    layers: list[dict[str, Tensor]] = [{} for _ in range(model.cfg.n_layers)]

    def record_resid(resid: Tensor, hook) -> None:
        layers[hook.layer()]["resid"] = resid

    def record_norm(v: Tensor, hook) -> None:
        layer = hook.layer()
        layers[layer]["norm"] = _write_norm(model, layer, v, layers[layer].pop("resid")).float()

    def measure_pattern(pattern: Tensor, hook) -> None:
        layers[hook.layer()].update(rows.measure(pattern.float()))

    hooks = {"hook_resid_pre": record_resid, "attn.hook_v": record_norm, "attn.hook_pattern": measure_pattern}
    at = [(f"blocks.{layer}.{name}", hook) for layer in range(len(layers)) for name, hook in hooks.items()]
    with model.hooks(at):
        model(part.tokens, **part.model_inputs())
    measured = [rows.weigh_values(layer) for layer in layers]
    return {name: torch.stack([layer[name] for layer in measured], 1) for name in measured[0]}


def _without_best(
    above: Float[Tensor, "layer head kind query"],
    room: Float[Tensor, "kind query"],
    several: Float[Tensor, " kind"],
    scored: Float[Tensor, " kind"],
) -> Float[np.ndarray, "layer head kind"]:
    """`Measures.without_best` from sums over sequences."""
    rest = room.sum(-1, keepdim=True) - room
    left_out = torch.where(rest > 1e-6, (above.sum(-1, keepdim=True) - above) / rest.clamp_min(1e-6), torch.inf)
    mean = above.sum(-1) / scored.clamp_min(1)
    return torch.where(2 * several >= scored, left_out.amin(-1).minimum(mean), mean).numpy()


def _write_norm(
    model: Net, layer: int, v: Float[Tensor, "batch key head d_head"], resid: Float[Tensor, "batch key d_model"]
) -> Float[Tensor, "batch head key"]:
    """Norm of what each key writes through each head at full attention."""
    if model.cfg.vo_identity:
        return projected_values(model, layer, v, resid).norm(dim=-1).transpose(1, 2)
    # |v W_O| = |R v| where W_O^T = Q R, and R is small
    at: Any = model.blocks[layer]
    small = torch.linalg.qr(at.attn.W_O.mT, mode="r").R
    return (v.transpose(1, 2) @ small.mT).norm(dim=-1)


class Rows:
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
        self.real = real.float()
        self.n_keys = allowed.sum(-1).float()
        n_related = related.sum(-1).float()
        self.chance = n_related / self.n_keys[:, None]
        described = (n_related > 0) & real[:, None]
        counts = (described & (self.chance < 1)).float()
        enough = 2 * counts.sum(-1, keepdim=True) >= described.sum(-1, keepdim=True)
        self.counts = counts * enough
        self.room = (self.counts * (1 - self.chance)).sum(-1)
        self.at_chance = (self.counts * self.chance).sum(-1)
        self.wanted = (related * self.counts[..., None]).flatten(2)
        self.weight = torch.where(self.room > 0, 1 / self.room.clamp_min(1e-9), 0)
        # variance of the mass on r of K keys drawn without replacement is this times the row's variance
        self.factor = n_related * (self.n_keys[:, None] - n_related) / (self.n_keys[:, None] - 1).clamp_min(1)

    def totals(self) -> dict[str, Tensor]:
        """Sums over sequences: weight of each query in the score, and whether several, or any, are scored."""
        n_counted = self.counts.sum(-1)
        room = (self.counts * (1 - self.chance) * self.weight[..., None]).sum(0)
        return {"room": room, "several": (n_counted > 1).sum(0), "scored": (n_counted > 0).sum(0)}

    def score(self, pattern: Float[Tensor, "batch head query key"]) -> Float[Tensor, "batch head kind"]:
        mass = pattern.flatten(2) @ self.wanted.mT
        above = mass - self.at_chance[:, None]
        return above / self.room[:, None]  # 0 / 0 where no query counts

    def above(self, pattern: Float[Tensor, "batch head query key"]) -> Float[Tensor, "head kind query"]:
        """What each query adds to the score, summed over sequences."""
        wanted = self.wanted.unflatten(2, pattern.shape[-2:]) * self.weight[..., None, None]
        mass = einsum(pattern, wanted, "b h q k, b c q k -> h c q")
        return mass - (self.counts * self.chance * self.weight[..., None]).sum(0)

    def uniformity(self, pattern: Float[Tensor, "batch head query key"]) -> Float[Tensor, "batch head"]:
        keys = self.n_keys[:, None]
        excess = (pattern - 1 / keys[..., None]).clamp_min(0).sum(-1) / (1 - 1 / keys).clamp_min(1e-9)
        several = self.real[:, None] * (keys > 1)
        return 1 - (excess * several).sum(-1) / several.sum(-1).clamp_min(1)

    def measure(self, pattern: Float[Tensor, "batch head query key"]) -> dict[str, Tensor]:
        keys, real = self.n_keys[:, None], self.real[:, None]
        row_variance = (pattern.square().sum(-1) / keys - 1 / keys.square()).clamp_min(0)
        variance = einsum(row_variance, self.factor * self.counts, "b h q, b c q -> b h c")
        entropy = -(pattern * pattern.clamp_min(1e-30).log()).sum(-1) / keys.log().clamp_min(1e-9)
        several = real * (keys > 1)
        return {
            "pattern": pattern,
            "score": self.score(pattern),
            "above": self.above(pattern),
            "null_variance": variance / self.room[:, None].square().clamp_min(1e-9),
            "uniformity": self.uniformity(pattern),
            "entropy": (entropy * several).sum(-1) / several.sum(-1).clamp_min(1),
            "n_real": real.sum(-1),
        }

    def weigh_values(self, layer: dict[str, Tensor]) -> dict[str, Tensor]:
        """Add the value-weighted score and the mean norm moved: the pattern times the norm of what each key writes."""
        pattern, n_real = layer.pop("pattern"), layer.pop("n_real")
        weighted = pattern * layer.pop("norm")[:, :, None]
        total = weighted.sum(-1, keepdim=True)
        layer["value_weighted"] = self.score(torch.where(total > 0, weighted / total.clamp_min(1e-30), 0))
        layer["moved"] = (total[..., 0] * self.real[:, None]).sum(-1) / n_real.clamp_min(1)
        return layer
