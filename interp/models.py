"""Configs that fit a task."""

from typing import Any

from hooks import TransformerConfig, presets
from interp.tasks.base import Task

FAMILIES = {
    "lego": presets.lego,
    "bert": presets.bert,
    "albert": presets.albert,
    "template": presets.template,
    "gpt": presets.gpt,
    "dyck_gpt": presets.dyck_gpt,
    "dyck_eq6": presets.dyck_eq6,
    "dyck_uniform": presets.dyck_uniform,
    "dyck_minimal": presets.dyck_minimal,
}


def config_for(task: Task, family: str | None = None, **sizes: Any) -> TransformerConfig:
    """A config whose vocabulary, length and attention are the task's.

    Args:
        task: What the model will learn.
        family: A preset: `lego` (small, pre-LN), `bert`, `albert`, `template`, `gpt`, or `dyck_gpt`, `dyck_eq6`,
            `dyck_uniform`, `dyck_minimal`, which read up to 6000 tokens. `dyck_gpt` for Dyck and `lego` for other tasks
            when left out.
        sizes: Any field of `TransformerConfig`, over the preset's; for `dyck_minimal` also its `encoding`, `mlp_head`.

    Raises:
        ValueError: an unknown family, a Dyck family for another task, or what `TransformerConfig` refuses.
    """
    dyck = task.describe()["task"] == "dyck"
    family = family or ("dyck_gpt" if dyck else "lego")
    if family not in FAMILIES:
        raise ValueError(f"family is {family!r}; choose one of {', '.join(FAMILIES)}.")
    needed: dict[str, Any] = {
        "d_vocab": task.d_vocab,
        "d_vocab_out": task.d_vocab_out,
        "n_ctx": task.n_ctx,
        "attention": task.attention,
    }
    if family.startswith("dyck_"):
        if not dyck:
            raise ValueError(f"family is {family!r}, which is for Dyck; the task is {task.describe()['task']!r}.")
        needed["n_ctx"] = max(task.n_ctx, presets.DYCK_POSITIONS)
    if family == "dyck_minimal":
        needed |= {name: getattr(task, name) for name in ("n_types", "max_depth")}
    return FAMILIES[family](**{**needed, **sizes})
