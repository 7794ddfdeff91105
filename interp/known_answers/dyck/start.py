"""Dyck models to be filled with heads: random languages, a head that closes the brackets, idle heads."""

from collections.abc import Mapping
from typing import Literal

import torch

from hooks import BracketStates, Transformer
from hooks.interventions.ablation_engine import Head
from interp.known_answers.answers import HeadTruth, KnownAnswer, all_heads, draw
from interp.known_answers.craft.weights import write_idle_head
from interp.known_answers.dyck.balanced import balance_head
from interp.known_answers.dyck.one_hot import bracket_states, empty_minimal, write_closers
from interp.known_answers.dyck.stack import attend_to_top, write_type
from interp.tasks import Dyck

Work = Literal["uniform", "uneven", "stack"]
"""Algorithm that closes the brackets: balanced attention, uniform or not, or attention to the top of the stack."""
SCRAP = 4
"""Number of coordinates that only the norm reads."""
MOST_IDLE = 2


def random_dyck(generator: torch.Generator) -> Dyck:
    """A random language."""
    n_types, max_depth, length = (draw(generator, *bounds) for bounds in ((2, 3), (3, 5), (16, 28)))
    return Dyck(n_types=n_types, max_depth=max_depth, length=length)


def worker_truth(work: Work) -> HeadTruth:
    """Truth about the head that closes the brackets."""
    return HeadTruth(truth="faithful", looks="stack_top") if work == "stack" else HeadTruth(truth="hidden")


def start_dyck(generator: torch.Generator, *, n_heads: int, n_idle: int = 0) -> tuple[Transformer, Dyck, BracketStates]:
    """A model of `n_heads` heads with zero weights, followed by idle heads."""
    task = random_dyck(generator)
    states = bracket_states(task)
    n_idle += draw(generator, 0, MOST_IDLE)
    sizes = {"n_heads": n_heads + n_idle, "d_head": states.width, "d_model": max(50, states.width + 1)}
    model = empty_minimal(task, output_projection=True, positions="linear", **sizes)
    reads, writes = slice(0, states.width), scrap_of(states)
    for head in range(n_heads, n_heads + n_idle):
        write_idle_head(model.block(0), head, reads=reads, writes=writes, generator=generator)
    return model, task, states


def scrap_of(states: BracketStates) -> slice:
    """Coordinates after those written for each type and [START], and their mirrored copies."""
    first = 2 * (states.n_types + 1)
    return slice(first, first + SCRAP)


def close_brackets(model: Transformer, states: BracketStates, work: Work, *, seed: int) -> None:
    """Let head 0 close the brackets by an algorithm."""
    if work == "stack":
        attend_to_top(model, states)
        write_type(model, states)
    else:
        balance_head(model, states, attention=work, seed=seed)


def finish_dyck(name: str, model: Transformer, task: Dyck, heads: Mapping[Head, HeadTruth]) -> KnownAnswer:
    """Known answer of a model of one layer, with the read-out that it still lacks."""
    write_closers(model, task)
    return dyck_answer(name, model.eval(), task, heads)


def dyck_answer(name: str, model: Transformer, task: Dyck, heads: Mapping[Head, HeadTruth]) -> KnownAnswer:
    """Known answer of a finished model; heads that are not given are idle."""
    name = f"{name} ({task.n_types} types, depth {task.max_depth}, length {task.length})"
    return KnownAnswer(name=name, model=model, task=task, heads=all_heads(model, heads))
