"""Models that recall earlier tokens: an induction circuit, heads that find duplicates or the first token.

Only the last position is read out. Elsewhere heads do the same where letters repeat by chance, or rest. Each function
takes a generator, which determines sizes, gains, where heads rest, idle heads, and whatever its arguments do not.
"""

from collections.abc import Mapping
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from hooks import Transformer, TransformerConfig
from hooks.interventions.ablation_engine import Head
from hooks.model.blocks import Block
from interp.known_answers.answers import HeadTruth, KnownAnswer, all_heads, draw, needed_head, unneeded_heads
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
from interp.known_answers.recall.task import QUARTERS, Question, Recall

Rest = Literal["first", "uniform", "first but at the last"]
"""Attention of a head at queries without a match: to the first token, or uniform. `first but at the last`: it attends
to the first token at every position but the last one, with or without a match."""
RESTS: tuple[Rest, ...] = ("first", "uniform", "first but at the last")
SCRAP = 4
"""Number of coordinates that nothing reads."""
MOST_IDLE = 2
"""Largest random number of idle heads per layer."""
LEAST_GAIN, MOST_GAIN = 5.0, 20.0
"""Range of the logit of what is recalled."""


def induction(generator: torch.Generator, *, decoys: bool = False) -> KnownAnswer:
    """A head of layer 0 copies the previous letter; one of layer 1 finds the copy of the last letter and what follows.

    With `decoys` one more head of each layer has the same pattern and writes nothing, and so does a head of layer 0
    that attends to duplicates.
    """
    task = _random_task(generator, "follows")
    model = _empty_recall(task, generator, n_layers=2, n_heads=3 if decoys else 1)
    stream = recall_registers(task)
    one_hot = torch.eye(task.letters).double()
    rest = _random_rest(generator)
    attend_to_previous(model.block(0), task, 0)
    write_map(model.block(0), 0, one_hot, reads=stream["letter"], writes=stream["before"])
    attend_to_match(model.block(1), task, 0, reads="before", rest=rest)
    write_map(model.block(1), 0, _random_gain(generator) * one_hot, reads=stream["letter"], writes=stream["answer"])
    truths = needed_head("previous") | needed_head("induction", layer=1)
    if decoys:
        attend_to_previous(model.block(0), task, 1)
        attend_to_match(model.block(0), task, 2, reads="letter", rest="uniform")
        attend_to_match(model.block(1), task, 1, reads="before", rest=rest)
        truths |= unneeded_heads("previous", [1]) | unneeded_heads("duplicate", [2])
        truths |= unneeded_heads("induction", [1], layer=1)
    return _recall_answer(model, task, truths)


def duplicate(generator: torch.Generator, *, decoy: bool = False) -> KnownAnswer:
    """A head attends to the earlier occurrence of the last letter and tells its quarter.

    With `decoy` another one has the same pattern and writes nothing, and a third attends to the previous letter.
    """
    task = _random_task(generator, "where")
    model = _empty_recall(task, generator, n_layers=1, n_heads=3 if decoy else 1)
    stream = recall_registers(task)
    rest = _random_rest(generator)
    attend_to_match(model.block(0), task, 0, reads="letter", rest=rest)
    quarters = _random_gain(generator) * torch.eye(QUARTERS).double()
    write_map(model.block(0), 0, quarters, reads=stream["quarter"], writes=stream["answer"])
    truths = needed_head("duplicate")
    if decoy:
        attend_to_match(model.block(0), task, 1, reads="letter", rest=rest)
        attend_to_previous(model.block(0), task, 2)
        truths |= unneeded_heads("duplicate", [1]) | unneeded_heads("previous", [2])
    return _recall_answer(model, task, truths)


def repeated(generator: torch.Generator) -> KnownAnswer:
    """A head attends to an earlier occurrence of the letter, or else to the first token: the answer is which it was."""
    task = _random_task(generator, "repeated")
    model = _empty_recall(task, generator, n_layers=1, n_heads=1)
    stream = recall_registers(task)
    attend_to_match(model.block(0), task, 0, reads="letter", rest="first")
    # A mark says no, a letter yes
    votes = torch.zeros(2, task.marks + task.letters, dtype=torch.float64)
    votes[0, : task.marks] = _random_gain(generator)
    votes[1, task.marks :] = _random_gain(generator)
    tokens = slice(stream["mark"].start, stream["letter"].stop)
    write_map(model.block(0), 0, votes, reads=tokens, writes=stream["answer"])
    return _recall_answer(model, task, needed_head("duplicate"))


def first_token(generator: torch.Generator, *, decoy: bool = False) -> KnownAnswer:
    """A head attends to the first token from the last position, elsewhere to the token itself or uniformly.

    With `decoy` another one has the same pattern and writes nothing.
    """
    task = _random_task(generator, "first", marks=draw(generator, 3, 5))
    model = _empty_recall(task, generator, n_layers=1, n_heads=1 + decoy)
    stream = recall_registers(task)
    rests_on_itself = bool(draw(generator, 0, 1))
    for head in range(1 + decoy):
        attend_to_first(model.block(0), task, head, rests_on_itself=rests_on_itself)
    # A mark says which one it is; letters say random ones, so that other keys do not do as well
    says = torch.cat([torch.arange(task.marks), torch.randint(task.marks, (task.letters,), generator=generator)])
    votes = _random_gain(generator) * torch.eye(task.marks).double()[:, says]
    tokens = slice(stream["mark"].start, stream["letter"].stop)
    write_map(model.block(0), 0, votes, reads=tokens, writes=stream["answer"])
    return _recall_answer(model, task, needed_head("first_token") | unneeded_heads("first_token", range(1, 1 + decoy)))


def recall_registers(task: Recall) -> Registers:
    """Registers of the stream: the token, the previous letter, the position, its quarter, and the answer."""
    return Registers(
        {
            "mark": task.marks,
            "letter": task.letters,
            "before": task.letters,  # the previous letter, after layer 0
            "position": task.n_ctx,
            "quarter": QUARTERS,
            "answer": task.d_vocab_out,
            "scrap": SCRAP,
        }
    )


@torch.no_grad()
def _empty_recall(task: Recall, generator: torch.Generator, *, n_layers: int, n_heads: int) -> Transformer:
    """A model in float64 that embeds tokens and reads out answers, with empty heads and then up to two idle ones."""
    stream = recall_registers(task)
    n_idle = draw(generator, 0, MOST_IDLE)
    cfg = TransformerConfig(
        d_vocab=task.d_vocab,
        d_vocab_out=task.d_vocab_out,
        n_ctx=task.n_ctx,
        n_layers=n_layers,
        n_heads=n_heads + n_idle,
        d_model=stream.d_model,
        d_head=task.letters + task.n_ctx + 1,
        d_mlp=0,
        block="no_norm",
        attention="causal",
        attn_scale=1.0,
    )
    model = empty_model(cfg)
    tokens = slice(stream["mark"].start, stream["letter"].stop)
    model.embed.weight[:, tokens] = torch.eye(task.d_vocab).double()
    position = torch.arange(task.n_ctx)
    position_table(model)[:, stream["position"]] = torch.eye(task.n_ctx).double()
    position_table(model)[position[1:], stream["quarter"].start + task.quarter(position[1:])] = 1
    model.unembed.weight[:, stream["answer"]] = torch.eye(task.d_vocab_out).double()
    for block in model.stored_blocks:
        for head in range(n_heads, n_heads + n_idle):
            write_idle_head(
                block, head, reads=stream["letter"], writes=stream["scrap"], generator=generator, strength=0.5
            )
    return model


@torch.no_grad()
def attend_to_previous(block: Block, task: Recall, head: int) -> None:
    """Let every position attend to the one before, and the first to itself."""
    rows = head_rows(block, head)
    positions = recall_registers(task)["position"]
    n = task.n_ctx
    one_hot = torch.eye(n).double()
    keys = (torch.arange(n) - 1).clamp_min(0)
    block.attention.q.weight[rows][:n, positions] = SHARP * one_hot[keys].T
    block.attention.k.weight[rows][:n, positions] = one_hot


@torch.no_grad()
def attend_to_match(block: Block, task: Recall, head: int, *, reads: Literal["letter", "before"], rest: Rest) -> None:
    """Let a head attend to earlier positions whose `letter` is the query's, or the letter `before` them, or rest."""
    stream = recall_registers(task)
    rows = head_rows(block, head)
    query, key = block.attention.q.weight[rows], block.attention.k.weight[rows]
    letters = slice(0, task.letters)
    places = slice(task.letters, task.letters + task.n_ctx)
    query[letters, stream["letter"]] = SHARP * torch.eye(task.letters).double()
    key[letters, stream[reads]] = torch.eye(task.letters).double()
    # The query's own letter is no match
    if reads == "letter":
        query[places, stream["position"]] = -4 * SHARP * torch.eye(task.n_ctx).double()
        key[places, stream["position"]] = torch.eye(task.n_ctx).double()
    if rest == "uniform":
        return
    # The first token scores half as much as a match, or more than one
    bias_of(block.attention.q)[rows][-1] = SHARP / 2
    key[-1, stream["mark"]] = 1
    if rest == "first but at the last":
        query[-1, stream["position"]] = 4 * SHARP * _not_last(task)


@torch.no_grad()
def attend_to_first(block: Block, task: Recall, head: int, *, rests_on_itself: bool) -> None:
    """Let the last position attend to the first token, and all others to themselves or uniformly."""
    stream = recall_registers(task)
    rows = head_rows(block, head)
    query, key = block.attention.q.weight[rows], block.attention.k.weight[rows]
    query[-1, stream["position"]] = SHARP * (1 - _not_last(task))
    key[-1, stream["mark"]] = 1
    if rests_on_itself:
        query[: task.n_ctx, stream["position"]] = SHARP * torch.diag(_not_last(task))
        key[: task.n_ctx, stream["position"]] = torch.eye(task.n_ctx).double()


def _not_last(task: Recall) -> Float[Tensor, " pos"]:
    """1 at every position but the last one."""
    return (torch.arange(task.n_ctx) < task.n_ctx - 1).double()


def _random_task(generator: torch.Generator, question: Question, *, marks: int = 1) -> Recall:
    """A task of random sizes: with 14 to 22 letters in sequences of 12 to 20, most have a repeat by chance."""
    return Recall(question=question, letters=draw(generator, 14, 22), length=draw(generator, 12, 20), marks=marks)


def _random_rest(generator: torch.Generator) -> Rest:
    return RESTS[draw(generator, 0, len(RESTS) - 1)]


def _random_gain(generator: torch.Generator) -> float:
    return LEAST_GAIN + (MOST_GAIN - LEAST_GAIN) * float(torch.rand((), generator=generator, dtype=torch.float64))


def _recall_answer(model: Transformer, task: Recall, truths: Mapping[Head, HeadTruth]) -> KnownAnswer:
    """Known answer of a finished model; heads without a truth are idle."""
    return KnownAnswer(name="recall", model=model.eval(), task=task, heads=all_heads(model, truths))
