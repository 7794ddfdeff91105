"""What may be read of a Hugging Face folder: plain safetensors within it, and settings that choose no code."""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from hooks.files import read_json, readable_file, shortened

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLED = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt")
TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model")
_PLAIN = re.compile(r"\w[\w.-]*")
_AXES = {
    "gpt2": ("vocab_size", "n_positions", "n_embd", "n_inner"),
    "bert": ("vocab_size", "max_position_embeddings", "hidden_size", "intermediate_size", "type_vocab_size"),
}


def check_folder(path: Path) -> None:
    """Refuse a folder without a model that can be opened safely.

    Raises:
        FileNotFoundError: no such folder, no config, or weights that are missing.
        ValueError: a single file, pickled weights, an index that names other files than safetensors of the folder, a
            file that is a link to outside the folder, or a config or index that cannot be read.
    """
    if not path.exists():
        raise FileNotFoundError(f"there is no folder {path}.")
    if path.is_file():
        raise ValueError(f"{path} is a single file; pass the folder that holds it together with its config.json.")
    if not (path / "config.json").is_file():
        raise FileNotFoundError(f"the folder {path} has no config.json; is it one that save_pretrained wrote?")
    read_json(path / "config.json", "the config of a Hugging Face model", allow_nan=True)
    names = weight_files(path)
    check_links(path, ["config.json", *names])


def weight_files(path: Path) -> list[str]:
    """Names of the safetensors files of a folder.

    Raises:
        FileNotFoundError, ValueError: as `check_folder`.
    """
    if (path / WEIGHTS).is_file():
        return [WEIGHTS]
    if (path / INDEX).is_file():
        names = shards(path / INDEX)
        for name in names:
            if not (path / name).is_file():
                raise FileNotFoundError(
                    f"the weights in {path} are not complete: the index names {name}, which is missing."
                )
        _check_tensors_of_shards(path)
        return [INDEX, *names]
    pickled = sorted(file.name for pattern in PICKLED for file in path.glob(pattern))
    if pickled:
        raise ValueError(
            f"the folder {path} has its weights in {pickled[0]}, a pickle, which can execute code when it is read. "
            f"Where you trust it, open it with transformers and save it again as safetensors: "
            f"model.save_pretrained(folder, safe_serialization=True)."
        )
    raise FileNotFoundError(f"the folder {path} has no {WEIGHTS} (or {INDEX}).")


def shards(index: Path) -> list[str]:
    """Names of the files that an index lists.

    Raises:
        ValueError: it cannot be read, or names a file that is no safetensors file next to it.
    """
    listed = read_json(index, "an index of safetensors files").get("weight_map")
    if not isinstance(listed, dict) or not listed:
        raise ValueError(f"{index} is not an index of safetensors files: its weight_map is missing or empty.")
    for tensor, name in listed.items():
        if not isinstance(name, str) or not _PLAIN.fullmatch(name) or not name.endswith(".safetensors"):
            raise ValueError(
                f"{index} has {shortened(repr(tensor))} in {shortened(repr(name))}; only *.safetensors files in the "
                f"same folder are read."
            )
    return sorted(set(listed.values()))


def _check_tensors_of_shards(path: Path) -> None:
    """Check that each shard holds the tensors which the index assigns to it, and no other.

    Raises:
        ValueError: a tensor that is in another shard, or in several; or a shard that cannot be read.
    """
    assigned: dict[str, str] = read_json(path / INDEX, "an index of safetensors files")["weight_map"]
    for shard in sorted(set(assigned.values())):
        expected = {tensor for tensor, name in assigned.items() if name == shard}
        stored = set(_stored_shapes(path / shard))
        if different := sorted(expected ^ stored):
            fault = "does not have" if different[0] in expected else "has"
            raise ValueError(
                f"{path / shard} {fault} the tensor {shortened(different[0])!r}, which {INDEX} assigns to "
                f"{shortened(assigned.get(different[0], 'no file'))}."
            )


def check_links(path: Path, names: Iterable[str]) -> None:
    """Refuse files that are links to outside the folder; links to the blobs of a hub cache are valid.

    Raises:
        ValueError: the first such file.
    """
    # In a hub cache the files of a snapshot are links to blobs
    inside = [path.resolve()]
    if path.absolute().parent.name == "snapshots":
        inside.append(path.absolute().parents[1].resolve() / "blobs")
    for name in names:
        if (path / name).exists() and (path / name).resolve().parent not in inside:
            raise ValueError(f"{path / name} is a link to outside the folder, which is not followed. Copy the file.")


def check_stored_sizes(path: Path, config: Any, family: str) -> None:
    """Check the sizes of a config against the shapes in the files, before a model of these sizes is built.

    Raises:
        ValueError: more layers than tensors, an axis longer than any of a stored tensor, or files that cannot be read.
    """
    # Only the headers of the files are read
    files = [path / name for name in weight_files(path) if name.endswith(".safetensors")]
    shapes = [shape for file in files for shape in _stored_shapes(file).values()]
    longest = max((size for shape in shapes for size in shape), default=0)
    # A layer has at least one tensor, unless all layers share theirs
    axes = _AXES["gpt2" if family == "gpt2" else "bert"]
    limits = {name: longest for name in axes if getattr(config, name, None) is not None}
    limits["num_hidden_layers"] = 1000 if family == "albert" else len(shapes)
    for name, limit in limits.items():
        size = getattr(config, name)
        if not isinstance(size, int) or not 1 <= size <= limit:
            raise ValueError(
                f"the weights in {path} do not fit its config: {name} is {shortened(repr(size))}, but the "
                f"{len(shapes)} stored tensors have axes of at most {longest}."
            )


def _stored_shapes(file: Path) -> dict[str, list[int]]:
    """Shapes of the tensors of a safetensors file by name, from its header."""
    try:
        with safe_open(readable_file(file), framework="pt") as stored:
            return {name: stored.get_slice(name).get_shape() for name in stored.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(
            f"the weights in {file.parent} cannot be read ({file.name}: {shortened(str(error))}). Is a file cut short?"
        ) from None


def check_tokenizer_files(path: Path) -> None:
    """Check the files of a tokenizer.

    Raises:
        ValueError: one is a link to outside the folder, or names a file elsewhere.
    """
    names = [*TOKENIZER_FILES, *(file.name for file in path.glob("*token*.json")), "merges.txt"]
    check_links(path, names)
    for file in sorted(path.glob("*token*.json")):
        try:
            values = json.loads(file.read_text(encoding="utf-8"))
        except (ValueError, RecursionError):  # the tokenizer's own parser reports it
            continue
        if not isinstance(values, dict):
            continue
        for name, value in values.items():
            if name.endswith("_file") and isinstance(value, str) and not _PLAIN.fullmatch(value):
                raise ValueError(f"{file} names {shortened(repr(value))} as {name}; only files of its folder are read.")
