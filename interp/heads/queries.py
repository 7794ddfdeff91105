"""Queries of a head that are read: those at which its output can reach a scored position."""

from collections.abc import Sequence
from typing import Any, Literal, cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from hooks import TransformerStack
from hooks.interventions.clean_pass import Net
from hooks.model.attention import visible_keys
from interp.tasks.base import Batch

Queries = Literal["read", "all"]
"""Queries at which kinds are scored."""
ROUNDING = 1e-3
"""Relative rounding error of attention: a uniform row attends to each of its keys with its share."""
NOTHING = 1e-6
"""A head whose output is smaller than this share of the largest one writes rounding errors."""


def real_positions(batch: Batch) -> Bool[Tensor, "batch pos"]:
    """Positions that are no padding."""
    if batch.attention_mask is None:
        return torch.ones_like(batch.tokens, dtype=torch.bool)
    return batch.attention_mask.bool()


def scored_positions(batch: Batch) -> Bool[Tensor, "batch pos"]:
    """Positions at which an example has a target."""
    n_targets = torch.zeros(batch.tokens.shape, device=batch.tokens.device)
    n_targets.scatter_add_(1, batch.target_positions, batch.present.to(n_targets))
    return (n_targets > 0) & real_positions(batch)


@torch.no_grad()
def writing_heads(model: Net) -> Bool[Tensor, "layer head"]:
    """Heads that write something of what they attend to: W_V W_O, with b I on it, is not zero.

    A head that writes a millionth of what the largest one of the model does, or less, writes nothing. Of a wrapped
    model, W_O alone counts.
    """
    size = torch.stack([_size_of_output(model, layer) for layer in range(model.cfg.n_layers)])
    return size > NOTHING * size.max()


def attended_keys(
    pattern: Float[Tensor, "batch head query key"],
    n_keys: Float[Tensor, "batch query"],
    writing: Bool[Tensor, " head"],
) -> Bool[Tensor, "batch query key"]:
    """Keys to which some head of a layer that writes attends with at least their share under uniform attention.

    Args:
        pattern: Patterns of the heads of a layer.
        n_keys: Number of visible keys of each query.
        writing: `writing_heads` of the layer.
    """
    if not writing.any():
        return torch.zeros_like(pattern[:, 0], dtype=torch.bool)
    of_writing_heads = pattern if writing.all() else pattern[:, writing.to(pattern.device)]
    return of_writing_heads.amax(1) * n_keys[..., None] >= 1 - ROUNDING


def _size_of_output(model: Net, layer: int) -> Float[Tensor, " head"]:
    """Norm of W_V W_O + b I for each head of a layer, of a wrapped model that of W_O."""
    attention: Any = model.blocks[layer].attn
    w_o = attention.W_O.detach().double().cpu()
    if model.capabilities is not None:  # W_V may be missing
        return w_o.flatten(1).norm(dim=1)
    w_v = attention.W_V.detach().double().cpu()
    square = ((w_v.mT @ w_v) * (w_o @ w_o.mT)).sum((1, 2))
    if model.cfg.vo_identity:
        b = cast(TransformerStack, model).block(layer).attention.b.detach().double().cpu()
        square = square + 2 * b * (w_v * w_o.mT).sum((1, 2)) + b.square() * w_o.shape[2]
    return square.clamp_min(0).sqrt()


def read_positions(
    attended: Sequence[Bool[Tensor, "batch query key"]], scored: Bool[Tensor, "batch query"]
) -> Bool[Tensor, "batch layer query"]:
    """Positions at which the output of each layer is read.

    The output of the last layer is read at the scored positions. That of an earlier layer is read where the next one's
    is, since the residual stream keeps it, and at the keys to which the next layer attends from there.

    Args:
        attended: `attended_keys` of the second layer and of each later one.
        scored: `scored_positions`.
    """
    layers = [scored]
    for keys in reversed(attended):
        from_queries = layers[0]
        attended_from_there = (from_queries[:, None].float() @ keys.float())[:, 0] > 0
        layers.insert(0, from_queries | attended_from_there)
    return torch.stack(layers, 1)


@torch.no_grad()
def read_queries(model: Net, batch: Batch) -> Bool[Tensor, "batch layer query"]:
    """Queries of every layer that are read: where its heads' output can reach a scored position.

    Args:
        model: Model with the heads.
        batch: Sequences and their scored positions.

    >>> import torch
    >>> import interp
    >>> from hooks import Transformer
    >>> from interp.heads.queries import read_queries
    >>> task = interp.tasks.Template(templates=["abc -> +1", "aba -> -1"])
    >>> model = Transformer(interp.config_for(task, n_layers=2, n_heads=2, d_model=16), seed=0)
    >>> batch = task.sample(1, generator=torch.Generator().manual_seed(0))
    >>> read_queries(model, batch)[0, 1].tolist()  # of the last layer: the position of the answer
    [False, False, False, True]
    """
    n_keys = visible_keys(model.cfg, batch.tokens, batch.attention_mask).sum(-1).float()
    writing = writing_heads(model)
    attended: dict[int, Tensor] = {}

    def record(pattern: Tensor, hook) -> None:
        attended[hook.layer()] = attended_keys(pattern, n_keys, writing[hook.layer()])

    layers = range(1, model.cfg.n_layers)
    with model.hooks([(f"blocks.{layer}.attn.hook_pattern", record) for layer in layers]):
        model(batch.tokens, **batch.model_inputs())
    return read_positions([attended[layer] for layer in layers], scored_positions(batch))
