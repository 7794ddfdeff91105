"""A model on disk is believed only if its manifest has its folder's key and its files have the stored hashes."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from short_runs import stamp

import hooks
import interp
from interp import TrainSettings
from interp.cli.main import app
from interp.cli.output import run_command
from interp.sweeps import ModelSpec, Sweep, SweepRuns
from interp.sweeps.parallel import initial_model, train_to_disk
from interp.sweeps.stacked import train_stacked
from interp.tasks import Lego
from interp.training import TrainingRun
from interp.training.folder import RunFolder
from interp.training.identity import ForeignRun
from interp.training.pretrained import pretrained_config

TASK = Lego(n_vars=2, sentence_format="compact")
CONFIG = interp.config_for(TASK, "lego", n_layers=1, d_model=16, n_heads=2, d_head=8, d_mlp=16)
SETTINGS = TrainSettings(steps=4, tokens_per_step=64, eval_every=2, n_eval=50, snapshots=(0, 2, 4))
BASE = ModelSpec(task=TASK, config=CONFIG, settings=SETTINGS, seed=0)
GRID = Sweep(BASE, {"seed": [0, 1]})
FIRST, SECOND = GRID.keys


@pytest.fixture(scope="module")
def trained_sweep(tmp_path_factory):
    return interp.sweep(GRID, tmp_path_factory.mktemp("sweep"), n_jobs=1).folder


@pytest.fixture
def models(trained_sweep, tmp_path):
    return shutil.copytree(trained_sweep, tmp_path / "models")


def swap(first, second):
    """Exchange two files or two folders."""
    between = first.with_name("between")
    first.rename(between)
    second.rename(first)
    between.rename(second)


def edit(path, change):
    """Change a JSON file in place."""
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def add_noise(path):
    """Save the weights again with noise, as a checkpoint that can be loaded."""
    model = hooks.load_checkpoint(path)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    hooks.save_checkpoint(model, path)


def set_seed(manifest):
    manifest["seed"] = 1


def set_task(manifest):
    manifest["task"]["sentence_format"] = "paper"


def set_settings(manifest):
    manifest["settings"]["learning_rate"] = 0.5


def set_chance(manifest):
    manifest["chance"] = 0.01


CHANGES = {
    "folders swapped": lambda models: swap(models / FIRST, models / SECOND),
    "weights swapped": lambda models: swap(models / FIRST / "model.safetensors", models / SECOND / "model.safetensors"),
    "weights with noise": lambda models: add_noise(models / FIRST / "model.safetensors"),
    "weights of a snapshot": lambda models: shutil.copy(
        models / FIRST / "snapshots/step-00000002.safetensors", models / FIRST / "model.safetensors"
    ),
    "another seed": lambda models: edit(models / FIRST / "manifest.json", set_seed),
    "another task": lambda models: edit(models / FIRST / "manifest.json", set_task),
    "other settings": lambda models: edit(models / FIRST / "manifest.json", set_settings),
    "another chance": lambda models: edit(models / FIRST / "manifest.json", set_chance),
    "all edited alike": lambda models: stamp(models / FIRST, seed=1),
    "no manifest": lambda models: (models / FIRST / "manifest.json").unlink(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_every_reader_finds_another_model(models, change):
    change(models)
    runs = SweepRuns(grid=GRID, folder=models)
    assert runs.status[0] == "mismatch"
    assert FIRST in runs.table()["error"][0]
    assert "mismatch: seed 0" in str(runs)
    readers = [
        lambda: interp.sweep(GRID, models, n_jobs=1),
        lambda: interp.sweep(GRID, models, stacked=True),
        lambda: runs.apply(interp.evaluate, n=8),
        lambda: runs.select(seed=0),
        runs.to_dataframe,
        lambda: train_to_disk({models / FIRST: BASE}, n_jobs=1),
        lambda: TrainingRun.load(models / FIRST, expected=BASE.description),
        lambda: interp.train(initial_model(BASE, models), TASK, SETTINGS, seed=0, folder=models / FIRST),
        lambda: interp.pretrained(TASK, models / FIRST),
    ]
    for read in readers:
        with pytest.raises((ValueError, FileNotFoundError), match=FIRST):
            read()
    outcomes = {}
    train_stacked({models / spec.key: spec for spec in (GRID[0], GRID[1])}, on_outcome=outcomes.__setitem__)
    assert FIRST in str(outcomes[models / FIRST])
    assert run_command(app, ["probe", str(models / FIRST)]) == 2
    # Nothing was deleted, and what is said helps
    assert (models / FIRST / "model.safetensors").exists()
    (models / FIRST).rename(models / "elsewhere")
    if runs.status[1] == "mismatch":
        (models / SECOND).rename(models / "too")
    assert interp.sweep(GRID, models, n_jobs=1).status == ["trained", "trained"]


def test_fresh_trains_again_what_is_another_model(models):
    swap(models / FIRST, models / SECOND)
    runs = interp.sweep(GRID, models, n_jobs=1, fresh=True)
    assert [run.manifest["seed"] for run in runs.select()] == [0, 1]


def test_a_model_that_is_not_selected_does_not_matter(models):
    add_noise(models / FIRST / "model.safetensors")
    runs = SweepRuns(grid=GRID, folder=models)
    assert [run.manifest["seed"] for run in runs.select(seed=1)] == [1]


def test_metrics_are_those_of_the_run(models):
    lines = (models / FIRST / "metrics.jsonl").read_text().splitlines()
    for content in ("\n".join(lines[:-1]) + "\n", (models / SECOND / "metrics.jsonl").read_text(), None):
        path = models / FIRST / "metrics.jsonl"
        path.unlink()
        if content is not None:
            path.write_text(content)
        with pytest.raises(ForeignRun, match=r"metrics\.jsonl is (not the file|missing)"):
            TrainingRun.load(models / FIRST)


SNAPSHOTS = {
    "two swapped": lambda first, second: swap(first / "step-00000000.safetensors", first / "step-00000002.safetensors"),
    "of another run": lambda first, second: shutil.copy(second / "step-00000002.safetensors", first),
    "with noise": lambda first, second: add_noise(first / "step-00000002.safetensors"),
    "added": lambda first, second: shutil.copy(
        first / "step-00000002.safetensors", first / "step-00000003.safetensors"
    ),
}


@pytest.mark.parametrize("change", SNAPSHOTS.values(), ids=SNAPSHOTS)
def test_snapshots_are_those_of_the_run_and_the_step(models, change):
    run = TrainingRun.load(models / FIRST)
    interp.over_training(run, interp.evaluate, n=8)
    change(models / FIRST / "snapshots", models / SECOND / "snapshots")
    with pytest.raises(ForeignRun, match=r"step-0000000\d\.safetensors is not the file that this run wrote"):
        interp.over_training(run, interp.evaluate, n=8)
    found = []
    for step in run.snapshots:
        try:
            run.load_snapshot(step)
        except ForeignRun:
            found.append(step)
    assert found
    assert run.load_snapshot(4) is not None


def test_a_snapshot_in_a_folder_of_another_run_is_found(models):
    run = TrainingRun.load(models / FIRST)
    swap(models / FIRST, models / SECOND)
    with pytest.raises(ForeignRun):
        run.load_snapshot(2)


def test_models_with_another_origin_are_distinct(tmp_path):
    source = replace(BASE, seed=7)
    tuned = replace(BASE, config=pretrained_config(TASK, CONFIG), pretrained=source)
    other = replace(tuned, symbols=(("a", "b"), ("b", "a")))
    specs = {tmp_path / spec.key: spec for spec in (source, tuned, other)}
    for folder, spec in specs.items():
        train_to_disk({folder: spec}, n_jobs=1)
    assert TrainingRun.load(tmp_path / tuned.key).manifest["pretrained"] == source.key
    swap(tmp_path / tuned.key, tmp_path / other.key)
    for spec in (tuned, other):
        with pytest.raises(ForeignRun, match="symbols is"):
            RunFolder(tmp_path / spec.key).is_trained(spec.description)
        with pytest.raises(ForeignRun, match="holds another run: the model"):
            TrainingRun.load(tmp_path / spec.key)
    swap(tmp_path / source.key, tmp_path / tuned.key)
    with pytest.raises(ForeignRun):
        initial_model(other, tmp_path)


def test_a_file_that_was_read_is_not_read_again(models, monkeypatch):
    runs = SweepRuns(grid=GRID, folder=models)
    assert runs.status == ["trained", "trained"]
    monkeypatch.setattr("hashlib.file_digest", lambda *given: pytest.fail("it was read already"))
    assert runs.status == ["trained", "trained"]
