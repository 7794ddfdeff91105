"""No source outside interp/tasks depends on which task it has: read from the source."""

import ast
from pathlib import Path

import pytest

from interp.tasks import Task, known_tasks
from interp.tasks.registry import task_class_of

ROOT = Path(__file__).resolve().parent.parent
OUTSIDE = {
    path.relative_to(ROOT).as_posix(): path
    for package in ("hooks", "interp", "case_studies")
    for path in sorted((ROOT / package).rglob("*.py"))
    if not path.is_relative_to(ROOT / "interp" / "tasks")
}
NAMES = set(known_tasks())
CLASSES = {task_class_of(name).__name__ for name in NAMES}
ABOUT_ONE_TASK = ("interp/theory/", "interp/known_answers/", "interp/algorithms/", "case_studies/")
"""Packages whose subject is a certain task: constructions, theorems and claims of papers."""
ALSO = {"interp/cli/demo.py": {"Lego"}, "interp/training/objectives.py": {"Dyck"}}
"""The demo, and the contrastive loss of bracket languages."""


def called(node):
    """Name of the function of a call, or an empty text."""
    function = getattr(node, "func", None)
    return getattr(function, "id", "") or getattr(function, "attr", "")


def names_in(node):
    """All names and attributes in an expression."""
    return {getattr(one, "id", getattr(one, "attr", "")) for one in ast.walk(node)}


def is_task(node):
    """Whether an expression is a task: `task`, `self.task`, `spec.task`, `run.task`."""
    return getattr(node, "id", getattr(node, "attr", "")) == "task"


def texts_in(node):
    return {one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)}


def questions(tree):
    """Places that depend on which task it is."""
    for node in ast.walk(tree):
        if called(node) in ("isinstance", "issubclass") and names_in(node.args[1]) & CLASSES:
            yield node.lineno, f"{called(node)} of {', '.join(sorted(names_in(node.args[1]) & CLASSES))}"
        if called(node) in ("getattr", "hasattr") and is_task(node.args[0]) and texts_in(node):
            yield node.lineno, f"{called(node)} of a task"
        if isinstance(node, ast.MatchClass) and names_in(node.cls) & CLASSES:
            yield node.lineno, f"a case for {', '.join(sorted(names_in(node.cls) & CLASSES))}"
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any(asks_name(side) for side in sides) and any(texts_in(side) & NAMES for side in sides):
                yield node.lineno, "a comparison with the name of a task"
            if any(called(side) == "type" and is_task(side.args[0]) for side in sides):
                yield node.lineno, "a comparison of the type of a task"
        if isinstance(node, ast.Dict):
            keys = {key.value for key in node.keys if isinstance(key, ast.Constant)}
            classes = {name for key in node.keys if key is not None for name in names_in(key)} & CLASSES
            if classes or (len(keys & NAMES) > 1 and keys <= NAMES):
                yield node.lineno, f"a table by task: {', '.join(sorted(map(str, (keys & NAMES) | classes)))}"


def asks_name(node):
    """Whether an expression reads the name of a task: `task.task_name`, `....describe()["task"]`, `type(task)`."""
    subscript = isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and node.slice.value == "task"
    return subscript or "task_name" in names_in(node)


def imported(tree):
    """Classes of tasks that a source imports."""
    found = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    return {alias.name for node in found for alias in node.names} & CLASSES


def test_the_tasks_are_ours():
    assert {"Lego", "Dyck", "Template", "Text"} <= CLASSES
    assert all(issubclass(task_class_of(name), Task) for name in NAMES)


@pytest.mark.parametrize("name", OUTSIDE)
def test_no_file_asks_which_task_it_has(name):
    tree = ast.parse(OUTSIDE[name].read_text(encoding="utf-8"))
    found = [f"{name}:{line}: {what}" for line, what in questions(tree)]
    if name.startswith("case_studies/"):  # a study names its groups of models
        found = [one for one in found if "a table by task" not in one]
    assert found == []
    if not name.startswith(ABOUT_ONE_TASK):
        assert imported(tree) == ALSO.get(name, set())


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("isinstance(spec.task, Lego)", "isinstance of Lego"),
        ("isinstance(task, (tasks.Dyck, Template))", "isinstance of Dyck, Template"),
        ("issubclass(cls, Text)", "issubclass of Text"),
        ("hasattr(task, 'n_types')", "hasattr of a task"),
        ("getattr(self.task, 'group', None)", "getattr of a task"),
        ("match task:\n    case Lego(n_vars=n): pass", "a case for Lego"),
        ("task.describe()['task'] == 'lego'", "a comparison with the name of a task"),
        ("manifest['task']['task'] in ('lego', 'dyck')", "a comparison with the name of a task"),
        ("'text' != task.task_name", "a comparison with the name of a task"),
        ("type(task) is Lego", "a comparison of the type of a task"),
        ("{'lego': 1, 'dyck': 2}[name]", "a table by task: dyck, lego"),
        ("{Lego: 1}", "a table by task: Lego"),
    ],
)
def test_every_question_is_noticed(source, what):
    assert [found for _, found in questions(ast.parse(source))] == [what]


@pytest.mark.parametrize(
    "source",
    [
        "isinstance(model, Transformer)",
        "getattr(task, name)",
        "{'lego': presets.lego, 'template': presets.template, 'bert': presets.bert}",
        "Dyck.require(task, 'why')",
        "{'lego': presets.lego, 'bert': presets.bert}",
        "manifest['task'] == task.describe()",
        "name == 'lego'",
    ],
)
def test_nothing_else_is(source):
    assert list(questions(ast.parse(source))) == []


def test_imports_are_noticed():
    assert imported(
        ast.parse("from interp.tasks import Lego, Batch\nfrom interp.tasks.dyck.task import Dyck as D")
    ) == {
        "Lego",
        "Dyck",
    }
