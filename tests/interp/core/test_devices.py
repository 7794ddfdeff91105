import dataclasses

import pytest
import torch
from short_runs import SHORT, Stopped, new_model

import interp
import interp.sweeps.parallel
from interp.core.devices import check_device, device_of, devices, on_device
from interp.tasks import Lego

LEGO = Lego(n_vars=3)


def test_a_batch_moves_with_all_fields(pretended, generator):
    batch = LEGO.sample(3, generator=generator, n_vars=2)
    there = batch.to(pretended)
    assert type(there) is type(batch)
    for field in dataclasses.fields(batch):
        value, moved = getattr(batch, field.name), getattr(there, field.name)
        if value is None:
            assert moved is None
        else:
            assert (value.device.type, moved.device.type) == ("cpu", pretended)
            assert torch.equal(value, moved.to("cpu"))
    assert batch.position_ids is not None  # there was an optional one to move


def test_a_model_comes_back_from_its_device(pretended):
    model = new_model(LEGO)

    def stop_there():
        with on_device(model, torch.device(pretended)):
            assert device_of(model).type == pretended
            raise Stopped

    with pytest.raises(Stopped):
        stop_there()
    assert device_of(model).type == "cpu"


@pytest.mark.parametrize(
    ("device", "text"),
    [
        (
            "cuda",
            r"device is 'cuda', not available; choose one of cpu\. Torch sees no GPU \(torch\.cuda\.is_available",
        ),
        ("cuda:1", "device is 'cuda:1', not available; choose one of cpu. Torch sees no GPU"),
        ("meta", "device is 'meta', not available; choose one of cpu"),
        ("gpu", "device is 'gpu', not a device name; choose one of cpu"),
        ("", "device is '', not a device name"),
    ],
)
def test_an_unavailable_device_is_refused(device, text, monkeypatch, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match=text):
        interp.train(new_model(LEGO), LEGO, SHORT, folder=tmp_path, device=device)
    assert not list(tmp_path.iterdir())


def test_available_devices(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert devices() == ("cpu",)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert devices() == ("cpu", "cuda:0", "cuda:1")
    for name in ("cpu", "cpu:0", "cuda", "cuda:0", "cuda:1"):
        assert check_device(name) == torch.device(name)
    with pytest.raises(ValueError, match=r"device is 'cuda:2', not available; choose one of cpu, cuda:0, cuda:1\.$"):
        check_device("cuda:2")
