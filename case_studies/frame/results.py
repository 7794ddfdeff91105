"""Results of a study: every claim with its measurement and verdict."""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from case_studies.frame.claims import BY_CONSTRUCTION, NOT_MEASURED, Claim, When
from case_studies.frame.evidence import Size
from case_studies.frame.measurement import Measurement, shown
from case_studies.frame.rules import VERDICTS, ClaimVerdict

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
    cost: Mapping[str, Any] | None = None
    """Seconds, CPU seconds and peak memory of the measurement, without training."""
    made: Mapping[str, Any] | None = None
    """Provenance: versions, hardware, source code and time of the run that measured it, and weights of its models."""
    measure: str | None = None
    """Digest of the source of the measure; None if it was not recorded."""

    @property
    def label(self) -> str:
        """The verdict, `by construction` if the rule is met and cannot fail, or `not measured`."""
        if self.claim.by_construction and self.verdict == "reproduced":
            return BY_CONSTRUCTION
        return self.verdict or NOT_MEASURED

    @property
    def criterion(self) -> str:
        """The conditions that prevent `reproduced`, if the measured number does not show them; else empty."""
        unmet = self.claim.rule.unmet(self.measurement) if self.measurement and self.verdict else ()
        word = "fails" if self.verdict == "not reproduced" else "open"
        return f"{word}: {'; '.join(unmet)}" if unmet else ""

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
            **{name: getattr(claim, name) for name in ("id", "source", "statement", "paper", "quantity")},
            "rule": claim.rule_text,
            "fixed": claim.preregistration.text,
            "measured": m.value if m else None,
            "interval": [m.to_dict()["low"], m.to_dict()["high"]] if m else None,
            "n": m.n if m else None,
            "verdict": self.label,
            "unit": m.unit if m else None,
            "exact": m.exact if m else None,
            "numbers": dict(m.numbers) if m else {},
            "note": self.note,
            "groups": list(self.settings),
            "cost": dict(self.cost) if self.cost else None,
            "made": dict(self.made) if self.made else None,
            "measure": self.measure,
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
    models: Mapping[str, int] = field(default_factory=dict)
    """Number of models of each group of the study at this size, trained or not."""
    only: tuple[str, ...] = ()
    """Ids of the claims that were chosen, which alone are printed; empty: all."""
    page: Path
    """The HTML page; `claims.json` and `details.json.xz` are in the same folder."""

    @property
    def verdicts(self) -> dict[str, str]:
        """The label of each claim, by its id."""
        return {one.claim.id: one.label for one in self.claims}

    @property
    def tally(self) -> str:
        """Number of claims by verdict, in words."""
        return self._tally(self.claims)

    @staticmethod
    def _tally(claims: Sequence[ClaimResult]) -> str:
        counts = Counter(one.label for one in claims)
        return ", ".join(
            f"{counts[name]} {name}"
            for name in (*VERDICTS, BY_CONSTRUCTION, NOT_MEASURED)
            if name in VERDICTS or counts[name]
        )

    @property
    def by_chance(self) -> float:
        """Expected number of claims reproduced by chance if every true value were at the bar of its rule."""
        return sum(one.claim.rule.chance for one in self.claims if one.verdict and not one.claim.by_construction)

    @property
    def preregistration(self) -> str:
        """Number of claims by when their rules were fixed, in words."""
        counts = Counter(one.claim.preregistration.when for one in self.claims)
        return ", ".join(f"{counts[when]} {when}" for when in get_args(When) if counts[when])

    @property
    def details(self) -> bytes:
        """Tables and charts of all claims, and the settings of all groups of models, as JSON."""
        figures = {
            one.claim.id: {"tables": one.measurement.tables, "charts": one.measurement.charts}
            for one in self.claims
            if one.measurement and (one.measurement.tables or one.measurement.charts)
        }
        groups = {name: described for one in self.claims for name, described in one.settings.items()}
        content = {"figures": figures, "groups": groups}
        return json.dumps(content, separators=(",", ":"), allow_nan=False).encode()

    def to_dict(self) -> dict[str, Any]:
        """The content of `claims.json`."""
        return {
            "study": self.study,
            "size": self.size,
            "manifest": dict(self.manifest),
            "claims": [one.to_dict() for one in self.claims],
            "details": hashlib.sha256(self.details).hexdigest(),
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
        claims = [one for one in self.claims if not self.only or one.claim.id in self.only]
        rows = [("claim", "verdict", "measured [95 %]", "n", "paper")]
        rows += [(one.claim.id, one.label, one.measured, one.sample, one.claim.paper or "–") for one in claims]
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        lines = []
        for row, one in zip(rows, [None, *claims], strict=True):
            lines.append("  ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[-1]]))
            lines += [f"    {one.criterion}"] if one and one.criterion else []
        return "\n".join([*lines, "", f"{self.study} at size {self.size}: {self._tally(claims)}"])
