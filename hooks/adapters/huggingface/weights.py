"""Correspondence of weight names in Hugging Face's models and ours: one table, used in both directions.

Rows only split, join and transpose tensors, so the table also maps gradients.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from hooks.adapters.huggingface.configs import Architecture
from hooks.model.config import TransformerConfig
from hooks.model.encoder import EncoderConfig


@dataclass(frozen=True)
class Row:
    """One tensor of theirs, and the tensors of ours that it joins along the output axis."""

    theirs: str
    ours: tuple[str, ...]
    """Several if theirs joins several matrices (GPT-2's queries, keys and values)."""
    transposed: bool = False
    """True if theirs is (input, output), as in GPT-2's Conv1D; ours are (output, input)."""


def rows(architecture: Architecture, cfg: TransformerConfig) -> list[Row]:
    """The table for one model; every weight of ours occurs once."""
    table = _gpt2(architecture, cfg) if architecture.family == "gpt2" else []
    if isinstance(cfg, EncoderConfig):
        table = [*_encoder_inputs(architecture, cfg), *_encoder_layers(architecture, cfg), *_head(architecture, cfg)]
    return table


def to_ours(theirs: Mapping[str, Tensor], table: Iterable[Row]) -> dict[str, Tensor]:
    """Our weights (or gradients) from theirs, as views."""
    found: dict[str, Tensor] = {}
    for row in table:
        tensor = theirs[row.theirs].T if row.transposed else theirs[row.theirs]
        found |= zip(row.ours, tensor.chunk(len(row.ours)), strict=True)
    return found


def to_theirs(ours: Mapping[str, Tensor], table: Iterable[Row]) -> dict[str, Tensor]:
    """Their weights (or gradients) from ours."""
    found = {}
    for row in table:
        tensor = torch.cat([ours[name] for name in row.ours])
        found[row.theirs] = tensor.T.contiguous() if row.transposed else tensor
    return found


def _both(theirs: str, *ours: str, transposed: bool = False) -> list[Row]:
    """Rows for weight and bias of one affine map."""
    return [
        Row(f"{theirs}.weight", tuple(f"{name}.weight" for name in ours), transposed),
        Row(f"{theirs}.bias", tuple(f"{name}.bias" for name in ours)),
    ]


def _gpt2(architecture: Architecture, cfg: TransformerConfig) -> list[Row]:
    prefix = architecture.prefix
    table = [Row(f"{prefix}wte.weight", ("embed.weight",)), Row(f"{prefix}wpe.weight", ("positions.weight",))]
    for layer in range(cfg.n_layers):
        at, block = f"{prefix}h.{layer}", f"weights.{layer}"
        inputs = [f"{block}.attention.{name}" for name in "qkv"]
        table += _both(f"{at}.ln_1", f"{block}.norm_1")
        table += _both(f"{at}.attn.c_attn", *inputs, transposed=True)
        table += _both(f"{at}.attn.c_proj", f"{block}.attention.o", transposed=True)
        table += _both(f"{at}.ln_2", f"{block}.norm_2")
        table += _both(f"{at}.mlp.c_fc", f"{block}.mlp.w_in", transposed=True)
        table += _both(f"{at}.mlp.c_proj", f"{block}.mlp.w_out", transposed=True)
    table += _both(f"{prefix}ln_f", "norm_final")
    return table if cfg.tied_embedding else [*table, Row("lm_head.weight", ("unembed.weight",))]


def _encoder_inputs(architecture: Architecture, cfg: EncoderConfig) -> list[Row]:
    at = f"{architecture.prefix}embeddings"
    table = [
        Row(f"{at}.word_embeddings.weight", ("embed.weight",)),
        Row(f"{at}.position_embeddings.weight", ("positions.weight",)),
        Row(f"{at}.token_type_embeddings.weight", ("token_types.weight",)),
        *_both(f"{at}.LayerNorm", "norm_embed"),
    ]
    if cfg.d_embedding:
        table += _both(f"{architecture.prefix}encoder.embedding_hidden_mapping_in", "embed_up")
    return table


_BERT_LAYER = {
    "attention.self.query": "attention.q",
    "attention.self.key": "attention.k",
    "attention.self.value": "attention.v",
    "attention.output.dense": "attention.o",
    "attention.output.LayerNorm": "norm_1",
    "intermediate.dense": "mlp.w_in",
    "output.dense": "mlp.w_out",
    "output.LayerNorm": "norm_2",
}
_ALBERT_LAYER = {
    "attention.query": "attention.q",
    "attention.key": "attention.k",
    "attention.value": "attention.v",
    "attention.dense": "attention.o",
    "attention.LayerNorm": "norm_1",
    "ffn": "mlp.w_in",
    "ffn_output": "mlp.w_out",
    "full_layer_layer_norm": "norm_2",
}


def _encoder_layers(architecture: Architecture, cfg: EncoderConfig) -> list[Row]:
    encoder = f"{architecture.prefix}encoder"
    if architecture.family == "albert":
        blocks, parts = [f"{encoder}.albert_layer_groups.0.albert_layers.0"], _ALBERT_LAYER
    else:
        blocks, parts = [f"{encoder}.layer.{layer}" for layer in range(cfg.n_layers)], _BERT_LAYER
    return [
        row
        for index, block in enumerate(blocks)
        for theirs, ours in parts.items()
        for row in _both(f"{block}.{theirs}", f"weights.{index}.{ours}")
    ]


def _head(architecture: Architecture, cfg: EncoderConfig) -> list[Row]:
    bert, table = architecture.family == "bert", []
    if cfg.pooler:
        table += _both(f"{architecture.prefix}pooler{'.dense' if bert else ''}", "pooler")
    if cfg.head == "linear":
        table += _both("classifier", "unembed")
    if cfg.head == "masked_lm":
        at = "cls.predictions" if bert else "predictions"
        before = f"{at}.transform" if bert else at
        table += [*_both(f"{before}.dense", "unembed.dense"), *_both(f"{before}.LayerNorm", "unembed.norm")]
        table += [Row(f"{at}.decoder.bias", ("unembed.bias",))]
        if not cfg.tied_embedding:
            table += [Row(f"{at}.decoder.weight", ("unembed.rows",))]
    return table
