"""Trained models that are not what their folder says: every door finds out, or gives the numbers of the right model."""

import json
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from damage import swapped
from tries import TASK, Try

import hooks
import interp
from interp import TrainSettings
from interp.sweeps import ModelSpec, Sweep, SweepRuns
from interp.sweeps.parallel import initial_model
from interp.training import TrainingRun

CONFIG = interp.config_for(TASK, "lego", n_layers=1, d_model=16, n_heads=2, d_head=8, d_mlp=16)
SETTINGS = TrainSettings(steps=4, tokens_per_step=64, eval_every=2, n_eval=50, snapshots=(0, 2, 4))
BASE = ModelSpec(task=TASK, config=CONFIG, settings=SETTINGS, seed=0)
GRID = Sweep(BASE, {"seed": [0, 1, 2]})


def _exchange(first: Path, second: Path) -> None:
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)


def _exchange_files(models: Path, rng: random.Random) -> str:
    """The same file of two runs, or two files of weights of one run, change places."""
    first, second = rng.sample(GRID.keys, 2)
    weights = ["model.safetensors", *(f"snapshots/step-{step:08d}.safetensors" for step in (0, 2, 4))]
    if rng.random() < 0.5:
        name = rng.choice([*weights, "manifest.json", "metrics.jsonl"])
        _exchange(models / first / name, models / second / name)
        return f"{name} of two runs exchanged"
    first_name, second_name = rng.sample(weights, 2)
    _exchange(models / first / first_name, models / first / second_name)
    return f"{first_name} and {second_name} exchanged"


def _exchange_folders(models: Path, rng: random.Random) -> str:
    first, second = rng.sample(GRID.keys, 2)
    (models / first).rename(models / "between")
    (models / second).rename(models / first)
    (models / "between").rename(models / second)
    return "two folders exchanged"


def _change_weights(models: Path, rng: random.Random) -> str:
    """A valid checkpoint with noise, one number changed, or zeros."""
    path = models / rng.choice(GRID.keys) / "model.safetensors"
    model = hooks.load_checkpoint(path)
    weights = list(model.parameters())
    size = rng.choice([1e-6, 0.1, 0.0])
    with torch.no_grad():
        if size:
            rng.choice(weights).view(-1)[0] += size
        else:
            rng.choice([weight for weight in weights if weight.any()]).zero_()
    hooks.save_checkpoint(model, path)
    return f"weights changed by {size}" if size else "weights set to zero"


def _change_bits(models: Path, rng: random.Random) -> str:
    path = models / rng.choice(GRID.keys) / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(bytes(content))
    return "a bit of the weights flipped"


def _change_manifest(models: Path, rng: random.Random) -> str:
    path = models / rng.choice(GRID.keys) / "manifest.json"
    path.write_text(json.dumps(swapped(json.loads(path.read_text()), rng)))
    return "a value of a manifest changed"


TAMPERS: list[Callable[[Path, random.Random], str]] = [
    _exchange_files,
    _exchange_folders,
    _change_weights,
    _change_bits,
    _change_manifest,
]


def _accuracies(models: Path) -> Any:
    return str(SweepRuns(grid=GRID, folder=models).apply(interp.evaluate, n=16, fresh=True))


def _selected(models: Path) -> Any:
    runs = SweepRuns(grid=GRID, folder=models)
    return [str(interp.evaluate(run.model, TASK, n=16)) for seed in range(3) for run in runs.select(seed=seed)]


def _swept(models: Path) -> Any:
    interp.sweep(GRID, models, n_jobs=1)
    return _accuracies(models)


def _loaded(models: Path) -> Any:
    specs = [replace(BASE, seed=seed) for seed in range(3)]
    runs = [TrainingRun.load(models / spec.key, expected=spec.description) for spec in specs]
    return [(str(interp.evaluate(run.model, TASK, n=16)), [record["loss"] for record in run.history]) for run in runs]


def _trained(models: Path) -> Any:
    texts = []
    for seed, key in enumerate(GRID.keys):
        model = initial_model(replace(BASE, seed=seed), models)
        run = interp.train(model, TASK, SETTINGS, seed=seed, folder=models / key)
        texts.append(str(interp.evaluate(run.model, TASK, n=16)))
    return texts


def _over_training(models: Path) -> Any:
    runs = [TrainingRun.load(models / key) for key in GRID.keys]
    return [str(interp.over_training(run, interp.evaluate, n=16, fresh=True)) for run in runs]


DOORS: list[Callable[[Path], Any]] = [_accuracies, _selected, _swept, _loaded, _trained, _over_training]


def tries(n: int, folder: Path) -> Iterator[Try]:
    """Change something in a finished sweep, then read it through a door."""
    pristine = interp.sweep(GRID, folder / "pristine", n_jobs=1).folder
    expected = {door: door(pristine) for door in DOORS}
    for index in range(n):
        rng = random.Random(index)
        models = shutil.copytree(pristine, folder / "models")
        change, door = rng.choice(TAMPERS)(models, rng), rng.choice(DOORS)
        what = f"seed {index}: {change}, {door.__name__}"
        try:
            result = door(models)
        except (ValueError, FileNotFoundError) as error:
            named = any(key in str(error) for key in GRID.keys)
            yield Try(what, None if named else "unclear", str(error)[:300])
        except Exception as error:
            yield Try(what, "unclear", f"{type(error).__name__}: {error}"[:300])
        else:
            yield Try(what, None if result == expected[door] else "let in", "numbers of another model")
        shutil.rmtree(models)
