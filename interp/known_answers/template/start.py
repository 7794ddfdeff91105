"""What template answers start from: random templates and alphabets, and idle heads."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from hooks import Transformer
from hooks.interventions.ablation_engine import Head
from interp.known_answers.answers import HeadTruth, KnownAnswer, all_heads, draw
from interp.known_answers.craft.weights import Registers, write_idle_head
from interp.tasks import Template

MOST_IDLE = 2
"""Largest random number of idle heads per layer."""


def random_template(generator: torch.Generator, families: Sequence[tuple[str, ...]]) -> Template:
    """One of several families of templates, over random numbers of symbols."""
    templates = families[draw(generator, 0, len(families) - 1)]
    return Template(templates=templates, **random_alphabets(generator))


def random_alphabets(generator: torch.Generator) -> dict[str, Any]:
    """Random numbers of symbols of each split, as options of `Template`."""
    return {split: draw(generator, 10, 30) for split in ("train", "validation", "test")}


def write_idle_heads(model: Transformer, stream: Registers, heads: Iterable[Head], generator: torch.Generator) -> None:
    """Write idle heads, with random attention to symbols."""
    for layer, head in heads:
        block = model.block(layer)
        write_idle_head(block, head, reads=stream["symbol"], writes=stream["scrap"], generator=generator, strength=0.5)


def template_answer(
    model: Transformer,
    task: Template,
    truths: Mapping[Head, HeadTruth],
    readable: Mapping[str, int] | None = None,
) -> KnownAnswer:
    """Known answer of a finished model; heads without a truth are idle."""
    heads = all_heads(model, truths)
    return KnownAnswer(name="template", model=model.eval(), task=task, heads=heads, readable=readable or {})
