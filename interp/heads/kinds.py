"""Kinds of attention head: a registry of named relations between queries and keys."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor

from interp.tasks.base import Batch, Task

BAND = 2
"""Half-width of the local band that is used for manipulation if a task has no clauses."""

Relation = Callable[[Task, Batch], Bool[Tensor, "batch query key"] | None]
"""Which keys are related to each query; None if the task has no such relation."""

_KINDS: dict[str, Relation] = {}


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
    pos = batch.tokens.shape[1]
    found: dict[str, Tensor] = {}
    for name in kinds or _KINDS:
        if name not in _KINDS:
            raise ValueError(
                f"kind {name!r} is not registered; choose one of {', '.join(_KINDS)}, or use register_kind."
            )
        relation = _KINDS[name](task, batch)
        if relation is not None and tuple(relation.shape) != (len(batch), pos, pos):
            raise ValueError(
                f"the relation of kind {name!r} is {tuple(relation.shape)}; it must be (batch, query, key), here "
                f"{(len(batch), pos, pos)}."
            )
        if relation is None or not relation.any():
            if kinds:
                raise ValueError(f"kind {name!r} relates no query to any key in this task; omit it.")
            continue
        found[name] = relation.bool()
    return found


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
