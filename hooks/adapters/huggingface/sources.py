"""Where a Hugging Face model comes from: an object, a folder or the hub. Nothing is unpickled or executed."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers.utils import logging

from hooks.adapters.huggingface.configs import architecture_named, check_settings

PICKLED = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt")
TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model")
_HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
_SAFE: dict[str, Any] = {"trust_remote_code": False}


def find_model(model_or_path: Any) -> tuple[Any, list[str], str | Path | None]:
    """The model object, names of stored weights that it did not take, and the folder or hub name it came from.

    Raises:
        ValueError, FileNotFoundError, ConnectionError: as `from_huggingface`.
    """
    if isinstance(model_or_path, torch.nn.Module):
        return model_or_path, [], None
    if not isinstance(model_or_path, str | Path):
        raise ValueError(
            f"model_or_path is a {type(model_or_path).__name__}; pass a model of transformers, a folder or a hub name."
        )
    path = Path(model_or_path).expanduser()
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


def check_folder(path: Path) -> None:
    """Refuse a folder that holds no model which can be opened safely.

    Raises:
        FileNotFoundError: no such folder, or no config or weights in it, or not all of them.
        ValueError: a single file, pickled weights only, or JSON that cannot be read.
    """
    if not path.exists():
        raise FileNotFoundError(f"there is no folder {path}.")
    if path.is_file():
        raise ValueError(f"{path} is a single file; pass the folder that holds it together with its config.json.")
    if not (path / "config.json").is_file():
        raise FileNotFoundError(f"the folder {path} has no config.json; is it one that save_pretrained wrote?")
    _json_object(path / "config.json")
    if (path / "model.safetensors").is_file():
        return
    if (path / "model.safetensors.index.json").is_file():
        _check_shards(path)
        return
    pickled = sorted(file.name for pattern in PICKLED for file in path.glob(pattern))
    if pickled:
        raise ValueError(
            f"the folder {path} has its weights in {pickled[0]}, a pickle, which can execute code when it is read. "
            f"Where you trust it, open it with transformers and save it again as safetensors: "
            f"model.save_pretrained(folder, safe_serialization=True)."
        )
    raise FileNotFoundError(f"the folder {path} has no model.safetensors (or model.safetensors.index.json).")


def _check_shards(path: Path) -> None:
    files = _json_object(path / "model.safetensors.index.json").get("weight_map")
    for name in sorted(set(files.values())) if isinstance(files, dict) else []:
        if not (path / name).is_file():
            raise FileNotFoundError(
                f"the weights in {path} are not complete: the index names {name}, which is missing."
            )


def _json_object(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"the {path.name} in {path.parent} cannot be read: {error}") from None
    if not isinstance(values, dict):
        raise ValueError(f"the {path.name} in {path.parent} cannot be read: it holds no object of names and values.")
    return values


def find_tokenizer(location: str | Path) -> Any:
    """The tokenizer of a folder or hub name.

    Raises:
        FileNotFoundError: there is none.
        ValueError: there is one that cannot be read.
    """
    local = isinstance(location, Path)
    missing = f"{location} has no tokenizer ({', '.join(TOKENIZER_FILES)}); with_tokenizer=False loads the model alone."
    if isinstance(location, Path) and not any((location / name).is_file() for name in TOKENIZER_FILES):
        raise FileNotFoundError(missing)
    try:
        with quiet():
            return transformers.AutoTokenizer.from_pretrained(location, local_files_only=local, **_SAFE)
    except OSError as error:
        raise FileNotFoundError(missing) from error
    except Exception as error:  # whatever a broken file makes of the parsers
        raise ValueError(
            f"the tokenizer of {location} cannot be read ({error}); with_tokenizer=False loads the model alone."
        ) from error


def _read(location: str | Path, *, local_files_only: bool) -> tuple[Any, list[str]]:
    """The model, and names of stored weights that it did not take."""
    try:
        with quiet(), torch.random.fork_rng(devices=[]):  # what is drawn on the way is overwritten
            values, _ = transformers.PretrainedConfig.get_config_dict(location, local_files_only=local_files_only)
            architecture = architecture_named(_first(values.get("architectures")), str(location))
            check_settings(values, architecture)
            make = getattr(transformers, architecture.name)
            config = make.config_class.from_dict(values)
            config.dtype = None  # as the weights are stored, whatever the config says
            more = {"config": config, "local_files_only": local_files_only, "output_loading_info": True, **_SAFE}
            settings = {**more, "use_safetensors": True, "ignore_mismatched_sizes": True, "dtype": "auto"}
            model, info = make.from_pretrained(location, **settings)
            missing = sorted(info["missing_keys"])
            if architecture.head == "none" and missing and all(name.startswith("pooler.") for name in missing):
                model, info = make.from_pretrained(location, add_pooling_layer=False, **settings)
    except SafetensorError as error:
        raise ValueError(f"the weights in {location} cannot be read ({error}). Is a file cut short?") from None
    except StrictDataclassError as error:
        raise ValueError(f"the config.json in {location} cannot be read: {error}") from None
    _check_info(info, str(location))
    return model.float() if model.dtype in (torch.float16, torch.bfloat16) else model, sorted(info["unexpected_keys"])


def _first(names: Any) -> Any:
    return names[0] if isinstance(names, list) and names else names or None


def _check_info(info: dict[str, Any], where: str) -> None:
    for name in sorted(info["missing_keys"]):
        raise ValueError(f"the weights in {where} do not fit its config: {name} is missing.")
    for name, found, wanted in sorted(info["mismatched_keys"]):
        raise ValueError(
            f"the weights in {where} do not fit its config: {name} is {tuple(found)}, by the config {tuple(wanted)}."
        )


@contextmanager
def quiet() -> Iterator[None]:
    """Keep progress bars and load reports of `transformers` away: what they would say is checked here."""
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
