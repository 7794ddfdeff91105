"""Configs that fit a task."""

from typing import Any

from hooks import FullyConnected, FullyConnectedConfig, presets
from interp.tasks.base import Task

FAMILIES = {
    "lego": presets.lego,
    "bert": presets.bert,
    "albert": presets.albert,
    "template": presets.template,
    "template_copy": presets.template_copy,
    "fully_connected": FullyConnectedConfig,
    "gpt": presets.gpt,
    "dyck_gpt": presets.dyck_gpt,
    "dyck_eq6": presets.dyck_eq6,
    "dyck_uniform": presets.dyck_uniform,
    "dyck_minimal": presets.dyck_minimal,
}


def check_attention(model: Any) -> None:
    """Refuse a model without attention heads or residual stream, where those are to be read.

    Raises:
        ValueError: a fully connected network.
    """
    if isinstance(model, FullyConnected):
        raise ValueError(
            "this model is a fully connected network: it has no attention heads and no residual stream to read. Train "
            "a transformer on the task, or use evaluate."
        )


def config_for(task: Task, family: str | None = None, **sizes: Any) -> Any:
    """A config whose vocabulary, length and attention are the task's.

    Args:
        task: What the model will learn.
        family: A preset: `lego` (small, pre-LN), `bert`, `albert`, `gpt`; `dyck_gpt`, `dyck_eq6`, `dyck_uniform`,
            `dyck_minimal`, which read up to 6000 tokens; `template`, `template_copy`; or `fully_connected`. The task's
            own (`dyck_gpt`, `template`, else `lego`) when left out.
        sizes: Any field of `TransformerConfig`, over the preset's; for `dyck_minimal` also its `encoding`, `mlp_head`;
            for `fully_connected` those of `FullyConnectedConfig`.

    Raises:
        ValueError: an unknown family, a Dyck family for another task, or what the config refuses.
    """
    kind = task.describe()["task"]
    family = family or {"dyck": "dyck_gpt", "template": "template"}.get(kind, "lego")
    if family not in FAMILIES:
        raise ValueError(f"family is {family!r}; choose one of {', '.join(FAMILIES)}.")
    needed: dict[str, Any] = {"d_vocab": task.d_vocab, "d_vocab_out": task.d_vocab_out, "n_ctx": task.n_ctx}
    if family != "fully_connected":
        needed["attention"] = task.attention
    if family == "template" and task.d_vocab_out == task.d_vocab:
        needed["tied_embedding"] = True
    if family.startswith("dyck_"):
        if kind != "dyck":
            raise ValueError(f"family is {family!r}, which is for Dyck; the task is {kind!r}.")
        needed["n_ctx"] = max(task.n_ctx, presets.DYCK_POSITIONS)
    if family == "dyck_minimal":
        needed |= {name: getattr(task, name) for name in ("n_types", "max_depth")}
    return FAMILIES[family](**{**needed, **sizes})
