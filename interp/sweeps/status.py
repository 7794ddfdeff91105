"""How far runs are, by their folders, and the errors of those that failed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from hooks.files import Unreadable, make_folder, read_json, write_json
from interp.training.folder import RunFolder

RunStatus = Literal["trained", "mismatch", "running", "failed", "interrupted", "missing"]


def run_status(folder: Path, expected: Mapping[str, Any] | None = None) -> RunStatus:
    """How far the run in a folder is. One that a process of another machine has taken counts as running.

    Args:
        folder: Folder of the run.
        expected: What its model should be, as `ModelSpec.description`. A trained model that is another one, or whose
            files were exchanged, is a `mismatch`.
    """
    files = RunFolder(folder)
    if files.finished:
        return "mismatch" if mismatch_of(folder, expected) else "trained"
    writer = files.writer
    if writer is not None and writer.is_alive:
        return "running"
    if files.failed_path.exists():
        return "failed"
    return "interrupted" if files.manifest_path.exists() else "missing"


def mismatch_of(folder: Path, expected: Mapping[str, Any] | None = None) -> str:
    """In what the trained model of a folder is not the one that is expected there; empty if it is, or if none is."""
    try:
        RunFolder(folder).is_trained(expected)
    except Unreadable as error:
        return str(error)
    return ""


def failure_of(folder: Path) -> str:
    """The error that ended the last attempt to train; empty if there was none.

    Raises:
        ValueError: its file cannot be read.
    """
    path = RunFolder(folder).failed_path
    return str(read_json(path, "the error of a run").get("error")) if path.exists() else ""


def save_failure(folder: Path, error: Exception) -> None:
    """Save the error that ended an attempt to train, until the next one."""
    make_folder(folder)
    write_json(RunFolder(folder).failed_path, {"error": f"{type(error).__name__}: {error}"})
