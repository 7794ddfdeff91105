"""Dyck models of one layer with a known truth about every head: stack heads, balanced heads, decoys and idle heads.

Each function takes a generator, which determines the language, random scores, the number of idle heads, and whatever
the other arguments do not. All models but `dyck_uniform` have one layer above a minimal first layer.
"""

from collections.abc import Mapping
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from hooks import BracketStates, Transformer
from hooks.checks import check_choice
from hooks.interventions.ablation_engine import Head
from interp.known_answers.answers import (
    HeadTruth,
    KnownAnswer,
    all_heads,
    draw,
    needed_head,
    redundant_heads,
    unneeded_heads,
)
from interp.known_answers.craft.cancelling import NoiseOf, cancelling_factors, write_noise
from interp.known_answers.craft.weights import SHARP, head_rows, write_idle_head
from interp.known_answers.dyck.balanced import GROWTH, balance_head, balanced_dyck
from interp.known_answers.dyck.one_hot import bracket_states, empty_minimal, write_closers
from interp.known_answers.dyck.stack import attend_to_top, stack_dyck, write_type
from interp.known_answers.dyck.uniform import uniform_dyck
from interp.tasks import Dyck
from interp.tasks.dyck.brackets import START

Work = Literal["uniform", "uneven", "stack"]
"""Algorithm that closes the brackets: balanced attention, uniform or not, or attention to the top of the stack."""
LOOKS: Mapping[Work, str | None] = {"uniform": None, "uneven": None, "stack": "stack_top"}
"""Label of the head of each algorithm."""
DyckDecoy = Literal["zero", "constant", "cancelled", "start"]
SCRAP = 4
"""Number of coordinates that only the norm reads."""
MOST_IDLE = 2
"""Largest random number of idle heads."""
OFFSET = 0.05
"""Output of a head of constant values."""
LOUD = 30.0
"""Output of the loudest head of those that cancel, relative to that of the head that works."""
LEAST_SHARE, MOST_SHARE = 0.3, 0.7
"""Range of the share of the answers of each of two heads that divide the levels."""
AGAINST = 0.4
"""A head that reads the stack counts against the type on the levels of the other head by this much."""
WORDS = 200
"""Number of words on which shares are measured."""


def dyck_uniform(generator: torch.Generator) -> KnownAnswer:
    """`uniform_dyck`: one head counts, one reads the stack, both with uniform attention."""
    task = random_dyck(generator)
    return dyck_answer(uniform_dyck(task), task, needed_head(None, layer=0) | needed_head(None, layer=1))


def dyck_alone(generator: torch.Generator, *, work: Work = "stack") -> KnownAnswer:
    """One head: `stack_dyck`, or `balanced_dyck` with uniform or uneven attention."""
    check_choice("work", work, Work)
    task = random_dyck(generator)
    seed = draw(generator, 0, 2**30)
    model = stack_dyck(task) if work == "stack" else balanced_dyck(task, attention=work, seed=seed)
    return dyck_answer(model, task, needed_head(LOOKS[work]))


def dyck_among_idle(generator: torch.Generator, *, work: Work = "stack", n_idle: int = 3) -> KnownAnswer:
    """One head closes the brackets; others have random weights and write to coordinates that only the norm reads.

    `n_idle` is the smallest number of other heads.
    """
    model, task, _ = _layer_that_closes(generator, work, n_idle=n_idle)
    return dyck_answer(model, task, needed_head(LOOKS[work]))


def dyck_redundant(generator: torch.Generator) -> KnownAnswer:
    """Two heads read the stack and write half of the answer each."""
    model, task, states = _empty_layer(generator, n_heads=2)
    for head in range(2):
        attend_to_top(model, states, head=head)
        write_type(model, states, head=head, share=0.5)
    return dyck_answer(model, task, redundant_heads("stack_top", (0, 1)))


def dyck_decoy(generator: torch.Generator, *, work: Work = "uniform", decoy: DyckDecoy = "zero") -> KnownAnswer:
    """One head closes the brackets; others have a perfect pattern and write no information.

    Args:
        generator: Determines everything else.
        work: Algorithm of head 0.0.
        decoy: `zero`: a head attends to the top of the stack with zero values. `constant`: its values are the same for
            every token, in coordinates that only the norm reads. `cancelled`: two such heads write large outputs that
            cancel; one alone makes every second level wrong. `start`: a head attends to [START] with zero values.

    Raises:
        ValueError: an unknown algorithm or decoy.
    """
    check_choice("decoy", decoy, DyckDecoy)
    heads = (1, 2) if decoy == "cancelled" else (1,)
    model, task, states = _layer_that_closes(generator, work, extra=len(heads))
    if decoy == "start":
        _attend_to_start(model, states, 1)
        return dyck_answer(model, task, needed_head(LOOKS[work]) | unneeded_heads("broadcast", heads))
    # All others attend to the top of the stack; a zero decoy writes nothing
    for head in heads:
        attend_to_top(model, states, head=head)
    if decoy == "constant":
        _write_constant(model, states, 1)
    if decoy == "cancelled":  # the sign changes from level to level
        shares = LOUD * (-1.0) ** torch.arange(states.max_depth).double()
        write_type(model, states, head=1, share=shares)
        write_type(model, states, head=2, share=-shares)
    return dyck_answer(model, task, needed_head(LOOKS[work]) | unneeded_heads("stack_top", heads))


@torch.no_grad()
def _attend_to_start(model: Transformer, states: BracketStates, head: int) -> None:
    attention = model.block(0).attention
    rows = head_rows(model.block(0), head)
    attention.q.weight[rows][0, : states.width] = SHARP * model.cfg.attn_scale
    attention.k.weight[rows][0, START] = 1


@torch.no_grad()
def _write_constant(model: Transformer, states: BracketStates, head: int) -> None:
    """Give every token the same value, of mean zero over coordinates."""
    attention = model.block(0).attention
    rows = head_rows(model.block(0), head)
    scrap = _scrap_of(states)
    attention.v.weight[rows][0, : states.width] = OFFSET
    attention.o.weight[scrap.start, rows.start] = 1
    attention.o.weight[scrap.start + 1, rows.start] = -1


def dyck_cancelling(
    generator: torch.Generator,
    *,
    work: Work = "stack",
    pattern: Work = "stack",
    n_heads: int = 3,
    noise: NoiseOf = "none",
) -> KnownAnswer:
    """One head closes the brackets; two or three others write large outputs whose sum is zero.

    Without some but not all of them, every second level is wrong.

    Args:
        generator: Determines everything else.
        work: Algorithm of head 0.0.
        pattern: Pattern of the heads that cancel; `uniform` and `uneven` ones are readable as no kind.
        n_heads: Number of heads that cancel, 2 or 3.
        noise: Which of them also write noise, so that the cosine of their writes is near 0.

    Raises:
        ValueError: an unknown algorithm, pattern or noise, or another number of heads.
    """
    check_choice("pattern", pattern, Work)
    check_choice("noise", noise, NoiseOf)
    factors = cancelling_factors(generator, n_heads)
    heads = range(1, 1 + n_heads)
    model, task, states = _layer_that_closes(generator, work, extra=n_heads)
    # Their outputs change sign from level to level, and are larger than the answer
    levels = torch.arange(states.max_depth, dtype=torch.float64)
    gains = LOUD * (-1.0) ** levels
    if pattern != "stack":
        gains = gains * task.n_ctx  # balanced attention divides by the number of brackets; its values grow by level
    elif work != "stack":
        gains = gains * GROWTH ** (levels + 1)
    seed = draw(generator, 0, 2**30)
    for head, factor in zip(heads, factors, strict=True):
        _close_brackets(model, states, pattern, head=head, gains=factor * gains, seed=seed)
    write_noise(
        model.block(0),
        heads,
        noise,
        reads=slice(0, states.width),
        spare=_scrap_of(states).stop,
        first=states.n_types + 1,
        generator=generator,
    )
    return dyck_answer(model, task, needed_head(LOOKS[work]) | unneeded_heads(LOOKS[pattern], heads))


def dyck_divided(generator: torch.Generator, *, second: Work = "stack") -> KnownAnswer:
    """Head 0.0 reads the stack and closes the brackets of some levels, head 0.1 those of all other levels.

    `second` is the algorithm of head 0.1: reading the `stack`, or balanced attention, `uniform` or `uneven`.

    Raises:
        ValueError: an unknown algorithm.
    """
    check_choice("second", second, Work)
    model, task, states = _empty_layer(generator, n_heads=2)
    levels = _random_levels(task, generator).double()
    if second == "stack":
        seed = 0
        gains = levels - AGAINST * (1 - levels)
        second_gains = 1 - levels - AGAINST * levels
    else:  # louder than balanced attention, which finds the type of a lower level where it has no values
        seed = draw(generator, 0, 2**30)
        gains = levels * 2 * GROWTH**states.max_depth
        second_gains = 1 - levels
    _close_brackets(model, states, "stack", head=0, gains=gains)
    _close_brackets(model, states, second, head=1, gains=second_gains, seed=seed)
    return dyck_answer(model, task, needed_head("stack_top") | needed_head(LOOKS[second], head=1))


def _random_levels(task: Dyck, generator: torch.Generator) -> Bool[Tensor, " level"]:
    """Random levels with 30 to 70 % of the answers of each outcome."""
    # Depths of the answers of each outcome: all, and those after a closer
    batch = task.sample(WORDS, generator=generator)
    is_scored = batch.due >= 0
    depths = [batch.depth[is_scored], batch.depth[is_scored & batch.after_closer]]
    while True:
        levels = torch.rand(task.max_depth, generator=generator, dtype=torch.float32) < 0.5
        shares = [float(levels[outcome_depths - 1].double().mean()) for outcome_depths in depths]
        if min(shares) >= LEAST_SHARE and max(shares) <= MOST_SHARE:
            return levels


def random_dyck(generator: torch.Generator) -> Dyck:
    """A random language."""
    n_types = draw(generator, 2, 3)
    max_depth = draw(generator, 3, 5)
    length = draw(generator, 16, 28)
    return Dyck(n_types=n_types, max_depth=max_depth, length=length)


def _layer_that_closes(
    generator: torch.Generator, work: Work, *, extra: int = 0, n_idle: int = 0
) -> tuple[Transformer, Dyck, BracketStates]:
    """A model whose head 0 closes the brackets, followed by `extra` empty heads and at least `n_idle` idle ones."""
    check_choice("work", work, Work)
    model, task, states = _empty_layer(generator, n_heads=1 + extra, n_idle=n_idle)
    _close_brackets(model, states, work, seed=draw(generator, 0, 2**30))
    return model, task, states


def _empty_layer(
    generator: torch.Generator, *, n_heads: int, n_idle: int = 0
) -> tuple[Transformer, Dyck, BracketStates]:
    """A model of `n_heads` heads with zero weights, followed by at least `n_idle` idle heads, and its read-out."""
    task = random_dyck(generator)
    states = bracket_states(task)
    # Zero weights, then the idle heads
    n_idle += draw(generator, 0, MOST_IDLE)
    sizes = {"n_heads": n_heads + n_idle, "d_head": states.width, "d_model": max(50, states.width + 1)}
    model = empty_minimal(task, output_projection=True, positions="linear", **sizes)
    reads = slice(0, states.width)
    writes = _scrap_of(states)
    for head in range(n_heads, n_heads + n_idle):
        write_idle_head(model.block(0), head, reads=reads, writes=writes, generator=generator)
    write_closers(model, task)
    return model.eval(), task, states


def _scrap_of(states: BracketStates) -> slice:
    """Coordinates after those written for each type and [START], and their mirrored copies."""
    first = 2 * (states.n_types + 1)
    return slice(first, first + SCRAP)


def _close_brackets(
    model: Transformer,
    states: BracketStates,
    work: Work,
    *,
    head: int = 0,
    gains: Float[Tensor, " level"] | None = None,
    seed: int = 0,
) -> None:
    """Let a head write the type of the innermost open bracket, times a factor for each level (default: 1)."""
    if work == "stack":
        attend_to_top(model, states, head=head)
        write_type(model, states, head=head, share=1.0 if gains is None else gains)
    else:
        balance_head(model, states, head=head, attention=work, gains=gains, seed=seed)


def dyck_answer(model: Transformer, task: Dyck, truths: Mapping[Head, HeadTruth]) -> KnownAnswer:
    """Known answer of a finished model; heads without a truth are idle."""
    return KnownAnswer(name="dyck", model=model, task=task, heads=all_heads(model, truths))
