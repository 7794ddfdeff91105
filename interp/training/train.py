"""Training loop. A run killed at any time resumes and ends with the same weights."""

import hashlib
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from hooks.checks import checks_types
from hooks.model.architectures import Model
from hooks.model.baseline import Baseline
from interp.core.devices import check_device, on_device
from interp.core.manifest import environment
from interp.core.verbs import prepare_model
from interp.tasks.base import Task
from interp.tasks.check import check_task
from interp.tasks.registry import class_path
from interp.training.fit import check_fit
from interp.training.folder import RunFolder
from interp.training.objectives import check_mimicking
from interp.training.run import TrainingRun
from interp.training.settings import TrainSettings, given_or_recipe
from interp.training.trainer import OnRecord, Trainer


@checks_types
def train(
    model: Model,
    task: Task,
    settings: TrainSettings | None = None,
    *,
    seed: int = 0,
    folder: str | Path | None = None,
    fresh: bool = False,
    on_record: OnRecord | None = None,
    device: str | None = None,
) -> TrainingRun:
    """Train a model on a task, in place.

    On a CPU, the same seed and number of threads give the same weights. On a GPU, the same seed gives the same
    examples in the same order, and weights that may differ in the last digits.

    Args:
        model: The model to train. Its vocabulary sizes and attention must be those of the task.
        task: The task to learn.
        settings: Training settings; default: `recipe_for(task)`.
        seed: Seed of batches, depths and mimicking data. It does not affect the initial weights.
        folder: Folder for manifest, metrics, state and model; if None, nothing is written. A finished run with the
            same seed, task, config and settings is loaded from it, an unfinished one is resumed.
        fresh: Discard an earlier run in the folder.
        on_record: Called with each metrics record.
        device: Device to train on: `cuda`, `cuda:1` or `cpu`; the model is on the CPU afterwards. If None, the model
            stays on its device.

    Returns:
        The trained model in evaluation mode, with its learning curves and manifest.

    Raises:
        ValueError: an inconsistent task, a model or settings that do not fit it, an unavailable device, a folder with
            another run or in which another process trains (`FolderInUse`), or a loss that is not finite.
    """
    settings = given_or_recipe(settings, task)
    chosen = None if device is None else check_device(device)
    manifest = manifest_of(model, task, settings, seed)
    if settings.snapshots is not None and folder is None:
        raise ValueError("settings has snapshots, which are kept in the folder of the run; give folder.")
    files = None if folder is None else RunFolder(folder)
    if files is None or fresh or not files.finished:
        if settings.association == "mimic":
            check_mimicking(task, settings.mimicking)
        with files.writing() if files else nullcontext():
            if files and fresh:
                files.clear()
            manifest = files.open(manifest) if files else manifest
            if files is None or not files.finished:  # another process may have finished it before this one could write
                with on_device(model, chosen):
                    history = Trainer(model, task, settings, seed, files, on_record, manifest).run()
                return TrainingRun.on(
                    task, model=model.eval(), history=tuple(history), manifest=manifest, folder=files and files.path
                )
    files.tidy()
    manifest = files.open(manifest)
    model.load_state_dict(files.load_model().state_dict())
    if chosen is not None:
        model.to("cpu")
    history = tuple(files.read_metrics())
    return TrainingRun.on(task, model=model.eval(), history=history, manifest=manifest, folder=files.path)


def manifest_of(model: Model, task: Task, settings: TrainSettings, seed: int) -> dict[str, Any]:
    """The manifest of a run that starts with this model, which is checked and gets the task's tokenizer.

    Raises:
        ValueError: an inconsistent task, or a model or settings that do not fit it.
    """
    if not isinstance(model, Baseline):
        prepare_model(model, "train")
    check_task(task)
    check_fit(model, task, settings)
    model.tokenizer = task.vocab
    return {
        "seed": seed,
        "task": task.describe(),
        "task_class": class_path(type(task)),
        "outcomes": list(task.outcomes),
        "chance": task.chance,
        "config": model.cfg.to_dict(),
        "settings": settings.to_dict(),
        "initial_weights": _fingerprint(model),
        **environment(),
    }


def _fingerprint(model: Model) -> str:
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(tensor.detach().cpu().numpy()).tobytes())
    return digest.hexdigest()[:16]
