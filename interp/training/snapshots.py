"""Snapshots: the model at chosen steps of its training, one file each."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import special

from hooks import load_checkpoint

FALSE_CHANGE_RATE = 0.05
"""Probability, at one evaluation, that accuracies count as changed when only noise has moved them."""
SNAPSHOT_NAME = "step-{:08d}.safetensors"


class SnapshotFolder:
    """The snapshots of one training run. Each file is written atomically."""

    def __init__(self, path: Path):
        self.path = path

    @property
    def steps(self) -> tuple[int, ...]:
        """Steps of which there is a snapshot, in order; 0 is before training."""
        numbers = [path.stem.removeprefix("step-") for path in self.path.glob("step-*.safetensors")]
        return tuple(sorted(int(number) for number in numbers if number.isdigit()))

    def file(self, step: int) -> Path:
        """File of the snapshot of a step."""
        return self.path / SNAPSHOT_NAME.format(step)

    def load(self, step: int) -> Any:
        """The model of a step, in evaluation mode.

        Raises:
            ValueError: there is no snapshot of this step, or it cannot be read.
        """
        steps = self.steps
        if step not in steps:
            hint = "it has none: train with snapshots=20"
            if steps:
                hint = f"it has those of {', '.join(map(str, steps))}"
            raise ValueError(f"step is {step}, of which the run in {self.path.parent} has no snapshot; {hint}.")
        return load_checkpoint(self.file(step))

    def cut(self, steps_done: int) -> None:
        """Remove the snapshots of steps that will be repeated, and temporary files of killed processes."""
        for temporary in self.path.glob(".step-*"):
            temporary.unlink(missing_ok=True)
        for step in self.steps:
            if step > steps_done:
                self.file(step).unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove all snapshots."""
        self.cut(-1)
        if self.path.is_dir() and not any(self.path.iterdir()):
            self.path.rmdir()


def snapshot_steps(snapshots: int | Sequence[int] | str | None, total: int) -> tuple[int, ...]:
    """The steps that are fixed before training: those given, or a number of them with a constant ratio.

    Args:
        snapshots: `TrainSettings.snapshots`.
        total: Steps of the training, with mimicking.

    Returns:
        Steps in order. A number of snapshots starts with 0, before training, and 1, and ends with the last step, as
        far as the number allows; of snapshots on change the first and the last are fixed.

    Raises:
        ValueError: more snapshots than steps, or a step after the last.
    """
    if snapshots is None:
        return ()
    if isinstance(snapshots, str):
        return (0, total)
    if not isinstance(snapshots, int):
        if max(snapshots) > total:
            raise ValueError(f"snapshots has step {max(snapshots)}; this training ends at step {total}.")
        return tuple(snapshots)
    if snapshots > total + 1:
        raise ValueError(f"snapshots is {snapshots}; this training has {total} steps, so at most {total + 1}.")
    # Whole steps near a geometric series: after the previous step, and early enough for those that follow
    n_after_start = snapshots - 1
    series = np.geomspace(1, total, n_after_start) if n_after_start > 1 else [total]
    steps = [0]
    for index, target in enumerate(series):
        n_following = n_after_start - 1 - index
        step = max(steps[-1] + 1, round(float(target)))
        steps.append(min(step, total - n_following))
    return tuple(steps)


def has_changed(earlier: Sequence[float], accuracy: Sequence[float], n: int) -> bool:
    """Whether some accuracy has moved by more than its noise: 95 % for all outcomes together.

    The noise is that of two evaluations on other examples, and so larger than that of two on the same.

    Args:
        earlier: Accuracy of each outcome at the last snapshot; NaN for one without answers.
        accuracy: The same at this evaluation.
        n: Examples of an evaluation.
    """
    before = np.asarray(earlier, dtype=float)
    now = np.asarray(accuracy, dtype=float)
    # Standard error of a difference of two accuracies, at their pooled value; one example is added, so that it is not 0
    pooled = ((before + now) * n + 1) / (2 * n + 2)
    standard_error = np.sqrt(2 * pooled * (1 - pooled) / n)
    # Two-sided, and corrected for the number of outcomes (Bonferroni)
    noise = -special.ndtri(FALSE_CHANGE_RATE / 2 / max(1, len(before))) * standard_error
    return bool((np.abs(now - before) > noise).any())
