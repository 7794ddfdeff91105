"""Pruning one random layer, and the growth of the error bound through it.

A random layer is mid = W_R x + LN(Attn(x)); out = W_out relu(W_3 relu(W_2 relu(W_in mid))). It is pruned to a trained
layer's attention and norm, to its MLP, or to the identity. Only the first coordinates of the wide stream are used.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hooks.model.blocks import ExtendedBlock
from interp.theory.pruning.network import Layout, apply_masks
from interp.theory.pruning.subset_sum import mask_pair
from interp.theory.pruning.target import LayerMaps, spectral_norm

LEAST = 1e-9
"""Least magnitude of which the logarithm is taken, so that an entry of zero has one."""


@dataclass(frozen=True, kw_only=True)
class LayerErrors:
    """Errors and norms of the maps of one pruned layer, from which `grow` computes the error bound.

    The four matrices of the layer map the scaled residual and the output of the norm to the next stream, in two steps.
    """

    residual: float
    """Largest scale of a residual coordinate."""
    first_norm: float
    second_norm: float
    """Spectral norms of the targets of the two steps."""
    first_error: float
    second_error: float
    """Spectral norms of the errors of the two steps."""
    from_stream: float
    from_norm: float
    """Lipschitz constants of the target map, from the stream and from the norm's output."""
    score_error: float = 0.0
    write_error: float = 0.0
    """Spectral norms of the errors of attention's maps, summed over heads."""
    maps: LayerMaps | None = None
    """The trained layer whose attention it has; None without attention."""


@torch.no_grad()
def prune_attention_layer(block: ExtendedBlock, maps: LayerMaps, layout: Layout) -> LayerErrors:
    """Prune a random layer to a trained layer's attention and norm: x + LN(Attn(x))."""
    attention, score_error, write_error = attention_masks(block, maps.score, maps.centred, layout)
    residual, rows, scales = _residual(block, layout)
    # The map from the scaled stream and the norm's output: undo the scales, add the norm's gain and bias
    width = layout.width
    gain = maps.gain * (2 * width / block.residual.weight.shape[0]) ** 0.5
    target = torch.zeros(width + 1, 2 * width + 1, dtype=torch.float64)
    target[:, : width + 1] = torch.eye(width + 1)
    target[:width, width] += maps.bias
    target[:, : width + 1] /= scales
    target[:width, width + 1 :] = gain.diag()
    inputs = torch.cat([rows, torch.arange(layout.normed.start, layout.normed.stop)])
    projection, errors = _linear_projection(block, inputs, target, scales, layout)
    apply_masks(block, attention | residual | projection)
    return replace(errors, score_error=score_error, write_error=write_error, maps=maps)


@torch.no_grad()
def prune_mlp_layer(block: ExtendedBlock, maps: LayerMaps, layout: Layout) -> LayerErrors:
    """Prune a random layer to a trained layer's MLP, or to the identity if it has none."""
    if maps.w_in is None or maps.w_out is None:
        return prune_identity_layer(block, layout)
    residual, rows, scales = _residual(block, layout)
    # One more hidden unit copies the coordinate that is 1
    copy_of_one = torch.zeros(1, layout.width + 1, dtype=torch.float64)
    copy_of_one[0, -1] = 1
    first = torch.cat([maps.w_in, copy_of_one]) / scales
    second = torch.cat([maps.w_out, torch.zeros(1, maps.w_out.shape[1], dtype=torch.float64)])
    second[-1, -1] = 1
    projection, errors = _projection(
        block,
        rows,
        first,
        second,
        layout=layout,
        scales=scales,
        from_stream=spectral_norm(second) * spectral_norm(first * scales),
        from_norm=spectral_norm(second) * spectral_norm(first),
    )
    apply_masks(block, _no_attention(block) | residual | projection)
    return errors


@torch.no_grad()
def prune_identity_layer(block: ExtendedBlock, layout: Layout, *, idle_heads: bool = False) -> LayerErrors:
    """Prune a random layer to the identity. The masks depend on no target.

    With `idle_heads`, attention keeps its weights except one half of W_V and the other half of W_O, so that heads have
    patterns but write zero. Otherwise all of attention is pruned.
    """
    attention = _no_attention(block)
    if idle_heads:
        for mask in attention.values():
            mask[:] = True
        width = len(attention["attention.v"]) // layout.n_heads
        for head in range(layout.n_heads):
            middle = head * width + width // 2
            attention["attention.v"][head * width : middle] = False
            attention["attention.o"][:, middle : (head + 1) * width] = False
    residual, rows, scales = _residual(block, layout)
    projection, errors = _linear_projection(block, rows, torch.diag(1 / scales), scales, layout)
    apply_masks(block, attention | residual | projection)
    return errors


def attention_masks(
    block: ExtendedBlock,
    scores: Float[Tensor, "head wide wide"],
    writes: Float[Tensor, "head d_model wide"],
    layout: Layout,
) -> tuple[dict[str, Tensor], float, float]:
    """Masks of a layer's heads, and the errors of their scores and of what they write, summed over heads."""
    attention, stream, written = block.attention, layout.stream, layout.written
    masks = _no_attention(block)
    width = attention.q.weight.shape[0] // layout.n_heads
    score_error = write_error = 0.0
    for head, (score, write) in enumerate(zip(scores, writes, strict=True)):
        rows = slice(head * width, (head + 1) * width)
        # W_Q and W_K give the scores
        key, query = attention.k.weight[rows, stream], attention.q.weight[rows, stream]
        pair = mask_pair(key, query.T, score.T, candidates=layout.candidates, between="nothing")
        masks["attention.k"][rows, stream] = pair.first
        masks["attention.q"][rows, stream] = pair.second.T
        score_error += pair.error(score.T)
        # W_V and W_O give what the head writes, and minus that, so that the mean of the norm's input is zero
        mirrored_write = torch.cat([write, -write])
        value, output = attention.v.weight[rows, stream], attention.o.weight[written, rows]
        pair = mask_pair(value, output, mirrored_write, candidates=layout.candidates, between="nothing")
        masks["attention.v"][rows, stream] = pair.first
        masks["attention.o"][written, rows] = pair.second
        write_error += pair.error(mirrored_write)
    return masks, score_error, write_error


def _no_attention(block: ExtendedBlock) -> dict[str, Bool[Tensor, "output input"]]:
    """Masks that keep none of the weights of attention."""
    return {f"attention.{name}": _empty_mask(getattr(block.attention, name).weight) for name in "qkvo"}


def _empty_mask(weight: Float[Tensor, "output input"]) -> Bool[Tensor, "output input"]:
    return torch.zeros(weight.shape, dtype=torch.bool)


def _residual(
    block: ExtendedBlock, layout: Layout
) -> tuple[dict[str, Tensor], Int[Tensor, " wide"], Float[Tensor, " wide"]]:
    """The mask of W_R, which keeps one large entry per coordinate, in distinct rows that the norm does not write to.

    Returns:
        The mask by name; the row and the weight of every coordinate.
    """
    from scipy.optimize import linear_sum_assignment

    weight = block.residual.weight.double()[:, layout.stream]
    written = range(len(weight))[layout.written]
    free_rows = torch.tensor([row for row in range(len(weight)) if row not in written])
    # The assignment with the largest product of weights
    log_sizes = weight[free_rows].abs().clamp_min(LEAST).log().numpy()
    indices, coordinates = linear_sum_assignment(log_sizes, maximize=True)
    rows = free_rows[torch.from_numpy(indices)[torch.from_numpy(coordinates).argsort()]]
    mask = _empty_mask(block.residual.weight)
    columns = torch.arange(layout.width + 1)
    mask[rows, columns] = True
    return {"residual": mask}, rows, weight[rows, columns]


def _linear_projection(
    block: ExtendedBlock,
    inputs: Int[Tensor, " input"],
    target: Float[Tensor, "wide input"],
    scales: Float[Tensor, " wide"],
    layout: Layout,
) -> tuple[dict[str, Tensor], LayerErrors]:
    """Masks of a layer's projection for a linear map, as relu(y) - relu(-y), with its errors."""
    unit = torch.eye(len(target), dtype=torch.float64)
    first = torch.cat([target, -target])
    second = torch.cat([unit, -unit], 1)
    return _projection(
        block,
        inputs,
        first,
        second,
        layout=layout,
        scales=scales,
        from_stream=spectral_norm(target[:, : len(scales)] * scales),
        from_norm=spectral_norm(target),
    )


def _projection(
    block: ExtendedBlock,
    inputs: Int[Tensor, " input"],
    first: Float[Tensor, "hidden input"],
    second: Float[Tensor, "wide hidden"],
    *,
    layout: Layout,
    scales: Float[Tensor, " wide"],
    from_stream: float,
    from_norm: float,
) -> tuple[dict[str, Tensor], LayerErrors]:
    """Masks of a layer's projection for second(relu(first(x))), with its errors.

    `inputs` are the coordinates that `first` reads, `scales` the weights of the residual, and the last two arguments
    the Lipschitz constants of `LayerErrors`.
    """
    mlp = block.mlp
    n_hidden = len(first)
    candidates = layout.candidates
    assert mlp is not None
    masks = {f"mlp.{name}": _empty_mask(getattr(mlp, name).weight) for name in ("w_in", "w_2", "w_3", "w_out")}
    # W_in and W_2 give the first map
    pair = mask_pair(
        mlp.w_in.weight[:, inputs], mlp.w_2.weight[:n_hidden], first, candidates=candidates, between="relu"
    )
    masks["mlp.w_in"][:, inputs] = pair.first
    masks["mlp.w_2"][:n_hidden] = pair.second
    first_error = pair.error(first)
    # W_3 and W_out give the second one; its inputs are outputs of a ReLU
    inner = mlp.w_3.weight[:, :n_hidden]
    outer = mlp.w_out.weight[layout.stream]
    pair = mask_pair(inner, outer, second, candidates=candidates, between="relu, inputs not negative")
    masks["mlp.w_3"][:, :n_hidden] = pair.first
    masks["mlp.w_out"][layout.stream] = pair.second
    errors = LayerErrors(
        residual=float(scales.abs().max()),
        first_norm=spectral_norm(first),
        second_norm=spectral_norm(second),
        first_error=first_error,
        second_error=pair.error(second),
        from_stream=from_stream,
        from_norm=from_norm,
    )
    return masks, errors


@dataclass(frozen=True, kw_only=True)
class Growth:
    """Bounds after a layer, over the ball of inputs, in ||.||_{1,2} of the stream with its coordinate that is 1."""

    radius: float
    """Of the stream."""
    error: float
    """Of its error."""


def grow(before: Growth, errors: LayerErrors, *, d_model: int, eps: float) -> Growth:
    """Error bound after one random layer: the entering error times the Lipschitz constant, plus the layer's own error.

    `d_model` and `eps` are the width of the random network and the epsilon of its norm.

    Source: bounded Dyck (arXiv:2312.01429) Theorem 3, Lemma 5. Differs: constants are computed from the masks; the
    Lipschitz constant of a norm is 1 / sqrt(eps), which makes them large.
    """
    entering = before.radius + before.error
    # The output of the norm, and its error
    norm = norm_error = 0.0
    if errors.maps is not None:
        norm = (d_model / 2) ** 0.5
        norm_error = _attention_error(before, errors, errors.maps) / eps**0.5
    # What the projection reads, and the error that it adds
    projection_input = ((errors.residual * entering) ** 2 + norm**2) ** 0.5 + norm_error
    projection_error = errors.second_norm * errors.first_error
    projection_error += errors.second_error * (errors.first_norm + errors.first_error)
    return Growth(
        radius=errors.from_stream * before.radius + errors.from_norm * norm,
        error=errors.from_stream * before.error + errors.from_norm * norm_error + projection_error * projection_input,
    )


def _attention_error(before: Growth, errors: LayerErrors, maps: LayerMaps) -> float:
    """Error of what heads write, with its mirrored copy. Rows of the pattern change by no more than the scores do."""
    entering = before.radius + before.error
    writes = [spectral_norm(write) for write in maps.centred]
    # The entering error, through the values and through the pattern of every head
    propagated = 0.0
    for write, score in zip(writes, maps.score, strict=True):
        through_pattern = entering * spectral_norm(score) * (before.radius + entering) * before.error
        propagated += write * (before.error + through_pattern)
    # The errors of the maps themselves
    added = errors.write_error * entering + max(writes) * entering * errors.score_error * entering**2
    return 2**0.5 * propagated + added * 2**0.5
