"""Hooks that store activations without detaching them, for use within a pass and for gradients."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from torch import Tensor


def storing(
    names: Iterable[str], seen: dict[str, Tensor], *, read: Callable[[Tensor], Tensor] | None = None
) -> list[tuple[str, Callable]]:
    """Hooks for `run_with_hooks` that store the activation of each hook point, under its name, when it is computed.

    Args:
        names: Hook points.
        seen: Where to store; a later pass overwrites it.
        read: What to store of an activation; if None, the activation itself.
    """

    def store(name: str, activation: Tensor, hook: Any) -> None:
        seen[name] = activation if read is None else read(activation)

    return [(name, partial(store, name)) for name in names]
