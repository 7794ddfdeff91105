"""Kinds of attention head: a registry of named relations between queries and keys."""

import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, UInt8
from torch import Tensor

from hooks.checks import checks_types
from interp.core.activations import chunks
from interp.tasks.base import Batch, Task

CELLS = 2**24
"""Most (query, key) pairs of the sequences whose relations are computed at the same time."""
BAND = 2
"""Half-width of the local band that is used for manipulation if a task has no clauses."""

Relation = Callable[[Task, Batch], Bool[Tensor, "batch query key"] | None]
"""Which keys are related to each query; None if the task has no such relation."""

_KINDS: dict[str, Relation] = {}


@checks_types
def register_kind(name: str, relation: Relation) -> None:
    """Add or replace a kind of head.

    Args:
        name: Label of heads of this kind.
        relation: Function of a task and a batch that returns which keys are related to each query.

    Raises:
        ValueError: an empty name, or one that `classify_heads` reserves.
    """
    if not name or name in ("uniform", "unclassified"):
        raise ValueError(f"name is {name!r}, which is reserved; choose another name.")
    _KINDS[name] = relation


@contextmanager
def with_kinds(kinds: Mapping[str, Relation]) -> Iterator[None]:
    """Within this block these kinds of head are registered too; afterwards all are as before.

    Args:
        kinds: Relations by name, as for `register_kind`.

    Raises:
        ValueError: as `register_kind`.
    """
    before = dict(_KINDS)
    try:
        for name, relation in kinds.items():
            register_kind(name, relation)
        yield
    finally:
        _KINDS.clear()
        _KINDS.update(before)


def known_kinds() -> tuple[str, ...]:
    """Names of all registered kinds."""
    return tuple(_KINDS)


def relations_of(
    task: Task, batch: Batch, kinds: Sequence[str] | None = None
) -> dict[str, Bool[Tensor, "batch query key"]]:
    """The relation of each kind on a batch.

    Args:
        task: Task of the batch.
        batch: Examples.
        kinds: Names of kinds, default: all that this task has.

    Raises:
        ValueError: a kind that is not registered or that this task does not have, a relation of the wrong shape, or
            one that is empty for every query.
    """
    found: dict[str, Tensor] = {}
    for name in kinds or _KINDS:
        relation = _relation(name, task, batch)
        if relation is None or not relation.any():
            if kinds:
                raise _empty(name)
            continue
        found[name] = relation.bool()
    return found


def kinds_of(task: Task, batch: Batch, kinds: Sequence[str] | None = None) -> tuple[str, ...]:
    """Names of the kinds whose relation is not empty on a batch, computed for few long sequences at a time.

    Args:
        task: Task of the batch.
        batch: Examples.
        kinds: Names of kinds, default: all that this task has.

    Raises:
        ValueError: an error of `relations_of`.
    """
    found: set[str] = set()
    for part in chunks(batch, sequences_at_once(batch)):
        for name in kinds or _KINDS:
            if name not in found and (relation := _relation(name, task, part)) is not None and relation.any():
                found.add(name)
    for name in kinds or ():
        if name not in found:
            raise _empty(name)
    return tuple(name for name in kinds or _KINDS if name in found)


def related_keys(task: Task, part: Batch, kinds: Sequence[str]) -> Bool[Tensor, "batch kind query key"]:
    """The relations of kinds on a part of a batch, where they may be empty."""
    n, pos = part.tokens.shape
    found = torch.zeros(n, len(kinds), pos, pos, dtype=torch.bool)
    for index, name in enumerate(kinds):
        if (relation := _relation(name, task, part)) is not None:
            found[:, index] = relation
    return found


def sequences_at_once(batch: Batch, *, multiple_of: int = 1) -> int:
    """Number of sequences of this length whose relations are computed at the same time: one or more."""
    return multiple_of * max(1, CELLS // batch.tokens.shape[1] ** 2 // multiple_of)


def relations_by_rows(
    task: Task, batch: Batch, kinds: Sequence[str]
) -> Callable[[slice], Bool[Tensor, "batch kind query key"]]:
    """Function that returns the relations on some rows of a batch, and keeps those of `sequences_at_once`."""
    at_once, kept, start = sequences_at_once(batch), None, 0

    def on(rows: slice) -> Bool[Tensor, "batch kind query key"]:
        nonlocal kept, start
        stop = min(rows.stop, len(batch))
        if kept is None or not start <= rows.start <= stop <= start + len(kept):
            start = 0 if at_once >= len(batch) else rows.start
            kept = related_keys(task, batch.select(slice(start, max(stop, start + at_once))), kinds)
        return kept[rows.start - start : stop - start]

    return on


@dataclass(frozen=True)
class PackedRelations:
    """The relations of several kinds on a batch, with one bit per query and key."""

    bits: UInt8[np.ndarray, "batch kind query bytes"]
    n_keys: int

    @staticmethod
    def of(task: Task, batch: Batch, kinds: Sequence[str]) -> "PackedRelations":
        """Compute relations for few long sequences at a time."""
        parts = chunks(batch, sequences_at_once(batch))
        bits = [np.packbits(related_keys(task, part, kinds).numpy(), axis=-1) for part in parts]
        return PackedRelations(np.concatenate(bits), batch.tokens.shape[1])

    def on(self, rows: slice) -> Bool[Tensor, "batch kind query key"]:
        """The relations on some of the sequences."""
        return torch.from_numpy(np.unpackbits(self.bits[rows], axis=-1, count=self.n_keys).view(bool))


def _relation(name: str, task: Task, batch: Batch) -> Bool[Tensor, "batch query key"] | None:
    if name not in _KINDS:
        raise ValueError(
            f"kind {reprlib.repr(name)} is not registered; the kinds are {', '.join(_KINDS)}. "
            "Use register_kind for another."
        )
    relation = _KINDS[name](task, batch)
    expected = (*batch.tokens.shape, batch.tokens.shape[1])
    if relation is not None and tuple(relation.shape) != expected:
        raise ValueError(
            f"the relation of kind {name!r} is {tuple(relation.shape)}; it must be (batch, query, key), here "
            f"{expected}."
        )
    return relation


def _empty(name: str) -> ValueError:
    return ValueError(f"kind {name!r} relates no query to any key in this task; omit it.")


def _from_task(*names: str) -> Relation:
    """The first of these relations that the task has."""

    def relation(task: Task, batch: Batch) -> Any:
        found = task.relations(batch)
        return next((found[name] for name in names if name in found), None)

    return relation


def _offset(batch: Batch, low: int, high: int) -> Tensor:
    at = torch.arange(batch.tokens.shape[1], device=batch.tokens.device)
    offset = at[None, :] - at[:, None]
    return ((offset >= low) & (offset <= high)).expand(len(batch), -1, -1)


def _manipulation(task: Task, batch: Batch) -> Any:
    own = task.relations(batch).get("same_clause")
    return _offset(batch, -BAND, BAND) if own is None else own


register_kind("association", _from_task("same_token", "same_symbol"))
register_kind("manipulation", _manipulation)
register_kind("broadcast", _from_task("special"))
register_kind("stack_top", _from_task("stack_top"))
register_kind("unmatched_open", _from_task("unmatched_open"))
register_kind("matching_bracket", _from_task("matching_bracket"))
register_kind("template_position", _from_task("same_template_position"))
register_kind("previous", lambda task, batch: _offset(batch, -1, -1))
register_kind("self", lambda task, batch: _offset(batch, 0, 0))
