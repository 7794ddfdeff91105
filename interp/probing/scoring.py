"""Held-out accuracy of the classifiers of every layer and target."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits
from torch import Tensor

from interp.core.activations import EXAMPLES_PER_BLOCK, same_examples
from interp.probing.ridge import Moments, one_hot, varying
from interp.tasks.base import Batch

Blocks = Iterable[tuple[slice, Float[Tensor, "layer target block d_model"]]]
"""Rows of a batch and their activations, block by block."""
LabelSet = Sequence[Int[Tensor, "target _ _"]]
"""Labels of the examples to fit on and of those to score on."""


def position_accuracy(
    batches: Sequence[Batch], labels: Sequence[Int[Tensor, "_ target"]], targets: Sequence[int]
) -> Float[np.ndarray, " target"]:
    """Accuracy of the most frequent class at the same position, of the same length, or both: the best of the three.

    Args:
        batches: Examples to fit on, then those to score on.
        labels: Their labels at the targets.
        targets: Indices of the targets.

    Returns:
        Share of the examples to score on that have the target; in cases that were not fitted, the most frequent class
        of all is predicted.
    """
    accuracy = np.empty(len(targets))
    for index, target in enumerate(targets):
        columns = [batch.target_positions[:, target] for batch in batches]
        lengths = [_lengths(batch) for batch in batches]
        exists = [batch.present[:, target] for batch in batches]
        positions = torch.cat([values[rows] for values, rows in zip(columns, exists, strict=True)])
        lengths = torch.cat([values[rows] for values, rows in zip(lengths, exists, strict=True)])
        classes = torch.cat([values[rows, index] for values, rows in zip(labels, exists, strict=True)]).long()
        n_fitted = int(exists[0].sum())
        scores = []
        for case in ([positions], [lengths], [positions, lengths]):
            cases = torch.stack(case, 1).unique(dim=0, return_inverse=True)[1]
            counts = torch.zeros(int(cases.max()) + 1, int(classes.max()) + 1)
            counts.index_put_((cases[:n_fitted], classes[:n_fitted]), torch.tensor(1.0), accumulate=True)
            # The most frequent class of all decides where nothing else does
            shares = counts.sum(0) / (n_fitted + 1)
            predicted = (counts + shares).argmax(1)
            scores.append(float((predicted[cases[n_fitted:]] == classes[n_fitted:]).double().mean()))
        accuracy[index] = max(scores)
    return accuracy


def majority_share(
    labels: Int[Tensor, "scored target"], present: Bool[Tensor, "scored target"]
) -> Float[np.ndarray, " target"]:
    """Share of the most frequent class of each target, among the examples that have it."""
    counts = [label[exists].bincount().double() for label, exists in zip(labels.T, present.T, strict=True)]
    return np.array([float(of_target.max() / of_target.sum()) for of_target in counts])


def _lengths(batch: Batch) -> Int[Tensor, " batch"]:
    """Number of tokens of each example, without padding."""
    if batch.attention_mask is None:
        return torch.full((len(batch),), batch.tokens.shape[1])
    return batch.attention_mask.sum(1)


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
    fitting_blocks, testing_blocks = inputs
    # A group is the targets that the same examples have; it has moments of every layer.
    groups = list(same_examples(*present))
    group_sizes = [len(labels[0][0][targets]) for targets, _ in groups]
    n_columns = [fit_labels.shape[1] * n_classes for fit_labels, _ in labels]
    moments: list[list[Moments]] = []
    # Fit: add the moments of all blocks, in double precision if there are several.
    for rows, block in fitting_blocks:
        if not moments:
            dtype = torch.float64 if len(present[0]) > EXAMPLES_PER_BLOCK else block.dtype
            width = block.shape[-1]
            moments = [[Moments(size, width, n_columns, dtype=dtype) for _ in block] for size in group_sizes]
        for layer_moments, (targets, (exists, _)) in zip(moments, groups, strict=True):
            examples = examples_in_block(exists, rows)
            onehots = []
            for fit_labels, _ in labels:
                block_labels = fit_labels[targets][..., rows][..., examples]
                onehots.append(one_hot(block_labels, n_classes, block.dtype))
            if not onehots[0].shape[1]:
                continue
            for layer, layer_moment in zip(block, layer_moments, strict=True):
                layer_moment.add(layer[targets][:, examples], onehots)
    # Score: count the correct answers of every layer.
    classifiers = [[moment.solve(n_classes) for moment in layer_moments] for layer_moments in moments]
    n_layers = len(moments[0])
    n_correct = [torch.zeros(n_layers, *test_labels.shape[:2], dtype=torch.long) for _, test_labels in labels]
    for rows, block in testing_blocks:
        for by_layer, (targets, (_, exists)) in zip(classifiers, groups, strict=True):
            examples = examples_in_block(exists, rows)
            truths = [test_labels[targets][..., rows][..., examples] for _, test_labels in labels]
            for index, (of_sets, layer) in enumerate(zip(by_layer, block, strict=True)):
                for counts, classifier, truth in zip(n_correct, of_sets, truths, strict=True):
                    counts[index, targets] += classifier.n_correct(layer[targets][:, examples], truth)
    n_scored = present[1].sum(0)[:, None]
    return [(counts.double() / n_scored).numpy() for counts in n_correct]


def examples_in_block(exists: Any, rows: slice) -> Any:
    """The examples of a block that have the targets of a group, as an index; `exists` is a slice if all have them."""
    return exists if isinstance(exists, slice) else exists[rows]


def score_logistic(
    inputs: Sequence[Blocks], labels: Sequence[LabelSet], present: Sequence[Bool[Tensor, "_ target"]], n_classes: int
) -> list[Float[np.ndarray, "layer target _"]]:
    """Accuracy of scikit-learn's logistic regression on standardised inputs; as `score_ridge`, with all in memory."""
    fitting, testing = (torch.cat([block for _, block in blocks], 2) for blocks in inputs)
    n_layers, n_targets = fitting.shape[:2]
    scores = [np.empty((n_layers, n_targets, fit_labels.shape[1])) for fit_labels, _ in labels]
    # A group is the targets that the same examples have.
    for targets, (fit_examples, test_examples) in same_examples(*present):
        group_inputs = fitting[:, targets][:, :, fit_examples], testing[:, targets][:, :, test_examples]
        for set_scores, (fit_labels, test_labels) in zip(scores, labels, strict=True):
            group_labels = fit_labels[targets][..., fit_examples], test_labels[targets][..., test_examples]
            set_scores[:, targets] = _logistic_scores(group_inputs, group_labels)
    return scores


def _logistic_scores(
    inputs: tuple[Tensor, Tensor], labels: tuple[Tensor, Tensor]
) -> Float[np.ndarray, "layer target draw"]:
    """Accuracy of every layer, target and draw, from inputs and labels to fit on and to score on."""
    # Coordinates that do not vary are 0: standardised, their rounding errors would be features
    varies = varying(inputs[0].mean(2), inputs[0].var(2, correction=0))[:, :, None]
    fit_inputs, test_inputs = ((values * varies).numpy() for values in inputs)
    fit_labels, test_labels = (values.numpy() for values in labels)
    shape = (*fit_inputs.shape[:2], fit_labels.shape[1])
    fits = []
    for layer, target, draw in np.ndindex(shape):
        fit_cell = fit_inputs[layer, target], fit_labels[target, draw]
        test_cell = test_inputs[layer, target], test_labels[target, draw]
        fits.append(delayed(_logistic_accuracy)(*fit_cell, *test_cell))
    # Cells run in parallel; threads within each would compete for the same cores.
    with threadpool_limits(1):
        scores = Parallel(n_jobs=-1, prefer="threads")(fits)
    return np.array(scores).reshape(shape)


def _logistic_accuracy(x_fit: np.ndarray, y_fit: np.ndarray, x_test: np.ndarray, y_test: np.ndarray) -> float:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if len(np.unique(y_fit)) < 2:  # a control draw may give every input type the same class
        return float((y_test == y_fit[0]).mean())
    classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    return classifier.fit(x_fit, y_fit).score(x_test, y_test)
