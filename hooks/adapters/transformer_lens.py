"""Weights of a HookedTransformer, as old checkpoints of TransformerLens hold them, in a `hooks.Transformer`."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hooks.adapters.bridge.weights import attention_scale
from hooks.checks import checks_types
from hooks.files import shortened
from hooks.model.config import Activation, TransformerConfig
from hooks.model.transformer import Transformer

ACTIVATIONS: dict[str, Activation] = {"relu": "relu", "gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_fast": "gelu_tanh"}
NORMS = {"LN": "pre_ln", "LNPre": "pre_ln", None: "no_norm"}
"""Blocks by `normalization_type`; `LNPre` is LayerNorm whose gain and bias were folded into the next weights."""
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
}
"""Settings that change the function, with the values that have a counterpart; a missing one has the first."""
SHORT = {"W_E": "embed.W_E", "W_pos": "pos_embed.W_pos", "W_U": "unembed.W_U", "b_U": "unembed.b_U"}
BUFFERS = (".mask", ".IGNORE", ".rotary_sin", ".rotary_cos")


@checks_types
def from_transformer_lens(weights: Mapping[str, Any], config: Any) -> Transformer:
    """A `hooks.Transformer` with the weights of a HookedTransformer, in evaluation mode.

    TransformerLens 4 has no HookedTransformer and cannot load its checkpoints; this reads them.

    Args:
        weights: The state dict, as tensors or arrays: `embed.W_E`, `pos_embed.W_pos`, `blocks.0.attn.W_Q` (head,
            d_model, d_head), ..., `ln_final.w`, `unembed.W_U`; or `W_E`, `W_pos`, `W_U`, `b_U` for short. Biases that
            are missing are zero. A checkpoint is read by `torch.load(path, weights_only=True)`, which executes nothing.
        config: The HookedTransformerConfig or its `to_dict()`: `d_model`, `n_heads`, `n_layers`, `n_ctx`, `d_vocab`
            and, where they differ from the defaults, `d_head`, `d_mlp`, `attn_only`, `act_fn`, `d_vocab_out`,
            `normalization_type` (`LN`, `LNPre` or None), `eps`, `attention_dir`, `attn_scale`, `use_attn_scale`.

    Raises:
        ValueError: a setting or weight without a counterpart, one that is missing, has another shape, or is not finite.

    Source: HookedTransformer of TransformerLens 2. Logits agree within rounding.
    """
    given = config if isinstance(config, Mapping) else vars(config)
    cfg = _config(given)
    tensors = {SHORT.get(name, name): torch.as_tensor(np.asarray(one) if not isinstance(one, Tensor) else one)
               for name, one in weights.items() if not name.endswith(BUFFERS)}  # fmt: skip
    model = Transformer(cfg)
    table = _rows(cfg, folded=given.get("normalization_type") == "LNPre")
    if unknown := sorted(set(tensors) - set(table)):
        raise ValueError(f"weights has {shortened(unknown[0])!r}, which has no place in a model of this config.")
    found, own = {}, model.state_dict()
    for name, (ours, optional) in table.items():
        if name not in tensors:
            if not optional:
                raise ValueError(f"weights has no {name!r}, which a model of this config needs.")
            continue
        found[ours] = _converted(name, tensors[name], cfg, own[ours].shape)
    for name in own:
        if name.endswith("bias") and name not in found:
            found[name] = torch.zeros_like(own[name])
    model.load_state_dict(found, strict=False)
    return model.eval()


def _config(given: Mapping[str, Any]) -> TransformerConfig:
    for name, allowed in ONLY.items():
        if given.get(name, allowed[0]) not in allowed:
            raise ValueError(
                f"config has {name} {given[name]!r}, which has no counterpart; only {allowed[0]!r} can be read."
            )
    for name in ("d_model", "n_heads", "n_layers", "n_ctx", "d_vocab"):
        if given.get(name) is None:
            raise ValueError(f"config has no {name}; give the settings of the HookedTransformer.")
    norm, activation = given.get("normalization_type", "LN"), given.get("act_fn")
    if norm not in NORMS:
        raise ValueError(f"config has normalization_type {norm!r}; choose one of {', '.join(map(str, NORMS))}.")
    attn_only = bool(given.get("attn_only", False))
    if not attn_only and activation not in ACTIVATIONS:
        raise ValueError(f"config has act_fn {activation!r}; choose one of {', '.join(ACTIVATIONS)}.")
    if given.get("attention_dir", "causal") not in ("causal", "bidirectional"):
        raise ValueError(f"config has attention_dir {given['attention_dir']!r}; choose causal or bidirectional.")
    d_model, n_heads = given["d_model"], given["n_heads"]
    d_head = given.get("d_head") or d_model // n_heads
    scale = attention_scale(SimpleNamespace(**given), d_head)
    return TransformerConfig(
        d_vocab=given["d_vocab"], d_vocab_out=_positive(given.get("d_vocab_out")), d_model=d_model, n_heads=n_heads,
        n_layers=given["n_layers"], n_ctx=given["n_ctx"], d_head=d_head, attn_scale=scale,
        d_mlp=0 if attn_only else _positive(given.get("d_mlp")) or 4 * d_model, block=NORMS[norm],
        attention=given.get("attention_dir", "causal"), activation=ACTIVATIONS.get(activation or "", "relu"),
        layer_norm_eps=float(given.get("eps", 1e-5)),
    )  # fmt: skip


def _positive(value: int | None) -> int:
    """A size; TransformerLens writes -1 or None for its default, here 0."""
    return value if value is not None and value > 0 else 0


def _rows(cfg: TransformerConfig, *, folded: bool) -> dict[str, tuple[str, bool]]:
    """Our name of each of their weights, and whether it may be missing."""
    found = {
        "embed.W_E": ("embed.weight", False),
        "pos_embed.W_pos": ("positions.weight", False),
        "unembed.W_U": ("unembed.weight", False),
        "unembed.b_U": ("unembed.bias", True),
    }
    norms = {} if cfg.block == "no_norm" else {"ln1": "norm_1"} | ({"ln2": "norm_2"} if cfg.d_mlp else {})
    for layer in range(cfg.n_layers):
        theirs, ours = f"blocks.{layer}", f"weights.{layer}"
        for name in "QKVO":
            found[f"{theirs}.attn.W_{name}"] = (f"{ours}.attention.{name.lower()}.weight", False)
            found[f"{theirs}.attn.b_{name}"] = (f"{ours}.attention.{name.lower()}.bias", True)
        for name in ("in", "out") if cfg.d_mlp else ():
            found[f"{theirs}.mlp.W_{name}"] = (f"{ours}.mlp.w_{name}.weight", False)
            found[f"{theirs}.mlp.b_{name}"] = (f"{ours}.mlp.w_{name}.bias", True)
        for their_norm, our_norm in norms.items():
            found[f"{theirs}.{their_norm}.w"] = (f"{ours}.{our_norm}.weight", folded)
            found[f"{theirs}.{their_norm}.b"] = (f"{ours}.{our_norm}.bias", True)
    if norms:
        found |= {"ln_final.w": ("norm_final.weight", folded), "ln_final.b": ("norm_final.bias", True)}
    return found


def _converted(name: str, tensor: Tensor, cfg: TransformerConfig, shape: torch.Size) -> Tensor:
    """A weight in our axes."""
    heads, (d_model, d_head) = cfg.n_heads, (cfg.d_model, cfg.d_head)
    kind = name.rsplit(".", 1)[-1]
    if kind in ("W_Q", "W_K", "W_V"):
        wanted, ours = (heads, d_model, d_head), (0, 2, 1)
    elif kind == "W_O":
        wanted, ours = (heads, d_head, d_model), (2, 0, 1)
    elif kind in ("b_Q", "b_K", "b_V"):
        wanted, ours = (heads, d_head), (0, 1)
    elif kind in ("W_in", "W_out", "W_U"):
        wanted, ours = tuple(shape[::-1]), (1, 0)
    else:
        wanted, ours = tuple(shape), tuple(range(len(shape)))
    if tuple(tensor.shape) != wanted:
        raise ValueError(f"weights has {name} of shape {tuple(tensor.shape)}; by the config it must be {wanted}.")
    if not torch.isfinite(tensor).all():
        raise ValueError(f"weights has {name} with values that are not finite.")
    return tensor.permute(ours).reshape(shape).float()
