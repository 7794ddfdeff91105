"""Weights of models that look letters up: embedding, attention to the letter that is asked for, values."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from hooks import Transformer, TransformerConfig
from hooks.interventions.ablation_engine import Head
from interp.known_answers.answers import HeadTruth, KnownAnswer, all_heads, draw
from interp.known_answers.craft.weights import (
    SHARP,
    Registers,
    bias_of,
    empty_model,
    head_rows,
    write_idle_head,
    write_map,
)
from interp.known_answers.lookup.task import BOS, Asks, Lookup

Rest = Literal["first", "uniform"]
"""Attention of a head where nothing is asked for: to [BOS], or uniform."""
SCRAP = 4
"""Number of coordinates that nothing reads."""
MOST_IDLE = 2
"""Largest random number of idle heads."""
KIND_OF_ANSWER = 200.0
"""Logit that a query adds to all answers of the kind that it asks for: more than heads write."""


def lookup_registers(task: Lookup) -> Registers:
    """Registers of the stream: what a statement says, what a query asks for, and the answer."""
    return Registers(
        {
            "letter": task.letters,
            "value": task.values,  # of a common letter
            "rare value": task.values,  # of a rare letter
            "theme": task.themes,
            "bos": 1,
            "asked": task.letters,
            "slot": len(task.asks),
            "hint": task.values,
            "answer": task.d_vocab_out,
            "scrap": SCRAP,
        }
    )


@torch.no_grad()
def empty_lookup(
    task: Lookup,
    generator: torch.Generator,
    *,
    n_heads: int,
    strengths: Sequence[float] = (0.0,),
    units: int = 0,
    registers: int = 0,
    ties: bool = False,
) -> Transformer:
    """A model in float64 that embeds tokens and reads out answers, with empty heads and then up to two idle ones.

    Args:
        task: The task.
        generator: Determines the number and the weights of the idle heads.
        n_heads: Number of empty heads.
        strengths: Logit of the value that a query hints at, for each of its levels.
        units: Number of hidden units of the MLP, which are empty.
        registers: Number of additional coordinates of the stream.
        ties: Let positions be a coordinate that nothing reads, so that the basis is not changed at random and equal
            logits stay exactly equal.
    """
    stream = lookup_registers(task)
    n_idle = draw(generator, 0, MOST_IDLE)
    cfg = TransformerConfig(
        d_vocab=task.d_vocab,
        d_vocab_out=task.d_vocab_out,
        n_ctx=task.n_ctx,
        n_layers=1,
        n_heads=n_heads + n_idle,
        d_model=stream.d_model + registers,
        d_head=task.letters + task.d_vocab_out + 2,
        d_mlp=units,
        block="no_norm",
        attention="causal",
        activation="relu",
        positions="linear" if ties else "none",
        attn_scale=1.0,
    )
    model = empty_model(cfg)
    embed_statements(model.embed.weight, task)
    embed_queries(model.embed.weight, task, strengths)
    model.unembed.weight[:, stream["answer"]] = torch.eye(task.d_vocab_out).double()
    for head in range(n_heads, n_heads + n_idle):
        block = model.block(0)
        write_idle_head(block, head, reads=stream["letter"], writes=stream["scrap"], generator=generator, strength=0.5)
    return model


def embed_statements(embedding: Float[Tensor, "token d_model"], task: Lookup) -> None:
    """Write letter, value and theme of every statement, and the mark of [BOS], to their registers."""
    stream = lookup_registers(task)
    embedding[BOS, stream["bos"]] = 1
    statement = torch.arange(task.first_query - 1)
    rows = 1 + statement
    letter = statement // (task.values * task.themes)
    value = statement // task.themes % task.values
    is_rare = letter >= task.letters - task.rare_letters
    start = torch.where(is_rare, stream["rare value"].start, stream["value"].start)
    embedding[rows, stream["letter"].start + letter] = 1
    embedding[rows, start + value] = 1
    embedding[rows, stream["theme"].start + statement % task.themes] = 1


def embed_queries(embedding: Float[Tensor, "token d_model"], task: Lookup, strengths: Sequence[float]) -> None:
    """Write what every query asks for and hints at to its registers, and the strength of the hint to the answer."""
    stream = lookup_registers(task)
    query = torch.arange(task.d_vocab - task.first_query)
    rows = task.first_query + query
    level = query % task.n_levels
    hint = query // task.n_levels % task.n_hints
    named = query // (task.n_levels * task.n_hints) % task.letters
    slot = query // (task.n_levels * task.n_hints * task.letters)
    embedding[rows, stream["asked"].start + (named + task.shift) % task.letters] = 1
    embedding[rows, stream["slot"].start + slot] = 1
    if task.n_hints > 1:
        embedding[rows, stream["hint"].start + hint] = 1
        embedding[rows, stream["answer"].start + hint] = torch.tensor(list(strengths)).double()[level]
    # Answers of the other kind are out of the question
    if task.themes > 1:
        for index, question in enumerate(task.asks):
            embedding[rows[slot == index], answers_of(task, question)] += KIND_OF_ANSWER


@torch.no_grad()
def attend_to_asked(model: Transformer, task: Lookup, head: int, *, rest: Rest) -> None:
    """Let queries attend to the statement about the letter that they ask for, and other tokens to their rest."""
    stream = lookup_registers(task)
    block = model.block(0)
    rows = head_rows(block, head)
    one_hot = torch.eye(task.letters).double()
    block.attention.q.weight[rows][: task.letters, stream["asked"]] = SHARP * one_hot
    block.attention.k.weight[rows][: task.letters, stream["letter"]] = one_hot
    if rest == "first":
        # Half as much as a letter that is asked for
        bias_of(block.attention.q)[rows][task.letters] = SHARP / 2
        block.attention.k.weight[rows][task.letters, stream["bos"]] = 1


def write_values(
    model: Transformer, task: Lookup, head: int, gain: float, *, common: bool = True, rare: bool = True
) -> None:
    """Let a head add the value that it attends to to the answer: that of a common letter, of a rare one, or both."""
    stream = lookup_registers(task)
    both = slice(stream["value"].start, stream["rare value"].stop)
    one_hot = torch.eye(task.values).double()
    matrix = gain * torch.cat([common * one_hot, rare * one_hot], 1)
    write_map(model.block(0), head, matrix, reads=both, writes=answers_of(task, "value"))


def answers_of(task: Lookup, question: Asks) -> slice:
    """Coordinates of the logits of the answers to a question."""
    answer = lookup_registers(task)["answer"]
    first_theme = answer.start + task.values
    return slice(answer.start, first_theme) if question == "value" else slice(first_theme, answer.stop)


def random_lookup(generator: torch.Generator, *, readable: bool = True, **options: Any) -> Lookup:
    """A task of random sizes. If it is not readable, queries name a letter other than the one that they ask for."""
    letters = options.get("letters") or draw(generator, 8, 12)
    sizes: dict[str, Any] = {
        "letters": letters,
        "values": draw(generator, 4, 5),
        "statements": draw(generator, 5, 7),
        "shift": 0 if readable else draw(generator, 1, letters - 1),
    }
    return Lookup(**(sizes | options))


def random_rest(generator: torch.Generator) -> Rest:
    """A random rest."""
    return "first" if draw(generator, 0, 1) else "uniform"


def lookup_answer(model: Transformer, task: Lookup, truths: Mapping[Head, HeadTruth]) -> KnownAnswer:
    """Known answer of a finished model; heads without a truth are idle."""
    return KnownAnswer(name="lookup", model=model.eval(), task=task, heads=all_heads(model, truths))
