"""Tasks to learn, questions to ask of what was learned. Names load on first use: importing this is free."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from interp import tasks
    from interp.evaluation import EvaluationResult, evaluate
    from interp.models import config_for
    from interp.probe_result import ProbeResult
    from interp.probing import probe
    from interp.report import report, report_run
    from interp.train_settings import Mimicking, TrainSettings
    from interp.training import train
    from interp.training_run import TrainingRun

_HOME = {
    "EvaluationResult": "evaluation",
    "Mimicking": "train_settings",
    "ProbeResult": "probe_result",
    "TrainSettings": "train_settings",
    "TrainingRun": "training_run",
    "config_for": "models",
    "evaluate": "evaluation",
    "probe": "probing",
    "report": "report",
    "report_run": "report",
    "train": "training",
}

__all__ = [
    "EvaluationResult",
    "Mimicking",
    "ProbeResult",
    "TrainSettings",
    "TrainingRun",
    "config_for",
    "evaluate",
    "probe",
    "report",
    "report_run",
    "tasks",
    "train",
]


def __getattr__(name: str) -> Any:
    if name == "tasks":
        return import_module("interp.tasks")
    if name in _HOME:
        home = import_module(f"interp.{_HOME[name]}")
        # all names of that module at once: a submodule of the same name (`interp.report`) must not win
        globals().update({other: getattr(home, other) for other, where in _HOME.items() if where == _HOME[name]})
        return globals()[name]
    raise AttributeError(f"interp has no {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted(__all__)
