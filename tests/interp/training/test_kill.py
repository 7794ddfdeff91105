"""A run killed at random moments, without warning, ends as if nothing had happened."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest
import torch
from safetensors import safe_open

SCRIPT = """
import sys
import torch
torch.set_num_threads(1)
import interp
from hooks import Transformer
from interp.tasks import Lego

task = Lego(n_vars=2, sentence_format="compact")
model = Transformer(interp.config_for(task, n_layers=2, d_model=16, n_heads=2))
settings = interp.TrainSettings(
    steps=STEPS, batch_size=16, warmup_steps=5, eval_every=7, n_eval=50, checkpoint_every=3,
    association="mimic", mimicking=interp.training.Mimicking(steps=STEPS // 4, batch_size=8),
)
interp.train(model, task, settings, folder=sys.argv[1])
"""


def started(folder, steps):
    return subprocess.Popen([sys.executable, "-c", SCRIPT.replace("STEPS", str(steps)), str(folder)])


def wait_until_it_trains(process, state):
    """Until this process has written a state, rather than the one before it."""
    before = state.stat().st_mtime_ns if state.exists() else 0
    limit = time.monotonic() + 120
    while not state.exists() or state.stat().st_mtime_ns == before:
        assert process.poll() is None
        assert time.monotonic() < limit
        time.sleep(0.001)


def weights(folder):
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        return {name: file.get_tensor(name) for name in sorted(file.keys())}


def steps_of(folder):
    """What the folder's files say, each of which must be readable: steps in the metrics, steps of the state."""
    if (folder / "manifest.json").exists():
        assert json.loads((folder / "manifest.json").read_text())["seed"] == 0
    lines = (folder / "metrics.jsonl").read_text().splitlines() if (folder / "metrics.jsonl").exists() else []
    state = 0
    if (folder / "state.safetensors").exists():
        with safe_open(folder / "state.safetensors", framework="pt") as file:
            state = json.loads(file.metadata()["description"])["steps_done"]
            assert all(file.get_tensor(name).isfinite().all() for name in file.keys())  # noqa: SIM118
    return [json.loads(line)["steps_done"] for line in lines], state


@pytest.mark.parametrize(
    ("kills", "steps"),
    [pytest.param(1, 300, marks=pytest.mark.slow), pytest.param(5, 900, marks=pytest.mark.long)],
    ids=["once", "five times"],
)
def test_killed_it_ends_with_the_same_weights(tmp_path, kills, steps):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert started(whole, steps).wait(timeout=1200) == 0
    length = json.loads((whole / "metrics.jsonl").read_text().splitlines()[-1])["seconds"]
    moments = random.Random(0)
    states = []
    for _ in range(kills):
        process = started(broken, steps)
        wait_until_it_trains(process, broken / "state.safetensors")
        time.sleep(length / (kills + 2) * moments.random())
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait(timeout=120) == -signal.SIGKILL  # it was still running
        recorded, state = steps_of(broken)
        assert recorded == sorted(set(recorded))
        states.append(state)
    assert states == sorted(set(states))
    assert started(broken, steps).wait(timeout=1200) == 0

    ours, theirs = weights(broken), weights(whole)
    assert list(ours) == list(theirs)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    records = [
        [
            {key: value for key, value in json.loads(line).items() if key != "seconds"}
            for line in (folder / "metrics.jsonl").read_text().splitlines()
        ]
        for folder in (whole, broken)
    ]
    assert records[0] == records[1]
    # the parts were resumed, and no file is left except perhaps a temporary one of a killed write
    left = {path.name for path in broken.iterdir() if not path.name.startswith(".")}
    assert left == {"manifest.json", "metrics.jsonl", "model.safetensors"}
