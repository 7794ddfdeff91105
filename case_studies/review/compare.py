"""One claim measured again: equal to its stored number, within its interval, or different; and what has changed."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from case_studies.frame.measurement import rounded_interval
from case_studies.frame.results import ClaimResult
from case_studies.frame.stored import StoredResults, ends_of
from interp.core.environment import source_line

CheckStatus = Literal["same", "within", "differs", "not shipped", "not measured"]
STATUSES: tuple[CheckStatus, ...] = get_args(CheckStatus)
ROUNDING = 1e-6
"""Difference of two numbers without an interval that counts as rounding, absolute and relative."""
COMPARED = {"measured": "number", "interval": "interval", "n": "n", "numbers": "further figures"}
"""What must be equal, with its name."""
PACKS, CLOCK, WEIGHTS = "packs", "clock", "weights of the models"
PROCESSOR = "another processor"
OF_PROCESSOR = ("processor", "capability")
"""Fields of the hardware on which the last bits of a number depend."""
EXPECTED = frozenset({"size", "seed", "versions", "threads", PROCESSOR, "hardware", "training", CLOCK, "commit"})
"""What may change a number within its interval; settings and data may not."""


@dataclass(frozen=True, kw_only=True)
class ClaimCheck:
    """A claim's stored and its new number."""

    claim: str
    status: CheckStatus
    """`same`: equal bit for bit. `within`: in the stored interval with the same verdict, and something that may change
    numbers is not as it was. `not shipped`: no stored number. `not measured`: not at this size."""
    reason: str
    """What differs, in words; empty if the status is `same`."""
    causes: tuple[str, ...] = ()
    """What is not as it was when the number was stored."""
    stored: Mapping[str, Any] | None
    """Number, interval, n and verdict."""
    measured: Mapping[str, Any] | None

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {"id": self.claim} | {name: value for name, value in vars(self).items() if name != "claim"}


def check_claim(
    stored: StoredResults, now: ClaimResult, *, size: str, seed: int, same_models: bool = False
) -> ClaimCheck:
    """Compare a claim measured again with its stored number.

    Args:
        stored: The stored results.
        now: The claim as measured now.
        size: Size of the new measurement.
        seed: Its seed.
        same_models: Whether the models are given as those of the stored number, as in a bundle; others differ.
    """
    claim = now.claim
    entry = stored.entry(claim)
    new_entry = json.loads(json.dumps(now.to_store()))  # as it would be stored
    measured = _summary(new_entry, now.label) if now.measurement else None
    # Without two numbers there is nothing to compare
    if entry is None:
        reason = f"{stored.origin} has no number of this claim"
        return ClaimCheck(claim=claim.id, status="not shipped", reason=reason, stored=None, measured=measured)
    verdict = stored.verdict(claim)
    stored_summary = _summary(entry, verdict)
    if now.measurement is None:
        is_measurable = size in claim.sizes and not claim.missing_input
        status = "differs" if is_measurable else "not measured"
        return ClaimCheck(claim=claim.id, status=status, reason=now.note, stored=stored_summary, measured=None)
    # Compare them in view of what has changed since
    changes = _changes(stored, entry, now, size, seed)
    status, reason = _compare(entry, new_entry, now, verdict, changes)
    if same_models and WEIGHTS in changes:
        status, reason = "differs", "the models are not those that the stored number was measured on"
    causes = [f"{name}: {text}" for name, text in changes.items() if status != "same"]
    return ClaimCheck(
        claim=claim.id,
        status=status,
        reason=reason,
        causes=tuple(causes),
        stored=stored_summary,
        measured=measured,
    )


def _summary(entry: Mapping[str, Any], verdict: str) -> dict[str, Any]:
    return {name: entry[name] for name in ("measured", "interval", "n")} | {"verdict": verdict}


def _compare(
    entry: Mapping[str, Any], new_entry: Mapping[str, Any], now: ClaimResult, verdict: str, changes: Mapping[str, str]
) -> tuple[CheckStatus, str]:
    """Status of two numbers, and its reason.

    A different number differs if it contradicts the stored one, or if nothing but data can have changed it; it is
    within if the clock, the seed, the machine or the commit can have.
    """
    different = " and ".join(text for name, text in COMPARED.items() if new_entry[name] != entry[name])
    if not different:
        return "same", ""
    if contradiction := _contradiction(entry, now, verdict):
        return "differs", contradiction
    if PACKS in changes:
        word = now.claim.packs.word if now.claim.packs else PACKS
        return "differs", f"another {different}, on other {word}"
    if CLOCK in changes:
        return "within", f"another {different}, which depends on the clock"
    if EXPECTED & changes.keys():
        return "within", f"another {different}; the number is in the stored interval"
    return "differs", f"another {different}, which nothing that has changed explains"


def _contradiction(entry: Mapping[str, Any], now: ClaimResult, verdict: str) -> str:
    """What of the new number contradicts the stored one, in words; empty if nothing does."""
    m = now.measurement
    assert m is not None
    low, high = interval_ends(entry)
    # A time near its bar may be inconclusive in one of two measurements
    is_noise = not now.claim.repeatable and "inconclusive" in (verdict, now.label)
    if verdict != now.label and not is_noise:
        return f"the verdict is {now.label}, was {verdict}"
    # The number must be in the stored interval; without one, equal up to rounding
    margin = ROUNDING * (1 + abs(entry["measured"])) if entry["exact"] else 0.0
    if low - margin <= m.value <= high + margin:
        return ""
    number, low_text, high_text = rounded_interval(entry["measured"], low, high)
    if low == high:
        return f"{m.value:.6g} is not equal to the stored value {number}"
    return f"{m.value:.6g} is not in the stored interval [{low_text}, {high_text}]"


def interval_ends(entry: Mapping[str, Any]) -> tuple[float, float]:
    """The ends of a stored interval; unbounded ones are stored as None."""
    return ends_of(entry["interval"])


def _changes(stored: StoredResults, entry: Mapping[str, Any], now: ClaimResult, size: str, seed: int) -> dict[str, str]:
    """What is not as it was when a number was stored, by name; settings are not compared at another size."""
    before = entry["made"]
    after = now.provenance or {}
    # What the number depends on, as stored and now
    pairs: dict[str, tuple[Any, Any]] = {
        "size": (stored.size, size),
        "seed": (stored.content["manifest"]["seed"], seed),
        PACKS: (before.get("packs", "none"), after.get("packs", "none")),
    }
    if size == stored.size:
        settings = {name: stored.details["groups"][digest] for name, digest in entry["groups"].items()}
        pairs["settings of the models"] = (settings, json.loads(json.dumps(dict(now.settings))))
    for name in ("versions", "threads"):
        pairs[name] = (before.get(name), after.get(name))
    # Only what both say of their hardware can differ
    hardware, new_hardware = before.get("hardware") or {}, after.get("hardware") or {}
    recorded = hardware.keys() & new_hardware.keys()
    for name, fields in ((PROCESSOR, recorded & set(OF_PROCESSOR)), ("hardware", recorded - set(OF_PROCESSOR))):
        stored_fields = {field: hardware[field] for field in sorted(fields)}
        pairs[name] = (stored_fields, {field: new_hardware[field] for field in stored_fields})
    # Weights may differ where models were trained in another environment
    models = before.get("trained") or {}
    new_models = after.get("trained") or {}
    if models.get("weights") != new_models.get("weights"):
        pairs[WEIGHTS] = (models.get("weights"), new_models.get("weights"))
        pairs["training"] = (models.get("environments"), new_models.get("environments"))
    pairs["commit"] = (source_line(before.get("source") or {}), source_line(after.get("source") or {}))
    changes = {name: _difference(old, new) for name, (old, new) in pairs.items() if old != new}
    if not now.claim.repeatable:
        changes[CLOCK] = "times change with what else the machine does"
    return changes


def _difference(old: Any, new: Any) -> str:
    """What differs between two plain values: the entries of mappings, or the values."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        texts = []
        for name in dict.fromkeys([*old, *new]):
            old_value, new_value = old.get(name), new.get(name)
            if old_value != new_value:
                text = _difference(old_value, new_value)
                texts.append(text if isinstance(old_value, Mapping) else f"{name} {text}")
        return ", ".join(texts)
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new) == 1:
        return _difference(old[0], new[0])
    return f"{_short(old)} stored, {_short(new)} here"


def _short(value: Any) -> str:
    """A plain value as text of at most 60 characters."""
    text = value if isinstance(value, str) and value.isprintable() else json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
