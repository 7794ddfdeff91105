"""Checking a study: its claims measured again and compared with stored results, one by one."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from case_studies.frame.claims import Claim
from case_studies.frame.measurement import interval_text
from case_studies.frame.results import text_table
from case_studies.frame.running import Run
from case_studies.frame.stored import StoredResults, costs_of
from case_studies.review.compare import STATUSES, ClaimCheck, check_claim, interval_ends
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
    comparisons: tuple[ClaimCheck, ...]
    environment: Mapping[str, Any]
    """Versions, hardware, threads and time of the check."""

    @property
    def passed(self) -> bool:
        """Whether at least one claim was compared, and none differs."""
        statuses = {check.status for check in self.comparisons}
        return "differs" not in statuses and bool(statuses & {"same", "within"})

    @property
    def tally(self) -> str:
        """Number of claims by status, in words."""
        counts = Counter(check.status for check in self.comparisons)
        statuses = [status for status in STATUSES if counts[status] or status == "differs"]
        return ", ".join(f"{counts[status]} {status}" for status in statuses)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        values = {name: getattr(self, name) for name in ("study", "size", "against", "passed", "tally")}
        claims = [check.to_dict() for check in self.comparisons]
        return values | {"claims": claims, "made": dict(self.environment)}

    def __str__(self) -> str:
        checks = self.comparisons
        rows = [(check.claim, check.status, _number(check.stored), _number(check.measured)) for check in checks]
        remarks = [(check.reason, _causes(check)) for check in checks]
        table = text_table(("claim", "status", "stored", "here"), rows, remarks)
        return f"{table}\n\n{self.study} at size {self.size}, against {self.against}: {self.tally}"


def check_claims(
    run: Run,
    chosen: Sequence[Claim],
    stored: StoredResults,
    *,
    fresh: bool,
    device: str | None,
    bundled: Collection[str] = (),
) -> CheckResult:
    """Measure claims again and compare them with stored results; writes `check.json` to the run's folder.

    Args:
        run: The run, whose measurements are kept apart from those of ordinary runs.
        chosen: The claims to compare.
        stored: What to compare with.
        fresh: Whether to train models again that the run's folder has.
        device: Device for training.
        bundled: Keys of the models that are from the bundle of the stored results.
    """
    # Measure all claims again; what they took before estimates the remaining time
    to_measure = run.to_measure(chosen, fresh=True)
    run.train(to_measure, fresh=fresh, device=device)
    errors = run.measure(to_measure, costs_of(stored))
    # Compare each with its stored number
    results = [run.result(claim, errors) for claim in chosen]
    comparisons = []
    for result in results:
        keys = {spec.key for specs in run.evidence[result.claim.id].groups.values() for spec in specs}
        options = {"size": run.size, "seed": run.seed, "same_models": keys <= set(bundled)}
        comparisons.append(check_claim(stored, result, **options))
    check = CheckResult(
        study=run.study.name,
        size=run.size,
        against=stored.origin,
        comparisons=tuple(comparisons),
        environment=environment(),
    )
    write_json(run.folder / REPORT, check.to_dict())
    return check


def _number(values: Mapping[str, Any] | None) -> str:
    """A number with its interval as text."""
    if values is None:
        return "–"
    return interval_text(values["measured"], *interval_ends(values))


def _causes(check: ClaimCheck) -> str:
    return f"not as it was: {'; '.join(check.causes)}" if check.causes else ""
