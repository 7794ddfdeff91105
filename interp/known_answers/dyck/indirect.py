"""Dyck models whose heads are not simply added up: magnitudes, masked redundancy, and work in two steps.

The residual stream has e(bracket, depth), the type of the innermost open bracket, and the answer; without norms. Each
function takes a generator, which determines whatever the other arguments do not.

Axes: `state` is a coordinate of e(bracket, depth).
"""

from typing import Literal, cast

import torch
from jaxtyping import Float
from torch import Tensor

from hooks import BracketStates, Transformer
from hooks.checks import check_choice
from hooks.model.layers import Linear
from interp.known_answers.answers import (
    ZERO_ONLY,
    KnownAnswer,
    draw,
    needed_head,
    redundant_heads,
    unneeded_heads,
)
from interp.known_answers.craft.weights import (
    SHARP,
    Registers,
    bias_of,
    head_rows,
    mlp_of,
    write_idle_head,
    write_map,
)
from interp.known_answers.dyck.balanced import GROWTH
from interp.known_answers.dyck.one_hot import SHARPNESS, bracket_states, empty_minimal, pair_coordinates
from interp.known_answers.dyck.stack import attend_to_top
from interp.known_answers.dyck.variants import MOST_IDLE, SCRAP, dyck_answer, random_dyck
from interp.tasks import Dyck
from interp.tasks.dyck.brackets import START, closer

Step = Literal["stack", "self", "uniform"]
LOOKS: dict[Step, str | None] = {"stack": "stack_top", "self": "current", "uniform": None}
"""Label of each step's pattern."""
OPEN = 0.7
"""Magnitude above which the answer passes; that of a mean over types is at most 2/3."""
AGAINST = 0.3
"""Without the answer, the type of the innermost bracket counts against its closer by this much."""
SPOILT = 0.15
"""Amount of a wrong type above which it is added to the answer."""
STRENGTH = 50.0
"""Factor by which a wrong type is then added."""


def dyck_gated(generator: torch.Generator, *, brings: Literal["sign", "one"], pattern: Step = "stack") -> KnownAnswer:
    """One head reads the stack; the answer passes only if the magnitude of what another head brings is near 1.

    Args:
        generator: Determines everything else.
        brings: `sign`: +1 or -1, depending on the token that it attends to. All tokens have one or the other, so it
            makes no difference which of them it attends to, but its mean, zero, and the mean over several tokens are
            too small. `one`: 1 from every token, so that the head is needed under zero, but not under other removals.
        pattern: What the head attends to: the top of the stack, each token to itself, or all tokens, which is no
            pattern that brings a sign.

    Raises:
        ValueError: unknown options, or a uniform pattern that must bring a sign.
    """
    check_choice("brings", brings, Literal["sign", "one"])
    check_choice("pattern", pattern, Literal["stack", "self"] if brings == "sign" else Step)
    task = random_dyck(generator)
    model, states, stream = _empty_model(task, generator, n_heads=2, n_units=2 * task.n_types)
    # Head 0 finds the type
    attend_to_top(model, states)
    write_map(model.block(0), 0, _type_map(states), reads=stream["states"], writes=stream["type"])
    # Head 1 opens the gate, and the MLP passes the type through it
    _attend(model, states, pattern, head=1)
    values = _random_signs(states, generator) if brings == "sign" else torch.ones(1, states.width).double()
    gate = slice(stream["spare"].start, stream["spare"].start + 1)
    write_map(model.block(0), 1, values, reads=stream["states"], writes=gate)
    _pass_by_magnitude(model, stream, gate)
    _read_out(model, states, type_weight=-AGAINST)
    needed = ZERO_ONLY if brings == "one" else None
    return dyck_answer(model, task, needed_head("stack_top") | unneeded_heads(LOOKS[pattern], [1], needed=needed))


def _random_signs(states: BracketStates, generator: torch.Generator) -> Float[Tensor, "one state"]:
    """+1 or -1 for [START] and every state; the types of one bracket and level have both signs."""
    signs = torch.zeros(1, states.width, dtype=torch.float64)
    signs[0, START] = draw(generator, 0, 1) * 2 - 1
    for coordinates in pair_coordinates(states):
        for level in range(states.max_depth):
            first_sign = draw(generator, 0, 1) * 2 - 1
            alternating_signs = (-1.0) ** torch.arange(states.n_types).double() * first_sign
            order = torch.randperm(states.n_types, generator=generator)
            signs[0, coordinates[:, level]] = alternating_signs[order]
    return signs


@torch.no_grad()
def _pass_by_magnitude(model: Transformer, stream: Registers, gate: slice) -> None:
    """MLP: two units for each type, one for each sign, which pass the type if the magnitude is near 1."""
    mlp = mlp_of(model.block(0))
    for unit in range(len(mlp.w_in.weight)):
        kind = unit // 2
        sign = (-1.0) ** unit
        mlp.w_in.weight[unit, stream["type"].start + kind] = 1
        mlp.w_in.weight[unit, gate] = sign
        bias_of(mlp.w_in)[unit] = -1 - OPEN
        mlp.w_out.weight[stream["answer"].start + kind, unit] = 1 / (1 - OPEN)


def dyck_masked(generator: torch.Generator) -> KnownAnswer:
    """One head reads the stack, another adds a wrong type, and each of two more heads removes it again.

    The two are redundant, since one of them is enough. Without both the answer is wrong, unless the head that adds the
    wrong type is removed too. On some levels, drawn at random, nothing is added.
    """
    language = random_dyck(generator)
    # With three types the means of the two heads remove two thirds of the wrong type: less than all of it
    task = Dyck(n_types=3, max_depth=language.max_depth, length=language.length)
    model, states, stream = _empty_model(task, generator, n_heads=4, n_units=task.n_types)
    # The next type in place of the right one, on all levels or all but one
    levels = torch.ones(states.max_depth, dtype=torch.float64)
    levels[draw(generator, 2, states.max_depth - 1)] = draw(generator, 0, 1)
    wrong = _type_map(states, levels).roll(1, 0)
    # The head that adds it also subtracts the other types, so that its mean adds nothing
    spoiling = 2 * wrong - wrong.sum(0)
    for head, matrix in enumerate((_type_map(states), spoiling, -wrong, -wrong)):
        writes = stream["type"] if head == 0 else stream["spare"]
        attend_to_top(model, states, head=head)
        write_map(model.block(0), head, matrix, reads=stream["states"], writes=writes)
    # The MLP adds what is left of the wrong type to the answer
    mlp = mlp_of(model.block(0))
    with torch.no_grad():
        mlp.w_in.weight[:, stream["spare"]] = torch.eye(task.n_types).double()
        bias_of(mlp.w_in)[:] = -SPOILT
        mlp.w_out.weight[stream["answer"]] = STRENGTH * torch.eye(task.n_types).double()
    _read_out(model, states, type_weight=1.0)
    truths = needed_head("stack_top") | unneeded_heads("stack_top", [1]) | redundant_heads("stack_top", (2, 3))
    return dyck_answer(model, task, truths)


def dyck_hops(generator: torch.Generator, *, first: Step = "stack", second: Step = "self") -> KnownAnswer:
    """Two layers of one head each: the second reads what the first has written, and writes the answer.

    Args:
        generator: Determines everything else.
        first: The head of layer 0. `stack` and `uniform` write the type of the innermost open bracket everywhere;
            `self` writes a token's own type to the token.
        second: The head of layer 1: `self` if the first finds the type, else one that finds it.

    Raises:
        ValueError: an unknown step, or two steps of which not exactly one is `self`.
    """
    check_choice("first", first, Step)
    check_choice("second", second, Step)
    if (first == "self") == (second == "self"):
        raise ValueError(f"the steps are {first!r} and {second!r}; exactly one of them must be 'self'.")
    task = random_dyck(generator)
    model, states, stream = _empty_model(task, generator, n_heads=1, n_layers=2)
    # The type is written in layer 0 and moved to the answer in layer 1
    _attend(model, states, first, layer=0)
    _attend(model, states, second, layer=1)
    type_map = _balanced_map(states) if "uniform" in (first, second) else _type_map(states)
    write_map(model.block(0), 0, type_map, reads=stream["states"], writes=stream["type"])
    write_map(model.block(1), 0, torch.eye(task.n_types), reads=stream["type"], writes=stream["answer"])
    _read_out(model, states, type_weight=0.0)
    return dyck_answer(model, task, needed_head(LOOKS[first], layer=0) | needed_head(LOOKS[second], layer=1))


def residual_registers(states: BracketStates) -> Registers:
    """Registers of the stream, which ends with the position: three numbers for each type, and coordinates for noise."""
    n_types = states.n_types
    return Registers({"states": states.width, "type": n_types, "spare": n_types, "answer": n_types, "scrap": SCRAP})


def _empty_model(
    task: Dyck, generator: torch.Generator, *, n_heads: int, n_layers: int = 1, n_units: int = 0
) -> tuple[Transformer, BracketStates, Registers]:
    """A model in float64 of `n_heads` heads per layer with zero weights, followed by idle heads, without norms.

    Args:
        task: The language.
        generator: Determines the number of idle heads and their weights.
        n_heads: Number of heads per layer that are not idle.
        n_layers: Number of layers.
        n_units: Number of relu units in the MLP of each layer.
    """
    states = bracket_states(task)
    n_idle = draw(generator, 0, MOST_IDLE)
    # Zero weights, then the idle heads of each layer
    stream = residual_registers(states)
    model = empty_minimal(
        task,
        block="no_norm",
        output_projection=True,
        positions="linear",
        n_layers=n_layers,
        n_heads=n_heads + n_idle,
        d_model=stream.d_model,
        d_head=states.width,
        d_mlp=n_units,
    )
    for layer in range(n_layers):
        for head in range(n_heads, n_heads + n_idle):
            block = model.block(layer)
            write_idle_head(block, head, reads=stream["states"], writes=stream["scrap"], generator=generator)
    return model.eval(), states, stream


@torch.no_grad()
def _attend(model: Transformer, states: BracketStates, step: Step, *, head: int = 0, layer: int = 0) -> None:
    """Write queries and keys of a head; those of a uniform one are zero."""
    if step == "stack":
        attend_to_top(model, states, head=head, layer=layer)
    if step == "self":  # the last token that each query sees
        block = model.block(layer)
        cfg = model.cfg
        rows = head_rows(block, head)
        block.attention.q.weight[rows][0, START : states.width] = SHARP * cfg.n_ctx * cfg.attn_scale
        block.attention.k.weight[rows][0, -1] = 1  # positions are i / n_ctx


def _type_map(states: BracketStates, gains: Float[Tensor, " level"] | None = None) -> Float[Tensor, "type state"]:
    """Type of an opener, times a factor for its level (default: 1)."""
    opens, _ = pair_coordinates(states)
    matrix = torch.zeros(states.n_types, states.width, dtype=torch.float64)
    for kind in range(states.n_types):
        matrix[kind, opens[kind]] = 1.0 if gains is None else gains
    return matrix


def _balanced_map(states: BracketStates) -> Float[Tensor, "type state"]:
    """Values with which uniform attention gives the type of the innermost open bracket the largest share."""
    _, closes = pair_coordinates(states)
    size = GROWTH ** torch.arange(1, states.max_depth + 1, dtype=torch.float64)
    matrix = _type_map(states, size)
    for kind in range(states.n_types):
        matrix[kind, closes[kind]] = -size
    return matrix


@torch.no_grad()
def _read_out(model: Transformer, states: BracketStates, *, type_weight: float) -> None:
    """Read out the register `answer`, plus `type_weight` times the register `type`, as logits of closers."""
    stream = residual_registers(states)
    weight = cast(Linear, model.unembed).weight
    for kind in range(states.n_types):
        weight[closer(kind), stream["answer"].start + kind] = SHARPNESS
        weight[closer(kind), stream["type"].start + kind] = SHARPNESS * type_weight
