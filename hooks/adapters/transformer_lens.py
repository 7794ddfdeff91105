"""Weights of a HookedTransformer, as old checkpoints of TransformerLens hold them, in a `hooks.Transformer`."""

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hooks.adapters.bridge.weights import attention_scale
from hooks.checks import check_number
from hooks.files import shortened
from hooks.model.config import Activation, TransformerConfig
from hooks.model.transformer import Transformer
from hooks.typed import checks_types

ACTIVATIONS: dict[str, Activation] = {"relu": "relu", "gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_fast": "gelu_tanh"}
NORMS = {"LN": "pre_ln", "LNPre": "pre_ln", None: "no_norm"}
"""Blocks by `normalization_type`; `LNPre` is LayerNorm whose gain and bias were folded into the next weights."""
SIZES = ("d_model", "n_heads", "n_layers", "n_ctx", "d_vocab")
ONLY = {
    "positional_embedding_type": ("standard",),
    "final_rms": (False,),
    "parallel_attn_mlp": (False,),
    "use_local_attn": (False,),
    "gated_mlp": (False,),
    "n_key_value_heads": (None,),
    "post_embedding_ln": (False,),
    "use_normalization_before_and_after": (False,),
    "attn_scores_soft_cap": (-1.0, 0.0, None),
    "output_logits_soft_cap": (-1.0, 0.0, None),
    "num_experts": (None,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "use_qk_norm": (False,),
    "uses_rms_norm": (False,),
    "rmsnorm_uses_offset": (False,),
    "rotary_dim": (None,),
    "use_NTK_by_parts_rope": (False,),
    "relative_attention_max_distance": (None,),
    "relative_attention_num_buckets": (None,),
    "attn_types": (None,),
    "window_size": (None,),
    "decoder_start_token_id": (None,),
    "load_in_4bit": (False,),
}
"""Settings that change the function, with the values that have a counterpart; a missing one has the first."""
READ = {
    *SIZES,
    *("normalization_type", "attn_only", "act_fn", "attention_dir", "d_head", "d_mlp", "d_vocab_out", "eps"),
    *("use_attn_scale", "attn_scale"),
}
"""Settings that become fields of a `TransformerConfig`."""
WITHOUT_EFFECT = {
    # where the weights are from, and how they were initialised
    *("model_name", "original_architecture", "from_checkpoint", "checkpoint_index", "checkpoint_label_type"),
    *("checkpoint_value", "init_mode", "initializer_range", "init_weights", "seed", "n_params", "tie_word_embeddings"),
    *("layer_norm_folding", "trust_remote_code", "dtype", "device", "n_devices"),
    # which hook points there are
    *("use_attn_result", "use_split_qkv_input", "use_hook_mlp_in", "use_attn_in", "use_hook_tokens"),
    # tokens
    *("tokenizer_name", "default_prepend_bos", "tokenizer_prepends_bos"),
    # details of what `ONLY` excludes
    *("rotary_base", "rotary_base_local", "rotary_adjacent_pairs", "experts_per_token", "norm_topk_prob"),
    *("NTK_by_parts_low_freq_factor", "NTK_by_parts_high_freq_factor", "NTK_by_parts_factor", "NTK_original_ctx_len"),
    *("ungroup_grouped_query_attention",),
}
"""Settings with any value, which change no logit."""
FULL_NAMES = {"W_E": "embed.W_E", "W_pos": "pos_embed.W_pos", "W_U": "unembed.W_U", "b_U": "unembed.b_U"}
DEFAULT_EPS = 1e-5
BUFFERS = (".mask", ".IGNORE", ".rotary_sin", ".rotary_cos")


@checks_types
def from_transformer_lens(weights: Mapping[str, Any], config: Any) -> Transformer:
    """A `hooks.Transformer` with the weights of a HookedTransformer, in evaluation mode.

    TransformerLens 4 has no HookedTransformer and cannot load its checkpoints; this reads them.

    >>> import hooks
    >>> model = hooks.Transformer(hooks.TransformerConfig(d_vocab=5, d_model=8, n_heads=2, attention="causal"))
    >>> weights = {**model.tl_parameters(), "pos_embed.W_pos": model.positions.weight}
    >>> config = {"d_vocab": 5, "d_model": 8, "n_heads": 2, "n_layers": 2, "n_ctx": 128, "act_fn": "gelu"}
    >>> hooks.from_transformer_lens(weights, config).cfg == model.cfg
    True

    Args:
        weights: The state dict, as tensors or arrays: `embed.W_E`, `pos_embed.W_pos`, `blocks.0.attn.W_Q` (head,
            d_model, d_head), ..., `ln_final.w`, `unembed.W_U`; or `W_E`, `W_pos`, `W_U`, `b_U` for short. Biases that
            are missing are zero. A checkpoint is read by `torch.load(path, weights_only=True)`, which executes nothing.
        config: The HookedTransformerConfig or its `to_dict()`: `d_model`, `n_heads`, `n_layers`, `n_ctx`, `d_vocab`
            and, where they differ from the defaults, `d_head`, `d_mlp`, `attn_only`, `act_fn`, `d_vocab_out`,
            `normalization_type` (`LN`, `LNPre` or None), `eps`, `attention_dir`, `attn_scale`, `use_attn_scale`.

    Raises:
        ValueError: a setting or weight that is unknown or without a counterpart, or one that is missing, has another
            shape, or is not finite.

    Source: HookedTransformer of TransformerLens 2. Logits agree within rounding.
    """
    settings = config if isinstance(config, Mapping) else getattr(config, "__dict__", {})
    cfg = _converted_config(settings)
    stored_names = [name for name in weights if not name.endswith(BUFFERS)]
    tensors = {FULL_NAMES.get(name, name): _as_tensor(weights[name]) for name in stored_names}
    _check_sizes(cfg, tensors)
    model = Transformer(cfg)
    # Under TransformerLens's names the model's weights are views in TransformerLens's axes, which are written to
    assert model.positions is not None
    views = {**model.tl_parameters(), "pos_embed.W_pos": model.positions.weight}
    unknown = sorted(set(tensors) - set(views))
    if unknown:
        raise ValueError(f"weights has {shortened(unknown[0])!r}, which has no place in a model of this config.")
    # A new model has biases of zero and gains of one, which are right for those that a checkpoint does not have
    folded = settings.get("normalization_type") == "LNPre"
    for name, view in views.items():
        last_part = name.rpartition(".")[2]
        optional = last_part.startswith("b") or (folded and last_part == "w")
        if name in tensors:
            _copy_weight(name, tensors[name], view)
        elif not optional:
            raise ValueError(f"weights has no {name!r}, which a model of this config needs.")
    return model.eval()


def _as_tensor(weight: Any) -> Tensor:
    return weight if isinstance(weight, Tensor) else torch.as_tensor(np.asarray(weight))


def _copy_weight(name: str, tensor: Tensor, view: Tensor) -> None:
    if tensor.shape != view.shape:
        raise ValueError(
            f"weights has {name} of shape {tuple(tensor.shape)}; by the config it must be {tuple(view.shape)}."
        )
    if not torch.isfinite(tensor).all():
        raise ValueError(f"weights has {name} with values that are not finite.")
    with torch.no_grad():
        view.copy_(tensor)


def _converted_config(settings: Mapping[str, Any]) -> TransformerConfig:
    # A setting that nobody knows could change the function
    if unknown := sorted(map(str, set(settings) - READ - WITHOUT_EFFECT - set(ONLY))):
        raise ValueError(
            f"config has {shortened(unknown[0])!r}, which is no known setting of a HookedTransformer; remove it if it "
            f"changes no logit."
        )
    # Settings that change the function
    for name, allowed in ONLY.items():
        if not _is_one_of(settings.get(name, allowed[0]), allowed):
            raise ValueError(
                f"config has {name} {_shown(settings[name])}, which has no counterpart; only {allowed[0]!r} is read."
            )
    # Sizes, numbers and flags
    for name in SIZES:
        if settings.get(name) is None:
            raise ValueError(f"config has no {name}; give the settings of the HookedTransformer.")
        check_number(f"config's {name}", settings[name], integer=True, low=1)
    for name in ("d_head", "d_mlp", "d_vocab_out"):
        if settings.get(name) is not None:
            check_number(f"config's {name}", settings[name], integer=True)
    check_number("config's eps", settings.get("eps", DEFAULT_EPS), low=0)
    # TransformerLens writes -1 for the square root of d_head
    if not _is_one_of(settings.get("attn_scale"), (None, -1.0)):
        check_number("config's attn_scale", settings["attn_scale"], above=0)
    for name in ("attn_only", "use_attn_scale"):
        if not _is_one_of(settings.get(name, False), (False, True)):
            raise ValueError(f"config has {name} {_shown(settings[name])}; it must be True or False.")
    # Choices that have a counterpart under another name
    norm = settings.get("normalization_type", "LN")
    if not _is_one_of(norm, NORMS):
        raise ValueError(f"config has normalization_type {_shown(norm)}; choose one of {', '.join(map(str, NORMS))}.")
    attn_only = settings.get("attn_only", False)
    activation = settings.get("act_fn")
    if not _is_one_of(activation, (*ACTIVATIONS, None) if attn_only else ACTIVATIONS):
        raise ValueError(f"config has act_fn {_shown(activation)}; choose one of {', '.join(ACTIVATIONS)}.")
    direction = settings.get("attention_dir", "causal")
    if not _is_one_of(direction, ("causal", "bidirectional")):
        raise ValueError(f"config has attention_dir {_shown(direction)}; choose causal or bidirectional.")
    # Sizes that follow from others where they are missing
    d_head = _size_or_zero(settings.get("d_head")) or settings["d_model"] // settings["n_heads"]
    d_mlp = _size_or_zero(settings.get("d_mlp")) or 4 * settings["d_model"]
    return TransformerConfig(
        **{name: settings[name] for name in SIZES},
        d_vocab_out=_size_or_zero(settings.get("d_vocab_out")),
        d_head=d_head,
        d_mlp=0 if attn_only else d_mlp,
        block=NORMS[norm],
        attention=direction,
        activation=ACTIVATIONS.get(activation or "", "relu"),
        attn_scale=attention_scale(SimpleNamespace(**settings), d_head),
        layer_norm_eps=float(settings.get("eps", DEFAULT_EPS)),
    )


def _is_one_of(value: Any, options: Iterable[Any]) -> bool:
    """Whether a value is an option, of the same type: 0 is not False, but a whole float is its number."""
    numbers = (int, float)
    for option in options:
        same_kind = type(value) is type(option) or (type(value) in numbers and type(option) in numbers)
        if same_kind and value == option:
            return True
    return False


def _shown(value: Any) -> str:
    return shortened(repr(value))


def _check_sizes(cfg: TransformerConfig, tensors: Mapping[str, Tensor]) -> None:
    """Check the sizes of a config against the weights, before a model of these sizes is made.

    Raises:
        ValueError: more layers than weights, or an axis longer than any of a weight.
    """
    longest = max((size for tensor in tensors.values() for size in tensor.shape), default=0)
    limits = {**dict.fromkeys((*SIZES, "d_head", "d_mlp", "d_vocab_out"), longest), "n_layers": len(tensors)}
    for name, limit in limits.items():
        if getattr(cfg, name) > limit:
            raise ValueError(
                f"config has {name} {_shown(getattr(cfg, name))}, but the {len(tensors)} weights have axes of at most "
                f"{longest}."
            )


def _size_or_zero(size: int | None) -> int:
    """A size; TransformerLens writes -1 or None for its default, here 0."""
    return size if size is not None and size > 0 else 0
