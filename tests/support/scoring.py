"""Correctness of single answers."""

import numpy as np
import torch

from interp.tasks.base import logits_at_targets


def correct(task, logits, batch):
    """Whether the most likely answer is correct, for every target, supervised or not: (batch, target)."""
    return task.answers(logits_at_targets(logits, batch)) == batch.labels


def per_input(batch, *values):
    """Each value summed over the examples with equal input, in the order of inputs; as it is if all are distinct."""
    mask = torch.ones_like(batch.tokens) if batch.attention_mask is None else batch.attention_mask.long()
    inputs = torch.cat([batch.tokens, mask], 1).numpy()
    _, first, number = np.unique(inputs, axis=0, return_index=True, return_inverse=True)
    found = []
    for value in (np.asarray(value, dtype=float) for value in values):
        rows = [value[number.ravel() == index].sum(0) for index in range(len(first))]
        found.append(value if len(first) == len(value) else np.array(rows))
    return found
