"""Kinds of attention head: a registry of named relations between queries and keys.

These are labels that `classify_heads` gives to any head; the kinds of hard-coded heads are `HeadPattern.kind`
(`hooks/model/hardcoded/head_patterns.py`).
"""

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

RELATION_CELLS = 2**24
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
    registered = dict(_KINDS)
    try:
        for name, relation in kinds.items():
            register_kind(name, relation)
        yield
    finally:
        _KINDS.clear()
        _KINDS.update(registered)


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
    relations: dict[str, Tensor] = {}
    for name in kinds or _KINDS:
        relation = _relation(name, task, batch)
        if relation is not None and relation.any():
            relations[name] = relation.bool()
        elif kinds:
            raise _empty(name)
    return relations


def kinds_of(task: Task, batch: Batch, kinds: Sequence[str] | None = None) -> tuple[str, ...]:
    """Names of the kinds whose relation is not empty on a batch, computed for few long sequences at a time.

    Args:
        task: Task of the batch.
        batch: Examples.
        kinds: Names of kinds, default: all that this task has.

    Raises:
        ValueError: an error of `relations_of`.
    """
    # A kind is present as soon as its relation is not empty on some sequences.
    names = tuple(kinds or _KINDS)
    present: set[str] = set()
    for chunk in chunks(batch, sequences_at_once(batch)):
        for name in names:
            if name in present:
                continue
            relation = _relation(name, task, chunk)
            if relation is not None and relation.any():
                present.add(name)
    missing = [name for name in names if name not in present]
    if kinds and missing:
        raise _empty(missing[0])
    return tuple(name for name in names if name in present)


def related_keys(task: Task, batch: Batch, kinds: Sequence[str]) -> Bool[Tensor, "batch kind query key"]:
    """The relations of kinds on a batch, where they may be empty."""
    n, pos = batch.tokens.shape
    relations = torch.zeros(n, len(kinds), pos, pos, dtype=torch.bool)
    for index, name in enumerate(kinds):
        relation = _relation(name, task, batch)
        if relation is not None:
            relations[:, index] = relation
    return relations


def sequences_at_once(batch: Batch, *, multiple_of: int = 1) -> int:
    """Number of sequences of this length whose relations are computed at the same time: one or more."""
    return multiple_of * max(1, RELATION_CELLS // batch.tokens.shape[1] ** 2 // multiple_of)


@dataclass(frozen=True)
class PackedRelations:
    """The relations of several kinds on a batch, with one bit per query and key."""

    bits: UInt8[np.ndarray, "batch kind query bytes"]
    n_keys: int

    @staticmethod
    def of(task: Task, batch: Batch, kinds: Sequence[str]) -> "PackedRelations":
        """Compute relations for few long sequences at a time."""
        bits = []
        for chunk in chunks(batch, sequences_at_once(batch)):
            bits.append(np.packbits(related_keys(task, chunk, kinds).numpy(), axis=-1))
        return PackedRelations(np.concatenate(bits), batch.tokens.shape[1])

    def on(self, rows: slice) -> Bool[Tensor, "batch kind query key"]:
        """The relations on some of the sequences."""
        return torch.from_numpy(np.unpackbits(self.bits[rows], axis=-1, count=self.n_keys).view(bool))


def _relation(name: str, task: Task, batch: Batch) -> Bool[Tensor, "batch query key"] | None:
    """The relation of a kind on a batch, checked; None if the task does not have it."""
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
        relations = task.relations(batch)
        return next((relations[name] for name in names if name in relations), None)

    return relation


def _offset(batch: Batch, low: int, high: int) -> Tensor:
    """Keys at these distances from the query; negative ones are before it."""
    position = torch.arange(batch.tokens.shape[1], device=batch.tokens.device)
    offset = position[None, :] - position[:, None]
    return ((offset >= low) & (offset <= high)).expand(len(batch), -1, -1)


def _manipulation(task: Task, batch: Batch) -> Any:
    """Keys in the same clause, or in a local band if the task has no clauses."""
    same_clause = task.relations(batch).get("same_clause")
    if same_clause is None:
        return _offset(batch, -BAND, BAND)
    return same_clause


register_kind("association", _from_task("same_token", "same_symbol"))
register_kind("manipulation", _manipulation)
register_kind("broadcast", _from_task("special"))
register_kind("stack_top", _from_task("stack_top"))
register_kind("unmatched_open", _from_task("unmatched_open"))
register_kind("matching_bracket", _from_task("matching_bracket"))
register_kind("template_position", _from_task("same_template_position"))
register_kind("previous", lambda task, batch: _offset(batch, -1, -1))
register_kind("self", lambda task, batch: _offset(batch, 0, 0))
