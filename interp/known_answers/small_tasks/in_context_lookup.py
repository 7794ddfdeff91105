"""Models that look values up in context: an induction circuit of two heads, with decoys or with a second lookup.

Where there is no match, a head that looks up rests at the first value. So the head before it is needed with its
pattern: if it brings a little of every key, the first value is the answer.

Each function takes a generator, which determines sizes, gains and idle heads.
"""

import torch
from jaxtyping import Int
from torch import Tensor

from hooks import Transformer, TransformerConfig
from hooks.model.blocks import Block
from interp.known_answers.answers import KnownAnswer, all_heads, draw, needed_head, redundant_heads, unneeded_heads
from interp.known_answers.craft.weights import (
    SHARP,
    Registers,
    bias_of,
    empty_model,
    head_rows,
    position_table,
    write_idle_head,
    write_map,
)
from interp.tasks.in_context_lookup.task import InContextLookup

SCRAP = 4
"""Number of coordinates that nothing reads."""
MOST_IDLE = 2
"""Largest random number of idle heads per layer."""
LEAST_GAIN, MOST_GAIN = 5.0, 20.0
"""Range of the logit of a value that is looked up."""


def lookup_circuit(generator: torch.Generator, *, decoys: bool = False) -> KnownAnswer:
    """A head of layer 0 writes the key before each token; one of layer 1 finds the key that is asked for.

    With `decoys` one more head of each layer has the same pattern and writes nothing, and so does a head of layer 0
    that attends to earlier occurrences of the token.
    """
    task = _random_task(generator)
    model = _empty_lookup(task, generator, n_heads=3 if decoys else 1)
    stream = lookup_registers(task)
    _write_key_before(model, task)
    _look_up(model, task, 0, gain=random_gain(generator))
    truths = needed_head("previous") | needed_head("induction", layer=1)
    if decoys:
        attend_by_position(model.block(0), 1, stream["position"], previous_positions(task.n_ctx))
        _attend_to_same(model.block(0), task, 2)
        _attend_to_value(model.block(1), task, 1)
        truths |= unneeded_heads("previous", [1]) | unneeded_heads("association", [2])
        truths |= unneeded_heads("induction", [1], layer=1)
    return KnownAnswer(name="in-context lookup", model=model.eval(), task=task, heads=all_heads(model, truths))


def shared_lookup(generator: torch.Generator) -> KnownAnswer:
    """The same circuit with two heads of layer 1 that look the value up; either is enough."""
    task = _random_task(generator)
    model = _empty_lookup(task, generator, n_heads=2)
    _write_key_before(model, task)
    for head in range(2):
        _look_up(model, task, head, gain=random_gain(generator))
    truths = needed_head("previous") | redundant_heads("induction", [0, 1], layer=1)
    return KnownAnswer(name="in-context lookup", model=model.eval(), task=task, heads=all_heads(model, truths))


def lookup_registers(task: InContextLookup) -> Registers:
    """Registers of the stream: the token, the key before it (after layer 0), the position and the answer."""
    return Registers(
        {
            "value": task.n_values,
            "key": task.n_keys,
            "before": task.n_keys,
            "position": task.n_ctx,
            "answer": task.n_values,
            "scrap": SCRAP,
        }
    )


def previous_positions(n: int) -> Int[Tensor, " query"]:
    """The position before each one; of the first, the first."""
    return (torch.arange(n) - 1).clamp_min(0)


@torch.no_grad()
def attend_by_position(block: Block, head: int, positions: slice, keys: Int[Tensor, " query"]) -> None:
    """Let every position attend to one position.

    Args:
        block: The layer.
        head: The head.
        positions: Register of the one-hot position.
        keys: The position that each one attends to.
    """
    rows = head_rows(block, head)
    n = len(keys)
    one_hot = torch.eye(n).double()
    block.attention.q.weight[rows][:n, positions] = SHARP * block.attention.scale * one_hot[keys].T
    block.attention.k.weight[rows][:n, positions] = one_hot


def random_gain(generator: torch.Generator) -> float:
    """A random logit of what a head looks up."""
    return LEAST_GAIN + (MOST_GAIN - LEAST_GAIN) * float(torch.rand((), generator=generator, dtype=torch.float64))


@torch.no_grad()
def _empty_lookup(task: InContextLookup, generator: torch.Generator, *, n_heads: int) -> Transformer:
    """A model in float64 that embeds tokens and reads out values, with empty heads and then up to two idle ones."""
    stream = lookup_registers(task)
    n_idle = draw(generator, 0, MOST_IDLE)
    cfg = TransformerConfig(
        d_vocab=task.d_vocab,
        d_vocab_out=task.d_vocab_out,
        n_ctx=task.n_ctx,
        n_layers=2,
        n_heads=n_heads + n_idle,
        d_model=stream.d_model,
        d_head=task.n_keys + task.n_values + task.n_ctx + 1,
        d_mlp=0,
        block="no_norm",
        attention="causal",
        attn_scale=1.0,
    )
    model = empty_model(cfg)
    tokens = slice(stream["value"].start, stream["key"].stop)
    model.embed.weight[:, tokens] = torch.eye(task.d_vocab).double()
    position_table(model)[:, stream["position"]] = torch.eye(task.n_ctx).double()
    model.unembed.weight[:, stream["answer"]] = torch.eye(task.n_values).double()
    for block in model.stored_blocks:
        for head in range(n_heads, n_heads + n_idle):
            write_idle_head(block, head, reads=tokens, writes=stream["scrap"], generator=generator, strength=0.5)
    return model


def _write_key_before(model: Transformer, task: InContextLookup) -> None:
    """Let head 0 of layer 0 write the key before each token."""
    stream = lookup_registers(task)
    block = model.block(0)
    attend_by_position(block, 0, stream["position"], previous_positions(task.n_ctx))
    write_map(block, 0, torch.eye(task.n_keys).double(), reads=stream["key"], writes=stream["before"])


def _look_up(model: Transformer, task: InContextLookup, head: int, *, gain: float) -> None:
    """Let a head of layer 1 add the value that followed the query's token to the answer."""
    stream = lookup_registers(task)
    block = model.block(1)
    _attend_to_value(block, task, head)
    write_map(block, head, gain * torch.eye(task.n_values).double(), reads=stream["value"], writes=stream["answer"])


@torch.no_grad()
def _attend_to_value(block: Block, task: InContextLookup, head: int) -> None:
    """Let a head attend to positions before which there is the query's key, or else to the first value."""
    stream = lookup_registers(task)
    rows = head_rows(block, head)
    query, key = block.attention.q.weight[rows], block.attention.k.weight[rows]
    one_hot = torch.eye(task.n_keys).double()
    query[: task.n_keys, stream["key"]] = SHARP * one_hot
    key[: task.n_keys, stream["before"]] = one_hot
    # the first value scores half as much as a match
    bias_of(block.attention.q)[rows][-1] = SHARP / 2
    key[-1, stream["position"].start + 1] = 1


@torch.no_grad()
def _attend_to_same(block: Block, task: InContextLookup, head: int) -> None:
    """Let a head attend to earlier occurrences of the query's token, or else evenly to what came before."""
    stream = lookup_registers(task)
    rows = head_rows(block, head)
    query, key = block.attention.q.weight[rows], block.attention.k.weight[rows]
    tokens = slice(stream["value"].start, stream["key"].stop)
    n_tokens = task.d_vocab
    query[:n_tokens, tokens] = SHARP * torch.eye(n_tokens).double()
    key[:n_tokens, tokens] = torch.eye(n_tokens).double()
    # the query's own position is no match
    places = slice(n_tokens, n_tokens + task.n_ctx)
    query[places, stream["position"]] = -4 * SHARP * torch.eye(task.n_ctx).double()
    key[places, stream["position"]] = torch.eye(task.n_ctx).double()


def _random_task(generator: torch.Generator) -> InContextLookup:
    return InContextLookup(
        n_pairs=draw(generator, 4, 6), n_keys=draw(generator, 10, 16), n_values=draw(generator, 8, 14)
    )
