"""Training several models in parallel processes, each resumable in its own folder."""

import io
import tempfile
import time
import traceback
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from hooks.files import write_bytes
from hooks.model.architectures import Config, make_model
from interp.core.processes import in_processes
from interp.sweeps.status import keep_failure
from interp.tasks.base import Task
from interp.training.folder import FolderInUse, RunFolder
from interp.training.pretrained import pretrained
from interp.training.settings import TrainSettings
from interp.training.train import train
from interp.training.trainer import Diverged

AGAIN = 2.0
"""Seconds until a model that another process trains is looked at again."""
OnOutcome = Callable[[str, Exception | None], None]


@dataclass(frozen=True, kw_only=True)
class TrainJob:
    """One model to train: what determines its weights, and the folder of the run.

    Raises:
        ValueError: symbols without a pretrained model.
    """

    task: Task
    config: Config
    settings: TrainSettings
    seed: int
    folder: Path
    pretrained: Path | str | None = None
    """Source of the initial weights, a folder or a hub name as in `interp.pretrained`; if None, fresh weights. `config`
    must then be that of `interp.training.pretrained.pretrained_config`."""
    symbols: tuple[tuple[str, str], ...] = ()
    """With `pretrained`: pairs of a task token and the vocabulary token that replaces it."""
    device: str | None = None
    """Device to train on: `cuda`, `cuda:1` or `cpu`; default: the CPU."""

    def __post_init__(self):
        if self.symbols and self.pretrained is None:
            raise ValueError("symbols are tokens of a pretrained model; give pretrained, or omit symbols.")


def train_to_disk(
    jobs: Mapping[str, TrainJob],
    *,
    n_jobs: int = 2,
    fresh: bool = False,
    on_finished: Callable[[str], None] | None = None,
    scheduler: Any = None,
) -> None:
    """Train several models in parallel, one torch thread each. Finished runs are skipped, unfinished ones resumed.

    Args:
        jobs: Jobs by name, started in this order.
        n_jobs: Number of processes; 1 if a job is on another device than the CPU.
        fresh: Discard earlier runs in the folders.
        on_finished: Called with the name of each finished job.
        scheduler: Address of a Dask scheduler, or a `distributed.Client`, whose workers train; they share the folders.

    Raises:
        ValueError: two jobs with the same folder, or an error of `train` or `interp.pretrained`, with the job's name.
    """
    for name, error in _outcomes(jobs, n_jobs=n_jobs, fresh=fresh, scheduler=scheduler):
        if isinstance(error, ValueError):
            kind = Diverged if isinstance(error, Diverged) else ValueError
            raise kind(f"{name}: {error}") from error
        if error is not None:
            raise error
        if on_finished is not None:
            on_finished(name)


def train_each(
    jobs: Mapping[str, TrainJob],
    *,
    n_jobs: int = 2,
    fresh: bool = False,
    scheduler: Any = None,
    shared_folder: bool = True,
) -> Iterator[tuple[str, Exception | None]]:
    """Train several models as `train_to_disk`, and go on when one fails. Models that other processes train are awaited.

    The error of one that failed is kept in its folder; see `interp.sweeps.status`.

    Args:
        jobs: Jobs by name, started in this order.
        n_jobs: Number of processes; 1 if a job is on another device than the CPU.
        fresh: Discard earlier runs in the folders.
        scheduler: Address of a Dask scheduler, or a `distributed.Client`, whose workers train.
        shared_folder: Whether those workers write to the same folders; else each sends its run back as one file.

    Yields:
        The name of each job that has ended, and its error or None.
    """
    left = dict(jobs)
    while left:
        awaited: dict[str, TrainJob] = {}
        for name, error in _outcomes(left, n_jobs=n_jobs, fresh=fresh, scheduler=scheduler, shared=shared_folder):
            if isinstance(error, FolderInUse):
                awaited[name] = left[name]
                continue
            if error is not None:
                keep_failure(left[name].folder, error)
            yield name, error
        left = awaited
        if left:
            time.sleep(AGAIN)


def _outcomes(
    jobs: Mapping[str, TrainJob], *, n_jobs: int, fresh: bool, scheduler: Any, shared: bool = True
) -> Iterator[tuple[str, Exception | None]]:
    if len({job.folder for job in jobs.values()}) < len(jobs):
        raise ValueError("two jobs share a folder; give each run its own.")
    if not jobs:
        return
    on_cpu = all((job.device or "cpu").startswith("cpu") for job in jobs.values())
    sends = scheduler is not None and not shared
    absolute = {name: replace(job, folder=job.folder.resolve()) for name, job in jobs.items()}
    calls = [(_train_and_send if sends else _train_one, (name, job, fresh)) for name, job in absolute.items()]
    options = {"n_jobs": min(n_jobs, len(jobs)) if on_cpu else 1}
    if scheduler is not None:
        options["scheduler"] = scheduler
    for name, outcome in in_processes(calls, **options):
        if isinstance(outcome, bytes):
            outcome = _received(absolute[name], outcome, fresh)
        yield name, outcome


def _train_one(name: str, job: TrainJob, fresh: bool) -> tuple[str, Exception | None]:
    torch.set_num_threads(1)
    try:
        options = {"seed": job.seed, "folder": job.folder, "fresh": fresh, "device": job.device}
        train(initial_model(job), job.task, job.settings, **options)
    except FolderInUse as error:
        return name, error
    except Exception as error:
        error.add_note(traceback.format_exc())  # the traceback itself does not reach another process
        return name, error
    return name, None


def _train_and_send(name: str, job: TrainJob, fresh: bool) -> tuple[str, Exception | bytes | None]:
    """Train in a temporary folder; returns its files as the bytes of a zip file."""
    with tempfile.TemporaryDirectory() as folder:
        name, error = _train_one(name, replace(job, folder=Path(folder, "run")), fresh)
        if error is not None:
            return name, error
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            for path in sorted(Path(folder, "run").rglob("*")):
                if path.is_file() and not path.name.startswith("."):
                    archive.write(path, path.relative_to(Path(folder, "run")).as_posix())
        return name, packed.getvalue()


def _received(job: TrainJob, packed: bytes, fresh: bool) -> Exception | None:
    """Write the run that a worker has sent to its folder: the trained model last, which says that the run is whole."""
    files = RunFolder(job.folder)
    try:
        with files.writing(), zipfile.ZipFile(io.BytesIO(packed)) as archive:
            if files.finished and not fresh:
                return None  # another process was faster
            files.clear()
            names = sorted(archive.namelist(), key=lambda name: name == files.model_path.name)
            for name in names:
                path = job.folder / name
                if not path.resolve().is_relative_to(job.folder.resolve()):
                    return ValueError(f"the run that a worker sent has a file outside its folder: {name}.")
                path.parent.mkdir(exist_ok=True)
                write_bytes(path, archive.read(name))
    except FolderInUse as error:
        return error
    return None


def initial_model(job: TrainJob) -> Any:
    """The model of a job before training.

    Raises:
        ValueError: a pretrained model that cannot be loaded, or with another config.
    """
    if job.pretrained is None:
        return make_model(job.config, seed=job.seed)
    try:
        model = pretrained(job.task, job.pretrained, symbols=dict(job.symbols), seed=job.seed)
    except OSError as error:
        raise ValueError(f"the pretrained model cannot be loaded: {error}") from error
    if model.cfg != job.config:
        theirs, ours = model.cfg.to_dict(), job.config.to_dict()
        differs = [name for name in {**ours, **theirs} if theirs.get(name) != ours.get(name)]
        raise ValueError(
            f"config is not that of the pretrained model, {job.pretrained}: "
            f"{', '.join(f'{name} is {ours.get(name)!r}, not {theirs.get(name)!r}' for name in differs)}. "
            f"Use interp.training.pretrained.pretrained_config."
        )
    return model
