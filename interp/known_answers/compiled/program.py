"""A compiled program: its weights, the names of what they hold, examples with answers, and what each head selects."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from hooks.arrays import read_arrays, read_headers
from hooks.checks import check_choice, check_class, check_number
from hooks.files import read_json, readable_file, reading, shortened, user_path

PACK = "a pack of a compiled program"
SIZES = ("n_layers", "n_heads", "d_head", "d_mlp", "d_model", "max_seq_len", "n_examples")
"""Names of the sizes in the JSON file."""


@dataclass(frozen=True, kw_only=True)
class Selector:
    """What a head does, by the program."""

    layer: int
    head: int
    writes: tuple[str, ...]
    """Variables whose coordinates it writes."""
    reads: tuple[str, ...]
    """Variables whose values it moves."""
    selects: str
    """Which keys it selects, in words: `indices LEQ indices` are keys whose index is at most the query's."""
    counts: bool
    """It counts the selected keys: it attends to them and to the first token evenly, so that the first token's weight
    is 1 / (1 + their number). Otherwise it takes the mean of what it reads at the selected keys."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """A compiled program, checked: every array has the shape that the sizes say."""

    name: str
    description: str
    source: str
    tokens: tuple[str, ...]
    """Token names by id."""
    bos: str | None
    """First token of every example, if any."""
    pad: str
    """Token that fills up short examples; it is masked as a key, since the program never sees it."""
    causal: bool
    residual: tuple[str, ...]
    """Name of each coordinate of the residual stream: `variable:value` if it is one-hot, else `variable`."""
    output_values: tuple[str, ...] | None
    """Name of each answer of a categorical program; None if the output is a number."""
    selectors: tuple[Selector, ...]
    """The heads that do something; all others are zero."""
    weights: Mapping[str, Float[np.ndarray, "..."]]
    """`W_E` (token, d_model), `W_pos` (pos, d_model), `W_Q`, `W_K`, `W_V` (layer, head, d_model, d_head), `W_O` (layer,
    head, d_head, d_model), `W_in` (layer, d_model, d_mlp), `W_out` (layer, d_mlp, d_model), `W_U` (d_model, out)."""
    examples: Int[np.ndarray, "example pos"]
    """Inputs on which the program was evaluated."""
    targets: Shaped[np.ndarray, "example pos"]
    """The program's answers: a class, or -1 where there is none; or a number, or NaN."""
    relations: Bool[np.ndarray, "selector some query key"]
    """Keys that each selector selects, on the first examples."""

    @property
    def numerical(self) -> bool:
        """Whether the output is a number."""
        return self.output_values is None

    @property
    def scored(self) -> Bool[np.ndarray, "example pos"]:
        """Where the program has an answer."""
        return np.isfinite(self.targets) if self.numerical else self.targets >= 0

    @property
    def variables(self) -> dict[str, tuple[int, ...]]:
        """Coordinates of each variable."""
        coordinates: dict[str, list[int]] = {}
        for coordinate, label in enumerate(self.residual):
            coordinates.setdefault(label.split(":", 1)[0], []).append(coordinate)
        return {name: tuple(of_variable) for name, of_variable in coordinates.items()}


def read_program(path: str | Path) -> Program:
    """Read a pack: `NAME.json` with sizes and names, and `NAME.npz` with plain arrays. Nothing is executed.

    Args:
        path: The JSON file, the npz file, or their common name without an ending.

    Raises:
        FileNotFoundError: one of the two files is not there.
        ValueError: a file that cannot be read, names or sizes that are missing, or arrays that do not fit them.
    """
    stem = user_path(path)
    if stem.suffix in (".json", ".npz"):
        stem = stem.with_suffix("")
    json_file = stem.with_name(f"{stem.name}.json")
    array_file = stem.with_name(f"{stem.name}.npz")
    for file in (json_file, array_file):
        if not readable_file(file).is_file():
            raise FileNotFoundError(f"there is no {file}; {PACK} is a .json and a .npz file of one name.")
    # Sizes and names
    values = read_json(json_file, PACK)
    with reading(json_file, PACK):
        sizes = _sizes(values)
        names = _names_and_kind(values)
        selectors = tuple(_selector(head, sizes) for head in _list(values, "heads"))
        related_shape = _related_shape(values, sizes, len(selectors))
    with reading(array_file, PACK):
        # Arrays; their headers are compared with the sizes before any of them is read
        n_bits = math.prod(related_shape)
        shapes = _shapes(sizes, names) | {"relations": (-(-n_bits // 8),)}
        _check_headers(array_file, shapes, {"targets": "iu" if names["output_values"] else "f"})
        arrays = read_arrays(array_file, shapes)
        bits = np.unpackbits(arrays.pop("relations"), count=n_bits)
        program = Program(
            **names,
            selectors=selectors,
            relations=bits.astype(bool).reshape(related_shape),
            examples=arrays.pop("tokens").astype(np.int64),
            targets=arrays.pop("targets"),
            weights=arrays,
        )
        _check_values(program)
    return program


def _sizes(values: Mapping[str, Any]) -> dict[str, int]:
    values = {"n_positions": values["max_seq_len"] + 1, **values}
    for name in (*SIZES, "n_positions"):
        check_number(name, values[name], integer=True, low=0 if name == "d_mlp" else 1)
    if values["normalization"] is not None or values["activation"] != "relu" or values["attn_scale"] != 1:
        raise ValueError(
            f"normalization is {values['normalization']!r}, activation {values['activation']!r}, attn_scale "
            f"{values['attn_scale']!r}; compiled programs have None, 'relu' and 1."
        )
    return {name: int(values[name]) for name in (*SIZES, "n_positions")}


def _names_and_kind(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a `Program` that are texts or lists of texts, and whether it is causal."""
    tokens = _names(values, "tokens")
    check_choice("output", values["output"], Literal["categorical", "numerical"])
    check_class("causal", values["causal"], bool)
    # Special tokens are among the tokens; there may be no first one
    special_tokens = ["pad"] if values["bos"] is None else ["bos", "pad"]
    for name in special_tokens:
        if values[name] not in tokens:
            raise ValueError(f"{name} is {shortened(repr(values[name]))}, which is none of the tokens.")
    return {
        "name": str(values["case"]),
        "description": str(values["description"]),
        "source": str(values["source"]),
        "tokens": tokens,
        "bos": values["bos"],
        "pad": values["pad"],
        "causal": values["causal"],
        "residual": _names(values, "residual"),
        "output_values": _names(values, "output_values") if values["output"] == "categorical" else None,
    }


def _list(values: Mapping[str, Any], name: str) -> list[Any]:
    check_class(name, values[name], list)
    return values[name]


def _names(values: Mapping[str, Any], name: str) -> tuple[str, ...]:
    names = _list(values, name)
    if not names or not all(isinstance(text, str) for text in names) or len(set(names)) < len(names):
        raise ValueError(f"{name} is {shortened(repr(names))}; it must be a list of different names.")
    return tuple(names)


def _selector(values: Mapping[str, Any], sizes: Mapping[str, int]) -> Selector:
    for name, limit in (("layer", "n_layers"), ("head", "n_heads")):
        check_number(name, values[name], integer=True, low=0, high=sizes[limit] - 1)
    # In words, or as tracr's parts
    words = values["selector"]
    if not isinstance(words, str):
        select = words.get("select")
        words = json.dumps(words) if select is None else "{keys} {predicate} {queries}".format(**select)
    return Selector(
        layer=int(values["layer"]),
        head=int(values["head"]),
        writes=tuple(map(str, _list(values, "writes"))),
        reads=tuple(map(str, _list(values, "reads"))),
        selects=shortened(words),
        counts=values["use"] == "selector_width",
    )


def _related_shape(values: Mapping[str, Any], sizes: Mapping[str, int], n_selectors: int) -> list[int]:
    """Shape of `Program.relations`, which are stored as bits."""
    shape = _list(values, "relations_shape")
    pos = sizes["max_seq_len"]
    if shape[:1] + shape[2:] != [n_selectors, pos, pos] or not 0 <= shape[1] <= sizes["n_examples"]:
        raise ValueError(f"relations_shape is {shape}; it must be (head, some examples, {pos}, {pos}).")
    return shape


def _shapes(sizes: Mapping[str, int], names: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The shape that each array must have, by the sizes of the JSON file."""
    n_layers, n_heads, d_head, d_mlp, d_model, pos, n_examples = (sizes[name] for name in SIZES)
    head_input = (n_layers, n_heads, d_model, d_head)
    return {
        "W_E": (len(names["tokens"]), d_model),
        "W_pos": (sizes["n_positions"], d_model),
        "W_Q": head_input,
        "W_K": head_input,
        "W_V": head_input,
        "W_O": (n_layers, n_heads, d_head, d_model),
        "W_in": (n_layers, d_model, d_mlp),
        "W_out": (n_layers, d_mlp, d_model),
        "W_U": (d_model, len(names["output_values"] or [""])),
        "tokens": (n_examples, pos),
        "targets": (n_examples, pos),
    }


def _check_headers(path: Path, shapes: Mapping[str, tuple[int, ...]], kinds: Mapping[str, str]) -> None:
    """Check shapes, and kinds of numbers as numpy's letters; weights are floats."""
    kinds = {"tokens": "iu", "relations": "u", **kinds}
    headers = read_headers(path)
    for name, shape in shapes.items():
        stored_shape, dtype = headers[name]
        if stored_shape != shape or dtype.kind not in kinds.get(name, "f"):
            raise ValueError(f"{name} has shape {stored_shape} and type {dtype}; by the sizes it must be {shape}.")


def _check_values(program: Program) -> None:
    """Check that numbers are finite, and that ids are those of tokens and answers."""
    # Finite weights
    for name, weight in program.weights.items():
        if not np.isfinite(weight).all():
            raise ValueError(f"{name} has numbers that are not finite.")
    # Ids of tokens and answers
    ids, targets = program.examples, program.targets
    if ids.min() < 0 or ids.max() >= len(program.tokens):
        raise ValueError(f"tokens has ids from {ids.min()} to {ids.max()}; there are {len(program.tokens)} tokens.")
    if program.output_values is not None and not -1 <= targets.min() <= targets.max() < len(program.output_values):
        raise ValueError(
            f"targets has classes from {targets.min()} to {targets.max()}; there are {len(program.output_values)} "
            f"values, and -1 for no answer."
        )
    # Answers only at tokens that the program sees
    if not program.scored.any():
        raise ValueError("targets has no answer.")
    if (program.scored & (ids == program.tokens.index(program.pad))).any():
        raise ValueError(f"targets has an answer at a {program.pad!r} token.")
    heads = [(selector.layer, selector.head) for selector in program.selectors]
    if len(set(heads)) < len(heads):
        raise ValueError(f"heads is {shortened(repr(heads))}; it names a head twice.")
