"""How surprised a model is by a text it was not trained on, in tokens to choose from."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from hooks.model.architectures import Model
from interp.core.randomness import derived_generator
from interp.core.results import Result
from interp.core.statistics import t_half_width
from interp.evaluation.evaluate import score_batch
from interp.tasks.base import Split, Task
from interp.tasks.text.task import Text

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class PerplexityResult(Result):
    """Perplexity of every outcome of a text."""

    targets: tuple[str, ...]
    """What the figures are of (the task's `outcomes`), in the order of the other fields."""
    perplexity: Float[np.ndarray, " target"]
    """exp of the mean loss: the number of tokens among which an even guess would do as well."""
    low: Float[np.ndarray, " target"]
    high: Float[np.ndarray, " target"]
    """Ends of the 95 % interval: exp of the t interval of the mean loss; windows are the independent units."""
    loss: Float[np.ndarray, " target"]
    """Mean cross entropy of a token, in nats."""
    chance: int
    """Perplexity of guessing evenly: the number of tokens."""
    n: int
    """Windows behind each figure."""
    split: str
    """Where they come from."""

    def __str__(self) -> str:
        wide = max(4, *(len(name) for name in self.targets))
        cells = zip(self.targets, self.perplexity, self.low, self.high, strict=True)
        lines = [f"  {name:>{wide}}  {value:.2f}  [{low:.2f}, {high:.2f}]" for name, value, low, high in cells]
        return "\n".join([f"perplexity on {self.n} {self.split} windows, chance {self.chance}", *lines])

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per target."""
        import pandas as pd

        names = ("perplexity", "low", "high", "loss")
        return pd.DataFrame({"target": self.targets, **{name: getattr(self, name) for name in names}, "n": self.n})

    def plot(self) -> "alt.TopLevelMixin":
        """A point and an interval per target."""
        from interp.view.charts import dots

        return dots(self.to_dataframe(), x="target", y="perplexity", title=f"perplexity, n = {self.n} windows")


def perplexity(model: Model, task: Task, *, n: int = 500, split: Split = "test", seed: int = 0) -> PerplexityResult:
    """exp of the mean loss on held-out windows, with its interval.

    It is per token of the task's tokenizer: models with different tokenizers cannot be compared by it. For masked text
    it is of the masked tokens only (no probability of the text follows from it). Windows may overlap, and documents
    are fewer than windows: the interval is of this corpus, not of others like it.

    Args:
        model: What to test. It is left in evaluation mode.
        task: Text.
        n: Windows.
        split: Which split they come from.
        seed: Decides the windows.

    Raises:
        ValueError: a task that is no text, fewer than two windows, or an unknown split.
    """
    if not isinstance(task, Text):
        raise ValueError(f"task is a {type(task).__name__}; perplexity is of Text. Use interp.evaluate.")
    if n < 2:
        raise ValueError(f"n is {n}; at least 2 windows are needed for an interval.")
    batch = task.sample(n, generator=derived_generator(seed, "perplexity", split), split=split)
    score = score_batch(model, task, batch)
    loss = (score.loss.double() / score.total.double()).numpy()  # every window has as many answers
    mean, half = loss.mean(0), t_half_width(loss)
    return PerplexityResult(
        targets=task.outcomes,
        perplexity=np.exp(mean),
        low=np.exp(mean - half),
        high=np.exp(mean + half),
        loss=mean,
        chance=task.d_vocab_out,
        n=n,
        split=split,
    )
