"""Counting by uniform attention: the label is the number of X minus the number of Y."""

from typing import Literal

import torch

from hooks import Transformer, presets
from hooks.checks import check_choice
from interp.known_answers.answers import KnownAnswer, draw, needed_head, unneeded_heads
from interp.known_answers.craft.cancelling import cancelling_factors
from interp.known_answers.craft.weights import (
    LINEAR_EPS,
    SHARP,
    Registers,
    balance,
    empty_model,
    head_rows,
    position_table,
    write_map,
)
from interp.known_answers.template.same import SCRAP, SYMBOL_WIDTH, symbol_vectors
from interp.known_answers.template.start import MOST_IDLE, random_alphabets, template_answer, write_idle_heads
from interp.tasks import Template

CountDecoy = Literal["none", "zero", "cancelled"]
LOUD = 10.0
"""Votes of the loudest head of those that cancel, in units of the label."""


def template_count(generator: torch.Generator, *, decoy: CountDecoy = "none") -> KnownAnswer:
    """One layer whose head of uniform attention averages +1 for X and -1 for Y.

    Args:
        generator: Determines everything else.
        decoy: `none`; `zero`: another head attends to the previous token and writes nothing; `cancelled`: three heads
            with the same pattern write random votes for each symbol, whose sum is zero.

    Raises:
        ValueError: an unknown decoy.
    """
    check_choice("decoy", decoy, CountDecoy)
    task = _random_strings(generator)
    decoys = range(1, 1 + {"none": 0, "zero": 1, "cancelled": 3}[decoy])
    model, stream = _empty_model(task, generator, n_heads=1 + len(decoys))
    block = model.block(0)
    # Head 0 has no queries and keys, so that it averages signs; times their number this is the label
    mean_to_sum = torch.full((1, 1), float(task.n_ctx))
    write_map(block, 0, mean_to_sum, reads=stream["sign"], writes=stream["answer"])
    # Decoys have votes that cancel, or all zero
    votes = LOUD * torch.randn(1, SYMBOL_WIDTH, generator=generator, dtype=torch.float64)
    factors = cancelling_factors(generator, 3) if decoy == "cancelled" else torch.zeros(len(decoys))
    for head, factor in zip(decoys, factors, strict=True):
        _attend_to_previous(model, task, stream, head)
        write_map(block, head, factor * votes, reads=stream["symbol"], writes=stream["answer"])
    with torch.no_grad():
        model.unembed.weight[0, stream["answer"]] = 1
    balance(model)
    return template_answer(model, task, needed_head(None) | unneeded_heads("previous", decoys))


def _random_strings(generator: torch.Generator) -> Template:
    """Strings of X and Y in random order, one for each number of X, each followed by a wildcard."""
    length = draw(generator, 2, 4)
    templates = []
    for n_x in range(length + 1):
        order = torch.randperm(length, generator=generator).tolist()
        string = "".join("X" if place < n_x else "Y" for place in order)
        templates.append(f"{string}a -> {2 * n_x - length}")
    return Template(templates=templates, form="real", **random_alphabets(generator))


@torch.no_grad()
def _empty_model(task: Template, generator: torch.Generator, *, n_heads: int) -> tuple[Transformer, Registers]:
    """A model of one layer without an MLP that embeds tokens, with `n_heads` empty heads and idle heads after them."""
    sizes = {"symbol": SYMBOL_WIDTH, "sign": 1, "position": task.n_ctx, "answer": 1, "scrap": SCRAP}
    stream = Registers(sizes)
    n_idle = draw(generator, 0, MOST_IDLE)
    cfg = presets.template(
        d_vocab=task.d_vocab,
        d_vocab_out=1,
        n_ctx=task.n_ctx,
        n_layers=1,
        d_model=stream.d_model,
        d_head=max(SCRAP, task.n_ctx),
        d_mlp=0,
        n_heads=n_heads + n_idle,
        attn_scale=1.0,
        layer_norm_eps=LINEAR_EPS,
    )
    model = empty_model(cfg)
    # Wildcards have random vectors, X and Y a sign
    n_fixed = len(task.fixed)
    vectors = symbol_vectors(task.d_vocab - n_fixed, seed=draw(generator, 0, 2**30))
    model.embed.weight[n_fixed:, stream["symbol"]] = vectors
    model.embed.weight[task.fixed.index("X"), stream["sign"]] = 1.0
    model.embed.weight[task.fixed.index("Y"), stream["sign"]] = -1.0
    position_table(model)[:, stream["position"]] = torch.eye(task.n_ctx).double()
    idle_heads = [(0, head) for head in range(n_heads, n_heads + n_idle)]
    write_idle_heads(model, stream, idle_heads, generator)
    return model, stream


@torch.no_grad()
def _attend_to_previous(model: Transformer, task: Template, stream: Registers, head: int) -> None:
    """Let every position attend to the one before, and the first to the last."""
    attention = model.block(0).attention
    rows = head_rows(model.block(0), head)
    n = task.n_ctx
    one_hot = torch.eye(n).double()
    attention.q.weight[rows][:n, stream["position"]] = SHARP * one_hot.roll(-1, 0)
    attention.k.weight[rows][:n, stream["position"]] = one_hot
