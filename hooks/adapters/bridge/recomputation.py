"""Refusal of hooked passes that are recomputed for gradients, when hooks are no longer attached."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

REFUSED = (
    "hooks are attached to a pass that is computed again in backward() (gradient checkpointing), where they would not "
    "act, so that gradients would be wrong. Switch checkpointing off, such as by gradient_checkpointing_disable(), or "
    "run the pass under torch.no_grad()."
)


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
