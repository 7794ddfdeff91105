"""Model configs for a task."""

from dataclasses import fields
from functools import partial
from typing import Any

from hooks import FullyConnectedConfig, RecurrentConfig, presets
from hooks.checks import did_you_mean
from hooks.typed import checks_types
from interp.tasks.base import Task
from interp.training.token_rows import markers_of

CONFIG_FAMILIES = {
    "lego": presets.lego,
    "bert": presets.bert,
    "albert": presets.albert,
    "template": presets.template,
    "template_copy": presets.template_copy,
    "fully_connected": FullyConnectedConfig,
    "rnn": RecurrentConfig,
    "lstm": partial(RecurrentConfig, cell="lstm"),
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

BASELINES = {"fully_connected": "fully connected", "rnn": "recurrent", "lstm": "recurrent"}
"""Families without attention, and their kind of network."""

ENCODERS = (presets.bert_encoder, presets.albert_encoder, presets.hardcode, presets.hybrid)
"""Presets whose default head is a masked-LM head."""

BRACKET_FAMILIES = ("dyck_gpt", "dyck_eq6", "dyck_uniform", "dyck_minimal")
"""Presets for bracket languages: tasks whose `config_fields` know them."""


@checks_types
def config_for(task: Task, family: str | None = None, **sizes: Any) -> Any:
    """Config of a preset with the vocabulary, length and attention of a task.

    Args:
        task: The task to learn.
        family: The preset: `lego` (small, pre-LN), `bert`, `albert`, `gpt`, `bert_encoder`, `albert_encoder`;
            `hardcode` or `hybrid`, whose markers are the task's [CLS] or [BOS] and [SEP] or [EOS]; `dyck_gpt`,
            `dyck_eq6`, `dyck_uniform` or `dyck_minimal`, which read up to 6000 tokens; `template`, `template_copy`; or
            `fully_connected`, `rnn`, `lstm`. Default: the task's `default_family`, with its `default_sizes`.
        sizes: Fields of `TransformerConfig` that override the preset; for `dyck_minimal` also `encoding` and
            `mlp_head`; for `fully_connected` fields of `FullyConnectedConfig`, for `rnn` and `lstm` of
            `RecurrentConfig`.

    Raises:
        ValueError: an unknown family, a Dyck family for another task, `hardcode` or `hybrid` for a task without
            markers, a preset without token types for a task with next sentences, an unknown field, or an invalid
            config.

    Example:
        >>> import interp
        >>> cfg = interp.config_for(interp.tasks.Lego(n_vars=3), "gpt", n_layers=2)
        >>> cfg.n_layers, cfg.attention
        (2, 'bidirectional')
    """
    # What the task needs of any config, and its default preset
    needed: dict[str, Any] = {"d_vocab": task.d_vocab, "d_vocab_out": task.d_vocab_out, "n_ctx": task.n_ctx}
    if family is None:
        family = task.default_family
        needed |= task.default_sizes
    if family not in CONFIG_FAMILIES:
        raise ValueError(f"family is {family!r}; choose one of {', '.join(CONFIG_FAMILIES)}.")
    # What it needs of this preset
    if family not in BASELINES:
        needed["attention"] = task.attention
    if family == "template" and task.d_vocab_out == task.d_vocab:
        needed["tied_embedding"] = True
    needed |= task.config_fields(family)
    if needed.get("n_token_types") and CONFIG_FAMILIES[family] not in ENCODERS:
        raise ValueError(
            f"family is {family!r}, which has no token types to distinguish two sentences; for next_sentence choose "
            f"bert_encoder or albert_encoder."
        )
    if family in ("hardcode", "hybrid"):
        needed |= markers_of(task)
    if CONFIG_FAMILIES[family] in ENCODERS and task.d_vocab_out != task.d_vocab:
        needed["head"] = "linear"  # the answers are not tokens
    if family in BRACKET_FAMILIES and not task.config_fields(family):
        raise ValueError(f"family is {family!r}, which is for Dyck; the task is {task.task_name!r}.")
    try:
        return CONFIG_FAMILIES[family](**{**needed, **sizes})
    except TypeError:
        # Python's words for a field that does not exist name no other one, and change with its version
        config = CONFIG_FAMILIES[family](**needed)
        names = [field.name for field in fields(config)]
        unknown = [name for name in sizes if name not in names]
        if not unknown:
            raise
        advice = did_you_mean(unknown[0], names) or f" Its fields are {', '.join(names)}."
        raise ValueError(f"{unknown[0]} is no field of {type(config).__name__}.{advice}") from None
