"""What a page is about: task, model, seed, command, commit and date, in words."""

import functools
import shlex
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import interp
from interp.core.manifest import environment
from interp.tasks.base import Task
from interp.view.html import PageIdentity


def page_identity(model: Any = None, task: Task | None = None, *, seed: int | str = "") -> PageIdentity:
    """The heading of a page that this process writes now.

    Args:
        model: The model that it is about, if one.
        task: Its task.
        seed: Seed of training or of the analysis, or both in words.
    """
    return PageIdentity(
        task=task.description if task is not None else "",
        model=model_line(model) if model is not None else "",
        seed=str(seed),
        command=command_line(),
        commit=source_line(source_version()),
        date=environment()["time"],
    )


def model_line(model: Any) -> str:
    """Architecture and size of a model in one line."""
    cfg, size = model.cfg, sum(parameter.numel() for parameter in model.parameters())
    tied = getattr(cfg, "tied", False)
    depth = f"one block applied {number(cfg.n_layers, 'time')}" if tied else number(cfg.n_layers, "layer")
    kind = getattr(cfg, "block", "") or getattr(cfg, "model_name", "")
    attention = getattr(cfg, "attention", "")
    parts = [kind, f"{depth} of {number(cfg.n_heads, 'head')}", f"width {cfg.d_model}", attention]
    return ", ".join([*(str(part) for part in parts if part), f"{size:,} parameters"])


def number(n: int, noun: str) -> str:
    """A number with its noun: 1 layer, 2 layers."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def command_line() -> str:
    """The command that runs this process: `interp ...` or a script; empty in a notebook."""
    name = Path(sys.argv[0]).name if sys.argv else ""
    if name == "interp":
        return shlex.join(["interp", *sys.argv[1:]])
    if name.endswith(".py") and not name.startswith("ipykernel"):
        return f"python {name}"
    return ""


@functools.cache
def source_version() -> dict[str, Any]:
    """Version, git commit (None outside a checkout), and whether files differ from that commit."""
    try:
        number = version("unmyopic")
    except PackageNotFoundError:
        number = "not installed"
    root = Path(interp.__file__).resolve().parents[1]
    commit = _git(root, "rev-parse", "HEAD") if (root / ".git").exists() else None
    changed = bool(commit) and bool(_git(root, "status", "--porcelain", "--", "hooks", "interp", "case_studies/**.py"))
    return {"version": number, "commit": commit, "changed": changed}


def source_line(source: Mapping[str, Any]) -> str:
    """A source version in words: its commit, and whether files differed from it; without a commit its version."""
    if source.get("commit"):
        return f"{source['commit'][:10]}{' with changes' if source.get('changed') else ''}"
    return f"version {source['version']}" if source.get("version") else ""


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
