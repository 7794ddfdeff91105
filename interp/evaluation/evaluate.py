"""Held-out accuracy of each outcome of a task."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import torch

from hooks import BridgeModel
from hooks.model.architectures import Model
from hooks.model.baseline import Baseline
from hooks.model.layers import is_hooked
from hooks.state import restores_state
from hooks.typed import COUNT, DISTINCT, MAY_BE_MISSING, SHARE, Axes, checks_types
from interp.core.activations import chunks, examples_per_pass
from interp.core.devices import device_of
from interp.core.inputs import all_inputs_text, distinct_inputs, repeats_text, sum_by_input
from interp.core.intervals import Interval
from interp.core.randomness import derived_generator
from interp.core.read_out import MOST_LOGITS
from interp.core.results import Result
from interp.core.statistics import pooled_interval
from interp.core.verbs import AnyModel, Needs, prepare_scorable
from interp.tasks.base import Batch, Score, Split, Task, logits_at_targets
from interp.tasks.splits import ALL, EveryInput, check_sample_size, sample_split

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class EvaluationResult(Result):
    """Held-out accuracy of every outcome of a task."""

    targets: Annotated[tuple[str, ...], Axes("target"), DISTINCT]
    """Names of the task's outcomes, in the order of the other fields."""
    accuracy: Annotated[Interval, Axes("target"), SHARE, MAY_BE_MISSING]
    """Per target: fraction of answers that are correct, 0 to 1, with its 95 % interval (Clopper-Pearson), whose
    independent units are distinct examples, not answers; exact if every input was counted."""
    chance: Annotated[float, SHARE]
    """Accuracy of uniform guessing."""
    n: Annotated[int, COUNT]
    """Number of examples."""
    split: str
    """Split of the examples."""

    def __str__(self) -> str:
        repeats = repeats_text(self.n, int(self.accuracy.n))
        examples = f"{self.n} {self.split} examples{repeats}"
        if self.accuracy.exact:
            examples = f"{all_inputs_text(self.n)}, split {self.split}"
        title = f"accuracy on {examples}, chance {short_chance(self.chance)}"
        return lines_with_intervals(title, self.targets, self.accuracy, digits=4)

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per target."""
        return self._table({"target": self.targets}, **self.accuracy.columns("accuracy"), n=self.n)

    def plot(self) -> "alt.TopLevelMixin":
        """A point and an interval per target."""
        from interp.view.charts import dots

        title = f"accuracy, n = {self.n}{repeats_text(self.n, int(self.accuracy.n))} per point"
        return dots(self.to_dataframe(), x="target", y="accuracy", rule=self.chance, title=title)


ScorableModel = Model | BridgeModel
"""Models that can be scored."""


NEEDS = Needs("evaluate", answers=True, without_attention=True)


@checks_types
@restores_state
def evaluate(
    model: AnyModel | Baseline,
    task: Task,
    *,
    n: int | EveryInput = 10_000,
    split: Split = "test",
    seed: int = 0,
) -> EvaluationResult:
    """Accuracy of every outcome on fresh held-out examples.

    Args:
        model: The model to test.
        task: Task that samples and scores the examples.
        n: Number of examples; "all" for every input of the split, without sampling error.
        split: Split of the examples.
        seed: Seed of the examples.

    Raises:
        ValueError: fewer than one example, an unknown split, or an object that is not a model.

    >>> import interp
    >>> from interp.tasks import Lego
    >>> task = Lego(n_vars=2)
    >>> model = interp.known_answers.lego_loop(task)
    >>> interp.evaluate(model, task, n=100).accuracy[1].text()
    '1.000 [0.960, 1.000]'
    >>> interp.evaluate(model, task, n="all").accuracy[1].text()
    '1.000 (exact)'
    """
    check_sample_size("n", n, low=1)
    net: ScorableModel = prepare_scorable(model, NEEDS, task)
    # fresh examples, and their scores
    batch = sample_split(task, n, generator=derived_generator(seed, "evaluate", split), split=split)
    score = score_batch(net, task, batch)
    # equal inputs are one independent unit
    inputs = distinct_inputs(batch)
    right = sum_by_input(score.right.double().numpy(), inputs)
    total = sum_by_input(score.total.double().numpy(), inputs)
    value, low, high = pooled_interval(right, total)
    accuracy = Interval(value=value, low=low, high=high, n=len(right))
    return EvaluationResult(
        targets=task.outcomes,
        accuracy=accuracy.as_exact() if n == ALL else accuracy,
        chance=task.chance,
        n=len(batch),
        split=split,
    )


def held_out(model: ScorableModel, task: Task, batch: Batch) -> tuple[list[float], list[float]]:
    """Accuracy and mean loss per answer of each outcome. The model is left in evaluation mode."""
    score = score_batch(model, task, batch)
    total = score.total.double().sum(0)
    accuracy = score.right.double().sum(0) / total
    loss = score.loss.double().sum(0) / total
    return accuracy.tolist(), loss.tolist()


@torch.no_grad()
def score_batch(model: ScorableModel, task: Task, batch: Batch) -> Score:
    """Score of every example, computed in chunks on the model's device and returned on the CPU.

    The model is left in evaluation mode.
    """
    # Of the last layer only the targets, unless a hook must see all positions
    reads_targets = model.takes_read_at and not is_hooked(model)
    logits_per_example = (batch.labels if reads_targets else batch.tokens).shape[1] * task.d_vocab_out
    scores = []
    for chunk in chunks_on_device(model, batch, most=MOST_LOGITS // logits_per_example):
        if reads_targets:
            logits = model(chunk.tokens, **chunk.model_inputs(), read_at=chunk.target_positions)
        else:
            logits = logits_at_targets(model(chunk.tokens, **chunk.model_inputs()), chunk)
        scores.append(task.score(logits, chunk))
    return Score(
        right=torch.cat([score.right for score in scores]).cpu(),
        loss=torch.cat([score.loss for score in scores]).cpu(),
        total=torch.cat([score.total for score in scores]).cpu(),
    )


def chunks_on_device(model: ScorableModel, batch: Batch, *, most: int = sys.maxsize) -> Iterator[Batch]:
    """Chunks of a batch for one forward pass each, on the model's device; puts the model in evaluation mode."""
    model.eval()
    device = device_of(model)
    for chunk in chunks(batch, max(1, min(examples_per_pass(batch, device), most))):
        yield chunk.to(device)


def short_chance(chance: float) -> str:
    """Chance with two decimals, or one digit below 0.01."""
    return f"{chance:.2f}" if chance >= 0.01 else f"{chance:.1g}"


def lines_with_intervals(title: str, names: tuple[str, ...], estimates: Interval, *, digits: int) -> str:
    """A title, then one line per name: value and interval."""
    width = max(4, *(len(name) for name in names))
    lines = [f"  {name:>{width}}  {estimates[index].text(digits)}" for index, name in enumerate(names)]
    return "\n".join([title, *lines])
