"""~ is the home folder in every path that a function or a command takes."""

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import toys

import hooks
import interp
from case_studies.frame.packs import Packs
from case_studies.review.bundle import open_bundle
from interp.cli.main import main
from interp.comparison.training_page import development_page
from interp.known_answers.compiled.packing import FOLDER, write_compiled
from interp.known_answers.compiled.program import read_program
from interp.reporting.report import report, report_run
from interp.sweeps import Sweep, SweepRuns
from interp.sweeps.parallel import train_to_disk
from interp.tasks.text.corpus import Corpus
from interp.training import TrainingRun

SPEC = toys.specs(1)[0]
SETTINGS = replace(toys.SETTINGS, snapshots=(0, 2))


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The home folder, which is not the folder that the test is in."""
    (tmp_path / "home").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "elsewhere")
    yield tmp_path / "home"
    assert not list((tmp_path / "elsewhere").iterdir())  # no folder called ~


def test_runs_sweeps_and_pages(home):
    model = hooks.make_model(toys.CONFIG, seed=0)
    run = interp.train(model, toys.TASK, SETTINGS, folder="~/run")
    assert (home / "run/model.safetensors").exists()
    assert TrainingRun.load("~/run").folder == home / "run"
    again = hooks.make_model(toys.CONFIG, seed=0)
    assert interp.train(again, toys.TASK, SETTINGS, folder=Path("~/run")).folder == run.folder
    assert interp.pretrained(toys.TASK, "~/run").cfg.n_layers == 1
    table = interp.over_training(run, interp.evaluate, n=8)
    development_page(run, [table], "~/development.html")
    report([table], "~/report.html", title="A run")
    report_run(run, toys.TASK, "~/run.html", n_test=20)
    table.plot().save("~/chart.html")
    assert {path.name for path in home.glob("*.html")} == {
        "development.html", "report.html", "run.html", "chart.html",
    }  # fmt: skip
    grid = Sweep(SPEC, {"seed": [0]})
    assert interp.sweep(grid, "~/sweep", n_jobs=1).folder == home / "sweep"
    assert SweepRuns(grid=grid, folder=Path("~/sweep")).status == ["trained"]
    train_to_disk({Path("~/alone"): SPEC}, n_jobs=1)
    assert (home / "alone/model.safetensors").exists()


def test_studies_and_bundles(home):
    result = toys.STUDY.run(folder="~/studies", n_jobs=1)
    assert result.page.is_relative_to(home / "studies")
    assert toys.STUDY.plan(folder="~/studies").trained == 3
    assert toys.STUDY.draw(size="quick", folder="~/studies").page == result.page
    assert toys.STUDY.bundle("~/toy.zip", size="quick", folder="~/studies") == home / "toy.zip"
    assert open_bundle("~/toy.zip").path == home / "toy.zip"
    for against in ("~/toy.zip", "~/studies/toy/quick"):
        assert toys.STUDY.check(folder="~/studies", n_jobs=1, against=against).passed


def test_packs_and_texts(home):
    shutil.copytree(FOLDER, home / "packs")
    name = sorted(path.stem for path in FOLDER.glob("*.json"))[0]
    assert Packs(Path("~/packs")).paths == tuple(sorted((home / "packs").glob("*.json")))
    write_compiled(read_program(f"~/packs/{name}"), "~/packs/again")
    assert (home / "packs/again.npz").exists()
    (home / "texts").mkdir()
    for letter in "abcdef":
        (home / f"texts/{letter}.txt").write_text(f"A text of {letter}. " * 50)
    assert Corpus.from_folder("~/texts").documents


def test_commands(home, monkeypatch, capsys):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["interp", *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        output = capsys.readouterr()
        assert not stopped.value.code, output.err
        return output.out

    sizes = ["--n-vars", "2", "--layers", "1", "--width", "16", "--heads", "2", "--steps", "2", "--n-eval", "20"]
    printed = run("train", "lego", "--out=~/run", *sizes, "--curriculum", "none", "--association", "none")
    assert f"next: interp probe {home / 'run'}" in printed
    run("probe", "~/run", "--out=~/probe.json")
    run("heads", "~/run", "--page=~/heads.html")
    assert (home / "probe.json").exists()
    assert (home / "heads.html").exists()
    (home / "grid.toml").write_text('[task]\nname = "lego"\nn_vars = 2\n[vary]\nseed = [0]\n')
    assert "1 model in" in run("sweep", "~/grid.toml", "--out=~/sweep", "--list")
    assert str(home / "sweep") in run("sweep", "~/grid.toml", "--out=~/sweep", "--slurm")


@pytest.mark.parametrize("path", ["~nobody-has-this-name/run", "~nobody-has-this-name"])
def test_a_home_that_cannot_be_found_is_an_error(home, path):
    for read in (
        lambda: TrainingRun.load(path),
        lambda: interp.sweep(Sweep(SPEC, {"seed": [0]}), path, n_jobs=1),
        lambda: toys.STUDY.run(folder=path),
    ):
        with pytest.raises(ValueError, match="cannot be found"):
            read()
