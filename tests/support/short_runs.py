"""Short training runs, and comparing and interrupting them."""

import json

import pytest
import torch

import interp
from hooks import Transformer
from hooks.files import file_digest
from interp import TrainSettings
from interp.training import Mimicking
from interp.training.identity import hash_of_fields

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


def stamp(folder, **fields):
    """Write a manifest as if its run had these fields and had written the files that are in the folder now."""
    manifest = json.loads((folder / "manifest.json").read_text()) | fields
    paths = [folder / "metrics.jsonl", *folder.rglob("*.safetensors")]
    hashes = {path.relative_to(folder).as_posix(): file_digest(path) for path in paths}
    manifest["sha256"] = {"manifest": hash_of_fields(manifest), **hashes}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def interrupted(task, folder, *, at=8):
    with pytest.raises(Stopped):
        interp.train(new_model(task), task, SHORT, folder=folder, on_record=stop_at(at))
