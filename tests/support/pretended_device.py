"""A fake device for tests without a GPU.

Its tensors report the device `meta` but have values, and an operation that mixes them with CPU tensors raises, as on a
GPU.
"""

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

PRETENDED = torch.device("meta")


class There(torch.Tensor):
    """A tensor on the fake device; it wraps a CPU tensor with the values."""

    @staticmethod
    def __new__(cls, held):
        return torch.Tensor._make_wrapper_subclass(
            cls, held.shape, strides=held.stride(), dtype=held.dtype, device=PRETENDED
        )

    def __init__(self, held):
        self.held = held

    @classmethod
    def __torch_dispatch__(cls, op, types, args=(), kwargs=None):
        return run_there(op, args, kwargs or {})


def run_there(op, args, kwargs):
    """Result of an operation, computed on the CPU; on the fake device if an input was there or `device` names it."""
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    inside = any(isinstance(tensor, There) for tensor in tensors)
    outside = any(tensor.ndim and not isinstance(tensor, There) for tensor in tensors)
    moves = op in (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)
    # as on a GPU: a number without axes may come from the CPU, and so may an index
    if inside and outside and not moves and "index" not in op.__name__:
        raise RuntimeError(f"{op}: tensors of the CPU and of the pretended device in one operation")
    asked = kwargs.get("device")
    there = inside if asked is None else torch.device(asked) == PRETENDED
    here = {name: "cpu" if name == "device" else value for name, value in kwargs.items()}
    result = op(*tree_map(held, args), **tree_map(held, here))
    if op.__name__.split(".")[0].endswith("_") and isinstance(args[0], torch.Tensor):  # in place
        return args[0]
    return tree_map(lambda leaf: There(leaf) if there and isinstance(leaf, torch.Tensor) else leaf, result)


def held(leaf):
    return leaf.held if isinstance(leaf, There) else leaf


class Pretending(TorchDispatchMode):
    """Creates tensors on the fake device and moves tensors to it."""

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        asked = kwargs.get("device")
        if any(isinstance(t, There) for t in tensors) or (asked is not None and torch.device(asked) == PRETENDED):
            return run_there(op, args, kwargs)
        return op(*args, **kwargs)


class WrittenOut(TorchFunctionMode):
    """`torch.tensor([...], device=...)`, which is not dispatched as an operation."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if function is torch.tensor and kwargs.get("device") is not None:
            device = kwargs.pop("device")
            return function(*args, **kwargs).to(device)
        return function(*args, **kwargs)
