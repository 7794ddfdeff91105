"""Distinct inputs of a sample, the independent units of an interval.

A finite task has few inputs: a sample of 2,000 may have 80 distinct ones, on each of which a model always gives the
same answer. Accuracies are means over the sample; intervals count an input once, however often it was drawn. Audits
count draws, since their verdicts are about the task's held-out inputs, and say how many distinct ones they saw.
"""

import numpy as np
import torch
from jaxtyping import Float, Int

from interp.tasks.base import Batch


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
