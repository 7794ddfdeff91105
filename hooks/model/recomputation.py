"""Refusal of hooked passes that are recomputed for gradients, when hooks are no longer attached.

A checkpoint around a hook point is found on the stack; one within a wrapped model, whose hooks may also be around it,
by what it does to the graph.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.utils import checkpoint

REFUSED = (
    "hooks are attached to a pass that is computed again in backward() (gradient checkpointing), where they would not "
    "act, so that gradients would be wrong. Switch checkpointing off, such as by gradient_checkpointing_disable(), "
    "call the model itself instead of checkpoint(model, ...), attach the hooks within the function that is "
    "checkpointed, or run the pass under torch.no_grad()."
)
CHECKPOINT = vars(checkpoint)
"""The names of torch's module, by which its functions are known on the stack."""


def n_checkpoint_frames() -> int:
    """Number of functions of `torch.utils.checkpoint` that the caller runs in; 0 outside of it."""
    return len(_checkpoint_frames())


def check_attached_inside(n_frames: int) -> None:
    """Check that the caller does not run in a checkpoint that hooks were attached outside of.

    Args:
        n_frames: `n_checkpoint_frames` when the hooks were attached.

    Raises:
        ValueError: a checkpoint entered later.
    """
    frames = _checkpoint_frames()
    if len(frames) > n_frames and (torch.is_grad_enabled() or any(map(_enters_graph, frames))):
        raise ValueError(REFUSED)


def _checkpoint_frames() -> list[FrameType]:
    """The functions of `torch.utils.checkpoint` on the stack, from the innermost.

    A reentrant checkpoint runs without a graph, and its node comes after the model's output, so that the stack is the
    only trace of it within the pass.
    """
    frames, frame = [], sys._getframe(2)
    while frame is not None:
        if frame.f_globals is CHECKPOINT:
            frames.append(frame)
        frame = frame.f_back
    return frames


def _enters_graph(frame: FrameType) -> bool:
    """Whether a frame is that of a reentrant checkpoint, which switches gradients off, with a node in the graph."""
    node = frame.f_locals.get("ctx")
    return node is not None and bool(node.next_functions)


@contextmanager
def no_saved_tensors_hooks() -> Iterator[None]:
    """Refuse checkpointing, which replaces what the pass saves for gradients; `torch.utils.checkpoint` by default.

    Raises:
        ValueError: a pass that is checkpointed, or whose saved tensors are hooked otherwise (`save_on_cpu`).
    """
    try:
        with torch.autograd.graph.disable_saved_tensors_hooks(REFUSED):
            yield
    except RuntimeError as error:
        if str(error) == REFUSED:
            raise ValueError(REFUSED) from error
        raise


def check_not_recomputed(output: Any) -> None:
    """Check that no part of a pass was computed without a graph by `checkpoint(..., use_reentrant=True)`.

    Raises:
        ValueError: such a part.
    """
    nodes: list[Any] = [output.grad_fn] if isinstance(output, Tensor) else []
    visited = set()
    while nodes:
        node = nodes.pop()
        if node is None or node in visited:
            continue
        visited.add(node)
        if node.name() == "CheckpointFunctionBackward":
            raise ValueError(REFUSED)
        nodes.extend(next_node for next_node, _ in node.next_functions)
