"""Provenance of a measurement: environment, source code, models, data, and its cost."""

import functools
import hashlib
import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from case_studies.frame.claims import Claim
from case_studies.frame.evidence import Evidence
from interp.core.content_key import digest_of_files
from interp.core.environment import environment, source_version
from interp.training.folder import RunFolder
from interp.training.identity import HASHES

T = TypeVar("T")
TOOLKIT = ("hooks", "interp", "case_studies")
"""Packages that a number may depend on."""
_PROCESS = Path("/proc/self")


def provenance(claim: Claim, evidence: Evidence) -> dict[str, Any]:
    """What a measurement was made with, as plain values.

    Args:
        claim: The claim.
        evidence: Its evidence, with all models trained.
    """
    content = environment() | {"source": source_version(), "trained": _models(evidence)}
    if claim.packs_digest:
        content["packs"] = claim.packs_digest
    return content


def has_source(package: str) -> bool:
    """Whether an imported package or module has a file."""
    module = import_module(package)
    return bool(getattr(module, "__file__", None) or getattr(module, "__path__", None))


@functools.cache
def source_digest(package: str) -> str:
    """Digest of all Python files of an imported package, or of a module, computed once per process."""
    module = import_module(package)
    files: list[Path] = []
    for folder in getattr(module, "__path__", ()):
        files += Path(folder).rglob("*.py")
    if not files and getattr(module, "__file__", None):
        files.append(Path(str(module.__file__)))
    return digest_of_files(files)


def _models(evidence: Evidence) -> dict[str, Any] | None:
    """Digest of the weights of all models, the distinct environments they were trained in, and their training time."""
    keys = sorted({spec.key for specs in evidence.groups.values() for spec in specs})
    folders = [RunFolder(evidence.folder / key) for key in keys]
    folders = [folder for folder in folders if weights_digest(folder.path)]
    if not folders:
        return None
    # One digest of the weights of all models, in the order of their keys
    weights = "".join(weights_digest(folder.path) or "" for folder in folders)
    return {
        "weights": hashlib.sha256(weights.encode()).hexdigest()[:16],
        "seconds": round(training_seconds(folders), 1),
        "environments": _environments(folders),
    }


def _environments(folders: Sequence[RunFolder]) -> list[dict[str, Any]]:
    """The distinct environments of trained models."""
    distinct: dict[str, dict[str, Any]] = {}
    for folder in folders:
        manifest = folder.read_manifest()
        entry = {name: manifest.get(name) for name in ("versions", "hardware", "threads")}
        distinct[json.dumps(entry, sort_keys=True)] = entry
    return [distinct[text] for text in sorted(distinct)]


def training_seconds(folders: Sequence[RunFolder]) -> float:
    """Total training time of models."""
    curves = [folder.read_metrics() for folder in folders]
    return sum(curve[-1]["seconds"] for curve in curves if curve)


def weights_digest(folder: Path) -> str | None:
    """SHA-256 of a trained model's weights, also where only manifest and learning curve are kept; None if untrained."""
    files = RunFolder(folder)
    if not files.manifest_path.exists():
        return None
    return files.read_manifest()[HASHES].get(files.model_path.name)


def with_cost(call: Callable[[], T]) -> tuple[T, dict[str, Any]]:
    """Call a function; return its value, and `seconds`, `cpu_seconds` (all threads) and `peak_mb` of this process.

    The peak is that of the call on a Linux that lets a process reset its peak (some containers do not); elsewhere
    it is that of the process so far, or None.
    """
    with suppress(OSError):
        (_PROCESS / "clear_refs").write_text("5")  # resets the peak
    started = time.perf_counter()
    cpu_started = time.process_time()
    value = call()
    seconds = time.perf_counter() - started
    cpu_seconds = time.process_time() - cpu_started
    return value, {"seconds": round(seconds, 3), "cpu_seconds": round(cpu_seconds, 3), "peak_mb": _peak_mb()}


def _peak_mb() -> float | None:
    """Peak memory of this process in megabytes: from Linux's /proc, else from `getrusage`; None on Windows."""
    with suppress(OSError):
        for line in (_PROCESS / "status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return round(int(line.split()[1]) / 1024, 1)
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 2**20 if sys.platform == "darwin" else 2**10  # bytes there, kilobytes elsewhere
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit, 1)
