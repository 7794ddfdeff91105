"""Heads whose writes sum to zero: factors for two or three of them, and noise that nothing reads."""

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from hooks.model.blocks import Block
from interp.known_answers.craft.weights import head_rows, write_map

NoiseOf = Literal["none", "one", "all"]
"""Which of the heads that cancel also write noise."""
NOISE = 8.0
"""Norm of the noise relative to the values that cancel, so that the cosine of two writes is about -1/8 or nearer 0."""
NOISE_SIZE = 4
"""Number of coordinates for the noise of one head; other heads need other ones."""
MOST_EVEN, LEAST_EVEN = 0.5, 0.65
"""Range of the larger of the two shares into which three heads split."""


def cancelling_factors(generator: torch.Generator, n_heads: int) -> Float[Tensor, " head"]:
    """Factors of two or three heads that write the same vector: their sum is zero, that of fewer of them is not.

    Two heads: 1 and -1. Three heads: 1, -a and a - 1, with a random a. The sign of all of them is random.
    """
    if n_heads not in (2, 3):
        raise ValueError(f"n_heads is {n_heads}; two or three heads can cancel.")
    sign = 1.0 if torch.rand((), generator=generator, dtype=torch.float32) < 0.5 else -1.0
    if n_heads == 2:
        return sign * torch.tensor([1.0, -1.0], dtype=torch.float64)
    larger_share = MOST_EVEN + (LEAST_EVEN - MOST_EVEN) * float(
        torch.rand((), generator=generator, dtype=torch.float32)
    )
    return sign * torch.tensor([1.0, -larger_share, larger_share - 1], dtype=torch.float64)


@torch.no_grad()
def write_noise(
    block: Block,
    heads: Sequence[int],
    noise: NoiseOf,
    *,
    reads: slice,
    spare: int,
    first: int,
    generator: torch.Generator,
) -> None:
    """Let some of the heads also write random vectors, of mean zero, to coordinates that nothing reads.

    The noise of each coordinate of `reads` is proportional to the value that the head has for it.

    Args:
        block: Block of the heads.
        heads: Heads that cancel.
        noise: Which of them write noise.
        reads: Coordinates that they read.
        spare: First of the coordinates that nothing reads, `NOISE_SIZE` for each head with noise.
        first: Dimension of each head from which on they are free.
        generator: Determines the noise.
    """
    noisy = {"none": heads[:0], "one": heads[:1], "all": heads}[noise]
    for index, head in enumerate(noisy):
        value_norms = block.attention.v.weight[head_rows(block, head)][:first, reads].norm(dim=0)
        vectors = torch.randn(NOISE_SIZE, len(value_norms), generator=generator, dtype=torch.float64)
        vectors = vectors - vectors.mean(0)
        start = spare + index * NOISE_SIZE
        write_map(
            block,
            head,
            NOISE * value_norms * vectors / vectors.norm(dim=0),
            reads=reads,
            writes=slice(start, start + NOISE_SIZE),
            first=first,
        )
