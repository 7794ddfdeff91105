"""Held-out accuracy of the classifiers of every layer and target, and the labels of their controls."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits
from torch import Tensor

from hooks.extras import require
from interp.core.activations import BLOCK, same_examples
from interp.core.randomness import derived_generator
from interp.probing.ridge import Moments, one_hot

Blocks = Iterable[tuple[slice, Float[Tensor, "layer target block d_model"]]]
"""Rows of a batch and their activations, block by block."""
LabelSet = Sequence[Int[Tensor, "target _ _"]]
"""Labels of the examples to fit on and of those to score on."""


def control_labels(
    types: list[Int[Tensor, "_ target"]], present: list[Bool[Tensor, "_ target"]], n_classes: int, draws: int, seed: int
) -> list[Int[Tensor, "target draw batch"]]:
    """A random class per input type, the same in both batches."""
    exists, small = torch.cat(present), _smallest(n_classes)
    distinct, inverse = torch.cat(types)[exists].unique(return_inverse=True)
    generator = derived_generator(seed, "control task")
    labels = torch.zeros(draws, *exists.shape, dtype=small)
    for draw in labels:
        draw[exists] = torch.randint(n_classes, (len(distinct),), generator=generator).to(small)[inverse]
    labels = labels.permute(2, 0, 1)
    return [labels[..., : len(types[0])], labels[..., len(types[0]) :]]


def shuffled_labels(
    labels: list[Int[Tensor, "_ target"]],
    present: list[Bool[Tensor, "_ target"]],
    n_classes: int,
    draws: int,
    seed: int,
) -> list[Int[Tensor, "target draw batch"]]:
    """Labels of each target in random orders, among the examples that have it."""
    generator, found = derived_generator(seed, "shuffled labels"), []
    for values, exists in zip(labels, present, strict=True):
        values = values.to(_smallest(n_classes))
        mixed = torch.empty(values.shape[1], draws, len(values), dtype=values.dtype)
        for draw in range(draws):
            mixed[:, draw] = _in_order(values, exists, torch.randperm(len(values), generator=generator))
        found.append(mixed)
    return found


def _smallest(n_classes: int) -> torch.dtype:
    """The smallest type of the labels, of which there are many: one per example, target and draw."""
    return torch.int8 if n_classes <= 128 else torch.int32


def _in_order(
    labels: Int[Tensor, "batch target"], present: Bool[Tensor, "batch target"], order: Int[Tensor, " batch"]
) -> Int[Tensor, "target batch"]:
    ordered = labels.T.clone()
    for target, here in enumerate(present.T):
        ordered[target, here] = labels[order[here[order]], target]
    return ordered


def score_ridge(
    inputs: Sequence[Blocks], labels: Sequence[LabelSet], present: Sequence[Bool[Tensor, "_ target"]], n_classes: int
) -> list[Float[np.ndarray, "layer target _"]]:
    """Accuracy of least-squares classifiers, fitted and scored on the examples that have each target.

    Args:
        inputs: Activations of the examples to fit on, then of those to score on; each is read once.
        labels: Sets of labels.
        present: For both batches, whether each example has each target.
        n_classes: Number of classes.

    Returns:
        Accuracies for each set of labels.
    """
    groups = list(same_examples(*present))
    precision = torch.float64 if len(present[0]) > BLOCK else None
    moments: list[list[Moments]] = []
    columns = [part[0].shape[1] * n_classes for part in labels]
    for rows, x in inputs[0]:
        if not moments:
            sizes = [len(labels[0][0][targets]) for targets, _ in groups]
            moments = [[Moments(n, x.shape[-1], columns, dtype=precision or x.dtype) for _ in x] for n in sizes]
        for layers, (targets, exist) in zip(moments, groups, strict=True):
            here = _here(exist[0], rows)
            y = [one_hot(part[0][targets][..., rows][..., here], n_classes, x.dtype) for part in labels]
            if not y[0].shape[1]:
                continue
            for one, layer in zip(layers, x, strict=True):
                one.add(layer[targets][:, here], y)
    classifiers = [[one.solve(n_classes) for one in layers] for layers in moments]
    right = [torch.zeros(len(moments[0]), *part[1].shape[:2], dtype=torch.long) for part in labels]
    for rows, x in inputs[1]:
        for layers, (targets, exist) in zip(classifiers, groups, strict=True):
            here = _here(exist[1], rows)
            y = [part[1][targets][..., rows][..., here] for part in labels]
            for index, (fitted, layer) in enumerate(zip(layers, x, strict=True)):
                for counts, one, truth in zip(right, fitted, y, strict=True):
                    counts[index, targets] += one.right(layer[targets][:, here], truth)
    return [(counts.float() / present[1].sum(0)[:, None]).double().numpy() for counts in right]


def _here(exist: Any, rows: slice) -> Any:
    return exist if isinstance(exist, slice) else exist[rows]


def score_logistic(
    inputs: Sequence[Blocks], labels: Sequence[LabelSet], present: Sequence[Bool[Tensor, "_ target"]], n_classes: int
) -> list[Float[np.ndarray, "layer target _"]]:
    """Accuracy of scikit-learn's logistic regression on standardised inputs; as `score_ridge`, with all in memory."""
    fitting, testing = (torch.cat([x for _, x in blocks], 2) for blocks in inputs)
    scores = [np.empty((*fitting.shape[:2], part[0].shape[1])) for part in labels]
    for targets, (here, there) in same_examples(*present):
        x = fitting[:, targets][:, :, here], testing[:, targets][:, :, there]
        for found, part in zip(scores, labels, strict=True):
            found[:, targets] = _logistic_scores(x, (part[0][targets][..., here], part[1][targets][..., there]))
    return scores


def _logistic_scores(
    inputs: tuple[Tensor, Tensor], labels: tuple[Tensor, Tensor]
) -> Float[np.ndarray, "layer target draw"]:
    layers, targets = inputs[0].shape[:2]
    cells = [
        (inputs[0][layer, target], labels[0][target, draw], inputs[1][layer, target], labels[1][target, draw])
        for layer, target, draw in np.ndindex(layers, targets, labels[0].shape[1])
    ]
    with threadpool_limits(1):  # cells run in parallel; threads within each would compete for the same cores
        scores = Parallel(n_jobs=-1, prefer="threads")(
            delayed(_logistic_accuracy)(*(part.numpy() for part in cell)) for cell in cells
        )
    return np.array(scores).reshape(layers, targets, -1)


def _logistic_accuracy(x_fit: np.ndarray, y_fit: np.ndarray, x_test: np.ndarray, y_test: np.ndarray) -> float:
    require("sklearn", extra="sklearn")
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if len(np.unique(y_fit)) < 2:  # a control draw may give every input type the same class
        return float((y_test == y_fit[0]).mean())
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(x_fit, y_fit).score(x_test, y_test)
