"""Training several models in parallel processes, each resumable in its own folder."""

import io
import tempfile
import time
import traceback
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from hooks.files import user_path
from hooks.model.architectures import Model, make_model
from interp.core.devices import is_accelerator
from interp.core.processes import in_processes
from interp.core.verbs import prepare_scorable
from interp.sweeps.spec import ModelSpec
from interp.sweeps.status import save_failure
from interp.sweeps.waiting import Waiting
from interp.tasks.base import Task
from interp.training.folder import FolderInUse, NoLocks, RunFolder
from interp.training.manifest import manifest_of
from interp.training.pretrained import pretrained
from interp.training.run import TrainingRun
from interp.training.settings import TrainSettings
from interp.training.train import NEEDS, Diverged, train_run

WAIT = 2.0
"""Seconds between looks at a model that another process trains."""
Specs = Mapping[Path, ModelSpec]
"""Models to train, by the folder of their run; the run of a pretrained spec is next to it, in a folder named by key."""
OnOutcome = Callable[[Path, Exception | None], None]
"""Called with the folder of a run that has ended, and its error or None."""


def train_to_disk(
    specs: Specs,
    *,
    n_jobs: int = 2,
    device: str | None = None,
    fresh: bool = False,
    on_finished: Callable[[Path], None] | None = None,
    scheduler: Any = None,
) -> None:
    """Train several models in parallel, one torch thread each. Finished runs are skipped, unfinished ones resumed.

    Args:
        specs: Models by the folders of their runs, started in this order.
        n_jobs: Number of processes; 1 on another device than the CPU.
        device: Device to train on: `cuda`, `cuda:1` or `cpu`; default: the CPU.
        fresh: Discard earlier runs in the folders.
        on_finished: Called with the folder of each finished run.
        scheduler: Address of a Dask scheduler, or a `distributed.Client`, whose workers train; they share the folders.

    Raises:
        ValueError: an error of `train` or `interp.pretrained`, with the name of the folder.
    """
    for folder, error in _outcomes(specs, n_jobs=n_jobs, device=device, fresh=fresh, scheduler=scheduler):
        if isinstance(error, ValueError):
            kind = Diverged if isinstance(error, Diverged) else ValueError
            raise kind(f"model {folder.name} (seed {specs[folder].seed}): {error}") from error
        if error is not None:
            raise error
        if on_finished is not None:
            on_finished(folder)


def train_each(
    specs: Specs,
    *,
    n_jobs: int = 2,
    device: str | None = None,
    fresh: bool = False,
    scheduler: Any = None,
    shared_folder: bool = True,
) -> Iterator[tuple[Path, Exception | None]]:
    """Train several models as `train_to_disk`, and go on when one fails. Models that other processes train are awaited.

    The error of a failed training is saved in its folder; see `interp.sweeps.status`.

    Args:
        specs: Models by the folders of their runs, started in this order.
        n_jobs: Number of processes; 1 on another device than the CPU.
        device: Device to train on: `cuda`, `cuda:1` or `cpu`; default: the CPU.
        fresh: Discard earlier runs in the folders.
        scheduler: Address of a Dask scheduler, or a `distributed.Client`, whose workers train.
        shared_folder: Whether those workers write to the same folders; else each sends its run back as one file.

    Yields:
        The folder of each run that has ended, and its error or None.

    Raises:
        FolderInUse: a process that trains an awaited model is stopped, or has written nothing for `longest_wait`.
        NoLocks: the file system of the folders has no locks.
    """
    options = {"n_jobs": n_jobs, "device": device, "fresh": fresh, "scheduler": scheduler}
    # Train; those that another process trains at the moment are tried again, until it has finished or died
    remaining = specs
    waiting = Waiting()
    while remaining:
        awaited: dict[Path, ModelSpec] = {}
        for folder, error in _outcomes(remaining, **options, shared_folder=shared_folder):
            if isinstance(error, FolderInUse):
                awaited[folder] = remaining[folder]
                continue
            if isinstance(error, NoLocks):
                raise error
            if error is not None:
                save_failure(folder, error)
            yield folder, error
        remaining = awaited
        if remaining:
            waiting.look(remaining)
            time.sleep(WAIT)


def initial_model(spec: ModelSpec, models: Path) -> Model:
    """The model of a spec before training.

    Args:
        spec: The specification.
        models: Folder that has the run of its pretrained model, if that is a spec.

    Raises:
        ValueError: a pretrained model that cannot be loaded, is another one than its folder should have, or has another
            config.
    """
    if spec.pretrained is None:
        return make_model(spec.config, seed=spec.seed)
    source = spec.pretrained
    if isinstance(source, ModelSpec):
        expected = source.description
        source = models / source.key
        RunFolder(source).is_trained(expected)  # raises an error if it is another model
    try:
        model = pretrained(spec.task, source, symbols=dict(spec.symbols), fresh_heads=spec.fresh_heads, seed=spec.seed)
    except OSError as error:
        raise ValueError(f"the pretrained model cannot be loaded: {error}") from error
    if model.cfg != spec.config:
        expected, actual = spec.config.to_dict(), model.cfg.to_dict()
        differences = [
            f"{name} is {expected.get(name)!r}, not {actual.get(name)!r}"
            for name in {**expected, **actual}
            if expected.get(name) != actual.get(name)
        ]
        raise ValueError(
            f"config is not that of the pretrained model, {source}: {', '.join(differences)}. "
            f"Use interp.training.pretrained.pretrained_config."
        )
    return model


def train(
    model: Model, task: Task, settings: TrainSettings, *, seed: int, origin: Mapping[str, Any], **options: Any
) -> TrainingRun:
    """Train the initial model of a specification.

    Args:
        model: The model.
        task: The task.
        settings: Training settings.
        seed: Seed of the training.
        origin: `ModelSpec.origin`, for the manifest.
        options: `folder`, `fresh` and `device`, as in `interp.train`.
    """
    prepare_scorable(model, NEEDS)
    return train_run(model, task, settings, manifest_of(model, task, settings, seed, origin), **options)


def _outcomes(
    specs: Specs, *, n_jobs: int, device: str | None, fresh: bool, scheduler: Any, shared_folder: bool = True
) -> Iterator[tuple[Path, Exception | None]]:
    """Train each model once; yields its folder and its error or None."""
    if not specs:
        return
    # Absolute paths, as processes may have another working directory
    folders = {user_path(folder).absolute(): folder for folder in specs}
    sends_files = scheduler is not None and not shared_folder
    function = _train_and_send if sends_files else _train
    calls = [(function, (absolute, specs[folder], device, fresh)) for absolute, folder in folders.items()]
    # On an accelerator one process at a time; a scheduler decides itself how many
    options = {"n_jobs": 1 if is_accelerator(device) else min(n_jobs, len(specs))}
    if scheduler is not None:
        options["scheduler"] = scheduler
    for absolute, outcome in in_processes(calls, **options):
        error = _receive(absolute, specs[folders[absolute]], outcome, fresh) if isinstance(outcome, bytes) else outcome
        yield folders[absolute], error


def _train(
    folder: Path, spec: ModelSpec, device: str | None, fresh: bool, models: Path | None = None
) -> tuple[Path, Exception | None]:
    """Train one model in this process, with one thread."""
    torch.set_num_threads(1)
    try:
        model = initial_model(spec, models or folder.parent)
        options = {"folder": folder, "fresh": fresh, "device": device}
        train(model, spec.task, spec.settings, seed=spec.seed, origin=spec.origin, **options)
    except FolderInUse as error:
        return folder, error
    except Exception as error:
        error.add_note(traceback.format_exc())  # the traceback itself does not reach another process
        return folder, error
    return folder, None


def _train_and_send(
    folder: Path, spec: ModelSpec, device: str | None, fresh: bool
) -> tuple[Path, Exception | bytes | None]:
    """Train in a temporary folder; returns its files as the bytes of a zip file."""
    with tempfile.TemporaryDirectory() as temporary:
        run = Path(temporary, "run")
        _, error = _train(run, spec, device, fresh, models=folder.parent)
        if error is not None:
            return folder, error
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            for path in sorted(run.rglob("*")):
                if path.is_file() and not path.name.startswith("."):
                    archive.write(path, path.relative_to(run).as_posix())
        return folder, packed.getvalue()


def _receive(folder: Path, spec: ModelSpec, packed: bytes, fresh: bool) -> Exception | None:
    """Write the run that a worker has sent, after a check that it is the one that was asked for."""
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    files = RunFolder(folder)
    try:
        with files.writing():
            if not fresh and files.is_trained(spec.description):
                return None  # another process was faster
            files.write_received(contents, spec.description, sender="a worker")
    except ValueError as error:
        return error
    return None
