"""Short training runs, and comparing and interrupting them."""

import pytest
import torch

import interp
from hooks import Transformer
from interp import TrainSettings
from interp.training import Mimicking

SHORT = TrainSettings(
    steps=12,
    warmup_steps=3,
    batch_size=16,
    eval_every=4,
    n_eval=50,
    checkpoint_every=3,
    depth_range=(1, 2),
    association="mimic",
    mimicking=Mimicking(steps=7, batch_size=8),
)
"""19 steps: mimicking from 0 to 6, the task from 7 to 18; a state after every third."""


class Stopped(Exception):
    """Raised in the middle of a run, as a crash would be."""


def new_model(task, *, seed=0, **sizes):
    sizes = {"n_layers": 2, "d_model": 16, "n_heads": 2, **sizes}
    return Transformer(interp.config_for(task, **sizes), seed=seed)


def same_weights(one, other):
    ours, theirs = one.state_dict(), other.state_dict()
    assert list(ours) == list(theirs)
    return all(torch.equal(ours[name], theirs[name]) for name in ours)


def spied(monkeypatch, owner, name):
    """The (arguments, options, result) of every call of a method, which works as before."""
    calls, original = [], getattr(owner, name)

    def spy(self, *args, **kwargs):
        result = original(self, *args, **kwargs)
        calls.append((args, kwargs, result))
        return result

    monkeypatch.setattr(owner, name, spy)
    return calls


def without_seconds(records):
    return [{name: value for name, value in record.items() if name != "seconds"} for record in records]


def stop_at(step):
    """An `on_record` that stops the run after a step, as a crash would."""

    def stop(record):
        if record["steps_done"] == step:
            raise Stopped

    return stop


def interrupted(task, folder, *, at=8):
    with pytest.raises(Stopped):
        interp.train(new_model(task), task, SHORT, folder=folder, on_record=stop_at(at))
