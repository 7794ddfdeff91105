"""Configs that fit a task."""

from typing import Any

from hooks import FullyConnectedConfig, presets
from interp.tasks.base import Task
from interp.training.token_rows import markers_of

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
    "bert_encoder": presets.bert_encoder,
    "albert_encoder": presets.albert_encoder,
    "hardcode": presets.hardcode,
    "hybrid": presets.hybrid,
}

ENCODERS = (presets.bert_encoder, presets.albert_encoder, presets.hardcode, presets.hybrid)
"""Presets that read out by a masked-LM head unless told otherwise."""


def config_for(task: Task, family: str | None = None, **sizes: Any) -> Any:
    """A config whose vocabulary, length and attention are the task's.

    Args:
        task: What the model will learn.
        family: A preset: `lego` (small, pre-LN), `bert`, `albert`, `gpt`, `bert_encoder`, `albert_encoder`; `hardcode`,
            `hybrid`, whose markers are the task's [CLS] or [BOS] and [SEP] or [EOS]; `dyck_gpt`, `dyck_eq6`,
            `dyck_uniform`, `dyck_minimal`, which read up to 6000 tokens; `template`, `template_copy`; or
            `fully_connected`. The task's own when left out: `dyck_gpt`, `template`, else `lego`; for text `gpt`, for
            masked text `bert`, with next sentences `bert_encoder`, each of four layers of four heads and width 128.
        sizes: Any field of `TransformerConfig`, over the preset's; for `dyck_minimal` also its `encoding`, `mlp_head`;
            for `fully_connected` those of `FullyConnectedConfig`.

    Raises:
        ValueError: an unknown family, a Dyck family for another task, one that broadcasts markers that the task does
            not have, one that cannot tell two sentences apart for a task that has them, or what the config refuses.
    """
    kind = task.describe()["task"]
    needed: dict[str, Any] = {"d_vocab": task.d_vocab, "d_vocab_out": task.d_vocab_out, "n_ctx": task.n_ctx}
    if family is None and kind == "text":
        needed |= {"d_model": 128, "n_heads": 4, "n_layers": 4}
        family = _of_text(task)
    family = family or {"dyck": "dyck_gpt", "template": "template"}.get(kind, "lego")
    if family not in FAMILIES:
        raise ValueError(f"family is {family!r}; choose one of {', '.join(FAMILIES)}.")
    if family != "fully_connected":
        needed["attention"] = task.attention
    if (family == "template" and task.d_vocab_out == task.d_vocab) or (family == "gpt" and kind == "text"):
        needed["tied_embedding"] = True
    if getattr(task, "next_sentence", False):
        if FAMILIES[family] not in ENCODERS:
            raise ValueError(
                f"family is {family!r}, which cannot tell a second sentence from the first; for next_sentence choose "
                f"bert_encoder or albert_encoder."
            )
        needed["n_token_types"] = 2
    if family in ("hardcode", "hybrid"):
        needed |= markers_of(task)
    if FAMILIES[family] in ENCODERS and task.d_vocab_out != task.d_vocab:
        needed["head"] = "linear"  # what is told is no token
    if family.startswith("dyck_"):
        if kind != "dyck":
            raise ValueError(f"family is {family!r}, which is for Dyck; the task is {kind!r}.")
        needed["n_ctx"] = max(task.n_ctx, presets.DYCK_POSITIONS)
    if family == "dyck_minimal":
        needed |= {name: getattr(task, name) for name in ("n_types", "max_depth")}
    return FAMILIES[family](**{**needed, **sizes})


def _of_text(task: Any) -> str:
    """The family for a task of text."""
    if task.objective == "next_token":
        return "gpt"
    return "bert_encoder" if task.next_sentence else "bert"
