"""Many models at once: one process per core, one torch thread each, every run resumable in its own folder."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from joblib import Parallel, delayed

from hooks.model.architectures import Config, make_model
from interp.tasks.base import Task
from interp.training.pretrained import pretrained
from interp.training.settings import TrainSettings
from interp.training.train import train


@dataclass(frozen=True, kw_only=True)
class TrainJob:
    """One model to train: everything that decides its weights, and where they go.

    Raises:
        ValueError: symbols, but nothing pretrained.
    """

    task: Task
    config: Config
    settings: TrainSettings
    seed: int
    folder: Path
    pretrained: Path | str | None = None
    """Where to start, as `interp.pretrained` takes it: a folder or a hub name. Fresh weights when left out. The config
    is then that of `interp.training.pretrained.pretrained_config`."""
    symbols: tuple[tuple[str, str], ...] = ()
    """With `pretrained`: tokens of the task, and those of the vocabulary that stand in their place."""
    device: str | None = None
    """Where to train it: `cuda`, `cuda:1`, `cpu`; the CPU when left out. No part of what decides its weights."""

    def __post_init__(self):
        if self.symbols and self.pretrained is None:
            raise ValueError("symbols stand for tokens of a pretrained model; give pretrained, or leave symbols out.")


def train_to_disk(
    jobs: Mapping[str, TrainJob],
    *,
    n_jobs: int = 2,
    fresh: bool = False,
    on_finished: Callable[[str], None] | None = None,
) -> None:
    """Train several models side by side and load none: for hundreds of them.

    Args:
        jobs: Name and description of each, begun in this order.
        n_jobs: Processes; one, where a job has another device than the CPU.
        fresh: Forget what the folders hold.
        on_finished: Called with the name of each job as it ends.

    Raises:
        ValueError: what `train` and `interp.pretrained` refuse, with the job's name, or two jobs in one folder.
    """
    if len({job.folder for job in jobs.values()}) < len(jobs):
        raise ValueError("two jobs share a folder; give each run its own.")
    if not jobs:
        return
    on_cpu = all((job.device or "cpu").startswith("cpu") for job in jobs.values())
    finished: Any = Parallel(n_jobs=min(n_jobs, len(jobs)) if on_cpu else 1, return_as="generator_unordered")(
        delayed(_train_one)(name, job, fresh) for name, job in jobs.items()
    )
    for name in finished:
        if on_finished is not None:
            on_finished(name)


def _train_one(name: str, job: TrainJob, fresh: bool) -> str:
    torch.set_num_threads(1)
    try:
        train(
            _start(job),
            job.task,
            job.settings,
            seed=job.seed,
            folder=job.folder,
            fresh=fresh,
            device=job.device,
        )
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    return name


def _start(job: TrainJob) -> Any:
    """The model before its first step."""
    if job.pretrained is None:
        return make_model(job.config, seed=job.seed)
    try:
        model = pretrained(job.task, job.pretrained, symbols=dict(job.symbols), seed=job.seed)
    except OSError as error:
        raise ValueError(f"the model to start from cannot be had: {error}") from error
    if model.cfg != job.config:
        theirs, ours = model.cfg.to_dict(), job.config.to_dict()
        differs = [name for name in {**ours, **theirs} if theirs.get(name) != ours.get(name)]
        raise ValueError(
            f"config is not that of the model to start from, {job.pretrained}: "
            f"{', '.join(f'{name} is {ours.get(name)!r}, not {theirs.get(name)!r}' for name in differs)}. "
            f"interp.training.pretrained.pretrained_config makes one that is."
        )
    return model
