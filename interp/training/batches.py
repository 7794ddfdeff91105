"""Batches of a training run: fresh examples, a curriculum of lengths, or epochs of a fixed set."""

import torch

from interp.core.randomness import derived_generator
from interp.tasks.base import Batch, Task
from interp.tasks.outputs import checked_batch
from interp.tasks.splits import sample_split
from interp.training.settings import TrainSettings


class TrainingBatches:
    """The batch of every step on the task, on the CPU; it depends only on the step and its generator."""

    def __init__(self, task: Task, settings: TrainSettings, seed: int):
        self.task = task
        self.settings = settings
        self.seed = seed
        self.fixed_set: Batch | None = None
        if settings.n_train is not None:
            self.fixed_set = sample_split(task, settings.n_train, generator=derived_generator(seed, "fixed set"))

    def batch(self, step: int, generator: torch.Generator) -> Batch:
        """The examples of a step.

        Args:
            step: Step on the task, from 0; steps of mimicking do not count.
            generator: Generator of the step, for fresh examples.
        """
        if self.fixed_set is not None:
            return self._from_fixed_set(self.fixed_set, step)
        stage_length = self.settings.stage_at(step)
        if stage_length is None:
            return sample_split(self.task, self._batch_size(self.task.n_ctx), generator=generator)
        return self._from_stage(stage_length, generator)

    def _from_fixed_set(self, fixed_set: Batch, step: int) -> Batch:
        """The next examples of the epoch's random order."""
        size = min(self._batch_size(self.task.n_ctx), len(fixed_set))
        batches_per_epoch = len(fixed_set) // size
        epoch, index = divmod(step, batches_per_epoch)
        order = torch.randperm(len(fixed_set), generator=derived_generator(self.seed, "epoch", epoch))
        return fixed_set.select(order[index * size : (index + 1) * size])

    def _from_stage(self, stage_length: int, generator: torch.Generator) -> Batch:
        """Examples of the stage's length, or of a random shorter one."""
        length = stage_length
        shorter = self.task.shorter_lengths(stage_length)
        if shorter:
            is_shorter = float(torch.rand(1, generator=generator, dtype=torch.float32)) >= self.settings.current_share
            if is_shorter:
                length = int(torch.randint(shorter.start, shorter.stop, (1,), generator=generator))
        n = self._batch_size(self.task.tokens_of_length(length))
        batch = self.task.sample_length(n, length, generator=generator)
        # Shorter examples may have fewer targets
        return checked_batch(self.task, batch, f"sample_length({length})", n=n, n_targets=batch.labels.shape[1])

    def _batch_size(self, sequence_length: int) -> int:
        return self.settings.batch_size or max(1, self.settings.tokens_per_step // sequence_length)
