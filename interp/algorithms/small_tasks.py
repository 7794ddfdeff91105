"""Algorithms for in-context lookup, modular addition and indirect objects."""

import torch
from jaxtyping import Int
from torch import Tensor

from hooks.typed import checks_types
from interp.algorithms.algorithm import NO_ANSWER, Algorithm, Variable
from interp.tasks.base import Batch, Task
from interp.tasks.in_context_lookup.task import InContextLookup
from interp.tasks.indirect_object.task import IndirectObject, IndirectObjectBatch
from interp.tasks.modular_addition.task import ModularAddition


@checks_types
def key_lookup(task: Task) -> Algorithm:
    """Each query is answered by the token that follows its key among the pairs.

    The variable is `token`, at each position (an input). It predicts nothing unless exactly one pair has the key. Which
    pair matches is a pattern of attention, no activation, so it is no variable: `audit` tests it.

    Source: induction heads, Olsson et al. 2022 (arXiv:2209.11895).
    """
    task = InContextLookup.require(task, "key_lookup is for in-context lookup.")

    def answers(_: Batch, token: Int[Tensor, "batch pos"]) -> Int[Tensor, "batch target"]:
        pairs, queries = token[:, : 2 * task.n_pairs].unflatten(1, (-1, 2)), token[:, 2 * task.n_pairs :]
        keys, values = pairs.unbind(-1)
        # which pair has the key of each query
        matches = queries[:, :, None] == keys[:, None]
        value = values.gather(1, matches.int().argmax(-1))
        has_answer = (matches.sum(-1) == 1) & (value < task.n_values)
        return torch.where(has_answer, value, NO_ANSWER)

    token = Variable(name="token", compute=lambda batch: batch.tokens, is_input=True, per_position=True)
    return Algorithm(name="key lookup", variables=(token,), answers=answers)


@checks_types
def pair_order(task: Task) -> Algorithm:
    """A shortcut that does not look keys up: the first query is answered by the first value, and so on."""
    task = InContextLookup.require(task, "pair_order is for in-context lookup.")

    def value(index: int) -> Variable:
        return Variable(name=f"value {index}", compute=lambda batch: batch.tokens[:, 2 * index + 1], is_input=True)

    return Algorithm(
        name="order of the pairs",
        variables=tuple(value(index) for index in range(task.n_pairs)),
        answers=lambda _, *values: torch.stack(values, 1),
    )


@checks_types
def modular_sum(task: Task) -> Algorithm:
    """The result of the task's operation, computed from both numbers.

    Variables `first` and `second`, the numbers (inputs), and `sum`.
    """
    task = ModularAddition.require(task, "modular_sum is for modular addition.")
    return Algorithm(
        name="modular sum",
        variables=(
            Variable(name="first", compute=lambda batch: batch.tokens[:, 0], is_input=True),
            Variable(name="second", compute=lambda batch: batch.tokens[:, 1], is_input=True),
            Variable(
                name="sum", parents=("first", "second"), compute=lambda _, first, second: task.operation(first, second)
            ),
        ),
        answers=lambda _, first, second, total: total[:, None],
    )


@checks_types
def other_by_name(task: Task) -> Algorithm:
    """The answer is the name that is not the repeated one, whichever place that has.

    The variable is `repeated name`. It predicts nothing if neither of the two names is the repeated one.
    """
    task = IndirectObject.require(task, "other_by_name is for indirect objects.")

    def repeated_name(batch: IndirectObjectBatch) -> Int[Tensor, " batch"]:
        return batch.names.gather(1, batch.repeated[:, None])[:, 0]

    def answers(batch: IndirectObjectBatch, repeated: Int[Tensor, " batch"]) -> Int[Tensor, "batch target"]:
        is_repeated = batch.names == repeated[:, None]
        answer = batch.names.gather(1, is_repeated.int().argmin(1, keepdim=True))
        return torch.where(is_repeated.any(1, keepdim=True), answer, NO_ANSWER)

    return Algorithm(
        name="other by name", variables=(Variable(name="repeated name", compute=repeated_name),), answers=answers
    )


@checks_types
def other_by_place(task: Task) -> Algorithm:
    """The answer is the name at the place that is not repeated: the first or the second, in the sentence's order.

    The variable is `repeated place`, 0 or 1. The answers are those of `other_by_name`; the two differ in what an
    interchange of their variables does to a sentence with the names in the other order.

    Source: the position signal of S-inhibition heads, Wang et al. 2022 (arXiv:2211.00593). Differs: the place is the
    order of the names, not the position of a token.
    """
    task = IndirectObject.require(task, "other_by_place is for indirect objects.")

    def answers(batch: IndirectObjectBatch, place: Int[Tensor, " batch"]) -> Int[Tensor, "batch target"]:
        return batch.names.gather(1, 1 - place[:, None])

    place = Variable(name="repeated place", compute=lambda batch: batch.repeated)
    return Algorithm(name="other by place", variables=(place,), answers=answers)
