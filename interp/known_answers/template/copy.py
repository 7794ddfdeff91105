"""A transformer that copies through b I: it attends to a position and writes the vector of the symbol there.

The tied embedding reads that vector out, so that the model works for symbols of any alphabet.
"""

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor

from hooks import Transformer, presets
from hooks.typed import checks_types
from interp.known_answers.craft.weights import SHARP, Registers, balance, empty_model, head_rows, position_table
from interp.known_answers.template.same import SCRAP, SYMBOL_WIDTH, symbol_vectors
from interp.tasks import Template

CONFIDENCE = 20.0
"""b_h: logit of the attended symbol; that of another symbol is smaller by the cosine of their vectors."""

Place = Callable[[int], int]
"""Position that each position attends to."""


@checks_types
def template_copy(task: Template, *, relative: bool = True, seed: int = 0) -> Transformer:
    """`presets.template_copy` that solves a template task of copying exactly, for symbols of any alphabet.

    Args:
        task: Task of symbolic labels, where the label is at the same place of every template.
        relative: Every token attends as far back as the last one must (to itself at the start of the string); if False,
            every token attends to that one position, which is no relation between tokens.
        seed: Determines the vectors of the symbols.

    Returns:
        The model, in float64.

    Raises:
        ValueError: another form, or no place at which every template has its label.

    Source: b I as in the template paper (arXiv:2310.09753) Theorem 5.2, on W_V W_O. Differs: positions attend to
    each other with large scores, so that the copy is exact.
    """
    model = empty_copy(task, n_heads=1, seed=seed)
    attend_to(model, task, 0, copied_from(task, relative=relative))
    write_symbol(model, 0, CONFIDENCE)
    balance(model)
    return model.eval()


def copied_from(task: Template, *, relative: bool = True) -> Place:
    """Position that each position attends to, so that the last one attends to the label.

    Raises:
        ValueError: no place at which every template has its label.
    """
    label_places = []
    for place in range(len(task.labelled[0].tokens)):
        if all(template.tokens[place] == template.label for template in task.labelled):
            label_places.append(place)
    if task.form != "symbolic" or not label_places:
        raise ValueError(f"task has form={task.form!r} and no place where every template has its label to copy.")
    if not relative:
        return lambda place: label_places[-1]
    offset = task.n_ctx - 1 - label_places[-1]

    def place_before(place: int) -> int:
        return place - offset if place >= offset else place

    return place_before


def copy_registers(task: Template) -> Registers:
    """Registers of the stream: symbol and position of a token."""
    return Registers({"symbol": SYMBOL_WIDTH, "position": task.n_ctx, "scrap": SCRAP})


@torch.no_grad()
def empty_copy(task: Template, *, n_heads: int, n_layers: int = 1, seed: int = 0, registers: int = 0) -> Transformer:
    """A model of `template_copy` in float64 that embeds and reads out tokens, with heads of zero weights.

    Args:
        task: As in `template_copy`.
        n_heads: Number of heads per layer.
        n_layers: Number of layers.
        seed: As in `template_copy`.
        registers: Number of additional coordinates of the stream, after all registers, and of each head.
    """
    # Heads are wide enough for positions and scrap
    stream = copy_registers(task)
    cfg = presets.template_copy(
        d_vocab=task.d_vocab,
        n_ctx=task.n_ctx,
        d_model=stream.d_model + registers,
        d_head=max(SCRAP, task.n_ctx) + registers,
        n_heads=n_heads,
        n_layers=n_layers,
        attn_scale=1.0,
        vo_identity=True,
    )
    model = empty_model(cfg)
    model.embed.weight[:, stream["symbol"]] = symbol_vectors(task.d_vocab, seed=seed)
    position_table(model)[:, stream["position"]] = torch.eye(task.n_ctx)
    return model


@torch.no_grad()
def attend_to(model: Transformer, task: Template, head: int, place: Place, *, layer: int = 0) -> None:
    """Let every position attend to another, by queries and keys of positions."""
    block = model.block(layer)
    stream = copy_registers(task)
    attention = block.attention
    rows = head_rows(block, head)
    keys = torch.tensor([place(query) for query in range(task.n_ctx)])
    one_hot = torch.eye(task.n_ctx).double()
    attention.q.weight[rows][: task.n_ctx, stream["position"]] = SHARP * one_hot[keys].T
    attention.k.weight[rows][: task.n_ctx, stream["position"]] = one_hot


@torch.no_grad()
def write_symbol(model: Transformer, head: int, strength: float, *, layer: int = 0) -> None:
    """Set b_h, the factor by which a head scales the vector it copies."""
    cast(Tensor, model.block(layer).attention.b)[head] = strength
