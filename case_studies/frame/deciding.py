"""What would decide a claim that is inconclusive or not measured: units, models and hours, estimated from its numbers.

The half-width of an interval falls with the root of the number of units. An interval whose half-width is w on the side
of the rule's bar, and whose value is at a distance d from the bar, excludes it with about n (w / d)^2 units in place of
n, if value and spread stay the same. With few units this is an upper estimate, as the quantiles of t fall too.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from case_studies.frame.measurement import Measurement
from case_studies.frame.rules import Conditional, Number, Rule
from interp.core.page_identity import quantity

if TYPE_CHECKING:
    from case_studies.frame.results import ClaimResult, StudyResult

FAR = 100
"""Factor on the number of units above which the value counts as at the bar."""
A_NIGHT = 12 * 3600.0
"""Seconds of one core up to which deciding a claim counts as affordable without a GPU."""


def units_to_decide(m: Measurement, bars: Sequence[float]) -> float:
    """Estimated number of units with which the interval would exclude every bar that it contains.

    Args:
        m: The measurement.
        bars: The bars of its rule.

    Returns:
        n (w / d)^2 for the bar that needs most; inf if the value is at a bar or its interval is unbounded, 0 if the
        interval contains no bar.
    """
    needed = 0.0
    for bar in bars:
        if m.low <= bar <= m.high:
            width = m.value - m.low if bar < m.value else m.high - m.value
            needed = max(needed, m.n * (width / abs(m.value - bar)) ** 2 if bar != m.value else math.inf)
    return needed


def seconds_to_decide(one: "ClaimResult", study: "StudyResult") -> float:
    """Estimated seconds of one core that would decide an inconclusive claim; inf if more models would not decide it.

    That is where the value is at the bar, where a condition of the rule is open, where heads or models are undecided,
    where there is a single unit, and where no models are trained. Without recorded costs it is 0.
    """
    m = one.measurement
    assert m is not None
    units = units_to_decide(m, one.claim.rule.bars)
    if (
        units == 0
        or unmet_conditions(one.claim.rule, m)
        or m.n == 1
        or units > FAR * m.n
        or undecided(m)
        or not one.settings
    ):
        return math.inf
    return _effort(one, study, units)[1] or 0.0


def what_is_open(study: "StudyResult") -> str:
    """How many inconclusive claims more models would decide, and at what cost, in a sentence; empty without any."""
    seconds = [seconds_to_decide(one, study) for one in study.claims if one.label == "inconclusive"]
    if not seconds:
        return ""
    never, long = sum(map(math.isinf, seconds)), sum(A_NIGHT < one < math.inf for one in seconds)
    night = f"up to {A_NIGHT / 3600:.0f} h of one core each"
    parts = (
        (len(seconds) - never - long, night),
        (long, "longer or a GPU"),
        (never, "something other than more models"),
    )
    takes = ", ".join(f"{what} for {n}" for n, what in parts if n)
    return f"What would decide the {quantity(len(seconds), 'inconclusive claim')}: {takes}."


def undecided(m: Measurement) -> int:
    """Number of heads or models that the interval counts as either; more units do not narrow that part of it."""
    found = m.numbers.get("undecided", 0)
    return found if isinstance(found, int) else 0


def to_decide(one: "ClaimResult", study: "StudyResult") -> str:
    """What would decide a claim, in words; empty if its verdict is decided.

    Args:
        one: The claim's result.
        study: The results that it is one of; their costs give the mean training time of a model.
    """
    if one.verdict in ("reproduced", "not reproduced"):
        return ""
    return "; ".join(part for part in (_computed(one, study), one.claim.remedy) if part)


def _computed(one: "ClaimResult", study: "StudyResult") -> str:
    m = one.measurement
    if m is None:
        return _run(one, study)
    unmet = [_unmet(condition, m) for condition in unmet_conditions(one.claim.rule, m)]
    needed = units_to_decide(m, one.claim.rule.bars)
    if undecided(m):
        unmet.append(f"fewer undecided ones (now {undecided(m)}), which more {m.unit} do not make fewer")
    if needed == 0:
        return "; ".join(unmet) or f"not more {m.unit}: no bar is in the interval, a condition of the rule is open"
    return "; ".join([*unmet, _units(one, study, needed)])


def conditions(rule: Rule) -> list[Number]:
    """The conditions without which a rule decides nothing."""
    return [rule.condition, *conditions(rule.rule)] if isinstance(rule, Conditional) else []


def unmet_conditions(rule: Rule, m: Measurement) -> list[Number]:
    """Those of `conditions` that a measurement does not meet."""
    return [condition for condition in conditions(rule) if condition.verdict(m) != "reproduced"]


def seconds_per_model(one: "ClaimResult", study: "StudyResult") -> float | None:
    """Mean training time of the claim's models, where it was recorded; else that of all models of the study."""
    trained = (one.made or {}).get("trained") or {}
    models = _models(one)
    if models and trained.get("seconds"):
        return trained["seconds"] / models
    there = study.manifest["models"]["there"]
    training = study.manifest["seconds"] - sum(other.cost["seconds"] for other in study.claims if other.cost)
    return training / there if there and training > 0 else None


def _run(one: "ClaimResult", study: "StudyResult") -> str:
    """For a claim without a measurement: the run that would measure it."""
    claim = one.claim
    if study.size not in claim.sizes:
        sizes = " or ".join(claim.sizes)
        return f"a run at size {sizes}; its cost there is not recorded" if sizes else "nothing: no size measures it"
    command = f"interp reproduce {study.study} --size {study.size} --only {claim.id}"
    models, each = sum(study.models.get(group, 0) for group in claim.needs), seconds_per_model(one, study)
    if not models:
        return f"a run of {command}, without models to train"
    time = f", {_time(models * each)}" if each else ""
    return f"a run of {command}: {quantity(models, 'model')}{time} if none is stored"


def _units(one: "ClaimResult", study: "StudyResult", needed: float) -> str:
    """For an interval that contains a bar: the number of units, and what they would cost."""
    m = one.measurement
    assert m is not None
    if m.n == 1:
        return f"more than one of its {m.unit}, for an interval at all"
    if needed > FAR * m.n:
        return f"hardly more {m.unit}: the value is at the bar, and more than {FAR * m.n:,} would be needed"
    units = max(math.ceil(needed), m.n + 1)
    models, seconds = _effort(one, study, needed)
    effort = [quantity(models, "more model")] if models else []
    if seconds is not None:
        effort.append(_time(seconds))
    about = f"about {units} {m.unit} in place of {m.n}, if value and spread stay the same"
    return f"{about}: {', '.join(effort)}" if effort else about


def _effort(one: "ClaimResult", study: "StudyResult", needed: float) -> tuple[int, float | None]:
    """Further models and seconds of one core for this number of units; None where costs are not recorded."""
    m, cost = one.measurement, one.cost or {}
    assert m is not None
    more = (max(math.ceil(needed), m.n + 1) - m.n) / m.n
    models, each = math.ceil(_models(one) * more), seconds_per_model(one, study)
    if not cost or (models and not each):
        return models, None
    measuring = cost["seconds"] if cost["cpu_seconds"] is None else cost["cpu_seconds"]
    return models, models * (each or 0.0) + measuring * more


def _unmet(condition: Number, m: Measurement) -> str:
    """A condition that is not met, and for a count the units that it takes."""
    now, bar = m.numbers[condition.name], condition.rule.bars
    text = f"first, {condition.passes()} (it is {now:.3g})"
    if isinstance(now, int) and now and bar and bar[0] > now:
        text += f", which takes about {math.ceil(m.n * bar[0] / now)} {m.unit}"
    return text


def _models(one: "ClaimResult") -> int:
    return sum(described["models"] for described in one.settings.values())


def _time(seconds: float) -> str:
    if seconds < 60:
        return "below a minute of one core"
    return f"{seconds / 60:.0f} min of one core" if seconds < 3600 else f"{seconds / 3600:.1f} h of one core"
