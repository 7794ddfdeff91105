"""Saving a model as a folder that `transformers` opens with the same logits."""

import os
import secrets
import shutil
from pathlib import Path
from typing import Any

import torch
import transformers

from hooks.adapters.huggingface.configs import architecture_of, settings_for
from hooks.adapters.huggingface.loading import quiet
from hooks.adapters.huggingface.parity import TOLERANCE, measure_parity
from hooks.adapters.huggingface.weights import rows, to_hf_weights
from hooks.files import make_folder, user_path
from hooks.model.encoder import EncoderConfig
from hooks.model.transformer import TransformerStack
from hooks.typed import checks_types


@checks_types
def save_huggingface(model: TransformerStack, folder: str | Path, *, tokenizer: Any = None) -> None:
    """Write a folder that `transformers.AutoModel...from_pretrained` opens with the same logits.

    The folder is written atomically, after the converted model has been compared with this one. A causal pre-LN
    `Transformer` becomes a GPT2LMHeadModel; an `Encoder` becomes a BERT, or an ALBERT if its layers share weights:
    ForMaskedLM, ForTokenClassification or Model, by its head. A masked-LM BERT with a pooler becomes a
    BertForPreTraining whose next-sentence head is zero.

    Args:
        model: The model to write. It is not changed.
        folder: A new or empty folder.
        tokenizer: A tokenizer of `transformers` to write with it; if None, the model's, if it is one.

    Raises:
        ValueError: a model that fits none of Hugging Face's classes, with the reason; a folder that is not empty; a
            tokenizer that cannot be written.
    """
    if not isinstance(model, TransformerStack):
        raise ValueError(f"model is a {type(model).__name__}; only a hooks.Transformer or Encoder can be written.")
    folder = user_path(folder).resolve()
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise ValueError(f"folder {folder} exists already and is not an empty folder; choose another, or remove it.")
    if tokenizer is not None and not hasattr(tokenizer, "save_pretrained"):
        raise ValueError(f"tokenizer is a {type(tokenizer).__name__}; only one of transformers can be written.")
    if tokenizer is None and hasattr(model.tokenizer, "save_pretrained"):
        tokenizer = model.tokenizer
    hf_model = _convert(model, tokenizer)
    # Write to a temporary folder, flush it to disk, and rename it
    make_folder(folder.parent)
    temporary = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}")
    temporary.mkdir()
    try:
        with quiet():
            hf_model.save_pretrained(temporary, safe_serialization=True)
            if tokenizer is not None:
                tokenizer.save_pretrained(temporary)
        for path in temporary.iterdir():
            with open(path, "rb") as file:
                os.fsync(file.fileno())
        os.replace(temporary, folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _convert(model: TransformerStack, tokenizer: Any) -> Any:
    """The model as an object of `transformers`, compared with the original."""
    cfg = model.cfg
    architecture = architecture_of(cfg)
    parameters = dict(model.named_parameters())
    if not isinstance(cfg, EncoderConfig) and not cfg.tied_embedding and parameters["unembed.bias"].any():
        raise ValueError(
            "the model does not fit Hugging Face's GPT2LMHeadModel: its read-out has a bias (b_U) that is not zero, "
            "and GPT2LMHeadModel has none. Train with tied_embedding=True, or set the bias to zero."
        )
    model_class = getattr(transformers, architecture.name)
    pooling = {"add_pooling_layer": model.cfg.pooler} if architecture.head == "none" else {}  # type: ignore[attr-defined]
    # A model of the same sizes, with the tokenizer's special tokens
    ids = {name: getattr(tokenizer, name, None) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    special_ids = {name: token for name, token in ids.items() if token is not None}
    with quiet(), torch.random.fork_rng(devices=[]):  # the random initial weights are overwritten
        config = model_class.config_class(**{**settings_for(cfg), **special_ids})
        hf_model = model_class(config, **pooling).to(next(iter(parameters.values())))
    # Copy our weights into it
    weights = dict(hf_model.named_parameters(remove_duplicate=False))
    with torch.no_grad():
        for parameter in weights.values():
            parameter.zero_()  # a next-sentence head, and a bias that an untied head does not use
        for name, tensor in to_hf_weights(parameters, rows(architecture, cfg)).items():
            weights[name].copy_(tensor)
    # Nothing is written unless the logits agree
    report = measure_parity(model, hf_model.eval(), architecture)
    if not report.ok:
        raise ValueError(
            f"converted to a {architecture.name}, the model's logits differ by more than {TOLERANCE:g}:\n{report}"
        )
    return hf_model
