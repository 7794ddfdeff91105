"""Algorithms for LEGO chains: the loop along the chain, counting signs, and taking clauses in the order of the text."""

import torch
from jaxtyping import Int
from torch import Tensor

from hooks.typed import checks_types
from interp.algorithms.algorithm import NO_ANSWER, Algorithm, Variable
from interp.tasks.base import Task
from interp.tasks.lego.groups import Z2
from interp.tasks.lego.task import Lego, LegoBatch


def _operations(task: Lego) -> tuple[Variable, ...]:
    """The operation of each variable of the chain, an input."""

    def operation(index: int) -> Variable:
        name = f"operation {task.targets[index]}"
        return Variable(name=name, compute=lambda batch: batch.operations[:, index], is_input=True)

    return tuple(map(operation, range(task.n_vars)))


@checks_types
def chain_loop(task: Task) -> Algorithm:
    """The loop along the chain: each value is an operation applied to the value before.

    Variables `operation #i` (inputs) and `value #i`, an index of `task.answer_names`.

    Source: LEGO (arXiv:2206.04301) Section 2.
    """
    task = Lego.require(task, "chain_loop is for Lego.")
    act = torch.tensor(task.group.act)
    root = task.group.root

    def value(index: int) -> Variable:
        name = f"value {task.targets[index]}"
        operation_name = f"operation {task.targets[index]}"
        # The first value is the operation on the root, every other one on the value before.
        if index == 0:
            return Variable(name=name, parents=(operation_name,), compute=lambda _, operation: act[operation, root])
        parents = (operation_name, f"value {task.targets[index - 1]}")
        return Variable(name=name, parents=parents, compute=lambda _, operation, before: act[operation, before])

    variables = (*_operations(task), *map(value, range(task.n_vars)))
    return Algorithm(
        name="chain loop", variables=variables, answers=lambda _, *values: torch.stack(values[task.n_vars :], 1)
    )


@checks_types
def sign_count(task: Task) -> Algorithm:
    """Counting of minus signs: the last value is the parity of all signs, whatever their order in the chain.

    Variables `operation #i` (inputs) and `count`, the number of minus signs. It predicts nothing about other values.

    Source: LEGO (arXiv:2206.04301) Section 4.3, the shortcut by which models learn the last variable early.

    Raises:
        ValueError: another task, or a group other than signs.
    """
    task = Lego.require(task, "sign_count is for Lego over signs (Z2).")
    if task.group.act != Z2.act:
        raise ValueError(f"task has group={task.group.name!r}; only over signs (Z2) is a value the parity of a count.")
    operations = _operations(task)
    names = tuple(operation.name for operation in operations)
    count = Variable(name="count", parents=names, compute=lambda _, *signs: torch.stack(signs).sum(0))

    def answers(batch: LegoBatch, *values: Int[Tensor, " batch"]) -> Int[Tensor, "batch target"]:
        predicted = torch.full_like(batch.labels, NO_ANSWER)
        predicted[:, -1] = (values[-1] + task.group.root) % 2
        return predicted

    return Algorithm(name="sign count", variables=(*operations, count), answers=answers)


@checks_types
def nearest_clause(task: Task) -> Algorithm:
    """A shortcut: the operand of a clause is the value of the clause before it in the text, whatever letter it names.

    Variables `operation #i` (inputs) and `clause k`, the value of the k-th clause of the text. It is right where the
    clauses are in the order of the chain.
    """
    task = Lego.require(task, "nearest_clause is for Lego.")
    act = torch.tensor(task.group.act)
    operations = _operations(task)
    names = tuple(operation.name for operation in operations)

    def clause(index: int) -> Variable:
        def compute(batch: LegoBatch, *values: Int[Tensor, " batch"]) -> Int[Tensor, " batch"]:
            # The operation of the variable that the clause defines, on the value of the clause before.
            variable = (batch.clause_of == index).long().argmax(1)
            operation = torch.stack(values[: len(names)], 1).gather(1, variable[:, None])[:, 0]
            before = values[-1] if index else torch.full_like(operation, task.group.root)
            return act[operation, before]

        parents = (*names, f"clause {index - 1}") if index else names
        return Variable(name=f"clause {index}", parents=parents, compute=compute)

    def answers(batch: LegoBatch, *values: Int[Tensor, " batch"]) -> Int[Tensor, "batch target"]:
        return torch.stack(values[len(names) :], 1).gather(1, batch.clause_of)

    return Algorithm(name="nearest clause", variables=(*operations, *map(clause, range(task.n_vars))), answers=answers)
