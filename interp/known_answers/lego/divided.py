"""LEGO loops in which two heads divide the work of one, or a uniform head does it."""

import math
from typing import Literal

import torch

from hooks import Transformer
from hooks.checks import check_choice
from interp.known_answers.answers import HeadTruth, KnownAnswer, draw
from interp.known_answers.craft.weights import balance, bias_of, copy_head, head_rows, mlp_of
from interp.known_answers.lego.loop import ASSOCIATION, MANIPULATION, SHUT, loop_registers
from interp.known_answers.lego.shortcut import FIRST
from interp.known_answers.lego.variants import KINDS, is_needed, loop_answer, loop_with_idle_heads
from interp.tasks import Lego

LETTERS = (0.4, 0.6)
"""Range of the share of letters that is left to the second head."""
OPERATIONS = (0.5, 0.7)
"""Range of the share of operations that is left to the second head."""
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
    if work == "association":
        first = ASSOCIATION
        model = _divide_letters(task, generator, idle)
    else:
        first = MANIPULATION
        model = _divide_operations(task, generator, idle)
    with torch.no_grad():
        model.b_U[0] = FIRST  # without a value, the answer must not depend on rounding
    # The second head is needed in the layers of the first
    truths = {}
    for layer in range(model.cfg.n_layers):
        truth = "faithful" if is_needed(task, layer, first) else "misleading"
        truths[layer, SECOND] = HeadTruth(truth=truth, looks=KINDS[first])
    return loop_answer(task, model, truths)


@torch.no_grad()
def _divide_letters(task: Lego, generator: torch.Generator, idle: int) -> Transformer:
    """Hidden units that write a value are doubled: one for some letters, another into a new register for the others."""
    points = task.d_vocab_out
    n_units = task.d_vocab_out * len(task.group.elements)
    model = loop_with_idle_heads(task, generator, idle, heads=1, registers=points, units=n_units)
    stream = loop_registers(task)
    block = model.block(0)
    # Token ids of the letters of each head
    letters = [task.vocab.ids[letter] for letter in task.alphabet]
    second_letters = [letters[index] for index in _random_subset(len(letters), LETTERS, generator)]
    first_letters = [letter for letter in letters if letter not in second_letters]
    _keep_only_operands(model, task)
    # Units of either kind are shut at the letters of the other, and do nothing where either has written a value
    mlp = mlp_of(block)
    value = stream["value"]
    new = stream.after(0, points)
    reads = mlp.w_in.weight
    first = slice(0, n_units)
    second = slice(len(mlp.w_in.weight) - n_units, None)
    reads[first, new] = reads[first, value]
    reads[second] = reads[first]
    bias_of(mlp.w_in)[second] = bias_of(mlp.w_in)[first]
    mlp.w_out.weight[new, second] = mlp.w_out.weight[value, first]
    reads[first, second_letters] -= SHUT
    reads[second, first_letters] -= SHUT
    # The second head is the first with the new register in place of the other
    copy_head(block, ASSOCIATION, SECOND, maps="qko")
    source_rows, rows = head_rows(block, ASSOCIATION), head_rows(block, SECOND)
    block.attention.v.weight[rows, new] = block.attention.v.weight[source_rows, value]
    model.unembed.weight[:, new] = model.unembed.weight[:, value]
    balance(model)
    return model


@torch.no_grad()
def _divide_operations(task: Lego, generator: torch.Generator, idle: int) -> Transformer:
    """The second head has the pattern of the manipulation head, and its values of some operations."""
    model = loop_with_idle_heads(task, generator, idle, heads=1)
    block = model.block(0)
    elements = task.group.elements
    indices = _random_subset(len(elements), OPERATIONS, generator)
    operations = [task.vocab.ids[elements[index]] for index in indices]
    # Copy the pattern and the output, and move the values
    copy_head(block, MANIPULATION, SECOND, maps="qko")
    source_rows, rows = head_rows(block, MANIPULATION), head_rows(block, SECOND)
    value = block.attention.v.weight
    value[rows, operations] = value[source_rows, operations]
    value[source_rows, operations] = 0
    balance(model)
    return model


def _random_subset(n: int, share: tuple[float, float], generator: torch.Generator) -> list[int]:
    """A random choice of a random share of n."""
    size = draw(generator, math.ceil(share[0] * n), int(share[1] * n))
    return torch.randperm(n, generator=generator)[:size].tolist()


@torch.no_grad()
def _keep_only_operands(model: Transformer, task: Lego) -> None:
    """Let the hidden units that keep what was carried do so at the fourth token of a clause only."""
    stream = loop_registers(task)
    mlp = mlp_of(model.block(0))
    first_unit = len(task.group.elements) * task.d_vocab_out
    positions = torch.arange(task.n_ctx)
    not_fourth = stream["position"].start + positions[(positions - 1) % task.clause_length != 3]
    mlp.w_in.weight[first_unit : first_unit + 2 * task.d_vocab_out, not_fourth] -= SHUT


def evenly(task: Lego, generator: torch.Generator, *, idle: int = 0) -> KnownAnswer:
    """The loop over two variables with a uniform head in place of the association head.

    When the value of the first variable is needed, there is no other yet, so the sum over all positions is that value.

    Raises:
        ValueError: another number of variables.
    """
    if task.n_vars != 2:
        raise ValueError(f"n_vars is {task.n_vars}; the sum over positions is one value only in chains of 2.")
    model = loop_with_idle_heads(task, generator, idle)
    block = model.block(0)
    rows = head_rows(block, ASSOCIATION)
    _keep_only_operands(model, task)
    # No queries and keys; the mean over all positions becomes their sum
    with torch.no_grad():
        for linear in (block.attention.q, block.attention.k):
            linear.weight[rows] = 0
            bias_of(linear)[rows] = 0
        block.attention.v.weight[rows] *= task.n_ctx
    balance(model)
    truths = {}
    for layer in range(model.cfg.n_layers):
        truth = "hidden" if is_needed(task, layer, ASSOCIATION) else "idle"
        truths[layer, ASSOCIATION] = HeadTruth(truth=truth)
    return loop_answer(task, model, truths)
