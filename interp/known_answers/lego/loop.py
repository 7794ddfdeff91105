"""A transformer that resolves a LEGO chain step by step, with one association and one manipulation head per layer.

Each step takes two layers. The association head copies a variable's value from the clause that defines it to the clause
that uses it, since both contain the same letter. The manipulation head gathers the operation and operand of a clause at
its first token, where the MLP looks up the result. A clock bit alternates from layer to layer: the MLP uses what was
gathered in one layer and what was copied in the next, and discards the output of the other head.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from hooks import Transformer, TransformerConfig
from hooks.model.blocks import Block
from hooks.typed import checks_types
from interp.known_answers.craft.weights import (
    LINEAR_EPS,
    SHARP,
    Registers,
    balance,
    bias_of,
    empty_model,
    head_rows,
    mlp_of,
    position_table,
)
from interp.tasks import Lego

ASSOCIATION, MANIPULATION = 0, 1
"""Indices of the two heads, in every layer."""
WHOLE = 5.0
"""Weight of operation and operand in a hidden unit: nine tenths of them do not activate it, so that the unit needs the
manipulation head's exact pattern."""
CONFIDENCE = 20.0
"""Logit of the predicted value minus that of the others."""
SHUT = 20.0
"""More than the heads can write: a hidden unit whose input is lower by this much is inactive."""
ENOUGH = 0.8
"""Fraction of a value that must be copied for it to count; its mean over sequences does not."""


@checks_types
def lego_loop(task: Lego, *, n_layers: int | None = None) -> Transformer:
    """A tied transformer that solves a LEGO task exactly, one variable every second layer.

    The value of variable i is at the first token of its clause from `blocks.{2 i}.hook_resid_post` on, and accuracy on
    it is at chance before. All layers apply the same block, so `model.at_depth(...)` runs more steps or fewer.

    Args:
        task: Task of any chain length and group, in the paper's format.
        n_layers: Number of layers; if None, 2 n_vars - 1, which is just enough.

    Returns:
        The model, in float64.

    Raises:
        ValueError: the compact format, which has no [BOS] token to attend to.
    """
    return larger_loop(task, n_layers=n_layers)


@torch.no_grad()
def larger_loop(
    task: Lego,
    *,
    n_layers: int | None = None,
    tied: bool = True,
    heads: int = 0,
    registers: int = 0,
    units: int = 0,
    layers: int = 0,
) -> Transformer:
    """The loop with additional heads, coordinates, hidden units and layers of zero weights, which change nothing.

    Args:
        task: As of `lego_loop`.
        n_layers: Number of layers of the loop, as of `lego_loop`.
        tied: Apply the same block in every layer; if False, each layer has a separate one.
        heads: Number of heads to add to each block, with indices 2, 3, ...
        registers: Number of coordinates to add, from `loop_registers(task).d_model - 1` on; the last one of all
            balances the mean.
        units: Number of hidden units to add to each MLP, after those of the loop.
        layers: Number of empty layers to add at the end, of a model that is not tied.
    """
    if task.sentence_format != "paper":
        raise ValueError(f"task has sentence_format={task.sentence_format!r}; the loop needs 'paper', with its [BOS].")
    points = task.d_vocab_out
    elements = len(task.group.elements)
    stream = loop_registers(task)
    steps = 2 * task.n_vars - 1 if n_layers is None else n_layers
    model = empty_chain(
        task,
        n_heads=2 + heads,
        d_model=stream.d_model + registers,
        n_layers=steps + layers,
        d_mlp=points * elements + elements + 4 * points + 1 + units,
        tied=tied,
    )
    # Embeddings: tokens and positions, and the root's value, which needs no step
    embed_tokens(model, task, stream)
    root = task.vocab.ids[task.group.root_token]
    model.embed.weight[root, stream["arrived"].start + task.group.root] = 1
    # One block does every step; empty layers stay empty
    for block in model.stored_blocks[:steps]:
        _associate(block, task, stream)
        _manipulate(block, task, stream)
        _decide(block, task, stream)
    model.unembed.weight[:, stream["value"]] = CONFIDENCE * torch.eye(points)
    balance(model)
    return model.eval()


def empty_chain(task: Lego, **sizes: Any) -> Transformer:
    """A model whose queries and keys are wide enough for tokens and positions; float64, weights zero."""
    cfg = TransformerConfig(
        d_vocab=task.d_vocab,
        d_vocab_out=task.d_vocab_out,
        n_ctx=task.n_ctx,
        d_head=task.d_vocab + task.n_ctx + 1,
        activation="relu",
        attn_scale=1.0,
        layer_norm_eps=LINEAR_EPS,
        **sizes,
    )
    return empty_model(cfg)


def loop_registers(task: Lego) -> Registers:
    """Registers of the loop's residual stream."""
    points = task.d_vocab_out
    elements = len(task.group.elements)
    return Registers(
        {
            "token": task.d_vocab,
            "position": task.n_ctx,
            "value": points,  # of the variable that a clause defines, at its first token
            "arrived": points,  # of the variable that a clause uses, at its fourth
            "operation": elements,  # of a clause, gathered at each of its tokens within one layer
            "operand": points,
            "carried": points,  # copied from the same token elsewhere, within one layer
            "clock": 1,  # 0 in layers that gather, 1 in layers that copy
        }
    )


def embed_tokens(model: Transformer, task: Lego, stream: Registers) -> None:
    """Write one-hots of token and position to the registers `token` and `position`."""
    model.embed.weight[:, stream["token"]] = torch.eye(task.d_vocab)
    position_table(model)[:, stream["position"]] = torch.eye(task.n_ctx)


def attend_to_same_token(block: Block, rows: slice, task: Lego, stream: Registers) -> None:
    """Let a head attend to the same token elsewhere, or to [BOS] if there is none.

    `rows` are the rows of the head (`head_rows`), at least d_vocab + n_ctx + 1.
    """
    tokens = slice(0, task.d_vocab)
    places = slice(task.d_vocab, task.d_vocab + task.n_ctx)
    query, key = block.attention.q.weight[rows], block.attention.k.weight[rows]
    # The same token scores 2 SHARP, [BOS] scores SHARP, and the query's own position far less
    same_token = SHARP**0.5 * 2**0.5 * torch.eye(task.d_vocab)
    query[tokens, stream["token"]] = same_token
    key[tokens, stream["token"]] = same_token
    query[places, stream["position"]] = -4 * SHARP * torch.eye(task.n_ctx)
    key[places, stream["position"]] = torch.eye(task.n_ctx)
    bias_of(block.attention.q)[rows][-1] = SHARP
    key[-1, stream["token"].start + task.vocab.ids["[BOS]"]] = 1


def attend_to_own_clause(block: Block, rows: slice, task: Lego, stream: Registers) -> None:
    """Let a head attend evenly to its own clause; arguments as in `attend_to_same_token`."""
    clause = (torch.arange(task.n_ctx) - 1).div(task.clause_length, rounding_mode="floor") + 1
    member = torch.zeros(int(clause.max()) + 1, task.n_ctx, dtype=torch.float64)
    member[clause, torch.arange(task.n_ctx)] = SHARP**0.5
    for linear in (block.attention.q, block.attention.k):
        linear.weight[rows][: len(member), stream["position"]] = member


def _associate(block: Block, task: Lego, stream: Registers) -> None:
    """Association head: copy the value from the same token elsewhere."""
    rows = head_rows(block, ASSOCIATION)
    points = task.d_vocab_out
    attend_to_same_token(block, rows, task, stream)
    block.attention.v.weight[rows][:points, stream["value"]] = torch.eye(points)
    block.attention.o.weight[:, rows][stream["carried"], :points] = torch.eye(points)


def _manipulate(block: Block, task: Lego, stream: Registers) -> None:
    """Manipulation head: gather the operation of the clause and the value that arrived in it."""
    points = task.d_vocab_out
    elements = len(task.group.elements)
    rows = head_rows(block, MANIPULATION)
    attend_to_own_clause(block, rows, task, stream)
    value = block.attention.v.weight[rows]
    out = block.attention.o.weight[:, rows]
    # The mean over a clause becomes a sum
    first = stream["token"].start + task.vocab.ids[task.group.elements[0]]
    value[:elements, first : first + elements] = task.clause_length * torch.eye(elements)
    value[elements : elements + points, stream["arrived"]] = task.clause_length * torch.eye(points)
    out[stream["operation"], :elements] = torch.eye(elements)
    out[stream["operand"], elements : elements + points] = torch.eye(points)


def _decide(block: Block, task: Lego, stream: Registers) -> None:
    """MLP: a hidden unit per operation and operand writes the value; others keep copied values or clear registers."""
    mlp = mlp_of(block)
    points = task.d_vocab_out
    elements = len(task.group.elements)
    reads = mlp.w_in.weight
    writes = mlp.w_out.weight
    unit = 0
    letters = [task.vocab.ids[letter] + stream["token"].start for letter in task.alphabet]
    # In layers that gather: the value of each operation and operand, at the first token of a clause
    for element in range(elements):
        for point in range(points):
            reads[unit, stream["operation"].start + element] = WHOLE
            reads[unit, stream["operand"].start + point] = WHOLE
            reads[unit, stream["value"]] = -2  # only if there is no value yet
            reads[unit, letters] = 2
            reads[unit, stream["position"]] = -2 * _not_first(task)
            reads[unit, stream["clock"]] = -SHUT
            bias_of(mlp.w_in)[unit] = -2 * WHOLE - 1
            writes[stream["value"].start + int(task.group.act[element][point]), unit] = 1
            unit += 1
    # In layers that copy: a step at ENOUGH, as the difference of two units, keeps the value that was carried
    for point in range(points):
        for late in (0, 1):
            reads[unit, stream["carried"].start + point] = 10
            reads[unit, stream["arrived"]] = -SHUT  # only if none has arrived yet
            reads[unit, stream["clock"]] = SHUT
            bias_of(mlp.w_in)[unit] = -SHUT - 10 * ENOUGH - late
            writes[stream["arrived"].start + point, unit] = 1 - 2 * late
            unit += 1
    # In every layer: clear what the heads wrote, and turn the clock
    for name, size in (("operation", elements), ("operand", points), ("carried", points)):
        for index in range(stream[name].start, stream[name].start + size):
            reads[unit, index] = 1
            writes[index, unit] = -1
            unit += 1
    reads[unit, stream["clock"]] = 1
    writes[stream["clock"], unit] = -2
    bias_of(mlp.w_out)[stream["clock"]] = 1


def _not_first(task: Lego) -> Float[Tensor, " pos"]:
    """1 at positions that are not the first of a clause."""
    place = torch.arange(task.n_ctx) - 1
    return ((place < 0) | (place % task.clause_length != 0) | (place >= task.clause_length * task.n_vars)).double()
