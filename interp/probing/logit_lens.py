"""The logit lens: what the model would answer if its read-out were applied after each layer."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from hooks.interventions.clean_pass import Net
from hooks.state import restores_state
from hooks.typed import COUNT, DISTINCT, MAY_BE_MISSING, SHARE, Axes, checks_types
from interp.core.activations import chunks, residual_names
from interp.core.inputs import all_inputs_text
from interp.core.intervals import Interval
from interp.core.read_out import check_read_out, chunk_size, contrasts_of, read_out, rows_at_targets
from interp.core.results import Result, count_range, table_lines
from interp.core.sample import Sample
from interp.core.statistics import mean_interval, share_interval
from interp.core.verbs import EMBEDDED_STREAM, AnyModel, Needs, prepare_model
from interp.tasks.base import Batch, Task
from interp.tasks.outputs import checked_answers
from interp.tasks.splits import EveryInput

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

MOST_CURVES = 12
"""Largest number of targets that are drawn as curves; more are a map."""


@dataclass(frozen=True, kw_only=True)
class LogitLensResult(Result):
    """Answers of the read-out after every layer. Layer 0 is the embedding's output."""

    targets: Annotated[tuple[str, ...], Axes("target"), DISTINCT]
    """Names of the targets."""
    accuracy: Annotated[Interval, Axes("layer target"), SHARE, MAY_BE_MISSING]
    """Per layer and target: fraction of examples answered correctly, 0 to 1, with its 95 % interval (Clopper-Pearson),
    whose trials are distinct inputs; exact if every input was counted. The last layer has the model's own accuracy."""
    control: Annotated[Float[np.ndarray, "layer target"], SHARE, MAY_BE_MISSING]
    """Accuracy of the same answers on the labels of other examples, over all pairs: what a constant answer, or one that
    is often right by chance, scores."""
    logit_difference: Annotated[Interval, Axes("layer target"), MAY_BE_MISSING]
    """Per layer and target: the correct answer's logit minus the mean logit of all other answers, in logits, mean over
    examples with its 95 % t interval."""
    n: Annotated[int, COUNT]
    """Examples sampled, or all that there are."""

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per layer and target."""
        axes = {"layer": range(len(self.accuracy)), "target": self.targets}
        columns = self.accuracy.columns("accuracy")
        columns |= self.logit_difference.columns("logit_difference", "logit_low", "logit_high")
        return self._table(axes, "control", **columns, n=np.broadcast_to(self.accuracy.n, self.accuracy.shape))

    def plot(self) -> "alt.TopLevelMixin":
        """Accuracy after each layer, a curve per target, with the control dashed; a map of more than 12 targets."""
        import pandas as pd

        from interp.view.charts import curves, heatmaps

        n = count_range(np.asarray(self.accuracy.n))
        within = "exact" if self.accuracy.exact else f"95 % within ±{self.accuracy.half_width:.3f}"
        title = f"logit lens: accuracy of the read-out after each layer, n = {n} ({within})"
        if len(self.targets) > MOST_CURVES:
            panels = {"accuracy": self.accuracy.value, "labels of other examples": self.control}
            return heatmaps(panels, x=self.targets, x_title="target", y_title="layer", title=title, value="fraction")
        table = self.to_dataframe().assign(dashed=False)
        control = self.to_dataframe().assign(dashed=True)
        for column in ("accuracy", "low", "high"):
            control[column] = control["control"]
        control["target"] = control["target"] + ", other labels"
        return curves(pd.concat([table, control]), x="layer", y="accuracy", series="target", title=title)

    def __str__(self) -> str:
        rows = [["layer", *self.targets]]
        for layer, values in enumerate(self.accuracy.value):
            rows.append([str(layer), *(f"{value:.3f}" for value in values)])
        lines = table_lines(rows, n_left=0)
        n = count_range(np.asarray(self.accuracy.n))
        examples = f"{n} distinct examples per cell (95 % within {self.accuracy.half_width:.3f})"
        if self.accuracy.exact:
            examples = all_inputs_text(self.n)
        control = float(np.nanmax(self.control))
        last = self.logit_difference[-1]
        differences = ", ".join(f"{name} {last[index].text(2)}" for index, name in enumerate(self.targets[:4]))
        ellipsis = ", ..." if len(self.targets) > 4 else ""
        lines.append(
            f"logit lens: accuracy of the read-out after each layer, {examples}; labels of other examples at most "
            f"{control:.3f}; logit difference at the end: {differences}{ellipsis}"
        )
        return "\n".join(lines)


NEEDS = Needs("logit_lens", reads=EMBEDDED_STREAM, edits=["hook_resid_post"], answers=True)


@checks_types
@restores_state
def logit_lens(model: AnyModel, task: Task, *, n: int | EveryInput = 1000, seed: int = 0) -> LogitLensResult:
    """Accuracy of the model's own read-out (final norm and unembedding) after the embedding and after each layer.

    The norm is computed anew for each layer. Unlike `probe`, nothing is fitted: the lens shows what is written in the
    directions that the read-out uses, a probe whatever can be read linearly. In models whose layers do not add to the
    stream (`post_ln`, `dyck`) early layers need not use the same directions at all.

    Args:
        model: Model to read. It is not changed.
        task: Source of the examples and their labels.
        n: Number of held-out examples; distinct ones are the trials of every interval. "all": every input of the test
            split once, without sampling error.
        seed: Determines the examples.

    Raises:
        ValueError: a residual stream that cannot be read or set, a read-out that uses more than the stream of its
            position, a task with fewer than two answers, or too few examples.

    Source: nostalgebraist 2020, interpreting GPT: the logit lens. `transformer_lens.tools.analysis.logit_lens` gives
    the same logits.

    Example:
        >>> import interp
        >>> from interp.known_answers import lego_loop
        >>> task = interp.tasks.Lego(n_vars=2)
        >>> lens = interp.logit_lens(lego_loop(task), task, n=64)
        >>> lens.accuracy.shape, lens.accuracy[-1].value.tolist()  # layers x variables, and the model's own accuracy
        ((4, 2), [1.0, 1.0])
    """
    net = prepare_model(model, NEEDS, task)
    if task.d_vocab_out < 2:
        raise ValueError(
            f"the task has {task.d_vocab_out} output per target, and no answers to choose from; use a task with two "
            f"answers or more."
        )
    sample = Sample.of(task, n, seed=seed, name="logit lens")
    batch = sample.batch
    net.eval()
    size = chunk_size(net, batch)
    readings = [_readings(net, task, chunk) for chunk in chunks(batch, size)]
    answers, differences = (torch.cat(arrays, 1).numpy() for arrays in zip(*readings, strict=True))
    # Sums over the examples that have the target
    present = batch.present.numpy()
    labels = batch.labels.numpy()
    n_present = np.where(present.any(0), present.sum(0), np.nan)
    accuracy = ((answers == labels) & present).sum(1) / n_present
    control = sum(
        ((answers == answer) & present).sum(1) * ((labels == answer) & present).sum(0) / n_present**2
        for answer in np.unique(labels[present])
    )
    # Intervals, whose units are distinct inputs
    weight = present.astype(float)[:, None]
    shape = accuracy.shape
    counts = np.broadcast_to((sample.by_input(weight) > 0).sum(0), shape).copy()
    low, high = share_interval(accuracy, np.maximum(counts, 1))
    accuracies = Interval(value=accuracy, low=low, high=high, n=counts)
    logit_differences = sample.estimate(differences.swapaxes(0, 1), weight, mean_interval)
    return LogitLensResult(
        targets=tuple(task.targets),
        accuracy=accuracies.as_exact() if sample.exact else accuracies,
        control=np.broadcast_to(control, shape).copy(),
        logit_difference=replace(logit_differences, n=counts),
        n=len(batch),
    )


@torch.no_grad()
def _readings(
    net: Net, task: Task, chunk: Batch
) -> tuple[Int[Tensor, "layer batch target"], Float[Tensor, "layer batch target"]]:
    """Answers and logit differences after each layer; zero where an example does not have the target."""
    names = residual_names(net)
    logits, rows = rows_at_targets(net, chunk, names)
    present = chunk.present
    contrasts = contrasts_of(chunk.labels[present].to(logits.device), task.d_vocab_out, logits.shape[1])
    answers = torch.zeros(len(names), *present.shape, dtype=torch.int64)
    differences = torch.zeros(len(names), *present.shape, dtype=torch.float64)
    layer_logits = logits
    for layer, name in enumerate(names):
        layer_logits = read_out(net, rows[name])
        differences[layer][present] = (layer_logits * contrasts).sum(-1).double().cpu()
        target_logits = torch.zeros(*present.shape, logits.shape[1], dtype=layer_logits.dtype)
        target_logits[present] = layer_logits.cpu()
        answers[layer] = checked_answers(task, chunk, target_logits)
    # After the last layer the lens must give the model's own logits
    check_read_out(float((layer_logits - logits).abs().max()), float(logits.abs().max()))
    return answers, differences
