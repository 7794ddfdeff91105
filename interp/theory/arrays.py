"""Matrices that users give, as float64 tensors."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor


def finite_tensor(name: str, values: Any, axes: str) -> Float[Tensor, "*axes"]:
    """A tensor or array of finite real numbers as a float64 tensor on the CPU, of its own memory.

    Arrays of any byte order, memory order, precision or integer type are accepted, also read-only ones.

    Args:
        name: Name of the argument.
        values: Its value.
        axes: Names of the axes, separated by spaces.

    Raises:
        ValueError: no tensor or array of numbers, another number of axes, or values that are not finite.

    >>> import numpy as np
    >>> finite_tensor("weight", np.eye(2, dtype=">f2"), "output input").dtype
    torch.float64
    """
    expected = f"give a tensor or an array of finite numbers, ({', '.join(axes.split())})"
    if isinstance(values, Tensor):
        if values.is_complex() or values.dtype == torch.bool or values.is_meta or values.layout != torch.strided:
            description = f"type {values.dtype}, layout {values.layout}, device {values.device}"
            raise ValueError(f"{name} has {description}; {expected}.")
        tensor = values.detach().to("cpu", torch.float64, copy=True)
    elif isinstance(values, np.ndarray) and values.dtype.kind in "fiu":
        tensor = torch.from_numpy(np.array(values, dtype=np.float64, order="C"))
    else:
        description = f"an array of {values.dtype}" if isinstance(values, np.ndarray) else f"a {type(values).__name__}"
        raise ValueError(f"{name} is {description}; {expected}.")
    if tensor.ndim != len(axes.split()):
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}; {expected}.")
    if not tensor.isfinite().all():
        raise ValueError(f"{name} has a value that is not finite. Did training diverge?")
    return tensor
