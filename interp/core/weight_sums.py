"""Whether two results are of the same model on the same task: its weights up to rounding, its config, the task."""

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import finfo, float32

from interp.core.content_key import content_key

N_SUMS = 4
"""Sums of a model: all of them agree by accident in fewer than one of 10^20 pairs of models."""


def weight_sums(model: Any) -> tuple[float, ...]:
    """Sums of all weights of a model with fixed random signs, preceded by how much rounding may change each of them.

    Weights that are drawn from the same seed differ in their last bits between instruction sets, so a hash of them
    cannot say whether two models are the same.

    A sum of n independent rounding errors, each at most eps |w|, is about eps times the norm of the weights. Of
    weights in half precision few differ, a share eps(float32) / eps, which gives the geometric mean of both eps. The
    bound is 16 times that, so that a difference of one weight is found if it is above 2e-6 of the norm.

    Args:
        model: Any module.

    Returns:
        The bound, then `N_SUMS` sums.

    Example:
        >>> import hooks
        >>> from interp.core.weight_sums import same_weights, weight_sums
        >>> config = hooks.TransformerConfig(d_vocab=3, n_ctx=4, n_layers=1, n_heads=2, d_model=8)
        >>> first, again, other = (weight_sums(hooks.Transformer(config, seed=seed)) for seed in (0, 0, 1))
        >>> same_weights(first, again), same_weights(first, other)
        (True, False)
    """
    sums = np.zeros(N_SUMS)
    squares = 0.0
    eps = finfo(float32).eps
    module = getattr(model, "bridge", model)  # what a bridge or a wrapped module holds
    for name, tensor in module.named_parameters():
        eps = max(eps, finfo(tensor.dtype).eps)
        values = tensor.detach().cpu().double().flatten().numpy()
        squares += float(values @ values)
        for index in range(N_SUMS):
            sums[index] += _signs(f"{name} {index}", len(values)) @ values
    bound = 16 * (eps * finfo(float32).eps * squares) ** 0.5
    return (bound, *sums.tolist())


def same_weights(first: Sequence[float], second: Sequence[float]) -> bool:
    """Whether two results of `weight_sums` are of the same weights up to rounding."""
    if not len(first) == len(second) == N_SUMS + 1:
        return False  # a result that does not say of which weights it is
    if not np.isfinite([*first, *second]).all():
        return False
    bound = max(first[0], second[0])
    return bool(np.allclose(first[1:], second[1:], rtol=0, atol=bound))


def subject_key(model: Any, task: Any) -> str:
    """Key of what a result is about besides the weights: the config of the model, and the task with its settings.

    Args:
        model: One of our models, or a wrapped one, whose own config counts.
        task: The task; of one with settings that JSON cannot store, its `repr` counts.
    """
    config = getattr(model, "bridge", model).cfg
    settings = config.to_dict() if hasattr(config, "to_dict") else dict(vars(config))
    plain = {name: value for name, value in settings.items() if isinstance(value, str | int | float | None)}
    try:
        described = task.describe()
    except ValueError:
        described = repr(task)
    return content_key({"config": plain, "task": described})


def _signs(name: str, n: int) -> Float[np.ndarray, " n"]:
    """Random signs, the same on every machine: the bits of a hash of a name."""
    content = hashlib.shake_128(name.encode()).digest((n + 7) // 8)
    return np.unpackbits(np.frombuffer(content, np.uint8), count=n) * 2.0 - 1.0
