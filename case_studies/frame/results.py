"""Results of a study: every claim with its measurement and verdict."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from case_studies.frame.claims import BY_CONSTRUCTION, NOT_MEASURED, Claim, When
from case_studies.frame.evidence import Size, keys_digest
from case_studies.frame.measurement import Measurement, interval_text
from case_studies.frame.rules import CLAIM_VERDICTS, ClaimVerdict
from interp.core.page_identity import quantity

if TYPE_CHECKING:
    import pandas as pd

LABELS = (*CLAIM_VERDICTS, BY_CONSTRUCTION, NOT_MEASURED)
"""What is shown of a claim, in the order in which they are counted."""


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
    """Per group of models: number of models, seeds, keys, task, config and settings."""
    cost: Mapping[str, Any] | None = None
    """Seconds, CPU seconds and peak memory of the measurement, without training."""
    provenance: Mapping[str, Any] | None = None
    """Versions, hardware, source code and time of the run that measured it, and weights of its models."""

    @classmethod
    def judged(cls, claim: Claim, measurement: Measurement, **facts: Any) -> "ClaimResult":
        """A measurement under the claim's rule, with its interval cut at the claim's range.

        Args:
            claim: The claim.
            measurement: What was measured.
            **facts: The other fields: note, settings, cost, provenance.

        Raises:
            Exception: the rule cannot judge it.
        """
        measurement = claim.in_range(measurement)
        return cls(claim=claim, verdict=claim.verdict(measurement), measurement=measurement, **facts)

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
    def number(self) -> str:
        """The measured number as text, with its interval unless that has no width."""
        m = self.measurement
        return "–" if m is None else interval_text(m.value, m.low, m.high)

    @property
    def sample(self) -> str:
        """Sample size with its unit, as text."""
        return "–" if self.measurement is None else f"{self.measurement.n:,} {self.measurement.unit}"

    def to_dict(self) -> dict[str, Any]:
        """The claim, its number and its verdict as plain values, ready for JSON."""
        claim = self.claim
        return {
            **self.to_store(),
            **{name: getattr(claim, name) for name in ("source", "statement", "paper")},
            "rule": claim.rule_text,
            "fixed": claim.preregistration.text,
            "verdict": self.label,
            "note": self.note,
            "sizes": list(claim.sizes),
            "sizes_reason": claim.sizes_reason,
        }

    def to_store(self) -> dict[str, Any]:
        """An entry of `claims.json`: the number and where it is from. The rule and its verdict are not part of it."""
        m = self.measurement
        values = m.to_dict() if m else {}
        return {
            "id": self.claim.id,
            "quantity": self.claim.quantity,
            "measured": values.get("value"),
            "interval": [values["low"], values["high"]] if m else None,
            "n": values.get("n"),
            "unit": values.get("unit"),
            "exact": values.get("exact"),
            "numbers": dict(m.numbers) if m else {},
            "note": values.get("note", ""),
            "groups": {name: keys_digest(settings["keys"]) for name, settings in self.settings.items()},
            "cost": dict(self.cost) if self.cost else None,
            "made": dict(self.provenance) if self.provenance else None,
        }


def details_of(results: Iterable[ClaimResult]) -> dict[str, Any]:
    """Tables and charts of the measured claims, by claim, and the settings of their models, by group."""
    figures: dict[str, Any] = {}
    groups: dict[str, Any] = {}
    for result in results:
        m = result.measurement
        if m is None:
            continue
        if m.tables or m.charts:
            figures[result.claim.id] = {"tables": m.tables, "charts": m.charts}
        groups |= {keys_digest(settings["keys"]): settings for settings in result.settings.values()}
    return {"figures": figures, "groups": groups}


@dataclass(frozen=True, kw_only=True)
class StudyResult:
    """Every claim of a study at one size. Prints as a table of verdicts."""

    study: str
    title: str
    size: Size
    claims: tuple[ClaimResult, ...]
    """In the study's order."""
    manifest: Mapping[str, Any]
    """Versions, hardware, threads, seed; computing time of all runs together, and wall-clock time of this one."""
    only: tuple[str, ...] = ()
    """Ids of the claims that were chosen, which alone are printed; empty: all."""
    page: Path
    """The HTML page; `claims.json` and `details.json.xz` are in the same folder."""

    @property
    def verdicts(self) -> dict[str, str]:
        """The label of each claim, by its id."""
        return {result.claim.id: result.label for result in self.claims}

    @property
    def tally(self) -> str:
        """Number of claims by verdict, in words: published statements and our own apart."""
        return _tally(self.claims)

    @property
    def by_chance(self) -> float:
        """Expected number of claims reproduced by chance if every true value were at the bar of its rule.

        An upper limit where models were added after a look.
        """
        judged = [result.claim for result in self.claims if result.verdict and not result.claim.by_construction]
        return sum(claim.chance for claim in judged)

    @property
    def chance_text(self) -> str:
        """`by_chance` in words."""
        n_judged = sum(bool(result.verdict) and not result.claim.by_construction for result in self.claims)
        n_added = sum(bool(result.claim.preregistration.looks) for result in self.claims if result.verdict)
        limit = "at most " if n_added else ""
        text = (
            f"If every true value were exactly at its threshold, {limit}{self.by_chance:.1f} of {n_judged} statements "
            "would still be reproduced by chance"
        )
        if not n_added:
            return f"{text}."
        return f"{text}. For {n_added} of them more was measured after a look at the number, which is counted."

    @property
    def preregistrations(self) -> str:
        """Number of claims by when their rules were fixed, in words."""
        counts = Counter(result.claim.preregistration.when for result in self.claims)
        return ", ".join(f"{counts[when]} {when}" for when in get_args(When) if counts[when])

    @property
    def details(self) -> dict[str, Any]:
        """The content of `details.json.xz`: tables and charts of all numbers, and the settings of their models."""
        return details_of(self.claims)

    def to_dict(self) -> dict[str, Any]:
        """Every claim with its number and verdict as plain values, ready for JSON."""
        return {**self.to_store(), "claims": [result.to_dict() for result in self.claims]}

    def to_store(self) -> dict[str, Any]:
        """The content of `claims.json`: every number, and where it is from."""
        return {
            "study": self.study,
            "title": self.title,
            "size": self.size,
            "manifest": dict(self.manifest),
            "claims": [result.to_store() for result in self.claims if result.measurement],
        }

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per claim."""
        import pandas as pd

        rows = []
        for result in self.claims:
            row: dict[str, Any] = {"claim": result.claim.id, "paper": result.claim.paper, "verdict": result.label}
            if m := result.measurement:
                row |= {"measured": m.value, "low": m.low, "high": m.high, "n": m.n, "unit": m.unit}
            rows.append(row)
        columns = ["claim", "paper", "measured", "low", "high", "n", "unit", "verdict"]
        return pd.DataFrame(rows, columns=columns)

    def __str__(self) -> str:
        results = [result for result in self.claims if not self.only or result.claim.id in self.only]
        rows = [(r.claim.id, r.label, r.number, r.sample, r.claim.paper or "–") for r in results]
        table = text_table(
            ("claim", "verdict", "measured [95 %]", "n", "paper"), rows, [[r.criterion] for r in results]
        )
        return f"{table}\n\n{self.study} at size {self.size}. {_tally(results)}"


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]], remarks: Sequence[Sequence[str]]) -> str:
    """A table as aligned text.

    Args:
        header: Titles of the columns.
        rows: The cells of each row.
        remarks: Texts below each row; empty ones are left out.
    """
    n_aligned = len(header) - 1  # the last column is not padded
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(n_aligned)]
    lines: list[str] = []
    for row, texts in zip((header, *rows), ((), *remarks), strict=True):
        padded = [cell.ljust(width) for cell, width in zip(row[:n_aligned], widths, strict=True)]
        lines.append("  ".join([*padded, row[-1]]))
        lines += [f"    {text}" for text in texts if text]
    return "\n".join(lines)


def _tally(results: Sequence[ClaimResult]) -> str:
    """Number of results by label, in words; verdicts are named if there is none too.

    Published statements and our own are counted apart.
    """
    published_results = [result for result in results if not result.claim.is_ours]
    own_results = [result for result in results if result.claim.is_ours]
    texts = []
    for name, counted in (
        (quantity(len(published_results), "published statement"), published_results),
        (f"{len(own_results)} of ours", own_results),
    ):
        counts = Counter(result.label for result in counted)
        labels = [f"{counts[label]} {label}" for label in LABELS if label in CLAIM_VERDICTS or counts[label]]
        if counted:
            texts.append(f"{name}: {', '.join(labels)}")
    return "; ".join(texts)
