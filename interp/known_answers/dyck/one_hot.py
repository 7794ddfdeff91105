"""One-hot states of (bracket, depth) as inputs of a hand-written layer, and its read-out.

The models use `BracketStates(encoding="pair")`: e(bracket, depth), one coordinate each. A pair of level d, 1 to
`max_depth`, opens at depth d and closes at depth d - 1.

Axes: `type` of the bracket, `level` of the pair.
"""

import math
from typing import Any, cast

import torch
from jaxtyping import Int
from torch import Tensor

from hooks import BracketStates, Transformer, presets
from hooks.model.blocks import Block
from hooks.model.layers import Linear
from interp.known_answers.craft.weights import empty_model, head_rows
from interp.tasks import Dyck
from interp.tasks.dyck.brackets import closer, opener

SHARPNESS = 20.0
"""Scale of the logits, relative to the share of each type in the output of attention."""
TINY = 1e-30
"""eps of every LayerNorm: LN_C with C = 0, without division by zero."""


def bracket_states(task: Dyck) -> BracketStates:
    """One-hot states (bracket, depth) of a task."""
    return BracketStates(encoding="pair", n_types=task.n_types, max_depth=task.max_depth)


def pair_coordinates(states: BracketStates) -> tuple[Int[Tensor, "type level"], Int[Tensor, "type level"]]:
    """Coordinates of the opener and of the closer of each pair."""
    shape = states.n_types, 2, states.max_depth
    coordinates = states.first_bracket + torch.arange(math.prod(shape)).view(shape)
    return coordinates[:, 0], coordinates[:, 1]


def empty_minimal(task: Dyck, **sizes: Any) -> Transformer:
    """`presets.dyck_minimal` for a task, in float64, with zero weights."""
    cfg = presets.dyck_minimal(
        n_types=task.n_types,
        max_depth=task.max_depth,
        layer_norm_eps=TINY,
        n_ctx=max(task.n_ctx, presets.DYCK_POSITIONS),
        **sizes,
    )
    return empty_model(cfg)


@torch.no_grad()
def mirror_values(block: Block, n_values: int, *, head: int = 0) -> None:
    """Write a head's first dimensions a second time with the opposite sign, so that the mean seen by the norm is zero.

    The norm's gain undoes its division by the width. With an output projection, the sign is changed there, and all
    heads write to the same coordinates.
    """
    rows = head_rows(block, head)
    out = block.attention.o
    if isinstance(out, Linear):
        identity = torch.eye(n_values).double()
        out.weight[:n_values, rows][:, :n_values] = identity
        out.weight[n_values : 2 * n_values, rows][:, :n_values] = -identity
    else:
        value = block.attention.v.weight[rows]
        value[n_values : 2 * n_values] = -value[:n_values]
    block.norm_1.weight[:n_values] = math.sqrt(2 / len(block.norm_1.weight))


@torch.no_grad()
def write_closers(model: Transformer, task: Dyck) -> None:
    """Read out the share of each type as the logit of its closer, and the share of [START] as those of all openers."""
    model.b_U[: opener(0)] = -2 * SHARPNESS  # marks are never the next token
    read_out = cast(Linear, model.unembed).weight
    read_out[opener(0) :: 2, task.n_types] = SHARPNESS
    for kind in range(task.n_types):
        read_out[closer(kind), kind] = SHARPNESS
