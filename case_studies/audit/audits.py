"""The audits that claims share: one for each trained model, done once per process."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from case_studies.frame.evidence import Evidence, ModelSpec
from interp.auditing import AuditResult
from interp.auditing.audit import audit
from interp.core.statistics import pooled_interval
from interp.tasks.base import Task

N = {"quick": 128, "standard": 256, "paper": 1024}
"""Sequences of each audit."""
OUTCOMES = {"dyck": ("hard", "all")}
"""Accuracy by the likeliest closer. Of LEGO and templates all outcomes count."""
LEGO = ("lego-untied", "lego-tied", "lego-untied-unseeded", "lego-tied-unseeded")
DYCK = ("dyck-none", "dyck-linear")
TEMPLATE = ("aba-abb-plain", "aba-abb-identity", "same-different-plain", "same-different-identity")
ALL = (*LEGO, *DYCK, *TEMPLATE)

_done: dict[tuple, AuditResult | None] = {}


@dataclass(frozen=True)
class Audited:
    """A trained model and its audit."""

    group: str
    spec: ModelSpec
    result: AuditResult


def outcomes_of(task: Task) -> tuple[str, ...] | None:
    """The outcomes that verdicts go by."""
    return OUTCOMES.get(task.describe()["task"])


def audits(evidence: Evidence, groups: Sequence[str], *, n: int | None = None) -> Iterator[Audited]:
    """The audit of every model of these groups that knows its task, on n sequences; others are left out."""
    n = n or N[evidence.size]
    for group in groups:
        for spec in evidence.specs(group):
            key = (evidence.folder, spec.key, evidence.seed, n)
            if key not in _done:
                _done[key] = _audit(evidence, spec, n)
            found = _done[key]
            if found is not None:
                yield Audited(group, spec, found)


def _audit(evidence: Evidence, spec: ModelSpec, n: int) -> AuditResult | None:
    found = audit(
        evidence.run(spec).model,
        spec.task,
        n=n,
        outcomes=outcomes_of(spec.task),
        at_chance=True,
        seed=evidence.seed,
    )
    return None if "nothing to lose" in found.because else found


def readable(result: AuditResult) -> np.ndarray:
    """Which heads look like a kind."""
    return np.isin(result.label, result.kinds)


def needed(result: AuditResult) -> np.ndarray:
    """Which heads cannot go alone: judged needed, and not undone by another."""
    reasons = ("needed", "not through its pattern", "pattern too close", "through its pattern",
               "through something else", "reading too close")  # fmt: skip
    return np.isin(result.because, reasons)


def share(hits: Sequence[int], of: Sequence[int]) -> tuple[float, float, float]:
    """A share of heads over models, with an interval in which models, not heads, are independent."""
    if not sum(of):
        return 0.0, 0.0, 1.0
    value, low, high = pooled_interval(np.array(hits, dtype=float), np.array(of, dtype=float))
    return float(value), float(low), float(high)
