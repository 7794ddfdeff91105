"""Measuring a claim; its measurement is kept in a run's folder for as long as the code is the same."""

import functools
import traceback
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from case_studies.frame.claims import Claim
from case_studies.frame.evidence import Evidence, keys_digest
from case_studies.frame.measurement import Measurement
from case_studies.frame.provenance import TOOLKIT, has_source, provenance, source_digest, with_cost
from interp.core.cached_file import CachedFile
from interp.core.content_key import content_key
from interp.core.environment import environment


@dataclass(frozen=True, kw_only=True)
class StoredMeasurement:
    """A measurement with its cost and provenance."""

    measurement: Measurement
    cost: Mapping[str, Any]
    """Seconds, CPU seconds and peak memory of the measurement, without training."""
    provenance: Mapping[str, Any]
    models: Mapping[str, str]
    """Digest of the keys of its models, by group."""
    seed: int
    """Seed of the measurement."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {**vars(self), "measurement": self.measurement.to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "StoredMeasurement":
        """The inverse of `to_dict`."""
        facts = {name: values[name] for name in ("cost", "provenance", "models", "seed")}
        return cls(measurement=Measurement.from_dict(values["measurement"]), **facts)


def measurement_file(folder: Path, study: str, claim: Claim, evidence: Evidence) -> CachedFile:
    """The file of a claim's measurement, valid for the same code, models, seed, packs and versions only.

    The code is that of the toolkit, and of the package that the measure is from: a measurement is repeated after every
    change, since nothing less shows that the change makes no difference.

    Args:
        folder: Folder of measurements.
        study: Name of the study.
        claim: The claim.
        evidence: Its evidence.
    """
    description = {
        "study": study,
        "claim": claim.id,
        "size": evidence.size,
        "seed": evidence.seed,
        "models": {group: [spec.key for spec in specs] for group, specs in evidence.groups.items()},
        "packs": claim.packs_digest,
        "sources": {package: source_digest(package) for package in TOOLKIT},
        "measure": _code_of(claim.measure),
        "versions": environment()["versions"],
    }
    return CachedFile(folder / f"{claim.id}.json", content_key(description))


def _code_of(measure: Any) -> str:
    """Digest of the package that a measure is from; of one that is in no file, as in a notebook, another each time."""
    while isinstance(measure, functools.partial):
        measure = measure.func
    module = getattr(measure, "__module__", None) or type(measure).__module__
    package = module.partition(".")[0]
    return source_digest(package) if has_source(package) else uuid.uuid4().hex


def models_of(evidence: Evidence) -> dict[str, str]:
    """Digest of the keys of a claim's models, by group."""
    return {group: keys_digest([spec.key for spec in specs]) for group, specs in evidence.groups.items()}


def measure_claim(claim: Claim, evidence: Evidence, file: CachedFile) -> tuple[str, str | None]:
    """Measure a claim with one torch thread and store the measurement.

    Returns:
        The claim's id, and the traceback if its measure raised, else None.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        measurement, cost = with_cost(lambda: claim.measurement(evidence))
        stored = StoredMeasurement(
            measurement=measurement,
            cost=cost,
            provenance=provenance(claim, evidence),
            models=models_of(evidence),
            seed=evidence.seed,
        )
        file.write(stored.to_dict())
    except Exception:
        return claim.id, traceback.format_exc()
    finally:
        # Leave the process as it was, for the next claim
        torch.set_num_threads(threads)
        evidence.forget()
    return claim.id, None
