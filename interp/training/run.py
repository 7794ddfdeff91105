"""A training run: trained model, learning curves, manifest.

A run is resumed by `Trainer._resume` (`train.py`) from what `RunFolder.load_state` (`folder.py`) reads.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hooks.typed import checks_types
from interp.core.results import plots_offline
from interp.core.statistics import proportion_interval
from interp.tasks import task_from
from interp.tasks.base import Task
from interp.training.folder import RunFolder
from interp.training.identity import ADVICE, check_file

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class TrainingRun:
    """A trained model with its learning curves and manifest."""

    model: Any
    """A `hooks.Transformer`, or a baseline without attention, in evaluation mode."""
    history: tuple[dict[str, Any], ...]
    """One record per evaluation: steps, phase, training loss, validation accuracy and loss per outcome, seconds."""
    manifest: dict[str, Any]
    """Seed, task, config, settings, versions, hardware, threads."""
    folder: Path | None = None
    """Folder of the run, if it has one."""

    @classmethod
    @checks_types
    def load(cls, folder: str | Path, *, expected: Mapping[str, Any] | None = None) -> "TrainingRun":
        """Load a finished run from its folder, after a check that its files are those that the run wrote.

        Args:
            folder: Folder of the run. If its name is the key of a `ModelSpec`, it must have that model.
            expected: What the run should be, as `ModelSpec.description`; default: what its manifest says.

        Raises:
            FileNotFoundError: there is no run in the folder.
            ForeignRun: the folder has another run, or files that are not its own.
            ValueError: the run did not finish, or its files cannot be read.
        """
        files = RunFolder(folder)
        manifest = files.read_manifest(expected)
        history = tuple(files.read_metrics())
        for record in history:
            if len(record["accuracy"]) != len(manifest["outcomes"]):
                raise ValueError(
                    f"{files.metrics_path} has {len(record['accuracy'])} accuracies at step {record['steps_done']}, "
                    f"but the manifest has {len(manifest['outcomes'])} outcomes. {ADVICE}"
                )
        model = files.load_model(expected)
        return cls(model=model, history=history, manifest=manifest, folder=files.path)

    @classmethod
    def with_task(cls, task: Task, **values: Any) -> "TrainingRun":
        """A run on a task object, whose class need not be registered.

        Args:
            task: The task it was trained on.
            values: Fields of the run.
        """
        run = cls(**values)
        vars(run)["task"] = task  # what the cached property would compute
        return run

    @cached_property
    def task(self) -> Task:
        """The task it was trained on, from the manifest.

        Raises:
            ValueError: a task that is not installed or registered here, or whose settings have changed.
        """
        try:
            return task_from(self.manifest["task"], stored=self.manifest.get("task_class", ""))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"the task of this run cannot be read from its manifest.json: {error}") from error

    @property
    def snapshots(self) -> tuple[int, ...]:
        """Steps of which the run has a snapshot, in order; 0 is before training. See `TrainSettings.snapshots`."""
        return () if self.folder is None else RunFolder(self.folder).snapshots.steps

    def load_snapshot(self, step: int) -> Any:
        """The model of a snapshot, in evaluation mode.

        Raises:
            ValueError: there is no snapshot of this step, or it cannot be read.
        """
        if self.folder is None:
            raise ValueError("this run has no folder, and so no snapshots; train with folder= and snapshots=20.")
        files = RunFolder(self.folder)
        model = files.snapshots.load(step)
        self.check_snapshot(step)
        return model

    def check_snapshot(self, step: int) -> None:
        """Check that the file of a snapshot is the one that this run wrote.

        Raises:
            ForeignRun: it is another file.
        """
        assert self.folder is not None
        files = RunFolder(self.folder)
        check_file(self.manifest, files.path, files.snapshots.file(step))

    @property
    def seconds(self) -> float:
        """Training time, including that before interruptions."""
        return self.history[-1]["seconds"] if self.history else 0.0

    @property
    def final_accuracy(self) -> list[float]:
        """Validation accuracy per outcome of the kept model, which is that of the last or the best evaluation."""
        if not self.history:
            return []
        keeps_best = self.manifest["settings"].get("keep") == "best"
        record = best_record(self.history) if keeps_best else self.history[-1]
        return record["accuracy"]

    @property
    def at_chance(self) -> tuple[str, ...]:
        """Outcomes whose validation accuracy is not above chance: its 95 % interval has values up to chance."""
        n, chance = self.manifest["settings"]["n_eval"], self.manifest["chance"]
        names = []
        for name, accuracy in zip(self.manifest["outcomes"], self.final_accuracy, strict=False):
            # An outcome without answers has no accuracy
            if np.isfinite(accuracy) and proportion_interval(np.array(round(accuracy * n)), n)[0] <= chance:
                names.append(name)
        return tuple(names)

    def __str__(self) -> str:
        accuracy = " ".join(f"{value:.3f}" for value in self.final_accuracy)
        steps = self.history[-1]["steps_done"] if self.history else 0
        text = f"trained {steps} steps in {self.seconds:.0f} s, seed {self.manifest['seed']}; accuracy {accuracy}"
        if self.at_chance:
            text += (
                f"\nNOT LEARNED: accuracy is not above chance ({self.manifest['chance']:.2g}) on "
                f"{', '.join(self.at_chance)}; train longer or with other settings"
            )
        return text

    __repr__ = __str__  # at a prompt, as the `repr` of a dataclass has the whole history

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per evaluation and outcome."""
        import pandas as pd

        n = self.manifest["settings"]["n_eval"]
        rows = []
        for record in self.history:
            for name, accuracy in zip(self.manifest["outcomes"], record["accuracy"], strict=True):
                rows.append((record["steps_done"], record["phase"], name, accuracy, record["loss"], n))
        frame = pd.DataFrame(rows, columns=["step", "phase", "target", "accuracy", "loss", "n"])
        accuracy = frame["accuracy"].to_numpy(dtype=float)
        scored = np.isfinite(accuracy)  # an outcome without answers has no accuracy
        n_correct = np.rint(np.where(scored, accuracy, 0) * n).astype(int)
        low, high = proportion_interval(n_correct, n)
        frame["low"] = np.where(scored, low, np.nan)
        frame["high"] = np.where(scored, high, np.nan)
        return frame

    @plots_offline
    def plot(self) -> "alt.TopLevelMixin":
        """Validation accuracy of every outcome over training."""
        from interp.view.charts import curves

        title = f"n = {self.manifest['settings']['n_eval']} per point"
        rule = self.manifest["chance"]
        return curves(self.to_dataframe(), x="step", y="accuracy", series="target", rule=rule, title=title)

    def _repr_html_(self) -> str:
        from interp.view.figures import notebook_html

        return notebook_html(self.plot(), self.to_dataframe())


def best_record(history: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The first evaluation with the lowest validation loss, averaged over outcomes.

    Evaluations during mimicking count only if there are no others.
    """
    on_task = [record for record in history if record.get("phase") != "mimic"]
    return min(on_task or history, key=lambda record: np.nanmean(record["validation_loss"]))
