"""Settings of Hugging Face's configs: those that are acted on, with their values, and those without effect here."""

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

from hooks.checks import is_scalar
from hooks.files import shortened

Family = Literal["gpt2", "bert", "albert"]

ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu"}
"""Hugging Face's names to ours. Of two names for one function, the first is written."""


def _is_size(value: Any) -> bool:
    return is_scalar(int, value) and value >= 1


def _is_scale(value: Any) -> bool:
    return is_scalar(float, value) and math.isfinite(value) and value >= 0


_Rule = tuple[Callable[[Any], bool], str]
_SIZE: _Rule = (_is_size, "a whole number of at least 1")
_SCALE: _Rule = (_is_scale, "a finite number of at least 0")
_FLAG: _Rule = (lambda value: isinstance(value, bool), "true or false")
_ACTIVATION: _Rule = (lambda value: isinstance(value, str) and value in ACTIVATIONS, f"one of {', '.join(ACTIVATIONS)}")
_LABELS: _Rule = (lambda value: isinstance(value, dict) and len(value) > 0, "an object with a name for each label")


def _only(allowed: Any) -> _Rule:
    return (lambda value: type(value) is type(allowed) and value == allowed, f"{allowed!r}: only that can be loaded")


_ENCODER: dict[str, _Rule] = {
    "vocab_size": _SIZE,
    "hidden_size": _SIZE,
    "num_hidden_layers": _SIZE,
    "num_attention_heads": _SIZE,
    "intermediate_size": _SIZE,
    "max_position_embeddings": _SIZE,
    "type_vocab_size": _SIZE,
    "layer_norm_eps": _SCALE,
    "hidden_act": _ACTIVATION,
    "is_decoder": _only(False),
}
_EVERYWHERE: dict[str, _Rule] = {
    "tie_word_embeddings": _FLAG,
    "id2label": _LABELS,
    "num_labels": _SIZE,
    "position_embedding_type": _only("absolute"),
    "pruned_heads": _only({}),
    "quantization_config": (lambda value: False, "absent: only that can be loaded"),
    "is_encoder_decoder": _only(False),
}
READ: dict[Family, dict[str, _Rule]] = {
    "gpt2": {
        "vocab_size": _SIZE,
        "n_positions": _SIZE,
        "n_embd": _SIZE,
        "n_layer": _SIZE,
        "n_head": _SIZE,
        "n_inner": _SIZE,
        "activation_function": _ACTIVATION,
        "layer_norm_epsilon": _SCALE,
        "scale_attn_weights": _FLAG,
        "scale_attn_by_inverse_layer_idx": _only(False),
        "add_cross_attention": _only(False),
        **_EVERYWHERE,
    },
    "bert": {**_ENCODER, "add_cross_attention": _only(False), **_EVERYWHERE},
    "albert": {
        **_ENCODER,
        "embedding_size": _SIZE,
        "num_hidden_groups": _only(1),
        "inner_group_num": _only(1),
        **_EVERYWHERE,
    },
}
"""Settings that decide what a model computes, each with a test of its value and the values in words."""

ALIASES = {
    "gpt2": {
        "hidden_size": "n_embd",
        "max_position_embeddings": "n_positions",
        "num_attention_heads": "n_head",
        "num_hidden_layers": "n_layer",
    },
    "bert": {},
    "albert": {},
}
"""Other names that `transformers` reads as settings of a family."""

_REASONS = {
    "names, and code or files of the folder, which are not followed": """
        _name_or_path _commit_hash architectures model_type transformers_version auto_map custom_pipelines
        tokenizer_class attn_implementation _attn_implementation _attn_implementation_internal
        _attn_implementation_autoset experts_implementation _experts_implementation kernel_config use_kernels
        transformers_weights adapter_kwargs trust_remote_code finetuning_task task_specific_params language""",
    "what else is returned, speed and memory": """
        output_hidden_states output_attentions return_dict use_return_dict use_cache output_past torchscript
        chunk_size_feed_forward gradient_checkpointing use_bfloat16 torch_dtype dtype reorder_and_upcast_attn""",
    "ids of tokens": """
        bos_token_id eos_token_id pad_token_id sep_token_id cls_token_id mask_token_id unk_token_id
        decoder_start_token_id prefix""",
    "training; a loaded model has no dropout": """
        resid_pdrop embd_pdrop attn_pdrop hidden_dropout_prob attention_probs_dropout_prob classifier_dropout
        classifier_dropout_prob initializer_range""",
    "names of labels, and heads of other kinds": """
        label2id problem_type summary_type summary_use_proj summary_activation summary_proj_to_labels
        summary_first_dropout directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers
        pooler_size_per_head pooler_type cross_attention_hidden_size tie_encoder_decoder""",
    "of earlier versions of the families": "n_ctx net_structure_type gap_size num_memory_blocks down_scale_factor",
    "sampling of texts": """
        do_sample temperature top_k top_p typical_p num_beams num_beam_groups diversity_penalty num_return_sequences
        repetition_penalty length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids max_length
        min_length max_new_tokens early_stopping forced_bos_token_id forced_eos_token_id remove_invalid_values
        exponential_decay_length_penalty suppress_tokens begin_suppress_tokens output_scores
        return_dict_in_generate""",
}
WITHOUT_EFFECT = frozenset(name for names in _REASONS.values() for name in names.split())
"""Settings that do not change the logits of a model in evaluation mode."""


def checked_settings(values: Mapping[str, Any], family: Family, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that decide what a model computes, under the names of `READ`.

    Args:
        values: All settings, as in a `config.json` or of a config object.
        family: The family of models.
        defaults: What the config's class has where a setting is absent: an unknown setting of this value is ignored.

    Raises:
        ValueError: a setting that is not known, a value that cannot be loaded, or two names of one setting that differ.
    """
    rules, aliases = READ[family], ALIASES[family]
    settings: dict[str, Any] = {}
    for name, value in values.items():
        # Without effect, or as if it were absent
        if name in WITHOUT_EFFECT or value is None:
            continue
        known_name = aliases.get(name, name)
        if known_name not in rules:
            if name in defaults and defaults[name] == value:
                continue
            raise ValueError(
                f"{shortened(str(name))} is {shortened(repr(value))}, a setting that is not known here: it may change "
                f"what the model computes. If it does not, remove it from the config."
            )
        is_valid, valid_values = rules[known_name]
        if not is_valid(value):
            raise ValueError(f"{name} is {shortened(repr(value))}; it must be {valid_values}.")
        if settings.setdefault(known_name, value) != value:
            raise ValueError(
                f"{name} is {shortened(repr(value))}, but {known_name}, another name of it, is "
                f"{shortened(repr(settings[known_name]))}; remove the wrong one."
            )
    _check_number_of_labels(settings)
    _check_width_of_heads({**defaults, **settings})
    return settings


def _check_number_of_labels(settings: dict[str, Any]) -> None:
    """Keep one of the two settings that say how many labels there are.

    Raises:
        ValueError: they differ.
    """
    names = settings.pop("id2label", None)
    if names is None:
        return
    if settings.setdefault("num_labels", len(names)) != len(names):
        raise ValueError(
            f"num_labels is {settings['num_labels']}, but id2label names {len(names)}; remove one of them."
        )


def _check_width_of_heads(settings: Mapping[str, Any]) -> None:
    """Check that the heads divide the width.

    Raises:
        ValueError: they do not.
    """
    for width_name, heads_name in (("n_embd", "n_head"), ("hidden_size", "num_attention_heads")):
        width, n_heads = settings.get(width_name), settings.get(heads_name)
        if width is not None and n_heads is not None and width % n_heads:
            raise ValueError(f"{heads_name} is {n_heads}, which does not divide the width: {width_name} is {width}.")
