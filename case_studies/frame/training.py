"""Training the models that claims need: which are missing, how long they take, in which order they are trained."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interp.core.progress import Count, say
from interp.sweeps.cost import training_memory, training_operations
from interp.sweeps.parallel import train_to_disk
from interp.sweeps.spec import ModelSpec
from interp.sweeps.status import run_status
from interp.training.folder import RunFolder


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The trainings that a run needs."""

    trained: int
    """Number of models that are trained already."""
    missing: int
    operations: float
    """Floating-point operations of the missing ones, estimated: `training_operations`."""
    seconds: float | None
    """Of one process, at the speed of the models that are trained; None if none is."""
    processes: int
    memory: float
    """Bytes that the largest of the missing models takes, estimated: `training_memory`."""

    def __str__(self) -> str:
        models = self.trained + self.missing
        if not self.missing:
            return f"plan: {models} models, all trained"
        if self.seconds is None:
            duration = f"; how long is known when some of its {models} models are trained"
        else:
            hours = self.seconds / 3600 / self.processes
            text = f"{hours:.1f} hours" if hours >= 1 else f"{max(1, round(60 * hours))} minutes"
            duration = f", about {text} in {self.processes} at a time, at the speed of those that are trained"
        return (
            f"plan: {models} models, {self.trained} trained, {self.missing} to train with {self.operations:.1e} "
            f"operations{duration}; {self.memory / 1e9:.2g} GB for the largest"
        )


def plan_training(specs: Iterable[ModelSpec], folder: Path, *, n_jobs: int) -> Plan:
    """What training these models takes.

    Args:
        specs: Models that are needed.
        folder: Folder of trained models.
        n_jobs: Number of processes.
    """
    # The missing models, and operations and seconds of those that are trained and have a learning curve
    missing: list[ModelSpec] = []
    trained = 0
    operations, seconds = 0.0, 0.0
    for spec in specs:
        run = RunFolder(folder / spec.key)
        if run_status(run.path, spec.description) != "trained":
            missing.append(spec)
            continue
        trained += 1
        curve = run.read_metrics()
        if curve:
            operations += training_operations(spec)
            seconds += curve[-1]["seconds"]
    # At their speed, the missing ones take this long
    to_train = float(sum(map(training_operations, missing)))
    return Plan(
        trained=trained,
        missing=len(missing),
        operations=to_train,
        seconds=to_train * seconds / operations if operations and seconds else None,
        processes=n_jobs,
        memory=max(map(training_memory, missing), default=0.0),
    )


def missing_models(specs: Iterable[ModelSpec], folder: Path, *, fresh: bool) -> list[list[ModelSpec]]:
    """Models to train in stages: pretrained models before those that start from them, longest trainings first.

    A pretrained model is needed only if some model that starts from it is missing.

    Args:
        specs: Models that are needed, without the pretrained ones.
        folder: Folder of trained models.
        fresh: Whether those that are trained are trained again.

    Raises:
        ForeignRun: a folder has another model than its key says.
    """
    missing: dict[str, ModelSpec] = {}
    for spec in specs:
        for model in (spec, *reversed(spec.sources)):
            if not fresh and RunFolder(folder / model.key).is_trained(model.description):
                break  # so its pretrained model is not needed
            missing[model.key] = model
    # A stage for each number of models that a model starts from
    by_stage: dict[int, list[ModelSpec]] = {}
    for spec in sorted(missing.values(), key=training_operations, reverse=True):
        by_stage.setdefault(len(spec.sources), []).append(spec)
    return [by_stage[stage] for stage in sorted(by_stage)]


def train_models(
    stages: list[list[ModelSpec]],
    folder: Path,
    *,
    plan: Plan,
    fresh: bool = False,
    device: str | None = None,
    scheduler: Any = None,
) -> None:
    """Train models stage by stage, with a bar of progress.

    Args:
        stages: As from `missing_models`.
        folder: Folder of trained models.
        plan: Its text is printed first; its number of processes is used.
        fresh: Whether unfinished trainings start again.
        device: As in `train_to_disk`.
        scheduler: As in `train_to_disk`.
    """
    operations = {folder / spec.key: training_operations(spec) for stage in stages for spec in stage}
    say(str(plan))
    with Count("training models", len(operations), work=sum(operations.values())) as count:
        for stage in stages:
            train_to_disk(
                {folder / spec.key: spec for spec in stage},
                n_jobs=plan.processes,
                device=device,
                fresh=fresh,
                on_finished=lambda path: count.advance(work=operations[path]),
                scheduler=scheduler,
            )
