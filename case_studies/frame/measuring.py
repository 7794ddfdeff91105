"""Measuring claims in parallel; each measurement is stored under a key of everything that determines it."""

import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from case_studies.frame.claims import Claim
from case_studies.frame.code_digest import code_digest
from case_studies.frame.evidence import Evidence
from case_studies.frame.measurement import Measurement
from case_studies.frame.packs import packs_digest
from case_studies.frame.provenance import provenance, source_digest, with_cost
from interp.core.cached_file import CachedFile
from interp.core.content_key import content_key
from interp.core.environment import environment
from interp.core.processes import in_processes


@dataclass(frozen=True, kw_only=True)
class StoredMeasurement:
    """A measurement with its cost and provenance."""

    measurement: Measurement
    cost: Mapping[str, Any]
    """Seconds, CPU seconds and peak memory of the measurement, without training."""
    provenance: Mapping[str, Any]
    code: str
    """`code_digest` of the measure."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {**vars(self), "measurement": self.measurement.to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "StoredMeasurement":
        """The inverse of `to_dict`."""
        return cls(
            measurement=Measurement.from_dict(values["measurement"]),
            cost=values["cost"],
            provenance=values["provenance"],
            code=values["code"],
        )


@dataclass(frozen=True)
class MeasureCache:
    """Measurements of one study at one size, one file each."""

    folder: Path
    study: str

    def file(self, claim: Claim, evidence: Evidence) -> CachedFile:
        """The file of a claim; its content is used for the same code, models, seed, packs and versions only."""
        description = {
            "study": self.study,
            "claim": claim.id,
            "size": evidence.size,
            "seed": evidence.seed,
            "models": {group: [spec.key for spec in specs] for group, specs in evidence.groups.items()},
            "packs": packs_digest(claim.measure),
            "code": code_digest(claim.measure),
            "sources": self._sources,
            "versions": environment()["versions"],
        }
        return CachedFile(self.folder / f"{claim.id}.json", content_key(description))

    @cached_property
    def _sources(self) -> dict[str, str]:
        return {package: source_digest(package) for package in ("hooks", "interp")}


def measure_claims(
    tasks: Sequence[tuple[Claim, Evidence, CachedFile]], *, n_jobs: int, scheduler: Any = None
) -> Iterator[tuple[Claim, str | None]]:
    """Measure claims in parallel; each process stores its measurement.

    Args:
        tasks: Claim, evidence, and the file to store the measurement in.
        n_jobs: Number of processes, each with one torch thread.
        scheduler: Address of a Dask scheduler, or a client, whose workers measure; they share the folders.

    Yields:
        Each claim when it is finished, with the traceback if its measure raised.
    """
    if not tasks:
        return
    claims = {claim.id: claim for claim, _, _ in tasks}
    calls = [(_measure_claim, (claim.id, claim.measure, evidence, file)) for claim, evidence, file in tasks]
    with warnings.catch_warnings():  # a process with a memory leak is replaced between claims
        warnings.filterwarnings("ignore", message="A worker stopped while some jobs were given")
        for claim_id, error in in_processes(calls, n_jobs=min(n_jobs, len(tasks)), scheduler=scheduler):
            yield claims[claim_id], error


def _measure_claim(
    claim_id: str, measure: Callable[[Evidence], Measurement], evidence: Evidence, file: CachedFile
) -> tuple[str, str | None]:
    """Measure and store one claim; returns its id, with the traceback if its measure raised."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        measurement, cost = with_cost(lambda: measure(evidence))
        if not isinstance(measurement, Measurement):
            raise TypeError(f"measure of claim {claim_id} returned a {type(measurement).__name__}, not a Measurement.")
        stored = StoredMeasurement(
            measurement=measurement, cost=cost, provenance=provenance(measure, evidence), code=code_digest(measure)
        )
        file.write(stored.to_dict())
    except Exception:
        return claim_id, traceback.format_exc()
    finally:
        torch.set_num_threads(threads)
        evidence.forget()
    return claim_id, None
