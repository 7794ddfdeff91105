"""A transformer that resolves LEGO chains like a for-loop: one association and one manipulation head, layer by layer.

Step i takes two layers. The association head carries a variable's value from its own clause to where it is used, since
both hold the same letter; the manipulation head gathers a clause, its operation and what arrived, at its first token,
where the MLP looks up what the operation makes of it. The MLPs keep a clock: one layer takes what was gathered, the
next what was carried. What the other head brings meanwhile is thrown away, whatever it is.
"""

from typing import Any, cast

import torch
from torch import Tensor

from hooks import Transformer, TransformerConfig
from hooks.model.blocks import Block
from interp.known_answers.craft.one_hot import clear
from interp.known_answers.craft.wiring import (
    LINEAR_EPS,
    SHARP,
    Registers,
    balance,
    bias_of,
    head_rows,
    mlp_of,
    wire_norms,
)
from interp.tasks import Lego

ASSOCIATION, MANIPULATION = 0, 1
"""Which head is which, in every layer."""
WHOLE = 5.0
"""How steeply a hidden unit asks for an operation and its operand: nine tenths of them are not enough, so that only the
manipulation head's own pattern will do."""
CONFIDENCE = 20.0
"""Logit of the value found, over the others."""
SHUT = 20.0
"""More than anything that heads bring: a hidden unit that loses this much is off."""
ENOUGH = 0.8
"""A value is taken where this much of it was carried; where it is on average over sequences, it is not."""


def lego_loop(task: Lego, *, n_layers: int | None = None) -> Transformer:
    """A tied transformer that solves a LEGO task exactly, one variable every second layer.

    Variable i is at its clause's first token from `blocks.{2 i}.hook_resid_post` on, and chance before. The block is
    one, applied again and again: `model.at_depth(...)` goes on, or stops early.

    Args:
        task: Any chain length and group, in the paper's format.
        n_layers: Times that the block is applied; 2 n_vars - 1, which is just enough, when left out.

    Returns:
        The model, in float64.

    Raises:
        ValueError: the compact format, which has no token to look at where there is nothing to see.
    """
    if task.sentence_format != "paper":
        raise ValueError(f"task has sentence_format={task.sentence_format!r}; the loop needs 'paper', with its [BOS].")
    points, elements, at = task.d_vocab_out, len(task.group.elements), loop_registers(task)
    model = empty_chain(
        task,
        at,
        n_layers=2 * task.n_vars - 1 if n_layers is None else n_layers,
        d_mlp=points * elements + elements + 4 * points + 1,
        tied=True,
    )
    with torch.no_grad():
        embed_tokens(model, task, at)
        root = task.vocab.ids[task.group.root_token]
        model.embed.weight[root, at["arrived"].start + task.group.root] = 1  # has arrived from the start
        _associate(model, task, at)
        _manipulate(model, task, at)
        _decide(model, task, at)
        model.unembed.weight[:, at["value"]] = CONFIDENCE * torch.eye(points)
        wire_norms(model)
        balance(model)
    return model.eval()


def empty_chain(task: Lego, at: Registers, **sizes: Any) -> Transformer:
    """Two heads for sentences of a task, which can tell tokens and positions apart; in float64, all weights zero.

    Args:
        task: What the model will read and answer.
        at: The registers of its stream.
        sizes: `n_layers`, `d_mlp`, `tied`.
    """
    cfg = TransformerConfig(
        d_vocab=task.d_vocab,
        d_vocab_out=task.d_vocab_out,
        n_ctx=task.n_ctx,
        d_model=at.d_model,
        d_head=task.d_vocab + task.n_ctx + 1,
        n_heads=2,
        activation="relu",
        attn_scale=1.0,
        layer_norm_eps=LINEAR_EPS,
        **sizes,
    )
    model = Transformer(cfg).double()
    clear(model)
    return model


def loop_registers(task: Lego) -> Registers:
    """What the stream of the loop holds, and where."""
    points, elements = task.d_vocab_out, len(task.group.elements)
    return Registers(
        {
            "token": task.d_vocab,
            "position": task.n_ctx,
            "value": points,  # of the variable that a clause defines, at its first token
            "arrived": points,  # of the variable that a clause uses, at its fourth
            "operation": elements,  # what a clause holds, gathered at each of its tokens for as long as a layer lasts
            "operand": points,
            "carried": points,  # from the same token elsewhere, for as long as a layer lasts
            "clock": 1,  # 0 in layers that gather, 1 in those that carry
        }
    )


def embed_tokens(model: Transformer, task: Lego, at: Registers) -> None:
    """Write what each token is and where it stands, into registers `token` and `position`."""
    model.embed.weight[:, at["token"]] = torch.eye(task.d_vocab)
    if model.positions is not None:
        cast(Tensor, model.positions.weight)[:, at["position"]] = torch.eye(task.n_ctx)


def look_at_same_token(block: Block, rows: slice, task: Lego, at: Registers) -> None:
    """Let a head look at the same token elsewhere, and at [BOS] where there is none.

    Args:
        block: Whose head; with biases. Changed in place.
        rows: Of the head (`wiring.head_rows`), at least d_vocab + n_ctx + 1.
        task: Gives the tokens.
        at: Registers `token` and `position`, as `embed_tokens` fills them.
    """
    tokens, places = slice(0, task.d_vocab), slice(task.d_vocab, task.d_vocab + task.n_ctx)
    query, key = block.attention.q.weight[rows], block.attention.k.weight[rows]
    query[tokens, at["token"]] = key[tokens, at["token"]] = SHARP**0.5 * 2**0.5 * torch.eye(task.d_vocab)
    query[places, at["position"]] = -4 * SHARP * torch.eye(task.n_ctx)  # not itself
    key[places, at["position"]] = torch.eye(task.n_ctx)
    bias_of(block.attention.q)[rows][-1] = SHARP
    key[-1, at["token"].start + task.vocab.ids["[BOS]"]] = 1


def look_at_own_clause(block: Block, rows: slice, task: Lego, at: Registers) -> None:
    """Let a head look at its own clause, all of it alike; the arguments are those of `look_at_same_token`."""
    clause = (torch.arange(task.n_ctx) - 1).div(task.clause_length, rounding_mode="floor") + 1
    member = torch.zeros(int(clause.max()) + 1, task.n_ctx, dtype=torch.float64)
    member[clause, torch.arange(task.n_ctx)] = SHARP**0.5
    for linear in (block.attention.q, block.attention.k):
        linear.weight[rows][: len(member), at["position"]] = member


def _associate(model: Transformer, task: Lego, at: Registers) -> None:
    """Carry the value of the same token elsewhere."""
    block = model.block(0)
    rows, points = head_rows(block, ASSOCIATION), task.d_vocab_out
    look_at_same_token(block, rows, task, at)
    block.attention.v.weight[rows][:points, at["value"]] = torch.eye(points)
    block.attention.o.weight[:, rows][at["carried"], :points] = torch.eye(points)


def _manipulate(model: Transformer, task: Lego, at: Registers) -> None:
    """Gather the operation of one's own clause, and what has arrived in it."""
    block, points, elements = model.block(0), task.d_vocab_out, len(task.group.elements)
    rows = head_rows(block, MANIPULATION)
    look_at_own_clause(block, rows, task, at)
    value, out = block.attention.v.weight[rows], block.attention.o.weight[:, rows]
    first = at["token"].start + task.vocab.ids[task.group.elements[0]]
    value[:elements, first : first + elements] = task.clause_length * torch.eye(elements)
    value[elements : elements + points, at["arrived"]] = task.clause_length * torch.eye(points)
    out[at["operation"], :elements] = torch.eye(elements)
    out[at["operand"], elements : elements + points] = torch.eye(points)


def _decide(model: Transformer, task: Lego, at: Registers) -> None:
    """A hidden unit for each operation and operand says the value; others take what was carried, and clear away."""
    mlp, points, elements = mlp_of(model.block(0)), task.d_vocab_out, len(task.group.elements)
    reads, writes, unit = mlp.w_in.weight, mlp.w_out.weight, 0
    letters = [task.vocab.ids[letter] + at["token"].start for letter in task.alphabet]
    for element in range(elements):
        for point in range(points):
            reads[unit, at["operation"].start + element] = WHOLE
            reads[unit, at["operand"].start + point] = WHOLE
            reads[unit, at["value"]] = -2  # once only
            reads[unit, letters] = 2
            reads[unit, at["position"]] = -2 * _not_first(task)
            reads[unit, at["clock"]] = -SHUT
            bias_of(mlp.w_in)[unit] = -2 * WHOLE - 1
            writes[at["value"].start + int(task.group.act[element][point]), unit] = 1
            unit += 1
    for point in range(points):  # nothing below ENOUGH, one from a little above it on: two units whose difference steps
        for late in (0, 1):
            reads[unit, at["carried"].start + point] = 10
            reads[unit, at["arrived"]] = -SHUT  # once only
            reads[unit, at["clock"]] = SHUT
            bias_of(mlp.w_in)[unit] = -SHUT - 10 * ENOUGH - late
            writes[at["arrived"].start + point, unit] = 1 - 2 * late
            unit += 1
    for name, size in (("operation", elements), ("operand", points), ("carried", points)):
        for index in range(at[name].start, at[name].start + size):
            reads[unit, index] = 1
            writes[index, unit] = -1
            unit += 1
    reads[unit, at["clock"]], writes[at["clock"], unit] = 1, -2
    bias_of(mlp.w_out)[at["clock"]] = 1


def _not_first(task: Lego) -> Tensor:
    """1 at positions that are no clause's first."""
    place = torch.arange(task.n_ctx) - 1
    return ((place < 0) | (place % task.clause_length != 0) | (place >= task.clause_length * task.n_vars)).double()
