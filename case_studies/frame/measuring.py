"""Measuring claims in parallel, with a cache keyed by everything that determines the number, including code."""

import functools
import hashlib
import json
import marshal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

import torch

from case_studies.frame.claims import Claim
from case_studies.frame.cost import with_cost
from case_studies.frame.evidence import Evidence
from case_studies.frame.measurement import Measurement
from case_studies.frame.provenance import provenance
from case_studies.frame.sources import FRAME, RECIPES, measure_digest, module_of, source_digest
from hooks.files import FAULTS, write_json
from interp.core.environment import environment
from interp.core.processes import in_processes


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A measurement with its cost and provenance."""

    measurement: Measurement
    cost: Mapping[str, Any]
    """Seconds, CPU seconds and peak memory of the measurement, without training."""
    made: Mapping[str, Any]
    """Its provenance."""
    measure: str
    """Digest of the measure's source."""


@dataclass(frozen=True)
class MeasureCache:
    """Measurements of one study at one size, one file each; one made by other code, models or seed is not found."""

    folder: Path
    study: str

    def path(self, claim: Claim) -> Path:
        """The file of a claim."""
        return self.folder / f"{claim.id}.json"

    def key(self, claim: Claim, evidence: Evidence) -> str:
        """Hash of everything that determines the measurement."""
        modules, identity = _identity(claim.measure)
        decides = {
            "study": self.study,
            "claim": claim.id,
            "size": evidence.size,
            "seed": evidence.seed,
            "models": {group: [spec.key for spec in specs] for group, specs in evidence.groups.items()},
            "measure": identity,
            "sources": {name: source_digest(name) for name in sorted({"hooks", "interp", FRAME, RECIPES, *modules})},
            "versions": environment()["versions"],
        }
        return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:20]

    def find(self, claim: Claim, key: str) -> Measured | None:
        """The measurement stored under this key; None if there is none or it cannot be read."""
        try:
            content = json.loads(self.path(claim).read_text(encoding="utf-8"))
            if content["key"] != key:
                return None
            measurement = Measurement.from_dict(content["measurement"])
            return Measured(measurement=measurement, **{name: content[name] for name in ("cost", "made", "measure")})
        except (OSError, *FAULTS):
            return None

    def forget(self, claim: Claim) -> None:
        """Remove the stored measurement of a claim."""
        self.path(claim).unlink(missing_ok=True)


def measure_claims(
    tasks: Sequence[tuple[Claim, Evidence, str]], cache: MeasureCache, *, n_jobs: int, scheduler: Any = None
) -> Iterator[tuple[Claim, str | None]]:
    """Measure claims in parallel; each process writes its measurement to the cache.

    Args:
        tasks: Claim, evidence and cache key.
        cache: The cache to write to.
        n_jobs: Number of processes, each with one torch thread.
        scheduler: Address of a Dask scheduler, or a client, whose workers measure; they share the folders.

    Yields:
        Each claim when it is finished, with the traceback if its measure raised.
    """
    if not tasks:
        return
    claims = {claim.id: claim for claim, _, _ in tasks}
    calls = [
        (_measure_one, (claim.id, claim.measure, evidence, key, cache.path(claim))) for claim, evidence, key in tasks
    ]
    with warnings.catch_warnings():  # a process with a memory leak is replaced between claims
        warnings.filterwarnings("ignore", message="A worker stopped while some jobs were given")
        for claim_id, error in in_processes(calls, n_jobs=min(n_jobs, len(tasks)), scheduler=scheduler):
            yield claims[claim_id], error


def _measure_one(
    claim_id: str, measure: Callable[[Evidence], Measurement], evidence: Evidence, key: str, path: Path
) -> tuple[str, str | None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        measurement, cost = with_cost(lambda: measure(evidence))
        if not isinstance(measurement, Measurement):
            raise TypeError(f"measure of claim {claim_id} returned a {type(measurement).__name__}, not a Measurement.")
        made = {"made": provenance(measure, evidence), "measure": measure_digest(measure), "cost": cost}
        write_json(path, {"key": key, **made, "measurement": measurement.to_dict()})
    except Exception:
        return claim_id, traceback.format_exc()
    finally:
        torch.set_num_threads(threads)
        evidence.forget()
    return claim_id, None


def _identity(measure: Any) -> tuple[set[str], list[Any]]:
    """Identity of a measure: the modules of its functions, and plain values that distinguish it from others.

    Closures and partials are identified by their contents too.
    """
    modules: set[str] = set()
    seen: set[int] = set()

    def parts_of(value: Any) -> Any:
        if value is None or isinstance(value, bool | int | float | str):
            return repr(value)
        if id(value) in seen:
            return "again"
        seen.add(id(value))
        if isinstance(value, functools.partial):
            return ["partial", *(parts_of(part) for part in (value.func, *value.args, value.keywords))]
        if isinstance(value, MethodType):
            return [parts_of(value.__func__), parts_of(value.__self__)]
        if isinstance(value, FunctionType):
            modules.update({value.__module__} - {None})  # a generated function has no module
            held = [cell.cell_contents for cell in value.__closure__ or ()]
            held += [value.__defaults__, value.__kwdefaults__]
            return [value.__module__, value.__qualname__, _code_without_file(value), *(parts_of(part) for part in held)]
        if isinstance(value, Mapping):
            return [[str(name), parts_of(part)] for name, part in value.items()]
        if isinstance(value, list | tuple):
            return [parts_of(part) for part in value]
        if callable(value) and not isinstance(value, type):
            modules.add(type(value).__module__)
        return repr(value)  # an object whose repr is its address is never found again

    identity = parts_of(measure)
    own = {name.split(".")[0] for name in modules if name == module_of(measure)}
    return {name for name in modules if name.split(".")[0] in own or not _installed(name)}, identity


def _installed(module: str) -> bool:
    """Whether a module belongs to an installed package, whose version is part of the key."""
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return "site-packages" in file or not file


def _code_without_file(function: FunctionType) -> str:
    """Digest of a function defined in a notebook or interpreter; empty if its source is in a file."""
    if getattr(sys.modules.get(function.__module__), "__file__", None):
        return ""
    return hashlib.sha256(marshal.dumps(function.__code__)).hexdigest()
