"""Hugging Face models as models of this package. No file is unpickled and no code from a folder is executed."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from torch import Tensor
from transformers.utils.hub import cached_file, logging

from hooks.adapters.huggingface.configs import Architecture, architecture_named, config_of, naming_config, read_settings
from hooks.adapters.huggingface.folder import (
    INDEX,
    TOKENIZER_FILES,
    check_folder,
    check_stored_sizes,
    check_tokenizer_files,
    shards,
)
from hooks.adapters.huggingface.parity import TOLERANCE, measure_parity
from hooks.adapters.huggingface.weights import Row, from_hf_weights, rows
from hooks.files import reading, shortened, user_path
from hooks.model.architectures import make_model
from hooks.model.config import TransformerConfig
from hooks.model.transformer import TransformerStack
from hooks.typed import checks_types

HARMLESS = re.compile(
    r"(^|\.)pooler\.|seq_relationship\.|sop_classifier\.|\.attn\.(masked_)?bias$|position_ids$|predictions\.bias$"
)
"""Weights without effect on the loaded model: heads for pairs of texts, buffers of old versions, and the unused bias of
an untied head."""
UNKNOWN_TEXT = "a \N{SNOWMAN}"
"""A text of a usual and an unusual letter."""
_HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
_SAFE: dict[str, Any] = {"trust_remote_code": False}
_EAGER = {**_SAFE, "attn_implementation": "eager"}  # a config could name a kernel, which is downloaded and executed


@checks_types
def from_huggingface(model_or_path: Any, *, with_tokenizer: bool = True, check: bool = True) -> TransformerStack:
    """Load the weights of a Hugging Face GPT-2, BERT or ALBERT into a model with hook points and the same logits.

    GPT-2 becomes a `Transformer`, BERT and ALBERT become an `Encoder`, in evaluation mode, on the same device. There is
    no dropout, also in training. `model.tokenizer` is the folder's tokenizer, or None for an object in memory;
    `model.parity` is the `ParityReport` of the check, or None without it.

    >>> import hooks, transformers
    >>> sizes = {"n_embd": 8, "n_head": 2, "n_layer": 1, "n_positions": 16, "vocab_size": 20}
    >>> gpt2 = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))
    >>> model = hooks.from_huggingface(gpt2)
    >>> model.cfg.block, model.parity.ok
    ('pre_ln', True)

    Args:
        model_or_path: A model object of `transformers` (its weights are copied), a folder with `config.json`,
            `*.safetensors` and a tokenizer, or a name on the hub. Only a name uses the network.
        with_tokenizer: Load the tokenizer too.
        check: Compare with the Hugging Face model on random texts, and raise ValueError if they differ.

    Raises:
        ValueError: an unknown architecture, a setting without a counterpart, weights that do not fit the config,
            weights in half precision in memory, pickled weights, or logits that differ by more than 1e-4 (in units of
            the largest, if that is above one).
        FileNotFoundError: no such folder, or no config, weights or tokenizer in it.
        ConnectionError: a name that could not be downloaded from the hub.

    Source: `transformers` 5, whose modules define the architectures. Differs: `GPT2Model`, which has no unembedding,
    gets its embedding as one, as in `GPT2LMHeadModel`; a padding token's vector has a gradient like any other.
    """
    # Open it with transformers, and copy its weights
    hf_model, unused_names, location = find_model(model_or_path)
    architecture = architecture_named(type(hf_model).__name__, "model_or_path")
    model = _convert(hf_model, architecture, location)
    # Every weight is used, or known to have no effect
    unused = _unused_weights(hf_model, rows(architecture, model.cfg))
    _check_harmless(unused, "this model", location)
    _check_harmless(unused_names, f"a {architecture.name}", location)
    # Compare the logits
    model.parity = None  # type: ignore[assignment]
    if check:
        left_out = tuple(sorted({*unused, *unused_names}))
        report = measure_parity(model, hf_model, architecture, left_out=left_out)
        if not report.ok:
            raise ValueError(
                f"the loaded model differs from the Hugging Face model by more than {TOLERANCE:g}, and is refused. "
                f"Has the {architecture.name} been changed?\n{report}"
            )
        model.parity = report  # type: ignore[assignment]
    model.tokenizer = find_tokenizer(location) if with_tokenizer and location is not None else None
    return model


def config_of_folder(folder: str | Path) -> TransformerConfig:
    """The config of the model that `from_huggingface` makes of a folder; no weights are read.

    A read-out is tied to the embedding, and there is a pooler, if the class has one: only weights can tell.

    Raises:
        ValueError, FileNotFoundError: as `from_huggingface`.
    """
    path = user_path(folder)
    check_folder(path)
    try:
        with quiet():
            architecture, config = _read_config(path, local_files_only=True)
    except StrictDataclassError as error:
        raise _unreadable_config(path, error) from None
    with naming_config(architecture, path):
        return config_of(config, architecture, tied=architecture.head == "lm", pooler=architecture.pooler)


def _unreadable_config(location: str | Path, error: Exception) -> ValueError:
    return ValueError(f"the config.json in {location} cannot be read: {shortened(str(error))}")


def _convert(hf_model: Any, architecture: Architecture, location: str | Path | None) -> TransformerStack:
    weights = dict(hf_model.named_parameters(remove_duplicate=False))
    first = next(iter(weights.values()))
    if first.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"model_or_path holds {first.dtype} weights; call .float() on it first.")
    pooler = getattr(hf_model.base_model, "pooler", None) is not None
    # Tied if the read-out shares the embedding's tensor, whatever the config says
    read_out = hf_model.get_output_embeddings()
    tied = read_out is not None and read_out.weight is hf_model.get_input_embeddings().weight
    with naming_config(architecture, location):
        cfg = config_of(hf_model.config, architecture, tied=tied, pooler=pooler)
    model = make_model(cfg).to(dtype=first.dtype, device=first.device)
    _copy_weights(model, weights, rows(architecture, cfg))
    _check_finite(model, location)
    return model.eval()


def _check_finite(model: TransformerStack, location: str | Path | None) -> None:
    for name, parameter in model.named_parameters():
        n_wrong = int((~parameter.isfinite()).sum())
        if n_wrong:
            raise ValueError(
                f"{n_wrong} of the {parameter.numel()} values of {name} in {location or 'model_or_path'} are NaN or "
                f"infinite; there is no model to compare or to load. Was it saved after a training that diverged?"
            )


def _copy_weights(model: TransformerStack, hf_weights: Mapping[str, Tensor], table: list[Row]) -> None:
    parameters = dict(model.named_parameters())
    # Check all shapes before anything is copied
    for row in table:
        if row.hf_name not in hf_weights:
            raise ValueError(f"the weights do not fit the config: {row.hf_name} is missing.")
        shapes = [parameters[name].shape for name in row.names]
        expected = (sum(shape[0] for shape in shapes), *shapes[0][1:])
        expected = expected[::-1] if row.transposed else expected
        shape = hf_weights[row.hf_name].shape
        if shape != expected:
            raise ValueError(
                f"the weights do not fit the config: {row.hf_name} is {tuple(shape)}, by the config {tuple(expected)}."
            )
    with torch.no_grad():
        for name, tensor in from_hf_weights(hf_weights, table).items():
            parameters.pop(name).copy_(tensor)
        if "unembed.bias" in parameters:  # an untied GPT-2 has no such bias
            parameters.pop("unembed.bias").zero_()
    if parameters:
        raise ValueError(f"no weight of the Hugging Face model corresponds to {', '.join(parameters)}.")


def _unused_weights(hf_model: Any, table: list[Row]) -> list[str]:
    """Weights of a model that no row names."""
    parameters = dict(hf_model.named_parameters(remove_duplicate=False))
    ids_in_table = {id(parameters[row.hf_name]) for row in table}
    return [name for name, parameter in hf_model.named_parameters() if id(parameter) not in ids_in_table]


def _check_harmless(names: list[str], description: str, location: str | Path | None) -> None:
    weights = (
        "the weights do not fit the config" if location is None else f"the weights in {location} do not fit its config"
    )
    for name in sorted(names):
        if not HARMLESS.search(name):
            raise ValueError(f"{weights}: {shortened(name)} has no place in {description}.")


def find_model(model_or_path: Any) -> tuple[Any, list[str], str | Path | None]:
    """The model object, the names of stored weights that it does not have, and its folder or hub name.

    Raises:
        ValueError, FileNotFoundError, ConnectionError: as `from_huggingface`.
    """
    if isinstance(model_or_path, torch.nn.Module):
        return model_or_path, [], None
    if not isinstance(model_or_path, str | Path):
        raise ValueError(
            f"model_or_path is a {type(model_or_path).__name__}; pass a model of transformers, a folder or a hub name."
        )
    # A folder is read without the network; anything that does not look like a path is a name on the hub
    path = user_path(model_or_path)
    if path.exists() or isinstance(model_or_path, Path) or not _HUB_NAME.fullmatch(model_or_path):
        check_folder(path)
        return *_read(path, local_files_only=True), path
    try:
        return *_read(model_or_path, local_files_only=False), model_or_path
    except OSError as error:
        raise ConnectionError(
            f"{model_or_path!r} is no folder here, and could not be had from the Hugging Face hub as safetensors "
            f"({str(error).splitlines()[0]}) Is the name right, is there a network, is HF_HUB_OFFLINE set?"
        ) from error


def find_tokenizer(location: str | Path) -> Any:
    """The tokenizer of a folder or hub name.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it cannot be read.
    """
    missing = f"{location} has no tokenizer ({', '.join(TOKENIZER_FILES)}); with_tokenizer=False loads the model alone."
    if isinstance(location, Path):
        if not any((location / name).is_file() for name in TOKENIZER_FILES):
            raise FileNotFoundError(missing)
        check_tokenizer_files(location)
    local_files_only = isinstance(location, Path)
    try:
        with quiet():
            tokenizer = transformers.AutoTokenizer.from_pretrained(location, local_files_only=local_files_only, **_SAFE)
            # Some faults show at the first text only, such as a vocabulary without the token of unknown words
            tokenizer(UNKNOWN_TEXT)
            return tokenizer
    except OSError as error:
        raise FileNotFoundError(missing) from error
    except BaseException as error:  # parsers raise many kinds of error on a broken file; one, in Rust, is no Exception
        if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
            raise
        raise ValueError(
            f"the tokenizer of {location} cannot be read ({shortened(str(error))}); with_tokenizer=False loads the "
            f"model alone."
        ) from error


def _read(location: str | Path, *, local_files_only: bool) -> tuple[Any, list[str]]:
    """The model, and the names of stored weights that it does not have."""
    try:
        with quiet(), torch.random.fork_rng(devices=[]):  # the random initial weights are overwritten
            architecture, config = _read_config(location, local_files_only)
            _check_weights(location, config, architecture.family, local_files_only)
            model, info = _read_weights(location, architecture, config, local_files_only)
    except SafetensorError as error:
        raise ValueError(f"the weights in {location} cannot be read ({error}). Is a file cut short?") from None
    except StrictDataclassError as error:
        raise _unreadable_config(location, error) from None
    # Every weight of the config is in the files, with its shape
    for name in sorted(info["missing_keys"]):
        raise ValueError(f"the weights in {location} do not fit its config: {name} is missing.")
    for name, shape, expected in sorted(info["mismatched_keys"]):
        raise ValueError(
            f"the weights in {location} do not fit its config: {name} is {tuple(shape)}, by the config "
            f"{tuple(expected)}."
        )
    if model.dtype in (torch.float16, torch.bfloat16):
        model = model.float()
    return model, sorted(info["unexpected_keys"])


def _read_config(location: str | Path, local_files_only: bool) -> tuple[Architecture, Any]:
    """The architecture and the config object, made of settings that choose no code."""
    values, _ = transformers.PretrainedConfig.get_config_dict(location, local_files_only=local_files_only)
    names = values.get("architectures")
    if isinstance(names, list):
        names = names[0] if names else None
    architecture = architecture_named(names or None, str(location))
    with naming_config(architecture, location):
        settings = read_settings(values, architecture)
    config_class = getattr(transformers, architecture.name).config_class
    with reading(location, "a folder with the config of a Hugging Face model"):
        config = config_class.from_dict(settings)
    config.dtype = None  # the dtype of the stored weights, whatever the config says
    return architecture, config


def _read_weights(
    location: str | Path, architecture: Architecture, config: Any, local_files_only: bool
) -> tuple[Any, dict[str, Any]]:
    """The model, and the report of `transformers` on stored weights that do not fit it."""
    model_class = getattr(transformers, architecture.name)
    settings = {
        "config": config,
        "local_files_only": local_files_only,
        "output_loading_info": True,
        "use_safetensors": True,
        "ignore_mismatched_sizes": True,
        "dtype": "auto",
        **_EAGER,
    }
    with reading(location, "a folder with a Hugging Face model"):
        model, info = model_class.from_pretrained(location, **settings)
    # A model without a head may have been saved without its pooler
    missing = sorted(info["missing_keys"])
    if architecture.head == "none" and missing and all(name.startswith("pooler.") for name in missing):
        model, info = model_class.from_pretrained(location, add_pooling_layer=False, **settings)
    return model, info


def _check_weights(location: str | Path, config: Any, family: str, local_files_only: bool) -> None:
    """Check the files of weights before they are opened: their shapes, or on the hub the names in their index."""
    if isinstance(location, Path):
        check_stored_sizes(location, config, family)
        return
    options = {"local_files_only": local_files_only, "_raise_exceptions_for_missing_entries": False}
    index = cached_file(location, INDEX, **options)
    if index is not None:
        shards(Path(index))


@contextmanager
def quiet() -> Iterator[None]:
    """Silence progress bars and load reports of `transformers`: what they report is checked here."""
    verbosity = logging.get_verbosity()
    bars = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
