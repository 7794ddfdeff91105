"""Exact effect of removing each head: its output replaced by its mean, on the loss, the margin and the accuracy."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from hooks.interventions.ablation_engine import AblationEngine, Head, every_head
from hooks.interventions.replacements import Mean, Replacement
from interp.core.activations import TOKENS_PER_CHUNK, chunks
from interp.core.inputs import distinct_inputs, sum_by_input
from interp.core.randomness import derived_generator
from interp.core.sample import Sample
from interp.core.statistics import SHARE_THAT_COUNTS, drop_interval
from interp.heads.interventions import References
from interp.tasks.base import Batch, Task


@dataclass(frozen=True)
class ModelOnBatch:
    """Sequences, with the loss and the margin of their answers.

    The loss is the mean over the audited outcomes of the loss per answer. The margin is linear in the logits: its
    direction is minus the gradient of the loss at equal logits, that is, of the right answer minus the mean of all
    answers; for an output that is a number, minus the gradient at the best constant output.

    Args:
        task: Task of the sequences.
        batch: The sequences.
        dtype: Type of the model's logits.
    """

    task: Task
    batch: Batch
    dtype: torch.dtype

    @cached_property
    def weight(self) -> Float[Tensor, " outcome"]:
        """Weight of each outcome's summed loss; 0 where it is not audited or has no answers."""
        total = self.task.score(self._constant(0.0), self.batch).total.sum(0)
        audited = torch.tensor([name in self.task.audited_outcomes for name in self.task.outcomes])
        counted = audited & (total > 0)
        return torch.where(counted, 1 / total.clamp_min(1), 0) / counted.sum()

    @cached_property
    def direction(self) -> Float[Tensor, "batch target d_vocab_out"]:
        """Derivative of the margin with respect to the logits at the targets."""
        if self.task.d_vocab_out > 1:
            return self._descent(0.0)
        # The gradient of a squared error is linear in the constant: zero at the best one
        at_zero, at_one = self._descent(0.0), self._descent(1.0)
        return self._descent(float(at_zero.sum() / (at_zero - at_one).sum()))

    def parts(self, size: int) -> Iterator[tuple[slice, "ScoredSequences"]]:
        """Rows, and the sequences of these rows with the weights and directions of the whole."""
        start = 0
        for batch in chunks(self.batch, size):
            rows = slice(start, start + len(batch))
            yield rows, ScoredSequences(self.task, batch, self.weight, self.direction[rows])
            start += len(batch)

    def _constant(self, value: float) -> Float[Tensor, "batch target d_vocab_out"]:
        return torch.full((*self.batch.labels.shape, self.task.d_vocab_out), value, dtype=self.dtype)

    @torch.enable_grad()
    def _descent(self, value: float) -> Float[Tensor, "batch target d_vocab_out"]:
        """Minus the gradient of the loss where all logits have a value."""
        logits = self._constant(value).requires_grad_()
        loss = (self.task.score(logits, self.batch).loss * self.weight).sum()
        return -torch.autograd.grad(loss, logits)[0]


@dataclass(frozen=True)
class ScoredSequences:
    """Some of the sequences."""

    task: Task
    batch: Batch
    weight: Float[Tensor, " outcome"]
    direction: Float[Tensor, "batch target d_vocab_out"]

    def loss(self, at_targets: Float[Tensor, "batch target d_vocab_out"]) -> Float[Tensor, ""]:
        """Share of these sequences in the loss, in nats per answer (or squared units)."""
        return (self.task.score(at_targets, self.batch).loss * self.weight).sum()

    def margin(self, at_targets: Float[Tensor, "batch target d_vocab_out"]) -> Float[Tensor, ""]:
        """Share of these sequences in the margin, in units of a logit."""
        return (at_targets * self.direction).sum()


@dataclass(frozen=True, kw_only=True)
class RemovalEffects:
    """What is lost without each head, one at a time."""

    heads: tuple[Head, ...]
    loss: float
    """Loss of the whole model."""
    rise: Float[np.ndarray, " head"]
    """Rise of the loss."""
    fall: Float[np.ndarray, " head"]
    """Fall of the margin."""
    drop: Float[np.ndarray, "head outcome"]
    """Fall of the accuracy on each audited outcome."""
    low: Float[np.ndarray, "head outcome"]
    high: Float[np.ndarray, "head outcome"]
    """Ends of its conservative 95 % interval over distinct inputs."""
    threshold: Float[np.ndarray, " outcome"]
    """Fall that counts: a fifth of the accuracy above chance."""

    @property
    def needed(self) -> Bool[np.ndarray, " head"]:
        """Whether the accuracy falls by more than counts, on some outcome and beyond noise."""
        return np.any(self.low > self.threshold, axis=1)

    @property
    def spare(self) -> Bool[np.ndarray, " head"]:
        """Whether it falls by less on every outcome, beyond noise."""
        return np.all(self.high < self.threshold, axis=1)


def answers_of(model: Any, task: Task, *, n: int, seed: int) -> tuple[ModelOnBatch, Mean]:
    """The sequences that `interp.ablate_heads` draws, and its replacement of a head by its mean on others.

    Args:
        model: Model in evaluation mode.
        task: Its task.
        n: Number of sequences.
        seed: Determines the sequences and the reference of the mean.
    """
    batch = task.sample(n, generator=derived_generator(seed, "ablate"), split="test")
    means = References(model, Sample(task, batch, seed)).means
    return ModelOnBatch(task, batch, next(model.parameters()).dtype), Mean(list(means.values()))


@torch.no_grad()
def remove_heads(
    model: Any, answers: ModelOnBatch, replace: Replacement, *, sets: Sequence[tuple[Head, ...]] | None = None
) -> RemovalEffects:
    """Remove each head alone, or each of some sets of heads.

    Args:
        model: Model in evaluation mode.
        answers: Sequences and their answers.
        replace: What takes the place of a head's output.
        sets: Sets of heads, a row of the result each; default: every head alone.
    """
    task = answers.task
    size = max(1, TOKENS_PER_CHUNK // answers.batch.tokens.shape[1])
    every = tuple((head,) for head in every_head(model)) if sets is None else tuple(sets)
    # Rise of the loss and fall of the margin of each set; answers lost, answers in all and answers right at first
    effect = torch.zeros(len(every), 2, dtype=torch.double)
    lost, total, clean = [], [], []
    loss = 0.0
    for _, sequences in answers.parts(size):
        inputs: dict[str, Any] = sequences.batch.model_inputs()
        engine = AblationEngine(model, sequences.batch.tokens, read_at=sequences.batch.target_positions, **inputs)
        before = task.score(engine.logits, sequences.batch)
        loss_before = sequences.loss(engine.logits)
        margin_before = sequences.margin(engine.logits)
        # Removals resume from the layer of the head
        fallen = torch.zeros(len(sequences.batch), len(every), len(task.outcomes), dtype=torch.double)
        for row, logits in _removed(engine, every, replace):
            effect[row, 0] += sequences.loss(logits) - loss_before
            effect[row, 1] += margin_before - sequences.margin(logits)
            fallen[:, row] = (before.right - task.score(logits, sequences.batch).right).double()
        loss += float(loss_before)
        lost.append(fallen)
        clean.append(before.right.double())
        total.append(before.total.double())
    return RemovalEffects(
        heads=tuple(every_head(model)),
        loss=loss,
        rise=effect[:, 0].numpy(),
        fall=effect[:, 1].numpy(),
        **_falls(answers, torch.cat(lost), torch.cat(clean), torch.cat(total)),
    )


def _removed(
    engine: AblationEngine, sets: Sequence[tuple[Head, ...]], replace: Replacement
) -> Iterator[tuple[int, Float[Tensor, "batch read d_vocab_out"]]]:
    """Index of each set and the logits without its heads."""
    row = {heads: row for row, heads in enumerate(sets)}
    # The engine removes several single heads of a layer in one pass
    if all(len(heads) == 1 for heads in sets):
        for head, logits in engine.each_head(replace, {heads[0] for heads in sets}):
            yield row[(head,)], logits
    else:
        for heads, logits in engine.each_set(sets, replace):
            yield row[heads], logits


def _falls(answers: ModelOnBatch, lost: Tensor, clean: Tensor, total: Tensor) -> dict[str, np.ndarray]:
    """Falls of the accuracy with intervals, and the threshold, on the audited outcomes."""
    task = answers.task
    # Audited outcomes that have answers
    has_answers = (total.sum(0) > 0).tolist()
    audited = [
        outcome for outcome, name in enumerate(task.outcomes) if name in task.audited_outcomes and has_answers[outcome]
    ]
    # Equal inputs count as one unit
    inputs = distinct_inputs(answers.batch)
    n_answers = sum_by_input(total[:, audited].numpy(), inputs)
    n_lost = sum_by_input(lost[:, :, audited].numpy(), inputs)
    drop, low, high = drop_interval(n_lost, n_answers[:, None].repeat(lost.shape[1], 1))
    accuracy = (clean[:, audited].sum(0) / total[:, audited].sum(0)).numpy()
    threshold = SHARE_THAT_COUNTS * (accuracy - np.array(task.chances)[audited])
    return {"drop": drop, "low": low, "high": high, "threshold": threshold}


def fatal_pairs(
    model: Any, answers: ModelOnBatch, replace: Replacement, spare: Bool[np.ndarray, " head"]
) -> Bool[np.ndarray, " head"]:
    """Which heads that are not needed alone are needed in a pair of two such heads."""
    heads = [head for head, not_needed in zip(every_head(model), spare, strict=True) if not_needed]
    pairs = list(combinations(heads, 2))
    if not pairs:
        return np.zeros(len(spare), dtype=bool)
    needed = remove_heads(model, answers, replace, sets=pairs).needed
    needed_in_pairs = {head for pair, is_needed in zip(pairs, needed, strict=True) if is_needed for head in pair}
    return np.array([head in needed_in_pairs for head in every_head(model)])
