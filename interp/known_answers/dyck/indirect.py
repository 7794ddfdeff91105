"""Dyck models whose heads are not simply added up: magnitudes, masked redundancy, and work in two steps."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from hooks import BracketStates, Transformer
from hooks.checks import check_choice
from interp.known_answers.answers import HeadTruth, KnownAnswer, draw, group_truth
from interp.known_answers.craft.cancelling import write_map
from interp.known_answers.craft.weights import bias_of, mlp_of
from interp.known_answers.dyck.one_hot import bracket_states, pair_coordinates
from interp.known_answers.dyck.residual import (
    attend_to_self,
    balanced_map,
    empty_residual,
    read_out,
    residual_registers,
    type_map,
    write_register,
)
from interp.known_answers.dyck.stack import attend_to_top
from interp.known_answers.dyck.start import dyck_answer, random_dyck
from interp.tasks import Dyck
from interp.tasks.dyck.brackets import START

Step = Literal["stack", "self", "uniform"]
LOOKS = {"stack": "stack_top", "self": "self", "uniform": None}
"""Kind of each step's pattern."""
OPEN = 0.7
"""Magnitude above which the answer passes; that of a mean over types is at most 2/3."""
AGAINST = 0.3
"""Without the answer, the type of the innermost bracket counts against its closer by this much."""
SPOILT, STRENGTH = 0.15, 50.0
"""Amount of a wrong type above which it is in the answer, and the factor by which it is then."""


def dyck_magnitude(generator: torch.Generator, *, pattern: Literal["stack", "self"] = "stack") -> KnownAnswer:
    """One head reads the stack; the answer passes only if the magnitude of what another head brings is near 1.

    That head brings +1 or -1, depending on the token that it attends to. All tokens have one or the other, so it makes
    no difference which of them it attends to, but its mean, zero, and the mean over several tokens are too small.

    Args:
        generator: Determines everything else.
        pattern: What the head attends to: the top of the stack, or each token to itself.

    Raises:
        ValueError: an unknown pattern.
    """
    check_choice("pattern", pattern, Literal["stack", "self"])
    truth = HeadTruth(truth="misleading", looks=LOOKS[pattern])
    return _gated(generator, f"magnitude of {pattern}", pattern, truth, constant=False)


def dyck_constant(generator: torch.Generator, *, pattern: Literal["stack", "uniform"] = "stack") -> KnownAnswer:
    """The same with a head that brings 1 from every token: it is needed under zero, but not under other removals.

    Args:
        generator: Determines everything else.
        pattern: What the head attends to: the top of the stack, or all tokens.

    Raises:
        ValueError: an unknown pattern.
    """
    check_choice("pattern", pattern, Literal["stack", "uniform"])
    needed = {"zero": True, "mean": False, "resample": False}
    truth = HeadTruth(truth="misleading" if LOOKS[pattern] else "idle", looks=LOOKS[pattern], needed=needed)
    return _gated(generator, f"constant of {pattern}", pattern, truth, constant=True)


def _gated(generator: torch.Generator, name: str, pattern: Step, truth: HeadTruth, *, constant: bool) -> KnownAnswer:
    """Head 0.0 reads the stack, and its answer passes by the magnitude of what head 0.1 brings: 1, or 1 or -1."""
    task = random_dyck(generator)
    states = bracket_states(task)
    at = residual_registers(states)
    model = empty_residual(task, generator, n_heads=2, n_units=2 * task.n_types)
    attend_to_top(model, states)
    write_register(model, states, type_map(states), "type")
    _attend(model, states, pattern, head=1)
    brings = torch.ones(1, states.width).double() if constant else _signs(states, generator)
    gate = slice(at["more"].start, at["more"].start + 1)
    write_map(model.block(0), 1, brings, reads=at["states"], writes=gate)
    _pass_by_magnitude(model, states)
    truths = {(0, 0): HeadTruth(truth="faithful", looks="stack_top"), (0, 1): truth}
    return dyck_answer(f"stack head, {name}", read_out(model, states, direct=-AGAINST), task, truths)


def _signs(states: BracketStates, generator: torch.Generator) -> Float[Tensor, "one state"]:
    """+1 or -1 for [START] and every state; the types of one bracket and level have both signs."""
    signs = torch.zeros(1, states.width, dtype=torch.float64)
    signs[0, START] = draw(generator, 0, 1) * 2 - 1
    for coordinates in pair_coordinates(states):
        for level in range(states.max_depth):
            of_types = (-1.0) ** torch.arange(states.n_types).double() * (draw(generator, 0, 1) * 2 - 1)
            signs[0, coordinates[:, level]] = of_types[torch.randperm(states.n_types, generator=generator)]
    return signs


@torch.no_grad()
def _pass_by_magnitude(model: Transformer, states: BracketStates) -> None:
    """MLP: two units for each type, one for each sign, which pass the type if the magnitude is near 1."""
    at, mlp = residual_registers(states), mlp_of(model.block(0))
    for unit in range(2 * states.n_types):
        kind, sign = unit // 2, (-1.0) ** unit
        mlp.w_in.weight[unit, at["type"].start + kind] = 1
        mlp.w_in.weight[unit, at["more"].start] = sign
        bias_of(mlp.w_in)[unit] = -1 - OPEN
        mlp.w_out.weight[at["answer"].start + kind, unit] = 1 / (1 - OPEN)


def dyck_masked(generator: torch.Generator) -> KnownAnswer:
    """One head reads the stack, another adds a wrong type, and each of two more heads removes it again.

    The two are redundant, since one of them is enough. Without both the answer is wrong, unless the head that adds the
    wrong type is removed too. On some levels, drawn at random, nothing is added.
    """
    drawn = random_dyck(generator)
    # with three types the means of the two heads remove two thirds of the wrong type: less than all of it
    task = Dyck(n_types=3, max_depth=drawn.max_depth, length=drawn.length)
    states = bracket_states(task)
    model = empty_residual(task, generator, n_heads=4, n_units=task.n_types)
    levels = torch.ones(states.max_depth, dtype=torch.float64)
    levels[draw(generator, 2, states.max_depth - 1)] = draw(generator, 0, 1)
    wrong = type_map(states, levels).roll(1, 0)
    attend_to_top(model, states)
    write_register(model, states, type_map(states), "type")
    # the head that adds also subtracts the other types, so that its mean adds nothing
    for head, matrix in ((1, 2 * wrong - wrong.sum(0)), (2, -wrong), (3, -wrong)):
        attend_to_top(model, states, head=head)
        write_register(model, states, matrix, "more", head=head)
    at, mlp = residual_registers(states), mlp_of(model.block(0))
    with torch.no_grad():
        mlp.w_in.weight[:, at["more"]] = torch.eye(task.n_types).double()
        bias_of(mlp.w_in)[:] = -SPOILT
        mlp.w_out.weight[at["answer"]] = STRENGTH * torch.eye(task.n_types).double()
    truths = {
        (0, 0): HeadTruth(truth="faithful", looks="stack_top"),
        (0, 1): HeadTruth(truth="misleading", looks="stack_top"),
        **group_truth("redundant", "stack_top", (2, 3)),
    }
    return dyck_answer("stack head, masked redundancy", read_out(model, states, direct=1.0), task, truths)


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
    states = bracket_states(task)
    at = residual_registers(states)
    model = empty_residual(task, generator, n_heads=1, n_layers=2)
    for layer, step in enumerate((first, second)):
        _attend(model, states, step, layer=layer)
    write_register(model, states, balanced_map(states) if "uniform" in (first, second) else type_map(states), "type")
    write_map(model.block(1), 0, torch.eye(task.n_types).double(), reads=at["type"], writes=at["answer"])
    truths = {
        (layer, 0): HeadTruth(truth="faithful" if LOOKS[step] else "hidden", looks=LOOKS[step])
        for layer, step in enumerate((first, second))
    }
    return dyck_answer(f"two layers, {first} then {second}", read_out(model, states, direct=0.0), task, truths)


def _attend(model: Transformer, states: BracketStates, step: str, *, head: int = 0, layer: int = 0) -> None:
    """Queries and keys of a head; those of a uniform one are zero."""
    if step == "stack":
        attend_to_top(model, states, head=head, layer=layer)
    if step == "self":
        attend_to_self(model, states, head=head, layer=layer)


INDIRECT: Mapping[str, Callable[[torch.Generator], KnownAnswer]] = {
    "stack, magnitude": dyck_magnitude,
    "stack, magnitude of self": partial(dyck_magnitude, pattern="self"),
    "stack, constant": dyck_constant,
    "stack, constant unreadably": partial(dyck_constant, pattern="uniform"),
    "stack, masked redundancy": dyck_masked,
    "two layers, stack then self": dyck_hops,
    "two layers, self then stack": partial(dyck_hops, first="self", second="stack"),
    "two layers, uniform then self": partial(dyck_hops, first="uniform"),
    "two layers, self then uniform": partial(dyck_hops, first="self", second="uniform"),
}
"""Every variant by name."""
