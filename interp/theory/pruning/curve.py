"""Accuracy and loss of a trained model against the fraction of weights, hidden units or heads that is kept."""

import copy
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import numpy as np
import torch
from jaxtyping import Float, Int
from torch.nn.utils import prune

from hooks import TransformerStack
from hooks.checks import check_choice, check_number, shown
from hooks.interventions.ablation_engine import AblationEngine, Head, every_head
from hooks.interventions.replacements import Zero
from hooks.state import restores_state
from hooks.typed import COUNT, DISTINCT, MAY_BE_MISSING, SHARE, SIZE, Axes, checks_types
from interp.core.activations import TOKENS_PER_CHUNK, chunks
from interp.core.consistency import check_that
from interp.core.inputs import distinct_inputs, sum_by_input
from interp.core.intervals import Interval
from interp.core.randomness import derived_generator
from interp.core.results import Result, table_lines
from interp.core.statistics import pooled_interval
from interp.core.verbs import Needs, prepare_model
from interp.evaluation.evaluate import score_batch
from interp.tasks.base import Batch, Score, Task
from interp.tasks.splits import sample_split
from interp.theory.pruning.criteria import Criterion, restore, weight_criteria

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

AllMatrices = Literal["magnitude", "magnitude, each matrix", "random"]
OneKind = Literal["W_Q", "W_K", "W_V", "W_O", "W_in", "W_out"]
UnitsAndHeads = Literal["structured", "heads", "heads, random order"]
By = Literal[AllMatrices, OneKind, UnitsAndHeads]
MOST_HEAD_POINTS = 20
"""Points of a curve of heads, not counting the whole model; with more heads, several are ablated at a time."""
FEWEST_EXAMPLES = 8
"""For an interval of the accuracy."""
RANDOM_ORDERS = 5
"""Number of orders that `heads, random order` averages over."""

Answers = Float[np.ndarray, "measure sample"]
"""Number of right answers, and summed loss, of each example."""
Point = tuple[float, Answers]
"""The fraction kept, and the answers at that fraction."""

PANELS: dict[str, str] = dict.fromkeys(get_args(AllMatrices), "all matrices")
PANELS |= dict.fromkeys(get_args(UnitsAndHeads), "hidden units and heads")
"""Panel of the chart for each curve; the others are of one kind of matrix."""
PRINTED_FRACTIONS = (0.5, 0.2, 0.1, 0.0)
"""Fractions kept at which accuracy is printed."""
LARGEST_GAP = 0.03
"""Largest distance of a point from such a fraction."""


@dataclass(frozen=True, kw_only=True)
class PruningCurve(Result):
    """Accuracy and loss against the fraction kept, for every pruning criterion.

    Rows are sorted from the largest fraction to the smallest; shorter rows are padded with NaN.
    """

    by: Annotated[tuple[str, ...], Axes("by"), DISTINCT]
    """Name of the criterion, one per row."""
    size: Annotated[Int[np.ndarray, " by"], COUNT]
    """Number of weights (hidden units for `structured`; heads) to choose from. A tied block counts once, its heads once
    per layer."""
    kept: Annotated[Float[np.ndarray, "by point"], SHARE, MAY_BE_MISSING]
    """Fraction kept."""
    accuracy: Annotated[Interval, Axes("by point"), SHARE, MAY_BE_MISSING]
    """Per criterion and point: fraction of right answers, over all outcomes of the task, with its 95 % interval
    (Clopper-Pearson); distinct examples are the independent units, not answers."""
    loss: Annotated[Float[np.ndarray, "by point"], SIZE, MAY_BE_MISSING]
    """The task's loss per answer (cross entropy in nats, or squared error)."""
    clean: Annotated[float, SHARE]
    """Accuracy of the whole model on the same examples."""
    clean_loss: Annotated[float, SIZE]
    chance: Annotated[float, SHARE]
    """Accuracy of random guesses."""
    order: Annotated[tuple[tuple[int, int], ...], COUNT]
    """(layer, head) in the order in which `heads` ablates them; empty without that curve."""
    n: Annotated[int, COUNT]
    """Number of test examples."""

    def __post_init__(self) -> None:
        super().__post_init__()
        is_descending = np.all(np.nan_to_num(np.diff(self.kept, axis=1)) <= 0)
        check_that(is_descending, "kept has a row that grows; points are sorted from the largest fraction on.")
        check_that(len(set(self.order)) == len(self.order), f"order has a head twice: {shown(self.order)}.")

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
        is_accurate = self.accuracy.value[row] >= self.clean - lost - 1e-12
        # Number of points before the first one that is not accurate enough
        n_accurate = int(np.argmin(np.append(is_accurate, False)))
        return float(self.kept[row, n_accurate - 1]) if n_accurate else float("nan")

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per curve and point."""
        axes = {"by": self.by, "point": range(self.kept.shape[1])}
        measures = self.accuracy.columns("accuracy")
        for name in ("loss", "clean", "clean_loss", "n"):
            measures[name] = getattr(self, name)
        table = self._table(axes, "size", "kept", **measures)
        return table.dropna(subset=["kept"]).drop(columns="point").reset_index(drop=True)

    def plot(self) -> "alt.TopLevelMixin":
        """Accuracy against the fraction kept, in panels: all matrices, one kind of matrix, hidden units and heads."""
        import altair as alt

        from interp.view.charts import curves

        table = self.to_dataframe().rename(columns={"kept": "fraction kept"})
        panel = [PANELS.get(name, "one kind of matrix") for name in table["by"]]
        charts: list[Any] = [
            curves(rows, x="fraction kept", y="accuracy", series="by", title=str(name), rule=self.chance)
            for name, rows in table.groupby(np.array(panel), sort=False)
        ]
        title = f"accuracy after pruning, no retraining, n = {self.n} per point; dashed: chance"
        return alt.concat(*charts, columns=2, title=title).resolve_scale(color="independent")

    def __str__(self) -> str:
        rows = [["kept by", "of", "0.01 lost at", *(f"{fraction:.0%}" for fraction in PRINTED_FRACTIONS)]]
        for row, name in enumerate(self.by):
            cells = [self._accuracy_near(row, fraction) for fraction in PRINTED_FRACTIONS]
            rows.append([name, f"{self.size[row]:,}", f"{self.least_kept(name):.3f}", *cells])
        title = f"accuracy after pruning, no retraining: whole model {self.clean:.3f}, chance {self.chance:.2f}"
        lines = [title, *table_lines(rows)]
        lines.append(f"{self.n} test examples; '0.01 lost at': least fraction kept with a loss of 0.01 at most")
        return "\n".join(lines)

    def _accuracy_near(self, row: int, fraction: float) -> str:
        """Accuracy at the point nearest to a fraction; a dash if none is near."""
        distance = np.abs(np.nan_to_num(self.kept[row], nan=np.inf) - fraction)
        return f"{self.accuracy.value[row, distance.argmin()]:.3f}" if distance.min() <= LARGEST_GAP else "-"


def _lacks_unpruned_matrices(model: TransformerStack) -> str:
    """Whether a model has masks of torch's pruning, which are in the way of further pruning."""
    if not prune.is_pruned(model):
        return ""
    return (
        "model is pruned already: it has masks of torch.nn.utils.prune. Make them permanent with prune.remove, "
        "matrix by matrix, and then compute its curve."
    )


NEEDS = Needs(
    "pruning_curve",
    answers=True,
    only_transformer="it prunes the matrices of a hooks.Transformer",
    lacks=_lacks_unpruned_matrices,
)


@checks_types
@restores_state
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

    Example:
        >>> import interp
        >>> from hooks import Transformer
        >>> task = interp.tasks.Lego(n_vars=2)
        >>> model = Transformer(interp.config_for(task, n_layers=1, n_heads=2, d_model=8))
        >>> interp.pruning_curve(model, task, by=["magnitude", "heads"], fractions=(1, 0.5), n=16).kept.tolist()
        [[1.0, 0.5, nan], [1.0, 0.5, 0.0]]

    Source: Han et al. 2015 (arXiv:1506.02626) for weights, Michel et al. 2019 (arXiv:1905.10650) for heads. Differs:
    there is no retraining; heads are ranked once, by the loss without each.
    """
    fractions = _check(model, fractions, n)
    pruned_model = copy.deepcopy(model)
    # torch's pruning needs each matrix stored row by row
    for parameter in pruned_model.parameters():
        parameter.data = parameter.data.contiguous()
    criteria = weight_criteria(pruned_model, seed)
    names = _chosen_names(by, (*criteria, "heads", "heads, random order"))
    batch = sample_split(task, n, generator=derived_generator(seed, "pruning curve"), split="test")

    # The whole model, then the answers of every curve
    score = score_batch(pruned_model, task, batch)
    whole_model: Point = (1.0, _answers(score))
    points: dict[str, list[Point]] = {}
    for name in names:
        if name in criteria:
            points[name] = _prune_weights(pruned_model, task, batch, criteria[name], fractions)
    orders = _head_orders(pruned_model, task, names, n, seed)
    points |= _ablate_heads(pruned_model, task, batch, orders, whole_model)

    # Accuracy and loss at every point; shorter curves are padded
    total = score.total.double().sum(1).numpy()
    inputs = distinct_inputs(batch)
    curves = [_measures(curve_points, total, inputs) for curve_points in points.values()]
    columns = {name: _padded([curve[name] for curve in curves]) for name in curves[0]}
    clean = _measures([whole_model], total, inputs)
    n_heads = model.cfg.n_layers * model.cfg.n_heads
    sizes = {name: criterion.size for name, criterion in criteria.items()}
    return PruningCurve(
        by=tuple(points),
        size=np.array([sizes.get(name, n_heads) for name in points]),
        kept=columns["kept"],
        accuracy=Interval(
            value=columns["accuracy"], low=columns["low"], high=columns["high"], n=len(np.unique(inputs))
        ),
        loss=columns["loss"],
        clean=float(clean["accuracy"][0]),
        clean_loss=float(clean["loss"][0]),
        chance=task.chance,
        order=tuple(orders["heads"][0]) if "heads" in orders else (),
        n=n,
    )


def _check(model: TransformerStack, fractions: Sequence[float | int], n: int) -> list[float]:
    """Check the arguments; return the fractions without duplicates, from the largest."""
    prepare_model(model, NEEDS)
    check_number("n", n, integer=True, low=FEWEST_EXAMPLES)
    if not len(fractions):
        raise ValueError("fractions is empty; give fractions of what to keep, such as (1, 0.5, 0.1, 0).")
    for fraction in fractions:
        check_number("fractions", fraction, low=0, high=1)
    return sorted({float(fraction) for fraction in fractions}, reverse=True)


def _chosen_names(by: str | Sequence[str], applicable: tuple[str, ...]) -> list[str]:
    """The names of the chosen criteria, in the order of `By`."""
    names = (by,) if isinstance(by, str) else tuple(by)
    if by == "all":
        names = applicable
    if not names:
        raise ValueError(f"by is empty; choose among {', '.join(map(repr, applicable))}, or omit it for all.")
    for name in names:
        check_choice("by", name, By)
        if name not in applicable:
            raise ValueError(
                f"by has {name!r}, but this model has nothing of that kind; it has "
                f"{', '.join(map(repr, applicable))}. Omit the others."
            )
    return [name for name in get_args(By) if name in names]


def _prune_weights(
    model: TransformerStack, task: Task, batch: Batch, criterion: Criterion, fractions: Sequence[float]
) -> list[Point]:
    """A point for every fraction of weights or units."""
    points = []
    for fraction in fractions:
        criterion.prune(fraction)
        masks = [matrix.get_buffer("weight_mask") for matrix in criterion.counted]
        fraction_kept = sum(int(mask.count_nonzero()) for mask in masks) / sum(mask.numel() for mask in masks)
        points.append((fraction_kept, _answers(score_batch(model, task, batch))))
        restore(model)
    return points


def _head_orders(
    model: TransformerStack, task: Task, names: Collection[str], n: int, seed: int
) -> dict[str, list[list[Head]]]:
    """Orders in which to ablate heads, for each of the two criteria that is chosen."""
    orders: dict[str, list[list[Head]]] = {}
    if "heads" in names:
        generator = derived_generator(seed, "pruning curve", "importance")
        validation = sample_split(task, n, generator=generator, split="validation")
        orders["heads"] = [_least_important_first(model, task, validation)]
    if "heads, random order" in names:
        generator = derived_generator(seed, "pruning curve", "orders")
        heads = every_head(model)
        orders["heads, random order"] = []
        for _ in range(RANDOM_ORDERS):
            permutation = torch.randperm(len(heads), generator=generator).tolist()
            orders["heads, random order"].append([heads[index] for index in permutation])
    return orders


def _engines(model: TransformerStack, batch: Batch) -> Iterator[tuple[Batch, AblationEngine]]:
    for chunk in chunks(batch, max(1, TOKENS_PER_CHUNK // batch.tokens.shape[1])):
        inputs = chunk.model_inputs()
        yield chunk, AblationEngine(model, chunk.tokens, read_at=chunk.target_positions, patterns=False, **inputs)


def _least_important_first(model: TransformerStack, task: Task, batch: Batch) -> list[Head]:
    """Heads by the loss without each, from the smallest."""
    loss = dict.fromkeys(every_head(model), 0.0)
    for chunk, engine in _engines(model, batch):
        for head, logits in engine.each_head(Zero()):
            loss[head] += float(task.score(logits, chunk).loss.double().sum())
    return sorted(loss, key=lambda head: loss[head])


def _ablate_heads(
    model: TransformerStack, task: Task, batch: Batch, orders: dict[str, list[list[Head]]], whole_model: Point
) -> dict[str, list[Point]]:
    """A point for every number of heads kept, starting from the whole model, mean over orders."""
    if not orders:
        return {}
    n_heads = model.cfg.n_layers * model.cfg.n_heads
    counts = np.linspace(0, n_heads, min(n_heads, MOST_HEAD_POINTS) + 1).round().astype(int)[1:].tolist()

    # Score the model without every set of heads that some order begins with
    scores: dict[frozenset[Head], list[Score]] = {}
    for order in chain.from_iterable(orders.values()):
        scores |= {frozenset(order[:count]): [] for count in counts}
    for chunk, engine in _engines(model, batch):
        for heads, chunk_scores in scores.items():
            chunk_scores.append(task.score(engine.head_set(sorted(heads), Zero()), chunk))
    answers = {heads: _answers(*chunk_scores) for heads, chunk_scores in scores.items()}

    # Mean over the orders of each criterion
    points = {}
    for name, criterion_orders in orders.items():
        points[name] = [whole_model]
        for count in counts:
            mean = np.mean([answers[frozenset(order[:count])] for order in criterion_orders], 0)
            points[name].append((1 - count / n_heads, mean))
    return points


def _answers(*scores: Score) -> Answers:
    chunks_of_answers = [torch.stack([score.right.double().sum(1), score.loss.double().sum(1)]) for score in scores]
    return torch.cat(chunks_of_answers, 1).numpy()


def _measures(
    points: Sequence[Point], total: Float[np.ndarray, " sample"], inputs: Int[np.ndarray, " sample"]
) -> dict[str, Float[np.ndarray, " point"]]:
    """Fraction kept, accuracy, its lower and upper bound, and loss."""
    right, loss = np.stack([answers for _, answers in points], -1)
    totals = np.broadcast_to(total[:, None], right.shape)
    accuracy, low, high = pooled_interval(sum_by_input(right, inputs), sum_by_input(totals, inputs))
    return {
        "kept": np.array([fraction for fraction, _ in points]),
        "accuracy": accuracy,
        "low": low,
        "high": high,
        "loss": loss.sum(0) / total.sum(),
    }


def _padded(rows: Sequence[Float[np.ndarray, "..."]]) -> Float[np.ndarray, "by point"]:
    """Rows of different lengths in one array; shorter ones end in NaN."""
    table = np.full((len(rows), max(map(len, rows))), np.nan)
    for table_row, row in zip(table, rows, strict=True):
        table_row[: len(row)] = row
    return table
