"""Labels of probes as class numbers, and the labels of their controls."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.core.randomness import derived_generator
from interp.tasks.base import Batch, Task
from interp.tasks.outputs import checked_control_types, checked_probe_labels


def numbered_labels(task: Task, batches: Sequence[Batch]) -> list[dict[str, Int[Tensor, "_ target"]]]:
    """All probe labels of some batches by name, as numbers of the classes that occur in any of them: 0, 1, ...

    Classes are numbered in ascending order, so that a label and one with gaps (7 x label + 3) have the same numbers.
    The number is 0 where an example does not have the target.

    Raises:
        ValueError: a label that is not a class for every target (`checked_probe_labels`).
    """
    present = [batch.present for batch in batches]
    labels_of_batches = [checked_probe_labels(task, batch) for batch in batches]
    numbered: list[dict[str, Int[Tensor, "_ target"]]] = [{} for _ in batches]
    for name in labels_of_batches[0]:
        classes = [labels[name][exists] for labels, exists in zip(labels_of_batches, present, strict=True)]
        _, numbers = torch.cat(classes).unique(return_inverse=True)
        numbers_of_batches = numbers.split([len(values) for values in classes])
        for labels, exists, values in zip(numbered, present, numbers_of_batches, strict=True):
            labels[name] = torch.zeros(exists.shape, dtype=torch.int64)
            labels[name][exists] = values
    return numbered


def input_types(task: Task, batches: Sequence[Batch]) -> list[Int[Tensor, "_ target"]]:
    """Input types of some batches, for `control_labels`.

    Raises:
        ValueError: types that are not integers, one for every target.
    """
    return [checked_control_types(task, batch) for batch in batches]


def control_labels(
    types: Sequence[Int[Tensor, "_ target"]],
    labels: Sequence[Int[Tensor, "_ target"]],
    present: Sequence[Bool[Tensor, "_ target"]],
    n_classes: int,
    draws: int,
    seed: int,
) -> list[Int[Tensor, "target draw batch"]]:
    """Labels of the control task: at each target a random class per input type, as frequent as in the true labels.

    The types are put in a random order in which each has a segment as long as it has examples. Next to it are the true
    labels of all examples, by class, from a random start; a type gets the class at the middle of its segment. Each type
    thus has each class with the probability of that class, and the shares of the classes differ from those of the label
    only because types are not divided.

    Args:
        types: Input types of the examples to fit on, then of those to score on.
        labels: Their true labels.
        present: Whether each example has each target.
        n_classes: Number of classes.
        draws: Number of control tasks.
        seed: Determines the classes.

    Source: Hewitt & Liang 2019 (arXiv:1909.03368), Section 2, where the class of each type is drawn from the empirical
    distribution. Differs: classes of types are not independent, since one draw of few types has other shares than the
    label; and a type may have another class at another target, which has its own probe.
    """
    generator = derived_generator(seed, "control task")
    exists = torch.cat(list(present))
    all_types, all_labels = torch.cat(list(types)), torch.cat(list(labels))
    control = torch.zeros(exists.shape[1], draws, len(exists), dtype=label_dtype(n_classes))
    for target, rows in enumerate(exists.T):
        distinct, type_numbers = all_types[rows, target].unique(return_inverse=True)
        sorted_labels = all_labels[rows, target].sort().values
        # Middle of the segment of each type, in a random order for each draw
        n_examples = type_numbers.bincount().double().expand(draws, -1)
        order = torch.rand(draws, len(distinct), generator=generator, dtype=torch.float32).argsort(1)
        ordered_sizes = n_examples.gather(1, order)
        middles = torch.empty_like(ordered_sizes).scatter_(1, order, ordered_sizes.cumsum(1) - ordered_sizes / 2)
        # The true label there; both are on a circle
        start = torch.rand(draws, 1, generator=generator, dtype=torch.float64)
        share = (middles / len(type_numbers) + start) % 1
        class_of_type = sorted_labels[(share * len(sorted_labels)).long()].to(control.dtype)
        control[target][:, rows] = class_of_type[:, type_numbers]
    n_fitting = len(present[0])
    return [control[..., :n_fitting], control[..., n_fitting:]]


def shuffled_labels(
    labels: Sequence[Int[Tensor, "_ target"]],
    present: Sequence[Bool[Tensor, "_ target"]],
    n_classes: int,
    draws: int,
    seed: int,
) -> list[Int[Tensor, "target draw batch"]]:
    """Labels of each target in random orders, among the examples that have it."""
    generator = derived_generator(seed, "shuffled labels")
    shuffled = []
    for values, exists in zip(labels, present, strict=True):
        values = values.to(label_dtype(n_classes))
        draws_of_batch = torch.empty(values.shape[1], draws, len(values), dtype=values.dtype)
        for draw in range(draws):
            order = torch.randperm(len(values), generator=generator)
            draws_of_batch[:, draw] = _in_order(values, exists, order)
        shuffled.append(draws_of_batch)
    return shuffled


def label_dtype(n_classes: int) -> torch.dtype:
    """The smallest type of the labels, of which there are many: one per example, target and draw."""
    return torch.int8 if n_classes <= 128 else torch.int32


def _in_order(
    labels: Int[Tensor, "batch target"], present: Bool[Tensor, "batch target"], order: Int[Tensor, " batch"]
) -> Int[Tensor, "target batch"]:
    """Labels of each target in this order of the examples, without those that do not have the target."""
    ordered = labels.T.clone()
    for target, exists in enumerate(present.T):
        ordered[target, exists] = labels[order[exists[order]], target]
    return ordered
