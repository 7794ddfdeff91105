"""What source text must look like, checked once for all files: `python tests/check_sources.py`, part of `make check`.

Each rule is a function that yields its faults as text. `tests/test_check_sources.py` plants a fault for every rule.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from durations import missing_items

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("hooks", "interp", "case_studies")
MAY_IMPORT = {"hooks": {"hooks"}, "interp": {"hooks", "interp"}, "case_studies": {"hooks", "interp", "case_studies"}}
ORDER = (
    ("view", "tasks"),
    ("core",),
    ("training", "sweeps", "evaluation"),
    ("probing", "heads", "comparison", "theory", "known_answers"),
    ("auditing", "algorithms"),
    ("reporting",),
    ("cli",),
)
"""The packages of interp; a package may import those of its row and of earlier rows."""
MOST_ARROWS = {"hooks": 22, "interp": 61, "case_studies": 30}
"""Seven of those of hooks point at two files that import next to nothing: seeds, and names of packages."""
EXAMPLE_PACKAGES = {path.parent.name for path in ROOT.glob("examples/*/*/__init__.py")}
"""Packages of examples/, which none of ours imports."""
ABOUT_THE_TOOL = "examples/unmyopic-studies/tool_studies"
SHARED_BY_STUDIES = {"study", "frame", "recipes", "review"}
MOST_PARAMETERS = 8
MORE_PARAMETERS = {"audit": 12, "audit_parts": 10}
"""Functions with more: an audit that grows has two bounds, of sequences and of seconds, processes, and chosen heads."""
MOST_EXAMPLE_LINES = 25
MUTABLE = {
    "interventions": {"SetTree"},
    "auditing": {"RemovedSets"},
}
"""Dataclasses that collect results while they are computed; all others are frozen."""
ABOUT_ONE_TASK = ("interp/theory/", "interp/known_answers/", "interp/algorithms/", "case_studies/")
"""Packages whose subject is a certain task: constructions, theorems and claims of papers."""
MAY_NAME_TASKS = {"interp/cli/demo_run.py": {"Lego"}, "interp/training/objectives.py": {"Dyck"}}
"""The demo, and the contrastive loss of bracket languages."""
EXPLAIN_TRANSPOSES = {"docs/glossary.md", "interp/heads/diagonals.py"}
"""Where the template paper's order of attention matrices is explained; elsewhere products are written one way."""
PRONOUNS = frozenset(
    [
        "apart",
        "at",
        "each",
        "found",
        "given",
        "here",
        "kept",
        "left",
        "more",
        "one",
        "other",
        "others",
        "ours",
        "own",
        "part",
        "seen",
        "some",
        "theirs",
        "there",
        "wanted",
        "what",
        "whole",
    ]
)
"""Words that say nothing of what a variable holds."""
FIELDS_OF_SAVED_RESULTS = {
    "interp/heads/keep.py": {"kept"},
    "interp/theory/kernels/template_matrix.py": {"own"},
    "interp/theory/pruning/curve.py": {"kept"},
    "interp/theory/pruning/result.py": {"kept"},
}
"""Names that saved results and tables have; they stay."""
DOC_PATH = re.compile(r"`((?:hooks|interp|tests|docs|benchmarks|case_studies|examples)/[\w/.-]*)`|\]\(([\w/.-]+)\)")
TRANSPOSED = re.compile(r"W_K W_Q\^T|W_V W_O\^T")


@dataclass(frozen=True)
class Source:
    """A Python file: its path from the root, its module name, and its syntax tree."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def module(self) -> str:
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @cached_property
    def imports(self) -> set[str]:
        """Every module that is named, also inside functions; `from a import b` names a and a.b."""
        modules: set[str] = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                modules.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                modules.add(node.module)
                modules.update(f"{node.module}.{alias.name}" for alias in node.names)
        return modules


def read_sources(*folders: str) -> list[Source]:
    """All Python files below folders."""
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return [Source(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")) for path in paths]


# Which package may import which


def wrong_directions(sources: Iterable[Source]) -> Iterator[str]:
    """Imports against the direction examples -> case_studies -> interp -> hooks, and relative ones."""
    packages = MAY_IMPORT.keys() | EXAMPLE_PACKAGES
    for source in sources:
        allowed = MAY_IMPORT[source.module.split(".")[0]]
        for module in sorted(source.imports):
            if module.split(".")[0] in packages - allowed:
                yield f"{source.path} imports {module}"
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ImportFrom) and node.level:
                yield f"{source.path}:{node.lineno}: a relative import; write the whole name"


def arrows(sources: Iterable[Source], package: str) -> dict[str, set[str]]:
    """For each part of a package (folder or file), the other parts that it imports."""
    parts = {path.stem for path in (ROOT / package).iterdir()}
    imported: dict[str, set[str]] = {}
    for source in sources:
        top, _, rest = source.module.partition(".")
        if top == package and rest:
            part = rest.split(".")[0]
            targets = {module.split(".")[1] for module in source.imports if module.startswith(f"{package}.")}
            imported.setdefault(part, set()).update((targets & parts) - {part})
    return imported


def circle(edges: Mapping[str, Iterable[str]]) -> list[str]:
    """Parts that import one another in a circle; empty if there is none."""
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def file_arrows(sources: Iterable[Source]) -> dict[str, set[str]]:
    """For each file, the other files that it imports, also inside functions and for annotations."""
    files = {source.module: source for source in sources}
    return {name: (source.imports & files.keys()) - {name} - _packages_of(name) for name, source in files.items()}


def _packages_of(module: str) -> set[str]:
    """The packages that a module is in: `from interp.core import results` names interp.core too."""
    parts = module.split(".")
    return {".".join(parts[:end]) for end in range(1, len(parts))}


def wrong_packages(sources: list[Source]) -> Iterator[str]:
    """Circles between files and between packages, too many arrows, and packages of interp that import a later one."""
    if files := circle(file_arrows(sources)):
        yield f"{' imports '.join(files)}, a circle of files"
    for package in PACKAGES:
        edges = arrows(sources, package)
        if parts := circle(edges):
            yield f"{package}: {' imports '.join(parts)}, a circle"
        n_arrows = sum(map(len, edges.values()))
        if n_arrows > MOST_ARROWS[package]:
            yield f"{package}: {n_arrows} imports between its parts, at most {MOST_ARROWS[package]}"
    yield from against_order(arrows(sources, "interp"))
    for study, imported in arrows(sources, "case_studies").items():
        if studies := imported - SHARED_BY_STUDIES:
            yield f"case_studies/{study} imports {', '.join(sorted(studies))}; a study imports no other"


def entangled_studies(sources: Iterable[Source]) -> Iterator[str]:
    """Studies about the tool that import another one."""
    studies = {path.parent.name for path in ROOT.glob(f"{ABOUT_THE_TOOL}/*/study.py")}
    for source in sources:
        imported = {module.split(".")[1] for module in source.imports if module.startswith("tool_studies.")}
        for study in sorted(imported & studies - {Path(source.path).parent.name}):
            yield f"{source.path} imports {study}; a study imports no other"


def against_order(edges: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """Imports from a package of interp to one of a later row."""
    rows = {name: index for index, names in enumerate(ORDER) for name in names}
    for name in sorted(edges.keys() - rows.keys()):
        yield f"interp/{name} is not in ORDER"
    for name in sorted(rows.keys() - edges.keys()):
        yield f"ORDER has {name}, which is not in interp"
    for name in edges.keys() & rows.keys():
        for other in sorted(edges[name]):
            if other in rows and rows[other] > rows[name]:
                yield f"interp/{name} imports interp/{other}, which is in a later row"


# How functions and classes are written


def many_parameters(sources: Iterable[Source]) -> Iterator[str]:
    """Public functions with too many parameters, not counting self, cls, *args and **kwargs."""
    for source in sources:
        # A command has one parameter for each of its options.
        if source.path.startswith(("case_studies/", "interp/cli/")):
            continue
        for node in ast.walk(source.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
                parameters = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                count = sum(parameter.arg not in ("self", "cls") for parameter in parameters)
                most = MORE_PARAMETERS.get(node.name, MOST_PARAMETERS)
                if count > most:
                    yield f"{source.path}:{node.lineno}: {node.name} has {count} parameters, at most {most}"


def mutable_dataclasses(sources: Iterable[Source]) -> Iterator[str]:
    """Dataclasses that are not frozen."""
    for source in sources:
        if not source.path.startswith(("hooks/interventions/", "interp/", "case_studies/", ABOUT_THE_TOOL)):
            continue
        for node in ast.walk(source.tree):
            if not isinstance(node, ast.ClassDef) or node.name in MUTABLE.get(Path(source.path).parent.name, ()):
                continue
            decorators = map(ast.unparse, node.decorator_list)
            if any(text.startswith("dataclass") and "frozen=True" not in text for text in decorators):
                yield f"{source.path}:{node.lineno}: the dataclass {node.name} is not frozen"


def draws_without_dtype(sources: Iterable[Source]) -> Iterator[str]:
    """Random numbers in torch's default dtype: with another default, a seed would give other numbers."""
    for source in sources:
        if not source.path.startswith(("hooks/", "interp/")):
            continue
        for node in ast.walk(source.tree):
            if not isinstance(node, ast.Call) or ast.unparse(node.func) not in ("torch.rand", "torch.randn"):
                continue
            if "dtype" not in {keyword.arg for keyword in node.keywords}:
                yield f"{source.path}:{node.lineno}: a draw without dtype; write dtype=torch.float32"


def pronouns(sources: Iterable[Source]) -> Iterator[str]:
    """Variables, arguments, fields and functions that are named by a pronoun, a participle or a preposition."""
    for source in sources:
        allowed = FIELDS_OF_SAVED_RESULTS.get(source.path, set())
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                name = node.id
            elif isinstance(node, ast.arg):
                name = node.arg
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = node.name
            else:
                continue
            if name.strip("_") in PRONOUNS and name not in allowed:
                yield f"{source.path}:{node.lineno}: {name} does not say what it holds; name it by a noun"


def unformatted_code(sources: Iterable[Source]) -> Iterator[str]:
    """Statements that are kept from the formatter, other than tables of data: rows of values in brackets."""
    for source in sources:
        lines = source.text.splitlines()
        for node in ast.walk(source.tree):
            if not isinstance(node, ast.stmt) or isinstance(getattr(node, "body", None), list):
                continue
            if lines[(node.end_lineno or node.lineno) - 1].endswith("# fmt: skip"):
                value = getattr(node, "value", None)
                rows = getattr(value, "elts", getattr(value, "values", []))
                if not isinstance(node, ast.Assign | ast.AnnAssign) or len(rows) < 2:
                    yield f"{source.path}:{node.lineno}: fmt: skip is for tables of data"


# No file outside interp/tasks depends on which task it has


class TaskQuestions:
    """Finds places in a source that depend on which task it has.

    Args:
        tasks: Name of each task, and the name of its class.
    """

    def __init__(self, tasks: Mapping[str, str]):
        self.names, self.classes = set(tasks), set(tasks.values())

    def find(self, tree: ast.AST) -> Iterator[tuple[int, str]]:
        """Line and kind of each such place."""
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                yield from self._calls(node)
            elif isinstance(node, ast.MatchClass) and _names_in(node.cls) & self.classes:
                yield node.lineno, f"a case for {_listed(_names_in(node.cls) & self.classes)}"
            elif isinstance(node, ast.Compare):
                yield from self._comparisons(node)
            elif isinstance(node, ast.Dict):
                yield from self._tables(node)

    def imported(self, tree: ast.AST) -> set[str]:
        """Classes of tasks that a source imports."""
        nodes = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
        return {alias.name for node in nodes for alias in node.names} & self.classes

    def _calls(self, node: ast.Call) -> Iterator[tuple[int, str]]:
        function = _called(node)
        if function in ("isinstance", "issubclass") and _names_in(node.args[1]) & self.classes:
            yield node.lineno, f"{function} of {_listed(_names_in(node.args[1]) & self.classes)}"
        if function in ("getattr", "hasattr") and _is_task(node.args[0]) and _texts_in(node):
            yield node.lineno, f"{function} of a task"

    def _comparisons(self, node: ast.Compare) -> Iterator[tuple[int, str]]:
        sides = [node.left, *node.comparators]
        if any(_reads_name(side) for side in sides) and any(_texts_in(side) & self.names for side in sides):
            yield node.lineno, "a comparison with the name of a task"
        if any(_called(side) == "type" and _is_task(side.args[0]) for side in sides if isinstance(side, ast.Call)):
            yield node.lineno, "a comparison of the type of a task"

    def _tables(self, node: ast.Dict) -> Iterator[tuple[int, str]]:
        keys = {key.value for key in node.keys if isinstance(key, ast.Constant)}
        classes = {name for key in node.keys if key is not None for name in _names_in(key)} & self.classes
        if classes or (len(keys & self.names) > 1 and keys <= self.names):
            yield node.lineno, f"a table by task: {_listed(map(str, (keys & self.names) | classes))}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def _called(node: ast.AST) -> str:
    """Name of the function of a call; empty for anything else."""
    function = getattr(node, "func", None)
    return getattr(function, "id", "") or getattr(function, "attr", "")


def _names_in(node: ast.AST) -> set[str]:
    """All names and attributes in an expression."""
    return {getattr(child, "id", getattr(child, "attr", "")) for child in ast.walk(node)}


def _is_task(node: ast.AST) -> bool:
    """Whether an expression is a task: `task`, `self.task`, `spec.task`, `run.task`."""
    return getattr(node, "id", getattr(node, "attr", "")) == "task"


def _texts_in(node: ast.AST) -> set[str]:
    constants = (child.value for child in ast.walk(node) if isinstance(child, ast.Constant))
    return {value for value in constants if isinstance(value, str)}


def _reads_name(node: ast.AST) -> bool:
    """Whether an expression reads the name of a task: `task.task_name`, `....describe()["task"]`."""
    subscript = isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and node.slice.value == "task"
    return subscript or "task_name" in _names_in(node)


def project() -> dict[str, Any]:
    """The table `project` of pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def known_tasks() -> dict[str, str]:
    """Name and class of each task, from the entry points."""
    return {name: place.partition(":")[2] for name, place in project()["entry-points"]["interp.tasks"].items()}


def task_questions(sources: Iterable[Source]) -> Iterator[str]:
    """Places outside interp/tasks that depend on which task they have."""
    questions = TaskQuestions(known_tasks())
    for source in sources:
        if source.path.startswith("interp/tasks/"):
            continue
        for line, place in questions.find(source.tree):
            # A study names its groups of models.
            if not (source.path.startswith("case_studies/") and "a table by task" in place):
                yield f"{source.path}:{line}: {place}"
        classes = questions.imported(source.tree)
        if not source.path.startswith(ABOUT_ONE_TASK) and classes != MAY_NAME_TASKS.get(source.path, set()):
            yield f"{source.path} imports {_listed(classes) or 'none'} of the tasks' classes"


def named_tasks(sources: Iterable[Source]) -> Iterator[str]:
    """Files of the command line that name a task; the demo may, and `text` is also a word."""
    words = re.compile(rf"\b({'|'.join(set(known_tasks()) - {'text'})})\b", re.IGNORECASE)
    for source in sources:
        if source.path.startswith("interp/cli/") and not source.path.endswith("/demo_run.py"):
            for name in sorted(set(words.findall(source.text))):
                yield f"{source.path} names the task {name}"


def unknown_extras(sources: Iterable[Source], extras: Iterable[str]) -> Iterator[str]:
    """Extras that an error message names, as in `require(..., extra="text")`, which pyproject.toml does not have."""
    for source in sources:
        for name in sorted(set(re.findall(r'extra="(\w+)"', source.text)) - set(extras)):
            yield f"{source.path} names the extra {name}, which pyproject.toml does not have"


# Documentation


def doc_pages() -> list[Path]:
    """Pages whose links and snippets are checked."""
    patterns = ["README.md", "CONTRIBUTING.md", "docs/*.md", "docs/guides/*.md", "docs/howto/*.md", "examples/**/*.md"]
    return [path for pattern in patterns for path in sorted(ROOT.glob(pattern))]


def missing_paths(pages: Iterable[Path]) -> Iterator[str]:
    """Paths that a page names or links, which do not exist."""
    for page in pages:
        for match in DOC_PATH.finditer(page.read_text(encoding="utf-8")):
            path = match[1] or match[2]
            if not (ROOT / path).exists() and not (page.parent / path).exists():
                yield f"{page.relative_to(ROOT)} names {path}, which does not exist"


def architecture_faults(text: str) -> Iterator[str]:
    """Packages that the page about the architecture lacks, and rows that are not those of ORDER."""
    for folder in ("hooks", "interp"):
        for path in sorted((ROOT / folder).glob("*/__init__.py")):
            name = path.parent.relative_to(ROOT).as_posix()
            if f"`{name}`" not in text:
                yield f"docs/architecture.md does not name {name}"
    rows = re.findall(r"^\| (\d) \| `interp/(\w+)`", text, re.MULTILINE)
    for index, names in enumerate(ORDER, 1):
        row = {name for number, name in rows if int(number) == index}
        if row != set(names):
            yield f"docs/architecture.md has {_listed(row)} in row {index}, ORDER has {_listed(names)}"


def unlinked_guides(guides: Iterable[str], pages: Mapping[str, str]) -> Iterator[str]:
    """Guides that the README or CONTRIBUTING does not link."""
    for guide in guides:
        for name, text in pages.items():
            if f"docs/guides/{guide})" not in text:
                yield f"{name} does not link docs/guides/{guide}"


def repeated_words(glossary: str) -> Iterator[str]:
    """Words that the glossary has twice."""
    words = re.findall(r"^\| ([^|]+) \|", glossary, re.MULTILINE)
    if len(words) < 20:
        yield f"docs/glossary.md has {len(words)} words in tables, at least 20 are expected: has its format changed?"
    repeated = {word for word in words if words.count(word) > 1}
    yield from (f"docs/glossary.md has {word} twice" for word in sorted(repeated))


def transposed_products(texts: Mapping[str, str]) -> Iterator[str]:
    """Products of attention matrices in the template paper's order, W_K W_Q^T, where they are not explained."""
    for path, text in texts.items():
        if TRANSPOSED.search(text) and path not in EXPLAIN_TRANSPOSES:
            yield f"{path} writes W_K W_Q^T or W_V W_O^T; this project writes W_Q W_K^T and W_V W_O"


def long_examples(first_snippet: str, first_cell: str) -> Iterator[str]:
    """Faults of the two promised short examples: the guide to a task, and the first cell of the tutorial."""
    calls = {
        "docs/guides/add_a_task.md": (
            first_snippet,
            ("from dataclasses import", "interp.audit(", "interp.report_run("),
        ),
        "docs/notebooks/tutorial.py": (
            first_cell,
            ("class Larger(Task)", "interp.train(", "interp.probe(", "interp.audit("),
        ),
    }
    for name, (text, needed) in calls.items():
        lines = [line for line in text.splitlines() if line.strip()]
        if len(lines) > MOST_EXAMPLE_LINES or max(map(len, lines), default=0) > 120:
            yield f"{name}: the first example has {len(lines)} lines, at most {MOST_EXAMPLE_LINES} of 120 characters"
        for call in needed:
            if sum(call in line for line in lines) != 1:
                yield f"{name}: the first example must have `{call}` once"


def first_examples() -> tuple[str, str]:
    """The first snippet of the guide to a task, and the first cell of the tutorial that imports interp."""
    guide = (ROOT / "docs/guides/add_a_task.md").read_text(encoding="utf-8")
    cells = (ROOT / "docs/notebooks/tutorial.py").read_text(encoding="utf-8").split("\n# %%")
    snippet = guide.split("```python\n")[1].split("\n```")[0]
    return snippet, next(cell for cell in cells if "import interp" in cell)


def faults() -> Iterator[str]:
    """All faults of the project."""
    sources = read_sources(*PACKAGES)
    yield from wrong_directions(sources)
    yield from wrong_packages(sources)
    yield from many_parameters(sources)
    yield from mutable_dataclasses(sources)
    yield from draws_without_dtype(sources)
    about_the_tool = read_sources(ABOUT_THE_TOOL)
    yield from entangled_studies(about_the_tool)
    yield from mutable_dataclasses(about_the_tool)
    yield from pronouns([*sources, *about_the_tool, *read_sources("benchmarks")])
    yield from unformatted_code([*sources, *about_the_tool])
    yield from task_questions(sources)
    yield from named_tasks(sources)
    yield from unknown_extras(sources, project()["optional-dependencies"])
    yield from missing_paths([*doc_pages(), ROOT / "CHANGELOG.md", ROOT / "docs/notebooks/index.md"])
    yield from architecture_faults((ROOT / "docs/architecture.md").read_text(encoding="utf-8"))
    guides = [path.name for path in sorted((ROOT / "docs/guides").glob("*.md"))]
    front_pages = {name: (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "CONTRIBUTING.md")}
    yield from unlinked_guides(guides, front_pages)
    yield from repeated_words((ROOT / "docs/glossary.md").read_text(encoding="utf-8"))
    folders = (*PACKAGES, "docs", "examples")
    paths = [
        path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".md", ".toml")
    ]
    texts = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}
    yield from transposed_products(texts)
    yield from long_examples(*first_examples())
    yield from missing_items(ROOT)


def main() -> None:
    """Print all faults; exit code 1 if there are any."""
    messages = list(faults())
    for message in messages:
        print(message)
    sys.exit(bool(messages))


if __name__ == "__main__":
    main()
