"""LEGO loops in which two heads divide the work of one, or a uniform head does it."""

import math
from typing import Literal

import torch

from hooks import Transformer
from hooks.checks import check_choice
from interp.known_answers.answers import HeadTruth, KnownAnswer, draw
from interp.known_answers.craft.weights import balance, bias_of, head_rows, mlp_of
from interp.known_answers.lego.loop import ASSOCIATION, MANIPULATION, SHUT, loop_registers
from interp.known_answers.lego.shortcut import FIRST
from interp.known_answers.lego.variants import KINDS, copy_pattern, enlarged_loop, is_needed, loop_answer
from interp.tasks import Lego

LETTERS, OPERATIONS = (0.4, 0.6), (0.5, 0.7)
"""Ranges of the share of letters, or of operations, that is left to the second head."""
SECOND = 2
"""Index of the second head."""


def divided(
    task: Lego, generator: torch.Generator, *, work: Literal["association", "manipulation"], idle: int = 0
) -> KnownAnswer:
    """The loop with two association heads, or two manipulation heads, each needed in a share of the sentences.

    Args:
        task: Task of at least two variables.
        generator: Determines the shares and idle heads.
        work: `association`: values of some letters are in a separate register, which only the second head carries.
            `manipulation`: only the second head gathers some of the operations; the first gathers the others, and the
            operand.
        idle: Number of idle heads per layer.

    Raises:
        ValueError: unknown work.
    """
    check_choice("work", work, Literal["association", "manipulation"])
    answer = _divided_letters if work == "association" else _divided_operations
    return answer(task, generator, idle)


def _divided_letters(task: Lego, generator: torch.Generator, idle: int) -> KnownAnswer:
    """Hidden units that write a value are doubled: one for some letters, another into a new register for the others."""
    points, n = task.d_vocab_out, task.d_vocab_out * len(task.group.elements)
    model = enlarged_loop(task, generator, idle=idle, heads=1, registers=points, units=n)
    at, block = loop_registers(task), model.block(0)
    mlp, new = mlp_of(block), slice(at.d_model - 1, at.d_model - 1 + points)
    reads, first, second = mlp.w_in.weight, slice(0, n), slice(len(mlp.w_in.weight) - n, None)
    letters = [task.vocab.ids[task.alphabet[index]] for index in _some(len(task.alphabet), LETTERS, generator)]
    others = [task.vocab.ids[letter] for letter in task.alphabet if task.vocab.ids[letter] not in letters]
    copy_pattern(model, 0, ASSOCIATION, SECOND)
    _keep_only_operands(model, task)
    source, rows = head_rows(block, ASSOCIATION), head_rows(block, SECOND)
    with torch.no_grad():
        reads[first, new] = reads[first, at["value"]]
        reads[second], bias_of(mlp.w_in)[second] = reads[first], bias_of(mlp.w_in)[first]
        mlp.w_out.weight[new, second] = mlp.w_out.weight[at["value"], first]
        reads[first, letters] -= SHUT
        reads[second, others] -= SHUT
        block.attention.v.weight[rows, new] = block.attention.v.weight[source, at["value"]]
        block.attention.o.weight[:, rows] = block.attention.o.weight[:, source]
        model.unembed.weight[:, new] = model.unembed.weight[:, at["value"]]
        balance(model)
    return _answer(task, model, "association", f"{len(letters)} of {len(task.alphabet)} letters")


def _divided_operations(task: Lego, generator: torch.Generator, idle: int) -> KnownAnswer:
    """The second head has the pattern of the manipulation head, and its values of some operations."""
    model = enlarged_loop(task, generator, idle=idle, heads=1)
    block, elements = model.block(0), task.group.elements
    chosen = [task.vocab.ids[elements[index]] for index in _some(len(elements), OPERATIONS, generator)]
    copy_pattern(model, 0, MANIPULATION, SECOND)
    source, rows = head_rows(block, MANIPULATION), head_rows(block, SECOND)
    with torch.no_grad():
        value = block.attention.v.weight
        value[rows, chosen] = value[source, chosen]
        value[source, chosen] = 0
        block.attention.o.weight[:, rows] = block.attention.o.weight[:, source]
        balance(model)
    return _answer(task, model, "manipulation", f"{len(chosen)} of {len(elements)} operations")


def _some(n: int, share: tuple[float, float], generator: torch.Generator) -> list[int]:
    """A random choice of a random share of n."""
    size = draw(generator, math.ceil(share[0] * n), int(share[1] * n))
    return torch.randperm(n, generator=generator)[:size].tolist()


@torch.no_grad()
def _keep_only_operands(model: Transformer, task: Lego) -> None:
    """Let the hidden units that keep what was carried do so at the fourth token of a clause only."""
    at, mlp, start = loop_registers(task), mlp_of(model.block(0)), len(task.group.elements) * task.d_vocab_out
    here = torch.arange(task.n_ctx)
    elsewhere = at["position"].start + here[(here - 1) % task.clause_length != 3]
    mlp.w_in.weight[start : start + 2 * task.d_vocab_out, elsewhere] -= SHUT


def _answer(task: Lego, model: Transformer, work: str, share: str) -> KnownAnswer:
    with torch.no_grad():
        model.b_U[0] = FIRST  # without a value, the answer must not depend on rounding
    head = ASSOCIATION if work == KINDS[ASSOCIATION] else MANIPULATION
    truths = {
        (layer, SECOND): HeadTruth(truth="faithful" if is_needed(task, layer, head) else "misleading", looks=work)
        for layer in range(model.cfg.n_layers)
    }
    return loop_answer(f"loop with divided {work} ({share})", task, model, truths)


def evenly(task: Lego, generator: torch.Generator, *, idle: int = 0) -> KnownAnswer:
    """The loop over two variables with a uniform head in place of the association head.

    When the value of the first variable is needed, there is no other yet, so the sum over all positions is that value.

    Raises:
        ValueError: another number of variables.
    """
    if task.n_vars != 2:
        raise ValueError(f"n_vars is {task.n_vars}; the sum over positions is one value only in chains of 2.")
    model = enlarged_loop(task, generator, idle=idle)
    block = model.block(0)
    rows = head_rows(block, ASSOCIATION)
    _keep_only_operands(model, task)
    with torch.no_grad():
        for linear in (block.attention.q, block.attention.k):
            linear.weight[rows] = 0
            bias_of(linear)[rows] = 0
        block.attention.v.weight[rows] *= task.n_ctx
        balance(model)
    truths = {
        (layer, ASSOCIATION): HeadTruth(truth="hidden" if is_needed(task, layer, ASSOCIATION) else "idle")
        for layer in range(model.cfg.n_layers)
    }
    return loop_answer("loop with a uniform head", task, model, truths)
