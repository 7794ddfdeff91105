"""Configs that fit a task."""

from typing import Any

from hooks import TransformerConfig, presets
from interp.tasks.base import Task

FAMILIES = {
    "lego": presets.lego,
    "bert": presets.bert,
    "albert": presets.albert,
    "template": presets.template,
}


def config_for(task: Task, family: str = "lego", **sizes: Any) -> TransformerConfig:
    """A config whose vocabulary, length and attention are the task's.

    Args:
        task: What the model will learn.
        family: A preset: `lego` (small, pre-LN), `bert`, `albert` or `template`.
        sizes: Any field of `TransformerConfig`, over the preset's.

    Raises:
        ValueError: an unknown family, or what `TransformerConfig` refuses.
    """
    if family not in FAMILIES:
        raise ValueError(f"family is {family!r}; choose one of {', '.join(FAMILIES)}.")
    needed = {
        "d_vocab": task.d_vocab,
        "d_vocab_out": task.d_vocab_out,
        "n_ctx": task.n_ctx,
        "attention": task.attention,
    }
    return FAMILIES[family](**{**needed, **sizes})
