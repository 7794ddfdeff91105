"""The example package: its own tests, and its commands after an installation into a fresh environment."""

import json
import os
import shutil
import subprocess
import sysconfig
import venv
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from interp.auditing.significance import FIRST_LOOK

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLE = ROOT / "examples/unmyopic-modmul"


def test_the_task_samples_products_and_the_study_names_its_groups(monkeypatch):
    import interp

    monkeypatch.syspath_prepend(EXAMPLE)
    from modmul.study import STUDY
    from modmul.task import ModularMultiplication

    task = ModularMultiplication(p=7)
    interp.check_task(task)
    assert task.describe() == {"task": "modular_multiplication", "p": 7}
    cfg = interp.config_for(task)
    assert (cfg.n_layers, cfg.positions, cfg.d_vocab_out, cfg.n_ctx) == (1, "none", 7, 3)
    assert [len(specs) for specs in STUDY.groups("quick").values()] == [4, 4]
    decays = [spec.settings.weight_decay for specs in STUDY.groups("quick").values() for spec in specs]
    assert decays == [1.0] * 4 + [0.0] * 4


class Environment:
    """A fresh virtual environment on top of the running one, whose packages it sees but does not change."""

    def __init__(self, folder):
        venv.create(folder, with_pip=False)
        self.folder, self.python = folder, folder / "bin/python"
        (site,) = folder.glob("lib/python*/site-packages")
        self.site = site
        (site / "outer.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n")
        self.variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}

    def run(self, *command, status=0):
        done = subprocess.run(
            [self.python, *map(str, command)], cwd=self.folder, env=self.variables, capture_output=True, text=True
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout

    def interp(self, *arguments, status=0):
        return self.run("-c", "from interp.cli.main import main; main()", *arguments, status=status)


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """The example, installed into a fresh environment by pip, offline."""
    made = Environment(tmp_path_factory.mktemp("fresh") / "env")
    source = made.folder / "source"
    shutil.copytree(EXAMPLE, source)  # a build writes next to its sources
    made.run("-m", "pip", "install", "--no-deps", "--no-build-isolation", "--no-index", "--quiet", source)
    shutil.rmtree(source)
    return made


@pytest.mark.slow
def test_it_is_installed_there_and_not_here(environment):
    where = environment.run("-c", "import modmul; print(modmul.__file__)").strip()
    assert Path(where).is_relative_to(environment.site)
    where = environment.run("-c", "import interp; print(interp.__file__)").strip()
    assert Path(where).is_relative_to(ROOT)
    assert "modular_multiplication" not in entry_points(group="interp.tasks").names
    assert "modmul" not in entry_points(group="interp.studies").names
    assert not (EXAMPLE / "build").exists()


@pytest.mark.slow
def test_its_own_tests_pass_there(environment):
    passed = environment.run("-m", "pytest", "-q", "-p", "no:cacheprovider", EXAMPLE / "tests")
    assert "9 passed" in passed


@pytest.mark.slow
def test_its_commands(environment):
    assert "modular_multiplication" in environment.interp("tasks")
    run = environment.folder / "run"
    assert "--p" in environment.interp("train", "modular_multiplication", "--help")
    environment.interp("train", "modular_multiplication", "--out", run)
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["task"] == {"task": "modular_multiplication", "p": 31}
    environment.interp("audit", run, "--out", run / "audit.json")
    audit = json.loads((run / "audit.json").read_text())["values"]
    assert audit["n"] >= FIRST_LOOK
    assert "modmul" in environment.interp("reproduce")
    assert "weight-decay" in environment.interp("reproduce", "modmul", "--list")


@pytest.mark.slow
def test_its_study_is_reproduced(environment):
    out = environment.folder / "reproduce"
    environment.interp("reproduce", "modmul", "--out", out)
    claims = {claim["id"]: claim for claim in json.loads((out / "modmul/quick/claims.json").read_text())["claims"]}
    assert list(claims) == ["generalisation", "weight-decay"]
    assert claims["generalisation"]["measured"] > 0.8
    assert [claim["n"] for claim in claims.values()] == [4, 4]
    assert all(claim["verdict"] != "not measured" for claim in claims.values())
    assert (out / "modmul/quick/report.html").stat().st_size > 10_000


@pytest.mark.slow
def test_without_the_package_a_run_names_what_to_install(environment, tmp_path):
    from interp.training import TrainingRun

    environment.interp("train", "modular_multiplication", "--out", tmp_path / "run", "--p", 5, "--steps", 2)
    with pytest.raises(
        ValueError,
        match=r"there is no task 'modular_multiplication' \(the class modmul.task:ModularMultiplication\) here",
    ):
        _ = TrainingRun.load(tmp_path / "run").task
