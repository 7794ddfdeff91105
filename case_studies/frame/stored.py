"""Stored results: numbers in `claims.json`, and charts, tables and settings in `details.json.xz`.

A number says what measured it (version and commit), on which models, when and at what cost. Verdicts are not stored:
today's rule gives them when the number is read.
"""

import hashlib
import io
import json
import lzma
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from case_studies.frame.claims import NOT_MEASURED, Claim, StudyClaims
from case_studies.frame.evidence import Size, keys_digest, settings_of
from case_studies.frame.measurement import Measurement
from case_studies.frame.results import ClaimResult, StudyResult
from hooks.checks import shown
from hooks.files import FAULTS, parse_json, readable_file, shortened, write_bytes, write_text
from hooks.typed import COUNT, POSITIVE_COUNT, ROUNDING, SIZE, restored
from interp.core.environment import Environment
from interp.sweeps.spec import ModelSpec

CLAIMS, DETAILS, PAGE = "claims.json", "details.json.xz", "report.html"
FOR_TEXT = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "lp": 0, "pb": 0}]
"""Compression of text, as the manual of xz recommends."""
LARGEST = 256 * 2**20
"""Bytes of the largest file that is read, after decompression."""
ENVIRONMENT = ("versions", "hardware", "threads", "source")
"""The parts of the provenance that many claims share."""


@dataclass(frozen=True, kw_only=True)
class StoredResults:
    """The results of a study at one size, as they were stored."""

    content: Mapping[str, Any]
    """The content of `claims.json`."""
    details: Mapping[str, Any]
    """The content of `details.json.xz`: `figures` (tables and charts by claim), `groups` (settings of models by the
    digest of their keys)."""
    files: Mapping[str, bytes]
    """The files that they were read from."""
    origin: str
    """Where they were read from, in words."""

    @property
    def size(self) -> Size:
        """Size of the study."""
        return self.content["size"]

    def entry(self, claim: Claim) -> Mapping[str, Any] | None:
        """What is stored of a claim, with its interval cut at the ends of its range; None if nothing is."""
        entry = next((entry for entry in self.content["claims"] if entry["id"] == claim.id), None)
        if entry is None or claim.value_range is None:
            return entry
        low, high = entry["interval"]
        least, most = claim.value_range
        low = least if low is None else max(low, least)
        high = most if high is None else min(high, most)
        return {**entry, "interval": [low, high]}

    def verdict(self, claim: Claim) -> str:
        """Label of a claim's stored number by today's rule, whatever it was measured on; `not measured` without one
        that the rule can judge."""
        entry = self.entry(claim)
        if entry is None:
            return NOT_MEASURED
        try:
            return self._judged(claim, entry).label
        except (ValueError, KeyError, TypeError):
            return NOT_MEASURED

    def claim(self, claim: Claim, groups: Mapping[str, Sequence[ModelSpec]]) -> ClaimResult:
        """The stored measurement of a claim under today's rule.

        It is not measured if its number is another quantity, or was measured on other models or packs.

        Args:
            claim: The claim.
            groups: The study's models at this size, by group.
        """
        entry = self.entry(claim)
        if entry is None:
            note = "Not in the stored results." if self.size in claim.sizes else claim.sizes_reason
            return ClaimResult(claim=claim, note=note)
        # What of the stored number is not what the claim names today
        number = f"{entry['measured']:.4g}, n = {entry['n']} {entry['unit']}"
        differences = self._differences(entry, claim, groups)
        if differences:
            note = f"Measured earlier ({number}) {'; '.join(differences)}."
            return ClaimResult(claim=claim, note=note)
        # The stored number under today's rule
        try:
            result = self._judged(claim, entry)
        except (ValueError, KeyError, TypeError) as error:
            return ClaimResult(claim=claim, note=f"Today's rule cannot judge the stored number ({number}): {error}")
        difference = _other_files(entry, claim)
        if difference and claim.packs is not None and claim.packs.accepts(entry["made"].get("packs", "")):
            remark = f"Measured {difference} ({entry['made']['packs']})."
            note = result.note if remark in result.note else f"{result.note} {remark}".strip()
            return replace(result, note=note)
        if difference:
            return ClaimResult(claim=claim, note=f"Measured earlier ({number}) {difference}.")
        return result

    def _differences(
        self, entry: Mapping[str, Any], claim: Claim, groups: Mapping[str, Sequence[ModelSpec]]
    ) -> list[str]:
        """How the models and the quantity of a stored number differ from those of the claim, in words."""
        differences = [self._models_difference(name, entry, groups) for name in claim.needs]
        unneeded = [name for name in entry["groups"] if name not in claim.needs]
        if unneeded:
            differences.append(f"with further models ({', '.join(unneeded)})")
        if entry["quantity"] != claim.quantity:
            differences.append(f"as another quantity ({entry['quantity']})")
        return [difference for difference in differences if difference]

    def _models_difference(
        self, group: str, entry: Mapping[str, Any], groups: Mapping[str, Sequence[ModelSpec]]
    ) -> str:
        """How the models of a group that a claim needs differ from those of its stored number, in words."""
        digest = entry["groups"].get(group)
        if digest is None:
            return f"without the models {group}"
        specs = groups.get(group, ())
        if digest == keys_digest([spec.key for spec in specs]):
            return ""
        # Name what differs in their settings: number, seeds, task, config
        before = self.details["groups"][digest]
        today = json.loads(json.dumps(settings_of(specs)))
        names = [name for name in today if name != "keys" and before.get(name) != today[name]]
        return f"on other models {group} ({', '.join(names) or 'keys'})"

    def _judged(self, claim: Claim, entry: Mapping[str, Any]) -> ClaimResult:
        """The stored number under today's rule, whatever measured it.

        Raises:
            ValueError, KeyError, TypeError: the rule cannot judge it.
        """
        measurement = self._measurement(entry)
        return ClaimResult.judged(
            claim,
            measurement,
            note=measurement.note,
            settings={name: self.details["groups"][digest] for name, digest in entry["groups"].items()},
            cost=entry["cost"],
            provenance=entry["made"],
        )

    def result(self, study: StudyClaims, folder: Path) -> StudyResult:
        """All claims of a study with their stored measurements.

        Args:
            study: The study.
            folder: Where its page is written.
        """
        groups = study.groups(self.size)
        claims = tuple(self.claim(claim, groups) for claim in study.claims)
        manifest = self.content["manifest"]
        return StudyResult(
            study=study.name, title=study.title, size=self.size, claims=claims, manifest=manifest, page=folder / PAGE
        )

    def _measurement(self, entry: Mapping[str, Any]) -> Measurement:
        """The measurement of an entry of `claims.json`, with its tables and charts."""
        low, high = entry["interval"]
        return Measurement.from_dict(
            {
                "value": entry["measured"],
                "low": low,
                "high": high,
                **{name: entry[name] for name in ("exact", "note", "n", "unit", "numbers")},
                **self.details["figures"].get(entry["id"], {}),
            }
        )


def write_results(result: StudyResult, folder: Path) -> None:
    """Write the two files of a study's results; equal results give equal bytes."""
    write_files(result.to_store(), result.details, folder)


def write_files(content: Mapping[str, Any], details: Mapping[str, Any], folder: Path) -> None:
    """Write the content of the two files of a study's results; the first has the hash of the second."""
    text = json.dumps(details, separators=(",", ":"), allow_nan=False).encode()
    with_hash = {**content, "details": hashlib.sha256(text).hexdigest()}
    write_bytes(folder / DETAILS, lzma.compress(text, filters=FOR_TEXT))
    write_text(folder / CLAIMS, claims_text(environments_once(with_hash)))


def claims_text(content: Mapping[str, Any]) -> str:
    """`claims.json` as text, with a line for each claim."""
    lines = ",\n".join(json.dumps(entry, allow_nan=False) for entry in content["claims"])
    header = {name: value for name, value in content.items() if name != "claims"}
    header_text = json.dumps(header, indent=1, allow_nan=False).removesuffix("\n}")
    return f'{header_text},\n "claims": [\n{lines}\n ]\n}}\n'


def environments_once(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content of `claims.json` with every environment listed once, and its place in that list where it is used."""
    environments: list[Mapping[str, Any]] = []

    # Index of an environment in the list, which it is added to if it is new
    def place(environment: Mapping[str, Any]) -> int:
        if environment not in environments:
            environments.append(environment)
        return environments.index(environment)

    claims = []
    for entry in content["claims"]:
        made: dict[str, Any] = entry["made"]
        # The environment of the measurement, then those of the trainings of its models
        environment = {name: made[name] for name in ENVIRONMENT if name in made}
        specific = {name: value for name, value in made.items() if name not in ENVIRONMENT}
        made = {**specific, "environment": place(environment)}
        models = made.get("trained")
        if models:
            places = [place(environment) for environment in models["environments"]]
            made["trained"] = models | {"environments": places}
        claims.append({**entry, "made": made})
    return {**content, "claims": claims, "environments": environments}


def with_environments(content: Mapping[str, Any]) -> dict[str, Any]:
    """The reverse of `environments_once`."""
    environments = content["environments"]
    claims = []
    for entry in content["claims"]:
        specific = {name: value for name, value in entry["made"].items() if name != "environment"}
        made = specific | environments[entry["made"]["environment"]]
        models = made.get("trained")
        if models:
            of_trainings = [environments[place] for place in models["environments"]]
            made["trained"] = models | {"environments": of_trainings}
        claims.append({**entry, "made": made})
    expanded = {**content, "claims": claims}
    del expanded["environments"]
    return expanded


def read_results(folder: Path, study: str) -> StoredResults | None:
    """Read the results in a folder; None if it has none.

    Raises:
        ValueError: they are of another study, cannot be read, or the two files are not of the same run.
    """
    if not (folder / CLAIMS).exists():
        return None
    if not (folder / DETAILS).exists():
        raise ValueError(f"{folder} has {CLAIMS} without {DETAILS}; copy both from the same run.")
    claims = readable_file(folder / CLAIMS).read_bytes()
    details = readable_file(folder / DETAILS).read_bytes()
    return parse_results(claims, details, study=study, origin=str(folder))


def costs_of(results: StoredResults | None) -> dict[str, float]:
    """Seconds that measuring took, by the id of the claim; none without results."""
    entries = () if results is None else results.content["claims"]
    return {entry["id"]: entry["cost"]["seconds"] for entry in entries}


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
    # Whatever is wrong with their content, the error names their origin
    try:
        content = parse_json(claims)
        if isinstance(content, dict) and "environments" in content:
            content = with_environments(content)
        restored(StoredContent, content)
        study_of_results = content["study"]
        details_text = _decompress(details)
        figures_and_groups = parse_json(details_text)
        restored(StoredDetails, figures_and_groups, DETAILS)
        _check_groups(figures_and_groups, content)
    except (*FAULTS, OSError, EOFError, lzma.LZMAError) as error:
        reason = shortened(str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}")
        reason = reason.removesuffix(".")
        raise ValueError(f"the results in {origin} cannot be read: {reason}.") from None
    # They must be of this study, and of one run
    if study_of_results != study:
        raise ValueError(f"{origin} has results of the study {study_of_results}, not of {study}.")
    if hashlib.sha256(details_text).hexdigest() != content.get("details"):
        raise ValueError(f"{DETAILS} in {origin} does not belong to its {CLAIMS}; copy both from the same run.")
    files = {CLAIMS: claims, DETAILS: details}
    return StoredResults(content=content, details=figures_and_groups, files=files, origin=origin)


@dataclass(frozen=True, kw_only=True)
class StoredCost:
    """What a measurement cost."""

    seconds: Annotated[float, SIZE]
    cpu_seconds: Annotated[float, SIZE] | None = None
    peak_mb: Annotated[float, SIZE] | None = None


@dataclass(frozen=True, kw_only=True)
class StoredEnvironment:
    """Where something was measured or trained."""

    versions: dict[str, str]
    hardware: dict[str, str | int | None]
    threads: Annotated[int, POSITIVE_COUNT]
    source: dict[str, str | bool | None] | None = None
    """Version and commit of the toolkit; of a measurement only."""


@dataclass(frozen=True, kw_only=True)
class StoredTrainings:
    """The models behind a measurement."""

    weights: str
    seconds: Annotated[float, SIZE]
    environments: tuple[StoredEnvironment, ...]


@dataclass(frozen=True, kw_only=True)
class StoredProvenance(StoredEnvironment):
    """What a measurement was made with."""

    time: str
    trained: StoredTrainings | None = None
    packs: str = ""

    def __post_init__(self) -> None:
        for name in ("versions", "hardware", "time"):
            if not getattr(self, name):
                raise ValueError(f"{name} is empty; a number says what measured it, where and when.")


@dataclass(frozen=True, kw_only=True)
class StoredClaim:
    """An entry of `claims.json`: a number, and what measured it."""

    id: str
    quantity: str
    measured: float
    interval: tuple[float | None, float | None]
    """Its ends; None for one without a bound."""
    n: Annotated[int, POSITIVE_COUNT]
    unit: str
    exact: bool
    numbers: dict[str, Any]
    note: str
    groups: dict[str, str]
    """Digest of the keys of its models, by group."""
    cost: StoredCost
    made: StoredProvenance

    def __post_init__(self) -> None:
        # A number is within its interval
        low, high = ends_of(self.interval)
        margin = ROUNDING * (1 + abs(self.measured))
        if not low - margin <= self.measured <= high + margin:
            raise ValueError(f"measured is {self.measured:g}, outside its interval [{low:g}, {high:g}].")


@dataclass(frozen=True, kw_only=True)
class StoredManifest(Environment):
    """The manifest of a study's results."""

    seed: int
    models: dict[str, Any] = field(default_factory=dict)
    measured_now: Annotated[int, COUNT] = 0
    seconds: Annotated[float, SIZE] = 0.0
    wall_seconds: Annotated[float, SIZE] = 0.0


@dataclass(frozen=True, kw_only=True)
class StoredContent:
    """The content of `claims.json`, with each environment where it is used."""

    study: str
    title: str
    size: Size
    manifest: StoredManifest
    claims: tuple[StoredClaim, ...]
    details: str

    def __post_init__(self) -> None:
        counts = Counter(claim.id for claim in self.claims)
        if repeated := [name for name in counts if counts[name] > 1]:
            raise ValueError(f"claims has {shown(repeated[0])} twice.")


def ends_of(interval: Sequence[float | None]) -> tuple[float, float]:
    """The ends of a stored interval, where None is one without a bound."""
    low, high = interval
    return (-math.inf if low is None else low, math.inf if high is None else high)


@dataclass(frozen=True, kw_only=True)
class StoredFigures:
    """Tables and charts of a claim."""

    tables: tuple[tuple[str, tuple[tuple[str, ...], ...]], ...] = ()
    charts: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, kw_only=True)
class StoredDetails:
    """The content of `details.json.xz`."""

    figures: dict[str, StoredFigures]
    groups: dict[str, dict[str, Any]]


def _check_groups(details: Mapping[str, Any], content: Mapping[str, Any]) -> None:
    """Check that `details.json.xz` has the settings of all models that `claims.json` names, by their keys."""
    for digest, settings in details["groups"].items():
        if keys_digest(settings.get("keys", ())) != digest:
            raise ValueError(f"groups[{digest!r}] of {DETAILS} has other keys than its name says")
    for entry in content["claims"]:
        for group, digest in entry["groups"].items():
            if digest not in details["groups"]:
                raise ValueError(f"{DETAILS} has no settings of the group {group!r} of {entry['id']}")


def _other_files(entry: Mapping[str, Any], claim: Claim) -> str:
    """How the packs, weights or other data of the stored number differ, in words; empty if they do not."""
    stored_files = entry["made"].get("packs")
    if claim.packs is None or claim.packs_digest in ("", stored_files):
        return ""
    return f"on other {claim.packs.word}" if stored_files else f"on {claim.packs.word} that were not recorded"


def _decompress(details: bytes) -> bytes:
    """The content of `details.json.xz`; a small file that unpacks to a huge one is refused."""
    with lzma.open(io.BytesIO(details)) as file:
        text = file.read(LARGEST + 1)
    if len(text) > LARGEST:
        raise ValueError(f"{DETAILS} has more than {LARGEST} bytes")
    return text
