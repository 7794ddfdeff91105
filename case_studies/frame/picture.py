"""The picture of a study: every measured claim as a dot with its interval, relative to its threshold."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from case_studies.frame.finding import claim_page
from case_studies.frame.measurement import Measurement
from case_studies.frame.parts import fragment
from case_studies.frame.results import ClaimResult
from interp.core.plain_words import plain_words

MARKS = {"reproduced": "✓", "not reproduced": "✗", "inconclusive": "○", "by construction": "≡", "not measured": "–"}
"""What is written before each verdict."""
REACH = 46.0
"""Largest distance of a mark from the middle of its line, in percent of the width."""
LEGEND = (
    "A dot is a measured number (hollow: undecided), the line through it its 95 % interval. The vertical line is the "
    "threshold; on its shaded side a number is as the statement says. Every row has its own scale, and opens the "
    "statement's page."
)


@dataclass(frozen=True, kw_only=True)
class Line:
    """The places of a claim's number, interval and thresholds, in percent of the width; the threshold is at 50."""

    value: float
    low: float
    high: float
    end: float
    """Where the shaded range in which the statement holds ends on the right."""


def line_of(m: Measurement, passing_range: tuple[float, float]) -> Line | None:
    """Where a measurement is drawn, relative to the threshold that is nearest to its value.

    Args:
        m: The measurement.
        passing_range: Least and largest value that the claim's rule accepts.

    Returns:
        Its places; values that the rule accepts are on the right. None if the rule has no threshold for the value.
    """
    thresholds = [threshold for threshold in passing_range if math.isfinite(threshold)]
    if not thresholds:
        return None
    nearest = min(thresholds, key=lambda threshold: abs(m.value - threshold))
    # The accepted side is on the right; a number that must be equal to the threshold is on the left if it is not
    least, most = passing_range
    is_upper = m.high > nearest if least == most else nearest == most
    sign = -1 if is_upper else 1
    distances = [sign * (number - nearest) for number in (m.value, m.low, m.high)]
    furthest = max(abs(distance) for distance in distances if math.isfinite(distance)) or 1.0

    def place(distance: float) -> float:
        return 50 + REACH * max(-1.0, min(1.0, distance / furthest))

    ends = sorted(map(place, distances[1:]))
    width = most - least
    end = 100.0 if width > furthest else place(width)
    return Line(value=place(distances[0]), low=ends[0], high=ends[1], end=end)


def picture(title: str, results: Sequence[ClaimResult]) -> Markup:
    """Every measured claim as a line: statement, dot with interval, and number; each is a link to the claim's page.

    Args:
        title: Heading of these claims.
        results: The claims; those without a measurement are left out.
    """
    measured = [result for result in results if result.measurement is not None]
    return fragment("picture", title, [_line(result) for result in measured])


def _line(result: ClaimResult) -> dict[str, Any]:
    """The line of a claim, as the template draws it."""
    claim, m = result.claim, result.measurement
    assert m is not None
    hint = f"{result.label}: {claim.quantity} {result.number}, n = {result.sample}".replace("  ", " ")
    return {
        "label": result.label,
        "mark": MARKS[result.label],
        "page": claim_page(claim.id),
        "hint": plain_words(hint),
        "statement": plain_words(claim.statement),
        "drawing": line_of(m, claim.rule.passing_range),
        "number": result.number,
        "threshold": _thresholds(claim.rule.passing_range),
    }


def _thresholds(passing_range: tuple[float, float]) -> str:
    """The thresholds in a few words."""
    least, most = passing_range
    if least == most:
        return f"must be {least:.4g}"
    if math.isfinite(least) and math.isfinite(most):
        return f"between {least:.4g} and {most:.4g}"
    if math.isfinite(least):
        return f"threshold {least:.4g}"
    return f"threshold {most:.4g}" if math.isfinite(most) else ""
