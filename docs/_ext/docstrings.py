"""Docstrings as reST: they use Markdown's conventions where these differ."""

import re
from typing import Any

from sphinx.application import Sphinx

COLON = "\ue000"
"""In place of a colon while napoleon reads a docstring that it would take for "type: text"."""
PLURAL = re.compile(r"(`[^`\n]+`)(?=\w)")
BARS = re.compile(r"(?<!\\)\|(?=\w)")


def to_rest(lines: list[str]) -> list[str]:
    """Plurals of code, bars, and indented code blocks, as reST has them."""
    found: list[str] = []
    for at, line in enumerate(lines):
        before = lines[at - 2] if at > 1 else ""
        indented = line.startswith("    ") and not before.startswith("    ") and not lines[at - 1].strip()
        if indented and before and not before.endswith("::"):
            found += ["::", ""]
        code = line.startswith("    ")
        found.append(line if code else BARS.sub(r"\\|", PLURAL.sub(r"\1\\ ", line)))
    return found


def _before_napoleon(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = to_rest(lines)
    if what in ("property", "attribute", "data"):
        lines[:] = [line.replace(":", COLON) for line in lines]


def _after_napoleon(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = [line.replace(COLON, ":") for line in lines]


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", _before_napoleon, priority=400)
    app.connect("autodoc-process-docstring", _after_napoleon, priority=600)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
