"""What came of a study: every claim with its verdict, and what stands behind it."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from case_studies.frame.claims import NOT_RUN, VERDICTS, Claim, ClaimVerdict, Measurement, Size, shown

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class ClaimResult:
    """A claim, and what came of it."""

    claim: Claim
    verdict: ClaimVerdict | None = None
    """None where nothing was measured yet."""
    measurement: Measurement | None = None
    note: str = ""
    """What a reader must know about this run, or why there is no number."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Per group of models: how many, and their task, config, settings and seeds."""
    seconds: float | None = None
    """Time the measurement took."""
    made: Mapping[str, Any] | None = None
    """Versions, hardware and time of the run that measured it."""

    @property
    def label(self) -> str:
        """The verdict, or that it was not run."""
        return self.verdict or NOT_RUN

    @property
    def measured(self) -> str:
        """The number with its interval, as text; alone where the interval has no width."""
        if self.measurement is None:
            return "–"
        value, low, high = shown(self.measurement.value, self.measurement.low, self.measurement.high)
        return f"{value} [{low}, {high}]" if self.measurement.low < self.measurement.high else value

    @property
    def sample(self) -> str:
        """How many of what, as text."""
        return "–" if self.measurement is None else f"{self.measurement.n:,} {self.measurement.unit}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        claim, m = self.claim, self.measurement
        return {
            "id": claim.id,
            "source": claim.source,
            "statement": claim.statement,
            "paper": claim.paper,
            "rule": claim.rule,
            "quantity": claim.quantity,
            "measured": m.value if m else None,
            "interval": [m.low, m.high] if m else None,
            "n": m.n if m else None,
            "verdict": self.label,
            "unit": m.unit if m else None,
            "numbers": dict(m.numbers) if m else {},
            "note": self.note,
            "settings": dict(self.settings),
            "seconds": self.seconds,
            "made": dict(self.made) if self.made else None,
        }


@dataclass(frozen=True, kw_only=True)
class StudyResult:
    """Every claim of a study at one size. Prints as a table of verdicts."""

    study: str
    size: Size
    outcomes: tuple[ClaimResult, ...]
    """In the study's order."""
    manifest: Mapping[str, Any]
    """Versions, hardware, threads, seed; seconds of computing over all sittings, and of this one by the wall clock."""
    page: Path
    """The HTML page; `claims.json` lies beside it."""

    @property
    def verdicts(self) -> dict[str, str]:
        """What came of each claim, by its id."""
        return {outcome.claim.id: outcome.label for outcome in self.outcomes}

    @property
    def tally(self) -> str:
        """How many claims have which verdict, in words."""
        counts = Counter(self.verdicts.values())
        return ", ".join(f"{counts[name]} {name}" for name in (*VERDICTS, NOT_RUN) if name in VERDICTS or counts[name])

    def to_dict(self) -> dict[str, Any]:
        """What `claims.json` holds."""
        return {
            "study": self.study,
            "size": self.size,
            "manifest": dict(self.manifest),
            "claims": [outcome.to_dict() for outcome in self.outcomes],
        }

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per claim."""
        import pandas as pd

        rows = []
        for outcome in self.outcomes:
            m = outcome.measurement
            ends = {"measured": m.value, "low": m.low, "high": m.high, "n": m.n, "unit": m.unit} if m else {}
            rows.append({"claim": outcome.claim.id, "paper": outcome.claim.paper, "verdict": outcome.label} | ends)
        columns = ["claim", "paper", "measured", "low", "high", "n", "unit", "verdict"]
        return pd.DataFrame(rows, columns=columns)

    def __str__(self) -> str:
        rows = [("claim", "verdict", "measured [95 %]", "n", "paper")]
        rows += [(o.claim.id, o.label, o.measured, o.sample, o.claim.paper or "–") for o in self.outcomes]
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        lines = ["  ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[-1]]) for row in rows]
        return "\n".join([*lines, "", f"{self.study} at size {self.size}: {self.tally}"])
