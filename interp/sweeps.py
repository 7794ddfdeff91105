"""Many models at once: one process per core, one torch thread each, every run resumable in its own folder."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from joblib import Parallel, delayed

from hooks import Transformer, TransformerConfig
from interp.run_folder import RunFolder
from interp.tasks.base import Task
from interp.train_settings import TrainSettings
from interp.training import train
from interp.training_run import TrainingRun


@dataclass(frozen=True, kw_only=True)
class TrainJob:
    """One model to train: everything that decides its weights, and where they go."""

    task: Task
    config: TransformerConfig
    settings: TrainSettings
    seed: int
    folder: Path


def train_many(
    jobs: Mapping[str, TrainJob],
    *,
    n_jobs: int = 2,
    fresh: bool = False,
    on_progress: Callable[[dict[str, Sequence[dict]]], None] | None = None,
) -> dict[str, TrainingRun]:
    """Train several models side by side; finished ones are loaded, unfinished ones resumed.

    Args:
        jobs: Name and description of each.
        n_jobs: Processes.
        fresh: Forget what the folders hold.
        on_progress: Called about twice a second with each run's metrics so far, and once at the end.

    Raises:
        ValueError: what `train` refuses, or two jobs in one folder.
    """
    if len({job.folder for job in jobs.values()}) < len(jobs):
        raise ValueError("two jobs share a folder; give each run its own.")
    report = on_progress or (lambda metrics: None)
    waiting = Parallel(n_jobs=min(n_jobs, len(jobs)), return_as="generator_unordered")(
        delayed(_train_one)(name, job, fresh) for name, job in jobs.items()
    )
    with _Watcher(jobs, report):
        for _ in waiting:
            pass
    return {name: TrainingRun.load(job.folder) for name, job in jobs.items()}


def _train_one(name: str, job: TrainJob, fresh: bool) -> str:
    torch.set_num_threads(1)
    train(
        Transformer(job.config, seed=job.seed),
        job.task,
        job.settings,
        seed=job.seed,
        folder=job.folder,
        fresh=fresh,
    )
    return name


class _Watcher:
    """Reads the runs' metrics files while they train, in a thread of its own."""

    def __init__(self, jobs: Mapping[str, TrainJob], report: Callable):
        import threading

        self.folders = {name: RunFolder(job.folder) for name, job in jobs.items()}
        self.report = report
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self.stopped.wait(0.5):
            self.report({name: folder.read_metrics() for name, folder in self.folders.items()})

    def __enter__(self) -> "_Watcher":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        self.thread.join()
        self.report({name: folder.read_metrics() for name, folder in self.folders.items()})
