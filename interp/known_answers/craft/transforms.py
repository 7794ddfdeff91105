"""Changes of weights that preserve the function: permuted heads, rescaled weights, rotations."""

import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from hooks import Transformer, TransformerStack
from hooks.interventions.ablation_engine import Head, every_head
from hooks.model.layers import Identity, Linear
from interp.known_answers.answers import KnownAnswer
from interp.known_answers.craft.weights import (
    LINEAR_EPS,
    head_rows,
    mean_preserving_rotation,
)
from interp.known_answers.craft.weights import rotate as rotate_stream

SMALLEST, LARGEST = 0.3, 3.0
"""Range of the random factors of `rescale`."""


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
    # Check the orders; the present order is valid for every model
    blocks = model.stored_blocks
    n_heads = model.cfg.n_heads
    if len(orders) != len(blocks):
        raise ValueError(f"there are {len(orders)} orders; the model has {len(blocks)} blocks. Pass one for each.")
    for order in orders:
        if sorted(order) != list(range(n_heads)):
            raise ValueError(f"an order is {list(order)}; it must contain each of the heads 0 to {n_heads - 1} once.")
    if all(list(order) == list(range(n_heads)) for order in orders):
        return
    if model.cfg.head_patterns or not model.cfg.output_projection:
        raise ValueError("heads that are hard-coded, or have no output matrix, cannot be permuted.")
    # Move rows of queries, keys and values, columns of the output, and factors of identities
    for block, order in zip(blocks, orders, strict=True):
        attention = block.attention
        rows_by_head = torch.arange(attention.v.weight.shape[0]).view(n_heads, -1)
        rows = rows_by_head[list(order)].flatten()
        for name in "qkv":
            linear = cast(Linear, getattr(attention, name))
            linear.weight.copy_(linear.weight[rows])
            if linear.bias is not None:
                linear.bias.copy_(linear.bias[rows])
        attention.o.weight.copy_(attention.o.weight[:, rows])
        for diagonal in (attention.a, attention.b):
            if diagonal is not None:
                diagonal.copy_(diagonal[list(order)])


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
            query_factor, value_factor = _factors(2, generator).tolist()
            if attention.learned:
                _scale_rows(attention.q, rows, query_factor)
                _scale_rows(attention.k, rows, 1 / query_factor)
            if not isinstance(attention.o, Identity):
                _scale_rows(attention.v, rows, value_factor)
                attention.o.weight[:, rows] /= value_factor
        # relu(c x) = c relu(x): what a hidden unit reads is scaled, and its output is scaled back
        if block.mlp is not None and model.cfg.activation == "relu":
            w_in = block.mlp.w_in
            unit_factors = _factors(len(w_in.weight), generator).to(w_in.weight)
            w_in.weight.mul_(unit_factors[:, None])
            if w_in.bias is not None:
                w_in.bias.mul_(unit_factors)
            next_map: nn.Module = getattr(block.mlp, "w_2", block.mlp.w_out)
            cast(Linear, next_map).weight.div_(unit_factors)


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
    model = deepcopy(known.model)
    cfg = known.model.cfg
    # Hide the registers
    if rotate:
        if not can_rotate(model):
            raise ValueError(
                f"the stream of this model cannot be rotated (block={cfg.block!r}, positions={cfg.positions!r}, "
                f"tied_embedding={cfg.tied_embedding}, output_projection={cfg.output_projection}); set rotate=False."
            )
        rotate_stream(model, mean_preserving_rotation(cfg.d_model, generator))
    # Move and rescale the heads
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


def reordered(answer: KnownAnswer, orders: Sequence[Sequence[int]]) -> KnownAnswer:
    """Move the truth about each head, and its partners, to where `permute_heads` puts the head."""
    # Old to new place of every head
    place: dict[Head, Head] = {}
    for layer, head in every_head(answer.model):
        order = orders[layer % len(orders)]  # a tied model has one order for all layers
        place[layer, head] = (layer, order.index(head))
    heads = {}
    for head, truth in answer.heads.items():
        partners = tuple(place[partner] for partner in truth.partners)
        heads[place[head]] = replace(truth, partners=partners)
    return replace(answer, heads=dict(sorted(heads.items())))


def can_rotate(model: Transformer) -> bool:
    """Whether the stream of a model can be rotated: no part of it acts on single coordinates."""
    cfg = model.cfg
    linear_norms = cfg.block in ("bare", "no_norm") or (cfg.block == "pre_ln" and cfg.layer_norm_eps >= LINEAR_EPS)
    rotatable_positions = cfg.positions in ("learned", "none")
    return linear_norms and rotatable_positions and not cfg.tied_embedding and cfg.output_projection
