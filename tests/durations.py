"""Recorded durations of the default items: which are slow, and which are fast enough for the pass that checks shapes.

`make durations` writes `tests/durations.tsv` on an idle machine: seconds and name of every item of at least 0.1 s.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

RECORD = Path(__file__).with_name("durations.tsv")
RECORDED_FROM = 0.1
"""Seconds from which an item is recorded."""
LONGEST = 2.0
"""Seconds that a default item may take; what takes longer is marked slow."""
ALLOWED_TO_BE_SLOW = {
    "tests/interp/algorithms/test_implements.py::test_the_algorithm_of_a_known_answer_is_implemented[loop]": (
        "that a variable between input and answer is found, against two rivals; four other items read the result"
    ),
    "tests/case_studies/compiled/test_compiled_programs.py::test_every_claim_holds_on_the_small_programs": (
        "that the study of compiled programs accepts the right graphs and refuses rewired ones"
    ),
}
"""Items that may take longer, because no other default item notices what they notice: name and what that is."""


def read_durations(path: Path = RECORD) -> dict[str, float]:
    """Seconds of each recorded item, by name."""
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = (line.split("\t") for line in lines if line and not line.startswith("#"))
    return {name: float(seconds) for seconds, name in rows}


def write_durations(seconds: Mapping[str, float], path: Path = RECORD) -> None:
    """Write the items of at least `RECORDED_FROM` seconds, sorted by name."""
    rows = [f"{seconds[name]:.1f}\t{name}" for name in sorted(seconds) if seconds[name] >= RECORDED_FROM]
    header = f"# Seconds of the default items of at least {RECORDED_FROM} s, on two idle cores: `make durations`"
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")


def slow_items(root: Path, allowed: Iterable[str] = tuple(ALLOWED_TO_BE_SLOW)) -> Iterator[str]:
    """Recorded items that take too long, and items that are recorded or allowed but no longer exist."""
    durations = read_durations(root / "tests/durations.tsv")
    for name, seconds in durations.items():
        if seconds > LONGEST and name not in allowed:
            yield (
                f"{name} takes {seconds} s, at most {LONGEST} by default: make it smaller, or mark it slow; "
                "then run `make durations`"
            )
    items_by_path: dict[str, list[str]] = {}
    for name in (*durations, *allowed):
        path, _, item = name.partition("::")
        items_by_path.setdefault(path, []).append(item.partition("[")[0].rpartition("::")[2])
    for path, items in items_by_path.items():
        missing = sorted(set(items) - _functions(root / path))
        if missing:
            yield f"{path} has no {', '.join(missing)}, which durations.tsv or durations.py names; run `make durations`"


def _functions(path: Path) -> set[str]:
    """Names of the functions of a file; none if there is no file."""
    if not path.is_file():
        return set()
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
