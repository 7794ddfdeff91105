"""LEGO models with a known truth about every head: the loop with decoys, redundant and idle heads, and the shortcut.

Each function returns a model that solves its task exactly (`shortcut`: its last variable). `idle` is the number of
additional heads per layer that attend to no position in particular and write to coordinates that nothing reads. Tasks
must be in the paper's format; the compact one raises ValueError.
"""

from collections.abc import Iterable, Mapping
from typing import Literal

import torch
from jaxtyping import Int
from torch import Tensor

from hooks import Transformer
from hooks.checks import check_choice
from hooks.interventions.ablation_engine import Head
from hooks.model.blocks import Block
from interp.known_answers.answers import HeadTruth, KnownAnswer, all_heads, draw, group_truth
from interp.known_answers.craft.transforms import enlarge
from interp.known_answers.craft.weights import SHARP, Registers, balance, bias_of, head_rows, write_idle_head
from interp.known_answers.lego.loop import ASSOCIATION, CONFIDENCE, MANIPULATION, lego_loop, loop_registers
from interp.known_answers.lego.shortcut import COUNT, ELSEWHERE, lego_shortcut
from interp.tasks import Lego
from interp.tasks.lego.groups import S3, Z2, GroupAction, cyclic
from interp.tasks.lego.task import LETTERS

Values = Literal["zero", "constant", "cancelled"]
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
    chosen = (Z2, S3, cyclic(3))[draw(generator, 0, 2)]
    return Lego(n_vars=n_vars, group=chosen if group is None else group, alphabet=letters)


def loop(task: Lego, generator: torch.Generator, *, idle: int = 0, untie: bool = False) -> KnownAnswer:
    """The loop: each head does its work in every second layer, and has the same pattern in the others.

    With `untie` each layer has a separate block; they differ in their idle heads.
    """
    return loop_answer("loop", task, enlarged_loop(task, generator, idle=idle, untie=untie), {})


def redundant(task: Lego, generator: torch.Generator, *, idle: int = 0) -> KnownAnswer:
    """The loop with two identical association heads, either of which is sufficient where one is needed.

    If two redundant heads write different values, the model cannot know which is right: replacing one by its mean is
    harmless, but replacing it by its output on another sequence is not.
    """
    model = enlarged_loop(task, generator, idle=idle, heads=1)
    block, copy = model.block(0), 2
    copy_pattern(model, 0, ASSOCIATION, copy)
    rows, source = head_rows(block, copy), head_rows(block, ASSOCIATION)
    with torch.no_grad():
        block.attention.v.weight[rows] = block.attention.v.weight[source]
        block.attention.o.weight[:, rows] = block.attention.o.weight[:, source]
    truths: dict[Head, HeadTruth] = {}
    for layer in range(model.cfg.n_layers):
        if is_needed(task, layer, ASSOCIATION):
            truths |= group_truth("redundant", "association", (ASSOCIATION, copy), layer=layer)
        else:
            truths |= {
                (layer, head): HeadTruth(truth="misleading", looks="association") for head in (ASSOCIATION, copy)
            }
    return loop_answer("loop with two association heads", task, model, truths)


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
    model = enlarge(lego_shortcut(task), heads=idle, registers=IDLE_REGISTERS if idle else 0)
    add_idle_heads(model, task, generator, range(2, 2 + idle))
    truths = {
        (0, COUNT): HeadTruth(truth="hidden"),
        (0, ELSEWHERE): HeadTruth(truth="misleading", looks="association"),
    }
    return KnownAnswer(
        name=_name("shortcut", task, model),
        model=model,
        task=task,
        heads=all_heads(model, truths),
        readable={task.targets[-1]: 1},
    )


def decoys(task: Lego, generator: torch.Generator, *, values: Values, idle: int = 0) -> KnownAnswer:
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
    check_choice("values", values, Values)
    heads = (2, 3) if values == "cancelled" else (2,)
    model = enlarged_loop(task, generator, idle=idle, heads=len(heads), registers=CONSTANT_REGISTERS, untie=True)
    layer = draw(generator, 0, model.cfg.n_layers - 1)
    copied = (ASSOCIATION, MANIPULATION)[draw(generator, 0, 1)]
    for head in heads:
        copy_pattern(model, layer, copied, head)
    at, block = loop_registers(task), model.block(layer)
    with torch.no_grad():
        if values == "constant":
            _write_constant(block, 2, at.d_model - 1, generator)
        if values == "cancelled":
            _write_cancelling(block, (2, 3), task, at, generator)
        balance(model)
    truths = group_truth("misleading", KINDS[copied], heads, layer=layer)
    return loop_answer(f"loop with {values} decoys ({KINDS[copied]}, layer {layer})", task, model, truths)


def _write_constant(block: Block, head: int, register: int, generator: torch.Generator) -> None:
    """Values that are a bias only: since attention sums to one, the output does not depend on the pattern."""
    rows = head_rows(block, head)
    size = rows.stop - rows.start
    bias_of(block.attention.v)[rows] = torch.randn(size, generator=generator, dtype=torch.float64)
    out = torch.randn(CONSTANT_REGISTERS, size, generator=generator, dtype=torch.float64) / size**0.5
    block.attention.o.weight[register : register + CONSTANT_REGISTERS, rows] = out


def _write_cancelling(
    block: Block, heads: tuple[int, int], task: Lego, at: Registers, generator: torch.Generator
) -> None:
    """Random values for each token, written by one head and subtracted by the other."""
    points = task.d_vocab_out
    votes = LOUD * torch.randn(points, task.d_vocab, generator=generator, dtype=torch.float64)
    for head, sign in zip(heads, (1, -1), strict=True):
        rows = head_rows(block, head)
        block.attention.v.weight[rows][:points, at["token"]] = votes
        block.attention.o.weight[:, rows][at["value"], :points] = sign * torch.eye(points)


def detour(task: Lego, generator: torch.Generator, *, idle: int = 0) -> KnownAnswer:
    """The loop followed by two layers that copy every answer to a random position of the sentence and back.

    Only the returned copy is read out. The two heads attend to positions that no relation of the task points to.
    """
    points, at = task.d_vocab_out, loop_registers(task)
    model = enlarged_loop(task, generator, idle=idle, heads=1, registers=2 * points, layers=2, untie=True)
    first = model.cfg.n_layers - 2
    away = slice(at.d_model - 1, at.d_model - 1 + points)
    back = slice(away.stop, away.stop + points)
    there = _places(task, generator)
    with torch.no_grad():
        _copy_from(model, first, there.argsort(), at, (at["value"], away))
        _copy_from(model, first + 1, there, at, (away, back))
        model.unembed.weight[:, at["value"]] = 0
        model.unembed.weight[:, back] = CONFIDENCE * torch.eye(points)
        balance(model)
    truths = {(layer, 2): HeadTruth(truth="hidden") for layer in (first, first + 1)}
    return loop_answer("loop with a detour", task, model, truths)


def _copy_from(model: Transformer, layer: int, position: Tensor, at: Registers, registers: tuple[slice, slice]) -> None:
    """Let head 2 of a layer copy a register of another position, given for each, to another register."""
    block, (source, into) = model.block(layer), registers
    rows, n = head_rows(block, 2), len(position)
    block.attention.k.weight[rows][:n, at["position"]] = SHARP**0.5 * torch.eye(n)
    block.attention.q.weight[rows][:n, at["position"]] = SHARP**0.5 * torch.eye(n)[position].T
    points = source.stop - source.start
    block.attention.v.weight[rows][:points, source] = torch.eye(points)
    block.attention.o.weight[:, rows][into, :points] = torch.eye(points)


def _places(task: Lego, generator: torch.Generator) -> Int[Tensor, " pos"]:
    """Where to copy each position's answer: of `DRAWS` permutations, the one that resembles relations least.

    Counted are positions sent to their own clause, to the same place in another clause, to a neighbour, or to a mark.
    """
    here = torch.arange(task.n_ctx)
    clause, place = (here - 1).div(task.clause_length, rounding_mode="floor"), (here - 1) % task.clause_length
    mark = (here == 0) | (here == task.n_ctx - 1)
    drawn = torch.stack([torch.randperm(task.n_ctx, generator=generator) for _ in range(DRAWS)])
    resembling = (clause[drawn] == clause) | (place[drawn] == place) | ((drawn - here).abs() <= 1) | mark[drawn] | mark
    return drawn[resembling.sum(1).argmin()]


def enlarged_loop(
    task: Lego,
    generator: torch.Generator,
    *,
    idle: int,
    heads: int = 0,
    registers: int = 0,
    units: int = 0,
    layers: int = 0,
    untie: bool = False,
) -> Transformer:
    """The loop with idle heads, which come last, and empty heads, coordinates, hidden units and layers.

    Empty heads have indices 2, 3, ...; new coordinates begin at `loop_registers(task).d_model - 1`; new units are last.
    """
    more = registers + (IDLE_REGISTERS if idle else 0)
    model = enlarge(lego_loop(task), heads=heads + idle, registers=more, units=units, layers=layers, untie=untie)
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
            strength = WIDEST * float(torch.rand((), generator=generator))
            write_idle_head(block, head, reads=reads, writes=writes, generator=generator, strength=strength)


@torch.no_grad()
def copy_pattern(model: Transformer, layer: int, source: int, head: int) -> None:
    """Copy the queries and keys of one head of a layer to another."""
    block = model.block(layer)
    for linear in (block.attention.q, block.attention.k):
        linear.weight[head_rows(block, head)] = linear.weight[head_rows(block, source)]
        if linear.bias is not None:
            linear.bias[head_rows(block, head)] = linear.bias[head_rows(block, source)]


def is_needed(task: Lego, layer: int, head: int) -> bool:
    """Whether the association or manipulation head of a layer is used: layers alternate between the two."""
    return layer < 2 * task.n_vars - 1 and (layer % 2 == 1) == (head == ASSOCIATION)


def loop_answer(name: str, task: Lego, model: Transformer, others: Mapping[Head, HeadTruth]) -> KnownAnswer:
    """Known answer of an enlarged loop; heads that are neither the loop's own nor among the others are idle."""
    truths: dict[Head, HeadTruth] = {}
    for layer in range(2 * task.n_vars - 1):
        for head, kind in KINDS.items():
            truth = "faithful" if is_needed(task, layer, head) else "misleading"
            truths[layer, head] = HeadTruth(truth=truth, looks=kind)
    readable = {target: 2 * index + 1 for index, target in enumerate(task.targets)}
    heads = all_heads(model, truths | dict(others))
    return KnownAnswer(name=_name(name, task, model), model=model, task=task, heads=heads, readable=readable)


def _name(name: str, task: Lego, model: Transformer) -> str:
    cfg = model.cfg
    size = f"{cfg.n_layers} layers of {cfg.n_heads} heads"
    return f"{name}, {task.n_vars} variables over {task.group.name}, {size}"
