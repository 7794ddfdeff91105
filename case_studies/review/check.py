"""Checking a study: its claims measured again and compared with stored results, one by one."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from case_studies.frame.claims import Claim
from case_studies.frame.measurement import shown
from case_studies.frame.running import Run
from case_studies.frame.stored import StoredResults
from case_studies.review.compare import STATUSES, Comparison, compare
from hooks.files import write_json
from interp.core.environment import environment

REPORT = "check.json"


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """Stored results of a study, compared with new ones. Prints as a table."""

    study: str
    size: str
    against: str
    """Where the stored results are from."""
    comparisons: tuple[Comparison, ...]
    made: Mapping[str, Any]
    """Versions, hardware, threads and time of the check."""

    @property
    def passed(self) -> bool:
        """Whether at least one claim was compared, and none differs."""
        found = {one.status for one in self.comparisons}
        return "differs" not in found and bool(found & {"same", "within"})

    @property
    def tally(self) -> str:
        """Number of claims by status, in words."""
        counts = Counter(one.status for one in self.comparisons)
        return ", ".join(f"{counts[name]} {name}" for name in STATUSES if counts[name] or name == "differs")

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        parts = {name: getattr(self, name) for name in ("study", "size", "against", "passed", "tally")}
        return parts | {"claims": [one.to_dict() for one in self.comparisons], "made": dict(self.made)}

    def __str__(self) -> str:
        rows = [("claim", "status", "stored", "here")]
        rows += [(one.claim, one.status, _number(one.stored), _number(one.measured)) for one in self.comparisons]
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        lines = []
        for row, one in zip(rows, [None, *self.comparisons], strict=True):
            lines.append("  ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[-1]]))
            if one and one.reason:
                lines.append(f"    {one.reason}")
            lines += [f"    likeliest cause: {one.causes[0]}"] if one and one.causes else []
            lines += [f"    or: {cause}" for cause in one.causes[1:]] if one else []
        return "\n".join([*lines, "", f"{self.study} at size {self.size}, against {self.against}: {self.tally}"])


def check_claims(
    run: Run, chosen: Sequence[Claim], stored: StoredResults, *, fresh: bool, device: str | None
) -> CheckResult:
    """Measure claims again and compare them with stored results; writes `check.json` to the run's folder.

    Args:
        run: The run, whose measurements are kept apart from those of ordinary runs.
        chosen: The claims to compare.
        stored: What to compare with.
        fresh: Whether to train models again that the run's folder has.
        device: Device for training.
    """
    to_measure = run.to_measure(chosen, fresh=True)
    run.train(to_measure, fresh, device)
    costs = {one["id"]: one["cost"]["seconds"] for one in stored.content["claims"] if one["cost"]}
    errors = run.measure(to_measure, costs)
    results = [run.result(claim, errors) for claim in chosen]
    result = CheckResult(
        study=run.study.name,
        size=run.size,
        against=stored.origin,
        comparisons=tuple(compare(stored, one, size=run.size, seed=run.seed) for one in results),
        made=environment(),
    )
    write_json(run.folder / REPORT, result.to_dict())
    return result


def _number(values: Mapping[str, Any] | None) -> str:
    if values is None:
        return "–"
    low, high = values["interval"]
    ends = (float("-inf") if low is None else low, float("inf") if high is None else high)
    value, below, above = shown(values["measured"], *ends)
    return f"{value} [{below}, {above}]" if low != high else value
