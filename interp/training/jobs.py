"""Training several models in parallel processes, each resumable in its own folder."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from hooks.model.architectures import Config, make_model
from interp.core.processes import in_processes
from interp.tasks.base import Task
from interp.training.pretrained import pretrained
from interp.training.settings import TrainSettings
from interp.training.train import train
from interp.training.trainer import Diverged

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
) -> None:
    """Train several models in parallel, one torch thread each. Finished runs are skipped, unfinished ones resumed.

    Args:
        jobs: Jobs by name, started in this order.
        n_jobs: Number of processes; 1 if a job is on another device than the CPU.
        fresh: Discard earlier runs in the folders.
        on_finished: Called with the name of each finished job.

    Raises:
        ValueError: two jobs with the same folder, or an error of `train` or `interp.pretrained`, with the job's name.
    """
    if len({job.folder for job in jobs.values()}) < len(jobs):
        raise ValueError("two jobs share a folder; give each run its own.")
    if not jobs:
        return
    on_cpu = all((job.device or "cpu").startswith("cpu") for job in jobs.values())
    calls = [(_train_one, (name, job, fresh)) for name, job in jobs.items()]
    for name in in_processes(calls, n_jobs=min(n_jobs, len(jobs)) if on_cpu else 1):
        if on_finished is not None:
            on_finished(name)


def _train_one(name: str, job: TrainJob, fresh: bool) -> str:
    torch.set_num_threads(1)
    try:
        options = {"seed": job.seed, "folder": job.folder, "fresh": fresh, "device": job.device}
        train(initial_model(job), job.task, job.settings, **options)
    except ValueError as error:
        kind = Diverged if isinstance(error, Diverged) else ValueError
        raise kind(f"{name}: {error}") from error
    return name


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
