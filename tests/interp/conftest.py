"""Fixtures: a tiny task, a trained model, a fake device."""

import importlib

import pytest
import torch
from pretended_device import Pretending, WrittenOut

import interp
from hooks import Transformer
from interp.tasks import Lego


@pytest.fixture(scope="session")
def tiny():
    """Two variables, three tokens a clause."""
    return Lego(n_vars=2, sentence_format="compact")


@pytest.fixture(scope="session")
def trained(tiny):
    """A two-layer model that has learned `tiny`, as a `TrainingRun`. Do not change its weights."""
    torch.set_num_threads(1)
    model = Transformer(interp.config_for(tiny, n_layers=2, d_model=32, n_heads=2))
    settings = interp.TrainSettings(
        steps=300, warmup_steps=10, learning_rate=4e-3, batch_size=128, eval_every=100, n_eval=500
    )
    return interp.train(model, tiny, settings)


@pytest.fixture
def pretended(monkeypatch):
    """The name of a pretended device (tests/support/pretended_device.py)."""
    monkeypatch.setattr("interp.core.devices.devices", lambda: ("cpu", "meta"))
    adam = importlib.import_module("torch.optim.adam")
    monkeypatch.setattr(adam, "_device_dtype_check_for_fused", lambda parameter: None)
    with Pretending(), WrittenOut():
        yield "meta"
