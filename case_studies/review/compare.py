"""One claim measured again: equal to its stored number, within its interval, or different, and the likeliest cause."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from case_studies.frame.measurement import shown
from case_studies.frame.results import ClaimResult
from case_studies.frame.stored import StoredResults

Status = Literal["same", "within", "differs", "not shipped", "not measured"]
STATUSES: tuple[Status, ...] = get_args(Status)
ROUNDING = 1e-6
"""Difference of two numbers without an interval that counts as rounding, absolute and relative."""
PARTS = {"measured": "number", "interval": "interval", "n": "n", "numbers": "further figures"}
"""What must be equal, with its name."""
UNKNOWN = "an earlier version of the program, whose source was not recorded"
NONE = "unknown: code, versions, hardware, threads, seed and weights are those of the stored number"
CLOCK = "the clock: times change with what else the machine does"


@dataclass(frozen=True)
class Cause:
    """Something that is not as it was when a number was stored."""

    text: str
    expected: bool
    """Whether numbers may differ within their intervals because of it: versions, hardware, seeds, but not code."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A claim's stored and its new number."""

    claim: str
    status: Status
    """`same`: equal bit for bit. `within`: in the stored interval with the same verdict, and something that may change
    numbers is not as it was. `not shipped`: no stored number. `not measured`: not at this size."""
    reason: str
    """What differs, in words; empty if the status is `same`."""
    causes: tuple[str, ...]
    """Possible causes, likeliest first."""
    stored: Mapping[str, Any] | None
    """Number, interval, n and verdict."""
    measured: Mapping[str, Any] | None

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        texts = {"id": self.claim, "status": self.status, "reason": self.reason, "causes": list(self.causes)}
        return texts | {"stored": self.stored, "measured": self.measured}


def compare(stored: StoredResults, now: ClaimResult, *, size: str, seed: int) -> Comparison:
    """Compare a claim measured again with its stored number.

    Args:
        stored: The stored results.
        now: The claim as measured now.
        size: Size of the new measurement.
        seed: Its seed.
    """
    before = stored.entry(now.claim)
    new = json.loads(json.dumps(now.to_dict()))
    verdict = stored.verdict(now.claim)

    def result(status: Status, reason: str = "", causes: tuple[str, ...] = ()) -> Comparison:
        old = {**_summary(before), "verdict": verdict} if before and before["measured"] is not None else None
        here = _summary(new) if now.measurement else None
        parts = {"status": status, "reason": reason, "causes": causes, "stored": old, "measured": here}
        return Comparison(claim=now.claim.id, **parts)

    if before is None or before["measured"] is None:
        return result("not shipped", f"{stored.origin} has no number of this claim")
    if now.measurement is None:
        return result("not measured" if size not in now.claim.sizes or now.claim.missing_input else "differs", now.note)
    other = " and ".join(text for name, text in PARTS.items() if new[name] != before[name])
    if not other:
        return result("same")
    causes = _causes(stored, before, now, size=size, seed=seed)
    texts = tuple(cause.text for cause in causes)
    outside = _outside(before, now, verdict)
    if outside:
        return result("differs", outside, texts or (NONE,))
    if _packs(before) != _packs(new):
        return result("differs", f"another {other}, on other packs", texts)
    if before.get("measure") not in (None, now.measure):
        return result("differs", f"another {other}, and the code of its measure has changed", texts)
    if not now.claim.repeatable:
        return result("within", f"another {other}, which depends on the clock", texts)
    if any(cause.expected for cause in causes):
        return result("within", f"another {other}; the number is in the stored interval", texts)
    return result("differs", f"another {other}, which only code can have changed", texts or (NONE,))


def _summary(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {name: entry[name] for name in ("measured", "interval", "n", "verdict")}


def _packs(entry: Mapping[str, Any]) -> str:
    """Digest of the packs that an entry of `claims.json` was measured on, or `none`."""
    return (entry["made"] or {}).get("packs", "none")


def _outside(before: Mapping[str, Any], now: ClaimResult, verdict: str) -> str:
    """What of the new number contradicts the stored one, in words; empty if nothing does."""
    m = now.measurement
    assert m is not None
    low, high = before["interval"]
    noise = not now.claim.repeatable and "inconclusive" in (verdict, now.label)
    if verdict != now.label and not noise:
        return f"the verdict is {now.label}, was {verdict}"
    margin = ROUNDING * (1 + abs(before["measured"])) if before.get("exact") else 0.0
    if (low is None or m.value >= low - margin) and (high is None or m.value <= high + margin):
        return ""
    ends = shown(
        before["measured"], low if low is not None else float("-inf"), high if high is not None else float("inf")
    )
    interval = f"the stored interval [{ends[1]}, {ends[2]}]" if low != high else f"the stored value {ends[0]}"
    return f"{m.value:.6g} is not {'in' if low != high else 'equal to'} {interval}"


def _causes(stored: StoredResults, before: Mapping[str, Any], now: ClaimResult, *, size: str, seed: int) -> list[Cause]:
    """What is not as it was, likeliest cause of a difference first."""
    made, here = before["made"] or {}, now.made or {}
    found: list[Cause] = []
    if before.get("measure") not in (None, now.measure):
        found.append(Cause("code: that of its measure", False))
    if size != stored.size:
        found.append(Cause(f"size: {stored.size} stored, {size} here", True))
    else:
        found += _other_settings(stored, before, now)
    if stored.content["manifest"]["seed"] != seed:
        found.append(Cause(f"seed: {stored.content['manifest']['seed']} stored, {seed} here", True))
    for name in ("versions", "threads", "hardware"):
        if made.get(name) != here.get(name):
            found.append(Cause(f"{name}: {_difference(made.get(name), here.get(name))}", True))
    packs = here.get("packs", "none")
    if _packs(before) != packs:
        found.append(Cause(f"data: packs {_difference(_packs(before), packs)}", False))
    found += _other_models(made.get("trained"), here.get("trained"))
    if made.get("code") is None:
        found.append(Cause(f"code: {UNKNOWN}", True))
    elif made["code"] != here.get("code"):
        names = [name for name, digest in made["code"].items() if digest != here["code"].get(name)]
        found.append(Cause(f"code: that of {', '.join(names)}", False))
    if not now.claim.repeatable:
        found.append(Cause(CLOCK, True))
    return found


def _other_settings(stored: StoredResults, before: Mapping[str, Any], now: ClaimResult) -> list[Cause]:
    new = json.loads(json.dumps(dict(now.settings)))
    old = {name: stored.details["groups"][name] for name in before["groups"]}
    if new == old:
        return []
    if set(new) != set(old):
        return [Cause(f"code: its models are {', '.join(new) or 'none'}, were {', '.join(old) or 'none'}", False)]
    group = next(name for name in new if new[name] != old[name])
    if _without_fingerprints(new) == _without_fingerprints(old):
        return [Cause(f"data: the text that the models {group} are trained on", False)]
    return [Cause(f"code: settings of the models {group}: {_difference(old[group], new[group])}", False)]


def _other_models(before: Mapping[str, Any] | None, here: Mapping[str, Any] | None) -> list[Cause]:
    """Weights that differ: because of the environment in which the models were trained, or not."""
    if not before or not here or before["weights"] == here["weights"]:
        return []
    if before["environments"] == here["environments"]:
        return [Cause("code: that of the training, whose environment is the same and whose weights are not", False)]
    old, new = (_merged(one["environments"]) for one in (before, here))
    return [Cause(f"training: {_difference(old, new)}", True)]


def _merged(environments: list[Mapping[str, Any]]) -> dict[str, Any]:
    return {name: [one[name] for one in environments] for name in ("versions", "threads", "hardware")}


def _without_fingerprints(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_fingerprints(one) for name, one in value.items() if name != "fingerprint"}
    return [_without_fingerprints(one) for one in value] if isinstance(value, list) else value


def _difference(old: Any, new: Any) -> str:
    """What differs between two plain values: the entries of mappings, or the values."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        names = [name for name in dict.fromkeys([*old, *new]) if old.get(name) != new.get(name)]
        parts = [(name, _difference(old.get(name), new.get(name))) for name in names]
        return ", ".join(text if isinstance(old.get(name), Mapping) else f"{name} {text}" for name, text in parts)
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new) == 1:
        return _difference(old[0], new[0])
    return f"{_short(old)} stored, {_short(new)} here"


def _short(value: Any) -> str:
    text = value if isinstance(value, str) and value.isprintable() else json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
