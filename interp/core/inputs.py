"""Distinct inputs of a sample, the independent units of an interval; and all inputs of a task with few of them.

A finite task has few inputs: a sample of 2,000 may have 80 distinct ones, on each of which a model always gives the
same answer. Accuracies are means over the sample; intervals count an input once, however often it was drawn. Audits
count draws, since their verdicts are about the task's held-out inputs, and say how many distinct ones they saw.

With `n="all"` every input is run once. What pairs an input with others (their outputs, patterns or values in place of
its own) then uses a fixed family of pairings: inputs are put in a fixed random order, and pairing k gives each input
the one that comes k + 1 places later. So no pairing gives an input itself, all pairings of an input differ, each input
is used equally often, and nothing depends on a seed.
"""

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.core.randomness import derived_generator
from interp.tasks.base import Batch, Task
from interp.tasks.splits import ALL, EveryInput, Split, sample_split

MOST_PAIRS = 1024
"""Pairs of inputs that the pairings of a family have together, if there are that many. A share of them is within 0.016
(one standard error) of that of all pairs, a sixth of the loss that counts in a task with two equally likely answers.
Up to 32 inputs these are all pairs."""
FEWEST_PAIRINGS = 2
"""Least number of pairings, so that each input is paired with different ones."""


def inputs_or_sample(task: Task, n: int | EveryInput, *, generator: torch.Generator, split: Split = "test") -> Batch:
    """n sampled examples, or with "all" every input in the order whose neighbours are paired (`partners`).

    Raises:
        ValueError: an error of `sample_split`, or a single input with n="all", which cannot be paired.
    """
    batch = sample_split(task, n, generator=generator, split=split)
    if n != ALL:
        return batch
    if len(batch) < 2 and not task.counterparts_are_fixed:
        raise ValueError(
            f"n is 'all', but the {split} split of {type(task).__name__} has a single input, and none to compare it "
            f"with; use a task with more inputs."
        )
    order = torch.randperm(len(batch), generator=derived_generator(0, "every input"))
    return batch.select(order)


def number_of_pairings(n_inputs: int) -> int:
    """Number of pairings of a family: those that give `MOST_PAIRS` pairs, or all that differ."""
    return min(n_inputs - 1, max(FEWEST_PAIRINGS, -(-MOST_PAIRS // n_inputs)))


def partners(rows: slice, n_inputs: int, pairing: int) -> Int[Tensor, " batch"]:
    """Index of the input that a pairing gives each of some inputs.

    Args:
        rows: The inputs.
        n_inputs: Number of all inputs, two or more.
        pairing: Number of the pairing, from 0. Pairings repeat after n_inputs - 1.

    >>> partners(slice(0, 4), 4, 0).tolist(), partners(slice(0, 4), 4, 1).tolist()
    ([1, 2, 3, 0], [2, 3, 0, 1])
    """
    distance = 1 + pairing % (n_inputs - 1)
    return (torch.arange(n_inputs)[rows] + distance) % n_inputs


def all_inputs_text(n_inputs: int) -> str:
    """Words for a result without sampling error."""
    return "the only input, exact" if n_inputs == 1 else f"all {n_inputs:,} inputs, exact"


def distinct_inputs(batch: Batch) -> Int[np.ndarray, " sample"]:
    """Number of the input of each example, from 0; examples with equal tokens, positions and padding have the same."""
    columns = [batch.tokens]
    for further in (batch.position_ids, batch.attention_mask):
        if further is not None:
            columns.append(further.long())
    _, numbers = torch.cat(columns, 1).unique(dim=0, return_inverse=True)
    return numbers.numpy()


def sum_by_input(
    values: Float[np.ndarray, "sample *cells"], inputs: Int[np.ndarray, " sample"]
) -> Float[np.ndarray, "input *cells"]:
    """Sum over the examples of each input."""
    if inputs.max() + 1 == len(inputs):  # all are distinct: the same rows, in the order of the sample
        return values
    sums = np.zeros((inputs.max() + 1, *values.shape[1:]))
    np.add.at(sums, inputs, values)
    return sums


def repeats_text(
    n: int | Int[np.ndarray, " target"], n_distinct: int | Int[np.ndarray, " target"], *, counted: bool = True
) -> str:
    """Words that follow a number of examples; empty if all are distinct.

    Args:
        n: Number of examples; of several, the largest.
        n_distinct: Number of distinct ones.
        counted: Whether intervals count distinct ones, and not draws.
    """
    most, distinct = int(np.max(n)), int(np.max(n_distinct))
    if distinct >= most:
        return ""
    return f" ({distinct} distinct, which intervals count)" if counted else f" ({distinct} distinct)"
