"""Models that add two numbers modulo p: attention brings both numbers to the equals sign, and a table gives the sum.

The table is the MLP, with a unit for each pair of numbers. Scores are divided as in trained models: with three tokens,
untrained heads whose scores are not would often attend to the numbers alone, and no head would have a label. Each
function takes a generator, which determines the modulus, gains and idle heads.
"""

from typing import Literal

import torch

from hooks import Transformer, TransformerConfig
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
    Registers,
    bias_of,
    empty_model,
    head_rows,
    mlp_of,
    position_table,
    write_idle_head,
    write_map,
)
from interp.known_answers.small_tasks.in_context_lookup import MOST_IDLE, SCRAP, attend_by_position, random_gain
from interp.tasks.modular_addition.task import ModularAddition

Place = Literal["first", "second"]


def sum_of_both(generator: torch.Generator, *, decoys: bool = False, copies: int = 1) -> KnownAnswer:
    """A head attends to both numbers from the equals sign and writes their mean, which the table reads.

    Args:
        generator: Determines the modulus, the gain and idle heads.
        decoys: Two more heads write nothing: one has the same pattern, one attends to the equals sign.
        copies: Number of heads that do this, of which one is enough.
    """
    task = ModularAddition(p=draw(generator, 23, 31))
    stream = sum_registers(task)
    model = _empty_sums(task, generator, n_heads=3 if decoys else copies, n_units=task.p * (task.p + 1) // 2)
    for head in range(copies):
        _attend_to_tokens(model, head, stream["number"])
        write_map(model.block(0), head, torch.eye(task.p).double(), reads=stream["number"], writes=stream["first"])
    _write_table_of_means(model, task, gain=random_gain(generator))
    truths = needed_head("operands") if copies == 1 else redundant_heads("operands", range(copies))
    if decoys:
        _attend_to_tokens(model, 1, stream["number"])
        _attend_to_tokens(model, 2, stream["equals"])
        truths |= unneeded_heads("operands", [1]) | unneeded_heads("current", [2])
    return KnownAnswer(name="modular addition", model=model.eval(), task=task, heads=all_heads(model, truths))


def sum_of_each(generator: torch.Generator) -> KnownAnswer:
    """One head brings the first number and another one the second, to two registers, and the table reads both."""
    task = ModularAddition(p=draw(generator, 23, 31))
    stream = sum_registers(task)
    model = _empty_sums(task, generator, n_heads=2, n_units=task.p**2)
    places: tuple[Place, ...] = ("first", "second")
    for head, place in enumerate(places):
        keys = torch.full((task.n_ctx,), head)
        attend_by_position(model.block(0), head, stream["position"], keys)
        write_map(model.block(0), head, torch.eye(task.p).double(), reads=stream["number"], writes=stream[place])
    _write_table_of_pairs(model, task, gain=random_gain(generator))
    needed = HeadTruth(truth="faithful", looks="operands")
    truths = {(0, head): needed for head in range(2)}
    return KnownAnswer(name="modular addition", model=model.eval(), task=task, heads=all_heads(model, truths))


def sum_registers(task: ModularAddition) -> Registers:
    """Registers of the stream: the token, the position, what heads bring, and the answer."""
    return Registers(
        {
            "number": task.p,
            "equals": 1,
            "position": task.n_ctx,
            "first": task.p,
            "second": task.p,
            "answer": task.p,
            "scrap": SCRAP,
        }
    )


@torch.no_grad()
def _empty_sums(task: ModularAddition, generator: torch.Generator, *, n_heads: int, n_units: int) -> Transformer:
    """A model in float64 that embeds tokens and reads out sums, with empty heads, idle ones, and an empty MLP."""
    stream = sum_registers(task)
    n_idle = draw(generator, 0, MOST_IDLE)
    cfg = TransformerConfig(
        d_vocab=task.d_vocab,
        d_vocab_out=task.d_vocab_out,
        n_ctx=task.n_ctx,
        n_layers=1,
        n_heads=n_heads + n_idle,
        d_model=stream.d_model,
        d_head=task.p + 1,
        d_mlp=n_units,
        block="no_norm",
        activation="relu",
        attention=task.attention,
        init="normal",
    )
    model = empty_model(cfg)
    tokens = slice(stream["number"].start, stream["equals"].stop)
    model.embed.weight[:, tokens] = torch.eye(task.d_vocab).double()
    position_table(model)[:, stream["position"]] = torch.eye(task.n_ctx).double()
    model.unembed.weight[:, stream["answer"]] = torch.eye(task.p).double()
    # idle heads read numbers only, so that they are uniform at the equals sign; a random row of three keys could look
    # like both numbers
    for head in range(n_heads, n_heads + n_idle):
        block = model.block(0)
        write_idle_head(block, head, reads=stream["number"], writes=stream["scrap"], generator=generator, strength=0.5)
    return model


@torch.no_grad()
def _attend_to_tokens(model: Transformer, head: int, register: slice) -> None:
    """Let every position attend evenly to the tokens with a mark in a register."""
    block = model.block(0)
    rows = head_rows(block, head)
    bias_of(block.attention.q)[rows][0] = SHARP * block.attention.scale
    block.attention.k.weight[rows][0, register] = 1


@torch.no_grad()
def _write_table_of_means(model: Transformer, task: ModularAddition, *, gain: float) -> None:
    """Units for unordered pairs of numbers, which read the mean of both one-hot numbers from the register `first`.

    The unit of i and j is above its threshold if these are the numbers, and also if both numbers are i. So the unit of
    i and i takes back what those of i and any other j add.
    """
    stream = sum_registers(task)
    mlp = mlp_of(model.block(0))
    pairs = torch.combinations(torch.arange(task.p), with_replacement=True)
    one_hot = torch.eye(task.p).double()
    i, j = pairs.unbind(1)
    is_double = i == j
    # half a number each, or a whole one if both are the same
    reads = one_hot[i] + torch.where(is_double[:, None], 0.0, one_hot[j])
    mlp.w_in.weight[:, stream["first"]] = reads
    bias_of(mlp.w_in)[:] = -0.75
    sums = one_hot[(i + j) % task.p]
    # a double adds its own sum, and takes back those of i with every other number
    answers = torch.where(is_double[:, None], 2 * sums - 1, sums)
    # a unit is 1/4 above its threshold
    mlp.w_out.weight[stream["answer"]] = 4 * gain * answers.T


@torch.no_grad()
def _write_table_of_pairs(model: Transformer, task: ModularAddition, *, gain: float) -> None:
    """Units for ordered pairs of numbers, which read one number from each register."""
    stream = sum_registers(task)
    mlp = mlp_of(model.block(0))
    pairs = torch.cartesian_prod(torch.arange(task.p), torch.arange(task.p))
    one_hot = torch.eye(task.p).double()
    mlp.w_in.weight[:, stream["first"]] = one_hot[pairs[:, 0]]
    mlp.w_in.weight[:, stream["second"]] = one_hot[pairs[:, 1]]
    bias_of(mlp.w_in)[:] = -1.5
    mlp.w_out.weight[stream["answer"]] = 2 * gain * one_hot[pairs.sum(1) % task.p].T
