"""Hand-written heads whose writes sum to zero: factors for two or three of them, and noise that nothing reads."""

from typing import Literal, cast

import torch
from jaxtyping import Float
from torch import Tensor

from hooks.model.blocks import Block
from hooks.model.layers import Linear
from interp.known_answers.craft.weights import head_rows

NoiseOf = Literal["none", "one", "all"]
"""Which of the heads that cancel also write noise."""
NOISE = 8.0
"""Norm of the noise relative to the values that cancel, so that the cosine of two writes is about -1/8 or nearer 0."""
NOISE_SIZE = 4
"""Number of coordinates for the noise of one head; other heads need other ones."""
MOST_EVEN, LEAST_EVEN = 0.5, 0.65
"""Range of the larger of the two shares into which three heads split."""


def cancelling_factors(generator: torch.Generator, n_heads: int) -> Float[Tensor, " head"]:
    """Factors of two or three heads that write the same vector: their sum is zero, that of any part of them is not.

    Two heads: 1 and -1. Three heads: 1, -a and a - 1, with a random a. The sign of all of them is random.
    """
    if n_heads not in (2, 3):
        raise ValueError(f"n_heads is {n_heads}; two or three heads can cancel.")
    sign = 1.0 if torch.rand((), generator=generator) < 0.5 else -1.0
    if n_heads == 2:
        return sign * torch.tensor([1.0, -1.0], dtype=torch.float64)
    more = MOST_EVEN + (LEAST_EVEN - MOST_EVEN) * float(torch.rand((), generator=generator))
    return sign * torch.tensor([1.0, -more, more - 1], dtype=torch.float64)


@torch.no_grad()
def write_map(
    block: Block, head: int, matrix: Float[Tensor, "into source"], *, reads: slice, writes: slice, first: int = 0
) -> None:
    """Let a head write `matrix` times what it reads, through its dimensions from `first` on."""
    rows = head_rows(block, head)
    used = slice(first, first + len(matrix))
    block.attention.v.weight[rows][used, reads] = matrix
    cast(Linear, block.attention.o).weight[writes, rows][:, used] = torch.eye(len(matrix), dtype=torch.float64)


@torch.no_grad()
def write_noise(
    block: Block, head: int, *, reads: slice, writes: slice, first: int, generator: torch.Generator
) -> None:
    """Let a head also write random vectors, of mean zero, to coordinates that nothing reads.

    The noise of each coordinate of `reads` is proportional to the value that the head has for it in its dimensions
    before `first`, which are the ones that it uses; the noise uses the next ones.
    """
    value, size = block.attention.v.weight[head_rows(block, head)], writes.stop - writes.start
    used = value[:first, reads].norm(dim=0)
    noise = torch.randn(size, len(used), generator=generator, dtype=torch.float64)
    noise = noise - noise.mean(0)
    write_map(block, head, NOISE * used * noise / noise.norm(dim=0), reads=reads, writes=writes, first=first)


def noisy_heads(heads: list[int], noise: NoiseOf) -> list[int]:
    """The heads that write noise."""
    return {"none": [], "one": heads[:1], "all": heads}[noise]
