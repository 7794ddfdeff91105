"""What a run of a study will do, said before it begins: models, operations, hours, memory."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from interp.sweeps.spec import ModelSpec
from interp.training.folder import RunFolder


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The trainings that a run needs."""

    there: int
    """Number of models that are trained already."""
    missing: int
    operations: float
    """Floating-point operations of the missing ones, estimated: `ModelSpec.operations`."""
    seconds: float | None
    """Of one process, at the speed of the models that are there; None if there are none."""
    processes: int
    memory: float
    """Bytes that the largest of the missing models takes, estimated: `ModelSpec.memory`."""

    def __str__(self) -> str:
        models = self.there + self.missing
        if not self.missing:
            return f"plan: {models} models, all trained"
        speed = f"; how long is known when some of its {models} models are trained"
        if self.seconds is not None:
            hours = self.seconds / 3600 / self.processes
            long = f"{hours:.1f} hours" if hours >= 1 else f"{max(1, round(60 * hours))} minutes"
            speed = f", about {long} in {self.processes} at a time, at the speed of those that are there"
        return (
            f"plan: {models} models, {self.there} trained, {self.missing} to train with {self.operations:.1e} "
            f"operations{speed}; {self.memory / 1e9:.2g} GB for the largest"
        )


def make_plan(specs: Iterable[ModelSpec], models: Path, *, n_jobs: int) -> Plan:
    """The plan for these models.

    Args:
        specs: Models that are needed.
        models: Folder of trained models.
        n_jobs: Number of processes.
    """
    there = missing = 0
    done = to_do = seconds = memory = 0.0
    for spec in specs:
        run = RunFolder(models / spec.key)
        if not run.finished:
            missing += 1
            to_do += spec.operations
            memory = max(memory, spec.memory)
            continue
        there += 1
        records = run.read_metrics()
        if records:
            done += spec.operations
            seconds += records[-1]["seconds"]
    estimated = to_do * seconds / done if done and seconds else None
    return Plan(there=there, missing=missing, operations=to_do, seconds=estimated, processes=n_jobs, memory=memory)
