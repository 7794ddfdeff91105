"""LEGO models with a known truth about every head: the loop with decoys, redundant and idle heads, and the shortcut.

Each function returns a model that solves its task exactly (`shortcut`: its last variable). The generator determines
everything that the other arguments do not. `idle` is the number of additional heads per layer that attend to no
position in particular and write to coordinates that nothing reads. Tasks must be in the paper's format; the compact one
raises ValueError.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import torch
from jaxtyping import Int
from torch import Tensor

from hooks import Transformer
from hooks.checks import check_choice
from hooks.interventions.ablation_engine import Head
from hooks.model.blocks import Block
from interp.known_answers.answers import (
    HeadTruth,
    KnownAnswer,
    all_heads,
    draw,
    needed_head,
    redundant_heads,
    unneeded_heads,
)
from interp.known_answers.craft.weights import (
    SHARP,
    balance,
    bias_of,
    copy_head,
    head_rows,
    write_idle_head,
    write_map,
)
from interp.known_answers.lego.loop import ASSOCIATION, CONFIDENCE, MANIPULATION, larger_loop, loop_registers
from interp.known_answers.lego.shortcut import COUNT, ELSEWHERE, larger_shortcut
from interp.tasks import Lego
from interp.tasks.lego.groups import S3, Z2, GroupAction, cyclic
from interp.tasks.lego.places import ROLES
from interp.tasks.lego.task import LETTERS

DecoyValues = Literal["zero", "constant", "cancelled"]
IDLE_REGISTERS = 6
"""Number of coordinates that idle heads write to."""
CONSTANT_REGISTERS = 4
"""Number of coordinates that a head of constant output writes to; nothing reads them."""
WIDEST = 0.5
"""Largest standard deviation of an idle head's scores between unit vectors, too small to single out a key."""
LOUD = 5.0
"""Output of each of two heads that cancel, relative to the value in the same register."""
DRAWS = 500
"""Number of permutations to choose from in a detour."""
KINDS = {ASSOCIATION: "association", MANIPULATION: "manipulation"}
"""Labels of the two heads of the loop, in every layer."""


def random_task(generator: torch.Generator, *, group: GroupAction | None = None, longest: int = 4) -> Lego:
    """Chains of 2 to `longest` variables with 8 to 26 letters, over a group or else Z2, S3 or Z3.

    Chains of 2 variables have at least 16 letters: fewer give so few sentences that a split is not representative.
    """
    n_vars = draw(generator, 2, longest)
    letters = LETTERS[: draw(generator, 16 if n_vars == 2 else 8, 26)]
    random_group = (Z2, S3, cyclic(3))[draw(generator, 0, 2)]
    return Lego(n_vars=n_vars, group=random_group if group is None else group, alphabet=letters)


def loop(task: Lego, generator: torch.Generator, *, idle: int = 0, untie: bool = False) -> KnownAnswer:
    """The loop: each head does its work in every second layer, and has the same pattern in the others.

    With `untie` each layer has a separate block; they differ in their idle heads.
    """
    return loop_answer(task, loop_with_idle_heads(task, generator, idle, tied=not untie), {})


def redundant(task: Lego, generator: torch.Generator, *, idle: int = 0) -> KnownAnswer:
    """The loop with two identical association heads, either of which is sufficient where one is needed.

    If two redundant heads write different values, the model cannot know which is right: replacing one by its mean is
    harmless, but replacing it by its output on another sequence is not.
    """
    model = loop_with_idle_heads(task, generator, idle, heads=1)
    copy = 2
    copy_head(model.block(0), ASSOCIATION, copy, maps="qkvo")
    truths: dict[Head, HeadTruth] = {}
    for layer in range(model.cfg.n_layers):
        if is_needed(task, layer, ASSOCIATION):
            truths |= redundant_heads("association", (ASSOCIATION, copy), layer=layer)
        else:
            truths |= unneeded_heads("association", (ASSOCIATION,), layer=layer)
            truths |= unneeded_heads("association", (copy,), layer=layer)
    return loop_answer(task, model, truths)


def shortcut(task: Lego, generator: torch.Generator, *, idle: int = 0) -> KnownAnswer:
    """The parity of all minus signs instead of the chain: a hidden head counts, and a misleading head associates.

    The head that attends to the same letter elsewhere is needed, since it shows that the last variable's letter occurs
    once. But that letter has no other occurrence to attend to, and where there is one, nothing depends on it. So the
    head does not act through its pattern.

    Raises:
        ValueError: another group than Z2, or a single variable, whose letter never occurs twice.
    """
    if task.n_vars < 2:
        raise ValueError(f"n_vars is {task.n_vars}; with one variable no letter occurs twice, so no head associates.")
    model = larger_shortcut(task, heads=idle, registers=IDLE_REGISTERS if idle else 0)
    add_idle_heads(model, task, generator, range(2, 2 + idle))
    truths = needed_head(None, head=COUNT) | unneeded_heads("association", (ELSEWHERE,))
    heads = all_heads(model, truths)
    return KnownAnswer(name="shortcut", model=model, task=task, heads=heads, readable={task.targets[-1]: 1})


def decoys(task: Lego, generator: torch.Generator, *, values: DecoyValues, idle: int = 0) -> KnownAnswer:
    """The loop with separate blocks, and decoys in one layer: heads that copy the pattern of a head of the loop.

    Args:
        task: Task of any length and group.
        generator: Determines the layer, the copied head, values and idle heads.
        values: `zero`: the values of the decoy are zero. `constant`: it writes the same vector everywhere, to
            coordinates that nothing reads. `cancelled`: the second of two decoys subtracts exactly what the first
            writes to the register of values; removing both changes nothing, removing one breaks the model.
        idle: Number of idle heads per layer.

    Raises:
        ValueError: unknown values.
    """
    check_choice("values", values, DecoyValues)
    heads = (2, 3) if values == "cancelled" else (2,)
    model = loop_with_idle_heads(task, generator, idle, heads=len(heads), registers=CONSTANT_REGISTERS, tied=False)
    layer = draw(generator, 0, model.cfg.n_layers - 1)
    source = (ASSOCIATION, MANIPULATION)[draw(generator, 0, 1)]
    block = model.block(layer)
    # Queries and keys are the source's; values are zero unless they are written
    for head in heads:
        copy_head(block, source, head)
    if values == "constant":
        _write_constant(block, 2, loop_registers(task).after(0, CONSTANT_REGISTERS), generator)
    if values == "cancelled":
        _write_cancelling(block, heads, task, generator)
    balance(model)
    return loop_answer(task, model, unneeded_heads(KINDS[source], heads, layer=layer))


@torch.no_grad()
def _write_constant(block: Block, head: int, writes: slice, generator: torch.Generator) -> None:
    """Values that are a bias only: since attention sums to one, the output does not depend on the pattern."""
    rows = head_rows(block, head)
    size = rows.stop - rows.start
    bias_of(block.attention.v)[rows] = torch.randn(size, generator=generator, dtype=torch.float64)
    out = torch.randn(CONSTANT_REGISTERS, size, generator=generator, dtype=torch.float64) / size**0.5
    block.attention.o.weight[writes, rows] = out


@torch.no_grad()
def _write_cancelling(block: Block, heads: Sequence[int], task: Lego, generator: torch.Generator) -> None:
    """Random values for each token, written by the first head and subtracted by the last."""
    stream = loop_registers(task)
    points = task.d_vocab_out
    votes = LOUD * torch.randn(points, task.d_vocab, generator=generator, dtype=torch.float64)
    for head in heads:
        write_map(block, head, votes, reads=stream["token"], writes=stream["value"])
    last_rows = head_rows(block, heads[-1])
    block.attention.o.weight[stream["value"], last_rows][:, :points].neg_()


def detour(task: Lego, generator: torch.Generator, *, idle: int = 0) -> KnownAnswer:
    """The loop followed by two layers that copy every answer to a random position of the sentence and back.

    Only the returned copy is read out. The two heads attend to positions that no relation of the task points to.
    """
    points = task.d_vocab_out
    stream = loop_registers(task)
    model = loop_with_idle_heads(task, generator, idle, heads=1, registers=2 * points, layers=2, tied=False)
    first = model.cfg.n_layers - 2
    away = stream.after(0, points)
    back = stream.after(points, points)
    destinations = _destinations(task, generator)
    # The first layer fetches what is sent to each position, the second fetches it back
    _copy_from(model.block(first), destinations.argsort(), task, reads=stream["value"], writes=away)
    _copy_from(model.block(first + 1), destinations, task, reads=away, writes=back)
    # Read out the copy in place of the value
    with torch.no_grad():
        model.unembed.weight[:, stream["value"]] = 0
        model.unembed.weight[:, back] = CONFIDENCE * torch.eye(points)
    balance(model)
    truths = needed_head(None, layer=first, head=2) | needed_head(None, layer=first + 1, head=2)
    return loop_answer(task, model, truths)


@torch.no_grad()
def _copy_from(block: Block, sources: Int[Tensor, " pos"], task: Lego, *, reads: slice, writes: slice) -> None:
    """Let head 2 copy a register of another position, given for each, to another register."""
    positions = loop_registers(task)["position"]
    rows = head_rows(block, 2)
    one_hot = torch.eye(task.n_ctx)
    block.attention.k.weight[rows][: task.n_ctx, positions] = SHARP**0.5 * one_hot
    block.attention.q.weight[rows][: task.n_ctx, positions] = SHARP**0.5 * one_hot[sources].T
    write_map(block, 2, torch.eye(task.d_vocab_out), reads=reads, writes=writes)


def _destinations(task: Lego, generator: torch.Generator) -> Int[Tensor, " pos"]:
    """Where to copy each position's answer: of `DRAWS` permutations, the one that resembles relations least.

    Counted are positions sent to their own clause, to a place in another clause that may have the same token (the same
    place; variable and operand), to an operation, to a neighbour, or to a mark; first the variables, whose answers are
    read.
    """
    positions = torch.arange(task.n_ctx)
    clause = (positions - 1).div(task.clause_length, rounding_mode="floor")
    place = (positions - 1) % task.clause_length
    mark = (positions == 0) | (positions == task.n_ctx - 1)
    orders = torch.stack([torch.randperm(task.n_ctx, generator=generator) for _ in range(DRAWS)])
    # Variables and operands are letters of the same alphabet
    letter = (place == 0) | (place == ROLES[task.clause_length].index("operand"))
    same_token = (place[orders] == place) | (letter[orders] & letter)
    resembling = (clause[orders] == clause) | same_token | ((orders - positions).abs() <= 1)
    operation = (place == ROLES[task.clause_length].index("operation")) & ~mark
    resembling |= operation[orders] | mark[orders] | mark
    of_variables = resembling[:, (place == 0) & ~mark].sum(1)
    return orders[(of_variables * (task.n_ctx + 1) + resembling.sum(1)).argmin()]


def loop_with_idle_heads(
    task: Lego, generator: torch.Generator, idle: int, *, heads: int = 0, registers: int = 0, **options: Any
) -> Transformer:
    """`larger_loop` with empty heads 2, 3, ..., and idle heads after them, which have the last of the registers."""
    registers += IDLE_REGISTERS if idle else 0
    model = larger_loop(task, heads=heads + idle, registers=registers, **options)
    add_idle_heads(model, task, generator, range(2 + heads, 2 + heads + idle))
    return model


def add_idle_heads(model: Transformer, task: Lego, generator: torch.Generator, heads: Iterable[int]) -> None:
    """Write idle heads into every block. They read letters and positions, which carry no information about values.

    The model has `IDLE_REGISTERS` unused coordinates just before its last one.
    """
    reads = slice(task.vocab.ids[task.alphabet[0]], task.d_vocab + task.n_ctx)
    last = model.cfg.d_model - 1
    writes = slice(last - IDLE_REGISTERS, last)
    for block in model.stored_blocks:
        for head in heads:
            strength = WIDEST * float(torch.rand((), generator=generator, dtype=torch.float32))
            write_idle_head(block, head, reads=reads, writes=writes, generator=generator, strength=strength)


def is_needed(task: Lego, layer: int, head: int) -> bool:
    """Whether the association or manipulation head of a layer is used: layers alternate between the two."""
    return layer < 2 * task.n_vars - 1 and (layer % 2 == 1) == (head == ASSOCIATION)


def loop_answer(task: Lego, model: Transformer, truths: Mapping[Head, HeadTruth]) -> KnownAnswer:
    """Known answer of a loop; heads that are neither those of `lego_loop` nor among the truths are idle."""
    loop_truths: dict[Head, HeadTruth] = {}
    for layer in range(2 * task.n_vars - 1):
        for head, kind in KINDS.items():
            truth = "faithful" if is_needed(task, layer, head) else "misleading"
            loop_truths[layer, head] = HeadTruth(truth=truth, looks=kind)
    readable = {target: 2 * index + 1 for index, target in enumerate(task.targets)}
    heads = all_heads(model, loop_truths | dict(truths))
    return KnownAnswer(name="loop", model=model, task=task, heads=heads, readable=readable)
