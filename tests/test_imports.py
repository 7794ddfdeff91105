"""Which package may import which, the length of files, and the number of parameters: read from the source."""

import ast
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import interp

ROOT = Path(__file__).resolve().parent.parent
MAY_IMPORT = {"hooks": {"hooks"}, "interp": {"hooks", "interp"}, "case_studies": {"hooks", "interp", "case_studies"}}
ORDER = (
    ("view", "tasks"),
    ("core",),
    ("training", "evaluation"),
    ("probing", "heads", "comparison", "theory", "known_answers"),
    ("auditing", "algorithms"),
    ("reporting",),
    ("cli",),
)
"""The packages of interp; a package may import those of its row and of earlier rows."""
MOST_ARROWS = {"hooks": 10, "interp": 80, "case_studies": 12}
LONGEST, MOST_PARAMETERS = 350, 8

SOURCES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for package in MAY_IMPORT
    for path in sorted((ROOT / package).rglob("*.py"))
}


def imports(name, tree):
    """Every module that a source names, also inside functions; `from a import b` names a and a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} imports relatively; say the whole name"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def graph():
    return {name: set(imports(name, ast.parse(path.read_text(encoding="utf-8")))) for name, path in SOURCES.items()}


def wrong_ways(edges):
    """Imports against the direction case_studies -> interp -> hooks."""
    return [
        f"{name} imports {target}"
        for name, targets in edges.items()
        for target in targets
        if target.split(".")[0] in MAY_IMPORT and target.split(".")[0] not in MAY_IMPORT[name.split(".")[0]]
    ]


def arrows(edges, package) -> dict[str, set[str]]:
    """For each part of a package, the other parts that it imports."""
    parts = {path.stem for path in (ROOT / package).iterdir()}
    found: dict[str, set[str]] = {}
    for name, targets in edges.items():
        top, _, rest = name.partition(".")
        if top == package and rest:
            here = rest.split(".")[0]
            there = {target.split(".")[1] for target in targets if target.startswith(f"{package}.")}
            found.setdefault(here, set()).update((there & parts) - {here})
    return found


def circle(arrows: dict[str, Iterable[str]]):
    """Parts that import one another in a circle; empty where there is none."""
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def against_order(arrows):
    """Imports from a package to one of a later row, or to another of the same row."""
    row = {name: index for index, names in enumerate(ORDER) for name in names}
    return [f"{a} imports {b}" for a, found in arrows.items() for b in found if row[b] > row[a]]


def test_imports_go_one_way():
    edges = graph()
    assert edges["interp.training.train"] >= {"hooks.model.architectures", "interp.tasks.base"}  # something was read
    assert wrong_ways(edges) == []
    assert wrong_ways({"hooks.x": {"interp.tasks"}, "interp.y": {"case_studies"}, "interp.z": {"hooks", "torch"}}) == [
        "hooks.x imports interp.tasks",
        "interp.y imports case_studies",
    ]


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_packages_import_one_another_in_no_circle(package):
    found = arrows(graph(), package)
    assert sum(map(len, found.values())) <= MOST_ARROWS[package], found
    assert circle(found) == []


def test_the_packages_of_interp_build_on_earlier_ones():
    found = arrows(graph(), "interp")
    assert set(found) == {name for names in ORDER for name in names}
    assert against_order(found) == []
    assert against_order({"core": {"heads"}, "heads": {"core", "probing"}}) == ["core imports heads"]


def test_a_circle_is_found():
    edges = {"hooks.model.a": {"hooks.adapters.b"}, "hooks.adapters.b": {"hooks.model.a", "hooks.nothing"}}
    assert arrows(edges, "hooks") == {"model": {"adapters"}, "adapters": {"model"}}
    assert set(circle(arrows(edges, "hooks"))) == {"model", "adapters"}


def test_no_study_imports_another():
    found = arrows(graph(), "case_studies")
    assert {name: others - {"frame"} for name, others in found.items()} == {name: set() for name in found}


def test_interp_is_few_packages():
    there = {path.name for path in (ROOT / "interp").iterdir()} - {"__pycache__"}
    assert there == {"__init__.py", "__init__.pyi"} | {name for names in ORDER for name in names}
    assert len(there) <= 16


def test_importing_interp_is_free():
    heavy = ("torch", "transformer_lens", "numpy", "pandas", "scipy", "sklearn", "altair", "joblib")
    code = f"import sys, interp; dir(interp); print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


RARELY_USED = ("pandas", "altair", "sklearn", "circuitsvis", "vl_convert", "transformers", "datasets", "tokenizers")


def test_nothing_is_loaded_that_is_not_used():
    """Packages loaded after each step of one fresh process; TransformerLens loads pandas, transformers, datasets."""
    model = (
        "from hooks import Transformer; from interp.tasks import Lego; task = Lego(n_vars=2); "
        "net = Transformer(interp.config_for(task, n_layers=1, d_model=8, n_heads=1))"
    )
    verbs = "print(interp.evaluate(net, task, n=20)); interp.classify_heads(net, task, n=20)"
    look = "import sys; print('\\nloaded', *[name for name in names if name in sys.modules])"
    ours = ("altair", "sklearn", "circuitsvis", "vl_convert")
    bridges = ("hooks.adapters.bridge", "hooks.adapters.huggingface", "hooks.adapters.huggingface.loading")
    code = f"names = {(*RARELY_USED, *ours, *bridges)!r}; "
    code += "; ".join(part for step in ("import hooks, interp", model, verbs) for part in (step, look))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    loaded = [set(line.split()[1:]) for line in done.stdout.splitlines() if line.startswith("loaded")]
    assert len(loaded) == 3
    assert not loaded[0] & set(RARELY_USED)
    assert not loaded[1] & {*ours, *bridges}
    assert not loaded[2] & {*ours, "hooks.adapters.huggingface.loading"}


def test_the_public_list_is_short_and_every_name_is_there():
    assert len(interp.__all__) <= 36  # five verbs and one package more than the 30 of the first list
    assert set(dir(interp)) == set(interp.__all__)
    for name in interp.__all__:
        assert getattr(interp, name) is not None
    with pytest.raises(AttributeError, match=r"No interp attribute prob$"):
        _ = interp.prob


@pytest.mark.parametrize("room", ["auditing", "comparison", "evaluation", "heads", "probing", "theory", "training"])
def test_every_name_of_a_package_is_there(room):
    package = getattr(interp, room)
    assert package.__all__
    for name in package.__all__:
        assert getattr(package, name) is not None


@pytest.mark.parametrize("name", [name for name in SOURCES if not name.startswith("case_studies")])
def test_a_file_can_be_read_at_one_sitting(name):
    lines = len(SOURCES[name].read_text(encoding="utf-8").splitlines())
    assert lines <= LONGEST, f"{SOURCES[name]} has {lines} lines"


def too_demanding(tree):
    """Public functions and methods with more than eight parameters, not counting self, cls, *args and **kwargs."""
    return [
        f"{node.name} has {count} parameters"
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_")
        for arguments in [node.args]
        for named in [[*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]]
        for count in [len([argument for argument in named if argument.arg not in ("self", "cls")])]
        if count > MOST_PARAMETERS
    ]


# not the command line, whose functions take one parameter per option
@pytest.mark.parametrize("name", [name for name in SOURCES if not name.startswith(("case_studies", "interp.cli"))])
def test_no_public_function_has_more_than_eight_parameters(name):
    assert too_demanding(ast.parse(SOURCES[name].read_text(encoding="utf-8"))) == []


def test_nine_parameters_would_be_noticed():
    eight = ", ".join("abcdefgh")
    assert too_demanding(ast.parse(f"def f(self, {eight}, *args): ...")) == []
    assert too_demanding(ast.parse(f"def f({eight}, *, i): ...")) == ["f has 9 parameters"]
    assert too_demanding(ast.parse(f"def _f({eight}, i): ...")) == []


MUTABLE = {"SetTree", "_Audit", "Evidence", "HeadExperiments", "Trials"}
"""Dataclasses that collect what is found; `Evidence` of audits, not that of studies."""


def test_dataclasses_are_frozen():
    open_ones = set()
    for folder in ("hooks/interventions", "interp", "case_studies/frame"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                decorators = map(ast.unparse, getattr(node, "decorator_list", []))
                if any(one.startswith("dataclass") and "frozen=True" not in one for one in decorators):
                    open_ones.add((path.parent.name, node.name))
    assert {name for _, name in open_ones} == MUTABLE
    assert {folder for folder, _ in open_ones} == {"interventions", "auditing"}
