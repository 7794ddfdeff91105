"""Accuracy and loss of a trained model against the fraction of weights, hidden units or heads that is kept."""

import copy
import reprlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import torch
from jaxtyping import Float, Int
from torch.nn.utils import prune

from hooks import TransformerStack
from hooks.checks import checks_types
from hooks.interventions.ablation_engine import AblationEngine, Head, every_head
from hooks.interventions.replacements import Zero
from interp.core.activations import chunks
from interp.core.inputs import distinct_inputs, sum_by_input
from interp.core.randomness import derived_generator
from interp.core.results import Result
from interp.core.statistics import pooled_interval
from interp.core.verbs import prepare_model
from interp.evaluation.evaluate import score_batch
from interp.tasks.base import IS_A_TASK, Batch, Score, Task
from interp.theory.pruning.criteria import Criterion, criteria, restore

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

AllMatrices = Literal["magnitude", "magnitude, each matrix", "random"]
OneKind = Literal["W_Q", "W_K", "W_V", "W_O", "W_in", "W_out"]
Parts = Literal["structured", "heads", "heads, random order"]
By = Literal[AllMatrices, OneKind, Parts]
TOKENS_PER_CHUNK = 1536
MOST_HEAD_POINTS = 20
"""Points of a curve of heads, not counting the whole model; with more heads, several are ablated at a time."""
RANDOM_ORDERS = 5
"""Number of orders that `heads, random order` averages over."""

Answers = Float[np.ndarray, "measure sample"]
"""Number of right answers, and summed loss, of each example."""
Point = tuple[float, Answers]
"""The fraction kept, and the answers at that fraction."""

PANELS: dict[str, str] = dict.fromkeys(get_args(AllMatrices), "all matrices")
PANELS |= dict.fromkeys(get_args(Parts), "hidden units and heads")
"""Panel of the chart for each curve; the others are of one kind of matrix."""
SHOWN = (0.5, 0.2, 0.1, 0.0)
"""Fractions kept at which accuracy is printed."""
NEAR = 0.03
"""Largest distance of a point from such a fraction."""


@dataclass(frozen=True, kw_only=True)
class PruningCurve(Result):
    """Accuracy and loss against the fraction kept, for every pruning criterion.

    Rows are sorted from the largest fraction to the smallest; shorter rows are padded with NaN.
    """

    by: tuple[str, ...]
    """Name of the criterion, one per row."""
    size: Int[np.ndarray, " by"]
    """Number of weights (hidden units for `structured`; heads) to choose from. A tied block counts once, its heads once
    per layer."""
    kept: Float[np.ndarray, "by point"]
    """Fraction kept."""
    accuracy: Float[np.ndarray, "by point"]
    """Fraction of right answers, over all outcomes of the task."""
    low: Float[np.ndarray, "by point"]
    high: Float[np.ndarray, "by point"]
    """95 % interval (Clopper-Pearson); distinct examples are the independent units, not answers."""
    loss: Float[np.ndarray, "by point"]
    """The task's loss per answer (cross entropy in nats, or squared error)."""
    clean: float
    """Accuracy of the whole model on the same examples."""
    clean_loss: float
    chance: float
    """Accuracy of random guesses."""
    order: tuple[tuple[int, int], ...]
    """(layer, head) in the order in which `heads` ablates them; empty without that curve."""
    n: int
    """Number of test examples."""

    def least_kept(self, by: str, *, lost: float = 0.01) -> float:
        """The least fraction kept such that there, and at all larger ones, accuracy is at least clean minus `lost`.

        Args:
            by: Name of the criterion.
            lost: Loss of accuracy allowed, as a fraction.

        Returns:
            The fraction; NaN if the first point is already below.

        Raises:
            ValueError: a criterion that is not in this result.
        """
        if by not in self.by:
            raise ValueError(f"by is {by!r}; this result has {', '.join(map(repr, self.by))}. Choose one of them.")
        row = self.by.index(by)
        fine = self.accuracy[row] >= self.clean - lost - 1e-12
        points = int(np.argmin(np.append(fine, False)))
        return float(self.kept[row, points - 1]) if points else float("nan")

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per curve and point."""
        names = "size kept accuracy low high loss clean clean_loss n"
        table = self._table({"by": self.by, "point": range(self.kept.shape[1])}, *names.split())
        return table.dropna(subset=["kept"]).drop(columns="point").reset_index(drop=True)

    def plot(self) -> "alt.TopLevelMixin":
        """Accuracy against the fraction kept, in panels: all matrices, one kind of matrix, hidden units and heads."""
        import altair as alt

        from interp.view.charts import curves

        table = self.to_dataframe().rename(columns={"kept": "fraction kept"})
        panel = [PANELS.get(name, "one kind of matrix") for name in table["by"]]
        charts: list[Any] = [
            curves(part, x="fraction kept", y="accuracy", series="by", title=str(name), rule=self.chance)
            for name, part in table.groupby(np.array(panel), sort=False)
        ]
        title = f"accuracy after pruning, no retraining, n = {self.n} per point; dashed: chance"
        return alt.concat(*charts, columns=2, title=title).resolve_scale(color="independent")

    def __str__(self) -> str:
        wide = max(8, *(len(name) for name in self.by)) + 2
        lines = [
            f"accuracy after pruning, no retraining: whole model {self.clean:.3f}, chance {self.chance:.2f}",
            f"{'kept by':<{wide}}{'of':>12}{'0.01 lost at':>14}" + "".join(f"{f'{part:.0%}':>8}" for part in SHOWN),
        ]
        for row, name in enumerate(self.by):
            cells = "".join(f"{self._near(row, part):>8}" for part in SHOWN)
            lines.append(f"{name:<{wide}}{self.size[row]:>12,}{self.least_kept(name):>14.3f}{cells}")
        return "\n".join(
            [*lines, f"{self.n} test examples; '0.01 lost at': least fraction kept with a loss of 0.01 at most"]
        )

    def _near(self, row: int, fraction: float) -> str:
        away = np.abs(np.nan_to_num(self.kept[row], nan=np.inf) - fraction)
        return f"{self.accuracy[row, away.argmin()]:.3f}" if away.min() <= NEAR else "-"


@checks_types
@torch.no_grad()
def pruning_curve(
    model: TransformerStack,
    task: Task,
    *,
    by: Literal["all"] | By | Sequence[By] = "all",
    fractions: Sequence[float | int] = (1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0),
    n: int = 500,
    seed: int = 0,
) -> PruningCurve:
    """Accuracy and loss of a trained model as it is pruned further and further, without retraining.

    Weights are those of the matrices in blocks; embeddings, positions, norms, biases, the scalars of a I and b I, and
    the unembedding are kept. The block of a tied model counts once.

    Args:
        model: Model to prune. It is not changed: `torch.nn.utils.prune` is applied to a copy.
        task: Task to sample examples from. Accuracy is over all of its outcomes.
        by: Criterion or criteria; default: all that apply to the model, and always in this order. `magnitude` keeps the
            largest weights, of all matrices or of each; `random` is the control. `W_Q`, `W_K`, `W_V`, `W_O`, `W_in`,
            `W_out` keep the largest weights of one kind of matrix in all layers, and all other matrices. `structured`
            keeps the hidden units whose incoming weights have the largest 2-norm. `heads` keeps those whose ablation
            alone raises the loss on validation examples most; `heads, random order` is the mean over five orders.
        fractions: Fractions of weights or units to keep. Heads are ablated one by one, or several at a time if there
            are many.
        n: Number of test examples, the independent units of every interval, and of validation examples to rank heads.
        seed: Seed of the examples, the random weights and the random orders.

    Raises:
        ValueError: a network without attention, a model that is already pruned, an unknown criterion or one that does
            not apply to this model, a fraction outside 0 to 1, or too few examples.

    Source: Han et al. 2015 (arXiv:1506.02626) for weights, Michel et al. 2019 (arXiv:1905.10650) for heads. Differs:
    there is no retraining; heads are ranked once, by the loss without each.
    """
    Task.require(task, IS_A_TASK)
    levels = _check(model, fractions, n)
    pruned = copy.deepcopy(model)
    choices = criteria(pruned, seed)
    chosen = _chosen(by, (*choices, "heads", "heads, random order"))
    batch = task.sample(n, generator=derived_generator(seed, "pruning curve"), split="test")
    score = score_batch(pruned, task, batch)
    total, whole, inputs = score.total.double().sum(1).numpy(), (1.0, _answers(score)), distinct_inputs(batch)
    orders = _orders(pruned, task, chosen, n, seed)
    rows = {name: _weights_kept(pruned, task, batch, choices[name], levels) for name in chosen if name in choices}
    rows |= _heads_kept(pruned, task, batch, orders, whole)
    table = np.full((5, len(rows), max(map(len, rows.values()))), np.nan)
    for row, points in enumerate(rows.values()):
        table[:, row, : len(points)] = _measures(points, total, inputs)
    _, clean, _, _, clean_loss = _measures([whole], total, inputs)[:, 0].tolist()
    kept, accuracy, low, high, loss = table
    n_heads = model.cfg.n_layers * model.cfg.n_heads
    return PruningCurve(
        by=tuple(rows),
        size=np.array([choices[name].size if name in choices else n_heads for name in rows]),
        kept=kept,
        accuracy=accuracy,
        low=low,
        high=high,
        loss=loss,
        clean=clean,
        clean_loss=clean_loss,
        chance=task.chance,
        order=tuple(orders["heads"][0]) if "heads" in orders else (),
        n=n,
    )


def _check(model: TransformerStack, fractions: Sequence[float | int], n: int) -> list[float]:
    """Check the arguments; return the fractions without duplicates, from the largest."""
    prepare_model(model, "pruning_curve")
    if prune.is_pruned(model):
        raise ValueError(
            "model is pruned already: it has masks of torch.nn.utils.prune. Make them permanent with prune.remove, "
            "matrix by matrix, and then compute its curve."
        )
    if n < 8:
        raise ValueError(f"n is {n}; at least 8 examples are needed for an interval. Raise n.")
    wrong = [part for part in fractions if not isinstance(part, Real) or not 0 <= part <= 1]
    if wrong or not len(fractions):
        found = f"has {reprlib.repr(wrong[0])}" if wrong else "is empty"
        raise ValueError(f"fractions {found}; give fractions of what to keep, from 0 to 1, such as (1, 0.5, 0.1, 0).")
    return sorted({float(part) for part in fractions}, reverse=True)


def _chosen(by: str | Sequence[str], there: tuple[str, ...]) -> list[str]:
    """The names of the chosen criteria, in the order of `By`."""
    chosen = there if by == "all" else (by,) if isinstance(by, str) else tuple(by)
    if not chosen:
        raise ValueError(f"by is empty; choose among {', '.join(map(repr, there))}, or omit it for all.")
    for name in chosen:
        if name not in get_args(By):
            raise ValueError(f"by has {name!r}, which is unknown; choose among {', '.join(map(repr, get_args(By)))}.")
        if name not in there:
            raise ValueError(
                f"by has {name!r}, but this model has nothing of that kind; it has {', '.join(map(repr, there))}. "
                "Omit the others."
            )
    return [name for name in get_args(By) if name in chosen]


def _weights_kept(
    model: TransformerStack, task: Task, batch: Batch, choice: Criterion, levels: Sequence[float]
) -> list[Point]:
    points = []
    for level in levels:
        choice.prune(choice.counted, level)
        masks = [matrix.get_buffer("weight_mask") for matrix in choice.counted]
        kept = sum(int(mask.count_nonzero()) for mask in masks) / sum(mask.numel() for mask in masks)
        points.append((kept, _answers(score_batch(model, task, batch))))
        restore(model)
    return points


def _orders(
    model: TransformerStack, task: Task, chosen: Collection[str], n: int, seed: int
) -> dict[str, list[list[Head]]]:
    """Orders in which to ablate heads, for each of the two criteria that is chosen."""
    every, orders = every_head(model), {}
    if "heads" in chosen:
        generator = derived_generator(seed, "pruning curve", "importance")
        orders["heads"] = [_least_important_first(model, task, task.sample(n, generator=generator, split="validation"))]
    if "heads, random order" in chosen:
        generator = derived_generator(seed, "pruning curve", "orders")
        drawn = [torch.randperm(len(every), generator=generator).tolist() for _ in range(RANDOM_ORDERS)]
        orders["heads, random order"] = [[every[index] for index in order] for order in drawn]
    return orders


def _engines(model: TransformerStack, batch: Batch):
    for part in chunks(batch, max(1, TOKENS_PER_CHUNK // batch.tokens.shape[1])):
        yield part, AblationEngine(model, part.tokens, read_at=part.target_positions, **part.model_inputs())


def _least_important_first(model: TransformerStack, task: Task, batch: Batch) -> list[Head]:
    loss: dict[Head, float] = {}
    for part, engine in _engines(model, batch):
        for head, logits in engine.each_head(Zero()):
            loss[head] = loss.get(head, 0.0) + float(task.score(logits, part).loss.double().sum())
    return sorted(loss, key=lambda head: loss[head])


def _heads_kept(
    model: TransformerStack, task: Task, batch: Batch, orders: dict[str, list[list[Head]]], whole: Point
) -> dict[str, list[Point]]:
    """A point for every number of heads kept, starting from the whole model, mean over orders."""
    size = model.cfg.n_layers * model.cfg.n_heads
    counts = np.linspace(0, size, min(size, MOST_HEAD_POINTS) + 1).round().astype(int)[1:].tolist()
    sets = {frozenset(order[:count]) for several in orders.values() for order in several for count in counts}
    scores: dict[frozenset[Head], list[Score]] = {heads: [] for heads in sets}
    for part, engine in _engines(model, batch) if sets else ():
        for heads, found in scores.items():
            found.append(task.score(engine.head_set(sorted(heads), Zero()), part))
    without = {heads: _answers(*found) for heads, found in scores.items()}
    rows = {}
    for name, several in orders.items():
        means = [np.mean([without[frozenset(order[:count])] for order in several], 0) for count in counts]
        rows[name] = [whole, *((1 - count / size, mean) for count, mean in zip(counts, means, strict=True))]
    return rows


def _answers(*scores: Score) -> Answers:
    parts = [torch.stack([score.right.double().sum(1), score.loss.double().sum(1)]) for score in scores]
    return torch.cat(parts, 1).numpy()


def _measures(
    points: Sequence[Point], total: Float[np.ndarray, " sample"], inputs: Int[np.ndarray, " sample"]
) -> Float[np.ndarray, "figure point"]:
    """Fraction kept, accuracy, its lower and upper bound, and loss."""
    kept = np.array([kept for kept, _ in points])
    right, loss = np.stack([answers for _, answers in points], -1)
    of = np.broadcast_to(total[:, None], right.shape)
    share, low, high = pooled_interval(sum_by_input(right, inputs), sum_by_input(of, inputs))
    return np.stack([kept, share, low, high, loss.sum(0) / total.sum()])
