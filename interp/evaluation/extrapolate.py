"""Accuracy by number of layers, on supervised and unsupervised targets."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hooks import TransformerStack
from hooks.checks import check_number, shown
from hooks.state import restores_state
from hooks.typed import COUNT, DISTINCT, MAY_BE_MISSING, SHARE, Axes, checks_types
from interp.core.activations import activations_at_targets
from interp.core.consistency import check_that
from interp.core.inputs import all_inputs_text, distinct_inputs, repeats_text
from interp.core.intervals import Interval
from interp.core.randomness import derived_generator
from interp.core.results import Result, count_range
from interp.core.statistics import share_interval
from interp.core.verbs import Needs, prepare_model
from interp.evaluation.evaluate import chunks_on_device, short_chance
from interp.tasks.base import Batch, Split, Task
from interp.tasks.splits import ALL, EveryInput, check_sample_size, sample_split

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

DEPTH_FACTOR = 3
"""Default greatest depth of a tied model, in multiples of `n_layers`."""


@dataclass(frozen=True, kw_only=True)
class ExtrapolationResult(Result):
    """Accuracy of every target at every depth."""

    depths: Annotated[tuple[int, ...], Axes("depth"), COUNT, DISTINCT]
    """Numbers of applied layers, ascending."""
    targets: Annotated[tuple[str, ...], Axes("target"), DISTINCT]
    """Names of the targets."""
    supervised: Annotated[tuple[bool, ...], Axes("target")]
    """Whether each target counts in the loss."""
    accuracy: Annotated[Interval, Axes("depth target"), SHARE, MAY_BE_MISSING]
    """Per depth and target: fraction of the examples with the target that are answered correctly, NaN without any,
    with its 95 % interval (Clopper-Pearson); n are distinct inputs, of which a finite task has few."""
    chance: Annotated[float, SHARE]
    """Accuracy of uniform guessing."""
    n: Annotated[int, COUNT]
    """Number of examples, the same at every depth."""
    n_scored: Annotated[Int[np.ndarray, " target"], COUNT]
    """Examples behind each value: those that have the target."""
    split: str
    """Split of the examples."""
    trained_depth: Annotated[int, COUNT]
    """The model's `n_layers`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_that(list(self.depths) == sorted(self.depths), f"depths is {shown(self.depths)}; they must be ascending.")
        most = int(self.n_scored.max(initial=0))
        check_that(most <= self.n, f"n_scored is {most}; n is {self.n}.")

    @property
    def unsupervised_accuracy(self) -> Float[np.ndarray, "depth unsupervised"]:
        """Accuracy of the unsupervised targets."""
        return self.accuracy.value[:, ~np.array(self.supervised)]

    def depth_reaching(self, level: float = 0.9) -> Float[np.ndarray, " target"]:
        """Smallest depth from which accuracy stays at or above a level, for each target; NaN if there is none.

        Args:
            level: Accuracy to reach.

        Raises:
            ValueError: a level outside (0, 1].
        """
        check_number("level", level, above=0, high=1)
        return first_for_good(self.accuracy.value >= level, np.array(self.depths))

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per depth and target."""
        n = np.broadcast_to(self.n_scored, self.accuracy.shape)
        table = self._table({"depth": self.depths, "target": self.targets}, **self.accuracy.columns("accuracy"), n=n)
        table.insert(2, "supervised", np.tile(self.supervised, len(self.depths)))
        return table

    def plot(self) -> "alt.TopLevelMixin":
        """Accuracy against applied layers, as in the LEGO paper's Figure 5; unsupervised targets are dashed."""
        import altair as alt

        from interp.view.charts import GREY, chart_of, curves

        table = self.to_dataframe().rename(columns={"depth": "layers applied"})
        table["dashed"] = ~table["supervised"]
        title = [
            f"accuracy by layers applied, n = {count_range(self.n_scored)} per point; dashed: not supervised",
            f"horizontal line: chance; vertical line: n_layers = {self.trained_depth}",
        ]
        lines: Any = curves(table, x="layers applied", y="accuracy", series="target", title=title, rule=self.chance)
        rule = chart_of(table.head(1)).mark_rule(strokeDash=[4, 4], color=GREY)
        return alt.layer(lines, rule.encode(x=alt.datum(self.trained_depth)))

    def __str__(self) -> str:
        # a column per target; a star marks those that are not supervised
        marks = ["" if supervised else "*" for supervised in self.supervised]
        names = [name + mark for name, mark in zip(self.targets, marks, strict=True)]
        widths = [max(5, len(name)) for name in names]
        header = "  ".join(f"{name:>{width}}" for name, width in zip(names, widths, strict=True))
        lines = [f"depth  {header}"]
        # a row per depth
        for depth, row in zip(self.depths, self.accuracy.value, strict=True):
            cells = "  ".join(f"{value:>{width}.3f}" for value, width in zip(row, widths, strict=True))
            note = "  <- n_layers" if depth == self.trained_depth else ""
            lines.append(f"{depth:>5}  {cells}{note}")
        repeats = repeats_text(self.n_scored, self.accuracy.n)
        examples = f"{count_range(self.n_scored)} {self.split} examples{repeats}"
        foot = f"accuracy on {examples} (95 % within {self.accuracy.half_width:.3f})"
        if self.accuracy.exact:
            foot = f"accuracy on {all_inputs_text(self.n)}, split {self.split}"
        return "\n".join([*lines, f"{foot}, chance {short_chance(self.chance)}; * not supervised"])


NEEDS = Needs(
    "extrapolate",
    answers=True,
    only_transformer="it reads out after every layer, and applies more layers than trained (read_out, at_depth)",
)


@checks_types
@restores_state
def extrapolate(
    model: TransformerStack,
    task: Task,
    *,
    depths: Sequence[int] | None = None,
    n: int | EveryInput = 2000,
    split: Split = "test",
    seed: int = 0,
) -> ExtrapolationResult:
    """Accuracy of every target, supervised or not, after each number of layers.

    The residual stream after each layer is read out as if it were the last layer, which gives the answers of the model
    run at that depth. All depths share one pass. Examples are those of `evaluate` with the same `n`, `split` and
    `seed`.

    Args:
        model: The model to test; left in evaluation mode.
        task: A task some of whose targets are not supervised.
        depths: Numbers of layers to apply, in any order. Default: 1 to `n_layers`, for a tied model to three times
            `n_layers`.
        n: Number of examples; "all" for every input of the split, without sampling error.
        split: Split of the examples.
        seed: Seed of the examples.

    Raises:
        ValueError: depths that are empty, below 1, fractional, repeated, or greater than the model can be run at; fewer
            than one example; an unknown split; a task whose targets are all supervised; a residual stream that is not
            finite; a network without attention or a TransformerLens bridge.

    Source: LEGO (arXiv:2206.04301) Figure 3b (accuracy on variables beyond those trained on) and Figure 5 (accuracy
    against applied layers). Differs: untied models are also read early, with the read-out of the last layer.

    >>> import interp
    >>> from hooks import Transformer
    >>> task = interp.tasks.Lego(n_vars=3, n_supervised=2)
    >>> model = Transformer(interp.config_for(task, tied=True, n_layers=2, d_model=16))
    >>> interp.extrapolate(model, task, depths=[2, 4], n=50).accuracy.shape
    (2, 3)
    """
    prepare_model(model, NEEDS, task)
    # all depths that the model can be run at, up to a limit, or those given
    if depths is None:
        factor = DEPTH_FACTOR if _has_more_layers(model) else 1
        depths = range(1, model.cfg.n_layers * factor + 1)
    _check_depths(model, depths)
    depths = sorted(int(depth) for depth in depths)
    check_sample_size("n", n, low=1)
    # the examples of `evaluate`
    batch = sample_split(task, n, generator=derived_generator(seed, "evaluate", split), split=split)
    if batch.supervised.all():
        raise ValueError(
            f"all {len(task.targets)} targets of this task are supervised, which leaves nothing to extrapolate to; "
            f"give a task that supervises some of its targets (Lego: n_supervised), or use evaluate with depth=..."
        )
    result = accuracy_by_depth(model, task, batch, depths, split=split)
    return replace(result, accuracy=result.accuracy.as_exact()) if n == ALL else result


def accuracy_by_depth(
    model: TransformerStack, task: Task, batch: Batch, depths: Sequence[int], *, split: str
) -> ExtrapolationResult:
    """Accuracy of every target on given examples after each number of layers, also if all targets are supervised.

    Args:
        model: The model to test.
        task: The task of the examples.
        batch: The examples.
        depths: Numbers of layers, in ascending order.
        split: Name of the split that the examples are from.

    Raises:
        ValueError: depths that `extrapolate` would refuse, or a stream that is not finite.
    """
    right = right_by_depth(model, task, batch, depths).sum(1).numpy()
    # examples with each target, and distinct inputs among them
    n_scored = batch.present.sum(0).numpy()
    inputs = distinct_inputs(batch)
    n_distinct = np.array([len(np.unique(inputs[present])) for present in batch.present.T.numpy()])
    share = right / np.maximum(n_scored, 1)
    low, high = share_interval(share, np.maximum(n_distinct, 1))
    # NaN where no example has the target
    has_target = n_scored > 0
    accuracy = Interval(
        value=np.where(has_target, share, np.nan),
        low=np.where(has_target, low, np.nan),
        high=np.where(has_target, high, np.nan),
        n=n_distinct,
    )
    return ExtrapolationResult(
        depths=tuple(depths),
        targets=task.targets,
        supervised=tuple(batch.supervised.tolist()),
        accuracy=accuracy,
        chance=task.chance,
        n=len(batch),
        n_scored=n_scored,
        split=split,
        trained_depth=model.cfg.n_layers,
    )


def first_for_good(
    condition: Bool[np.ndarray, "depth target"], depths: Int[np.ndarray, " depth"]
) -> Float[np.ndarray, " target"]:
    """The first depth from which a condition is true up to the last depth; NaN if it is false at the last depth."""
    true_to_the_end = np.logical_and.accumulate(condition[::-1])[::-1]
    return np.where(true_to_the_end.any(0), depths[true_to_the_end.argmax(0)], np.nan)


@torch.no_grad()
def right_by_depth(
    model: TransformerStack, task: Task, batch: Batch, depths: Sequence[int]
) -> Bool[Tensor, "depth batch target"]:
    """Whether each target is predicted correctly at each depth, from one pass at the greatest; on the CPU.

    False where an example does not have the target.

    Args:
        model: The model to test; left in evaluation mode.
        task: Task that reads the answers from the logits.
        batch: Examples; all targets may be supervised.
        depths: Numbers of layers, in the order of the first axis of the result.

    Raises:
        ValueError: invalid depths, as in `extrapolate`, or a residual stream that is not finite.
    """
    _check_depths(model, depths)
    model.eval()
    # one pass at the greatest depth has the residual streams of all
    greatest_depth = max(depths)
    net = model if greatest_depth <= model.cfg.n_layers else model.at_depth(greatest_depth)
    names = [f"blocks.{depth - 1}.hook_resid_post" for depth in depths]
    right = []
    for chunk in chunks_on_device(net, batch):
        streams = activations_at_targets(net, chunk, names, depth=greatest_depth)
        _check_finite(streams, depths)
        right_in_chunk = torch.stack([task.answers(net.read_out(stream)) == chunk.labels for stream in streams])
        right.append(right_in_chunk & chunk.present)
    return torch.cat(right, 1).cpu()


def _has_more_layers(model: TransformerStack) -> bool:
    """Whether the model defines layers beyond the last: it is tied, and hard-coded heads are the same in all layers."""
    return model.cfg.tied and (model.cfg.n_layers == 1 or len(model.cfg.rows) <= 1)


def _check_depths(model: TransformerStack, depths: Sequence[int]) -> None:
    """Check that depths are distinct positive integers at which the model can be run."""
    if not depths:
        raise ValueError("depths is empty; give at least one number of layers, or leave it out.")
    for depth in depths:
        if isinstance(depth, bool) or not isinstance(depth, Integral):
            raise ValueError(f"depths has {depth!r}; it must have integers.")
    if min(depths) < 1:
        raise ValueError(f"depths has {min(depths)}; a model applies at least 1 layer. Leave it out.")
    for depth in depths:
        if list(depths).count(depth) > 1:
            raise ValueError(f"depths has {depth} more than once; give each number of layers once.")
    # beyond its layers only if it defines more
    if max(depths) <= model.cfg.n_layers or _has_more_layers(model):
        return
    reason = "an untied model has separate weights for each layer, and no further layers"
    if model.cfg.tied:
        reason = "its head_patterns are given layer by layer and do not cover further layers"
    raise ValueError(
        f"depths has {max(depths)}, but this model has {model.cfg.n_layers} layers: {reason}. Give depths up to "
        f"{model.cfg.n_layers}, or a tied model."
    )


def _check_finite(streams: Sequence[Tensor], depths: Sequence[int]) -> None:
    not_finite = [depth for depth, stream in zip(depths, streams, strict=True) if not stream.isfinite().all()]
    if not_finite:
        raise ValueError(
            f"the residual stream is not finite after {min(not_finite)} layers. Did training diverge, or does its "
            f"norm grow with every layer? Give smaller depths."
        )
