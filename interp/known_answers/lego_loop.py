"""A transformer that resolves LEGO chains like a for-loop: one association and one manipulation head, layer by layer.

Step i takes two layers. The association head carries a variable's value from its own clause to where it is used, since
both hold the same letter; the manipulation head gathers a clause, its operation and what arrived, at its first token,
where the MLP looks up what the operation makes of it.
"""

from typing import cast

import torch
from torch import Tensor

from hooks import Transformer, TransformerConfig
from interp.known_answers.bracket_pairs import clear
from interp.known_answers.wiring import LINEAR_EPS, SHARP, Registers, balance, bias_of, head_rows, mlp_of, wire_norms
from interp.tasks import Lego

ASSOCIATION, MANIPULATION = 0, 1
"""Which head is which, in every layer."""
CONFIDENCE = 20.0
"""Logit of the value found, over the others."""


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
    points, elements = task.d_vocab_out, len(task.group.elements)
    at = Registers(
        {
            "token": task.d_vocab,
            "position": task.n_ctx,
            "value": points,  # of the variable that a clause defines, at its first token
            "arrived": points,  # of the variable that a clause uses, at its fourth
            "operation": elements,  # what a clause holds, gathered at each of its tokens for as long as a layer lasts
            "operand": points,
        }
    )
    model = Transformer(
        TransformerConfig(
            d_vocab=task.d_vocab,
            d_vocab_out=points,
            n_ctx=task.n_ctx,
            d_model=at.d_model,
            d_head=task.d_vocab + task.n_ctx + 1,
            n_heads=2,
            n_layers=2 * task.n_vars - 1 if n_layers is None else n_layers,
            d_mlp=points * elements + elements + 3 * points,
            tied=True,
            activation="relu",
            attn_scale=1.0,
            layer_norm_eps=LINEAR_EPS,
        )
    ).double()
    clear(model)
    with torch.no_grad():
        _embed(model, task, at)
        _associate(model, task, at)
        _manipulate(model, task, at)
        _decide(model, task, at)
        model.unembed.weight[:, at["value"]] = CONFIDENCE * torch.eye(points)
        wire_norms(model)
        balance(model)
    return model.eval()


def _embed(model: Transformer, task: Lego, at: Registers) -> None:
    """What each token is and where it stands; the root is a value that has arrived already."""
    model.embed.weight[:, at["token"]] = torch.eye(task.d_vocab)
    model.embed.weight[task.vocab.ids[task.group.root_token], at["arrived"].start + task.group.root] = 1
    if model.positions is not None:
        cast(Tensor, model.positions.weight)[:, at["position"]] = torch.eye(task.n_ctx)


def _associate(model: Transformer, task: Lego, at: Registers) -> None:
    """Look at the same token elsewhere, at [BOS] where there is none; carry its value."""
    block = model.block(0)
    rows, attention = head_rows(block, ASSOCIATION), block.attention
    tokens, places = slice(0, task.d_vocab), slice(task.d_vocab, task.d_vocab + task.n_ctx)
    query, key = attention.q.weight[rows], attention.k.weight[rows]
    query[tokens, at["token"]] = key[tokens, at["token"]] = SHARP**0.5 * 2**0.5 * torch.eye(task.d_vocab)
    query[places, at["position"]] = -4 * SHARP * torch.eye(task.n_ctx)  # not itself
    key[places, at["position"]] = torch.eye(task.n_ctx)
    bias_of(attention.q)[rows][-1] = SHARP
    key[-1, at["token"].start + task.vocab.ids["[BOS]"]] = 1
    value, out = attention.v.weight[rows], attention.o.weight[:, rows]
    points = task.d_vocab_out
    value[:points, at["value"]] = torch.eye(points)
    out[at["arrived"], :points] = torch.eye(points)


def _manipulate(model: Transformer, task: Lego, at: Registers) -> None:
    """Look at one's own clause, all of it alike; gather its operation and what has arrived in it."""
    block = model.block(0)
    rows, attention = head_rows(block, MANIPULATION), block.attention
    clause = (torch.arange(task.n_ctx) - 1).div(task.clause_length, rounding_mode="floor") + 1
    member = torch.zeros(int(clause.max()) + 1, task.n_ctx, dtype=torch.float64)
    member[clause, torch.arange(task.n_ctx)] = SHARP**0.5
    for linear in (attention.q, attention.k):
        linear.weight[rows][: len(member), at["position"]] = member
    points, elements = task.d_vocab_out, len(task.group.elements)
    value, out = attention.v.weight[rows], attention.o.weight[:, rows]
    first = at["token"].start + task.vocab.ids[task.group.elements[0]]
    value[:elements, first : first + elements] = task.clause_length * torch.eye(elements)
    value[elements : elements + points, at["arrived"]] = task.clause_length * torch.eye(points)
    out[at["operation"], :elements] = torch.eye(elements)
    out[at["operand"], elements : elements + points] = torch.eye(points)


def _decide(model: Transformer, task: Lego, at: Registers) -> None:
    """A hidden unit for each operation and operand says the value; others clear away what was gathered."""
    mlp, points, elements = mlp_of(model.block(0)), task.d_vocab_out, len(task.group.elements)
    unit = 0
    letters = [task.vocab.ids[letter] + at["token"].start for letter in task.alphabet]
    for element in range(elements):
        for point in range(points):
            mlp.w_in.weight[unit, at["operation"].start + element] = 1
            mlp.w_in.weight[unit, at["operand"].start + point] = 1
            mlp.w_in.weight[unit, at["value"]] = -2  # once only
            mlp.w_in.weight[unit, letters] = 2
            mlp.w_in.weight[unit, at["position"]] = -2 * _not_first(task)
            bias_of(mlp.w_in)[unit] = -3
            mlp.w_out.weight[at["value"].start + int(task.group.act[element][point]), unit] = 1
            unit += 1
    for name, size in (("operation", elements), ("operand", points)):
        for index in range(size):
            mlp.w_in.weight[unit, at[name].start + index] = 1
            mlp.w_out.weight[at[name].start + index, unit] = -1
            unit += 1
    for index in range(points):  # what arrives again and again stays one
        mlp.w_in.weight[unit, at["arrived"].start + index] = 1
        bias_of(mlp.w_in)[unit] = -1
        mlp.w_out.weight[at["arrived"].start + index, unit] = -1
        unit += 1


def _not_first(task: Lego) -> Tensor:
    """1 at positions that are no clause's first."""
    place = torch.arange(task.n_ctx) - 1
    return ((place < 0) | (place % task.clause_length != 0) | (place >= task.clause_length * task.n_vars)).double()
