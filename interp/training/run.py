"""A training run, in memory and on disk: manifest, metrics as JSON lines, state to resume from, trained model.

Files are written atomically and metrics lines in one call, so a run killed at any time leaves only readable files.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from hooks import load_checkpoint, save_checkpoint
from hooks.atomic import write_json, write_text
from hooks.checkpoint import read_tensors, write_tensors
from hooks.model.architectures import Model
from interp.core.statistics import proportion_interval
from interp.tasks import task_from
from interp.tasks.base import Task

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

IDENTITY = ("seed", "task", "config", "settings", "initial_weights")
"""Manifest fields that must agree for a run to be resumed."""


class RunFolder:
    """The files of one training run."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.manifest_path = self.path / "manifest.json"
        self.metrics_path = self.path / "metrics.jsonl"
        self.state_path = self.path / "state.safetensors"
        self.best_path = self.path / "best.safetensors"
        self.model_path = self.path / "model.safetensors"

    @property
    def finished(self) -> bool:
        """Whether the trained model has been saved."""
        return self.model_path.exists()

    def clear(self) -> None:
        """Remove the files of this run; other files in the folder stay."""
        for path in (self.model_path, self.best_path, self.state_path, self.metrics_path, self.manifest_path):
            path.unlink(missing_ok=True)

    def open(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """Start a run in this folder or resume one; returns its manifest.

        Raises:
            ValueError: the folder has a run with another seed, task, config, settings or initial weights.
        """
        if not self.manifest_path.exists():
            write_json(self.manifest_path, manifest)
            return manifest
        stored = self.read_manifest()
        given = json.loads(json.dumps(manifest))
        differs = [name for name in IDENTITY if stored.get(name) != given[name]]
        if differs:
            shown = "; ".join(_difference(name, stored.get(name), given[name]) for name in differs)
            raise ValueError(f"{self.path} holds another run: {shown}. Choose another folder, or pass fresh=True.")
        if not self.finished and stored.get("threads") != given["threads"]:
            stored.setdefault("resumed_with_threads", []).append(given["threads"])
            write_json(self.manifest_path, stored)
        return stored

    def read_manifest(self) -> dict[str, Any]:
        """Read the manifest.

        Raises:
            FileNotFoundError: there is no run in this folder.
            ValueError: the manifest cannot be read.
        """
        if not self.manifest_path.exists():
            below = sorted(str(path.parent) for path in self.path.glob(f"*/{self.manifest_path.name}"))
            hint = f" Did you mean {' or '.join(below[:3])}?" if below else ""
            raise FileNotFoundError(f"there is no training run in {self.path} (no {self.manifest_path.name}).{hint}")
        try:
            return json.loads(self.manifest_path.read_text(encoding="utf-8"))
        except json.JSONDecodeError as error:
            raise ValueError(f"{self.manifest_path} is not readable JSON ({error}).") from None

    def append_metrics(self, record: dict[str, Any]) -> None:
        """Append one metrics line, in one call."""
        line = (json.dumps(record) + "\n").encode()
        handle = os.open(self.metrics_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(handle, line)
        finally:
            os.close(handle)

    def read_metrics(self) -> list[dict[str, Any]]:
        """Read all metrics records."""
        if not self.metrics_path.exists():
            return []
        return [json.loads(line) for line in self.metrics_path.read_text(encoding="utf-8").splitlines()]

    def cut_metrics(self, steps_done: int) -> list[dict[str, Any]]:
        """Drop the records of steps that will be repeated; returns the others."""
        kept = [record for record in self.read_metrics() if record["steps_done"] <= steps_done]
        write_text(self.metrics_path, "".join(json.dumps(record) + "\n" for record in kept))
        return kept

    def save_state(self, model: Model, optimizer: torch.optim.Optimizer, steps_done: int, seconds: float) -> None:
        """Write model weights and optimizer state."""
        tensors = {f"model/{name}": value for name, value in model.state_dict().items()}
        for index, slots in optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer/{index}/{name}": value for name, value in slots.items()}
        tensors = {name: tensor.detach().contiguous().cpu() for name, tensor in tensors.items()}
        write_tensors(
            self.state_path,
            tensors,
            kind="training state",
            description={"steps_done": steps_done, "seconds": seconds},
        )

    def load_state(self) -> tuple[dict[str, Tensor], dict[int, dict[str, Tensor]], dict[str, Any]] | None:
        """Model weights, optimizer state and description of the last checkpoint; None if there is none.

        Raises:
            ValueError: the file is not a training state, or cannot be read.
        """
        if not self.state_path.exists():
            return None
        tensors, description = read_tensors(self.state_path, kind="training state")
        weights = {name.removeprefix("model/"): t for name, t in tensors.items() if name.startswith("model/")}
        slots: dict[int, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            if name.startswith("optimizer/"):
                _, index, slot = name.split("/")
                slots.setdefault(int(index), {})[slot] = tensor
        return weights, slots, description

    def save_best(self, model: Model) -> None:
        """Write the best model so far."""
        save_checkpoint(model, self.best_path)

    def load_best(self) -> Any:
        """The best model so far."""
        return load_checkpoint(self.best_path)

    def finish(self, model: Model) -> None:
        """Write the trained model and remove the files needed only to resume."""
        save_checkpoint(model, self.model_path)
        self.state_path.unlink(missing_ok=True)
        self.best_path.unlink(missing_ok=True)

    def load_model(self) -> Any:
        """The trained model.

        Raises:
            ValueError: the run did not finish.
        """
        if not self.finished:
            raise ValueError(f"the run in {self.path} did not finish; run the same training again to resume it.")
        return load_checkpoint(self.model_path)


def _difference(name: str, stored: Any, given: Any) -> str:
    if isinstance(stored, dict) and isinstance(given, dict):
        keys = [key for key in {**stored, **given} if stored.get(key) != given.get(key)]
        return ", ".join(f"{name}.{key} is {stored.get(key)!r}, not {given.get(key)!r}" for key in keys)
    return f"{name} is {stored!r}, not {given!r}"


@dataclass(frozen=True, kw_only=True)
class TrainingRun:
    """A trained model with its learning curves and manifest."""

    model: Any
    """A `hooks.Transformer` or `hooks.FullyConnected`, in evaluation mode."""
    history: tuple[dict[str, Any], ...]
    """One record per evaluation: steps, phase, training loss, validation accuracy and loss per outcome, seconds."""
    manifest: dict[str, Any]
    """Seed, task, config, settings, versions, hardware, threads."""

    @classmethod
    def load(cls, folder: str | Path) -> "TrainingRun":
        """Load a finished run from its folder.

        Raises:
            FileNotFoundError: there is no run in the folder.
            ValueError: the run did not finish, or its files cannot be read.
        """
        files = RunFolder(folder)
        manifest = files.read_manifest()
        return cls(model=files.load_model(), history=tuple(files.read_metrics()), manifest=manifest)

    @classmethod
    def on(cls, task: Task, **values: Any) -> "TrainingRun":
        """A run on a task object that is at hand, whose class need not be registered."""
        run = cls(**values)
        vars(run)["task"] = task  # what the cached property would compute
        return run

    @cached_property
    def task(self) -> Task:
        """The task it was trained on, from the manifest.

        Raises:
            ValueError: a task that is not installed or registered here, or whose settings have changed.
        """
        return task_from(self.manifest["task"], stored=self.manifest.get("task_class", ""))

    @property
    def seconds(self) -> float:
        """Training time, including that before interruptions."""
        return self.history[-1]["seconds"] if self.history else 0.0

    @property
    def final_accuracy(self) -> list[float]:
        """Validation accuracy per outcome of the kept model, which is that of the last or the best evaluation."""
        if not self.history:
            return []
        best = self.manifest["settings"].get("keep") == "best"
        return (best_record(self.history) if best else self.history[-1])["accuracy"]

    def __str__(self) -> str:
        accuracy = " ".join(f"{value:.3f}" for value in self.final_accuracy)
        steps = self.history[-1]["steps_done"] if self.history else 0
        return f"trained {steps} steps in {self.seconds:.0f} s, seed {self.manifest['seed']}; accuracy {accuracy}"

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per evaluation and outcome."""
        import pandas as pd

        n = self.manifest["settings"]["n_eval"]
        rows = [
            (record["steps_done"], record["phase"], name, accuracy, record["loss"], n)
            for record in self.history
            for name, accuracy in zip(self.manifest["outcomes"], record["accuracy"], strict=True)
        ]
        frame = pd.DataFrame(rows, columns=["step", "phase", "target", "accuracy", "loss", "n"])
        accuracy = frame["accuracy"].to_numpy(dtype=float)
        scored = np.isfinite(accuracy)  # an outcome without answers has no accuracy
        ends = proportion_interval(np.rint(np.where(scored, accuracy, 0) * n).astype(int), n)
        frame["low"], frame["high"] = (np.where(scored, end, np.nan) for end in ends)
        return frame

    def plot(self) -> "alt.TopLevelMixin":
        """Validation accuracy of every outcome over training."""
        from interp.view.charts import curves

        title = f"n = {self.manifest['settings']['n_eval']} per point"
        rule = self.manifest["chance"]
        return curves(self.to_dataframe(), x="step", y="accuracy", series="target", rule=rule, title=title)

    def _repr_html_(self) -> str:
        from interp.view.charts import chart_html

        return chart_html(self.plot())


def best_record(history: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The first evaluation with the lowest validation loss, averaged over outcomes.

    Evaluations during mimicking count only if there are no others.
    """
    on_task = [record for record in history if record.get("phase") != "mimic"]
    return min(on_task or history, key=lambda record: np.nanmean(record["validation_loss"]))
