"""Provenance of a measurement: environment, source code, and the weights and environments of its models."""

import functools
import hashlib
import json
from pathlib import Path
from typing import Any

from case_studies.frame.evidence import Evidence
from case_studies.frame.packs import packs_digest
from case_studies.frame.sources import FRAME, RECIPES, module_of, source_digest
from interp.core.environment import environment, source_version
from interp.training.folder import RunFolder


def provenance(measure: Any, evidence: Evidence) -> dict[str, Any]:
    """What a measurement was made with, as plain values.

    Args:
        measure: The measure of the claim.
        evidence: Its evidence, with all models trained.
    """
    packages = {name: name for name in ("hooks", "interp")} | {
        "frame": FRAME,
        "recipes": RECIPES,
        "study": module_of(measure),
    }
    code = {name: _short(package) for name, package in packages.items()}
    made = environment() | {"source": source_version(), "code": code, "trained": _trained(evidence)}
    packs = packs_digest(measure)
    return made | {"packs": packs} if packs else made


def weights_digest(folder: Path) -> str | None:
    """SHA-256 of a trained model's weights; None if it is not there."""
    path = RunFolder(folder).model_path
    if not path.exists():
        return None
    stat = path.stat()
    return _file_digest(str(path), stat.st_size, stat.st_mtime_ns)


def _trained(evidence: Evidence) -> dict[str, Any] | None:
    """Digest of the weights of all models, the distinct environments they were trained in, and their training time."""
    keys = sorted({spec.key for specs in evidence.groups.values() for spec in specs})
    folders = [evidence.folder / key for key in keys if RunFolder(evidence.folder / key).finished]
    if not folders:
        return None
    digest = hashlib.sha256("".join(weights_digest(folder) or "" for folder in folders).encode()).hexdigest()[:16]
    manifests = [RunFolder(folder).read_manifest() for folder in folders]
    shown = [{name: one.get(name) for name in ("versions", "hardware", "threads")} for one in manifests]
    distinct = {json.dumps(one, sort_keys=True): one for one in shown}
    curves = [RunFolder(folder).read_metrics() for folder in folders]
    return {
        "weights": digest,
        "seconds": round(sum(records[-1]["seconds"] for records in curves if records), 1),
        "environments": [distinct[name] for name in sorted(distinct)],
    }


def _short(module: str) -> str:
    return source_digest(module)[:12]


@functools.lru_cache(maxsize=4096)
def _file_digest(path: str, size: int, modified: int) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()
