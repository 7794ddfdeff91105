"""Dyck models with a known truth about every head: stack heads, balanced heads, decoys and idle heads.

Each function takes a generator, which determines the language, random scores, and the number of idle heads. All models
but `dyck_uniform` have one layer above a minimal first layer.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal, cast, get_args

import torch

from hooks import BracketStates, Transformer
from hooks.checks import check_choice
from hooks.model.layers import Linear
from interp.known_answers.answers import HeadTruth, KnownAnswer, draw, group_truth
from interp.known_answers.craft.weights import SHARP, head_rows
from interp.known_answers.dyck.balanced import balanced_dyck
from interp.known_answers.dyck.cancelling import CANCELLING
from interp.known_answers.dyck.divided import DIVIDED
from interp.known_answers.dyck.indirect import INDIRECT
from interp.known_answers.dyck.stack import attend_to_top, stack_dyck, write_type
from interp.known_answers.dyck.start import (
    Work,
    close_brackets,
    dyck_answer,
    finish_dyck,
    random_dyck,
    scrap_of,
    start_dyck,
    worker_truth,
)
from interp.known_answers.dyck.uniform import uniform_dyck
from interp.tasks.dyck.brackets import START

Decoy = Literal["zero", "constant", "cancelled", "start"]
OFFSET = 0.05
"""Output of a head of constant values."""
LOUD = 30.0
"""Output of each of two heads that cancel, relative to that of a head that reads the stack."""


def dyck_uniform(generator: torch.Generator) -> KnownAnswer:
    """`uniform_dyck`: one head counts, one reads the stack, both with uniform attention."""
    task = random_dyck(generator)
    heads = {(layer, 0): HeadTruth(truth="hidden") for layer in range(2)}
    return dyck_answer("both heads uniform", uniform_dyck(task), task, heads)


def dyck_alone(generator: torch.Generator, *, work: Work = "stack") -> KnownAnswer:
    """One head: `stack_dyck`, or `balanced_dyck` with uniform or uneven attention.

    `work` is the algorithm of the head.
    """
    check_choice("work", work, Work)
    task, seed = random_dyck(generator), draw(generator, 0, 2**30)
    model = stack_dyck(task) if work == "stack" else balanced_dyck(task, attention=work, seed=seed)
    return dyck_answer(f"one head, {work}", model, task, {(0, 0): worker_truth(work)})


def dyck_decoy(generator: torch.Generator, *, work: Work = "uniform", decoy: Decoy = "zero") -> KnownAnswer:
    """One head closes the brackets; others have a perfect pattern and write no information.

    Args:
        generator: Determines everything else.
        work: Algorithm of head 0.0: balanced attention, `uniform` or `uneven`, or reading the `stack`.
        decoy: `zero`: a head attends to the top of the stack with zero values. `constant`: its values are the same for
            every token, in coordinates that only the norm reads. `cancelled`: two such heads write large outputs that
            cancel; one alone makes every second level wrong. `start`: a head attends to [START] with zero values.

    Raises:
        ValueError: an unknown algorithm or decoy.
    """
    check_choice("work", work, Work)
    check_choice("decoy", decoy, Decoy)
    decoys = (1, 2) if decoy == "cancelled" else (1,)
    model, task, states = start_dyck(generator, n_heads=1 + len(decoys))
    close_brackets(model, states, work, seed=draw(generator, 0, 2**30))
    for head in decoys:
        if decoy == "start":
            _attend_to_start(model, states, head)
        else:
            attend_to_top(model, states, head=head)
    if decoy == "cancelled":
        turns = LOUD * (-1.0) ** torch.arange(states.max_depth).double()
        for head, share in zip(decoys, (turns, -turns), strict=True):
            write_type(model, states, head=head, share=share)
    if decoy == "constant":
        _write_constant(model, states, 1)
    looks = "broadcast" if decoy == "start" else "stack_top"
    heads = {(0, 0): worker_truth(work), **group_truth("misleading", looks, decoys)}
    return finish_dyck(f"{work} head, decoy {decoy}", model, task, heads)


def dyck_redundant(generator: torch.Generator) -> KnownAnswer:
    """Two heads read the stack and write half of the answer each."""
    model, task, states = start_dyck(generator, n_heads=2)
    for head in range(2):
        attend_to_top(model, states, head=head)
        write_type(model, states, head=head, share=0.5)
    return finish_dyck("stack head, twice", model, task, group_truth("redundant", "stack_top", (0, 1)))


def dyck_among_idle(generator: torch.Generator, *, work: Work = "stack", n_idle: int = 3) -> KnownAnswer:
    """One head closes the brackets; others have random weights and write to coordinates that only the norm reads.

    `work` is the algorithm of head 0.0, `n_idle` the smallest number of other heads.
    """
    check_choice("work", work, Work)
    model, task, states = start_dyck(generator, n_heads=1, n_idle=n_idle)
    close_brackets(model, states, work, seed=draw(generator, 0, 2**30))
    return finish_dyck(f"{work} head among idle ones", model, task, {(0, 0): worker_truth(work)})


DYCK_ANSWERS: Mapping[str, Callable[[torch.Generator], KnownAnswer]] = {
    "uniform": dyck_uniform,
    "balanced": partial(dyck_alone, work="uniform"),
    "balanced, uneven": partial(dyck_alone, work="uneven"),
    "stack": dyck_alone,
    "stack, redundant": dyck_redundant,
    "stack among idle heads": dyck_among_idle,
    "balanced among idle heads": partial(dyck_among_idle, work="uniform"),
    **{
        f"{work}, {decoy} decoy": partial(dyck_decoy, work=work, decoy=decoy)
        for work in cast(tuple[Work, ...], get_args(Work))
        for decoy in cast(tuple[Decoy, ...], get_args(Decoy))
    },
    **CANCELLING,
    **DIVIDED,
    **INDIRECT,
}
"""Every variant by name."""


@torch.no_grad()
def _attend_to_start(model: Transformer, states: BracketStates, head: int) -> None:
    attention, rows = model.block(0).attention, head_rows(model.block(0), head)
    attention.q.weight[rows][0, : states.width] = SHARP * model.cfg.attn_scale
    attention.k.weight[rows][0, START] = 1


@torch.no_grad()
def _write_constant(model: Transformer, states: BracketStates, head: int) -> None:
    """Give every token the same value, of mean zero over coordinates."""
    attention, rows, scrap = model.block(0).attention, head_rows(model.block(0), head), scrap_of(states)
    attention.v.weight[rows][0, : states.width] = OFFSET
    out = cast(Linear, attention.o).weight[:, rows]
    out[scrap.start, 0], out[scrap.start + 1, 0] = 1, -1
