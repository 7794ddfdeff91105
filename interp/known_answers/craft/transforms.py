"""Changes of weights that preserve the function: more heads or layers, permuted heads, rescaled weights, rotations."""

import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from hooks import Transformer, TransformerStack
from hooks.interventions.ablation_engine import every_head
from hooks.model.blocks import MLP, Block
from hooks.model.layers import Identity, Linear
from interp.known_answers.answers import KnownAnswer
from interp.known_answers.craft.weights import (
    LINEAR_EPS,
    clear,
    head_rows,
    mean_preserving_rotation,
    set_identity_norms,
)
from interp.known_answers.craft.weights import rotate as rotate_stream

SMALLEST, LARGEST = 0.3, 3.0
"""Range of the random factors of `rescale`."""


@torch.no_grad()
def enlarge(
    model: Transformer, *, heads: int = 0, registers: int = 0, units: int = 0, layers: int = 0, untie: bool = False
) -> Transformer:
    """Copy a model and add heads, coordinates, hidden units and layers of zero weights; the function is unchanged.

    Args:
        model: Model of pre_ln blocks with identity norms (`set_identity_norms`).
        heads: Number of heads to add to each block, after the existing ones.
        registers: Number of coordinates to add to the stream, just before the last one, which balances the mean.
        units: Number of hidden units to add to each MLP, after the existing ones.
        layers: Number of layers to add at the end.
        untie: Give each layer of a tied model a separate block.

    Returns:
        The copy, of the model's dtype, in evaluation mode.

    Raises:
        ValueError: a negative number, another kind of block, fixed positions or embeddings, hard-coded heads, or
            additional layers for a model that stays tied.
    """
    old = model.cfg
    if min(heads, registers, units, layers) < 0:
        raise ValueError(
            f"heads, registers, units and layers are {heads}, {registers}, {units} and {layers}; none may be negative."
        )
    if old.block != "pre_ln" or old.positions not in ("learned", "none") or old.embedding is not None:
        raise ValueError(
            f"the model has block={old.block!r} and positions={old.positions!r}; only pre_ln models whose positions "
            f"and embeddings are weights can be enlarged."
        )
    if old.head_patterns:
        raise ValueError("the model has hard-coded heads, which cannot be enlarged; write them as queries and keys.")
    if layers and old.tied and not untie:
        raise ValueError(f"layers is {layers}, but the model is tied: all of its layers are one block. Set untie=True.")
    cfg = replace(
        old,
        n_heads=old.n_heads + heads,
        d_model=old.d_model + registers,
        d_mlp=(old.d_mlp or 0) + units,
        n_layers=old.n_layers + layers,
        tied=old.tied and not untie,
    )
    larger = Transformer(cfg).to(model.embed.weight.dtype)
    clear(larger)
    kept = torch.arange(old.d_model)
    kept[-1] += registers
    larger.embed.weight[:, kept] = model.embed.weight
    if model.positions is not None and larger.positions is not None:
        cast(Tensor, larger.positions.weight)[:, kept] = cast(Tensor, model.positions.weight)
    if not cfg.tied_embedding:
        _copy(larger.unembed, model.unembed, columns=kept)
    for layer in range(old.n_layers):  # in a tied model this writes the same block several times
        _copy_block(larger.block(layer), model.block(layer), kept)
    set_identity_norms(larger)
    return larger.eval()


def _copy_block(new: Block, old: Block, kept: Int[Tensor, " old_d_model"]) -> None:
    for name in "qkv":
        _copy(getattr(new.attention, name), getattr(old.attention, name), columns=kept)
    _copy(new.attention.o, old.attention.o, rows=kept)
    for name in "ab":
        into, source = getattr(new.attention, name), getattr(old.attention, name)
        if source is not None:
            into[: len(source)] = source
    if isinstance(new.mlp, MLP) and isinstance(old.mlp, MLP):
        _copy(new.mlp.w_in, old.mlp.w_in, columns=kept)
        _copy(new.mlp.w_out, old.mlp.w_out, rows=kept)


def _copy(
    new: Any, old: Any, *, rows: Int[Tensor, " row"] | None = None, columns: Int[Tensor, " column"] | None = None
) -> None:
    """Copy a linear map into a larger one, to these rows and columns; default: the first ones."""
    rows = torch.arange(old.weight.shape[0]) if rows is None else rows
    columns = torch.arange(old.weight.shape[1]) if columns is None else columns
    new.weight[rows[:, None], columns] = old.weight
    if new.bias is not None and old.bias is not None:
        new.bias[rows] = old.bias


@torch.no_grad()
def permute_heads(model: TransformerStack, orders: Sequence[Sequence[int]]) -> None:
    """Permute the heads of each block; the function is unchanged.

    Args:
        model: Model to change in place.
        orders: For each stored block, its present heads in their new order.

    Raises:
        ValueError: a wrong number of orders, an order that is not a permutation, hard-coded heads, or heads without
            an output matrix, which write where their position says.
    """
    blocks, n_heads = model.stored_blocks, model.cfg.n_heads
    if len(orders) != len(blocks):
        raise ValueError(f"there are {len(orders)} orders; the model has {len(blocks)} blocks. Pass one for each.")
    for order in orders:
        if sorted(order) != list(range(n_heads)):
            raise ValueError(f"an order is {list(order)}; it must contain each of the heads 0 to {n_heads - 1} once.")
    if all(list(order) == list(range(n_heads)) for order in orders):
        return
    if model.cfg.head_patterns or not model.cfg.output_projection:
        raise ValueError("heads that are hard-coded, or have no output matrix, cannot be permuted.")
    for block, order in zip(blocks, orders, strict=True):
        attention = block.attention
        every = torch.arange(attention.v.weight.shape[0]).view(n_heads, -1)
        rows = every[list(order)].flatten()
        for name in "qkv":
            linear = cast(Linear, getattr(attention, name))
            linear.weight.copy_(linear.weight[rows])
            if linear.bias is not None:
                linear.bias.copy_(linear.bias[rows])
        attention.o.weight.copy_(attention.o.weight[:, rows])
        for each in (attention.a, attention.b):
            if each is not None:
                each.copy_(each[list(order)])


@torch.no_grad()
def rescale(model: Transformer, generator: torch.Generator) -> None:
    """Multiply weights by random factors that cancel; the function is unchanged.

    The factors of a head's queries and keys cancel, those of its values and output, and those of the hidden units of a
    relu MLP and of the weights that read them. Values are unchanged where heads have no output matrix.

    Args:
        model: Model to change in place.
        generator: Determines the factors, between 0.3 and 3.
    """
    for block in model.stored_blocks:
        attention = block.attention
        for head in range(attention.n_heads):
            rows = head_rows(block, head)
            scores, written = _factors(2, generator).tolist()
            if attention.learned:
                _scale_rows(attention.q, rows, scores)
                _scale_rows(attention.k, rows, 1 / scores)
            if not isinstance(attention.o, Identity):
                _scale_rows(attention.v, rows, written)
                attention.o.weight[:, rows] /= written
        if block.mlp is not None and model.cfg.activation == "relu":
            read = block.mlp.w_in
            units = _factors(len(read.weight), generator).to(read.weight)
            read.weight.mul_(units[:, None])
            if read.bias is not None:
                read.bias.mul_(units)
            after: nn.Module = getattr(block.mlp, "w_2", block.mlp.w_out)
            cast(Linear, after).weight.div_(units)


def _factors(n: int, generator: torch.Generator) -> Float[Tensor, " n"]:
    """Log-uniform factors."""
    low, high = math.log(SMALLEST), math.log(LARGEST)
    return (low + (high - low) * torch.rand(n, generator=generator, dtype=torch.float64)).exp()


def _scale_rows(linear: Linear, rows: slice, factor: float) -> None:
    linear.weight[rows] *= factor
    if linear.bias is not None:
        linear.bias[rows] *= factor


def randomise(known: KnownAnswer, generator: torch.Generator, *, rotate: bool) -> KnownAnswer:
    """Copy a known answer with heads in random order and weights at other scales.

    Args:
        known: Known answer; it is not changed. Heads that are hard-coded or have no output matrix keep their order.
        generator: Determines everything.
        rotate: Also rotate the residual stream, so that registers are no longer single coordinates.

    Returns:
        A model of the same function, with the truth about each head at its new place.

    Raises:
        ValueError: a rotation of a model whose norms, positions or read-out do not allow it.
    """
    model, cfg = deepcopy(known.model), known.model.cfg
    if rotate:
        if not can_rotate(model):
            raise ValueError(
                f"the stream of this model cannot be rotated (block={cfg.block!r}, positions={cfg.positions!r}, "
                f"tied_embedding={cfg.tied_embedding}, output_projection={cfg.output_projection}); set rotate=False."
            )
        rotate_stream(model, mean_preserving_rotation(cfg.d_model, generator))
    orders = random_orders(model, generator)
    permute_heads(model, orders)
    rescale(model, generator)
    return replace(reordered(known, orders), name=f"{known.name}, randomised", model=model)


def random_orders(model: Transformer, generator: torch.Generator) -> list[list[int]]:
    """A random order of heads for each stored block; the present one where heads cannot be permuted."""
    cfg = model.cfg
    if cfg.head_patterns or not cfg.output_projection:
        return [list(range(cfg.n_heads)) for _ in model.stored_blocks]
    return [torch.randperm(cfg.n_heads, generator=generator).tolist() for _ in model.stored_blocks]


def reordered(known: KnownAnswer, orders: Sequence[Sequence[int]]) -> KnownAnswer:
    """Move the truth about each head, and its partners, to where `permute_heads` puts the head."""
    place = {(layer, head): (layer, orders[layer % len(orders)].index(head)) for layer, head in every_head(known.model)}
    heads = {
        place[head]: replace(truth, partners=tuple(place[other] for other in truth.partners))
        for head, truth in known.heads.items()
    }
    return replace(known, heads=dict(sorted(heads.items())))


def can_rotate(model: Transformer) -> bool:
    """Whether the stream of a model can be rotated: no part of it acts on single coordinates."""
    cfg = model.cfg
    linear = cfg.block in ("bare", "no_norm") or (cfg.block == "pre_ln" and cfg.layer_norm_eps >= LINEAR_EPS)
    return linear and cfg.positions in ("learned", "none") and not cfg.tied_embedding and cfg.output_projection
