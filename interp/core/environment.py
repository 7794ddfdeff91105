"""Where a result was computed: versions, hardware, threads, command and source; stored with every run and report."""

import functools
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any

import torch

import interp
from hooks.typed import POSITIVE_COUNT


@dataclass(frozen=True, kw_only=True)
class Environment:
    """Where something was computed, as `environment` says it."""

    versions: dict[str, str]
    """Of Python and of the packages that numbers depend on."""
    hardware: dict[str, str | int | None]
    """Processor, capability (the instruction set that torch uses, on which last bits depend), cores, accelerator."""
    threads: Annotated[int, POSITIVE_COUNT]
    """Of torch."""
    time: str
    """In UTC, as ISO 8601."""


_PACKAGES = ("unmyopic", "torch", "transformer-lens", "numpy", "scipy", "scikit-learn")
_SOURCES = ("hooks", "interp", "case_studies/**.py", "examples/**.py")
"""What numbers depend on in a checkout: code, and not the results that studies ship."""


def environment() -> dict[str, Any]:
    """The fields of `Environment` for this process, as plain values."""
    return {
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in _PACKAGES},
        "hardware": {
            "processor": _processor(),
            "capability": torch.backends.cpu.get_cpu_capability(),
            "cores": os.cpu_count(),
            "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        },
        "threads": torch.get_num_threads(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def command_line() -> str:
    """The command that runs this process: `interp ...` or a script; empty in a notebook."""
    name = Path(sys.argv[0]).name if sys.argv else ""
    if name == "interp":
        # a file name that is no UTF-8 has characters that no page can hold
        return shlex.join(["interp", *sys.argv[1:]]).encode("utf-8", "backslashreplace").decode()
    if name.endswith(".py") and not name.startswith("ipykernel"):
        return f"python {name}"
    return ""


@functools.cache
def source_version() -> dict[str, Any]:
    """Version, git commit (None outside a checkout), and whether files differ from that commit."""
    root = Path(interp.__file__).resolve().parents[1]
    commit = _git(root, "rev-parse", "HEAD") if (root / ".git").exists() else None
    changed = bool(commit) and bool(_git(root, "status", "--porcelain", "--", *_SOURCES))
    return {"version": _version("unmyopic"), "commit": commit, "changed": changed}


def source_line(source: Mapping[str, Any]) -> str:
    """A source version in words: its commit, and whether files differed from it; without a commit its version."""
    if source.get("commit"):
        changes = " with changes" if source.get("changed") else ""
        return f"{source['commit'][:10]}{changes}"
    return f"version {source['version']}" if source.get("version") else ""


def _git(root: Path, *arguments: str) -> str | None:
    try:
        process = subprocess.run(
            ["git", "-C", root, *arguments], capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return process.stdout.strip()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _processor() -> str:
    """Name of the processor: `platform` knows only its architecture on Linux."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()
