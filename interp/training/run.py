"""What came of training: the model, its learning curves, and where they come from."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.statistics import proportion_interval
from interp.training.run_folder import RunFolder

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class TrainingRun:
    """A trained model with its history and manifest."""

    model: Any
    """A `hooks.Transformer` or `hooks.FullyConnected`, in evaluation mode."""
    history: tuple[dict[str, Any], ...]
    """One record per evaluation: steps done, phase, training loss, held-out accuracy and loss per outcome, seconds."""
    manifest: dict[str, Any]
    """Seed, task, config, settings, versions, hardware, threads."""

    @classmethod
    def load(cls, folder: str | Path) -> "TrainingRun":
        """A finished run from its folder.

        Raises:
            FileNotFoundError: there is no run.
            ValueError: it did not finish, or its files cannot be read.
        """
        files = RunFolder(folder)
        manifest = files.read_manifest()
        return cls(model=files.load_model(), history=tuple(files.read_metrics()), manifest=manifest)

    @property
    def seconds(self) -> float:
        """Time spent training, over all sittings."""
        return self.history[-1]["seconds"] if self.history else 0.0

    @property
    def final_accuracy(self) -> list[float]:
        """Held-out accuracy per outcome of the model: at the last evaluation, or at the best where that was kept."""
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
            {
                "step": record["steps_done"],
                "phase": record["phase"],
                "target": name,
                "accuracy": accuracy,
                "loss": record["loss"],
                "n": n,
            }
            for record in self.history
            for name, accuracy in zip(self.manifest["outcomes"], record["accuracy"], strict=True)
        ]
        frame = pd.DataFrame(rows)
        accuracy = frame["accuracy"].to_numpy(dtype=float)
        asked = np.isfinite(accuracy)  # an outcome that nothing asked for has no accuracy
        ends = proportion_interval(np.rint(np.where(asked, accuracy, 0) * n).astype(int), n)
        frame["low"], frame["high"] = (np.where(asked, end, np.nan) for end in ends)
        return frame

    def plot(self) -> "alt.TopLevelMixin":
        """Held-out accuracy of every target over training."""
        from interp.view.charts import curves

        chance = self.manifest["chance"]
        n = self.manifest["settings"]["n_eval"]
        return curves(
            self.to_dataframe(),
            x="step",
            y="accuracy",
            series="target",
            rule=chance,
            title=f"n = {n} per point",
        )

    def _repr_html_(self) -> str:
        from interp.view.charts import chart_html

        return chart_html(self.plot())


def best_record(history: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The evaluation with the lowest loss on validation examples, mean over outcomes; the first of several.

    Those made while mimicking count only where there are no others.
    """
    on_task = [record for record in history if record.get("phase") != "mimic"]
    return min(on_task or history, key=lambda record: np.nanmean(record["validation_loss"]))
