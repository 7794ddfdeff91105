"""How long trainings take on this machine, from a few timed steps."""

import time
from collections.abc import Sequence
from dataclasses import replace
from math import ceil

import torch

from hooks.model.architectures import make_model
from hooks.state import restores_state
from interp.evaluation.evaluate import held_out
from interp.sweeps.cost import training_operations
from interp.sweeps.spec import ModelSpec
from interp.training.train import Trainer

SECONDS_OF_STEPS = 0.4
"""Steps of a kind of model are timed for this long."""
SECONDS = 5.0
"""No further kind of model is timed after this long."""
LARGEST_STEP = 3e9
"""Operations of a timed step, at most about a second; of larger batches a part is timed."""
GOLDEN = 0.618
"""Multiples of it, modulo 1, are spread evenly over any part of a training."""


@restores_state
def timed_trainings(specs: Sequence[ModelSpec]) -> list[float]:
    """Estimate how many seconds each training takes on this machine, in one process with one thread on an idle core.

    A few steps, from all stages of the training, and one evaluation of each kind of model are timed, smallest kinds
    first, in CPU time. Kinds for which `SECONDS` do not suffice have as many operations per second as the largest kind
    that was timed.

    Args:
        specs: The models to train.
    """
    # Models of one kind take equally long for a step
    kinds: dict[float, list[int]] = {}
    for index, spec in enumerate(specs):
        kinds.setdefault(_operations_per_step(spec), []).append(index)
    # Time them, smallest first
    seconds = [0.0] * len(specs)
    operations_per_second = 0.0
    started = time.perf_counter()
    for _, indices in sorted(kinds.items()):
        model = specs[indices[0]]
        if not operations_per_second or time.perf_counter() - started < SECONDS:
            per_step, per_example = _timed(model)
            for index in indices:
                seconds[index] = _seconds(specs[index], per_step, per_example)
            operations_per_second = training_operations(model) / seconds[indices[0]]
        else:
            for index in indices:
                seconds[index] = training_operations(specs[index]) / operations_per_second
    return seconds


def _operations_per_step(spec: ModelSpec) -> float:
    return training_operations(spec) / spec.settings.total_steps


def _seconds(spec: ModelSpec, per_step: float, per_example: float) -> float:
    """Seconds of a training, from those of a step and of an evaluated example."""
    settings = spec.settings
    n_evaluations = ceil(settings.total_steps / settings.eval_every)
    return settings.total_steps * per_step + n_evaluations * settings.n_eval * per_example


def _timed(spec: ModelSpec) -> tuple[float, float]:
    """Seconds of a training step, and of an example in an evaluation."""
    # Of a large model, a part of the batch
    settings = replace(spec.settings, snapshots=None)
    share = LARGEST_STEP / _operations_per_step(spec)
    if share < 1:
        settings = replace(settings, n_eval=ceil(share * settings.n_eval))
        if settings.batch_size:
            settings = replace(settings, batch_size=ceil(share * settings.batch_size))
        else:
            settings = replace(settings, tokens_per_step=max(spec.task.n_ctx, ceil(share * settings.tokens_per_step)))
    timed_share = _operations_per_step(replace(spec, settings=settings)) / _operations_per_step(spec)
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        trainer = Trainer(make_model(spec.config, seed=spec.seed), spec.task, settings, spec.seed)
        trainer.start()
        # Steps from all over the training; the first one also allocates, and is counted only if it is the only one
        step_seconds: list[float] = []
        while sum(step_seconds) < SECONDS_OF_STEPS:
            trainer.step = int(len(step_seconds) * GOLDEN % 1 * settings.total_steps)
            started = time.process_time()
            trainer.train_one_step()
            step_seconds.append(time.process_time() - started)
        started = time.process_time()
        held_out(trainer.model, spec.task, trainer.validation)
        example_seconds = (time.process_time() - started) / settings.n_eval
    finally:
        torch.set_num_threads(n_threads)
    later_steps = step_seconds[1:] or step_seconds
    return sum(later_steps) / len(later_steps) / timed_share, example_seconds
