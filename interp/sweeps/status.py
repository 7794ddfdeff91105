"""How far runs are, by their folders, and the errors of those that failed."""

from pathlib import Path
from typing import Literal

from hooks.files import read_json, write_json
from interp.training.folder import RunFolder

RunStatus = Literal["trained", "running", "failed", "interrupted", "missing"]


def run_status(folder: Path) -> RunStatus:
    """How far the run in a folder is. One that a process of another machine has taken counts as running."""
    files = RunFolder(folder)
    if files.finished:
        return "trained"
    writer = files.writer
    if writer is not None and writer.is_alive:
        return "running"
    if files.failed_path.exists():
        return "failed"
    return "interrupted" if files.manifest_path.exists() else "missing"


def failure_of(folder: Path) -> str:
    """The error that ended the last attempt to train; empty if there was none.

    Raises:
        ValueError: its file cannot be read.
    """
    path = RunFolder(folder).failed_path
    return str(read_json(path, "the error of a run").get("error")) if path.exists() else ""


def save_failure(folder: Path, error: Exception) -> None:
    """Save the error that ended an attempt to train, until the next one."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(RunFolder(folder).failed_path, {"error": f"{type(error).__name__}: {error}"})
