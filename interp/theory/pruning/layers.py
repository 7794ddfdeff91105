"""Masks of one random layer, and the growth of the error bound through it.

A random layer is mid = W_R x + LN(Attn(x)); out = W_out relu(W_3 relu(W_2 relu(W_in mid))). It is pruned to a trained
layer's attention and norm, to its MLP, or to the identity. Only the first coordinates of the wide stream are used.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from hooks.model.blocks import ExtendedBlock
from interp.theory.pruning.network import Layout, linears
from interp.theory.pruning.subset_sum import mask_pair
from interp.theory.pruning.target import LayerMaps, spectral_norm

LEAST = 1e-9
"""Least magnitude of which the logarithm is taken, so that an entry of zero has one."""


@dataclass(frozen=True, kw_only=True)
class Projection:
    """The map of a layer's four matrices from the scaled residual and the norm's output, with its errors."""

    residual: float
    """Largest scale of a residual coordinate."""
    first_norm: float
    second_norm: float
    first_error: float
    second_error: float
    """Spectral norms of the two target maps, and of the errors of the pruned ones."""
    from_stream: float
    from_norm: float
    """Lipschitz constants of the target map, from the stream and from the norm's output."""


@dataclass(frozen=True, kw_only=True)
class LayerMasks:
    """Masks of one random layer, with the errors of its maps."""

    masks: dict[str, Tensor]
    """For each matrix of the layer, by module name in the block."""
    projection: Projection
    score_error: float = 0.0
    write_error: float = 0.0
    """Spectral norms of the errors of attention's maps, summed over heads."""
    maps: LayerMaps | None = None
    """The trained layer whose attention it has; None without attention."""


@torch.no_grad()
def mask_attention_layer(block: ExtendedBlock, maps: LayerMaps, layout: Layout) -> LayerMasks:
    """Prune a random layer to a trained layer's attention and norm: x + LN(Attn(x))."""
    masks = nothing_kept(block)
    errors = mask_attention(block, maps.score, maps.centred, layout, masks)
    mid, weights = _residual(block, layout, masks)
    width = layout.width
    gain = maps.gain * (2 * width / block.residual.weight.shape[0]) ** 0.5
    mix = torch.zeros(width + 1, 2 * width + 1, dtype=torch.float64)
    mix[:, : width + 1] = torch.eye(width + 1)
    mix[:width, width] += maps.bias
    mix[:, : width + 1] /= weights
    mix[:width, width + 1 :] = gain.diag()
    sources = torch.cat([mid, torch.arange(layout.normed.start, layout.normed.stop)])
    projection = _linear_projection(block, sources, mix, weights, layout, masks)
    return LayerMasks(masks=masks, score_error=errors[0], write_error=errors[1], projection=projection, maps=maps)


@torch.no_grad()
def mask_projection_layer(block: ExtendedBlock, maps: LayerMaps, layout: Layout) -> LayerMasks:
    """Prune a random layer to a trained layer's MLP, or to the identity if it has none."""
    if maps.w_in is None or maps.w_out is None:
        return mask_identity_layer(block, layout)
    masks = nothing_kept(block)
    mid, weights = _residual(block, layout, masks)
    one = torch.zeros(1, layout.width + 1, dtype=torch.float64)
    one[0, -1] = 1
    first = torch.cat([maps.w_in, one]) / weights
    second = torch.cat([maps.w_out, torch.zeros(1, maps.w_out.shape[1], dtype=torch.float64)])
    second[-1, -1] = 1
    slopes = (spectral_norm(second) * spectral_norm(first * weights), spectral_norm(second) * spectral_norm(first))
    projection = _project(block, mid, first, second, layout=layout, masks=masks, weights=weights, slopes=slopes)
    return LayerMasks(masks=masks, projection=projection)


@torch.no_grad()
def mask_identity_layer(block: ExtendedBlock, layout: Layout, *, idle_heads: bool = False) -> LayerMasks:
    """Prune a random layer to the identity. The masks depend on no target.

    With `idle_heads`, attention keeps its weights except one half of W_V and the other half of W_O, so that heads have
    patterns but write zero. Otherwise all of attention is pruned.
    """
    masks = nothing_kept(block)
    if idle_heads:
        for name in "qkvo":
            masks[f"attention.{name}"][:] = True
        for head in range(layout.n_heads):
            width = len(masks["attention.v"]) // layout.n_heads
            middle = head * width + width // 2
            masks["attention.v"][head * width : middle] = False
            masks["attention.o"][:, middle : (head + 1) * width] = False
    mid, weights = _residual(block, layout, masks)
    return LayerMasks(
        masks=masks, projection=_linear_projection(block, mid, torch.diag(1 / weights), weights, layout, masks)
    )


def mask_attention(
    block: ExtendedBlock,
    scores: Float[Tensor, "head wide wide"],
    writes: Float[Tensor, "head d_model wide"],
    layout: Layout,
    masks: dict[str, Tensor],
) -> tuple[float, float]:
    """Set the masks of a layer's heads; return the errors of their scores and writes, summed over heads."""
    attention, inside = block.attention, layout.stream
    score_error = write_error = 0.0
    for head, (score, write) in enumerate(zip(scores, writes, strict=True)):
        width = attention.q.weight.shape[0] // layout.n_heads
        rows = slice(head * width, (head + 1) * width)
        key, query = attention.k.weight[rows, inside], attention.q.weight[rows, inside]
        pair = mask_pair(key, query.T, score.T, candidates=layout.candidates, between="nothing")
        masks["attention.k"][rows, inside], masks["attention.q"][rows, inside] = pair.first, pair.second.T
        score_error += pair.error(score.T)
        signed = torch.cat([write, -write])
        value, out = attention.v.weight[rows, inside], attention.o.weight[layout.written, rows]
        pair = mask_pair(value, out, signed, candidates=layout.candidates, between="nothing")
        masks["attention.v"][rows, inside], masks["attention.o"][layout.written, rows] = pair.first, pair.second
        write_error += pair.error(signed)
    return score_error, write_error


def nothing_kept(block: ExtendedBlock) -> dict[str, Tensor]:
    """Masks that keep none of a layer's weights."""
    return {name: torch.zeros(linear.weight.shape, dtype=torch.bool) for name, linear in linears(block).items()}


def _residual(
    block: ExtendedBlock, layout: Layout, masks: dict[str, Tensor]
) -> tuple[Int[Tensor, " wide"], Float[Tensor, " wide"]]:
    """Keep one large entry per coordinate, in distinct rows that the norm does not write to."""
    weight = block.residual.weight.double()[:, layout.stream]
    written = range(len(weight))[layout.written]
    free = torch.tensor([row for row in range(len(weight)) if row not in written])
    rows, columns = linear_sum_assignment(weight[free].abs().clamp_min(LEAST).log().numpy(), maximize=True)
    mid = free[torch.from_numpy(rows)[torch.from_numpy(columns).argsort()]]
    columns = torch.arange(layout.width + 1)
    masks["residual"][mid, columns] = True
    return mid, weight[mid, columns]


def _linear_projection(
    block: ExtendedBlock,
    sources: Int[Tensor, " input"],
    mix: Float[Tensor, "wide input"],
    weights: Float[Tensor, " wide"],
    layout: Layout,
    masks: dict[str, Tensor],
) -> Projection:
    """Set the masks of a layer's projection to a linear map, as relu(y) - relu(-y)."""
    unit = torch.eye(len(mix), dtype=torch.float64)
    slopes = (spectral_norm(mix[:, : len(weights)] * weights), spectral_norm(mix))
    first, second = torch.cat([mix, -mix]), torch.cat([unit, -unit], 1)
    return _project(block, sources, first, second, layout=layout, masks=masks, weights=weights, slopes=slopes)


def _project(
    block: ExtendedBlock,
    sources: Int[Tensor, " input"],
    first: Float[Tensor, "hidden input"],
    second: Float[Tensor, "wide hidden"],
    *,
    layout: Layout,
    masks: dict[str, Tensor],
    weights: Float[Tensor, " wide"],
    slopes: tuple[float, float],
) -> Projection:
    """Set the masks of a layer's projection to second(relu(first(x)))."""
    mlp, hidden, n = block.mlp, len(first), layout.candidates
    assert mlp is not None
    inner = mask_pair(mlp.w_in.weight[:, sources], mlp.w_2.weight[:hidden], first, candidates=n, between="relu")
    outer = mask_pair(
        mlp.w_3.weight[:, :hidden],
        mlp.w_out.weight[layout.stream],
        second,
        candidates=n,
        between="relu, inputs not negative",
    )
    masks["mlp.w_in"][:, sources], masks["mlp.w_2"][:hidden] = inner.first, inner.second
    masks["mlp.w_3"][:, :hidden], masks["mlp.w_out"][layout.stream] = outer.first, outer.second
    return Projection(
        residual=float(weights.abs().max()),
        first_norm=spectral_norm(first),
        second_norm=spectral_norm(second),
        first_error=inner.error(first),
        second_error=outer.error(second),
        from_stream=slopes[0],
        from_norm=slopes[1],
    )


@dataclass(frozen=True, kw_only=True)
class Growth:
    """Bounds after a layer, over the ball of inputs, in ||.||_{1,2} of the stream with its coordinate that is 1."""

    radius: float
    """Of the stream."""
    error: float
    """Of its error."""


def grow(before: Growth, kept: LayerMasks, *, d_model: int, eps: float) -> Growth:
    """Error bound after one random layer: the entering error times the Lipschitz constant, plus the layer's own error.

    `d_model` and `eps` are the width of the random network and the epsilon of its norm.

    Source: bounded Dyck (arXiv:2312.01429) Theorem 3, Lemma 5. Differs: constants are computed from the masks; the
    Lipschitz constant of a norm is 1 / sqrt(eps), which makes them large.
    """
    made, entering = kept.projection, before.radius + before.error
    normed = 0.0 if kept.maps is None else (d_model / 2) ** 0.5
    normed_error = 0.0 if kept.maps is None else _attention_error(before, kept, kept.maps) / eps**0.5
    read = ((made.residual * entering) ** 2 + normed**2) ** 0.5 + normed_error
    own = made.second_norm * made.first_error + made.second_error * (made.first_norm + made.first_error)
    return Growth(
        radius=made.from_stream * before.radius + made.from_norm * normed,
        error=made.from_stream * before.error + made.from_norm * normed_error + own * read,
    )


def _attention_error(before: Growth, kept: LayerMasks, maps: LayerMaps) -> float:
    """Error of what heads write, with its mirrored copy. Rows of the pattern change by no more than the scores do."""
    entering = before.radius + before.error
    writes = [spectral_norm(write) for write in maps.centred]
    moved = sum(
        write * (before.error + entering * spectral_norm(score) * (before.radius + entering) * before.error)
        for write, score in zip(writes, maps.score, strict=True)
    )
    own = kept.write_error * entering + max(writes) * entering * kept.score_error * entering**2
    return 2**0.5 * moved + own * 2**0.5
