"""Correctness of single answers."""

from interp.tasks.base import logits_at_targets


def correct(task, logits, batch):
    """Whether the most likely answer is correct, for every target, supervised or not: (batch, target)."""
    return task.answers(logits_at_targets(logits, batch)) == batch.labels
