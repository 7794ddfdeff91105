"""Fixtures: a tiny task, a trained model, a fake device."""

import dataclasses
import importlib
import pickle

import pytest
import torch
from filelock import FileLock
from pretended_device import Pretending, WrittenOut

import interp
from hooks import Transformer
from interp.tasks import Lego


@pytest.fixture(scope="session")
def tiny():
    """Two variables, three tokens a clause."""
    return Lego(n_vars=2, sentence_format="compact")


@pytest.fixture(scope="session")
def trained(tiny, shared_folder):
    """A two-layer model that has learned `tiny`, as a `TrainingRun`. Do not change its weights."""
    torch.set_num_threads(1)
    model = Transformer(interp.config_for(tiny, n_layers=2, d_model=32, n_heads=2))
    settings = interp.TrainSettings(
        steps=200, warmup_steps=10, learning_rate=6e-3, batch_size=64, eval_every=100, n_eval=500
    )
    with FileLock(shared_folder / "trained.lock"):
        run = interp.train(model, tiny, settings, folder=shared_folder / "trained")
    assert min(run.final_accuracy) >= 0.99
    return dataclasses.replace(run, folder=None)


AUDITED = ("auditing", "known_answers")
"""Packages with audits of many models."""


@pytest.fixture(scope="module", autouse=True)
def few_untrained_models(request):
    """Labels are compared with 19 untrained models; 99 take half of an audit. Tests of the labels have all of them."""
    with pytest.MonkeyPatch.context() as patch:
        if request.path.parent.name in AUDITED:
            patch.setattr("interp.heads.untrained.MOST_MODELS", 19)
        yield


@pytest.fixture
def as_if_in_processes(monkeypatch):
    """Makes the calls that are meant for several processes in this one: pickled, the last call first."""
    from interp.core import processes

    one_job = processes._on_this_machine

    def here(calls, n_jobs):
        if n_jobs == 1:
            yield from one_job(calls, n_jobs)
            return
        for index, call in reversed([*calls.items()]):
            function, arguments = pickle.loads(pickle.dumps(call))
            yield index, pickle.loads(pickle.dumps(function(*arguments)))

    monkeypatch.setattr(processes, "_on_this_machine", here)


@pytest.fixture
def pretended(monkeypatch):
    """The name of a pretended device (tests/support/pretended_device.py)."""
    monkeypatch.setattr("interp.core.devices.devices", lambda: ("cpu", "meta"))
    adam = importlib.import_module("torch.optim.adam")
    monkeypatch.setattr(adam, "_device_dtype_check_for_fused", lambda parameter: None)
    with Pretending(), WrittenOut():
        yield "meta"
