"""Recorded durations: which items are default, slow or long, and which are fast enough for the pass that checks shapes.

`make durations` writes `tests/durations.tsv` on an idle machine: seconds and name of every item of at least 0.1 s.
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

RECORD = Path(__file__).with_name("durations.tsv")
RECORDED_FROM = 0.1
"""Seconds from which an item is recorded."""
DEFAULT_LONGEST = 0.4
"""Seconds that a default item may take; what takes longer is slow."""
SLOW_LONGEST = 5.0
"""Seconds that a slow item may take; what takes longer is long."""
NEVER_LONG = {
    "tests/test_docs.py::test_every_snippet_runs[README.md]": "that what users see first runs",
    "tests/test_docs.py::test_every_snippet_runs[add_a_task.md]": "that a task of a user's own runs through every verb",
    "tests/case_studies/compiled/test_compiled_programs.py::test_every_claim_holds_on_the_small_programs": (
        "that the study of compiled programs accepts the right graphs and refuses rewired ones"
    ),
}
"""Items that are slow, though they take longer, since no other one notices what they notice: name and what that is."""


def read_durations(path: Path = RECORD) -> dict[str, float]:
    """Seconds of each recorded item, by name."""
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = (line.split("\t") for line in lines if line and not line.startswith("#"))
    return {name: float(seconds) for seconds, name in rows}


def write_durations(seconds: Mapping[str, float], path: Path = RECORD) -> None:
    """Write the items of at least `RECORDED_FROM` seconds, sorted by name."""
    rows = [f"{seconds[name]:.1f}\t{name}" for name in sorted(seconds) if seconds[name] >= RECORDED_FROM]
    header = f"# Seconds of the items of at least {RECORDED_FROM} s, on two idle cores: `make durations`"
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")


def kind_of(name: str, seconds: float) -> str | None:
    """The mark of an item that takes this long; none if it is a default one."""
    if seconds > SLOW_LONGEST and name not in NEVER_LONG:
        return "long"
    return "slow" if seconds > DEFAULT_LONGEST else None


def missing_items(root: Path) -> Iterator[str]:
    """Recorded items that no longer exist."""
    items_by_path: dict[str, list[str]] = {}
    for name in read_durations(root / "tests/durations.tsv"):
        path, _, item = name.partition("::")
        items_by_path.setdefault(path, []).append(item.partition("[")[0].rpartition("::")[2])
    for path, items in items_by_path.items():
        missing = sorted(set(items) - _functions(root / path))
        if missing:
            yield f"{path} has no {', '.join(missing)}, which durations.tsv names; run `make durations`"


def _functions(path: Path) -> set[str]:
    """Names of the functions of a file; none if there is no file."""
    if not path.is_file():
        return set()
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
