"""Random symbols for the wildcards of templates."""

from collections.abc import Sequence
from itertools import islice

import torch
from jaxtyping import Int
from torch import Tensor


def choose_distinct(n: int, out_of: int, count: int, generator: torch.Generator) -> Int[Tensor, "n count"]:
    """For each of n rows, `count` distinct numbers below `out_of`, in random order; time and memory O(n count^2)."""
    chosen = torch.empty(n, 0, dtype=torch.long)
    for done in range(count):
        new = torch.randint(out_of - done, (n,), generator=generator)
        for smaller in chosen.sort(1).values.unbind(1):  # the new-th number not yet chosen
            new = new + (new >= smaller)
        chosen = torch.cat([chosen, new[:, None]], 1)
    return chosen


def reordered_symbols(
    tokens: Int[Tensor, "batch pos"], n_fixed: int, every: Sequence[int], n: int, generator: torch.Generator
) -> Int[Tensor, "batch symbol"]:
    """The symbols of each string in a random order, followed by others of an alphabet up to n of them.

    Args:
        tokens: The strings.
        n_fixed: Ids below it are not symbols.
        every: The alphabet.
        n: Symbols per string.
        generator: Determines the draws.
    """
    symbols = torch.zeros(len(tokens), n, dtype=torch.long)
    for row, string in enumerate(tokens.tolist()):
        own = sorted({one for one in string if one >= n_fixed})
        own = [own[at] for at in torch.randperm(len(own), generator=generator).tolist()]
        start = int(torch.randint(len(every), (1,), generator=generator))
        spare = (one for one in (*every[start:], *every[:start]) if one not in own)
        symbols[row] = torch.tensor([*own, *islice(spare, n)][:n])
    return symbols
