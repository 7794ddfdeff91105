"""What is left of accuracy when weights, hidden units or heads of a trained model go, and nothing is trained again?"""

import copy
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

import numpy as np
import torch
from jaxtyping import Float
from torch.nn.utils import prune

from hooks import Transformer
from hooks.interventions.ablation_engine import AblationEngine, Head
from hooks.interventions.replacements import Zero
from hooks.model.blocks import MLP, DeepMLP
from hooks.modules import Linear
from interp.core.activations import chunks
from interp.core.randomness import derived_generator
from interp.core.statistics import pooled_interval
from interp.core.verbs import prepare_model
from interp.evaluation.evaluate import score_batch
from interp.tasks.base import Batch, Score, Task
from interp.theory.pruning.curve_result import PruningCurve

AllMatrices = Literal["magnitude", "magnitude, each matrix", "random"]
OneKind = Literal["W_Q", "W_K", "W_V", "W_O", "W_in", "W_out"]
Parts = Literal["structured", "heads", "heads, random order"]
By = Literal[AllMatrices, OneKind, Parts]
MATRICES = {"W_Q": "q", "W_K": "k", "W_V": "v", "W_O": "o", "W_in": "w_in", "W_out": "w_out"}
"""What a block's attention or MLP calls each kind of matrix."""
TOKENS_PER_CHUNK = 1536
MOST_HEAD_POINTS = 20
"""Beside the whole model; with more heads than this, several go at once."""
RANDOM_ORDERS = 5
"""Orders of heads that `heads, random order` is the mean of."""

Answers = Float[np.ndarray, "measure sample"]
"""Right answers and their loss, summed over each example's answers."""
Point = tuple[float, Answers]
"""The fraction kept, and what was measured with it."""


@dataclass(frozen=True, kw_only=True)
class _Choice:
    """One way to choose what to keep."""

    counted: list[Linear]
    """Whose masks tell what is kept."""
    size: int
    """Weights or units to choose among."""
    prune: Callable[[list[Linear], float], None]
    """Keeps such a fraction of them."""


@torch.no_grad()
def pruning_curve(
    model: Transformer,
    task: Task,
    *,
    by: Literal["all"] | By | Sequence[By] = "all",
    fractions: Sequence[float | int] = (1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0),
    n: int = 500,
    seed: int = 0,
) -> PruningCurve:
    """Keep less and less of a trained model, and measure accuracy and loss, without training it again.

    Weights are those of the matrices in its blocks: not embeddings, positions, norms, biases, the scalars of a I and
    b I, or the read-out, which stay whole. A tied model's block counts once.

    Args:
        model: What to prune. It is not changed: `torch.nn.utils.prune` works on a copy.
        task: Where examples come from and what is right. Accuracy is over all of its outcomes.
        by: What to keep, one way or several; all that the model allows when left out. The largest weights, `magnitude`,
            or the largest of each matrix; a `random` choice, for comparison. The largest of one kind of matrix in all
            layers, the others left whole: `W_Q`, `W_K`, `W_V`, `W_O`, `W_in`, `W_out`. `structured`: the hidden units
            of MLPs whose incoming weights have the largest 2-norm. `heads`: those without which the loss on validation
            examples rises most, each taken out alone; or those in `heads, random order`, mean over five orders. Rows
            of the result have this order, whatever that of `by`.
        fractions: Of weights or units to keep. Heads go one by one, or several at a time where there are many.
        n: Test examples, the independent units behind every interval; as many validation examples rank heads.
        seed: Decides examples, the random weights and the random orders.

    Raises:
        ValueError: a fully connected network, one that is pruned already, a choice that does not exist or that this
            model has not, a fraction outside 0 to 1, or too few examples.

    Source: Han et al. 2015 (arXiv:1506.02626) for weights, Michel et al. 2019 (arXiv:1905.10650) for heads. Differs:
    nothing is trained again; heads are ranked once, by the loss without each.
    """
    levels = _check(model, fractions, n)
    twin = copy.deepcopy(model)
    choices = _choices(twin, seed)
    chosen = _chosen(by, (*choices, "heads", "heads, random order"))
    batch = task.sample(n, generator=derived_generator(seed, "pruning curve"), split="test")
    score = score_batch(twin, task, batch)
    asked, whole = score.total.double().sum(1).numpy(), (1.0, _answers(score))
    orders = _orders(twin, task, chosen, n, seed)
    rows = {name: _weights_kept(twin, task, batch, choices[name], levels) for name in chosen if name in choices}
    rows |= _heads_kept(twin, task, batch, orders, whole)
    table = np.full((5, len(rows), max(map(len, rows.values()))), np.nan)
    for row, points in enumerate(rows.values()):
        table[:, row, : len(points)] = _measures(points, asked)
    _, clean, _, _, clean_loss = _measures([whole], asked)[:, 0].tolist()
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


def _check(model: Transformer, fractions: Sequence[float | int], n: int) -> list[float]:
    """Fractions from the largest, none twice."""
    prepare_model(model, "pruning_curve")
    if prune.is_pruned(model):
        raise ValueError(
            "model is pruned already: it has masks of torch.nn.utils.prune. Make them permanent with prune.remove, "
            "matrix by matrix, and then ask for its curve."
        )
    if n < 8:
        raise ValueError(f"n is {n}; at least 8 examples are needed for an interval. Ask for more.")
    wrong = [part for part in fractions if not 0 <= part <= 1]
    if wrong or not len(fractions):
        found = f"has {wrong[0]}" if wrong else "is empty"
        raise ValueError(f"fractions {found}; give fractions of what to keep, from 0 to 1, such as (1, 0.5, 0.1, 0).")
    return sorted({float(part) for part in fractions}, reverse=True)


def _chosen(by: str | Sequence[str], there: tuple[str, ...]) -> list[str]:
    """The names asked for, in the order of `By`."""
    asked = there if by == "all" else (by,) if isinstance(by, str) else tuple(by)
    if not asked:
        raise ValueError(f"by is empty; choose among {', '.join(map(repr, there))}, or leave it out for all.")
    for name in asked:
        if name not in get_args(By):
            raise ValueError(f"by has {name!r}, which is unknown; choose among {', '.join(map(repr, get_args(By)))}.")
        if name not in there:
            raise ValueError(
                f"by has {name!r}, but this model has nothing of that kind; it has {', '.join(map(repr, there))}. "
                "Leave the others out."
            )
    return [name for name in get_args(By) if name in asked]


def _choices(model: Transformer, seed: int) -> dict[str, _Choice]:
    """Every way to choose weights or hidden units that this model allows."""
    every = [module for module in model.weights.modules() if isinstance(module, Linear)]
    choices = {
        "magnitude": _of_weights(every, _largest),
        "magnitude, each matrix": _of_weights(every, _largest_of_each),
        "random": _of_weights(every, partial(_random, seed=seed)),
    }
    parts = [part for block in model.stored_blocks for part in (block.attention, block.mlp)]
    for kind, name in MATRICES.items():
        found = [part for part in (getattr(part, name, None) for part in parts) if isinstance(part, Linear)]
        if found:
            choices[kind] = _of_weights(found, _largest)
    mlps = [block.mlp for block in model.stored_blocks if block.mlp is not None]
    if mlps:
        w_in = [mlp.w_in for mlp in mlps]
        choices["structured"] = _Choice(
            counted=w_in, size=sum(len(matrix.weight) for matrix in w_in), prune=partial(_units, mlps=mlps)
        )
    return choices


def _of_weights(matrices: list[Linear], how: Callable[[list[Linear], float], None]) -> _Choice:
    return _Choice(counted=matrices, size=sum(matrix.weight.numel() for matrix in matrices), prune=how)


def _largest(matrices: list[Linear], fraction: float) -> None:
    size = sum(matrix.weight.numel() for matrix in matrices)
    weights = [(matrix, "weight") for matrix in matrices]
    prune.global_unstructured(weights, prune.L1Unstructured, amount=size - round(fraction * size))


def _largest_of_each(matrices: list[Linear], fraction: float) -> None:
    for matrix in matrices:
        _largest([matrix], fraction)


def _random(matrices: list[Linear], fraction: float, *, seed: int) -> None:
    """The same order of weights for every fraction, so that what is kept of less is kept of more."""
    sizes = [matrix.weight.numel() for matrix in matrices]
    order = torch.randperm(sum(sizes), generator=derived_generator(seed, "pruning curve", "random"))
    mask = torch.zeros(sum(sizes))
    mask[order[: round(fraction * len(mask))]] = 1
    for matrix, part in zip(matrices, mask.split(sizes), strict=True):
        prune.custom_from_mask(matrix, "weight", part.view_as(matrix.weight).to(matrix.weight))


def _units(w_in: list[Linear], fraction: float, *, mlps: list[MLP | DeepMLP]) -> None:
    """A unit goes with its row of W_in, its bias and its column of the next matrix."""
    norms = torch.cat([matrix.weight.norm(dim=1) for matrix in w_in])
    kept = torch.zeros_like(norms)
    kept[norms.topk(round(fraction * len(norms))).indices] = 1
    for mlp, rows in zip(mlps, kept.split([len(matrix.weight) for matrix in w_in]), strict=True):
        after = mlp.w_2 if isinstance(mlp, DeepMLP) else mlp.w_out
        prune.custom_from_mask(mlp.w_in, "weight", rows[:, None].expand_as(mlp.w_in.weight))
        prune.custom_from_mask(after, "weight", rows.expand_as(after.weight))
        if mlp.w_in.bias is not None:
            prune.custom_from_mask(mlp.w_in, "bias", rows)


def _weights_kept(
    model: Transformer, task: Task, batch: Batch, choice: _Choice, levels: Sequence[float]
) -> list[Point]:
    points = []
    for level in levels:
        choice.prune(choice.counted, level)
        masks = [matrix.get_buffer("weight_mask") for matrix in choice.counted]
        kept = sum(int(mask.count_nonzero()) for mask in masks) / sum(mask.numel() for mask in masks)
        points.append((kept, _answers(score_batch(model, task, batch))))
        _make_whole(model)
    return points


def _make_whole(model: Transformer) -> None:
    """Take the masks off, and give back what they hid."""
    for module in model.weights.modules():
        for name in ("weight", "bias"):
            if hasattr(module, f"{name}_mask"):
                hidden = getattr(module, f"{name}_orig").data
                prune.remove(module, name)
                getattr(module, name).data = hidden


def _orders(model: Transformer, task: Task, chosen: Collection[str], n: int, seed: int) -> dict[str, list[list[Head]]]:
    """In which orders heads are to go, for each of the two ways if it is asked for."""
    every = [(layer, head) for layer in range(model.cfg.n_layers) for head in range(model.cfg.n_heads)]
    orders = {}
    if "heads" in chosen:
        generator = derived_generator(seed, "pruning curve", "importance")
        orders["heads"] = [_least_important_first(model, task, task.sample(n, generator=generator, split="validation"))]
    if "heads, random order" in chosen:
        generator = derived_generator(seed, "pruning curve", "orders")
        drawn = [torch.randperm(len(every), generator=generator).tolist() for _ in range(RANDOM_ORDERS)]
        orders["heads, random order"] = [[every[index] for index in order] for order in drawn]
    return orders


def _engines(model: Transformer, batch: Batch):
    for part in chunks(batch, max(1, TOKENS_PER_CHUNK // batch.tokens.shape[1])):
        yield part, AblationEngine(model, part.tokens, read_at=part.target_positions, **part.model_inputs())


def _least_important_first(model: Transformer, task: Task, batch: Batch) -> list[Head]:
    loss: dict[Head, float] = {}
    for part, engine in _engines(model, batch):
        for head, logits in engine.each_head(Zero()):
            loss[head] = loss.get(head, 0.0) + float(task.score(logits, part).loss.double().sum())
    return sorted(loss, key=lambda head: loss[head])


def _heads_kept(
    model: Transformer, task: Task, batch: Batch, orders: dict[str, list[list[Head]]], whole: Point
) -> dict[str, list[Point]]:
    """A point for every number of heads kept, from the whole model, mean over orders."""
    size = model.cfg.n_layers * model.cfg.n_heads
    gone = np.linspace(0, size, min(size, MOST_HEAD_POINTS) + 1).round().astype(int)[1:].tolist()
    sets = {frozenset(order[:count]) for several in orders.values() for order in several for count in gone}
    scores: dict[frozenset[Head], list[Score]] = {heads: [] for heads in sets}
    for part, engine in _engines(model, batch) if sets else ():
        for heads, found in scores.items():
            found.append(task.score(engine.head_set(sorted(heads), Zero()), part))
    without = {heads: _answers(*found) for heads, found in scores.items()}
    rows = {}
    for name, several in orders.items():
        means = [np.mean([without[frozenset(order[:count])] for order in several], 0) for count in gone]
        rows[name] = [whole, *((1 - count / size, mean) for count, mean in zip(gone, means, strict=True))]
    return rows


def _answers(*scores: Score) -> Answers:
    parts = [torch.stack([score.right.double().sum(1), score.loss.double().sum(1)]) for score in scores]
    return torch.cat(parts, 1).numpy()


def _measures(points: Sequence[Point], asked: Float[np.ndarray, " sample"]) -> Float[np.ndarray, "figure point"]:
    """Fraction kept, accuracy, the ends of its interval, loss."""
    kept = np.array([kept for kept, _ in points])
    right, loss = np.stack([answers for _, answers in points], -1)
    share, low, high = pooled_interval(right, np.broadcast_to(asked[:, None], right.shape))
    return np.stack([kept, share, low, high, loss.sum(0) / asked.sum()])
