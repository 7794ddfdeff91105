"""Random letters and orders of sentences, and the split that each sentence belongs to."""

import torch
from jaxtyping import Int
from torch import Tensor

_AT_ONCE = 2**16


def split_of(content: Int[Tensor, "batch target field"]) -> Int[Tensor, " batch"]:
    """Split of each sentence, from a multiplicative hash of its content: 0 train, 1 validation, 2 test."""
    flat = content.flatten(1)
    multiplier = torch.randint(1 << 62, (flat.shape[1],), generator=torch.Generator().manual_seed(62942)) | 1
    mixed = (flat + 1) * multiplier
    mixed = (mixed ^ (mixed >> 29)) * multiplier.flip(0)
    total = mixed.sum(1)
    eighth = ((total ^ (total >> 31)) * 0x9E3779B97F4A7C1 >> 40) & 7
    return (eighth == 6).long() + 2 * (eighth == 7).long()


def choose(n: int, out_of: int, count: int, generator: torch.Generator) -> Int[Tensor, "n count"]:
    """For each of n rows, `count` distinct numbers below `out_of`, in random order."""
    # random numbers of all rows at once would take several times the memory of the batch
    sizes = (min(_AT_ONCE, n - start) for start in range(0, max(n, 1), _AT_ONCE))
    return torch.cat([torch.rand(size, out_of, generator=generator).topk(count, dim=1).indices for size in sizes])
