"""Labels of probes as class numbers, and the labels of their controls."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.core.randomness import derived_generator
from interp.tasks.base import Batch, Task
from interp.tasks.outputs import checked_control_types, checked_probe_labels

EXAMPLES_PER_CLASS = 10
"""Fewest examples to fit on, per class."""
EXAMPLES_OF_OTHER_CLASSES = 5
"""Fewest examples to fit on outside of the largest class. With fewer, a probe that has found the label is no different
from one that has memorised four examples."""


@dataclass(frozen=True)
class Labelled:
    """Examples to fit on and examples to score on, with one label at the targets that can be probed."""

    label: str
    numbers: Sequence[Mapping[str, Int[Tensor, "_ target"]]]
    """All labels of either batch at every target, as in `numbered_labels`."""
    targets: list[int]
    """Indices of the targets that can be probed."""
    omitted: dict[str, str]
    """Reasons why the others cannot, by name."""
    n_classes: int
    labels: list[Int[Tensor, "_ probed"]]
    """The label of either batch at these targets."""
    present: list[Bool[Tensor, "_ probed"]]
    """Which examples of either batch have these targets."""
    types: list[Int[Tensor, "_ probed"]]
    """Input types of either batch at these targets, for `control_labels`."""


def labelled(task: Task, batches: Sequence[Batch], label: str | None, *, is_predicted: bool) -> Labelled:
    """Two batches with one label at the targets that can be probed.

    Args:
        task: Source of the labels.
        batches: Examples to fit on, and examples to score on.
        label: One of `task.probe_labels`, by default the first.
        is_predicted: Whether the label must be what the model predicts.

    Raises:
        ValueError: labels or input types that are not integers, an unknown label, one that is not predicted, too few
            examples, or no target that can be probed.
    """
    classes = [checked_probe_labels(task, batch) for batch in batches]
    numbers = numbered_labels(classes, batches)
    label = _known_label(numbers[0], label)
    if is_predicted:
        _check_is_predicted(classes[1][label], batches[1], label)
    labels = [of_batch[label] for of_batch in numbers]
    n_classes = int(torch.cat(labels).max()) + 1
    targets, omitted = _probed_targets(task, batches, labels[0], n_classes)
    if not targets:
        raise ValueError(_why_none(task, label, classes[0][label], omitted))
    return Labelled(
        label,
        numbers,
        targets,
        omitted,
        n_classes,
        labels=[values[:, targets] for values in labels],
        present=[batch.present[:, targets] for batch in batches],
        types=[checked_control_types(task, batch)[:, targets] for batch in batches],
    )


def numbered_labels(
    classes: Sequence[Mapping[str, Int[Tensor, "_ target"]]], batches: Sequence[Batch]
) -> list[dict[str, Int[Tensor, "_ target"]]]:
    """All probe labels of some batches by name, as numbers of the classes that occur in any of them: 0, 1, ...

    Classes are numbered in ascending order, so that a label and one with gaps (7 x label + 3) have the same numbers.
    The number is 0 where an example does not have the target.

    Args:
        classes: Classes of each batch by the name of the label (`checked_probe_labels`).
        batches: The batches.
    """
    present = [batch.present for batch in batches]
    numbered: list[dict[str, Int[Tensor, "_ target"]]] = [{} for _ in batches]
    for name in classes[0]:
        values_of_batches = [of_batch[name][exists] for of_batch, exists in zip(classes, present, strict=True)]
        _, numbers = torch.cat(values_of_batches).unique(return_inverse=True)
        numbers_of_batches = numbers.split([len(values) for values in values_of_batches])
        for labels, exists, values in zip(numbered, present, numbers_of_batches, strict=True):
            labels[name] = torch.zeros(exists.shape, dtype=torch.int64)
            labels[name][exists] = values
    return numbered


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


def omitted_text(omitted: Mapping[str, str]) -> str:
    """Targets that were not probed, by reason, as the end of a text; empty if there are none."""
    by_reason: dict[str, list[str]] = {}
    for target, reason in omitted.items():
        by_reason.setdefault(reason, []).append(target)
    groups = [f"{', '.join(targets)} ({reason})" for reason, targets in by_reason.items()]
    return f"; omitted: {', '.join(groups)}" if groups else ""


def _known_label(labels: Mapping[str, Int[Tensor, "batch target"]], label: str | None) -> str:
    """The label of this name, by default the first."""
    if label is None:
        return next(iter(labels))
    if label not in labels:
        raise ValueError(f"label is {label!r}; this task has {', '.join(labels)}.")
    return label


def _check_is_predicted(classes: Int[Tensor, "batch target"], batch: Batch, label: str) -> None:
    """Check that the classes of a label are the correct answers, as `verify` needs."""
    if not torch.equal(classes[batch.present], batch.labels[batch.present]):
        raise ValueError(f"verify compares with the model's answers, which are not {label!r}; use verify=False.")


def _probed_targets(
    task: Task, batches: Sequence[Batch], labels: Int[Tensor, "fitting target"], n_classes: int
) -> tuple[list[int], dict[str, str]]:
    """Indices of the targets that can be probed, and reasons why the others cannot."""
    fitting, testing = batches
    least = EXAMPLES_PER_CLASS * n_classes
    if len(fitting) < least:
        raise ValueError(f"n_train is {len(fitting)} for {n_classes} classes; give at least {least}.")
    # Sort the targets.
    probed, omitted = [], {}
    for index, name in enumerate(task.targets):
        values = labels[fitting.present[:, index], index]
        if len(values) < least:
            omitted[name] = f"fewer than {least} examples to fit on"
        elif not testing.present[:, index].any():
            omitted[name] = "no examples to score on"
        elif values.unique().numel() < 2:
            omitted[name] = "a single class"
        elif len(values) - int(values.bincount().max()) < EXAMPLES_OF_OTHER_CLASSES:
            omitted[name] = f"fewer than {EXAMPLES_OF_OTHER_CLASSES} examples outside of a single class"
        else:
            probed.append(index)
    return probed, omitted


def _why_none(task: Task, label: str, classes: Int[Tensor, "fitting target"], omitted: Mapping[str, str]) -> str:
    """Why a label can be probed at no target."""
    if set(omitted.values()) == {"a single class"}:
        return (
            f"label {label!r} has a single class at every target ({int(classes[0, 0])} in all {len(classes)} examples "
            f"at {task.targets[0]}), so there is nothing to classify. Choose another label or task."
        )
    return (
        f"label {label!r} can be probed at no target{omitted_text(omitted)}. Give more examples (n_train, n_test), "
        f"or choose another label or task."
    )
