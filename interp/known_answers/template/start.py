"""Template models to be filled with heads: random templates, a head that attends to equal symbols, idle heads."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from hooks import Transformer
from hooks.interventions.ablation_engine import Head
from interp.known_answers.answers import HeadTruth, KnownAnswer, all_heads, draw
from interp.known_answers.craft.weights import Registers, balance, write_idle_head
from interp.known_answers.template.copy import copy_registers, empty_copy
from interp.known_answers.template.same import (
    EQUAL,
    GATHER,
    Gather,
    attend_to_equal,
    empty_same,
    finish_same,
    same_registers,
    write_position,
)
from interp.tasks import Template

SAME = (
    ("aa -> +1", "ab -> -1"),
    ("aba -> +1", "abb -> -1"),
    ("aabb -> +1", "abab -> -1"),
    ("aab -> -1", "aba -> 0", "abb -> +1"),
    ("abcab -> +1", "abcba -> -1"),
)
"""Templates in which no symbol occurs three times, and the symbols equal to the last one determine the label."""
COPY_PREVIOUS = (("ab -> a",), ("aba -> b",), ("abc -> b",), ("aab -> a", "abc -> b"))
"""Templates whose label is the last symbol but one; a band of two positions on either side covers the whole string."""
COPY_AFAR = (("abcd -> a",), ("abcde -> a",), ("abcdef -> a",))
OTHERWISE = -0.25
"""An answer nearer to -1 than to +1, and nearest to 0 among the three."""
MOST_IDLE = 2


def random_template(generator: torch.Generator, families: Sequence[tuple[str, ...]]) -> Template:
    """One of several families of templates, over random numbers of symbols."""
    templates = families[draw(generator, 0, len(families) - 1)]
    sizes: dict[str, Any] = {split: draw(generator, 10, 30) for split in ("train", "validation", "test")}
    return Template(templates=templates, **sizes)


def start_same(
    generator: torch.Generator, *, extra: int, task: Template | None = None, more: int = 0, n_units: int = 0
) -> tuple[Transformer, Template, Gather]:
    """A model whose head 0.0 attends to the equal symbol, with `extra` empty heads and idle heads after it.

    The task is drawn from `SAME` if it is None; `more` and `n_units` are as in `empty_same`.
    """
    task = random_template(generator, SAME) if task is None else task
    n_idle = draw(generator, 0, MOST_IDLE)
    sizes = {"n_heads": 1 + extra + n_idle, "more": more, "n_units": n_units}
    model = empty_same(task, seed=draw(generator, 0, 2**30), **sizes)
    attend_to_equal(model, task, EQUAL)
    write_position(model, task, EQUAL)
    at = same_registers(task)
    _write_idle(model, at, [(0, 1 + extra + index) for index in range(n_idle)], generator)
    _write_idle(model, at, [(1, head) for head in range(model.cfg.n_heads) if head != GATHER], generator)
    return model, task, "previous" if draw(generator, 0, 1) else "uniform"


def finish_same_answer(
    name: str,
    model: Transformer,
    task: Template,
    gather: Gather,
    heads: dict[Head, HeadTruth],
    *,
    otherwise: float = 0.0,
) -> KnownAnswer:
    """Known answer of a model of equal symbols, with the layer 1 that it still lacks.

    `otherwise` is the answer if no template is recognised. At 0 it is as near to -1 as to +1, so that rounding decides.
    """
    gathers = HeadTruth(truth="hidden") if gather == "uniform" else HeadTruth(truth="faithful", looks=gather)
    finish_same(model, task, gather=gather, otherwise=otherwise)
    return template_answer(name, model, task, {**heads, (1, GATHER): gathers}, readable={"label": 2})


def start_copy(
    generator: torch.Generator,
    task: Template,
    *,
    extra: int,
    n_layers: int = 1,
    more: int = 0,
) -> Transformer:
    """A model of a task with 1 + `extra` empty heads per layer, then idle ones.

    `more` is as in `empty_copy`.
    """
    n_idle = draw(generator, 0, MOST_IDLE)
    sizes = {"n_heads": 1 + extra + n_idle, "n_layers": n_layers, "more": more}
    model = empty_copy(task, seed=draw(generator, 0, 2**30), **sizes)
    idle = [(layer, 1 + extra + index) for layer in range(n_layers) for index in range(n_idle)]
    _write_idle(model, copy_registers(task), idle, generator)
    return model


def finish_copy(name: str, model: Transformer, task: Template, heads: dict[Head, HeadTruth]) -> KnownAnswer:
    """Known answer of a model that copies, with the balance of the stream that it still lacks."""
    balance(model)
    return template_answer(name, model.eval(), task, heads)


def _write_idle(model: Transformer, at: Registers, heads: Sequence[Head], generator: torch.Generator) -> None:
    """Write idle heads, with random attention to symbols."""
    for layer, head in heads:
        block = model.block(layer)
        write_idle_head(block, head, reads=at["symbol"], writes=at["scrap"], generator=generator, strength=0.5)


def template_answer(
    name: str,
    model: Transformer,
    task: Template,
    heads: Mapping[Head, HeadTruth],
    readable: Mapping[str, int] | None = None,
) -> KnownAnswer:
    """Known answer of a finished model; heads that are not given are idle."""
    strings = ", ".join(str(one) for one in task.labelled)
    return KnownAnswer(
        name=f"{name} ({strings})", model=model, task=task, heads=all_heads(model, heads), readable=readable or {}
    )
