"""Algorithms for template tasks: the equality test, and shortcuts that see the first symbol or how many are equal."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from interp.algorithms.algorithm import NOTHING, Algorithm, Variable
from interp.tasks.base import Task
from interp.tasks.template.strings import TemplateBatch, template_table
from interp.tasks.template.task import Template

Feature = Callable[[Sequence[int]], Hashable]
"""What a shortcut sees of a string, from the ids of its tokens."""


def equality(task: Task) -> Algorithm:
    """The equality test: which positions hold the same token decides which template it is, and so the label.

    Variables `symbol i` (given, the token at a position) and `match i`, the first position that holds the same token. A
    label that is a wildcard is copied from the first position that has it.

    Source: template paper (arXiv:2310.09753) Section 2.
    """
    return _algorithm(task, "equality test", _matches)


def first_symbol(task: Task) -> Algorithm:
    """A shortcut: only which positions hold the first symbol is seen; a copied symbol is the first one."""
    return _algorithm(task, "first symbol", lambda ids: tuple(one == ids[0] for one in ids), copied=lambda ids: ids[0])


def majority(task: Task) -> Algorithm:
    """A shortcut: only how often symbols occur is seen; a copied symbol is the most frequent one."""
    return _algorithm(
        task, "majority", lambda ids: tuple(sorted(map(ids.count, ids))), copied=lambda ids: max(ids, key=ids.count)
    )


def _matches(ids: Sequence[int]) -> tuple[int, ...]:
    return tuple(ids.index(one) for one in ids)


def _algorithm(
    task: Task, name: str, feature: Feature, *, copied: Callable[[Sequence[int]], int] | None = None
) -> Algorithm:
    """The most likely label given a feature of the string; of equally likely ones that of the first template."""
    task = Template.require(task, f"{name!r} is for template tasks.")
    length = len(task.labelled[0].tokens)
    symbols = tuple(
        Variable(name=f"symbol {i}", compute=lambda batch, i=i: batch.tokens[:, i], given=True) for i in range(length)
    )
    match = tuple(
        Variable(
            name=f"match {i}",
            of=tuple(one.name for one in symbols[: i + 1]),
            compute=lambda _, *ids: (torch.stack(ids) == ids[-1]).long().argmax(0),
        )
        for i in range(1, length)
    )
    labels = _labels(task, feature)

    tested = feature is _matches

    def answer(ids: list[int], first: list[int]) -> int:
        label = labels.get((0, *first) if tested else feature(ids), NOTHING)
        if isinstance(label, int):
            return label
        return ids[label[0]] if copied is None else copied(ids)

    def answers(batch: TemplateBatch, *values: Int[Tensor, " batch"]) -> Int[Tensor, "batch target"]:
        strings = torch.stack(values[:length], 1).tolist()
        first = torch.stack(values[length:], 1).tolist() if tested and length > 1 else [[]] * len(strings)
        found = torch.full_like(batch.labels, NOTHING)
        found[:, -1] = torch.tensor([answer(*one) for one in zip(strings, first, strict=True)])
        return found

    variables = (*symbols, *(match if tested else ()))
    return Algorithm(name=name, variables=variables, answers=answers)


def _labels(task: Template, feature: Feature) -> dict[Hashable, int | tuple[int]]:
    """The label for each value of a feature: an index of the answer, or the position that it is copied from."""
    weights: dict[Hashable, dict[int | tuple[int], float]] = defaultdict(lambda: defaultdict(float))
    for index, (one, row) in enumerate(
        zip(task.labelled, template_table(task.labelled, fixed=task.fixed).tolist(), strict=True)
    ):
        ids = [number if number >= 0 else -number - 1 + task.d_vocab for number in row[:-1]]
        if isinstance(one.label, float):
            label: int | tuple[int] = task.values.index(one.label)
        elif row[-1] < 0:
            label = -1 - row[-1]
        else:
            label = (row[:-1].index(row[-1]),)
        weights[feature(ids)][label] += task.weights[index] if task.weights else 1.0
    return {seen: max(found, key=found.__getitem__) for seen, found in weights.items()}
