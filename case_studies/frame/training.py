"""Training the models that claims need: which are missing, how long they take, in which order they are trained."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interp.core.devices import is_accelerator
from interp.core.progress import Count, say
from interp.sweeps.cost import training_memory, training_operations
from interp.sweeps.parallel import Specs, train_to_disk
from interp.sweeps.spec import ModelSpec
from interp.sweeps.speed import timed_trainings
from interp.sweeps.stacked import in_stacks, train_stacked
from interp.sweeps.status import run_status
from interp.training.folder import RunFolder


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The trainings and measurements that a run needs."""

    trained: int
    """Number of models that are trained already."""
    missing: int
    seconds: float | None
    """Training time of the missing ones in one process; None if not known."""
    longest: float | None
    """The same of the one that takes longest."""
    speed: str
    """What the seconds are based on, in words."""
    processes: int
    memory: float
    """Bytes that the largest of the missing models takes, estimated: `training_memory`."""
    claims: int = 0
    """Number of claims to measure."""
    timed_claims: int = 0
    """Number of those that have been measured before at this size."""
    measuring_seconds: float = 0.0
    """What these took."""

    def __str__(self) -> str:
        return "\n".join([self._training(), self._measuring()]) if self.claims else self._training()

    def _measuring(self) -> str:
        label = f"{self.claims} claims to measure"
        if not self.timed_claims:
            return f"{label}: how long is not known until they have been measured once at this size"
        text = f"{label}: {self._duration(self.measuring_seconds, self.timed_claims)}"
        untimed = self.claims - self.timed_claims
        if not untimed:
            return f"{text}, which is what they took before"
        return f"{text} for {self.timed_claims}, which is what they took before; not known for {untimed}"

    def _training(self) -> str:
        models = self.trained + self.missing
        if not models:
            return "plan: no models to train"
        if not self.missing:
            return f"plan: {models} models, all trained"
        duration = "how long is not known until the first of them is trained"
        if self.seconds is not None:
            longest = self.longest or 0.0
            duration = f"{self._duration(self.seconds, self.missing, longest)}, {self.speed}"
        return (
            f"plan: {models} models, {self.trained} trained, {self.missing} to train: {duration}; "
            f"{self.memory / 1e9:.2g} GB for the largest"
        )

    def _duration(self, seconds: float, n: int, longest: float = 0.0) -> str:
        """The time of n calls in parallel, in words."""
        processes = min(self.processes, n)
        minutes = max(seconds / processes, longest) / 60
        where = f" in {processes} processes" if processes > 1 else ""
        if minutes < 1:
            return f"less than a minute{where}"
        if minutes < 1.5:
            return f"about a minute{where}"
        if minutes < 120:
            return f"about {minutes:.0f} minutes{where}"
        hours = minutes / 60
        return f"about {hours:,.0f} hours{where}" if hours < 72 else f"about {hours / 24:,.0f} days{where}"


def plan_training(specs: Iterable[ModelSpec], folder: Path, *, n_jobs: int, timed: bool = False) -> Plan:
    """What training these models takes.

    Args:
        specs: Models that are needed.
        folder: Folder of trained models, whose speed is that of the missing ones.
        n_jobs: Number of processes.
        timed: Whether a few steps of the missing models are timed if none is trained.
    """
    # The missing models, and operations and seconds of those that are trained and have a learning curve
    missing: list[ModelSpec] = []
    trained, n_curves = 0, 0
    operations, seconds = 0.0, 0.0
    for spec in specs:
        run = RunFolder(folder / spec.key)
        if run_status(run.path, spec.description) != "trained":
            missing.append(spec)
            continue
        trained += 1
        curve = run.read_metrics()
        if curve:
            n_curves += 1
            operations += training_operations(spec)
            seconds += curve[-1]["seconds"]
    # How long the missing ones take
    missing_seconds: list[float] | None = None
    speed = ""
    if operations and seconds:
        missing_seconds = [training_operations(spec) * seconds / operations for spec in missing]
        speed = f"at the speed of the {n_curves} that are trained"
    elif timed and missing:
        missing_seconds = timed_trainings(missing)
        speed = "from a few steps timed on one core of this machine"
    return Plan(
        trained=trained,
        missing=len(missing),
        seconds=None if missing_seconds is None else sum(missing_seconds),
        longest=None if missing_seconds is None else max(missing_seconds, default=0.0),
        speed=speed,
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
    """Train models stage by stage, with a bar of progress; on an accelerator stacked where they can be.

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
            separate = {folder / spec.key: spec for spec in stage}
            # On an accelerator, models of one config are trained as one if they can be
            if is_accelerator(device) and scheduler is None:
                stacks, separate = in_stacks(separate)
                for stack in stacks:
                    separate |= _stacked(stack, device=device, fresh=fresh, count=count, operations=operations)
            train_to_disk(
                separate,
                n_jobs=plan.processes,
                device=device,
                fresh=fresh,
                on_finished=lambda path: count.advance(work=operations[path]),
                scheduler=scheduler,
            )


def _stacked(
    stack: Specs, *, device: str | None, fresh: bool, count: Count, operations: Mapping[Path, float]
) -> dict[Path, ModelSpec]:
    """Train models as one; returns those that failed or that another process trains, which are to be tried alone."""
    remaining: dict[Path, ModelSpec] = {}

    def report(path: Path, error: Exception | None) -> None:
        if error is None:
            count.advance(work=operations[path])
        else:
            remaining[path] = stack[path]

    train_stacked(stack, device=device, fresh=fresh, on_outcome=report)
    return remaining
