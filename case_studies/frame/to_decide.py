"""What would decide a claim that is not measured, or inconclusive by its rule (`rules.py`).

The number of units that would be enough is estimated from the interval.
The half-width of an interval falls with the root of the number of units. An interval whose half-width is w on the side
of the rule's bar, and whose value is at a distance d from the bar, excludes it with about n (w / d)^2 units in place of
n, if value and spread stay the same. With few units this is an upper estimate, as the quantiles of t fall too.
"""

import math
from collections.abc import Sequence

from case_studies.frame.measurement import Measurement
from case_studies.frame.results import ClaimResult

FAR = 100
"""Factor on the number of units above which the value counts as at the bar."""


def units_to_decide(m: Measurement, bars: Sequence[float]) -> float:
    """Estimated number of units with which the interval would exclude every bar that it contains.

    Args:
        m: The measurement.
        bars: The bars of its rule.

    Returns:
        n (w / d)^2 for the bar that needs most; inf if the value is at a bar or its interval is unbounded, 0 if the
        interval contains no bar.
    """
    units = 0.0
    for bar in bars:
        if not m.low <= bar <= m.high:
            continue
        if bar == m.value:
            return math.inf
        # Half-width on the side of the bar
        half_width = m.value - m.low if bar < m.value else m.high - m.value
        units = max(units, m.n * (half_width / abs(m.value - bar)) ** 2)
    return units


def to_decide(result: ClaimResult) -> str:
    """What would decide a claim, in words; empty if its verdict is decided."""
    if result.verdict in ("reproduced", "not reproduced"):
        return ""
    claim, m = result.claim, result.measurement
    remedies: list[str] = []
    if m is None:
        sizes = " or ".join(claim.sizes)
        remedies.append(f"a run at size {sizes}" if sizes else "nothing: no size measures it")
    else:
        # Conditions that are open, heads that are undecided, and more units
        remedies += claim.rule.unmet(m)
        if m.numbers.get("undecided"):
            remedies.append(f"fewer undecided heads or models (now {m.numbers['undecided']})")
        units = units_to_decide(m, claim.rule.bars)
        if units or not remedies:
            remedies.append(_more_units(m, units))
    if claim.remedy:
        remedies.append(claim.remedy)
    return "; ".join(remedies)


def _more_units(m: Measurement, units: float) -> str:
    """The number of units in words."""
    if not units:
        return f"not more {m.unit}: no threshold is in the interval"
    if m.n == 1:
        return f"more than one of its {m.unit}, for an interval at all"
    if units > FAR * m.n:
        return f"hardly more {m.unit}: the value is at the threshold"
    return f"about {max(math.ceil(units), m.n + 1)} {m.unit} in place of {m.n}, if value and spread stay the same"
