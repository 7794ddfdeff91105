"""Estimated times of trainings: steps and evaluations of a fake clock."""

import time
from dataclasses import replace

import pytest
import torch

import interp
from interp.sweeps import speed
from interp.sweeps.cost import training_operations
from interp.sweeps.spec import ModelSpec
from interp.tasks import Lego
from interp.training.train import Trainer

TASK = Lego(n_vars=3)
SETTINGS = interp.TrainSettings(
    steps=60, curriculum=((2, 20), (3, 40)), batch_size=4, warmup_steps=1, eval_every=25, n_eval=10
)
STEP, EXAMPLE, FIRST = 0.125, 0.01, 7.0
"""Seconds of a step for each sequence of its batch, of an evaluated example, and of the first step in addition."""


def spec_of(width=8, **changes):
    config = interp.config_for(TASK, n_layers=1, d_model=width, n_heads=1)
    return ModelSpec(task=TASK, config=config, settings=replace(SETTINGS, **changes), seed=0)


@pytest.fixture
def clock(monkeypatch):
    """A clock that only steps and evaluations advance; it has the steps that were timed."""

    class Clock:
        now = 0.0
        steps: list[int]

    clock = Clock()
    clock.steps = []

    def step(trainer):
        assert torch.get_num_threads() == 1
        clock.steps.append(trainer.step)
        first = FIRST if len(clock.steps) == 1 and trainer.settings.batch_size == 4 else 0.0
        clock.now += STEP * trainer.settings.batch_size + first
        return 0.0

    def evaluate(model, task, validation):
        clock.now += EXAMPLE * len(validation)

    monkeypatch.setattr(Trainer, "train_one_step", step)
    monkeypatch.setattr(speed, "held_out", evaluate)
    monkeypatch.setattr(time, "process_time", lambda: clock.now)
    monkeypatch.setattr(speed, "SECONDS_OF_STEPS", 60 * STEP * 4)
    return clock


def test_seconds_are_those_of_steps_and_evaluations(clock):
    longer = spec_of(curriculum=((2, 20), (3, 100)), steps=120)
    seconds = speed.timed_trainings([spec_of(), longer])
    # 60 steps of 4 sequences and 3 evaluations of 10 examples; the second is of the same kind
    assert seconds == pytest.approx([60 * STEP * 4 + 3 * 10 * EXAMPLE, 120 * STEP * 4 + 5 * 10 * EXAMPLE])
    # Steps are from the whole training, a third of them from the first stage
    assert sum(step < 20 for step in clock.steps) / len(clock.steps) == pytest.approx(1 / 3, abs=0.05)
    assert max(clock.steps) > 50


def test_larger_kinds_have_the_speed_of_the_largest_that_was_timed(clock, monkeypatch):
    monkeypatch.setattr(speed, "SECONDS", -1.0)
    small, large = spec_of(), spec_of(width=64)
    seconds = speed.timed_trainings([large, small])
    assert seconds[1] == pytest.approx(60 * STEP * 4 + 3 * 10 * EXAMPLE)
    assert seconds[0] == pytest.approx(seconds[1] * training_operations(large) / training_operations(small))


def test_a_part_of_a_large_batch_is_timed(clock, monkeypatch):
    spec = spec_of(batch_size=64, n_eval=100)
    monkeypatch.setattr(speed, "LARGEST_STEP", training_operations(spec) / 60 / 8)
    (seconds,) = speed.timed_trainings([spec])
    assert seconds == pytest.approx(60 * STEP * 64 + 3 * 100 * EXAMPLE)
    assert clock.now < 10 + 60 * STEP * 64


def test_nothing_of_the_caller_changes():
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    torch.set_num_threads(2)
    try:
        (seconds,) = speed.timed_trainings([spec_of()])
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert seconds > 0
    assert torch.equal(torch.get_rng_state(), state)
