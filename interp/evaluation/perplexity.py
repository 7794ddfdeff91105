"""Perplexity of a language model on held-out text."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from jaxtyping import Float

from hooks.checks import check_number
from hooks.model.baseline import Baseline
from hooks.state import restores_state
from hooks.typed import COUNT, DISTINCT, MAY_BE_INFINITE, POSITIVE_COUNT, SIZE, Axes, checks_types
from interp.core.consistency import check_same_numbers
from interp.core.intervals import Interval
from interp.core.randomness import derived_generator
from interp.core.results import Result
from interp.core.statistics import t_half_width
from interp.core.verbs import AnyModel, Needs, prepare_scorable
from interp.evaluation.evaluate import ScorableModel, lines_with_intervals, score_batch
from interp.tasks.base import Split, Task
from interp.tasks.splits import sample_split

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class PerplexityResult(Result):
    """Held-out perplexity of every outcome of a text task."""

    targets: Annotated[tuple[str, ...], Axes("target"), DISTINCT]
    """Names of the task's outcomes, in the order of the other fields."""
    perplexity: Annotated[Interval, Axes("target"), SIZE, MAY_BE_INFINITE]
    """Per target: exp of the mean loss, with its 95 % interval, exp of the t interval of the mean loss over windows."""
    loss: Annotated[Float[np.ndarray, " target"], SIZE, MAY_BE_INFINITE]
    """Mean cross entropy per token, in nats."""
    chance: Annotated[int, POSITIVE_COUNT]
    """Perplexity of uniform guessing: the vocabulary size."""
    n: Annotated[int, COUNT]
    """Number of windows."""
    split: str
    """Split of the windows."""

    def __post_init__(self) -> None:
        super().__post_init__()
        with np.errstate(over="ignore"):
            check_same_numbers("perplexity", self.perplexity.value, np.exp(self.loss), "exp of loss")

    def __str__(self) -> str:
        title = f"perplexity on {self.n} {self.split} windows, chance {self.chance}"
        return lines_with_intervals(title, self.targets, self.perplexity, digits=2)

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per target."""
        return self._table({"target": self.targets}, "loss", **self.perplexity.columns("perplexity"), n=self.n)

    def plot(self) -> "alt.TopLevelMixin":
        """A point and an interval per target, on a logarithmic axis from 1 to uniform guessing, the dashed line."""
        from interp.view.charts import dots

        chance = float(self.chance)
        return dots(
            self.to_dataframe(),
            x="target",
            y="perplexity",
            rule=chance,
            domain=(min(1.0, *self.perplexity.low), max(chance, *self.perplexity.high)),
            log_y=True,
            title=f"perplexity, n = {self.n} windows, chance {self.chance}",
        )


NEEDS = Needs("perplexity", answers=True, without_attention=True)


@checks_types
@restores_state
def perplexity(
    model: AnyModel | Baseline, task: Task, *, n: int = 500, split: Split = "test", seed: int = 0
) -> PerplexityResult:
    """exp of the mean loss on held-out windows, with its interval.

    Perplexity is per token, so models with different tokenizers are not comparable. For masked text it covers the
    masked tokens only and does not give a probability of the text. Windows may overlap and share documents: the
    interval is for this corpus, not for other corpora.

    Args:
        model: The model to test. It is not changed.
        task: A text task.
        n: Number of windows.
        split: Split of the windows.
        seed: Seed of the windows.

    Raises:
        ValueError: a task other than Text, fewer than two windows, or an unknown split.

    >>> import interp
    >>> from hooks import make_model
    >>> corpus = interp.tasks.Corpus(documents={f"page {n}": f"This is page {n}. " * 9 for n in range(20)})
    >>> task = interp.tasks.Text(corpus=corpus, n_ctx=8, vocab_size=300)
    >>> model = make_model(interp.config_for(task, n_layers=1, n_heads=2, d_model=16))
    >>> interp.perplexity(model, task, n=20).perplexity.shape
    (1,)
    """
    if not task.is_language:
        raise ValueError(f"task is a {type(task).__name__}; perplexity is defined for Text. Use interp.evaluate.")
    net: ScorableModel = prepare_scorable(model, NEEDS, task)
    # an interval needs two windows
    check_number("n", n, low=2)
    batch = sample_split(task, n, generator=derived_generator(seed, "perplexity", split), split=split)
    score = score_batch(net, task, batch)
    # all windows have the same number of answers
    loss = (score.loss.double() / score.total.double()).numpy()
    # perplexity is exp of the mean loss, and so are the ends of its interval
    mean_loss = loss.mean(0)
    half_width = t_half_width(loss)
    interval = Interval(
        value=np.exp(mean_loss), low=np.exp(mean_loss - half_width), high=np.exp(mean_loss + half_width), n=n
    )
    return PerplexityResult(
        targets=task.outcomes,
        perplexity=interval,
        loss=mean_loss,
        chance=task.d_vocab_out,
        n=n,
        split=split,
    )
