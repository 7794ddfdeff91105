"""Algorithms for template tasks: the equality test, and shortcuts from the first symbol or from counts of symbols."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from hooks.typed import checks_types
from interp.algorithms.algorithm import NO_ANSWER, Algorithm, Variable
from interp.tasks.base import Task
from interp.tasks.template.strings import TemplateBatch, template_table
from interp.tasks.template.task import Template

Feature = Callable[[Sequence[int]], Hashable]
"""What an algorithm uses of a string, from the ids of its tokens."""


@checks_types
def equality(task: Task) -> Algorithm:
    """The equality test: which positions hold the same token decides which template it is, and so the label.

    Variables `symbol i` (an input, the token at a position) and `match i`, the first position that holds the same
    token. A label that is a wildcard is copied from the first position that has it.

    Source: template paper (arXiv:2310.09753) Section 3.
    """
    return _algorithm(task, "equality test", _matches)


@checks_types
def first_symbol(task: Task) -> Algorithm:
    """A shortcut that uses only which positions hold the first symbol; a copied symbol is the first one."""

    def positions_of_first(ids: Sequence[int]) -> tuple[bool, ...]:
        return tuple(token == ids[0] for token in ids)

    return _algorithm(task, "first symbol", positions_of_first, copied=lambda ids: ids[0])


@checks_types
def majority_symbol(task: Task) -> Algorithm:
    """A shortcut that uses only how often symbols occur; a copied symbol is the most frequent one."""

    def sorted_counts(ids: Sequence[int]) -> tuple[int, ...]:
        return tuple(sorted(map(ids.count, ids)))

    return _algorithm(task, "majority", sorted_counts, copied=lambda ids: max(ids, key=ids.count))


def _matches(ids: Sequence[int]) -> tuple[int, ...]:
    """For each position the first one that holds the same token."""
    return tuple(ids.index(token) for token in ids)


def _algorithm(
    task: Task, name: str, feature: Feature, *, copied: Callable[[Sequence[int]], int] | None = None
) -> Algorithm:
    """The most likely label for a feature of the string; of equally likely ones that of the first template."""
    task = Template.require(task, f"{name!r} is for template tasks.")
    length = len(task.labelled[0].tokens)
    labels = _labels(task, feature)
    has_matches = feature is _matches

    def answer(ids: list[int], matches: list[int]) -> int:
        label = labels.get((0, *matches) if has_matches else feature(ids), NO_ANSWER)
        if isinstance(label, int):
            return label
        return ids[label[0]] if copied is None else copied(ids)

    def answers(batch: TemplateBatch, *values: Int[Tensor, " batch"]) -> Int[Tensor, "batch target"]:
        strings = torch.stack(values[:length], 1).tolist()
        matches: list[list[int]] = [[]] * len(strings)
        if len(values) > length:
            matches = torch.stack(values[length:], 1).tolist()
        predicted = torch.full_like(batch.labels, NO_ANSWER)
        predicted[:, -1] = torch.tensor(list(map(answer, strings, matches)))
        return predicted

    variables = [_symbol(index) for index in range(length)]
    if has_matches:
        variables += [_match(index) for index in range(1, length)]
    return Algorithm(name=name, variables=tuple(variables), answers=answers)


def _symbol(index: int) -> Variable:
    return Variable(name=f"symbol {index}", compute=lambda batch: batch.tokens[:, index], is_input=True)


def _match(index: int) -> Variable:
    return Variable(
        name=f"match {index}",
        parents=tuple(f"symbol {i}" for i in range(index + 1)),
        compute=lambda _, *ids: (torch.stack(ids) == ids[-1]).long().argmax(0),
    )


def _labels(task: Template, feature: Feature) -> dict[Hashable, int | tuple[int]]:
    """The label for each value of a feature: an index of the answer, or the position that it is copied from."""
    # The weight of each label, summed over the templates with a value of the feature.
    weights: dict[Hashable, dict[int | tuple[int], float]] = defaultdict(lambda: defaultdict(float))
    table = template_table(task.labelled, fixed=task.fixed).tolist()
    for index, (template, (*numbers, label_number)) in enumerate(zip(task.labelled, table, strict=True)):
        # Fixed tokens have negative numbers; here they get ids after those of the wildcards.
        ids = [number if number >= 0 else -number - 1 + task.d_vocab for number in numbers]
        if isinstance(template.label, float):
            label: int | tuple[int] = task.values.index(template.label)
        elif label_number < 0:
            label = -1 - label_number
        else:
            label = (numbers.index(label_number),)
        weights[feature(ids)][label] += task.weights[index] if task.weights else 1.0
    return {value: max(by_label, key=by_label.__getitem__) for value, by_label in weights.items()}
