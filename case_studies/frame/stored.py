"""Stored results: `claims.json`, and charts, tables and settings in `details.json.xz`; judged again when read."""

import hashlib
import io
import json
import lzma
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from case_studies.frame.claims import BY_CONSTRUCTION, NOT_MEASURED, Claim
from case_studies.frame.evidence import SIZES, Size
from case_studies.frame.measurement import Measurement
from case_studies.frame.packs import packs_digest
from case_studies.frame.results import ClaimResult, StudyResult
from case_studies.frame.rules import VERDICTS
from case_studies.frame.sources import measure_digest
from hooks.files import FAULTS, shortened, write_bytes, write_text
from interp.sweeps.spec import ModelSpec

CLAIMS, DETAILS, PAGE = "claims.json", "details.json.xz", "report.html"
LABELS = (*VERDICTS, BY_CONSTRUCTION, NOT_MEASURED)
FOR_TEXT = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "lp": 0, "pb": 0}]
"""Compression of text, as the manual of xz recommends."""
LARGEST = 256 * 2**20
"""Bytes of the largest file that is read, after decompression."""
ENVIRONMENT = ("versions", "hardware", "threads", "source", "code")
"""The parts of the provenance that many claims share."""
EARLIER = "Measured with an earlier version of the program, which did not record the source of its measures."


class _Claims(Protocol):
    """What is needed of a study."""

    @property
    def name(self) -> str: ...
    @property
    def claims(self) -> Sequence[Claim]: ...
    @property
    def groups(self) -> Callable[[Size], Mapping[str, Sequence[ModelSpec]]]: ...


@dataclass(frozen=True, kw_only=True)
class StoredResults:
    """The results of a study at one size, as they were stored."""

    content: Mapping[str, Any]
    """The content of `claims.json`."""
    details: Mapping[str, Any]
    """The content of `details.json.xz`: `figures` (tables and charts by claim), `groups` (settings of models)."""
    files: Mapping[str, bytes]
    """The files that they were read from."""
    origin: str
    """Where they were read from, in words."""

    @property
    def size(self) -> Any:
        """Size of the study."""
        return self.content["size"]

    def entry(self, claim: Claim) -> Mapping[str, Any] | None:
        """What is stored of a claim, with its interval cut at the ends of its range; None if nothing is."""
        stored = next((one for one in self.content["claims"] if one["id"] == claim.id), None)
        if stored is None or stored["interval"] is None or claim.value_range is None:
            return stored
        (low, high), (least, most) = stored["interval"], claim.value_range
        ends = [least if low is None else max(low, least), most if high is None else min(high, most)]
        return {**stored, "interval": ends}

    def verdict(self, claim: Claim) -> str:
        """Label of a claim's stored number by today's rule, also if its measure has changed; else the stored label."""
        stored = self.entry(claim)
        if stored is None or stored["measured"] is None:
            return NOT_MEASURED
        try:
            measurement = claim.in_range(self._measurement(stored))
            return ClaimResult(claim=claim, verdict=claim.verdict(measurement), measurement=measurement).label
        except (ValueError, KeyError, TypeError):
            return stored["verdict"]

    def claim(self, claim: Claim) -> ClaimResult:
        """The stored measurement of a claim under today's rule.

        It is not measured if its measure has changed since, or if the study reads packs other than it was measured on.
        """
        stored = self.entry(claim)
        if stored is None or stored["measured"] is None:
            note = stored["note"] if stored else f"Not in the stored results ({self.origin})."
            if self.size not in claim.sizes:
                note = claim.sizes_reason
            return ClaimResult(claim=claim, note=note)
        earlier = f"{stored['measured']:.4g}, {stored['verdict']}"
        try:
            measurement = claim.in_range(self._measurement(stored))
            verdict = claim.verdict(measurement)
        except (ValueError, KeyError, TypeError) as error:
            return ClaimResult(claim=claim, note=f"Today's rule cannot judge the stored number ({earlier}): {error}")
        if _changed(stored, claim):
            return ClaimResult(claim=claim, note=f"Its measure has changed since the stored number ({earlier}).")
        if difference := _other_packs(stored, claim):
            return ClaimResult(claim=claim, note=f"The stored number ({earlier}) was measured {difference}.")
        notes = [measurement.note]
        if not stored.get("measure") and EARLIER not in measurement.note:
            notes.append(EARLIER)
        if stored["rule"] != claim.rule_text:
            notes.append(
                f"Judged again: the rule's words have changed since the measurement ({stored['verdict']} then)."
            )
        return ClaimResult(
            claim=claim,
            verdict=verdict,
            measurement=measurement,
            note=" ".join(note for note in notes if note),
            settings={name: self.details["groups"][name] for name in stored["groups"]},
            cost=stored["cost"],
            made=stored["made"],
            measure=stored.get("measure"),
        )

    def result(self, study: _Claims, folder: Path) -> StudyResult:
        """All claims of a study with their stored measurements.

        Args:
            study: The study.
            folder: Where its page is written.
        """
        claims = tuple(self.claim(claim) for claim in study.claims)
        manifest = self.content["manifest"]
        models = {name: len(specs) for name, specs in study.groups(self.size).items()}
        return StudyResult(
            study=study.name, size=self.size, claims=claims, manifest=manifest, models=models, page=folder / PAGE
        )

    def _measurement(self, stored: Mapping[str, Any]) -> Measurement:
        low, high = stored["interval"]
        return Measurement(
            value=stored["measured"],
            low=-math.inf if low is None else low,
            high=math.inf if high is None else high,
            exact=stored.get("exact", False),
            note=stored["note"],
            **{name: stored[name] for name in ("n", "unit", "numbers")},
            **self.details["figures"].get(stored["id"], {}),
        )


def write_results(result: StudyResult, folder: Path) -> None:
    """Write the two files of a study's results; equal results give equal bytes."""
    write_bytes(folder / DETAILS, lzma.compress(result.details, filters=FOR_TEXT))
    write_text(folder / CLAIMS, claims_text(environments_once(result.to_dict())))


def claims_text(content: Mapping[str, Any]) -> str:
    """`claims.json` as text, with a line for each claim."""
    lines = ",\n".join(json.dumps(one, allow_nan=False) for one in content["claims"])
    others = {name: value for name, value in content.items() if name != "claims"}
    return f'{json.dumps(others, indent=1, allow_nan=False)[:-2]},\n "claims": [\n{lines}\n ]\n}}\n'


def environments_once(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content of `claims.json` with every environment listed once, and its place in that list where it is used."""
    distinct: list[Mapping[str, Any]] = []

    def place(one: Mapping[str, Any]) -> int:
        if one not in distinct:
            distinct.append(one)
        return distinct.index(one)

    def shorter(made: Mapping[str, Any]) -> dict[str, Any]:
        kept = {name: value for name, value in made.items() if name not in ENVIRONMENT}
        return kept | {"environment": place({name: made[name] for name in ENVIRONMENT if name in made})}

    return {**content, "claims": _with_provenance(content["claims"], shorter, place), "environments": distinct}


def with_environments(content: Mapping[str, Any]) -> dict[str, Any]:
    """The reverse of `environments_once`; results of earlier versions name each environment where it is used."""
    if "environments" not in content:
        return dict(content)
    kept = {name: value for name, value in content.items() if name != "environments"}
    distinct = content["environments"]

    def whole(made: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in made.items() if name != "environment"} | distinct[made["environment"]]

    return kept | {"claims": _with_provenance(content["claims"], whole, distinct.__getitem__)}


def _with_provenance(
    claims: Sequence[Mapping[str, Any]], own: Callable[[Mapping], dict], trained: Callable[[Any], Any]
) -> list[dict[str, Any]]:
    """The claims with their provenance changed by `own`, and each environment of its trainings by `trained`."""

    def changed(made: Mapping[str, Any]) -> dict[str, Any]:
        found = own(made)
        if found.get("trained"):
            environments = [trained(one) for one in found["trained"]["environments"]]
            found["trained"] = found["trained"] | {"environments": environments}
        return found

    return [{**one, "made": changed(one["made"]) if one["made"] else None} for one in claims]


def read_results(folder: Path, study: str) -> StoredResults | None:
    """Read the results in a folder; None if it has none.

    Raises:
        ValueError: they are of another study, cannot be read, or the two files are not of the same run.
    """
    if not (folder / CLAIMS).exists():
        return None
    if not (folder / DETAILS).exists():
        raise ValueError(f"{folder} has {CLAIMS} without {DETAILS}; copy both from the same run.")
    return parse_results(
        (folder / CLAIMS).read_bytes(), (folder / DETAILS).read_bytes(), study=study, origin=str(folder)
    )


def parse_results(claims: bytes, details: bytes, *, study: str, origin: str) -> StoredResults:
    """Read results from the content of their files.

    Args:
        claims: Content of `claims.json`.
        details: Content of `details.json.xz`.
        study: Name of the study that they must be of.
        origin: Where they are from, for messages.

    Raises:
        ValueError: as `read_results`.
    """
    try:
        content = with_environments(json.loads(claims))
        named = content["study"]
        _check_content(content)
        packed = _unpacked(details)
        known = json.loads(packed)
        _ = [known["groups"][name] for one in content["claims"] for name in one["groups"]], known["figures"]
    except (*FAULTS, OSError, EOFError, lzma.LZMAError) as error:
        found = shortened(f"{type(error).__name__}: {error}")
        raise ValueError(f"the results in {origin} cannot be read: {found}.") from None
    if named != study:
        raise ValueError(f"{origin} has results of the study {named}, not of {study}.")
    if hashlib.sha256(packed).hexdigest() != content.get("details"):
        raise ValueError(f"{DETAILS} in {origin} does not belong to its {CLAIMS}; copy both from the same run.")
    return StoredResults(content=content, details=known, files={CLAIMS: claims, DETAILS: details}, origin=origin)


def _check_content(content: Mapping[str, Any]) -> None:
    """Check the types of what is read of `claims.json`, which may be of an untrusted archive."""
    number, text = (int, float), str
    fields = {
        "id": text,
        "verdict": text,
        "note": text,
        "quantity": text,
        "rule": text,
        "numbers": dict,
        "groups": list,
    }
    optional = {"measured": number, "n": (int,), "unit": (text,), "interval": (list,), "cost": (dict,), "made": (dict,)}
    if content["size"] not in SIZES or not isinstance(content["manifest"]["seed"], int):
        raise ValueError(f"size {content['size']!r}, seed {content['manifest']['seed']!r}")
    if not isinstance(content["manifest"]["time"], str):
        raise ValueError("the manifest has no time")
    for one in content["claims"]:
        wrong = [name for name, kind in fields.items() if not isinstance(one[name], kind)]
        wrong += [name for name, kind in optional.items() if not isinstance(one[name], (*kind, type(None)))]
        if one["measured"] is not None and not wrong:
            ends = one["interval"]
            if len(ends) != 2 or not all(isinstance(end, (*number, type(None))) for end in ends):
                wrong.append("interval")
        if wrong or one["verdict"] not in LABELS:
            raise ValueError(f"the claim {one['id']!r} has an invalid {(wrong or ['verdict'])[0]}")


def _changed(stored: Mapping[str, Any], claim: Claim) -> bool:
    """Whether a claim measures something else than its stored number; by the name of the number if that is all."""
    if stored.get("measure") is None:
        return stored["quantity"] != claim.quantity
    return stored["measure"] != measure_digest(claim.measure)


def _other_packs(stored: Mapping[str, Any], claim: Claim) -> str:
    """How the packs of the stored number differ, in words; empty if they do not, or if the study has no packs."""
    packs, stored_packs = packs_digest(claim.measure), (stored["made"] or {}).get("packs")
    if packs in ("", stored_packs):
        return ""
    return "on other packs" if stored_packs else "without packs"


def _unpacked(details: bytes) -> bytes:
    with lzma.open(io.BytesIO(details)) as file:
        packed = file.read(LARGEST + 1)
    if len(packed) > LARGEST:
        raise ValueError(f"{DETAILS} has more than {LARGEST} bytes")
    return packed
