"""Heads that look at something and say nothing that is read."""

import torch

from hooks.model.blocks import Block
from interp.known_answers.craft.wiring import head_rows


@torch.no_grad()
def write_idle_head(
    block: Block, head: int, *, reads: slice, writes: slice, generator: torch.Generator, strength: float = 1.0
) -> None:
    """Random weights for one head: what it writes sums to zero over coordinates that nobody reads.

    Args:
        block: With an output projection; changed in place.
        head: Which one.
        reads: Coordinates of the stream that queries, keys and values look at.
        writes: Coordinates that take what it writes.
        generator: Decides the weights.
        strength: How far scores spread between unit vectors, and how much is written of one.
    """
    rows, width = head_rows(block, head), reads.stop - reads.start
    size = rows.stop - rows.start
    spread = (strength * block.attention.scale) ** 0.5 / size**0.25
    for linear, deviation in ((block.attention.q, spread), (block.attention.k, spread), (block.attention.v, 1.0)):
        noise = torch.randn(size, width, generator=generator, dtype=torch.float64)
        linear.weight[rows, reads] = deviation * noise
    out = torch.randn(writes.stop - writes.start, size, generator=generator, dtype=torch.float64)
    block.attention.o.weight[writes, rows] = (out - out.mean(0)) * strength / size
