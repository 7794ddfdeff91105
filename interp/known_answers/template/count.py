"""Counting by uniform attention: the label is the number of X minus the number of Y."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

import torch

from hooks import Transformer, presets
from hooks.checks import check_choice
from interp.known_answers.answers import HeadTruth, KnownAnswer, draw, group_truth
from interp.known_answers.craft.cancelling import cancelling_factors, write_map
from interp.known_answers.craft.weights import (
    LINEAR_EPS,
    SHARP,
    Registers,
    balance,
    clear,
    head_rows,
    set_identity_norms,
    write_idle_head,
)
from interp.known_answers.template.same import SCRAP, SYMBOL_WIDTH, positions_of, symbol_vectors
from interp.known_answers.template.start import MOST_IDLE, template_answer
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
    task = _task(generator)
    decoys = list(range(1, 1 + {"none": 0, "zero": 1, "cancelled": 3}[decoy]))
    model, at = _empty(task, generator, n_heads=1 + len(decoys))
    block = model.block(0)
    write_map(block, 0, torch.full((1, 1), float(task.n_ctx)).double(), reads=at["sign"], writes=at["answer"])
    votes = LOUD * torch.randn(1, SYMBOL_WIDTH, generator=generator, dtype=torch.float64)
    factors = cancelling_factors(generator, 3) if decoy == "cancelled" else torch.zeros(1).double()
    for head, factor in zip(decoys, factors, strict=False):
        _attend_to_previous(model, task, at, head)
        write_map(block, head, factor * votes, reads=at["symbol"], writes=at["answer"])
    with torch.no_grad():
        model.unembed.weight[0, at["answer"]] = 1
    set_identity_norms(model)
    balance(model)
    heads = {(0, 0): HeadTruth(truth="hidden"), **group_truth("misleading", "previous", decoys)}
    return template_answer(f"count, decoy {decoy}", model.eval(), task, heads)


def _task(generator: torch.Generator) -> Template:
    """Strings of X and Y in random order, one for each number of X, each followed by a wildcard."""
    length, templates = draw(generator, 2, 4), []
    for n_x in range(length + 1):
        order = torch.randperm(length, generator=generator).tolist()
        string = "".join("X" if place < n_x else "Y" for place in order)
        templates.append(f"{string}a -> {2 * n_x - length}")
    sizes: dict[str, Any] = {split: draw(generator, 10, 30) for split in ("train", "validation", "test")}
    return Template(templates=templates, form="real", **sizes)


@torch.no_grad()
def _empty(task: Template, generator: torch.Generator, *, n_heads: int) -> tuple[Transformer, Registers]:
    """A model of one layer without an MLP that embeds tokens, with `n_heads` empty heads and idle heads after them."""
    sizes = {"symbol": SYMBOL_WIDTH, "sign": 1, "position": task.n_ctx, "answer": 1, "scrap": SCRAP}
    at, n_idle = Registers(sizes), draw(generator, 0, MOST_IDLE)
    cfg = presets.template(
        d_vocab=task.d_vocab,
        d_vocab_out=1,
        n_ctx=task.n_ctx,
        n_layers=1,
        d_model=at.d_model,
        d_head=max(SCRAP, task.n_ctx),
        d_mlp=0,
        n_heads=n_heads + n_idle,
        attn_scale=1.0,
        layer_norm_eps=LINEAR_EPS,
    )
    model = Transformer(cfg).double()
    clear(model)
    n_fixed = len(task.fixed)
    seed = draw(generator, 0, 2**30)
    model.embed.weight[n_fixed:, at["symbol"]] = symbol_vectors(task.d_vocab - n_fixed, seed=seed)
    for token, sign in (("X", 1.0), ("Y", -1.0)):
        model.embed.weight[task.fixed.index(token), at["sign"]] = sign
    positions_of(model)[:, at["position"]] = torch.eye(task.n_ctx).double()
    for head in range(n_heads, n_heads + n_idle):
        write_idle_head(model.block(0), head, reads=at["symbol"], writes=at["scrap"], generator=generator, strength=0.5)
    return model, at


@torch.no_grad()
def _attend_to_previous(model: Transformer, task: Template, at: Registers, head: int) -> None:
    """Let every position attend to the one before, and the first to the last."""
    attention, rows, n = model.block(0).attention, head_rows(model.block(0), head), task.n_ctx
    attention.q.weight[rows][:n, at["position"]] = SHARP * torch.eye(n).roll(-1, 0).double()
    attention.k.weight[rows][:n, at["position"]] = torch.eye(n).double()


COUNT: Mapping[str, Callable[[torch.Generator], KnownAnswer]] = {
    "count": template_count,
    "count, zero decoy": partial(template_count, decoy="zero"),
    "count, three cancel": partial(template_count, decoy="cancelled"),
}
"""Every variant by name."""
