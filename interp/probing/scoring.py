"""Held-out accuracy of the classifiers of every layer and target, and the labels of their controls."""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits
from torch import Tensor

from interp.core.activations import same_examples
from interp.core.randomness import derived_generator
from interp.probing.ridge import factorise, fit


def control_labels(
    types: list[Int[Tensor, "_ target"]], present: list[Bool[Tensor, "_ target"]], n_classes: int, draws: int, seed: int
) -> list[Int[Tensor, "target draw batch"]]:
    """A random class per input type, the same in both batches."""
    exists = torch.cat(present)
    distinct, inverse = torch.cat(types)[exists].unique(return_inverse=True)
    table = torch.randint(n_classes, (draws, len(distinct)), generator=derived_generator(seed, "control task"))
    labels = torch.zeros(draws, *exists.shape, dtype=torch.long)
    labels[:, exists] = table[:, inverse]
    labels = labels.permute(2, 0, 1)
    return [labels[..., : len(types[0])], labels[..., len(types[0]) :]]


def shuffled_labels(
    labels: list[Int[Tensor, "_ target"]], present: list[Bool[Tensor, "_ target"]], draws: int, seed: int
) -> list[Int[Tensor, "target draw batch"]]:
    """Labels of each target in random orders, among the examples that have it."""
    generator = derived_generator(seed, "shuffled labels")
    return [
        torch.stack(
            [_in_order(values, exists, torch.randperm(len(values), generator=generator)) for _ in range(draws)], 1
        )
        for values, exists in zip(labels, present, strict=True)
    ]


def _in_order(
    labels: Int[Tensor, "batch target"], present: Bool[Tensor, "batch target"], order: Int[Tensor, " batch"]
) -> Int[Tensor, "target batch"]:
    ordered = labels.T.clone()
    for target, here in enumerate(present.T):
        ordered[target, here] = labels[order[here[order]], target]
    return ordered


def score_present(
    solve: Callable[..., Float[np.ndarray, "layer target draw"]],
    inputs: list[Float[Tensor, "layer target _ d_model"]],
    labels: list[Int[Tensor, "target draw _"]],
    present: list[Bool[Tensor, "_ target"]],
    n_classes: int,
) -> Float[np.ndarray, "layer target draw"]:
    """Fit and score each target on the examples that have it."""
    scores = np.empty((*inputs[0].shape[:2], labels[0].shape[1]))
    for targets, rows in same_examples(*present):
        x = [part[:, targets][:, :, here] for part, here in zip(inputs, rows, strict=True)]
        y = [part[targets][..., here] for part, here in zip(labels, rows, strict=True)]
        scores[:, targets] = solve(x, y, n_classes)
    return scores


def score_ridge(inputs: list[Tensor], labels: list[Tensor], n_classes: int) -> Float[np.ndarray, "layer target draw"]:
    """Accuracy of least-squares classifiers, one factorisation per cell."""
    layers, targets = inputs[0].shape[:2]
    fit_labels, test_labels = (_per_cell(values, layers) for values in labels)
    classifier = fit(factorise(inputs[0].flatten(0, 1)), fit_labels, n_classes)
    return classifier.accuracy(inputs[1].flatten(0, 1), test_labels).view(layers, targets, -1).double().numpy()


def _per_cell(labels: Int[Tensor, "target draw batch"], layers: int) -> Int[Tensor, "cell draw batch"]:
    return labels.expand(layers, *labels.shape).flatten(0, 1)


def score_logistic(
    inputs: list[Tensor], labels: list[Tensor], n_classes: int
) -> Float[np.ndarray, "layer target draw"]:
    """Accuracy of scikit-learn's logistic regression on standardised inputs."""
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
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if len(np.unique(y_fit)) < 2:  # a control draw may give every input type the same class
        return float((y_test == y_fit[0]).mean())
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(x_fit, y_fit).score(x_test, y_test)
