"""The command line on a task that this package does not have."""

import importlib.metadata
import json
import sys
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import pytest
import torch

from interp.core.results import Result
from interp.probing.probe import ProbeResult
from interp.tasks import registry
from interp.tasks.base import Batch, Task
from interp.tasks.vocab import vocab_of


@dataclass(frozen=True, kw_only=True)
class Sums(Task):
    """Sums of two numbers modulo a prime.

    The last position predicts the sum.
    """

    modulus: int = 5
    """Numbers are 0 to one less."""
    order: Literal["random", "sorted"] = "random"
    """Order of the two numbers."""
    marked: bool = True
    """Whether a sign is between them."""
    span: tuple[int, float] = (1, 0.5)
    """A pair of numbers."""
    steps: int = 3
    """A field that is called as an option of training."""
    seed: int = 0
    """A field that is called as an option of the command."""
    weights: dict[str, float] = field(default_factory=dict)
    """Not a value that can be written on a command line."""

    task_name = "sums"
    targets = ("sum",)
    disjoint_splits = False
    option_names: ClassVar = {"modulus": "p"}
    command_line_defaults: ClassVar = {"steps": 4, "n_layers": 1, "d_model": 8, "n_heads": 2}

    def __post_init__(self):
        if self.modulus < 1:
            raise TypeError("modulus must be positive")  # as a class that is not ours may

    @property
    def vocab(self):
        return vocab_of((*map(str, range(self.modulus)), "+"))

    @property
    def d_vocab_out(self):
        return self.modulus

    def sample(self, n, *, generator, split="train"):
        pair = torch.randint(self.modulus, (n, 2), generator=generator)
        pair = pair.sort(-1).values if self.order == "sorted" else pair
        sign = torch.full((n, 1), self.modulus)
        tokens = torch.cat([pair[:, :1], sign, pair[:, 1:]] if self.marked else [pair], 1)
        return Batch(
            tokens=tokens,
            target_positions=torch.full((n, 1), tokens.shape[1] - 1),
            labels=pair.sum(-1, keepdim=True) % self.modulus,
            supervised=torch.ones(1, dtype=torch.bool),
        )

    def probe_labels(self, batch):
        return {"first": batch.tokens[:, :1], "label": batch.labels}

    def recipe(self):
        return {"steps": 2, "eval_every": 2, "n_eval": 20, "batch_size": 8}


@pytest.fixture
def sums(monkeypatch):
    monkeypatch.setattr(registry, "_REGISTERED", {})
    return registry.register(Sums)


def document(process):
    """The one JSON document on stdout."""
    (line,) = process.stdout.splitlines()
    return json.loads(line)


def stored(content, tmp_path):
    """A result in its saved form, loaded."""
    (tmp_path / "stored.json").write_text(json.dumps(content))
    kind = next(result_class for result_class in Result.__subclasses__() if result_class.__name__ == content["result"])
    return kind.load(tmp_path / "stored.json")


def test_every_command_runs_on_a_foreign_task(interp, sums, tmp_path):
    process = interp("train", "sums", "--p", 3, "--out", "run", "--json")
    assert process.returncode == 0, process.stderr
    trained = document(process)
    assert trained["command"] == "train"
    assert trained["result"] | {"seconds": 0, "accuracy": 0, "at_chance": []} == {
        "task": "sums", "folder": "run", "seed": 0, "steps": 2, "seconds": 0, "accuracy": 0, "at_chance": [],
    }  # fmt: skip
    assert list(trained["result"]["accuracy"]) == ["sum"]
    assert process.stderr == ""  # no progress when piped
    manifest = json.loads((tmp_path / "run/manifest.json").read_text())
    assert (manifest["task"]["modulus"], manifest["config"]["n_layers"]) == (3, 1)

    process = interp("probe", "run", "--verify", "--json")
    assert process.returncode == 0, process.stderr
    probed = stored(document(process)["result"], tmp_path)
    assert isinstance(probed, ProbeResult)
    assert probed.label == "label"  # the answer, not the first label
    assert probed.causal is not None

    process = interp("heads", "run", "--ablate", "--page", "heads.html", "--json")
    assert process.returncode == 0, process.stderr
    results = document(process)["result"]
    assert list(results) == ["patterns", "ablation", "page"]
    assert type(stored(results["patterns"], tmp_path)).__name__ == "HeadPatterns"
    assert type(stored(results["ablation"], tmp_path)).__name__ == "AblationResult"
    assert (tmp_path / results["page"]).exists()

    settings = ("--at-chance", "--n", 64, "--probes", "--out", "audit.json", "--json")
    process = interp("audit", "run", *settings)
    assert process.returncode == 0, process.stderr
    assert list(document(process)["result"]) == ["heads", "probes"]
    assert document(process)["result"]["heads"] == json.loads((tmp_path / "audit.json").read_text())

    process = interp("report", "run", "--json")
    assert process.returncode == 0, process.stderr
    assert document(process)["result"]["page"] == "run/report.html"
    assert stored(document(process)["result"]["evaluation"], tmp_path).targets == ("sum",)
    assert "was trained on sums" in (tmp_path / "run/report.html").read_text()


def test_fields_are_options(interp, sums, tmp_path):
    options = ["--order", "sorted", "--no-marked", "--span", "2", "0.25", "--task-steps", "9", "--task-seed", 6]
    process = interp("train", "sums", *options, "--steps", 1, "--seed", 7, "--out", "run")
    assert process.returncode == 0, process.stderr
    manifest = json.loads((tmp_path / "run/manifest.json").read_text())
    task_options = {"order": "sorted", "marked": False, "span": [2, 0.25], "steps": 9, "seed": 6}
    task_options |= {"modulus": 5, "weights": {}}
    assert manifest["task"] == {"task": "sums"} | task_options
    assert (manifest["settings"]["steps"], manifest["seed"]) == (1, 7)
    assert manifest["config"]["d_model"] == 8


def test_a_preset_of_the_task_is_for_its_own_field(interp, sums, tmp_path):
    interp("train", "sums", "--out", "run")
    manifest = json.loads((tmp_path / "run/manifest.json").read_text())
    assert (manifest["task"]["steps"], manifest["settings"]["steps"]) == (4, 2)


def test_help_of_a_foreign_task(interp, sums, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    process = interp("train", "sums", "--help")
    assert process.returncode == 0, process.stderr
    words = process.stdout.split()
    for option in (
        "--p",
        "--order",
        "--no-marked",
        "--span",
        "--task-steps",
        "--task-seed",
        "--steps",
        "--layers",
        "random|sorted",
    ):
        assert option in words
    for option in ("--modulus", "--weights"):
        assert option not in words
    assert "Sums of two numbers modulo a prime." in process.stdout
    assert "Numbers are 0 to one less. Default: 5." in process.stdout
    assert "A field that is called as an option of training. Default: 4." in process.stdout
    assert process.stdout.count("[required]") == 1  # --out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["sum"], "lego, modular_addition, sums, template, text. Did you mean sums?"),
        (["sums", "--order", "up"], "Invalid value for '--order'"),
        (["sums", "--p", "many"], "Invalid value for '--p'"),
        (["sums", "--span", "1"], "--span"),
        (["sums", "--p", "0"], "the options do not fit the task 'sums': modulus must be positive."),
    ],
)
def test_bad_options_of_a_foreign_task(interp, sums, arguments, words):
    process = interp("train", *arguments, "--out", "run")
    assert process.returncode == 2
    assert words in process.stderr
    assert process.stderr.startswith("error: ")
    assert process.stderr.count("\n") == 1


def test_a_field_without_default_has_to_be_given(interp, sums, tmp_path):
    @registry.register
    @dataclass(frozen=True, kw_only=True)
    class Bounded(Sums):
        bound: int
        table: dict[str, float]
        task_name = "bounded"

    missing = interp("train", "bounded", "--out", "run")
    assert missing.returncode == 2
    assert "Missing option '--bound'" in missing.stderr
    unwritable = interp("train", "bounded", "--bound", "1", "--out", "run")
    assert unwritable.returncode == 2
    assert "the options do not fit the task 'bounded'" in unwritable.stderr
    assert "'table'" in unwritable.stderr
    assert "Numbers are 0 to one less." in interp("train", "bounded", "--help").stdout  # of the base class


def test_text_options_are_converted_by_the_task(interp, sums, tmp_path):
    @registry.register
    @dataclass(frozen=True, kw_only=True)
    class Weighted(Sums):
        task_name = "weighted"
        text_options: ClassVar = {
            "weights": (list[str], "Weights, name=value; repeatable."),
            "scale": (float, "Multiplies every weight."),
        }

        @classmethod
        def from_options(cls, *, scale=1.0, weights=(), **options):
            pairs = (weight.split("=") for weight in weights)
            return cls(weights={name: float(value) * scale for name, value in pairs}, **options)

    process = interp("train", "weighted", "--weights", "a=1", "--weights", "b=2", "--scale", 2, "--out", "run")
    assert process.returncode == 0, process.stderr
    assert json.loads((tmp_path / "run/manifest.json").read_text())["task"]["weights"] == {"a": 2.0, "b": 4.0}


def test_a_run_whose_task_is_not_known(interp, sums, monkeypatch):
    assert interp("train", "sums", "--out", "run").returncode == 0
    monkeypatch.setattr(registry, "_REGISTERED", {})
    for command in ("probe", "lens", "heads", "attribution", "edges", "patch", "audit", "report"):
        process = interp(command, "run")
        assert process.returncode == 2
        assert "there is no task 'sums' (the class test_cli_tasks:Sums) here" in process.stderr
        assert "call interp.tasks.register" in process.stderr


def test_an_unknown_label_lists_those_of_the_task(interp, sums):
    interp("train", "sums", "--out", "run")
    process = interp("probe", "run", "--label", "size")
    assert process.returncode == 2
    assert "label is 'size'; this task has first, label." in process.stderr


def test_probe_prints_how_often_answers_follow(interp, sums):
    interp("train", "sums", "--out", "run")
    assert "interchange: share of answers that follow" in interp("probe", "run", "--verify").stdout
    assert "interchange" not in interp("probe", "run").stdout


def test_known_tasks_are_listed(interp, sums):
    process = interp("tasks")
    assert process.returncode == 0
    lines = process.stdout.splitlines()
    names = [line.split()[0] for line in lines]
    assert names == [
        "dyck", "in_context_lookup", "indirect_object", "lego", "modular_addition", "sums", "template", "text", "next:",
    ]  # fmt: skip
    assert lines[5].split(maxsplit=1)[1] == "Sums of two numbers modulo a prime.  (test_cli_tasks:Sums)"
    listing = document(interp("tasks", "--json"))
    assert listing["command"] == "tasks"
    assert listing["result"]["tasks"][5] == {
        "task": "sums", "summary": "Sums of two numbers modulo a prime.", "class": "test_cli_tasks:Sums",
    }  # fmt: skip


def test_a_task_without_docstring_is_listed_by_its_title(interp, sums):
    @registry.register
    @dataclass(frozen=True, kw_only=True)
    class PlainSums(Sums):
        task_name = "plain_sums"

    assert "plain sums  (" in interp("tasks").stdout
    PlainSums.title = "Plain sums!"
    assert "Plain sums!  (" in interp("tasks").stdout


def test_tasks_of_packages_are_listed_without_being_imported(interp, monkeypatch):
    points = [importlib.metadata.EntryPoint("elsewhere", "no_such_package.tasks:Elsewhere", registry.ENTRY_POINTS)]
    monkeypatch.setattr(registry, "entry_points", lambda group: points)
    registry._installed.cache_clear()
    try:
        listed = interp("train", "--help")
        assert listed.returncode == 0
        assert "no_such_package.tasks:Elsewhere" in listed.stdout
        assert "cannot be loaded: No module named 'no_such_package'" in interp("tasks").stdout
        broken = interp("train", "elsewhere", "--out", "run")
        assert broken.returncode == 2
        assert "the task 'elsewhere' (no_such_package.tasks:Elsewhere) cannot be loaded" in broken.stderr
    finally:
        registry._installed.cache_clear()
    assert "no_such_package" not in sys.modules


BROKEN = {
    "raise RuntimeError('no GPU')": "RuntimeError: no GPU.",
    "def f(:": "SyntaxError: invalid syntax (",
    "import sys; sys.exit(3)": "SystemExit: 3.",
    "1 / 0": "ZeroDivisionError: division by zero.",
    "raise KeyError('x')": "KeyError: 'x'.",
    "import no_such_package": "No module named 'no_such_package'.",
    "raise type('Own', (Exception,), {'__str__': lambda self: 1 / 0})()": "Own: its text cannot be read.",
}


@pytest.fixture
def plug_in(tmp_path, monkeypatch):
    """Pretends that a package is installed, with a task and a study of one module, and one of its parent package."""

    def install(source):
        for name in ("plug_in.py", "plug_in_package/__init__.py"):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(source)
        monkeypatch.syspath_prepend(tmp_path)
        lists = {}
        for group in (registry.ENTRY_POINTS, "interp.studies"):
            points = [*importlib.metadata.entry_points(group=group)]
            for name in ("plug_in", "plug_in_package"):
                value = f"{name.replace('package', 'package.module')}:Thing"
                points.append(importlib.metadata.EntryPoint(name, value, group))
            lists[group] = points
        monkeypatch.setattr(registry, "entry_points", lambda group: lists[group])
        monkeypatch.setattr("importlib.metadata.entry_points", lambda group: lists[group])
        monkeypatch.setattr(registry, "_installed", registry._installed.__wrapped__)

    yield install
    for name in ("plug_in", "plug_in_package"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("source", BROKEN)
def test_a_plug_in_that_cannot_be_imported_is_named_and_the_others_are_listed(interp, plug_in, source):
    plug_in(source)
    for arguments, kind in (("tasks", "task 'plug_in"), ("reproduce", "study plug_in")):
        listed = interp(arguments)
        assert (listed.returncode, listed.stderr) == (0, "")
        lines = listed.stdout.splitlines()
        assert [line.split()[0] for line in lines if line.startswith("lego ")] == ["lego"]
        broken = [line for line in lines if line.startswith("plug_in")]
        assert len(broken) == 2
        for line in broken:
            assert f"the {kind}" in line
            assert f"cannot be loaded: {BROKEN[source]}" in line
    for arguments in (("train", "plug_in", "--out", "run"), ("reproduce", "plug_in")):
        process = interp(*arguments)
        assert process.returncode == 2
        assert f"(plug_in:Thing) cannot be loaded: {BROKEN[source]}" in process.stderr
        assert process.stderr.count("\n") == 1


def test_a_study_that_raises_when_it_is_asked_is_named(interp, plug_in):
    plug_in(
        "class Odd(type):\n    def __getattr__(cls, name): raise RuntimeError('no')\nclass Thing(metaclass=Odd): pass"
    )
    listed = interp("reproduce")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert "the study plug_in (plug_in:Thing) cannot be read: RuntimeError: no." in listed.stdout
    chosen = interp("reproduce", "plug_in")
    assert chosen.returncode == 2
    assert "cannot be read: RuntimeError: no." in chosen.stderr


def test_a_study_that_cannot_list_its_claims_is_named(interp, plug_in):
    plug_in("class Study:\n    def __getattr__(self, name):\n        return lambda: 1 / 0\nThing = Study()")
    listed = interp("reproduce")
    assert listed.returncode == 0
    assert "the study plug_in (plug_in:Thing) has no title: " in listed.stdout
    assert "template         One scalar per head" in listed.stdout
    claims = interp("reproduce", "plug_in", "--list")
    assert claims.returncode == 2
    assert "the study plug_in (plug_in:Thing) cannot be listed: ZeroDivisionError: division by zero." in claims.stderr
