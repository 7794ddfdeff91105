"""Dyck models whose heads are known one by one: stacks that are read, stacks for show, and work that shows nowhere.

Each function takes a generator, which decides the language, scores where there is a choice, and how many idle heads
there are. All but `dyck_uniform` are one layer above a minimal first layer.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, cast, get_args

import torch

from hooks import BracketStates, Transformer
from hooks.interventions.ablation_engine import Head
from hooks.modules import Linear
from interp.known_answers.answers import HeadTruth, KnownAnswer
from interp.known_answers.craft.idle_heads import write_idle_head
from interp.known_answers.craft.one_hot import bracket_states, empty_minimal, write_closers
from interp.known_answers.craft.wiring import head_rows
from interp.known_answers.dyck.balanced import balance_head, balanced_dyck
from interp.known_answers.dyck.stack import SHARP, look_at_the_top, read_its_type, stack_dyck
from interp.known_answers.dyck.uniform import uniform_dyck
from interp.tasks import Dyck
from interp.tasks.dyck.brackets import START

Work = Literal["uniform", "uneven", "stack"]
Decoy = Literal["zero", "constant", "cancelled", "start"]
SCRAP = 4
"""Coordinates that nothing reads; the norm sees them."""
OFFSET = 0.05
"""What a head of constant values writes there."""
LOUD = 30.0
"""What two heads that cancel write, next to 1 for a head that reads the stack."""
MOST_IDLE = 2


def dyck_uniform(generator: torch.Generator) -> KnownAnswer:
    """`uniform_dyck`: one head counts, one reads the stack, and both look at everything alike."""
    task = _task(generator)
    heads = {(layer, 0): HeadTruth(truth="hidden") for layer in range(2)}
    return _answer("both heads uniform", uniform_dyck(task), task, heads)


def dyck_alone(generator: torch.Generator, *, work: Work = "stack") -> KnownAnswer:
    """One head: `stack_dyck`, or `balanced_dyck` with uniform or uneven attention.

    Args:
        generator: Decides the language and uneven scores.
        work: What the head does.

    Raises:
        ValueError: unknown work.
    """
    _check(work)
    task, seed = _task(generator), _draw(generator, 0, 2**30)
    model = stack_dyck(task) if work == "stack" else balanced_dyck(task, attention=work, seed=seed)
    return _answer(f"one head, {work}", model, task, {(0, 0): _worker(work)})


def dyck_decoy(generator: torch.Generator, *, work: Work = "uniform", decoy: Decoy = "zero") -> KnownAnswer:
    """One head does the work; others show a perfect pattern, and write nothing that tells anything.

    Args:
        generator: Decides all that is not said here.
        work: What head 0.0 does: balanced attention, `uniform` or `uneven`, or reading the `stack`.
        decoy: `zero`: a head looks at the top of the stack; its values are zero. `constant`: its values are the same
            for every token, and stand where nothing but the norm sees them. `cancelled`: two such heads write each
            other's negative, loudly, where it is read; one alone would be wrong at every other level. `start`: a head
            looks at [START]; its values are zero.

    Raises:
        ValueError: unknown work, or an unknown decoy.
    """
    _check(work)
    if decoy not in get_args(Decoy):
        raise ValueError(f"decoy is {decoy!r}; choose one of {', '.join(get_args(Decoy))}.")
    decoys = (1, 2) if decoy == "cancelled" else (1,)
    model, task, states = _start(generator, n_heads=1 + len(decoys))
    _do(model, states, work, seed=_draw(generator, 0, 2**30))
    for head in decoys:
        if decoy == "start":
            _look_at_the_start(model, states, head)
        else:
            look_at_the_top(model, states, head=head)
    if decoy == "cancelled":
        turns = LOUD * (-1.0) ** torch.arange(states.max_depth).double()
        for head, share in zip(decoys, (turns, -turns), strict=True):
            read_its_type(model, states, head=head, share=share)
    if decoy == "constant":
        _write_constant(model, states, 1)
    looks = "broadcast" if decoy == "start" else "stack_top"
    heads = {(0, 0): _worker(work), **_together("misleading", looks, decoys)}
    return _finish(f"{work} head, decoy {decoy}", model, task, heads)


def dyck_redundant(generator: torch.Generator) -> KnownAnswer:
    """Two heads read the stack, and write half of the answer each."""
    model, task, states = _start(generator, n_heads=2)
    for head in range(2):
        look_at_the_top(model, states, head=head)
        read_its_type(model, states, head=head, share=0.5)
    return _finish("stack head, twice", model, task, _together("redundant", "stack_top", (0, 1)))


def dyck_among_idle(generator: torch.Generator, *, work: Work = "stack", n_idle: int = 3) -> KnownAnswer:
    """One head does the work, others have random weights and write where nothing but the norm sees it.

    Args:
        generator: Decides all that is not said here.
        work: What head 0.0 does.
        n_idle: How many others, at least.

    Raises:
        ValueError: unknown work.
    """
    _check(work)
    model, task, states = _start(generator, n_heads=1, n_idle=n_idle)
    _do(model, states, work, seed=_draw(generator, 0, 2**30))
    return _finish(f"{work} head among idle ones", model, task, {(0, 0): _worker(work)})


def _of_decoys(work: Work, decoy: Decoy) -> Callable[[torch.Generator], KnownAnswer]:
    return lambda generator: dyck_decoy(generator, work=work, decoy=decoy)


DYCK_ANSWERS: Mapping[str, Callable[[torch.Generator], KnownAnswer]] = {
    "uniform": dyck_uniform,
    "balanced": lambda generator: dyck_alone(generator, work="uniform"),
    "balanced, uneven": lambda generator: dyck_alone(generator, work="uneven"),
    "stack": dyck_alone,
    "stack, redundant": dyck_redundant,
    "stack among idle heads": dyck_among_idle,
    "balanced among idle heads": lambda generator: dyck_among_idle(generator, work="uniform"),
    **{
        f"{work}, {decoy} decoy": _of_decoys(work, decoy)
        for work in cast(tuple[Work, ...], get_args(Work))
        for decoy in cast(tuple[Decoy, ...], get_args(Decoy))
    },
}
"""Every variant by name."""


def _check(work: str) -> None:
    if work not in get_args(Work):
        raise ValueError(f"work is {work!r}; choose one of {', '.join(get_args(Work))}.")


def _draw(generator: torch.Generator, low: int, high: int) -> int:
    """A whole number from `low` to `high`."""
    return int(torch.randint(low, high + 1, (1,), generator=generator))


def _task(generator: torch.Generator) -> Dyck:
    n_types, max_depth, length = (_draw(generator, *bounds) for bounds in ((2, 3), (3, 5), (16, 28)))
    return Dyck(n_types=n_types, max_depth=max_depth, length=length)


def _worker(work: Work) -> HeadTruth:
    """What is true of a head that closes the brackets."""
    return HeadTruth(truth="faithful", looks="stack_top") if work == "stack" else HeadTruth(truth="hidden")


def _together(truth: Literal["misleading", "redundant"], looks: str, heads: Sequence[int]) -> dict[Head, HeadTruth]:
    """Heads of which the same is true, each other's partners."""
    return {
        (0, head): HeadTruth(truth=truth, looks=looks, partners=tuple((0, other) for other in heads if other != head))
        for head in heads
    }


def _start(generator: torch.Generator, *, n_heads: int, n_idle: int = 0) -> tuple[Transformer, Dyck, BracketStates]:
    """A model of so many heads that do nothing yet, and, after them, idle ones."""
    task = _task(generator)
    states = bracket_states(task)
    n_idle += _draw(generator, 0, MOST_IDLE)
    sizes = {"n_heads": n_heads + n_idle, "d_head": states.width, "d_model": max(50, states.width + 1)}
    model = empty_minimal(task, output_projection=True, positions="linear", **sizes)
    reads, writes = slice(0, states.width), _scrap(states)
    for head in range(n_heads, n_heads + n_idle):
        write_idle_head(model.block(0), head, reads=reads, writes=writes, generator=generator)
    return model, task, states


def _scrap(states: BracketStates) -> slice:
    """Beyond what is written of each type and of [START], and what mirrors it."""
    first = 2 * (states.n_types + 1)
    return slice(first, first + SCRAP)


def _do(model: Transformer, states: BracketStates, work: Work, *, seed: int) -> None:
    """Let head 0 close the brackets."""
    if work == "stack":
        look_at_the_top(model, states)
        read_its_type(model, states)
    else:
        balance_head(model, states, attention=work, seed=seed)


@torch.no_grad()
def _look_at_the_start(model: Transformer, states: BracketStates, head: int) -> None:
    attention, rows = model.block(0).attention, head_rows(model.block(0), head)
    attention.q.weight[rows][0, : states.width] = SHARP * model.cfg.attn_scale
    attention.k.weight[rows][0, START] = 1


@torch.no_grad()
def _write_constant(model: Transformer, states: BracketStates, head: int) -> None:
    """Every token has the same value, which the norm's mean does not see."""
    attention, rows, scrap = model.block(0).attention, head_rows(model.block(0), head), _scrap(states)
    attention.v.weight[rows][0, : states.width] = OFFSET
    out = cast(Linear, attention.o).weight[:, rows]
    out[scrap.start, 0], out[scrap.start + 1, 0] = 1, -1


def _finish(name: str, model: Transformer, task: Dyck, heads: Mapping[Head, HeadTruth]) -> KnownAnswer:
    write_closers(model, task)
    return _answer(name, model.eval(), task, heads)


def _answer(name: str, model: Transformer, task: Dyck, heads: Mapping[Head, HeadTruth]) -> KnownAnswer:
    """Every head that is not named is idle."""
    every = [(layer, head) for layer in range(model.cfg.n_layers) for head in range(model.cfg.n_heads)]
    idle = HeadTruth(truth="idle")
    truth = {head: heads.get(head, idle) for head in every}
    name = f"{name} ({task.n_types} types, depth {task.max_depth}, length {task.length})"
    return KnownAnswer(name=name, model=model, task=task, heads=truth)
