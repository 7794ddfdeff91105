"""Masks of one random layer, so that it does half of a trained layer's work, or hands on what it gets.

A random layer is mid = W_R x + LN(Attn(x)); out = W_out relu(W_3 relu(W_2 relu(W_in mid))). One of them takes a
trained layer's attention and norm, the next its MLP. Of a wide stream only the first coordinates are in use.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from hooks.model.blocks import ExtendedBlock
from interp.theory.pruning.network import Layout, linears
from interp.theory.pruning.selection import mask_pair
from interp.theory.pruning.target import LayerMaps, spectral_norm

NO_COPY = 1e-9
"""What the logarithm of an entry that is exactly zero is taken of."""


@dataclass(frozen=True, kw_only=True)
class Projection:
    """What a layer's four matrices were to do with the residual's scaled copy and the norm's output, and how well."""

    residual: float
    """Largest scale of the copy."""
    first_norm: float
    second_norm: float
    first_error: float
    second_error: float
    """Spectral norms of the two maps wanted, and of what the pruned ones have too much."""
    from_stream: float
    from_norm: float
    """Lipschitz constants of the map wanted: from the stream, and from what the norm hands on."""


@dataclass(frozen=True, kw_only=True)
class LayerMasks:
    """What is kept of one random layer, and how well that does."""

    masks: dict[str, Tensor]
    """For each matrix of the layer, by the name of its module in the block."""
    projection: Projection
    score_error: float = 0.0
    write_error: float = 0.0
    """Spectral norms of what attention's maps have too much, summed over heads."""


@torch.no_grad()
def mask_attention_layer(block: ExtendedBlock, maps: LayerMaps, layout: Layout) -> LayerMasks:
    """A random layer that adds to the stream what a trained layer's norm makes of its attention."""
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
    projection = _hand_on(block, sources, mix, weights, layout, masks)
    return LayerMasks(masks=masks, score_error=errors[0], write_error=errors[1], projection=projection)


@torch.no_grad()
def mask_projection_layer(block: ExtendedBlock, maps: LayerMaps, layout: Layout) -> LayerMasks:
    """A random layer that does what a trained layer's MLP does, or nothing where there is none."""
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
    """A random layer that hands on the stream. It depends on no target.

    Args:
        block: The random layer.
        layout: Where the stream lies in it.
        idle_heads: Keep the weights of attention, but for half of W_V and the other half of W_O: heads look at
            something, and nothing comes of it. All of attention goes when False.
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
    return LayerMasks(masks=masks, projection=_hand_on(block, mid, torch.diag(1 / weights), weights, layout, masks))


def mask_attention(
    block: ExtendedBlock,
    scores: Float[Tensor, "head wide wide"],
    writes: Float[Tensor, "head d_model wide"],
    layout: Layout,
    masks: dict[str, Tensor],
) -> tuple[float, float]:
    """Fill in the masks of a layer's heads; returns the errors of their scores and writes, summed over heads."""
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
        written = slice(layout.normed.start, layout.mirrored.stop)
        value, out = attention.v.weight[rows, inside], attention.o.weight[written, rows]
        pair = mask_pair(value, out, signed, candidates=layout.candidates, between="nothing")
        masks["attention.v"][rows, inside], masks["attention.o"][written, rows] = pair.first, pair.second
        write_error += pair.error(signed)
    return score_error, write_error


def nothing_kept(block: ExtendedBlock) -> dict[str, Tensor]:
    """Masks that keep none of a layer's weights."""
    return {name: torch.zeros(linear.weight.shape, dtype=torch.bool) for name, linear in linears(block).items()}


def _residual(
    block: ExtendedBlock, layout: Layout, masks: dict[str, Tensor]
) -> tuple[Int[Tensor, " wide"], Float[Tensor, " wide"]]:
    """Keep one large entry per coordinate, each in a row of its own, none where the norm writes."""
    weight = block.residual.weight.double()[:, layout.stream]
    written = range(layout.normed.start, layout.mirrored.stop)
    free = torch.tensor([row for row in range(len(weight)) if row not in written])
    rows, columns = linear_sum_assignment(weight[free].abs().clamp_min(NO_COPY).log().numpy(), maximize=True)
    mid = free[torch.from_numpy(rows)[torch.from_numpy(columns).argsort()]]
    columns = torch.arange(layout.width + 1)
    masks["residual"][mid, columns] = True
    return mid, weight[mid, columns]


def _hand_on(
    block: ExtendedBlock,
    sources: Int[Tensor, " input"],
    mix: Float[Tensor, "wide input"],
    weights: Float[Tensor, " wide"],
    layout: Layout,
    masks: dict[str, Tensor],
) -> Projection:
    """A linear map by an MLP: y = relu(y) - relu(-y)."""
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
    """Fill in the masks of a layer's projection, so that it is second(relu(first(x)))."""
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
