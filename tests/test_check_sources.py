"""The rules of `check_sources.py`: each notices a planted fault, and nothing else."""

import ast
from pathlib import Path

import check_sources
import durations
import pytest
from check_sources import Source, TaskQuestions


def source(text, path="interp/heads/new.py"):
    return [Source(path, text)]


def test_directions_circles_and_order():
    files = [
        *source("from interp.tasks import Lego", "hooks/new.py"),
        *source("import case_studies.frame", "interp/heads/new.py"),
        *source("from hooks import Transformer\nimport torch", "interp/probing/new.py"),
        *source("from . import near", "interp/view/new.py"),
        *source("import tool_studies.audit", "case_studies/dyck/new.py"),
    ]
    assert list(check_sources.wrong_directions(files)) == [
        "hooks/new.py imports interp.tasks",
        "hooks/new.py imports interp.tasks.Lego",
        "interp/heads/new.py imports case_studies.frame",
        "interp/view/new.py:1: a relative import; write the whole name",
        "case_studies/dyck/new.py imports tool_studies.audit",
    ]
    circular = [
        *source("from hooks.adapters import b", "hooks/model/a.py"),
        *source("def f():\n    import hooks.model.a\n    import hooks.nothing", "hooks/adapters/b.py"),
    ]
    edges = check_sources.arrows(circular, "hooks")
    assert edges == {"model": {"adapters"}, "adapters": {"model"}}
    assert set(check_sources.circle(edges)) == {"model", "adapters"}
    assert check_sources.circle({"model": {"adapters"}}) == []
    files = [
        *source("from interp.heads import far", "interp/heads/near.py"),
        *source("def f():\n    from interp.heads.near import g", "interp/heads/far.py"),
        *source("import interp.heads", "interp/heads/__init__.py"),
    ]
    (fault,) = [fault for fault in check_sources.wrong_packages(files) if "a circle of files" in fault]
    assert {"interp.heads.near", "interp.heads.far"} <= set(fault.split())
    assert any("hooks: " in fault and "a circle" in fault for fault in check_sources.wrong_packages(circular))
    packages = [path.stem for path in (check_sources.ROOT / "hooks").iterdir() if path.stem.isidentifier()]
    text = "\n".join(f"import hooks.{package}" for package in packages)
    many = [Source(f"hooks/{package}.py", text) for package in packages]
    too_many = f"imports between its parts, at most {check_sources.MOST_ARROWS['hooks']}"
    assert any(too_many in fault for fault in check_sources.wrong_packages(many))


def test_the_order_of_packages():
    edges = {name: set() for names in check_sources.ORDER for name in names}
    assert list(check_sources.against_order(edges)) == []
    edges["core"], edges["heads"] = {"heads"}, {"core"}
    del edges["cli"]
    assert list(check_sources.against_order(edges)) == [
        "ORDER has cli, which is not in interp",
        "interp/core imports interp/heads, which is in a later row",
    ]
    study = source(
        "from case_studies.dyck import models\nfrom case_studies.frame import claims", "case_studies/lego/a.py"
    )
    assert "case_studies/lego imports dyck; a study imports no other" in list(check_sources.wrong_packages(study))
    path = f"{check_sources.ABOUT_THE_TOOL}/audit/a.py"
    study = source("from tool_studies import audited_models\nfrom tool_studies.audit import b", path)
    assert list(check_sources.entangled_studies(study)) == []
    study = source("from tool_studies.compiled import b", path)
    assert list(check_sources.entangled_studies(study)) == [f"{path} imports compiled; a study imports no other"]


def test_parameters_and_dataclasses():
    eight = ", ".join("abcdefgh")
    text = f"def f(self, {eight}, *args): ...\ndef g({eight}, *, i): ...\ndef _h({eight}, i): ..."
    assert list(check_sources.many_parameters(source(text))) == ["interp/heads/new.py:2: g has 9 parameters, at most 8"]
    assert list(check_sources.many_parameters(source(text, "interp/cli/new.py"))) == []
    classes = ("@dataclass\nclass A", "@dataclass(frozen=True)\nclass B", "@dataclass(kw_only=True)\nclass RemovedSets")
    text = "\n".join(f"{name}: ..." for name in classes)
    faults = list(check_sources.mutable_dataclasses(source(text)))
    assert [fault.partition(": ")[2] for fault in faults] == [
        "the dataclass A is not frozen",
        "the dataclass RemovedSets is not frozen",
    ]
    assert len(list(check_sources.mutable_dataclasses(source(text, "interp/auditing/new.py")))) == 1


def test_draws_without_dtype():
    text = "torch.rand(3)\ntorch.randn(2, generator=g)\ntorch.rand(3, dtype=torch.float64)\ntorch.randint(3, (2,))"
    faults = list(check_sources.draws_without_dtype(source(text)))
    assert [fault.partition(": ")[0] for fault in faults] == ["interp/heads/new.py:1", "interp/heads/new.py:2"]
    assert not list(check_sources.draws_without_dtype(source(text, "case_studies/new.py")))


QUESTIONS = TaskQuestions(check_sources.known_tasks())


def test_names_that_say_nothing():
    text = """
from torch import nn as others

@dataclass
class Part:
    found: int

def kept(one, *, heads):
    at = [other for other in one]
    for given, head in enumerate(heads):
        head.seen = given
    return f"{there}"
"""
    names = [fault.split(": ")[1].split()[0] for fault in check_sources.pronouns(source(text))]
    assert sorted(names) == ["at", "found", "given", "kept", "one", "other"]


def test_formatting_is_switched_off_for_tables_only():
    text = """
TABLE = [
    ("a", 1),
    ("b", 2),
]  # fmt: skip
SINGLE = f(1,
           2)  # fmt: skip
def f():
    return g(1,
             2)  # fmt: skip
"""
    lines = [fault.split(":")[1] for fault in check_sources.unformatted_code(source(text))]
    assert set(lines) == {"6", "9"}


def test_the_tasks_are_known():
    ours = {"Lego", "Dyck", "Template", "Text", "InContextLookup", "ModularAddition", "IndirectObject"}
    assert ours == QUESTIONS.classes


@pytest.mark.parametrize(
    ("text", "place"),
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
def test_questions_about_the_task(text, place):
    assert [kind for _, kind in QUESTIONS.find(ast.parse(text))] == [place]
    fault = next(check_sources.task_questions(source(text)))
    assert fault.startswith("interp/heads/new.py:")
    assert fault.endswith(place)
    assert list(check_sources.task_questions(source(text, "interp/tasks/new.py"))) == []


def test_what_is_no_question_about_the_task():
    allowed = """
isinstance(model, Transformer)
getattr(task, name)
{'lego': presets.lego, 'template': presets.template, 'bert': presets.bert}
Dyck.require(task, 'why')
{'lego': presets.lego, 'bert': presets.bert}
manifest['task'] == task.describe()
name == 'lego'
"""
    assert list(QUESTIONS.find(ast.parse(allowed))) == []
    text = "from interp.tasks import Lego, Batch\nfrom interp.tasks.dyck.task import Dyck as D"
    assert QUESTIONS.imported(ast.parse(text)) == {"Lego", "Dyck"}
    assert list(check_sources.task_questions(source(text))) == [
        "interp/heads/new.py imports Dyck, Lego of the tasks' classes"
    ]


def test_names_of_tasks_and_extras():
    text = 'help = "A model of Lego or text"'
    assert list(check_sources.named_tasks(source(text, "interp/cli/new.py"))) == [
        "interp/cli/new.py names the task Lego"
    ]
    assert list(check_sources.named_tasks([*source(text, "interp/cli/demo_run.py"), *source(text)])) == []
    text = 'require("a", extra="text")\nrequire("b", extra="gone")'
    assert list(check_sources.unknown_extras(source(text), ["text"])) == [
        "interp/heads/new.py names the extra gone, which pyproject.toml does not have"
    ]


def test_documentation(tmp_path, monkeypatch):
    page = tmp_path / "docs/page.md"
    page.parent.mkdir()
    page.write_text("[here](page.md) [gone](gone.md) `hooks/gone.py` `docs/page.md`")
    monkeypatch.setattr(check_sources, "ROOT", tmp_path)
    assert list(check_sources.missing_paths([page])) == [
        "docs/page.md names gone.md, which does not exist",
        "docs/page.md names hooks/gone.py, which does not exist",
    ]
    monkeypatch.undo()
    text = Path(check_sources.ROOT / "docs/architecture.md").read_text()
    changed = text.replace("`interp/heads`", "heads")
    faults = list(check_sources.architecture_faults(changed))
    assert faults[0] == "docs/architecture.md does not name interp/heads"
    assert "in row 4" in faults[1]
    assert list(check_sources.unlinked_guides(["a.md"], {"README.md": "(docs/guides/a.md)", "C.md": ""})) == [
        "C.md does not link docs/guides/a.md"
    ]
    table = "\n".join(f"| word {number} | meaning |" for number in range(30))
    assert list(check_sources.repeated_words(table)) == []
    assert list(check_sources.repeated_words(f"{table}\n| word 3 | b |")) == ["docs/glossary.md has word 3 twice"]
    (fault,) = check_sources.repeated_words("no table")
    assert "has 0 words" in fault
    assert (
        len(list(check_sources.transposed_products({"a.md": "a I on W_K W_Q^T", "docs/glossary.md": "W_K W_Q^T"}))) == 1
    )


def test_short_examples():
    snippet, cell = check_sources.first_examples()
    assert list(check_sources.long_examples(snippet, cell)) == []
    longer = snippet + "\nx = 1" * 25
    (fault,) = check_sources.long_examples(longer, cell)
    assert "at most 25 of 120 characters" in fault
    (fault,) = check_sources.long_examples(snippet.replace("interp.audit(", "audit("), cell)
    assert fault == "docs/guides/add_a_task.md: the first example must have `interp.audit(` once"
    assert len(list(check_sources.long_examples(snippet, cell + "\n" + "#" * 121))) == 1


def test_recorded_durations(tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_a.py").write_text("def test_fast(): ...\nclass TestA:\n    def test_slow(self): ...")
    record = tmp_path / "tests/durations.tsv"
    recorded = {"tests/test_a.py::test_fast[1]": 0.4, "tests/test_a.py::TestA::test_slow": 2.6}
    durations.write_durations({**recorded, "tests/a.py::test": 0.01}, record)
    assert durations.read_durations(record) == recorded
    assert list(durations.missing_items(tmp_path, never_long=())) == []
    durations.write_durations({"tests/test_a.py::test_gone": 1.0}, record)
    (fault,) = durations.missing_items(tmp_path, never_long=())
    assert fault.startswith("tests/test_a.py has no test_gone, ")


def test_what_takes_long_is_not_run_by_default():
    default, slow = durations.DEFAULT_LONGEST, durations.SLOW_LONGEST
    recorded = {"a": default, "b": default + 0.1, "c": slow, "d": slow + 0.1}
    kinds = durations.kinds_of([*recorded, "e"], recorded)
    assert kinds == {"a": None, "b": "slow", "c": "slow", "d": "long", "e": None}
    never_long = durations.kinds_of(durations.NEVER_LONG, dict.fromkeys(durations.NEVER_LONG, slow + 0.1))
    assert set(never_long.values()) == {"slow"}


def test_the_fastest_item_of_a_test_is_run_by_default():
    recorded = {"a[1]": 0.2, "a[2]": 0.1, "a[3]": 0.3, "b[1]": 0.1, "c[1]": 0.4}
    kinds = durations.kinds_of([*recorded, "b[2]", "b[3]"], recorded)
    assert [name for name, kind in kinds.items() if kind is None] == ["a[2]", "b[2]", "b[3]"]
