"""Where do the two brackets of a pair stand in the one-hot of (bracket, depth), and how is a closer read out?

The known answers of Dyck are written over `BracketStates(encoding="pair")`: e(bracket, depth), one coordinate each. A
pair opens at its level d, 1 to `max_depth`, and closes at depth d - 1.

Axes: `type` of the bracket, `level` of the pair.
"""

import math
from typing import Any, cast

import torch
from jaxtyping import Int
from torch import Tensor, nn

from hooks import BracketStates, Transformer, presets
from hooks.model.blocks import Block
from hooks.modules import Linear
from interp.known_answers.craft.wiring import head_rows
from interp.tasks import Dyck
from interp.tasks.dyck.brackets import closer, opener

SHARPNESS = 20.0
"""Logits are this many times the share of each type in what attention wrote."""
TINY = 1e-30
"""The eps of every LayerNorm here: LN_C with C = 0, without dividing by zero."""


def bracket_states(task: Dyck) -> BracketStates:
    """The one-hots of (bracket, depth) of a task."""
    return BracketStates(encoding="pair", n_types=task.n_types, max_depth=task.max_depth)


def pair_coordinates(states: BracketStates) -> tuple[Int[Tensor, "type level"], Int[Tensor, "type level"]]:
    """The coordinate of each pair's opener, and that of its closer."""
    shape = states.n_types, 2, states.max_depth
    both = states.first_bracket + torch.arange(2 * states.n_types * states.max_depth).view(shape)
    return both[:, 0], both[:, 1]


@torch.no_grad()
def clear(model: nn.Module) -> None:
    """Set every parameter to zero."""
    for parameter in model.parameters():
        parameter.zero_()


def empty_minimal(task: Dyck, **sizes: Any) -> Transformer:
    """`presets.dyck_minimal` for a task, in float64, all of its weights zero."""
    cfg = presets.dyck_minimal(
        n_types=task.n_types,
        max_depth=task.max_depth,
        layer_norm_eps=TINY,
        n_ctx=max(task.n_ctx, presets.DYCK_POSITIONS),
        **sizes,
    )
    model = Transformer(cfg).double()
    clear(model)
    return model


@torch.no_grad()
def mirror_values(block: Block, symbols: int, *, head: int = 0) -> None:
    """Let as many dimensions again hold a head's first ones with the other sign: the norm's mean is then zero.

    The norm's gain undoes the division by the width. With an output projection, that is where the sign turns, and every
    head writes to the same coordinates.
    """
    rows, out = head_rows(block, head), block.attention.o
    if isinstance(out, Linear):
        out.weight[:symbols, rows][:, :symbols] = torch.eye(symbols).double()
        out.weight[symbols : 2 * symbols, rows][:, :symbols] = -torch.eye(symbols).double()
    else:
        value = block.attention.v.weight[rows]
        value[symbols : 2 * symbols] = -value[:symbols]
    block.norm_1.weight[:symbols] = math.sqrt(2 / len(block.norm_1.weight))


@torch.no_grad()
def write_closers(model: Transformer, task: Dyck) -> None:
    """The closer of a type: that type's share. Openers: the share of [START], which is all there is at depth 0."""
    model.b_U[: opener(0)] = -2 * SHARPNESS  # marks never follow
    read_out = cast(Linear, model.unembed).weight
    read_out[opener(0) :: 2, task.n_types] = SHARPNESS
    for kind in range(task.n_types):
        read_out[closer(kind), kind] = SHARPNESS
