"""API reference pages, generated from the public names of `hooks`, `interp` and their packages."""

import importlib
import inspect
from collections.abc import Collection
from pathlib import Path
from types import ModuleType
from typing import Any

from sphinx.application import Sphinx

PACKAGES = (
    "interp",
    "interp.tasks",
    "interp.training",
    "interp.sweeps",
    "interp.evaluation",
    "interp.probing",
    "interp.heads",
    "interp.auditing",
    "interp.comparison",
    "interp.theory",
    "interp.known_answers",
    "hooks",
    "hooks.interventions",
)
"""Packages with a page, in the order of the reference."""


def public_names(package: ModuleType) -> dict[str, Any]:
    """The public functions and classes of a package, by name."""
    listed = getattr(package, "__all__", [name for name in vars(package) if not name.startswith("_")])
    found = {name: getattr(package, name) for name in listed}
    return {
        name: value
        for name, value in found.items()
        if callable(value)  # neither modules nor tables of names
    }


def page(package: ModuleType, earlier: Collection[int] = ()) -> str:
    """The reST source of a page: the docstring of the package, a table of its names, and each of them.

    Args:
        earlier: Ids of objects that an earlier page describes: only in the table.
    """
    title, names = f"``{package.__name__}``", public_names(package)
    doc = inspect.getdoc(package) or ""
    parts = [f"{title}\n{'=' * len(title)}", doc, f".. currentmodule:: {package.__name__}"]
    parts.append(".. autosummary::\n   :nosignatures:\n\n" + "\n".join(f"   {name}" for name in names))
    parts += [_entry(name, value) for name, value in names.items() if id(value) not in earlier]
    return "\n\n".join(parts) + "\n"


def _entry(name: str, value: Any) -> str:
    if inspect.isclass(value):
        return f"{name}\n{'-' * len(name)}\n\n.. autoclass:: {name}\n   :members:\n   :show-inheritance:"
    return f"{name}\n{'-' * len(name)}\n\n.. autofunction:: {name}"


def write_pages(app: Sphinx) -> None:
    """Write the pages to `api/`, those that changed only."""
    folder = Path(app.srcdir) / "api"
    folder.mkdir(exist_ok=True)
    described: set[int] = set()
    for name in PACKAGES:
        package = importlib.import_module(name)
        text, path = page(package, described), folder / f"{name}.rst"
        described |= set(map(id, public_names(package).values()))
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("builder-inited", write_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
