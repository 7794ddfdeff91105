"""From a Hugging Face model, folder or hub name to a model of ours that says the same."""

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from hooks.adapters.huggingface.configs import Architecture, architecture_named, config_of
from hooks.adapters.huggingface.parity import TOLERANCE, compare
from hooks.adapters.huggingface.sources import find_model, find_tokenizer
from hooks.adapters.huggingface.weights import Row, rows, to_ours
from hooks.model.architectures import make_model
from hooks.model.transformer import Transformer

HARMLESS = re.compile(
    r"(^|\.)pooler\.|seq_relationship\.|sop_classifier\.|\.attn\.(masked_)?bias$|position_ids$|predictions\.bias$"
)
"""Weights that take no part in what is loaded: heads for pairs of texts, buffers of old versions, a bias that an untied
head keeps beside the one it uses."""


def from_huggingface(model_or_path: Any, *, with_tokenizer: bool = True, check: bool = True) -> Transformer:
    """A model of ours with the weights of a Hugging Face GPT-2, BERT or ALBERT: same logits, and hook points.

    GPT-2 becomes a `Transformer`, BERT and ALBERT become an `Encoder`, in evaluation mode, on the same device. Dropout
    plays no part: a model here has none, also in training. `model.tokenizer` is the folder's tokenizer, or None for an
    object in memory; `model.parity` is the `ParityReport` of the check, or None without it.

    Args:
        model_or_path: A model object of `transformers` (it is copied from and left as it was), a folder with
            `config.json`, `*.safetensors` and a tokenizer, or a name on the hub. Only a name uses the network.
        with_tokenizer: Load the tokenizer too.
        check: Compare with the Hugging Face model on random texts, and refuse the result if they differ.

    Raises:
        ValueError: an architecture or a setting that is not known here, weights that do not fit the config, weights
            in half precision, pickled weights, or logits that differ by more than 1e-4 (in units of the largest, if
            that is above one).
        FileNotFoundError: no such folder, or no config, weights or tokenizer in it.
        ConnectionError: a name that cannot be had from the hub.

    Source: `transformers` 5, whose modules define the architectures. Differs: `GPT2Model`, which has no read-out, reads
    out with its embedding, as `GPT2LMHeadModel` does, and a padding token's vector has a gradient like any other.
    """
    theirs, ignored, location = find_model(model_or_path)
    architecture = architecture_named(type(theirs).__name__, "model_or_path")
    ours = _converted(theirs, architecture)
    table = rows(architecture, ours.cfg)
    left_out = tuple(sorted({*_left_over(theirs, table), *_harmless(ignored, architecture)}))
    report = compare(ours, theirs, architecture, left_out=left_out) if check else None
    if report is not None and not report.ok:
        raise ValueError(
            f"the loaded model differs from the Hugging Face model by more than {TOLERANCE:g}, and is refused. "
            f"Has the {architecture.name} been changed?\n{report}"
        )
    ours.tokenizer = find_tokenizer(location) if with_tokenizer and location is not None else None
    ours.parity = report  # type: ignore[assignment]
    return ours


def _converted(theirs: Any, architecture: Architecture) -> Transformer:
    weights = dict(theirs.named_parameters(remove_duplicate=False))
    first = next(iter(weights.values()))
    if first.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"model_or_path holds {first.dtype} weights; call .float() on it first.")
    pooler = getattr(theirs.base_model, "pooler", None) is not None
    cfg = config_of(theirs.config, architecture, tied=_tied(theirs), pooler=pooler)
    ours = make_model(cfg).to(dtype=first.dtype, device=first.device)
    load_weights(ours, weights, rows(architecture, cfg))
    return ours.eval()


def load_weights(ours: Transformer, theirs: Mapping[str, Tensor], table: list[Row]) -> None:
    """Copy their weights into a model of ours.

    Raises:
        ValueError: a weight that is missing or of another shape, or one of ours that the table leaves out.
    """
    own = dict(ours.named_parameters())
    for row in table:
        if row.theirs not in theirs:
            raise ValueError(f"the weights do not fit the config: {row.theirs} is missing.")
        shapes = [own[name].shape for name in row.ours]
        wanted = (sum(shape[0] for shape in shapes), *shapes[0][1:])
        wanted = wanted[::-1] if row.transposed else wanted
        if theirs[row.theirs].shape != wanted:
            raise ValueError(
                f"the weights do not fit the config: {row.theirs} is {tuple(theirs[row.theirs].shape)}, "
                f"by the config {tuple(wanted)}."
            )
    constants = _zero_read_out(own, table)
    with torch.no_grad():
        for name, tensor in to_ours(theirs, table).items():
            own.pop(name).copy_(tensor)
        for name in constants:
            own.pop(name).zero_()
    if own:
        raise ValueError(f"no weight of theirs stands for {', '.join(own)}.")


def _zero_read_out(own: Mapping[str, Tensor], table: list[Row]) -> list[str]:
    """The bias of an untied GPT-2's read-out: theirs has none."""
    named = {name for row in table for name in row.ours}
    return [name for name in ("unembed.bias",) if name in own and name not in named]


def _tied(theirs: Any) -> bool:
    """True when the read-out's rows are the embedding itself, whatever the config says."""
    read_out = theirs.get_output_embeddings()
    return read_out is not None and read_out.weight is theirs.get_input_embeddings().weight


def _left_over(theirs: Any, table: list[Row]) -> list[str]:
    """Weights of a model that no row names.

    Raises:
        ValueError: one of them could matter.
    """
    parameters = dict(theirs.named_parameters(remove_duplicate=False))
    used = {id(parameters[row.theirs]) for row in table}
    left = [name for name, parameter in theirs.named_parameters() if id(parameter) not in used]
    return _harmless(left)


def _harmless(names: list[str], architecture: Architecture | None = None) -> list[str]:
    for name in sorted(names):
        if not HARMLESS.search(name):
            raise ValueError(
                f"the weights do not fit the config: {name} has no place in "
                f"{'this model' if architecture is None else 'a ' + architecture.name}."
            )
    return names
