"""Conversion between Hugging Face's configs and ours."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import transformers

from hooks.adapters.huggingface.settings import ACTIVATIONS, Family, checked_settings
from hooks.files import shortened
from hooks.model.config import TransformerConfig
from hooks.model.encoder import EncoderConfig

HeadKind = Literal["lm", "linear", "none"]


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """A class of `transformers` that can be loaded and saved."""

    name: str
    family: Family
    head: HeadKind
    """`lm`: logits over the vocabulary. `linear`: token classification. `none`: hidden states only."""
    prefix: str = ""
    """Prefix of weight names outside the head."""
    pooler: bool = False
    """True if the class can have a pooler."""


ARCHITECTURES = {
    architecture.name: architecture
    for architecture in (
        Architecture(name="GPT2LMHeadModel", family="gpt2", head="lm", prefix="transformer."),
        Architecture(name="GPT2Model", family="gpt2", head="none"),
        Architecture(name="BertForMaskedLM", family="bert", head="lm", prefix="bert."),
        Architecture(name="BertForPreTraining", family="bert", head="lm", prefix="bert.", pooler=True),
        Architecture(name="BertForTokenClassification", family="bert", head="linear", prefix="bert."),
        Architecture(name="BertModel", family="bert", head="none", pooler=True),
        Architecture(name="AlbertForMaskedLM", family="albert", head="lm", prefix="albert."),
        Architecture(name="AlbertForTokenClassification", family="albert", head="linear", prefix="albert."),
        Architecture(name="AlbertModel", family="albert", head="none", pooler=True),
    )
}


def architecture_named(name: Any, source: str) -> Architecture:
    """The architecture of a name; `source` is for the error text.

    Raises:
        ValueError: an unknown name, or None.
    """
    if isinstance(name, str) and name in ARCHITECTURES:
        return ARCHITECTURES[name]
    names = ", ".join(ARCHITECTURES)
    if name is None:
        raise ValueError(f'{source} names no architecture; its config needs "architectures" with one of {names}.')
    raise ValueError(
        f"{source} has the architecture {shortened(repr(name))}, which is not known here; known are {names}."
    )


def read_settings(values: dict[str, Any], architecture: Architecture) -> dict[str, Any]:
    """The settings that decide what a model computes.

    Args:
        values: All settings.
        architecture: The model's class.

    Raises:
        ValueError: a setting that is not known, or whose value cannot be loaded.
    """
    defaults = getattr(transformers, architecture.name).config_class().to_dict()
    return checked_settings(values, architecture.family, defaults)


@contextmanager
def naming_config(architecture: Architecture, location: str | Path | None) -> Iterator[None]:
    """Within this block a ValueError names the config: that of a folder or hub name, or of a model in memory (None)."""
    try:
        yield
    except ValueError as error:
        model = f"this {architecture.name}" if location is None else f"the {architecture.name} in {location}"
        raise ValueError(f"the config of {model}: {error}") from None


def config_of(hf_config: Any, architecture: Architecture, *, tied: bool, pooler: bool) -> TransformerConfig:
    """Our config of a Hugging Face model.

    Args:
        hf_config: Its config object.
        architecture: Its class.
        tied: Whether the unembedding is the token embedding.
        pooler: Whether it has a pooler.

    Raises:
        ValueError: a setting without a counterpart.
    """
    read_settings(hf_config.to_dict(), architecture)
    sizes = {
        "d_vocab": hf_config.vocab_size,
        "d_model": hf_config.hidden_size,
        "n_heads": hf_config.num_attention_heads,
        "n_layers": hf_config.num_hidden_layers,
        "n_ctx": hf_config.max_position_embeddings,
    }
    if architecture.family == "gpt2":
        return TransformerConfig(
            **sizes,
            d_mlp=hf_config.n_inner,
            attention="causal",
            activation=ACTIVATIONS[hf_config.activation_function],  # type: ignore[arg-type]
            layer_norm_eps=hf_config.layer_norm_epsilon,
            attn_scale=0.0 if hf_config.scale_attn_weights else 1.0,
            tied_embedding=tied or architecture.head == "none",
            init="gpt2",
        )
    return EncoderConfig(
        **sizes,
        d_mlp=hf_config.intermediate_size,
        activation=ACTIVATIONS[hf_config.hidden_act],  # type: ignore[arg-type]
        layer_norm_eps=hf_config.layer_norm_eps,
        n_token_types=hf_config.type_vocab_size,
        d_embedding=hf_config.embedding_size if architecture.family == "albert" else 0,
        tied=architecture.family == "albert",
        head="masked_lm" if architecture.head == "lm" else architecture.head,
        d_vocab_out=hf_config.num_labels if architecture.head == "linear" else 0,
        tied_embedding=tied if architecture.head == "lm" else None,
        pooler=pooler,
    )


def architecture_of(cfg: TransformerConfig) -> Architecture:
    """The Hugging Face class that fits our config.

    Raises:
        ValueError: no class fits; names the first setting that does not.
    """
    if not isinstance(cfg, EncoderConfig):
        _refuse_wiring(cfg, "GPT2LMHeadModel", block="pre_ln", attention="causal", tied=False)
        if cfg.d_vocab_out != cfg.d_vocab:
            raise _no_place("GPT2LMHeadModel", f"d_vocab_out is {cfg.d_vocab_out}", f"reads out {cfg.d_vocab} tokens")
        return ARCHITECTURES["GPT2LMHeadModel"]
    # Shared layers make an ALBERT; the head decides the class
    family = "Albert" if cfg.tied else "Bert"
    stem = {"masked_lm": "ForMaskedLM", "linear": "ForTokenClassification", "none": "Model"}[cfg.head]
    if cfg.pooler and cfg.head == "masked_lm" and not cfg.tied:
        stem = "ForPreTraining"
    architecture = ARCHITECTURES[family + stem]
    # Settings that the class cannot have
    _refuse_wiring(cfg, architecture.name, block="post_ln", attention="bidirectional", tied=cfg.tied)
    if cfg.pooler and not architecture.pooler:
        raise _no_place(architecture.name, "pooler is True", "has none")
    if not cfg.embedding_norm:
        raise _no_place(architecture.name, "embedding_norm is False", "normalises its embeddings")
    if not cfg.n_token_types:
        raise _no_place(architecture.name, "n_token_types is 0", "has at least one token type")
    if bool(cfg.d_embedding) != cfg.tied:
        has = "has a Linear after the embeddings (set d_embedding)" if cfg.tied else "has no Linear there"
        raise _no_place(architecture.name, f"d_embedding is {cfg.d_embedding}", has)
    return architecture


def settings_for(cfg: TransformerConfig) -> dict[str, Any]:
    """Arguments of the Hugging Face config for a config that `architecture_of` accepts."""
    activation = next(hf_name for hf_name, name in ACTIVATIONS.items() if name == cfg.activation)
    settings: dict[str, Any] = {
        "vocab_size": cfg.d_vocab,
        "hidden_size": cfg.d_model,
        "num_attention_heads": cfg.n_heads,
        "num_hidden_layers": cfg.n_layers,
        "max_position_embeddings": cfg.n_ctx,
        "tie_word_embeddings": bool(cfg.tied_embedding),
        **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id")),
    }
    if not isinstance(cfg, EncoderConfig):
        scaled = cfg.attn_scale == cfg.d_head**0.5
        names = {"n_inner": cfg.d_mlp, "activation_function": activation, "layer_norm_epsilon": cfg.layer_norm_eps}
        return {**settings, **names, "scale_attn_weights": scaled}
    if cfg.head != "masked_lm":
        settings["tie_word_embeddings"] = True  # the default; without effect
    if cfg.head == "linear":
        settings["num_labels"] = cfg.d_vocab_out
    if cfg.tied:
        settings["embedding_size"] = cfg.d_embedding
    names = {"intermediate_size": cfg.d_mlp, "hidden_act": activation, "layer_norm_eps": cfg.layer_norm_eps}
    return {**settings, **names, "type_vocab_size": cfg.n_token_types}


def _refuse_wiring(cfg: TransformerConfig, name: str, **wiring: Any) -> None:
    scales = (cfg.d_head**0.5, 1.0) if name.startswith("GPT2") else (cfg.d_head**0.5,)
    allowed_values = {
        **{setting: (value,) for setting, value in wiring.items()},
        "positions": ("learned",),
        "embedding": (None,),
        "qk_identity": (False,),
        "vo_identity": (False,),
        "attn_bias": (True,),
        "mlp_bias": (True,),
        "output_projection": (True,),
        "attn_scale": scales,
        "d_head": (cfg.d_model / cfg.n_heads,),
    }
    for setting, allowed in allowed_values.items():
        value = getattr(cfg, setting)
        if value not in allowed:
            raise _no_place(name, f"{setting} is {value!r}", f"needs {' or '.join(map(repr, allowed))}")
    if not cfg.d_mlp:
        raise _no_place(name, "d_mlp is 0", "has an MLP in every layer")
    if any(cfg.patterns_of(layer) for layer in range(cfg.n_layers)):
        raise _no_place(name, "head_patterns holds hard-coded heads", "learns every pattern")


def _no_place(name: str, fault: str, has: str) -> ValueError:
    return ValueError(f"the model does not fit Hugging Face's {name}: {fault}, and {name} {has}.")
