"""A compiled program: its weights, the names of what they hold, examples with answers, and what each head selects."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from hooks.arrays import MOST_NUMBERS, read_arrays, read_headers
from hooks.checks import check_number
from hooks.files import read_json, reading, shortened

PACK = "a pack of a compiled program"
MOST = 2**16
"""Largest size of a pack: no compiled program is near it."""


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
        found: dict[str, list[int]] = {}
        for at, name in enumerate(self.residual):
            found.setdefault(name.split(":", 1)[0], []).append(at)
        return {name: tuple(places) for name, places in found.items()}


def read_program(path: str | Path) -> Program:
    """Read a pack: `NAME.json` with sizes and names, and `NAME.npz` with plain arrays. Nothing is executed.

    Args:
        path: The JSON file, the npz file, or their common name without an ending.

    Raises:
        FileNotFoundError: one of the two files is not there.
        ValueError: a file that cannot be read, names or sizes that are missing, or arrays that do not fit them.
    """
    stem = Path(path).expanduser()
    stem = stem.with_suffix("") if stem.suffix in (".json", ".npz") else stem
    about, arrays = (stem.with_name(stem.name + ending) for ending in (".json", ".npz"))
    for file in (about, arrays):
        if not file.is_file():
            raise FileNotFoundError(f"there is no {file}; {PACK} is a .json and a .npz file of one name.")
    values = read_json(about, PACK)
    with reading(about, PACK):
        sizes = _sizes(values)
        words = _words(values)
        selectors = tuple(_selector(one, sizes) for one in _list(values, "heads"))
        shape = _list(values, "relations_shape")
        pos = sizes["max_seq_len"]
        if shape[:1] + shape[2:] != [len(selectors), pos, pos] or not 0 <= shape[1] <= sizes["n_examples"]:
            raise ValueError(f"relations_shape is {shape}; it must be (head, some examples, {pos}, {pos}).")
    with reading(arrays, PACK):
        shapes = _shapes(sizes, words) | {"relations": (-(-math.prod(shape) // 8),)}
        kinds = {"tokens": "iu", "relations": "u", "targets": "iu" if words["output_values"] else "f"}
        found = _arrays(arrays, shapes, kinds)
        program = Program(
            **words,
            selectors=selectors,
            relations=np.unpackbits(found.pop("relations"), count=math.prod(shape)).astype(bool).reshape(shape),
            examples=found.pop("tokens").astype(np.int64),
            targets=found.pop("targets"),
            weights=found,
        )
        _check_values(program)
    return program


def _sizes(values: Mapping[str, Any]) -> dict[str, int]:
    found = {}
    for name in ("n_layers", "n_heads", "d_head", "d_mlp", "d_model", "max_seq_len", "n_examples"):
        check_number(name, values[name], whole=True, low=0 if name == "d_mlp" else 1, high=MOST)
        found[name] = int(values[name])
    if values["normalization"] is not None or values["activation"] != "relu" or values["attn_scale"] != 1:
        raise ValueError(
            f"normalization is {values['normalization']!r}, activation {values['activation']!r}, attn_scale "
            f"{values['attn_scale']!r}; compiled programs have None, 'relu' and 1."
        )
    return found


def _words(values: Mapping[str, Any]) -> dict[str, Any]:
    tokens, kind = _names(values, "tokens"), values["output"]
    if kind not in ("categorical", "numerical"):
        raise ValueError(f"output is {shortened(repr(kind))}; it must be 'categorical' or 'numerical'.")
    if not isinstance(values["causal"], bool):
        raise ValueError(f"causal is {shortened(repr(values['causal']))}; it must be true or false.")
    for name in ("bos", "pad"):
        if values[name] not in tokens and not (name == "bos" and values[name] is None):
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
        "output_values": _names(values, "output_values") if kind == "categorical" else None,
    }


def _list(values: Mapping[str, Any], name: str) -> list[Any]:
    if not isinstance(values[name], list):
        raise ValueError(f"{name} is {shortened(repr(values[name]))}; it must be a list.")
    return values[name]


def _names(values: Mapping[str, Any], name: str) -> tuple[str, ...]:
    found = _list(values, name)
    if not found or not all(isinstance(one, str) for one in found) or len(set(found)) < len(found):
        raise ValueError(f"{name} is {shortened(repr(found))}; it must be a list of different names.")
    return tuple(found)


def _selector(values: Mapping[str, Any], sizes: Mapping[str, int]) -> Selector:
    for name, limit in (("layer", "n_layers"), ("head", "n_heads")):
        check_number(name, values[name], whole=True, low=0, high=sizes[limit] - 1)
    select = values["selector"].get("select")
    words = json.dumps(values["selector"]) if select is None else "{keys} {predicate} {queries}".format(**select)
    return Selector(
        layer=int(values["layer"]),
        head=int(values["head"]),
        writes=tuple(map(str, _list(values, "writes"))),
        reads=tuple(map(str, _list(values, "reads"))),
        selects=shortened(words),
        counts=values["use"] == "selector_width",
    )


def _shapes(sizes: Mapping[str, int], program: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The shape that each array must have, by the sizes of the JSON file."""
    n_layers, n_heads, d_head = sizes["n_layers"], sizes["n_heads"], sizes["d_head"]
    d_model, d_mlp, n, pos = sizes["d_model"], sizes["d_mlp"], sizes["n_examples"], sizes["max_seq_len"]
    reads, writes = (n_layers, n_heads, d_model, d_head), (n_layers, n_heads, d_head, d_model)
    return {
        "W_E": (len(program["tokens"]), d_model),
        "W_pos": (pos + 1, d_model),
        "W_Q": reads, "W_K": reads, "W_V": reads, "W_O": writes,
        "W_in": (n_layers, d_model, d_mlp), "W_out": (n_layers, d_mlp, d_model),
        "W_U": (d_model, len(program["output_values"] or [""])),
        "tokens": (n, pos), "targets": (n, pos),
    }  # fmt: skip


def _arrays(path: Path, shapes: Mapping[str, tuple[int, ...]], kinds: Mapping[str, str]) -> dict[str, np.ndarray]:
    """The arrays of a pack, whose headers are compared with the shapes before anything is read."""
    if (numbers := sum(map(math.prod, shapes.values()))) > MOST_NUMBERS:
        raise ValueError(f"its sizes say {numbers:,} numbers; at most {MOST_NUMBERS:,} are read.")
    headers = read_headers(path)
    for name, shape in shapes.items():
        found, dtype = headers[name]
        if found != shape or dtype.kind not in kinds.get(name, "f"):
            raise ValueError(f"{name} has shape {found} and type {dtype}; by the sizes it must be {shape}.")
    return read_arrays(path, shapes)


def _check_values(program: Program) -> None:
    """Check that numbers are finite, and that ids are those of tokens and answers."""
    for name, weight in program.weights.items():
        if not np.isfinite(weight).all():
            raise ValueError(f"{name} has numbers that are not finite.")
    ids, targets = program.examples, program.targets
    if ids.min() < 0 or ids.max() >= len(program.tokens):
        raise ValueError(f"tokens has ids from {ids.min()} to {ids.max()}; there are {len(program.tokens)} tokens.")
    if program.output_values is not None and not -1 <= targets.min() <= targets.max() < len(program.output_values):
        raise ValueError(
            f"targets has classes from {targets.min()} to {targets.max()}; there are {len(program.output_values)} "
            f"values, and -1 for no answer."
        )
    if not program.scored.any():
        raise ValueError("targets has no answer.")
    if (program.scored & (ids == program.tokens.index(program.pad))).any():
        raise ValueError(f"targets has an answer at a {program.pad!r} token.")
    places = [(one.layer, one.head) for one in program.selectors]
    if len(set(places)) < len(places):
        raise ValueError(f"heads is {shortened(repr(places))}; it names a head twice.")
