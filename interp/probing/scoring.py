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
from interp.core.activations import EXAMPLES_PER_BLOCK, same_examples
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
    generator, shuffled = derived_generator(seed, "shuffled labels"), []
    for values, exists in zip(labels, present, strict=True):
        values = values.to(_smallest(n_classes))
        orders = torch.empty(values.shape[1], draws, len(values), dtype=values.dtype)
        for draw in range(draws):
            orders[:, draw] = _in_order(values, exists, torch.randperm(len(values), generator=generator))
        shuffled.append(orders)
    return shuffled


def _smallest(n_classes: int) -> torch.dtype:
    """The smallest type of the labels, of which there are many: one per example, target and draw."""
    return torch.int8 if n_classes <= 128 else torch.int32


def _in_order(
    labels: Int[Tensor, "batch target"], present: Bool[Tensor, "batch target"], order: Int[Tensor, " batch"]
) -> Int[Tensor, "target batch"]:
    ordered = labels.T.clone()
    for target, exists in enumerate(present.T):
        ordered[target, exists] = labels[order[exists[order]], target]
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
    # Fit: moments of every layer, for each group of targets that the same examples have.
    precision = torch.float64 if len(present[0]) > EXAMPLES_PER_BLOCK else None
    columns = [fitting.shape[1] * n_classes for fitting, _ in labels]
    moments: list[list[Moments]] = []
    for rows, block in inputs[0]:
        if not moments:
            dtype, width = precision or block.dtype, block.shape[-1]
            sizes = [len(labels[0][0][targets]) for targets, _ in groups]
            moments = [[Moments(size, width, columns, dtype=dtype) for _ in block] for size in sizes]
        for layer_moments, (targets, (exists, _)) in zip(moments, groups, strict=True):
            examples = _in_block(exists, rows)
            onehots = [
                one_hot(fitting[targets][..., rows][..., examples], n_classes, block.dtype) for fitting, _ in labels
            ]
            if not onehots[0].shape[1]:
                continue
            for layer, moment in zip(block, layer_moments, strict=True):
                moment.add(layer[targets][:, examples], onehots)
    # Score: correct answers of every layer.
    classifiers = [[moment.solve(n_classes) for moment in layer_moments] for layer_moments in moments]
    n_correct = [torch.zeros(len(moments[0]), *testing.shape[:2], dtype=torch.long) for _, testing in labels]
    for rows, block in inputs[1]:
        for by_layer, (targets, (_, exists)) in zip(classifiers, groups, strict=True):
            examples = _in_block(exists, rows)
            truths = [testing[targets][..., rows][..., examples] for _, testing in labels]
            for index, (fitted, layer) in enumerate(zip(by_layer, block, strict=True)):
                for counts, classifier, truth in zip(n_correct, fitted, truths, strict=True):
                    counts[index, targets] += classifier.n_correct(layer[targets][:, examples], truth)
    n_scored = present[1].sum(0)[:, None]
    return [(counts.float() / n_scored).double().numpy() for counts in n_correct]


def _in_block(exists: Any, rows: slice) -> Any:
    """Which examples of a block have the targets of a group; `exists` is a slice if all examples have all targets."""
    return exists if isinstance(exists, slice) else exists[rows]


def score_logistic(
    inputs: Sequence[Blocks], labels: Sequence[LabelSet], present: Sequence[Bool[Tensor, "_ target"]], n_classes: int
) -> list[Float[np.ndarray, "layer target _"]]:
    """Accuracy of scikit-learn's logistic regression on standardised inputs; as `score_ridge`, with all in memory."""
    fitting, testing = (torch.cat([block for _, block in blocks], 2) for blocks in inputs)
    scores = [np.empty((*fitting.shape[:2], fit_labels.shape[1])) for fit_labels, _ in labels]
    for targets, (fitted, tested) in same_examples(*present):
        group_inputs = fitting[:, targets][:, :, fitted], testing[:, targets][:, :, tested]
        for set_scores, (fit_labels, test_labels) in zip(scores, labels, strict=True):
            group_labels = fit_labels[targets][..., fitted], test_labels[targets][..., tested]
            set_scores[:, targets] = _logistic_scores(group_inputs, group_labels)
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
            delayed(_logistic_accuracy)(*(values.numpy() for values in cell)) for cell in cells
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
