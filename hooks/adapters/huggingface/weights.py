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
    """One tensor of a Hugging Face model, and the tensors of our model that it joins along the output axis."""

    hf_name: str
    names: tuple[str, ...]
    """Several if the tensor joins several matrices (GPT-2's queries, keys and values)."""
    transposed: bool = False
    """True if the tensor is (input, output), as in GPT-2's Conv1D; ours are (output, input)."""


def rows(architecture: Architecture, cfg: TransformerConfig) -> list[Row]:
    """The table for one model; every weight of ours occurs once."""
    if not isinstance(cfg, EncoderConfig):
        return _gpt2(architecture, cfg)
    return [*_encoder_inputs(architecture, cfg), *_encoder_layers(architecture, cfg), *_head(architecture, cfg)]


def from_hf_weights(hf_weights: Mapping[str, Tensor], table: Iterable[Row]) -> dict[str, Tensor]:
    """Our weights (or gradients) from Hugging Face's, as views."""
    weights: dict[str, Tensor] = {}
    for row in table:
        tensor = hf_weights[row.hf_name]
        if row.transposed:
            tensor = tensor.T
        weights |= zip(row.names, tensor.chunk(len(row.names)), strict=True)
    return weights


def to_hf_weights(weights: Mapping[str, Tensor], table: Iterable[Row]) -> dict[str, Tensor]:
    """Hugging Face's weights (or gradients) from ours."""
    hf_weights: dict[str, Tensor] = {}
    for row in table:
        tensor = torch.cat([weights[name] for name in row.names])
        hf_weights[row.hf_name] = tensor.T.contiguous() if row.transposed else tensor
    return hf_weights


def _affine(hf_name: str, *names: str, transposed: bool = False) -> list[Row]:
    """Rows for weight and bias of one affine map."""
    return [
        Row(f"{hf_name}.weight", tuple(f"{name}.weight" for name in names), transposed),
        Row(f"{hf_name}.bias", tuple(f"{name}.bias" for name in names)),
    ]


def _gpt2(architecture: Architecture, cfg: TransformerConfig) -> list[Row]:
    prefix = architecture.prefix
    table = [Row(f"{prefix}wte.weight", ("embed.weight",)), Row(f"{prefix}wpe.weight", ("positions.weight",))]
    for layer in range(cfg.n_layers):
        hf_layer = f"{prefix}h.{layer}"
        block = f"weights.{layer}"
        inputs = [f"{block}.attention.{name}" for name in "qkv"]
        table += _affine(f"{hf_layer}.ln_1", f"{block}.norm_1")
        table += _affine(f"{hf_layer}.attn.c_attn", *inputs, transposed=True)
        table += _affine(f"{hf_layer}.attn.c_proj", f"{block}.attention.o", transposed=True)
        table += _affine(f"{hf_layer}.ln_2", f"{block}.norm_2")
        table += _affine(f"{hf_layer}.mlp.c_fc", f"{block}.mlp.w_in", transposed=True)
        table += _affine(f"{hf_layer}.mlp.c_proj", f"{block}.mlp.w_out", transposed=True)
    table += _affine(f"{prefix}ln_f", "norm_final")
    if not cfg.tied_embedding:
        table.append(Row("lm_head.weight", ("unembed.weight",)))
    return table


def _encoder_inputs(architecture: Architecture, cfg: EncoderConfig) -> list[Row]:
    embeddings = f"{architecture.prefix}embeddings"
    table = [
        Row(f"{embeddings}.word_embeddings.weight", ("embed.weight",)),
        Row(f"{embeddings}.position_embeddings.weight", ("positions.weight",)),
        Row(f"{embeddings}.token_type_embeddings.weight", ("token_types.weight",)),
        *_affine(f"{embeddings}.LayerNorm", "norm_embed"),
    ]
    if cfg.d_embedding:
        table += _affine(f"{architecture.prefix}encoder.embedding_hidden_mapping_in", "embed_up")
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
        names = _ALBERT_LAYER
        hf_blocks = [f"{encoder}.albert_layer_groups.0.albert_layers.0"]
    else:
        names = _BERT_LAYER
        hf_blocks = [f"{encoder}.layer.{layer}" for layer in range(cfg.n_layers)]
    table = []
    for index, hf_block in enumerate(hf_blocks):
        for hf_name, name in names.items():
            table += _affine(f"{hf_block}.{hf_name}", f"weights.{index}.{name}")
    return table


def _head(architecture: Architecture, cfg: EncoderConfig) -> list[Row]:
    is_bert = architecture.family == "bert"
    table: list[Row] = []
    if cfg.pooler:
        pooler = "pooler.dense" if is_bert else "pooler"
        table += _affine(f"{architecture.prefix}{pooler}", "pooler")
    if cfg.head == "linear":
        table += _affine("classifier", "unembed")
    if cfg.head == "masked_lm":
        head = "cls.predictions" if is_bert else "predictions"
        transform = f"{head}.transform" if is_bert else head
        table += [*_affine(f"{transform}.dense", "unembed.dense"), *_affine(f"{transform}.LayerNorm", "unembed.norm")]
        table.append(Row(f"{head}.decoder.bias", ("unembed.bias",)))
        if not cfg.tied_embedding:
            table.append(Row(f"{head}.decoder.weight", ("unembed.rows",)))
    return table
