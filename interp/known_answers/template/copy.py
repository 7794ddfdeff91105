"""A transformer that copies through b I: it looks at a place, and what it writes is the symbol's own vector.

The embedding reads that vector out again, so that a symbol never seen is said as well as any other.
"""

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor

from hooks import Transformer, presets
from interp.known_answers.craft.one_hot import clear
from interp.known_answers.craft.wiring import SHARP, Registers, balance, head_rows
from interp.known_answers.template.same import SCRAP, SYMBOL_WIDTH, positions_of, symbol_vectors
from interp.tasks import Template

CONFIDENCE = 20.0
"""b_h: the logit of the symbol looked at; that of another is this times a cosine."""

Place = Callable[[int], int]
"""Which position each position looks at."""


def template_copy(task: Template, *, relative: bool = True, seed: int = 0) -> Transformer:
    """`presets.template_copy` that solves a template task of copying exactly, for symbols of any alphabet.

    Args:
        task: Symbolic labels, the same place of every template being the label.
        relative: Every token looks as far back as the last one must (at itself where nothing stands there); else all
            look at the place itself, which is no relation between tokens.
        seed: Decides the vectors of the symbols.

    Returns:
        The model, in float64.

    Raises:
        ValueError: another form, or no place at which every template has its label.

    Source: b I as in the template paper (arXiv:2310.09753) Section 6, on W_V W_O^T. Differs: positions look at each
    other by large scores, so that the copy is exact.
    """
    model = empty_copy(task, n_heads=1, seed=seed)
    look_at(model, task, 0, copied_from(task, relative=relative))
    write_symbol(model, 0, CONFIDENCE)
    balance(model)
    return model.eval()


def copied_from(task: Template, *, relative: bool = True) -> Place:
    """Where each position looks, so that the last one sees the label.

    Raises:
        ValueError: no place at which every template has its label.
    """
    found = [
        place
        for place in range(len(task.labelled[0].tokens))
        if all(one.tokens[place] == one.label for one in task.labelled)
    ]
    if task.form != "symbolic" or not found:
        raise ValueError(f"task has form={task.form!r} and its label at no place of all templates; nothing to copy.")
    back = task.n_ctx - 1 - found[-1]
    return (lambda place: place - back if place >= back else place) if relative else (lambda place: found[-1])


def copy_registers(task: Template) -> Registers:
    """The stream: symbol and place of a token."""
    return Registers({"symbol": SYMBOL_WIDTH, "position": task.n_ctx, "scrap": SCRAP})


@torch.no_grad()
def empty_copy(task: Template, *, n_heads: int, seed: int = 0) -> Transformer:
    """A model with that stream, in float64, that embeds and reads out tokens, and does nothing yet.

    Args:
        task: As for `template_copy`.
        n_heads: Heads of its layer.
        seed: Decides the vectors of the symbols.
    """
    at = copy_registers(task)
    cfg = presets.template_copy(
        d_vocab=task.d_vocab,
        n_ctx=task.n_ctx,
        d_model=at.d_model,
        d_head=max(SCRAP, task.n_ctx),
        n_heads=n_heads,
        attn_scale=1.0,
        vo_identity=True,
    )
    model = Transformer(cfg).double()
    clear(model)
    model.embed.weight[:, at["symbol"]] = symbol_vectors(task.d_vocab, seed=seed)
    positions_of(model)[:, at["position"]] = torch.eye(task.n_ctx)
    return model


@torch.no_grad()
def look_at(model: Transformer, task: Template, head: int, place: Place) -> None:
    """Let every position look at another, through queries and keys of positions."""
    at, attention, rows = copy_registers(task), model.block(0).attention, head_rows(model.block(0), head)
    wanted = torch.tensor([place(here) for here in range(task.n_ctx)])
    attention.q.weight[rows][: task.n_ctx, at["position"]] = SHARP * torch.eye(task.n_ctx)[wanted].T.double()
    attention.k.weight[rows][: task.n_ctx, at["position"]] = torch.eye(task.n_ctx).double()


@torch.no_grad()
def write_symbol(model: Transformer, head: int, strength: float) -> None:
    """Let a head write this many times what it looks at: b_h."""
    cast(Tensor, model.block(0).attention.b)[head] = strength
