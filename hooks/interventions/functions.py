"""Edits of an activation: each function returns a hook to pass to `run_with_hooks`.

A hook edits a copy, so that caches and gradients stay intact. `head` restricts the edit to one head; the head
axis is found from the hook point's name.

An edit reaches what passes its hook point and no more. Where b I is on (`vo_identity`), `hook_z` is only a part of what
a head writes, and an edit there leaves b_h A_h x as it was: for the whole head edit `hook_result`. A pattern replaced
at `hook_pattern` mixes both.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

Hook = Callable[..., Tensor]

_HEAD_AXIS = {
    "hook_q": 2,
    "hook_k": 2,
    "hook_v": 2,
    "hook_z": 2,
    "hook_result": 2,
    "hook_attn_scores": 1,
    "hook_pattern": 1,
}


def zero(*, head: int | None = None) -> Hook:
    """Set the activation to zero."""
    return _edit(lambda activation: torch.zeros_like(activation), head)


def mean(reference: Float[Tensor, "sample ..."], *, head: int | None = None) -> Hook:
    """Replace the activation by its mean over the samples of a reference run.

    Args:
        reference: The same hook point's activation on other inputs of the same length.
        head: Only this head.
    """
    average = reference.mean(0, keepdim=True)
    return _edit(lambda activation: _fitting(average, activation).expand_as(activation), head)


def resample(reference: Float[Tensor, "sample ..."], *, generator: torch.Generator, head: int | None = None) -> Hook:
    """Replace the activation by that of randomly drawn samples of a reference run.

    Args:
        reference: The same hook point's activation on other inputs of the same length.
        generator: Decides which sample stands in for which; the only randomness.
        head: Only this head.
    """

    def draw(activation: Tensor) -> Tensor:
        chosen = torch.randint(len(reference), (len(activation),), generator=generator)
        return _fitting(reference, activation)[chosen.to(activation.device)].expand_as(activation)

    return _edit(draw, head)


def replace_pattern(pattern: Float[Tensor, "#batch query key"], *, head: int | None = None) -> Hook:
    """Replace attention patterns (for `hook_pattern`).

    Args:
        pattern: Rows that sum to one, for the whole batch or for one example.
        head: Only this head; every head when left out.

    Raises:
        ValueError: a row that is negative somewhere or does not sum to one.
    """
    if (pattern < 0).any() or not torch.allclose(pattern.sum(-1), pattern.new_ones(()), atol=1e-4):
        raise ValueError("pattern has a row that is negative somewhere or does not sum to one; normalise its rows.")
    return _edit(lambda activation: _fitting(pattern[:, None], activation).expand_as(activation), head)


def patch(
    source: Float[Tensor, "batch ..."], *, head: int | None = None, positions: Int[Tensor, " n"] | None = None
) -> Hook:
    """Replace the activation by the same hook point's activation from another run.

    Args:
        source: Activation of the other run, same shape as the one it replaces.
        head: Only this head.
        positions: Only these positions; axis 1 of the activation, so not for scores or patterns.
    """

    def take(activation: Tensor) -> Tensor:
        if source.shape != activation.shape:
            raise ValueError(
                f"source is {tuple(source.shape)}; the activation it replaces is {tuple(activation.shape)}."
            )
        if positions is None:
            return source
        mixed = activation.clone()
        mixed[:, positions] = source[:, positions]
        return mixed

    return _edit(take, head)


def _edit(new: Callable[[Tensor], Tensor], head: int | None) -> Hook:
    def hook(activation: Tensor, hook: Any) -> Tensor:
        edited = new(activation)
        if head is None:
            return edited
        axis = head_axis(hook.name, activation, head)
        keep = torch.ones(activation.shape[axis], dtype=torch.bool, device=activation.device)
        keep[head] = False
        shape = [1] * activation.ndim
        shape[axis] = -1
        return torch.where(keep.view(shape), activation, edited)

    # read by check_hook: an edit of a hard-coded head's query would do nothing
    hook.head = head  # pyright: ignore[reportFunctionMemberAccess]
    return hook


def head_axis(name: str, activation: Tensor, head: int) -> int:
    """The axis of `activation` that counts heads.

    Raises:
        ValueError: this hook point has no heads, or not that one.
    """
    axis = _HEAD_AXIS.get(name.rsplit(".", 1)[-1])
    if axis is None:
        raise ValueError(f"head is {head}, but {name} has no heads; leave head out or choose {', '.join(_HEAD_AXIS)}.")
    if not 0 <= head < activation.shape[axis]:
        raise ValueError(f"head is {head}; {name} has heads 0 to {activation.shape[axis] - 1}.")
    return axis


def _fitting(reference: Tensor, activation: Tensor) -> Tensor:
    same = len(reference.shape) == len(activation.shape) and all(
        r in (1, a) for r, a in zip(reference.shape[1:], activation.shape[1:], strict=True)
    )
    if not same:
        raise ValueError(
            f"the replacement is {tuple(reference.shape)}; the activation it replaces is {tuple(activation.shape)}. "
            f"Take it from the same hook point, on inputs of the same length."
        )
    return reference.to(activation)
