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
from jaxtyping import Bool, Int, UInt8
from torch import Tensor

from hooks.typed import checks_types
from interp.core.activations import chunks
from interp.heads.queries import real_positions
from interp.tasks.base import Batch, Task
from interp.tasks.splits import sample_split

RELATION_CELLS = 2**24
"""Most (query, key) pairs of the sequences whose relations are computed at the same time."""
BAND = 2
"""Half-width of the band of local attention, in tasks without clauses."""

Relation = Callable[[Task, Batch], Bool[Tensor, "batch query key"] | None]
"""Which keys are related to each query; None if the task has no such relation."""

RESERVED = ("uniform", "unclassified")
"""Labels that are no kinds."""


@dataclass(frozen=True)
class Kind:
    """A registered kind of head."""

    relation: Relation
    """The relation in a task that has none of the `reads`."""
    reads: tuple[str, ...] = ()
    """Relations of a task that this kind stands for: the first that the task has is the relation of the kind."""
    yields: bool = False
    """Whether only heads that no kind of the task, nor `previous` or `current`, describes as well have this label."""
    is_last: bool = False
    """Whether only heads that no other kind describes have this label."""
    meaning: str = ""
    """What a head of this kind attends to, after "attends to", for pages."""


_KINDS: dict[str, Kind] = {}


@checks_types
def register_kind(name: str, relation: Relation, *, reads: Sequence[str] = (), meaning: str = "") -> None:
    """Add or replace a kind of head.

    Args:
        name: Label of heads of this kind.
        relation: Function of a task and a batch that returns which keys are related to each query.
        reads: Relations of tasks that this kind stands for, so that they are no kinds of their own name. The first
            that a task has is the relation; the function is called for tasks that have none of them.
        meaning: What such a head attends to, in words that pages show: "the next letter of the alphabet".

    Raises:
        ValueError: an empty name, or one that `classify_heads` reserves.

    >>> import interp
    >>> from interp.heads.kinds import with_kinds
    >>> def next_letter(task, batch):
    ...     pos = batch.tokens.shape[1]
    ...     return (batch.tokens[:, :, None] + 1 == batch.tokens[:, None, :]).expand(-1, pos, pos)
    >>> with with_kinds({"next letter": next_letter}):  # or, for good: interp.heads.register_kind(name, next_letter)
    ...     "next letter" in interp.heads.known_kinds()
    True
    """
    _check_name(name)
    _KINDS[name] = Kind(relation, tuple(reads), meaning=meaning)


def meaning_of(name: str) -> str:
    """What a head of a kind attends to, in words; the name itself of a kind that nobody has described."""
    kind = _KINDS.get(name)
    return kind.meaning if kind and kind.meaning else f"the keys of its relation, {name}"


def _check_name(name: str) -> None:
    """Raise ValueError for a name that is no kind's."""
    if not name or name in RESERVED:
        raise ValueError(f"name is {name!r}, which is reserved; choose another name.")


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


@checks_types
def known_kinds(task: Task | None = None) -> tuple[str, ...]:
    """Names of all registered kinds, and of the relations of a task that are kinds of their own.

    >>> import interp
    >>> "induction" in interp.heads.known_kinds()
    True
    """
    if task is None:
        return tuple(_KINDS)
    example = sample_split(task, 1, generator=torch.Generator().manual_seed(0), split="test")
    return (*_KINDS, *_own_kinds(task.relations(example)))


def kinds_of_task(task: Task, batch: Batch) -> tuple[str, ...]:
    """The kinds that rest on a relation of the task itself, under the kind's name or under the relation's own."""
    relations = task.relations(batch)
    names = [name for name, kind in _KINDS.items() if _relation_read(kind, relations) is not None]
    return (*names, *_own_kinds(relations))


def yielding_kinds() -> tuple[str, ...]:
    """`first_token`, `duplicate` and `induction`: labels of heads that no kind of the task describes as well, nor
    `previous` or `current`."""
    return tuple(name for name, kind in _KINDS.items() if kind.yields)


def last_kinds() -> tuple[str, ...]:
    """Labels of heads that no other kind describes: those of roles in a clause."""
    return tuple(name for name, kind in _KINDS.items() if kind.is_last)


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
    for name, relation in _relations(task, batch, kinds).items():
        if relation is not None and relation.any():
            relations[name] = relation.bool()
        elif kinds:
            raise _empty(name)
    return relations


def kinds_of(task: Task, batch: Batch, kinds: Sequence[str] | None = None) -> tuple[str, ...]:
    """Names of the kinds whose relation is not empty on a batch, computed for few long sequences at a time.

    These are the registered kinds that the task has, then every relation of the task that none of them stands for,
    under its own name.

    Args:
        task: Task of the batch.
        batch: Examples.
        kinds: Names of kinds, default: all that this task has.

    Raises:
        ValueError: an error of `relations_of`.
    """
    # A kind is present as soon as its relation is not empty on some sequences; in order of their first appearance
    is_present: dict[str, bool] = {}
    for chunk in chunks(batch, sequences_at_once(batch)):
        for name, relation in _relations(task, chunk, kinds).items():
            is_empty = relation is None or not relation.any()
            is_present[name] = is_present.get(name, False) or not is_empty
    missing = [name for name, present in is_present.items() if not present]
    if kinds and missing:
        raise _empty(missing[0])
    return tuple(name for name, present in is_present.items() if present)


def related_keys(task: Task, batch: Batch, kinds: Sequence[str]) -> Bool[Tensor, "batch kind query key"]:
    """The relations of kinds on a batch, where they may be empty."""
    n, pos = batch.tokens.shape
    relations = torch.zeros(n, len(kinds), pos, pos, dtype=torch.bool)
    if not kinds:
        return relations
    for index, relation in enumerate(_relations(task, batch, kinds).values()):
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

    def on(self, rows: slice | Int[np.ndarray, " batch"]) -> Bool[Tensor, "batch kind query key"]:
        """The relations on some of the sequences."""
        return torch.from_numpy(np.unpackbits(self.bits[rows], axis=-1, count=self.n_keys).view(bool))


def _relations(
    task: Task, batch: Batch, kinds: Sequence[str] | None
) -> dict[str, Bool[Tensor, "batch query key"] | None]:
    """The relation of each kind on a batch, checked; None if the task does not have it."""
    of_task = task.relations(batch)
    own_kinds = _own_kinds(of_task)
    relations: dict[str, Tensor | None] = {}
    for name in dict.fromkeys(kinds or (*_KINDS, *own_kinds)):
        if name in own_kinds:
            relation = of_task[name]
        elif name in _KINDS:
            kind = _KINDS[name]
            relation_read = _relation_read(kind, of_task)
            relation = kind.relation(task, batch) if relation_read is None else of_task[relation_read]
        else:
            raise _unknown(name, (*_KINDS, *own_kinds))
        expected = (*batch.tokens.shape, batch.tokens.shape[1])
        if relation is not None and tuple(relation.shape) != expected:
            raise ValueError(
                f"the relation of kind {name!r} is {tuple(relation.shape)}; it must be (batch, query, key), here "
                f"{expected}."
            )
        relations[name] = relation
    return relations


def _relation_read(kind: Kind, relations: Mapping[str, Any]) -> str | None:
    """The relation of a task that a kind stands for; None if the task has none of them."""
    return next((name for name in kind.reads if name in relations), None)


def _own_kinds(relations: Mapping[str, Any]) -> tuple[str, ...]:
    """Relations of a task for which no registered kind stands: each is a kind of its own name.

    Raises:
        ValueError: a relation that has the name of a label which is no kind.
    """
    names_read = {_relation_read(kind, relations) for kind in _KINDS.values()}
    own_kinds = tuple(name for name in relations if name not in names_read and name not in _KINDS)
    for name in own_kinds:
        _check_name(name)
    return own_kinds


def _unknown(name: str, known: Sequence[str]) -> ValueError:
    kinds = ", ".join(known)
    return ValueError(
        f"kind {reprlib.repr(name)} is not registered; the kinds are {kinds}. Use register_kind for another."
    )


def _empty(name: str) -> ValueError:
    return ValueError(f"kind {name!r} relates no query to any key in this task; omit it.")


def _no_relation(task: Task, batch: Batch) -> None:
    """The relation of kinds that only tasks with a relation of that name have."""


def _offset(batch: Batch, low: int, high: int) -> Bool[Tensor, "batch query key"]:
    """Keys at these distances from the query; negative ones are before it."""
    position = torch.arange(batch.tokens.shape[1], device=batch.tokens.device)
    offset = position[None, :] - position[:, None]
    return ((offset >= low) & (offset <= high)).expand(len(batch), -1, -1)


def local(task: Task, batch: Batch) -> Bool[Tensor, "batch query key"] | None:
    """The tokens around the query, itself included; None in tasks with clauses, where `manipulation` is local."""
    return None if "same_clause" in task.relations(batch) else _offset(batch, -BAND, BAND)


def first_token(task: Task, batch: Batch) -> Bool[Tensor, "batch query key"]:
    """The first token that is no padding, for every later query."""
    real = real_positions(batch)
    is_first = real & (real.cumsum(1) == 1)
    is_later = real & ~is_first
    return is_later[:, :, None] & is_first[:, None, :]


def duplicate(task: Task, batch: Batch) -> Bool[Tensor, "batch query key"]:
    """Earlier occurrences of the token of the query; none of padding and of tokens that the task calls special."""
    # A task names its special tokens by the relation `special`, which is the same for every query
    ordinary = real_positions(batch)
    special = task.relations(batch).get("special")
    if special is not None:
        ordinary = ordinary & ~special.any(1)
    same = batch.tokens[:, :, None] == batch.tokens[:, None, :]
    return same.tril(-1) & ordinary[:, None, :] & ordinary[:, :, None]


def induction(task: Task, batch: Batch) -> Bool[Tensor, "batch query key"]:
    """The token after each earlier occurrence of the token of the query, up to the query."""
    return duplicate(task, batch).roll(1, 2).tril() & real_positions(batch)[:, None, :]


def _built_in(name: str, *reads: str, meaning: str, relation: Relation = _no_relation, **options: bool) -> None:
    """Register a kind of ours, which also stands for a task's relation of the kind's own name."""
    _KINDS[name] = Kind(relation, (*reads, name), meaning=meaning, **options)


_built_in("association", "same_token", "same_symbol", meaning="other occurrences of the same token")
_built_in(
    "manipulation",
    "same_clause",
    meaning="the tokens of its clause",
)
_built_in("local", relation=local, meaning="the tokens around it")
_built_in("broadcast", "special", meaning="special tokens, such as the first and the last")
_built_in("stack_top", meaning="the last bracket that is still open")
_built_in("unmatched_open", meaning="every bracket that is still open")
_built_in("matching_bracket", meaning="the bracket that opened what it closes")
_built_in("template_position", "same_template_position", meaning="the same place of the template")
_built_in("previous", relation=lambda task, batch: _offset(batch, -1, -1), meaning="the token before")
_built_in("current", relation=lambda task, batch: _offset(batch, 0, 0), meaning="the token itself")
_built_in("first_token", relation=first_token, yields=True, meaning="the first token")
_built_in("duplicate", relation=duplicate, yields=True, meaning="earlier occurrences of the same token")
_built_in(
    "induction", relation=induction, yields=True, meaning="the token after an earlier occurrence of the same token"
)
_built_in("clause_operations", is_last=True, meaning="the operations of all clauses")
_built_in("operation_to_operations", is_last=True, meaning="from an operation, the operations of all clauses")
_built_in("clause_operands", is_last=True, meaning="the operands of all clauses")
_built_in("same_letter", is_last=True, meaning="from a letter, the same letter elsewhere")
_built_in("same_letter_or_self", is_last=True, meaning="from a letter, the same letter, itself included")
