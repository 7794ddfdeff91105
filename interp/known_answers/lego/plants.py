"""What is planted in the loop: decoys that look like its heads and do nothing, and a detour that looks like nothing."""

from typing import Literal, get_args

import torch
from jaxtyping import Int
from torch import Tensor

from hooks import Transformer
from hooks.interventions.ablation_engine import Head
from hooks.model.blocks import Block
from interp.known_answers.answers import HeadTruth, KnownAnswer
from interp.known_answers.craft.wiring import SHARP, Registers, balance, bias_of, head_rows
from interp.known_answers.lego.loop import ASSOCIATION, CONFIDENCE, MANIPULATION, loop_registers
from interp.known_answers.lego.variants import KINDS, copy_pattern, enlarged_loop, loop_answer
from interp.tasks import Lego

Values = Literal["zero", "constant", "cancelled"]
LOUD = 5.0
"""What one of two heads that cancel writes, over the value that it would drown."""
CONSTANT_REGISTERS = 4
"""Coordinates that take a constant and that nobody reads."""
DRAWS = 500
"""Permutations to choose the least telling one from."""


def decoys(task: Lego, generator: torch.Generator, *, values: Values, idle: int = 0) -> KnownAnswer:
    """The loop, a block for each layer, and in one of them heads with a copy of the pattern of a head of the loop.

    `zero`: a head whose values are zero. `constant`: one that writes the same everywhere, where nobody reads it.
    `cancelled`: two, where the second takes back to the last bit what the first writes into the register of values;
    without both nothing changes, without one of them the model is lost.

    Args:
        task: Any in the paper's format.
        generator: Decides the layer, the head that is copied, values and idle heads.
        values: What the decoys hand on.
        idle: Further heads per layer that look nowhere in particular and write what nobody reads.

    Raises:
        ValueError: unknown values, or the compact format.
    """
    if values not in get_args(Values):
        raise ValueError(f"values is {values!r}; choose one of {', '.join(get_args(Values))}.")
    heads = 2 if values == "cancelled" else 1
    model = enlarged_loop(task, generator, idle=idle, heads=heads, registers=CONSTANT_REGISTERS, untie=True)
    layer = int(torch.randint(model.cfg.n_layers, (), generator=generator))
    copied = (ASSOCIATION, MANIPULATION)[int(torch.randint(2, (), generator=generator))]
    planted: list[Head] = [(layer, 2 + index) for index in range(heads)]
    for _, head in planted:
        copy_pattern(model, layer, copied, head)
    at, block = loop_registers(task), model.block(layer)
    with torch.no_grad():
        if values == "constant":
            _write_constant(block, 2, at.d_model - 1, generator)
        if values == "cancelled":
            _write_and_take_back(block, (2, 3), task, at, generator)
        balance(model)
    truths = {
        head: HeadTruth(
            truth="misleading", looks=KINDS[copied], partners=tuple(other for other in planted if other != head)
        )
        for head in planted
    }
    return loop_answer(f"loop with {values} decoys ({KINDS[copied]}, layer {layer})", task, model, truths)


def _write_constant(block: Block, head: int, register: int, generator: torch.Generator) -> None:
    """A bias as the only value: attention sums to one, whatever it looks at."""
    rows = head_rows(block, head)
    size = rows.stop - rows.start
    bias_of(block.attention.v)[rows] = torch.randn(size, generator=generator, dtype=torch.float64)
    out = torch.randn(CONSTANT_REGISTERS, size, generator=generator, dtype=torch.float64) / size**0.5
    block.attention.o.weight[register : register + CONSTANT_REGISTERS, rows] = out


def _write_and_take_back(
    block: Block, heads: tuple[int, int], task: Lego, at: Registers, generator: torch.Generator
) -> None:
    """A random vote for each token that is looked at, by one head for a value and by the other against it."""
    points = task.d_vocab_out
    votes = LOUD * torch.randn(points, task.d_vocab, generator=generator, dtype=torch.float64)
    for head, sign in zip(heads, (1, -1), strict=True):
        rows = head_rows(block, head)
        block.attention.v.weight[rows][:points, at["token"]] = votes
        block.attention.o.weight[:, rows][at["value"], :points] = sign * torch.eye(points)


def detour(task: Lego, generator: torch.Generator, *, idle: int = 0) -> KnownAnswer:
    """The loop, and then two layers that carry every answer to a random place of the sentence and back.

    Only what came back is read out. Both heads look where no relation of the task points.

    Args:
        task: Any in the paper's format.
        generator: Decides the places and idle heads.
        idle: Further heads per layer that look nowhere in particular and write what nobody reads.

    Raises:
        ValueError: the compact format.
    """
    points, at = task.d_vocab_out, loop_registers(task)
    model = enlarged_loop(task, generator, idle=idle, heads=1, registers=2 * points, layers=2, untie=True)
    first = model.cfg.n_layers - 2
    away = slice(at.d_model - 1, at.d_model - 1 + points)
    back = slice(away.stop, away.stop + points)
    there = _places(task, generator)
    with torch.no_grad():
        _carry(model, first, there.argsort(), at, (at["value"], away))
        _carry(model, first + 1, there, at, (away, back))
        model.unembed.weight[:, at["value"]] = 0
        model.unembed.weight[:, back] = CONFIDENCE * torch.eye(points)
        balance(model)
    truths = {(layer, 2): HeadTruth(truth="hidden") for layer in (first, first + 1)}
    return loop_answer("loop with a detour", task, model, truths)


def _carry(model: Transformer, layer: int, look_at: Tensor, at: Registers, registers: tuple[slice, slice]) -> None:
    """Let head 2 of a layer look at one position from each, and copy one register there into another here."""
    block, (source, into) = model.block(layer), registers
    rows, n = head_rows(block, 2), len(look_at)
    block.attention.k.weight[rows][:n, at["position"]] = SHARP**0.5 * torch.eye(n)
    block.attention.q.weight[rows][:n, at["position"]] = SHARP**0.5 * torch.eye(n)[look_at].T
    points = source.stop - source.start
    block.attention.v.weight[rows][:points, source] = torch.eye(points)
    block.attention.o.weight[:, rows][into, :points] = torch.eye(points)


def _places(task: Lego, generator: torch.Generator) -> Int[Tensor, " pos"]:
    """Where each position's answer is taken: the permutation, of many, that looks least like a relation.

    It should meet neither its own clause, nor the like place of another, nor a neighbour, nor [BOS] or [EOS].
    """
    here = torch.arange(task.n_ctx)
    clause, place = (here - 1).div(task.clause_length, rounding_mode="floor"), (here - 1) % task.clause_length
    mark = (here == 0) | (here == task.n_ctx - 1)
    drawn = torch.stack([torch.randperm(task.n_ctx, generator=generator) for _ in range(DRAWS)])
    telling = (clause[drawn] == clause) | (place[drawn] == place) | ((drawn - here).abs() <= 1) | mark[drawn] | mark
    return drawn[telling.sum(1).argmin()]
