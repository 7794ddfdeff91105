"""A pack: a trained model of others, inputs with right answers, and what was published about the model."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from case_studies.frame.packs import Packs
from hooks import Transformer, from_transformer_lens
from hooks.arrays import read_arrays, read_headers
from hooks.checks import check_number
from hooks.files import read_json, reading, shortened
from published_readings.task import Published

PACK = "a pack of a published model"
INPUTS = ("tokens", "targets", "target_positions")
PADDING, READ_LOGITS = "key_padding_token", "read_logits"
KINDS = ("looks", "does", "needs", "not_needed", "algorithm")


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One published statement about a model."""

    id: str
    kind: str
    """looks (where it attends), does (what it computes), needs, not_needed, or algorithm."""
    statement: str
    component: Mapping[str, Any]
    """What it is about: `part`, and `layer`, `head` and others that narrow it."""
    reported: Any
    """Numbers that the authors give."""

    @property
    def heads(self) -> tuple[tuple[int, int], ...]:
        """(layer, head) of the heads that it is about."""
        one = self.component
        if one.get("part") == "head":
            return ((int(one["layer"]), int(one["head"])),)
        if one.get("part") == "heads":
            return tuple((int(layer), int(head)) for layer, head in one["heads"])
        return ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Pack:
    """A trained model, its task and the readings that were published."""

    name: str
    model: Transformer
    task: Published
    readings: Mapping[str, Reading]
    config: Mapping[str, Any]
    """Sizes in TransformerLens's terms."""
    weights: Mapping[str, np.ndarray]
    """In TransformerLens's names and axes."""
    arrays: Mapping[str, np.ndarray]
    """Further arrays on the inputs, such as the kind of each example."""
    digest: str
    """Digest of its readings."""

    def shuffled(self, seed: int) -> "Pack":
        """The same pack with the numbers of each weight in random order, a model that has learned nothing."""
        draw = np.random.default_rng(seed)
        weights = {name: draw.permutation(one.ravel()).reshape(one.shape) for name, one in self.weights.items()}
        return replace(self, weights=weights, model=_make_model(weights, self.config))

    def weight(self, name: str) -> Tensor:
        """A weight by TransformerLens's name, such as `blocks.0.attn.W_O` (head, d_head, d_model)."""
        return torch.from_numpy(self.weights[name])


@cache
def read_packs(packs: Packs) -> dict[str, Pack]:
    """Every pack of a folder by name."""
    found = [read_pack(path) for path in packs.paths]
    return {pack.name: pack for pack in found}


@cache
def read_readings(packs: Packs) -> dict[str, tuple[dict[str, Reading], str]]:
    """The readings of every pack by name, and their digest; the arrays are not read.

    Raises:
        ValueError: readings that are missing or malformed, or two packs of one name.
    """
    found: dict[str, tuple[dict[str, Reading], str]] = {}
    for path in packs.paths:
        values = read_json(path, PACK)
        with reading(path, PACK):
            if (name := str(values["name"])) in found:
                raise ValueError(f"another pack in its folder is called {shortened(name)!r} too.")
            found[name] = (_readings(values), readings_digest(values))
    return found


def readings_digest(values: Mapping[str, Any]) -> str:
    """Digest of the readings in a pack's JSON."""
    told = [[one[part] for part in ("id", "kind", "statement", "component")] for one in values["readings"]]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


def read_pack(path: Path) -> Pack:
    """Read a pack: `NAME.json` with settings and readings, and `NAME.npz` with plain arrays. Nothing is executed.

    Raises:
        FileNotFoundError: one of the two files is not there.
        ValueError: a file that cannot be read, readings or settings that are missing, or arrays that do not fit them.
    """
    about, arrays = path.with_suffix(".json"), path.with_suffix(".npz")
    for file in (about, arrays):
        if not file.is_file():
            raise FileNotFoundError(f"there is no {file}; {PACK} is a .json and a .npz file of one name.")
    values = read_json(about, PACK)
    with reading(about, PACK):
        config, readings = dict(values["config"]), _readings(values)
        for name in ("n_ctx", "d_vocab", "d_vocab_out"):
            check_number(name, config[name], integer=True, low=1)
        name, task = str(values["name"]), str(values["task"])
    with reading(arrays, PACK):
        found = _arrays(arrays, config)
        tokens, targets, positions = (torch.from_numpy(found[one].astype(np.int64)) for one in INPUTS)
        further = {
            one: found[one] for one in found if one in values["examples"].get("arrays", ()) and one not in INPUTS
        }
        weights = {one: array for one, array in found.items() if one not in INPUTS and one not in further}
        model = _make_model(weights, config)
        task = Published(
            name=name, path=about, about=task, inputs=tokens, labels=targets, positions=positions,
            d_vocab=config["d_vocab"], d_vocab_out=config["d_vocab_out"], attention=config["attention_dir"],
            padding=config[PADDING],
        )  # fmt: skip
    with reading(about, PACK):
        for one in readings.values():
            if any(layer >= model.cfg.n_layers or head >= model.cfg.n_heads for layer, head in one.heads):
                raise ValueError(f"the reading {one.id} is about head {places(one.heads)}, which the model lacks.")
    return Pack(
        name=name, model=model, task=task, readings=readings, config=config, weights=weights, arrays=further,
        digest=readings_digest(values),
    )  # fmt: skip


def _make_model(weights: Mapping[str, np.ndarray], config: Mapping[str, Any]) -> Transformer:
    """The model of a pack, from its settings but those of the task: the token of padding, and that all logits count."""
    settings = {name: value for name, value in config.items() if name != PADDING}
    if settings.get(READ_LOGITS, 0) is None:
        del settings[READ_LOGITS]
    return from_transformer_lens(weights, settings)


def _readings(values: Mapping[str, Any]) -> dict[str, Reading]:
    found = [_reading(one) for one in values["readings"]]
    if len({one.id for one in found}) < len(found):
        raise ValueError("two readings have the same id.")
    return {one.id: one for one in found}


def _reading(values: Mapping[str, Any]) -> Reading:
    if values["kind"] not in KINDS:
        raise ValueError(f"a reading has the kind {shortened(repr(values['kind']))}; the kinds are {', '.join(KINDS)}.")
    given: dict[str, str] = {name: str(values[name]) for name in ("id", "kind", "statement")}
    found = Reading(**given, component=dict(values["component"]), reported=values.get("reported"))
    for place in found.heads:
        for number in place:
            check_number("head of a reading", number, integer=True, low=0)
    return found


def _arrays(path: Path, config: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """All arrays, after a check of the shapes of the inputs and of the types."""
    headers = read_headers(path)
    for name, (shape, dtype) in headers.items():
        if dtype.kind not in ("iu" if name in INPUTS else "fiu"):
            raise ValueError(f"{name} has type {dtype}; only numbers are read.")
        if len(shape) > 3:
            raise ValueError(f"{name} has {len(shape)} axes; there are at most 3.")
    (n, pos), (answers,) = headers["tokens"][0], headers["target_positions"][0]
    if headers["targets"][0] != (n, answers) or pos > config["n_ctx"] or not math.prod((n, pos, answers)):
        raise ValueError(
            f"tokens is {(n, pos)}, target_positions {(answers,)} and targets {headers['targets'][0]}; they must be "
            f"(example, position), (answer) and (example, answer), with at most {config['n_ctx']} positions."
        )
    found = read_arrays(path, headers)
    _check_ids("tokens", found["tokens"], 0, config["d_vocab"] - 1)
    _check_ids("targets", found["targets"], -1, config["d_vocab_out"] - 1)
    _check_ids("target_positions", found["target_positions"], 0, pos - 1)
    if (found["targets"] < 0).all():
        raise ValueError("targets has no answer.")
    return found


def _check_ids(name: str, ids: np.ndarray, low: int, high: int) -> None:
    if ids.min() < low or ids.max() > high:
        raise ValueError(f"{name} goes from {ids.min()} to {ids.max()}; it must be from {low} to {high}.")


def places(heads: Sequence[tuple[int, int]]) -> str:
    """Heads as text: `0.1, 2.0`."""
    return ", ".join(f"{layer}.{head}" for layer, head in heads)
