"""Checkpoints: one safetensors file with weights and config. Loading never executes code."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from hooks.files import Unreadable, parse_json, readable_file, reading, shortened, write_bytes
from hooks.model.architectures import Config, Model, config_from_dict, make_model
from hooks.model.fully_connected import FullyConnectedConfig
from hooks.model.recurrent import RecurrentConfig
from hooks.typed import checks_types

FORMAT = "unmyopic"
VERSION = 1


@checks_types
def save_checkpoint(model: Model, path: str | Path) -> None:
    """Save a model's weights and config to one file, atomically. Tied weights are stored once.

    >>> import tempfile
    >>> import hooks
    >>> model = hooks.Transformer(hooks.presets.lego(d_vocab=9))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     hooks.save_checkpoint(model, f"{folder}/model.safetensors")
    ...     loaded = hooks.load_checkpoint(f"{folder}/model.safetensors", cfg=model.cfg)

    Args:
        model: The model.
        path: The file, which is replaced if it exists.

    Raises:
        ValueError: weights that `load_checkpoint` could not read again: those of a compiled, pruned or parametrised
            model, or tensors that its config does not make.
    """
    write_bytes(path, checkpoint_bytes(model))


def checkpoint_bytes(model: Model, run: str = "") -> bytes:
    """The content of the file that `save_checkpoint` writes.

    Args:
        model: The model.
        run: As in `write_tensors`.

    Raises:
        ValueError: as `save_checkpoint`.
    """
    _check_can_be_read(model)
    tensors = {name: tensor.detach().contiguous().cpu() for name, tensor in model.state_dict().items()}
    return tensor_bytes(tensors, kind="model", description=model.cfg.to_dict(), run=run)


@checks_types
def load_checkpoint(path: str | Path, *, cfg: Config | None = None, allow_nonfinite: bool = False) -> Any:
    """Load a model from a file that `save_checkpoint` wrote, in evaluation mode.

    >>> import tempfile
    >>> import hooks
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     hooks.save_checkpoint(hooks.Transformer(hooks.presets.lego(d_vocab=9)), f"{folder}/model.safetensors")
    ...     hooks.load_checkpoint(f"{folder}/model.safetensors").cfg.n_layers
    6

    Args:
        path: The file.
        cfg: Expected config; if None, any.
        allow_nonfinite: Load weights that are NaN or infinite too.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: not a checkpoint, a truncated or changed file, a newer format version, another config than `cfg`,
            weights that do not fit the stored config, or weights that are not finite.
    """
    tensors, description = read_tensors(path, kind="model")
    with reading(path, "a checkpoint (its config)"):
        stored = config_from_dict(description)
    if cfg is not None and cfg != stored:
        values = stored.to_dict()
        expected = cfg.to_dict()
        names = [name for name in {**expected, **values} if values.get(name) != expected.get(name)]
        differences = [f"{name} is {values.get(name)!r}, not {expected.get(name)!r}" for name in names]
        raise ValueError(f"the checkpoint {path} has another config: {shortened(', '.join(differences))}.")
    # The file's weights are compared with the config before a model of that size is built
    _check_size(path, tensors, stored)
    if not allow_nonfinite:
        check_finite(path, tensors)
    # The model gets the dtype of the file's tensors, also where these are of several
    dtype = next((tensor.dtype for tensor in tensors.values()), None)
    model = make_model(stored).to(dtype=dtype)
    for name, tensor in model.state_dict(keep_vars=True).items():
        tensor.data = tensor.data.to(tensors[name].dtype)
    model.load_state_dict(tensors)
    return model.eval()


def _check_can_be_read(model: Model) -> None:
    """Check that a model's weights are those that its config makes.

    Raises:
        ValueError: names or shapes of the weights that differ; names the first.
    """
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    with torch.device("meta"):
        expected = {name: tuple(tensor.shape) for name, tensor in make_model(model.cfg).state_dict().items()}
    for name in {**expected, **shapes}:
        if expected.get(name) != shapes.get(name):
            raise ValueError(
                f"model has other weights than its config makes, so the file could not be loaded: {shortened(name)} is "
                f"{_shape(shapes.get(name))}, not {_shape(expected.get(name))}. If it is compiled, pruned or "
                f"parametrised, save the plain model (prune.remove, remove_parametrizations)."
            )


def check_finite(path: str | Path, tensors: Mapping[str, Tensor]) -> None:
    """Refuse weights that are NaN or infinite.

    Raises:
        ValueError: a tensor that is not finite.
    """
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            count = int((~tensor.isfinite()).sum())
            raise ValueError(
                f"{count} of the {tensor.numel()} numbers of {name} in {path} are NaN or infinite. "
                f"load_checkpoint(..., allow_nonfinite=True) loads them."
            )


def write_tensors(path: str | Path, tensors: dict[str, Tensor], *, kind: str, description: dict, run: str = "") -> None:
    """Write named tensors and a JSON description to one safetensors file, atomically.

    Equal content gives equal files. A checksum of content and description is written too.

    Args:
        path: The file, which is replaced if it exists.
        tensors: The tensors.
        kind: What they are, in words.
        description: Plain values.
        run: Hash of the training run that the file belongs to, if it belongs to one.
    """
    write_bytes(path, tensor_bytes(tensors, kind=kind, description=description, run=run))


def tensor_bytes(tensors: dict[str, Tensor], *, kind: str, description: dict, run: str = "") -> bytes:
    """The content of the file that `write_tensors` writes, with the same arguments."""
    metadata = {"format": FORMAT, "version": str(VERSION), "kind": kind, "description": json.dumps(description)}
    if run:
        metadata["run"] = run
    metadata["sha256"] = _checksum(tensors, metadata["description"] + run)
    return _sorted_header(save(tensors, metadata))


def read_tensors(path: str | Path, *, kind: str, run: str = "") -> tuple[dict[str, Tensor], dict]:
    """Read a file that `write_tensors` wrote: tensors and description.

    Args:
        path: The file.
        kind: What its tensors should be.
        run: Hash of the training run that it should belong to, if that is known.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a truncated, changed or foreign file, another kind, a newer format version, or a file of another
            run.
    """
    path = readable_file(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no checkpoint at {path}.")
    # Read tensors and metadata; nothing is executed
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        with path.open("rb") as file:
            is_pickle = file.read(2) in (b"PK", b"\x80\x02")
        hint = "Is it cut short, or another file?"
        if is_pickle:
            hint = "It is one of torch.save: build the model, and load torch.load(path, weights_only=True) into it."
        raise Unreadable(f"{path} is not a readable checkpoint ({shortened(str(error))}). {hint}") from None
    if metadata.get("format") != FORMAT:
        raise Unreadable(f"{path} is a safetensors file, but not a checkpoint of unmyopic.")
    # Check version, kind and checksum
    with reading(path, "a checkpoint"):
        if int(metadata["version"]) > VERSION:
            raise Unreadable(
                f"{path} has format version {shortened(metadata['version'])}; this unmyopic reads {VERSION}. "
                f"Upgrade it."
            )
        if metadata["kind"] != kind:
            raise Unreadable(f"{path} holds a {shortened(metadata['kind'])}, not a {kind}.")
        file_run = metadata.get("run", "")
        if "sha256" in metadata and metadata["sha256"] != _checksum(tensors, metadata["description"] + file_run):
            raise Unreadable(f"{path} has changed since it was written: its checksum is not that of its content.")
        if run and file_run != run:
            raise Unreadable(
                f"{path} is of another training run than its manifest.json. Put its own files back, or train again "
                f"with fresh=True."
            )
        description = parse_json(metadata["description"])
        if not isinstance(description, dict):
            raise TypeError("its description is not an object.")
    return tensors, description


def _checksum(tensors: Mapping[str, Tensor], description: str) -> str:
    """SHA-256 of description, names, types, shapes and values."""
    digest = hashlib.sha256(description.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _sorted_header(content: bytes) -> bytes:
    """A safetensors file with the entries of its header sorted, which the library writes in random order."""
    size = int.from_bytes(content[:8], "little")
    header = json.dumps(json.loads(content[8 : 8 + size]), sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)  # the tensors start at a multiple of eight bytes
    return len(header).to_bytes(8, "little") + header + content[8 + size :]


def _check_size(path: str | Path, tensors: Mapping[str, Tensor], cfg: Config) -> None:
    """Compare the file's weights with those of the config, before a model of that size is built.

    Raises:
        ValueError: names or shapes of the weights that are not those of the config.
    """
    # A number of layers that would take minutes to build is refused first
    n_layers = _count_stored_layers(cfg)
    if n_layers > len(tensors):
        raise Unreadable(f"the weights in {path} do not fit the stored config: it has {n_layers} layers with weights.")
    # Without memory for the weights, only names and shapes are made
    with reading(path, "a checkpoint (its config)"), torch.device("meta"):
        expected = {name: tuple(tensor.shape) for name, tensor in make_model(cfg).state_dict().items()}
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    for name in {**expected, **shapes}:
        if expected.get(name) != shapes.get(name):
            raise Unreadable(
                f"the weights in {path} do not fit the stored config: {shortened(name)} is {_shape(shapes.get(name))}, "
                f"not {_shape(expected.get(name))}."
            )


def _count_stored_layers(cfg: Config) -> int:
    if isinstance(cfg, FullyConnectedConfig):
        return cfg.depth
    return 1 if isinstance(cfg, RecurrentConfig) or cfg.tied else cfg.n_layers


def _shape(shape: tuple[int, ...] | None) -> str:
    return "absent" if shape is None else f"of shape {shape}"
