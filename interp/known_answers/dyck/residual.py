"""Dyck models with a residual stream of (bracket, depth), to be filled with heads of one or two layers.

Axes: `state` is a coordinate of e(bracket, depth).
"""

from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor

from hooks import BracketStates, Transformer
from hooks.model.layers import Linear
from interp.known_answers.answers import draw
from interp.known_answers.craft.cancelling import write_map
from interp.known_answers.craft.weights import SHARP, Registers, head_rows, write_idle_head
from interp.known_answers.dyck.balanced import GROWTH
from interp.known_answers.dyck.one_hot import SHARPNESS, bracket_states, empty_minimal, pair_coordinates
from interp.known_answers.dyck.start import MOST_IDLE, SCRAP
from interp.tasks import Dyck
from interp.tasks.dyck.brackets import START, closer


def residual_registers(states: BracketStates) -> Registers:
    """Registers of the stream, which ends with the position: three numbers for each type, and coordinates for noise."""
    types = states.n_types
    return Registers({"states": states.width, "type": types, "more": types, "answer": types, "scrap": SCRAP})


def empty_residual(
    task: Dyck, generator: torch.Generator, *, n_heads: int, n_layers: int = 1, n_units: int = 0
) -> Transformer:
    """A model in float64 of `n_heads` heads per layer with zero weights, followed by idle heads, without norms.

    Args:
        task: The language.
        generator: Determines the number of idle heads and their weights.
        n_heads: Number of heads per layer that are not idle.
        n_layers: Number of layers.
        n_units: Number of relu units in the MLP of each layer.
    """
    states, n_idle = bracket_states(task), draw(generator, 0, MOST_IDLE)
    at = residual_registers(states)
    sizes: dict[str, Any] = {"n_layers": n_layers, "n_heads": n_heads + n_idle, "d_mlp": n_units}
    widths = {"d_model": at.d_model, "d_head": states.width}
    model = empty_minimal(task, block="no_norm", output_projection=True, positions="linear", **sizes, **widths)
    for layer in range(n_layers):
        for head in range(n_heads, n_heads + n_idle):
            write_idle_head(model.block(layer), head, reads=at["states"], writes=at["scrap"], generator=generator)
    return model


@torch.no_grad()
def attend_to_self(model: Transformer, states: BracketStates, *, head: int = 0, layer: int = 0) -> None:
    """Let a head attend to the last token that each query sees, which is itself."""
    block, cfg = model.block(layer), model.cfg
    rows = head_rows(block, head)
    block.attention.q.weight[rows][0, START : states.width] = SHARP * cfg.n_ctx * cfg.attn_scale
    block.attention.k.weight[rows][0, -1] = 1  # positions are i / n_ctx


def type_map(states: BracketStates, gains: Float[Tensor, " level"] | None = None) -> Float[Tensor, "type state"]:
    """Type of an opener, times a factor for its level (default: 1)."""
    opens, _ = pair_coordinates(states)
    matrix = torch.zeros(states.n_types, states.width, dtype=torch.float64)
    for kind in range(states.n_types):
        matrix[kind, opens[kind]] = 1.0 if gains is None else gains
    return matrix


def balanced_map(states: BracketStates) -> Float[Tensor, "type state"]:
    """Values with which uniform attention gives the type of the innermost open bracket the largest share."""
    _, closes = pair_coordinates(states)
    size = GROWTH ** torch.arange(1, states.max_depth + 1, dtype=torch.float64)
    matrix = type_map(states, size)
    for kind in range(states.n_types):
        matrix[kind, closes[kind]] = -size
    return matrix


def write_register(model: Transformer, states: BracketStates, matrix: Tensor, into: str, **place: int) -> None:
    """Let a head write `matrix` times e(bracket, depth) to a register; `place` is its `layer` and `head`."""
    at = residual_registers(states)
    block = model.block(place.get("layer", 0))
    write_map(block, place.get("head", 0), matrix, reads=at["states"], writes=at[into])


@torch.no_grad()
def read_out(model: Transformer, states: BracketStates, *, direct: float) -> Transformer:
    """Read out the register `answer`, plus `direct` times the register `type`, as logits of closers."""
    at, weight = residual_registers(states), cast(Linear, model.unembed).weight
    for kind in range(states.n_types):
        weight[closer(kind), at["answer"].start + kind] = SHARPNESS
        weight[closer(kind), at["type"].start + kind] = SHARPNESS * direct
    return model.eval()
