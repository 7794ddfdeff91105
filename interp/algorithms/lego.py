"""Algorithms for LEGO chains: the loop along the chain, counting signs, and taking clauses in the order of the text."""

import torch
from jaxtyping import Int
from torch import Tensor

from interp.algorithms.algorithm import NOTHING, Algorithm, Variable
from interp.tasks.base import Task
from interp.tasks.lego.groups import Z2
from interp.tasks.lego.task import Lego, LegoBatch


def _operations(task: Lego) -> tuple[Variable, ...]:
    def operation(index: int) -> Variable:
        return Variable(name=f"operation {task.targets[index]}", compute=lambda b: b.operations[:, index], given=True)

    return tuple(map(operation, range(task.n_vars)))


def chain_loop(task: Task) -> Algorithm:
    """The loop along the chain: each value is an operation applied to the value before.

    Variables `operation #i` (given) and `value #i`, an index of `task.answer_names`.

    Source: LEGO (arXiv:2206.04301) Section 2.
    """
    task = Lego.require(task, "chain_loop is for Lego.")
    act, root = torch.tensor(task.group.act), task.group.root

    def value(index: int) -> Variable:
        name, own = f"value {task.targets[index]}", f"operation {task.targets[index]}"
        if not index:
            return Variable(name=name, of=(own,), compute=lambda _, operation: act[operation, root])
        of = (own, f"value {task.targets[index - 1]}")
        return Variable(name=name, of=of, compute=lambda _, operation, before: act[operation, before])

    variables = (*_operations(task), *map(value, range(task.n_vars)))
    return Algorithm(
        name="chain loop", variables=variables, answers=lambda _, *values: torch.stack(values[task.n_vars :], 1)
    )


def sign_count(task: Task) -> Algorithm:
    """Counting of minus signs: the last value is the parity of all signs, whatever their order in the chain.

    Variables `operation #i` (given) and `count`, the number of minus signs. It says nothing about the other values.

    Source: LEGO (arXiv:2206.04301) Section 4.3, the shortcut by which models learn the last variable early.

    Raises:
        ValueError: another task, or a group other than signs.
    """
    task = Lego.require(task, "sign_count is for Lego over signs (Z2).")
    if task.group.act != Z2.act:
        raise ValueError(f"task has group={task.group.name!r}; only over signs (Z2) is a value the parity of a count.")
    operations = _operations(task)
    count = Variable(
        name="count", of=tuple(one.name for one in operations), compute=lambda _, *signs: torch.stack(signs).sum(0)
    )

    def answers(batch: LegoBatch, *values: Int[Tensor, " batch"]) -> Int[Tensor, "batch target"]:
        found = torch.full_like(batch.labels, NOTHING)
        found[:, -1] = (values[-1] + task.group.root) % 2
        return found

    return Algorithm(name="sign count", variables=(*operations, count), answers=answers)


def nearest_clause(task: Task) -> Algorithm:
    """A shortcut: the operand of a clause is the value of the clause before it in the text, whatever letter it names.

    Variables `operation #i` (given) and `clause k`, the value of the k-th clause of the text. It is right where the
    clauses are in the order of the chain.
    """
    task = Lego.require(task, "nearest_clause is for Lego.")
    act, operations = torch.tensor(task.group.act), _operations(task)
    names = tuple(one.name for one in operations)

    def clause(index: int) -> Variable:
        def compute(batch: LegoBatch, *values: Int[Tensor, " batch"]) -> Int[Tensor, " batch"]:
            here = (batch.clause_of == index).long().argmax(1)
            own = torch.stack(values[: len(names)], 1).gather(1, here[:, None])[:, 0]
            return act[own, values[-1] if index else torch.full_like(own, task.group.root)]

        return Variable(
            name=f"clause {index}", of=(*names, *([f"clause {index - 1}"] if index else [])), compute=compute
        )

    def answers(batch: LegoBatch, *values: Int[Tensor, " batch"]) -> Int[Tensor, "batch target"]:
        return torch.stack(values[len(names) :], 1).gather(1, batch.clause_of)

    return Algorithm(name="nearest clause", variables=(*operations, *map(clause, range(task.n_vars))), answers=answers)
