"""Tasks by name: registered, of installed packages, and from manifests."""

import json
import sys
from dataclasses import dataclass
from importlib.metadata import EntryPoint

import pytest
from foreign_tasks import AddMod, CountOnes
from short_runs import stamp

import interp
from hooks import Transformer
from interp.tasks import Lego, Task, known_tasks, register, registry, task_from
from interp.tasks.registry import class_path, task_class_of
from interp.training import TrainingRun

OURS = {
    "dyck": "interp.tasks.dyck.task:Dyck",
    "in_context_lookup": "interp.tasks.in_context_lookup.task:InContextLookup",
    "indirect_object": "interp.tasks.indirect_object.task:IndirectObject",
    "lego": "interp.tasks.lego.task:Lego",
    "modular_addition": "interp.tasks.modular_addition.task:ModularAddition",
    "template": "interp.tasks.template.task:Template",
    "text": "interp.tasks.text.task:Text",
}


@pytest.fixture(autouse=True)
def nothing_registered(monkeypatch):
    monkeypatch.setattr(registry, "_REGISTERED", {})


@pytest.fixture
def installed(monkeypatch):
    """Pretends that packages with these entry points are installed."""

    def pretend(**values):
        points = [
            EntryPoint(name=name, value=value, group="interp.tasks")
            for name, argument in values.items()
            for value in ([argument] if isinstance(argument, str) else argument)
        ]
        monkeypatch.setattr(registry, "entry_points", lambda group: points)
        monkeypatch.setattr(registry, "_installed", registry._installed.__wrapped__)

    return pretend


def test_our_tasks_are_known_by_entry_points():
    assert {name: place for name, place in known_tasks().items() if place.startswith("interp.")} == OURS
    assert task_class_of("lego") is Lego


def test_register_is_a_decorator_and_the_last_definition_counts():
    classes = []
    for modulus in (5, 7):

        @register
        @dataclass(frozen=True, kw_only=True)
        class Sums(AddMod):
            n: int = modulus

        classes.append(Sums)
        assert task_class_of("sums") is Sums
        assert task_from({"task": "sums"}).n == modulus
    assert classes[0] is not classes[1]
    assert known_tasks()["sums"] == class_path(classes[1])
    assert class_path(classes[1]).startswith("test_registry:test_register_is_a_decorator")


def test_names_of_classes():
    class HTTPTask2Go(AddMod):
        pass

    class Named(AddMod):
        task_name = "other"

    class Inherits(Named):
        pass

    assert [cls.task_name for cls in (AddMod, HTTPTask2Go, Named, Inherits)] == [
        "add_mod",
        "httptask2_go",
        "other",
        "inherits",
    ]


@pytest.mark.parametrize("given", [AddMod(), "lego", dict, None])
def test_something_else_than_a_class_of_tasks_is_not_registered(given, as_a_user):
    with pytest.raises(
        ValueError, match=r"^task_class is .*; register a class that derives from interp\.tasks\.Task\.$"
    ):
        register(given)


def test_the_name_of_an_installed_task_is_not_replaced():
    class Mine(AddMod):
        task_name = "lego"

    with pytest.raises(
        ValueError, match=r"an installed package has a task 'lego' \(interp.tasks.lego.task:Lego\); set"
    ):
        register(Mine)
    assert task_class_of("lego") is Lego
    assert register(Lego) is Lego


def test_unknown_names():
    with pytest.raises(
        ValueError,
        match=r"there is no task 'sums' here; known tasks: dyck, in_context_lookup, .*\. Install the package",
    ):
        task_class_of("sums")
    words = r"there is no task 'sums' \(the class cell:Sums\) here; .* define the class and call interp.tasks.register"
    with pytest.raises(ValueError, match=words):
        task_class_of("sums", stored="cell:Sums")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("no_such_module:Sums", r"\(no_such_module:Sums\) cannot be loaded: No module named 'no_such_module'\."),
        ("foreign_tasks:Sums", r"\(foreign_tasks:Sums\) cannot be loaded: .* has no attribute 'Sums'\."),
        ("foreign_tasks:draw", r"\(foreign_tasks:draw\) is not a class that derives from interp\.tasks\.Task\."),
        ("interp.tasks:Batch", r"\(interp\.tasks:Batch\) is not a class that derives from interp\.tasks\.Task\."),
        ("foreign_tasks:AddMod", r"\(foreign_tasks:AddMod\) has the task_name 'add_mod'; use one name\."),
        (
            ["foreign_tasks:AddMod", "other:Sums"],
            "^two installed packages have a task 'sums': foreign_tasks:AddMod and other:Sums",
        ),
    ],
)
def test_broken_entry_points(installed, value, words):
    installed(sums=value, count_ones="foreign_tasks:CountOnes")
    with pytest.raises(ValueError, match=words):
        task_class_of("sums")
    assert task_class_of("count_ones") is CountOnes  # the others work
    assert set(known_tasks()) == {"sums", "count_ones"}  # listing imports nothing


def test_one_package_that_is_found_twice_is_one(installed):
    installed(add_mod=["foreign_tasks:AddMod", "foreign_tasks:AddMod"])
    assert task_class_of("add_mod") is AddMod


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "the description of the task has no 'task', its name; found: nothing."),
        ({"n_vars": 3, "group": "Z2"}, "the description of the task has no 'task', its name; found: n_vars, group."),
        ({"task": 3}, "the description of the task has no 'task', its name; found: task."),
        ("lego", "the description of the task has no 'task', its name; found: str."),
        (None, "the description of the task has no 'task', its name; found: NoneType."),
        (
            {"task": "count_ones", "size": 3},
            r"the settings of the task 'count_ones' do not fit the class foreign_tasks:CountOnes: .*'size'",
        ),
        ({"task": "lego"}, "the settings of the task 'lego' do not fit the class .*:Lego: 'group' is missing."),
    ],
)
def test_bad_descriptions(as_a_user, given, words):
    register(CountOnes)
    with pytest.raises(ValueError, match=words):
        task_from(given)


def test_lists_of_a_manifest_become_tuples():
    @register
    @dataclass(frozen=True, kw_only=True)
    class Listed(AddMod):
        pairs: tuple[tuple[int, ...], ...] = ()
        by_name: dict | None = None

    task = Listed(pairs=((1, 2), (3,)), by_name={"a": (1, None), "b": {"c": ()}})
    again = task_from(json.loads(json.dumps(task.describe())))
    assert (again.pairs, again.by_name) == (task.pairs, task.by_name)
    assert again.describe() == task.describe()


@pytest.fixture
def folder(tmp_path):
    """A run on a task that is not registered."""
    task = AddMod()
    model = Transformer(interp.config_for(task, n_layers=1, d_model=8, n_heads=2))
    settings = interp.TrainSettings(steps=1, batch_size=4, warmup_steps=1, n_eval=8)
    run = interp.train(model, task, settings, folder=tmp_path / "run")
    assert run.task is task  # the object at hand, registered or not
    return tmp_path / "run"


def test_a_run_gives_its_task_back(folder):
    run = TrainingRun.load(folder)
    assert run.manifest["task_class"] == "foreign_tasks:AddMod"
    words = (
        r"there is no task 'add_mod' \(the class foreign_tasks:AddMod\) here; known tasks: .*Install the package that "
    )
    with pytest.raises(ValueError, match=words):
        _ = run.task
    register(AddMod)
    assert run.task == AddMod()
    assert TrainingRun.load(folder).task == AddMod()


def test_a_manifest_imports_and_runs_nothing(folder, tmp_path, monkeypatch):
    (tmp_path / "evil_module.py").write_text("raise SystemExit('this was executed')\nclass Sums: ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name, place in (("evil_module:Sums", "evil_module:Sums"), ("sums", "evil_module:Sums"), ("os", "os:system")):
        stamp(folder, task={"task": name}, task_class=place)
        run = TrainingRun.load(folder)
        with pytest.raises(ValueError, match=f"there is no task '{name}'"):
            _ = run.task
    assert "evil_module" not in sys.modules


def test_require():
    task: Task = AddMod()
    assert AddMod.require(task, "sums only.") is task
    with pytest.raises(ValueError, match=r"^task is a AddMod; sums only\.$"):
        Lego.require(task, "sums only.")
