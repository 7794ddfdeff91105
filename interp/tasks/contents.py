"""Random contents of examples, and the split that each belongs to by a hash.

A content is what an example is built from: some integer fields for each of its targets.
"""

from collections.abc import Callable

import torch
from jaxtyping import Int
from torch import Tensor

from interp.tasks.splits import SPLITS, Split

ROWS_PER_DRAW = 2**16
"""Random numbers of all rows at once would take several times the memory of the batch."""
CANDIDATES = {"train": 1.36, "validation": 8.8, "test": 8.8}
"""Contents drawn for each one of a split: slightly more than one over the share of the split."""
MOST_ROUNDS = 64


def contents_of_split(
    n: int, split: Split, draw: Callable[[int], Int[Tensor, "batch target field"]]
) -> Int[Tensor, "n target field"]:
    """Draw contents until n of them belong to a split.

    Args:
        n: Number of contents.
        split: The split.
        draw: Draws a number of contents of any split.

    Raises:
        ValueError: a split with too few contents.
    """
    contents = []
    n_accepted = 0
    for _ in range(MOST_ROUNDS):
        # enough candidates for what is missing, of which those of the split are accepted
        candidates = draw(int((n - n_accepted) * CANDIDATES[split]) + 16)
        accepted = candidates[split_of(candidates) == SPLITS.index(split)]
        contents.append(accepted)
        n_accepted += len(accepted)
        if n_accepted >= n:
            return torch.cat(contents)[:n]
    raise ValueError(f"split {split!r} of this task has too few examples ({n_accepted} found, {n} requested).")


def draw_distinct(n: int, out_of: int, count: int, generator: torch.Generator) -> Int[Tensor, "n count"]:
    """For each of n rows, `count` distinct numbers below `out_of`, in random order."""
    chunks = []
    # one chunk at least, for the shape of an empty batch
    for start in range(0, max(n, 1), ROWS_PER_DRAW):
        priority = torch.rand(min(ROWS_PER_DRAW, n - start), out_of, generator=generator, dtype=torch.float32)
        chunks.append(priority.topk(count, dim=1).indices)
    return torch.cat(chunks)


def split_of(content: Int[Tensor, "batch target field"]) -> Int[Tensor, " batch"]:
    """Index of each content's split, by a multiplicative hash.

    Three quarters are for training, one eighth each for validation and test.
    """
    flat = content.flatten(1)
    # fixed odd multipliers, one for each field
    multiplier = torch.randint(1 << 62, (flat.shape[1],), generator=torch.Generator().manual_seed(62942)) | 1
    # mix the bits of each field, add the fields, and take three bits of the mixed sum
    mixed = (flat + 1) * multiplier
    mixed = (mixed ^ (mixed >> 29)) * multiplier.flip(0)
    total = mixed.sum(1)
    eighth = ((total ^ (total >> 31)) * 0x9E3779B97F4A7C1 >> 40) & 7
    return (eighth == 6).long() + 2 * (eighth == 7).long()
