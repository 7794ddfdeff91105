"""How often a model is right, target by target, on examples it was not trained on."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float

from hooks import BridgeModel, FullyConnected
from hooks.model.architectures import Model
from interp.core.activations import CHUNK, SHORT, chunks
from interp.core.devices import device_of
from interp.core.randomness import derived_generator
from interp.core.results import Result
from interp.core.statistics import pooled_interval
from interp.core.verbs import AnyModel, prepare_model
from interp.tasks.base import Batch, Score, Split, Task, logits_at_targets

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd


LOGITS = 1 << 24
"""Most logits that are held at the same time, where there is more than one sequence."""


@dataclass(frozen=True, kw_only=True)
class EvaluationResult(Result):
    """Held-out accuracy of every outcome of a task."""

    targets: tuple[str, ...]
    """What the accuracies are of (the task's `outcomes`), in the order of the other fields."""
    accuracy: Float[np.ndarray, " target"]
    """Fraction of examples answered correctly, 0 to 1."""
    low: Float[np.ndarray, " target"]
    high: Float[np.ndarray, " target"]
    """Ends of the 95 % interval (Clopper-Pearson); examples are the independent units, not answers."""
    chance: float
    """Accuracy of guessing evenly."""
    n: int
    """Examples behind each figure."""
    split: str
    """Where they come from."""

    def __str__(self) -> str:
        wide = max(4, *(len(name) for name in self.targets))
        cells = zip(self.targets, self.accuracy, self.low, self.high, strict=True)
        lines = [f"  {name:>{wide}}  {value:.4f}  [{low:.4f}, {high:.4f}]" for name, value, low, high in cells]
        chance = f"{self.chance:.2f}" if self.chance >= 0.01 else f"{self.chance:.1g}"
        return "\n".join([f"accuracy on {self.n} {self.split} examples, chance {chance}", *lines])

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per target."""
        import pandas as pd

        return pd.DataFrame(
            {
                "target": self.targets,
                "accuracy": self.accuracy,
                "low": self.low,
                "high": self.high,
                "n": self.n,
            }
        )

    def plot(self) -> "alt.TopLevelMixin":
        """A point and an interval per target."""
        from interp.view.charts import dots

        return dots(
            self.to_dataframe(),
            x="target",
            y="accuracy",
            rule=self.chance,
            title=f"accuracy, n = {self.n} per point",
        )


Answering = Model | BridgeModel
"""What can be scored."""


def evaluate(
    model: AnyModel | FullyConnected,
    task: Task,
    *,
    n: int = 10_000,
    split: Split = "test",
    depth: int | None = None,
    seed: int = 0,
) -> EvaluationResult:
    """Accuracy of every target on fresh held-out examples.

    Args:
        model: What to test.
        task: Where examples come from and what is right.
        n: How many examples.
        split: Which split they come from.
        depth: Number of layers to apply; all when left out. A TransformerLens bridge always applies all.
        seed: Decides the examples.

    Raises:
        ValueError: fewer than one example, an unknown split, a depth for a bridge, or no model that is accepted.
    """
    if n < 1:
        raise ValueError(f"n is {n}; at least 1 example is needed.")
    net: Answering = model if isinstance(model, FullyConnected) else prepare_model(model, "evaluate")
    if depth is not None and isinstance(net, BridgeModel):
        raise ValueError(f"depth is {depth}; a TransformerLens bridge always applies all of its layers. Leave it out.")
    batch = task.sample(n, generator=derived_generator(seed, "evaluate", split), split=split)
    score = score_batch(net, task, batch, depth=depth)
    accuracy, low, high = pooled_interval(score.right.double().numpy(), score.total.double().numpy())
    return EvaluationResult(
        targets=task.outcomes,
        accuracy=accuracy,
        low=low,
        high=high,
        chance=task.chance,
        n=n,
        split=split,
    )


def held_out(model: Answering, task: Task, batch: Batch) -> tuple[list[float], list[float]]:
    """Share of right answers and loss per answer, per outcome; the model is left in evaluation mode."""
    score = score_batch(model, task, batch)
    asked = score.total.double().sum(0)
    return (score.right.double().sum(0) / asked).tolist(), (score.loss.double().sum(0) / asked).tolist()


@torch.no_grad()
def score_batch(model: Answering, task: Task, batch: Batch, *, depth: int | None = None) -> Score:
    """How the model does on each example, a chunk at a time; it is left in evaluation mode.

    Chunks go to the device that the model is on; the result is on the CPU.
    """
    model.eval()
    device = device_of(model)
    extra = {} if depth is None else {"depth": depth}
    pos = batch.tokens.shape[1]
    size = max(1, min(CHUNK * SHORT // max(SHORT, pos), LOGITS // (pos * task.d_vocab_out)))
    scores = [
        task.score(logits_at_targets(model(part.tokens, **part.model_inputs(), **extra), part), part)
        for part in (chunk.to(device) for chunk in chunks(batch, size))
    ]
    columns = {name: [getattr(score, name) for score in scores] for name in ("right", "loss", "total")}
    return Score(**{name: torch.cat(parts).cpu() for name, parts in columns.items()})
