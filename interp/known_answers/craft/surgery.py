"""Making a written-down transformer larger, or other, without changing what it computes."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from hooks import Transformer
from hooks.model.blocks import MLP, Block
from hooks.modules import Identity, Linear
from interp.known_answers.craft.one_hot import clear
from interp.known_answers.craft.wiring import head_rows, wire_norms

SMALLEST, LARGEST = 0.3, 3.0
"""Range of the random factors of `rescale`."""


@torch.no_grad()
def enlarge(
    model: Transformer, *, heads: int = 0, registers: int = 0, layers: int = 0, untie: bool = False
) -> Transformer:
    """A copy of a wired model with room for more: whatever is new is zero, and the function stays.

    Args:
        model: With pre_ln blocks and norms as `wiring.wire_norms` leaves them.
        heads: More heads for each block, after those that are there.
        registers: More coordinates of the stream, just before the last one, which balances the mean.
        layers: More layers at the end, each of which hands on what it gets.
        untie: Give each layer of a tied model a block of its own.

    Returns:
        The copy, of the model's dtype, in evaluation mode.

    Raises:
        ValueError: a negative number, another kind of block, fixed positions or embeddings, hard-coded heads, or more
            layers for a model that stays tied.
    """
    old = model.cfg
    if min(heads, registers, layers) < 0:
        raise ValueError(f"heads, registers and layers are {heads}, {registers} and {layers}; none may be negative.")
    if old.block != "pre_ln" or old.positions not in ("learned", "none") or old.embedding is not None:
        raise ValueError(
            f"the model has block={old.block!r} and positions={old.positions!r}; only one that was wired register by "
            f"register can be enlarged: pre_ln, with positions and embeddings that are weights."
        )
    if old.head_patterns:
        raise ValueError("the model has hard-coded heads, which cannot be enlarged; write them as queries and keys.")
    if layers and old.tied and not untie:
        raise ValueError(f"layers is {layers}, but the model is tied: all of its layers are one block. Set untie=True.")
    cfg = replace(
        old,
        n_heads=old.n_heads + heads,
        d_model=old.d_model + registers,
        n_layers=old.n_layers + layers,
        tied=old.tied and not untie,
    )
    larger = Transformer(cfg).to(model.embed.weight.dtype)
    clear(larger)
    kept = _kept(old.d_model, registers)
    larger.embed.weight[:, kept] = model.embed.weight
    if model.positions is not None and larger.positions is not None:
        cast(Tensor, larger.positions.weight)[:, kept] = cast(Tensor, model.positions.weight)
    if not cfg.tied_embedding:
        read_out, before = cast(Linear, larger.unembed), cast(Linear, model.unembed)
        read_out.weight[:, kept] = before.weight
        _copy_bias(read_out, before)
    for layer in range(old.n_layers):  # of a tied model this writes the same block again and again
        _copy_block(larger.block(layer), model.block(layer), kept)
    wire_norms(larger)
    return larger.eval()


def _kept(d_model: int, registers: int) -> Int[Tensor, " old_d_model"]:
    """Where the old coordinates of the stream stand in the new one."""
    at = torch.arange(d_model)
    at[-1] += registers
    return at


def _copy_block(new: Block, old: Block, kept: Int[Tensor, " old_d_model"]) -> None:
    width = old.attention.v.weight.shape[0]
    for name in "qkv":
        into, source = cast(Linear, getattr(new.attention, name)), cast(Linear, getattr(old.attention, name))
        into.weight[:width, kept] = source.weight
        if into.bias is not None and source.bias is not None:
            into.bias[:width] = source.bias
    _copy_writer(cast(Linear, new.attention.o), cast(Linear, old.attention.o), kept)
    for name in "ab":
        into, source = getattr(new.attention, name), getattr(old.attention, name)
        if source is not None:
            into[: len(source)] = source
    if isinstance(new.mlp, MLP) and isinstance(old.mlp, MLP):
        new.mlp.w_in.weight[:, kept] = old.mlp.w_in.weight
        _copy_bias(new.mlp.w_in, old.mlp.w_in)
        _copy_writer(new.mlp.w_out, old.mlp.w_out, kept)


def _copy_writer(new: Linear, old: Linear, kept: Int[Tensor, " old_d_model"]) -> None:
    new.weight[kept, : old.weight.shape[1]] = old.weight
    if new.bias is not None and old.bias is not None:
        new.bias[kept] = old.bias


def _copy_bias(new: Linear, old: Linear) -> None:
    if new.bias is not None and old.bias is not None:
        new.bias.copy_(old.bias)


@torch.no_grad()
def permute_heads(model: Transformer, orders: Sequence[Sequence[int]]) -> None:
    """Put the heads of each block into another order; the function stays.

    Args:
        model: Any; changed in place.
        orders: For each stored block, which of its heads comes first, second, ...

    Raises:
        ValueError: another number of orders than of blocks, one that is no permutation of the heads, hard-coded heads,
            or heads without an output matrix, whose order decides where they write.
    """
    blocks, n_heads = model.stored_blocks, model.cfg.n_heads
    if len(orders) != len(blocks):
        raise ValueError(f"there are {len(orders)} orders; the model has {len(blocks)} blocks, one for each.")
    for order in orders:
        if sorted(order) != list(range(n_heads)):
            raise ValueError(f"an order is {list(order)}; it must hold each of the heads 0 to {n_heads - 1} once.")
    if all(list(order) == list(range(n_heads)) for order in orders):
        return
    if model.cfg.head_patterns or not model.cfg.output_projection:
        raise ValueError("heads that are hard-coded, or have no output matrix, cannot change places.")
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
    """Multiply weights by random factors that cancel; the function stays.

    A head's queries against its keys, its values against its output; the first hidden units of a relu MLP against what
    reads them. Values stay as they are where heads have no output matrix.

    Args:
        model: Any; changed in place.
        generator: Decides the factors, between 0.3 and 3.
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
    """Random ones, as likely to be above one as below."""
    low, high = math.log(SMALLEST), math.log(LARGEST)
    return (low + (high - low) * torch.rand(n, generator=generator, dtype=torch.float64)).exp()


def _scale_rows(linear: Linear, rows: slice, factor: float) -> None:
    linear.weight[rows] *= factor
    if linear.bias is not None:
        linear.bias[rows] *= factor
