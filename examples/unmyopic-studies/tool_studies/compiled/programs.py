"""The packs of compiled programs that the study reads, with the truth and the audit of each."""

from collections.abc import Mapping
from functools import cache, partial

from case_studies.frame.packs import Packs
from interp.auditing import AuditResult
from interp.auditing.audit import audit
from interp.heads.kinds import Relation, with_kinds
from interp.known_answers import KnownAnswer, read_compiled
from interp.tasks.base import Batch, Task


def selected_by(task: Task, batch: Batch, *, name: str) -> object:
    """The keys of one selector; None in a task that has no such selector."""
    return task.relations(batch).get(name)


def selector_kinds(answer: KnownAnswer) -> Mapping[str, Relation]:
    """A kind of head for each selector of a program that is a relation."""
    names = [truth.looks for truth in answer.heads.values() if truth.looks]
    return {name: partial(selected_by, name=name) for name in names}  # type: ignore[misc]


@cache
def programs(packs: Packs) -> list[KnownAnswer]:
    """Every program with the truth about its heads."""
    return [read_compiled(path) for path in packs.paths]


@cache
def audited_programs(packs: Packs, seed: int) -> list[tuple[KnownAnswer, AuditResult]]:
    """Every program with its audit on all test inputs, in which each selector that is a relation is a kind of head."""
    audits = []
    for answer in programs(packs):
        with with_kinds(selector_kinds(answer)):
            audits.append((answer, audit(answer.model, answer.task, n="all", seed=seed)))
    return audits
