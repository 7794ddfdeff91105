"""Results of a study: every claim with its measurement and verdict."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from case_studies.frame.claims import NOT_MEASURED, VERDICTS, Claim, ClaimVerdict, Measurement, shown
from case_studies.frame.evidence import Size

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class ClaimResult:
    """A claim with its measurement and verdict."""

    claim: Claim
    verdict: ClaimVerdict | None = None
    """None without a measurement."""
    measurement: Measurement | None = None
    note: str = ""
    """The measurement's note, or why there is none."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Per group of models: number of models, task, config, settings and seeds."""
    seconds: float | None = None
    """Time the measurement took."""
    made: Mapping[str, Any] | None = None
    """Versions, hardware and time of the run that measured it."""

    @property
    def label(self) -> str:
        """The verdict, or `not measured`."""
        return self.verdict or NOT_MEASURED

    @property
    def measured(self) -> str:
        """The number as text, with its interval unless that has no width."""
        if self.measurement is None:
            return "–"
        value, low, high = shown(self.measurement.value, self.measurement.low, self.measurement.high)
        return f"{value} [{low}, {high}]" if self.measurement.low < self.measurement.high else value

    @property
    def sample(self) -> str:
        """Sample size with its unit, as text."""
        return "–" if self.measurement is None else f"{self.measurement.n:,} {self.measurement.unit}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        claim, m = self.claim, self.measurement
        return {
            **{name: getattr(claim, name) for name in ("id", "source", "statement", "paper", "rule", "quantity")},
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
    claims: tuple[ClaimResult, ...]
    """In the study's order."""
    manifest: Mapping[str, Any]
    """Versions, hardware, threads, seed; computing time of all runs together, and wall-clock time of this one."""
    page: Path
    """The HTML page; `claims.json` is in the same folder."""

    @property
    def verdicts(self) -> dict[str, str]:
        """The label of each claim, by its id."""
        return {one.claim.id: one.label for one in self.claims}

    @property
    def tally(self) -> str:
        """Number of claims by verdict, in words."""
        counts = Counter(self.verdicts.values())
        return ", ".join(
            f"{counts[name]} {name}" for name in (*VERDICTS, NOT_MEASURED) if name in VERDICTS or counts[name]
        )

    def to_dict(self) -> dict[str, Any]:
        """The content of `claims.json`."""
        return {
            "study": self.study,
            "size": self.size,
            "manifest": dict(self.manifest),
            "claims": [one.to_dict() for one in self.claims],
        }

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per claim."""
        import pandas as pd

        rows = []
        for one in self.claims:
            m = one.measurement
            ends = {"measured": m.value, "low": m.low, "high": m.high, "n": m.n, "unit": m.unit} if m else {}
            rows.append({"claim": one.claim.id, "paper": one.claim.paper, "verdict": one.label} | ends)
        columns = ["claim", "paper", "measured", "low", "high", "n", "unit", "verdict"]
        return pd.DataFrame(rows, columns=columns)

    def __str__(self) -> str:
        rows = [("claim", "verdict", "measured [95 %]", "n", "paper")]
        rows += [(one.claim.id, one.label, one.measured, one.sample, one.claim.paper or "–") for one in self.claims]
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        lines = ["  ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[-1]]) for row in rows]
        return "\n".join([*lines, "", f"{self.study} at size {self.size}: {self.tally}"])
