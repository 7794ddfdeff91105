"""Checkpoints: one safetensors file with weights and config. Loading never executes code."""

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from hooks.atomic import write_bytes
from hooks.model.architectures import Config, Model, config_from_dict, make_model

FORMAT = "unmyopic"
VERSION = 1


def save_checkpoint(model: Model, path: str | Path) -> None:
    """Save a model's weights and config to one file, atomically. Tied weights are stored once."""
    tensors = {name: tensor.detach().contiguous().cpu() for name, tensor in model.state_dict().items()}
    write_tensors(path, tensors, kind="model", description=model.cfg.to_dict())


def load_checkpoint(path: str | Path, *, cfg: Config | None = None) -> Any:
    """Load a model from a file that `save_checkpoint` wrote, in evaluation mode.

    Args:
        path: The file.
        cfg: Expected config; if None, any.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: not a checkpoint, a truncated file, a newer format version, another config than `cfg`, or weights
            that do not fit the stored config.
    """
    tensors, description = read_tensors(path, kind="model")
    stored = config_from_dict(description)
    if cfg is not None and cfg != stored:
        theirs, ours = stored.to_dict(), cfg.to_dict()
        names = [name for name in {**ours, **theirs} if theirs.get(name) != ours.get(name)]
        differs = ", ".join(f"{name} is {theirs.get(name)!r}, not {ours.get(name)!r}" for name in names)
        raise ValueError(f"the checkpoint {path} has another config: {differs}.")
    model = make_model(stored).to(dtype=next((tensor.dtype for tensor in tensors.values()), None))
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise ValueError(f"the weights in {path} do not fit the stored config: {error}") from None
    return model.eval()


def write_tensors(path: str | Path, tensors: dict[str, Tensor], *, kind: str, description: dict) -> None:
    """Write named tensors and a JSON description to one safetensors file, atomically."""
    metadata = {"format": FORMAT, "version": str(VERSION), "kind": kind, "description": json.dumps(description)}
    write_bytes(path, save(tensors, metadata))


def read_tensors(path: str | Path, *, kind: str) -> tuple[dict[str, Tensor], dict]:
    """Read a file that `write_tensors` wrote: tensors and description.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a truncated or foreign file, another kind, or a newer format version.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no checkpoint at {path}.")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path} is not a readable checkpoint ({error}). Is it cut short, or another file?") from None
    if metadata.get("format") != FORMAT:
        raise ValueError(f"{path} is a safetensors file, but not a checkpoint of unmyopic.")
    if int(metadata["version"]) > VERSION:
        raise ValueError(f"{path} has format version {metadata['version']}; this unmyopic reads {VERSION}. Upgrade it.")
    if metadata["kind"] != kind:
        raise ValueError(f"{path} holds a {metadata['kind']}, not a {kind}.")
    return tensors, json.loads(metadata["description"])
