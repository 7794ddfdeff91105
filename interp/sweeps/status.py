"""How far runs are, by their folders, and the errors of those that failed."""

import json
import os
import socket
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
    if _is_written(files.writer_path):
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


def _is_written(writer: Path) -> bool:
    """Whether the process that took a folder, if it is one of this machine, lives."""
    try:
        who = json.loads(writer.read_text(encoding="utf-8"))
        if who["host"] == socket.gethostname():
            os.kill(int(who["process"]), 0)
    except PermissionError:
        return True
    except (OSError, ValueError, TypeError, KeyError):
        return False
    return True
