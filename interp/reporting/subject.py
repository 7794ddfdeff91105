"""What a page is about: a model, with its training run if it has one."""

from dataclasses import dataclass
from typing import Any

from interp.core.page_identity import quantity
from interp.core.verbs import prepare_scorable
from interp.evaluation.evaluate import NEEDS
from interp.tasks.base import Task
from interp.training.run import TrainingRun


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A model of a page."""

    model: Any
    """The model; a bridge or `HookedRootModule` is wrapped."""
    run: TrainingRun | None
    """Its training run; None of a model that was not trained here."""

    @property
    def seed(self) -> int:
        """Seed of the held-out examples: that of training, or 0."""
        return 0 if self.run is None else self.run.manifest["seed"]

    @property
    def kind(self) -> str:
        """What the model is, with the sizes of a transformer."""
        cfg = self.model.cfg
        if not self.model.has_attention:
            return self.model.kind
        return f"{self.model.kind} with {quantity(cfg.n_layers, 'layer')} and {quantity(cfg.n_heads, 'head')} per layer"


def subject_of(run_or_model: Any, task: Task) -> Subject:
    """The subject of a training run or of a model.

    Raises:
        ValueError: an object that is neither, or a model that does not fit the task.
    """
    if isinstance(run_or_model, TrainingRun):
        return Subject(model=run_or_model.model, run=run_or_model)
    return Subject(model=prepare_scorable(run_or_model, NEEDS, task), run=None)
