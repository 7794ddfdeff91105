"""Devices: those available, a model's own, and moving a model temporarily."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from hooks import BridgeModel
from hooks.checks import check_number
from hooks.model.architectures import Model


def devices() -> tuple[str, ...]:
    """Names of the available devices: the CPU, then every CUDA GPU."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return ("cpu", *(f"cuda:{index}" for index in range(count)))


def check_device(device: str) -> torch.device:
    """The `torch.device` of a name; `cuda` is torch's current GPU.

    Raises:
        ValueError: an invalid name, or a device that is not available; lists those that are.
    """
    available = devices()
    try:
        torch_device = torch.device(device)
    except RuntimeError:
        raise ValueError(f"device is {device!r}, not a device name; choose one of {', '.join(available)}.") from None
    name = torch_device.type if torch_device.index is None else f"{torch_device.type}:{torch_device.index}"
    without_index = [available_name.split(":")[0] for available_name in available]
    if name not in {*available, *without_index, "cpu:0"}:
        hint = "" if torch.cuda.is_available() else " Torch sees no GPU (torch.cuda.is_available() is False)."
        raise ValueError(f"device is {device!r}, not available; choose one of {', '.join(available)}.{hint}")
    return torch_device


def is_accelerator(device: str | None) -> bool:
    """Whether the name of a device is that of another one than the CPU, the default."""
    return device is not None and not device.startswith("cpu")


def warn_of_slow_bfloat16(device: torch.device) -> None:
    """Warn if a device has no units for bfloat16 and would compute in another precision, number by number."""
    if device.type != "cpu":
        return
    capabilities = torch.cpu.get_capabilities()
    if any(present is True for name, present in capabilities.items() if "bf16" in name):
        return
    warnings.warn(
        f"precision='bfloat16' is slow here: the processor ({capabilities.get('cpu_name', 'of an unknown name')}) has "
        f"no units for bfloat16, and on such processors it was 12 to 23 times slower than float32. Use "
        f"precision='float32'.",
        stacklevel=2,
    )


def device_of(model: Model | BridgeModel) -> torch.device:
    """Device of a model's first parameter."""
    return next(iter(model.parameters())).device


@contextmanager
def on_device(model: Model, device: torch.device | None) -> Iterator[None]:
    """Move a model to a device and, on exit or error, to the CPU; None does not move it."""
    try:
        if device is not None:
            model.to(device)
        yield
    finally:
        if device is not None:
            model.to("cpu")


def check_jobs(n_jobs: int, model: Model | BridgeModel) -> None:
    """Check a number of processes, and that a model can be sent to them.

    Raises:
        ValueError: no positive integer; a wrapped model, or a model on an accelerator, with more than one process.
    """
    check_number("n_jobs", n_jobs, integer=True, above=0)
    if n_jobs == 1:
        return
    if not model.can_be_sent:
        raise ValueError(f"n_jobs is {n_jobs}, but a wrapped model cannot be sent to other processes; use n_jobs=1.")
    if device_of(model).type != "cpu":
        raise ValueError(f"n_jobs is {n_jobs}, but the model is on {device_of(model)}; use n_jobs=1, or model.cpu().")
