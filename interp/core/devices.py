"""Which devices are there, and which one is a model on?"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from hooks import BridgeModel
from hooks.model.architectures import Model


def devices() -> tuple[str, ...]:
    """Names of the devices that a model can be trained on here: the CPU, then every CUDA GPU."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return ("cpu", *(f"cuda:{index}" for index in range(count)))


def check_device(device: str) -> torch.device:
    """The device of that name; `cuda` is the GPU that torch has chosen.

    Raises:
        ValueError: a name that is no device's, or of one that is not there. The text says which there are.
    """
    there = devices()
    try:
        wanted = torch.device(device)
    except RuntimeError:
        raise ValueError(f"device is {device!r}, which is no device's name; there is {', '.join(there)}.") from None
    name = wanted.type if wanted.index is None else f"{wanted.type}:{wanted.index}"
    if name not in {*there, *(one.split(":")[0] for one in there), "cpu:0"}:
        why = "" if torch.cuda.is_available() else " Torch sees no GPU (torch.cuda.is_available() is False)."
        raise ValueError(f"device is {device!r}, which is not there; there is {', '.join(there)}.{why}")
    return wanted


def device_of(model: Model | BridgeModel) -> torch.device:
    """Where a model's weights are; of one whose weights are in several places, the first."""
    holder = model.bridge if isinstance(model, BridgeModel) else model
    return next(iter(holder.parameters())).device


@contextmanager
def on_device(model: Model, device: torch.device | None) -> Iterator[None]:
    """The model on a device, and on the CPU afterwards, also where something was raised; None leaves it where it is."""
    try:
        if device is not None:
            model.to(device)
        yield
    finally:
        if device is not None:
            model.to("cpu")
