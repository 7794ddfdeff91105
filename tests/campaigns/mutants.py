"""Mutation runs: what share of small breaks in core files do the tests notice?

cosmic-ray proposes the breaks; the tests run here, in a copy of the project, a random sample of breaks per package.
Each break meets the test files named like the broken file first, then the other tests of its package, slow ones too,
until one fails.
Results are kept next to the copy, so that a run that was stopped resumes, and a second run tries survivors again only.
"""

import argparse
import ast
import hashlib
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.toml")
PACKAGES = [
    "hooks/interventions",
    "interp/core",
    "interp/probing",
    "interp/heads",
    "interp/auditing",
    "interp/theory",
    "case_studies/frame",
]
LONGEST = 1200
"""Seconds that the tests of a package may take; a break that makes them take longer is noticed."""
BAR = 0.9
"""Smallest share of breaks that tests must notice."""
SWAPS = [
    "Add Sub",
    "Sub Add",
    "Mul Div",
    "Div Mul",
    "FloorDiv Mul",
    "Pow Mul",
    "Mod FloorDiv",
    "BitAnd BitOr",
    "BitOr BitAnd",
]
SWAPS += [
    "Eq NotEq",
    "NotEq Eq",
    "Is IsNot",
    "IsNot Is",
    "Lt LtE",
    "Lt GtE",
    "LtE Lt",
    "LtE Gt",
    "Gt GtE",
    "Gt LtE",
    "GtE Gt",
    "GtE Lt",
]
SWAPS += ["Delete USub", "Delete Not", "Delete Invert"]
KINDS = [
    "NumberReplacer",
    "AddNot",
    "ReplaceTrueWithFalse",
    "ReplaceFalseWithTrue",
    "ReplaceAndWithOr",
    "ReplaceOrWithAnd",
]
KINDS += ["ReplaceBreakWithContinue", "ReplaceContinueWithBreak", "ZeroIterationForLoop"]
"""Kinds of breaks: cosmic-ray has eleven replacements of each operator, most of which end in a TypeError."""


@dataclass(frozen=True, order=True)
class Mutant:
    """One small break: the line before and after, and how cosmic-ray makes it."""

    file: str
    line: int
    before: str
    after: str
    operator: str
    occurrence: int

    @property
    def key(self) -> str:
        """Name of its result; another one where the file has changed."""
        return f"{self} {self.occurrence} {digest([self.file])}"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}  {self.before}  ->  {self.after}"


def kind_of(operator: str) -> str:
    """Name of a kind of break, as in `SWAPS` or `KINDS`."""
    name = operator.removeprefix("core/")
    return name.split("_", 1)[1].replace("_", " ") if "Operator_" in name else name


def untouched(source: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Ranges that no break may be in: annotations, decorators, texts of errors, joined strings, and zip's `strict`.

    `zip(..., strict=True)` is a check: without it nothing changes where the code is right.
    """
    parts: list[ast.AST | None] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Raise | ast.JoinedStr | ast.Constant) and not isinstance(
            getattr(node, "value", ""), int | float
        ):
            parts.append(node)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            parts += [getattr(node, "returns", None), *node.decorator_list]
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            parts.append(node.test)
        elif isinstance(node, ast.keyword) and node.arg == "strict":
            parts.append(node.value)
        elif isinstance(node, ast.arg | ast.AnnAssign):
            parts.append(node.annotation)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            joined = [isinstance(one, ast.JoinedStr | ast.Constant) for one in (node.left, node.right)]
            parts += [node] if any(joined) and not isinstance(getattr(node.right, "value", ""), int | float) else []
    return [((one.lineno, one.col_offset), (one.end_lineno, one.end_col_offset)) for one in parts if one is not None]


def places(path: Path) -> Iterator[tuple[str, str, int]]:
    """All breaks of a file: the file, cosmic-ray's operator, and which of its occurrences."""
    import cosmic_ray.plugins
    from cosmic_ray.ast import ast_nodes, get_ast

    source = path.read_text()
    skipped, nodes = untouched(source), list(ast_nodes(get_ast(source)))
    between = [(one.left, one.right) for one in ast.walk(ast.parse(source)) if isinstance(one, ast.BinOp)]
    signs = [((a.end_lineno, a.end_col_offset), (b.lineno, b.col_offset)) for a, b in between]
    for name in sorted(cosmic_ray.plugins.operator_names()):
        if kind_of(name) in (*SWAPS, *KINDS):
            operator = cosmic_ray.plugins.get_operator(name)()
            for occurrence, (start, _) in enumerate(at for node in nodes for at in operator.mutation_positions(node)):
                stars = "BinaryOperator" in name and not any(first <= start < last for first, last in signs)
                if not stars and not any(first <= start < last for first, last in skipped):  # *args is no product
                    yield str(path.relative_to(ROOT)), name, occurrence


def broken(path: Path, operator: str, occurrence: int) -> str:
    """Source of a file with one break."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    return mutate_code(path.read_text(), get_operator(operator)(), occurrence)


def sample(package: str, n: int, seed: int) -> tuple[list[Mutant], int]:
    """n random breaks of a package, without those listed as equivalent; and how many breaks there are."""
    listed = {(one["file"], one["before"], one["after"]) for one in tomllib.loads(EQUIVALENT.read_text())["mutant"]}
    every = [place for path in sorted((ROOT / package).rglob("*.py")) for place in places(path)]
    every.sort(key=lambda place: hashlib.sha256(f"{seed} {place}".encode()).digest())  # the same if others are added
    chosen: list[Mutant] = []
    for file, operator, occurrence in every:
        pairs = zip(
            (ROOT / file).read_text().splitlines(), broken(ROOT / file, operator, occurrence).splitlines(), strict=False
        )
        line, before, after = next((n, a.strip(), b.strip()) for n, (a, b) in enumerate(pairs, 1) if a != b)
        if (file, before, after) not in listed:
            chosen.append(Mutant(file, line, before, after, operator, occurrence))
        if len(chosen) >= n:
            break
    return chosen, len(every)


def tests_for(file: str, package: str, *, near: bool) -> list[str]:
    """Test files: those named like a file, those that import it and, unless only near ones, others of its package.

    Files that are named like it are looked for in its package, those that import it everywhere.
    """
    path = Path(file)
    module = ".".join(path.with_suffix("").parts)

    def order(test: Path) -> tuple[bool, bool, bool, str]:
        return path.stem not in test.stem, module not in test.read_text(), path.parent.name not in test.parts, str(test)

    of_package = set((ROOT / "tests" / package).rglob("test_*.py"))
    importing = {test for test in (ROOT / "tests").rglob("test_*.py") if module in test.read_text()}
    found = sorted(of_package | importing, key=order)
    kept = [test for test in found if not all(order(test)[:2])] if near else found
    return [str(test.relative_to(ROOT)) for test in kept or found]


def run_tests(copy: str, tests: list[str], log: str) -> None:
    """Run tests in this process until one fails; its exit code is pytest's."""
    import pytest

    os.chdir(copy)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(out, 1)
    os.dup2(out, 2)
    sys.dont_write_bytecode = False  # without it every run would compile everything
    sys.path.insert(0, copy)
    options = ["-x", "-q", "--no-header", "--tb=no", "-rfE", "-p", "no:cacheprovider", "-m", "not long"]
    sys.exit(int(pytest.main([*options, *tests])))


class Workshop:
    """A copy of the project in which files are broken and tests run."""

    def __init__(self, folder: Path, minutes: float):
        self.copy, self.results, self.log = folder / "copy", folder / "results.json", folder / "log.txt"
        self.ends = time.monotonic() + 60 * minutes
        shutil.rmtree(self.copy, ignore_errors=True)
        listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        for name in subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0"):
            if name and (ROOT / name).is_file():
                (self.copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.copy / name)
        os.environ["PYTHONPATH"] = str(self.copy)
        os.environ["OMP_NUM_THREADS"] = "1"
        self.processes = multiprocessing.get_context("forkserver")
        self.processes.set_forkserver_preload(["torch", "transformer_lens", "scipy.stats", "pandas", "pytest"])
        self.known = json.loads(self.results.read_text()) if self.results.exists() else {}

    def passes(self, tests: list[str], seconds: float) -> bool:
        """Whether tests pass within a time."""
        process = self.processes.Process(target=run_tests, args=(str(self.copy), tests, str(self.log)))
        process.start()
        process.join(seconds)
        if process.exitcode is None:
            process.kill()
            process.join()
        return process.exitcode == 0

    def check(self, mutants: list[Mutant]) -> None:
        """Check that the tests that noticed these breaks pass on unbroken files."""
        noticing = {self.known[mutant.key].get("by") for mutant in mutants if mutant.key in self.known} - {None, ""}
        new = sorted(noticing - set(self.known.get("sound", [])))
        if new and not self.passes(new, 3600):
            sys.exit(f"{self.failed()} fails on unbroken files, so it notices nothing; see {self.log}.")
        self.keep("sound", sorted({*self.known.get("sound", []), *new}))

    def failed(self) -> str:
        """The test that failed in the last run, or the file that could not be collected; empty if none did."""
        found = re.findall(
            r"^(?:FAILED|ERROR) (tests/\S+?\.py(?:::.*?)?)(?: - .*)?$", self.log.read_text(), re.MULTILINE
        )
        return found[0] if found else ""

    def keep(self, key: str, found: dict) -> None:
        """Store a result."""
        self.known[key] = found
        draft = self.results.with_suffix(".new")
        draft.write_text(json.dumps(self.known, indent=1))
        draft.replace(self.results)

    def try_out(self, mutant: Mutant, tests: list[str]) -> bool:
        """Whether tests notice a break, if only by never ending."""
        path = self.copy / mutant.file
        whole = path.read_bytes()  # of the copy: the project's own file may be edited meanwhile
        try:
            path.write_text(broken(path, mutant.operator, mutant.occurrence))
            old = int(hashlib.sha256(path.read_bytes()).hexdigest()[:7], 16)
            os.utime(path, (old, old))  # cached bytecode is recognised by this time: no two breaks have the same
            return not self.passes(tests, LONGEST)
        finally:
            path.write_bytes(whole)

    def noticed(self, mutant: Mutant, tests: list[str]) -> bool | None:
        """Whether tests notice a break, now or before; None if time is up.

        A result is used again if the file, and for a survivor the tests, have not changed.
        """
        before = self.known.get(mutant.key)
        if before is None or not (before["noticed"] or before["tests"] == digest(tests)):
            if time.monotonic() > self.ends:
                return None
            found = self.try_out(mutant, tests)
            by = self.failed() if found else ""
            self.keep(mutant.key, {"noticed": found, "by": by, "tests": digest(tests), **asdict(mutant)})
            print("noticed " if found else "SURVIVED", mutant, flush=True)
        return self.known[mutant.key]["noticed"]


def digest(files: list[str]) -> str:
    """A digest of the contents of files."""
    return hashlib.sha256(b"".join((ROOT / file).read_bytes() for file in files)).hexdigest()[:16]


def share(noticed: int, tried: int) -> str:
    """A share with its 95 % interval (Wilson)."""
    from scipy.stats import binomtest

    if not tried:
        return "nothing tried"
    low, high = binomtest(noticed, tried).proportion_ci(method="wilson")
    return f"{noticed / tried:.2f} [{low:.2f}, {high:.2f}]"


def main() -> None:
    """Run a sample and print the table; exit code 1 if less than the bar is noticed."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("packages", nargs="*", default=PACKAGES, help="folders; default: %(default)s")
    options.add_argument("--n", type=int, default=15, help="breaks per package; default: %(default)s")
    options.add_argument("--seed", type=int, default=0, help="decides the sample; default: %(default)s")
    options.add_argument("--minutes", type=float, default=60, help="no break is started later; default: %(default)s")
    options.add_argument(
        "--near", action="store_true", help="only test files named like the broken file or importing it"
    )
    options.add_argument("--folder", type=Path, default=ROOT / "runs" / "mutants", help="copy of the project, results")
    given = options.parse_args()
    shop = Workshop(given.folder.resolve(), given.minutes)
    samples = {package: sample(package.rstrip("/"), given.n, given.seed) for package in given.packages}
    found: dict[Mutant, bool] = {}
    for index in range(given.n):  # the first of each package, then the second, so that a short run is balanced
        for package, (chosen, _) in samples.items():
            for mutant in chosen[index : index + 1]:
                noticed = shop.noticed(mutant, tests_for(mutant.file, package, near=given.near))
                if noticed is not None:
                    found[mutant] = noticed
    shop.check(list(found))
    rows = []
    for package, (chosen, n_mutants) in samples.items():
        tried = [found[mutant] for mutant in chosen if mutant in found]
        rows.append((package, n_mutants, len(tried), sum(tried)))
    tried, noticed = sum(row[2] for row in rows), sum(row[3] for row in rows)
    print(f"\n{'package':<22}{'breaks':>8}{'tried':>7}{'noticed':>9}  share")
    for package, n_mutants, n_tried, n_noticed in [*rows, ("all", sum(row[1] for row in rows), tried, noticed)]:
        print(f"{package:<22}{n_mutants:>8}{n_tried:>7}{n_noticed:>9}  {share(n_noticed, n_tried)}")
    survivors = [mutant for mutant, noticed in found.items() if not noticed]
    print("\nsurvived:", *(survivors or ["none"]), sep="\n")
    sys.exit(noticed < BAR * tried)


if __name__ == "__main__":
    main()
