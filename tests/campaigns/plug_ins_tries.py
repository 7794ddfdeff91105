"""Packages that add tasks and studies and are broken: each is named, the others are listed, no process ends."""

import contextlib
import importlib.metadata
import io
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tries import Try

from interp.cli.main import main
from interp.tasks import registry

TASKS, STUDIES = registry.ENTRY_POINTS, "interp.studies"
RAISED = ("RuntimeError", "KeyError", "ImportError", "OSError", "MemoryError", "AssertionError", "RecursionError",
          "StopIteration", "UnicodeError", "NotImplementedError", "SystemExit", "Warning")  # fmt: skip
SOURCES = (
    *(f"raise {name}('for this reason')" for name in RAISED),
    "def f(:", "  x = 1", "'''", "\0", "x = '\\ud800", "1 / 0", "import no_such_package", "from interp import nothing",
    "import sys; sys.exit(3)", "import sys; sys.exit('text')", "import sys; sys.exit()", "exit()",
    "raise type('Own', (Exception,), {'__str__': lambda self: 1 / 0})()", "raise Exception('x' * 5000)",
    "raise Exception('two\\nlines')", "x = 1", "", "Thing = None", "Thing = 3", "Thing = 'text'", "Thing = {}",
    "class Thing: pass", "def Thing(): raise ValueError", "Thing = int", "Thing = type",
    "class Odd(type):\n    def __getattr__(cls, name): raise RuntimeError('for this reason')\n"
    "class Thing(metaclass=Odd): pass",
    "class Thing:\n    def __getattr__(self, name): raise RuntimeError('for this reason')\nThing = Thing()",
    "def __getattr__(name): raise RuntimeError('for this reason')",
    "from interp.tasks import Lego as Thing", "from interp.tasks import Task as Thing",
)  # fmt: skip
COMMANDS = (
    "tasks",
    "tasks --json",
    "reproduce",
    "reproduce --json",
    "train --help",
    "train {} --out r",
    "reproduce {}",
)


def tries(n: int, folder: Path) -> Iterator[Try]:
    """One to three broken packages at once, and one command."""
    rng = random.Random(16)
    sys.path.append(str(folder))
    real = {group: [*importlib.metadata.entry_points(group=group)] for group in (TASKS, STUDIES)}
    try:
        for index in range(n):
            sources = rng.sample(SOURCES, rng.randrange(1, 4))
            names = [f"plug_in_{index}_{number}" for number in range(len(sources))]
            for name, source in zip(names, sources, strict=True):
                (folder / f"{name}.py").write_text(source)
            lists = {
                group: [*points, *(importlib.metadata.EntryPoint(name, f"{name}:Thing", group) for name in names)]
                for group, points in real.items()
            }
            command = COMMANDS[index % len(COMMANDS)]
            yield _tried(command.format(rng.choice(names)).split(), sources, names, lists)
    finally:
        sys.path.remove(str(folder))


def _tried(arguments: list[str], sources: list[str], names: list[str], lists: dict[str, list[Any]]) -> Try:
    what = f"interp {' '.join(arguments)}, {[source[:60] for source in sources]}"
    out, err = io.StringIO(), io.StringIO()
    code: Any = 0
    with (
        patch.object(registry, "entry_points", lambda group: lists[group]),
        patch.object(importlib.metadata, "entry_points", lambda group: lists[group]),
        patch.object(registry, "_installed", registry._installed.__wrapped__),
        patch.object(sys, "argv", ["interp", *arguments]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as ended:
            code = ended.code or 0
        except BaseException as error:
            return Try(what, "unclear", f"{type(error).__name__}: {str(error)[:200]}")
    fault = _fault(arguments, names, code, out.getvalue(), err.getvalue())
    return Try(what, "unclear" if fault else None, fault)


def _fault(arguments: list[str], names: list[str], code: Any, out: str, err: str) -> str:
    """What is wrong with what a command printed; empty if nothing is."""
    if "Traceback" in err or err.count("\n") > 1 or len(err) > 800:
        return f"exit code {code}: {err[:300]}"
    if "--out" in arguments or arguments[-1] in names:
        chosen = next(one for one in arguments if one in names)
        return "" if code in (1, 2) and chosen in err else f"exit code {code}: {err[:300]} {out[:200]}"
    known = "dyck", "lego", "template"
    if code or err:
        return f"exit code {code}: {err[:300]}"
    if missing := [name for name in (*known, *names) if name not in out]:
        return f"{missing} not listed"
    if "--json" in arguments:
        json.loads(out)
    elif max(map(len, out.splitlines())) > 800:
        return "a line of more than 800 characters"
    return ""
