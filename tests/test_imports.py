"""What may import what, how long a file is, and how much a function asks for: read from the source."""

import ast
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import interp

ROOT = Path(__file__).resolve().parent.parent
MAY_IMPORT = {"hooks": {"hooks"}, "interp": {"hooks", "interp"}, "case_studies": {"hooks", "interp", "case_studies"}}
ANALYSES = {"probing", "patterns", "ablation", "variation", "balance", "pruning", "kernels", "identity_strength"}
MAY_IMPORT_ANALYSES = {
    "interp",
    "interp.report",
    "interp.auditing.audit",
    "interp.auditing.probes",
    "interp.cli.demo",
    "interp.cli.main",
}
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


def graph():
    return {name: set(imports(name, ast.parse(path.read_text(encoding="utf-8")))) for name, path in SOURCES.items()}


def wrong_ways(edges):
    """Imports that go against the one way: case studies use interp, interp uses hooks."""
    return [
        f"{name} imports {target}"
        for name, targets in edges.items()
        for target in targets
        if target.split(".")[0] in MAY_IMPORT and target.split(".")[0] not in MAY_IMPORT[name.split(".")[0]]
    ]


def analysis(module):
    """The analysis that a module is, or is a part of."""
    parts = module.split(".")
    return parts[1] if parts[0] == "interp" and len(parts) > 1 and parts[1] in ANALYSES else None


def entanglements(edges):
    """Analyses, or what they build on, that import an analysis."""
    return [
        f"{name} imports {target}"
        for name, targets in edges.items()
        if name.startswith("interp.") and name not in MAY_IMPORT_ANALYSES
        for target in targets
        if analysis(target) not in (None, analysis(name))
    ]


def test_imports_go_one_way():
    edges = graph()
    assert edges["interp.training.train"] >= {"hooks.model.architectures", "interp.tasks.base"}  # something was read
    assert wrong_ways(edges) == []
    assert wrong_ways({"hooks.x": {"interp.tasks"}, "interp.y": {"case_studies"}, "interp.z": {"hooks", "torch"}}) == [
        "hooks.x imports interp.tasks",
        "interp.y imports case_studies",
    ]


def test_analyses_do_not_import_one_another():
    assert entanglements(graph()) == []
    assert entanglements(
        {"interp.heads.classify": {"interp.probing.probe", "interp.heads.classify", "interp.probing.ridge"}}
    ) == ["interp.heads.classify imports interp.probing.probe"]
    assert entanglements({"interp.probing.ridge": {"interp.probing.probe.probe"}}) == [
        "interp.probing.ridge imports interp.probing.probe.probe"
    ]
    assert entanglements({"interp.report": {"interp.probing.probe"}, "interp.view.x": {"interp.core.results"}}) == []


def test_the_model_knows_no_analysis_and_views_know_no_result():
    knows = (
        "interp.probing.probe_result",
        "interp.core.results",
        "interp.training.run",
        "interp.evaluation.evaluate",
        "interp.tasks",
    )
    for name, targets in graph().items():
        if name.startswith("interp.view"):
            assert not [target for target in targets if target.startswith(knows)], name


def test_importing_interp_is_free():
    heavy = ("torch", "transformer_lens", "numpy", "pandas", "scipy", "sklearn", "altair", "joblib")
    code = f"import sys, interp; dir(interp); print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


def test_no_module_has_the_name_of_a_verb():
    """`import interp.probe` would put a module where the verb belongs."""
    modules = {path.stem for path in (ROOT / "interp").iterdir()}
    assert modules & set(interp.__all__) == {"known_answers", "pruning", "tasks"}
    modules = [name for name in interp.__all__ if isinstance(getattr(interp, name), ModuleType)]
    assert modules == ["known_answers", "pruning", "tasks"]


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(AttributeError, match=r"interp has no 'prob'; it has .*probe, .*train"):
        _ = interp.prob
    assert set(dir(interp)) == set(interp.__all__)


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
@pytest.mark.parametrize("name", [name for name in SOURCES if not name.startswith(("case_studies", "interp.cli.main"))])
def test_no_public_function_asks_for_more_than_eight_things(name):
    assert too_demanding(ast.parse(SOURCES[name].read_text(encoding="utf-8"))) == []


def test_nine_parameters_would_be_noticed():
    eight = ", ".join("abcdefgh")
    assert too_demanding(ast.parse(f"def f(self, {eight}, *args): ...")) == []
    assert too_demanding(ast.parse(f"def f({eight}, *, i): ...")) == ["f has 9 parameters"]
    assert too_demanding(ast.parse(f"def _f({eight}, i): ...")) == []
