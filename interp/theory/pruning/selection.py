"""Which entries of two random matrices, one after the other, make a given one?

The first keeps one entry in each of its rows: every input gets several rows, and so several copies of itself, each
times a random number. The second chooses among those copies, by subset sums.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.theory.pruning.subset_sum import nearest_subsets

Between = Literal["nothing", "relu", "relu, inputs not negative"]
"""What stands between the two matrices."""


@dataclass(frozen=True, kw_only=True)
class MaskPair:
    """What is kept of two matrices, and what the two then do."""

    first: Bool[Tensor, "row input"]
    second: Bool[Tensor, "output row"]
    achieved: Float[Tensor, "sign output input"]
    """The map of inputs above zero and, where a ReLU parts them, that of inputs below."""

    def error(self, target: Float[Tensor, "output input"]) -> float:
        """Spectral norm of what the pruned product has too much, at worst over the signs of inputs, summed."""
        return sum(float(torch.linalg.matrix_norm(part - target.double(), 2)) for part in self.achieved)


@torch.no_grad()
def mask_pair(
    first: Float[Tensor, "row input"],
    second: Float[Tensor, "output row"],
    target: Float[Tensor, "output input"],
    *,
    candidates: int,
    between: Between,
) -> MaskPair:
    """Masks under which `second @ first`, with what stands between, is near the target.

    Args:
        first: Random weights; every row will keep at most one entry.
        second: Random weights; every output chooses among the rows.
        target: The map wanted.
        candidates: Rows for each input, and for each sign of it where a ReLU follows.
        between: What stands between the two.

    Raises:
        ValueError: too few rows.

    Source: Pensia et al. 2020 (arXiv:2006.07990), as used for bounded Dyck (arXiv:2312.01429) Theorem 3. Differs: rows
    go to the inputs for which they have a large entry, and the subset is the best there is.
    """
    signs = [1.0, -1.0] if between == "relu" else [1.0]
    weight = first.double()
    strength = weight.abs() if between == "nothing" else torch.stack([weight * sign for sign in signs], -1)
    strength = strength.flatten(1).T  # (slot, row); slots are inputs, or inputs and their signs
    rows = torch.from_numpy(_shared_out(strength.numpy(), candidates))
    rows = rows.reshape(weight.shape[1], len(signs), candidates).transpose(0, 1)  # (sign, input, candidate)
    inputs = torch.arange(weight.shape[1])[None, :, None].expand_as(rows)
    entry = weight[rows, inputs]
    if between != "nothing":
        entry = torch.where(entry * torch.tensor(signs)[:, None, None] > 0, entry, 0)  # a row of the wrong sign is dead
    products = second.double()[:, rows] * entry  # (output, sign, input, candidate)
    wanted = target.double()[:, None].expand(products.shape[:3])
    needed = wanted != 0  # the empty subset is exact for the others
    found = nearest_subsets(products[needed], wanted[needed])
    chosen = torch.zeros(products.shape, dtype=torch.bool)
    chosen[needed] = found.chosen & (products[needed] != 0)
    achieved = torch.zeros_like(wanted)
    achieved[needed] = found.total
    first_mask = torch.zeros(first.shape, dtype=torch.bool)
    first_mask[rows.flatten(), inputs.flatten()] = (entry != 0).flatten()
    second_mask = torch.zeros(second.shape, dtype=torch.bool)
    second_mask[:, rows.flatten()] = chosen.flatten(1)
    return MaskPair(first=first_mask, second=second_mask, achieved=achieved.transpose(0, 1))


def rows_needed(n_slots: int, candidates: int) -> int:
    """Rows from which every input, or input and sign, gets its candidates: with some to spare for wrong signs."""
    return -(-n_slots * candidates * 6 // 5)


def _shared_out(strength: Float[np.ndarray, "slot row"], each: int) -> Int[np.ndarray, "slot each"]:
    """So many rows to each slot: in turns, each takes the row that is strongest for it among those left."""
    n_slots, n_rows = strength.shape
    if n_slots * each > n_rows:
        raise ValueError(
            f"the random network is too small: {each} candidates for each of {n_slots} inputs (and signs) need "
            f"{n_slots * each} rows, and it has {n_rows}. Make it wider, or ask for fewer candidates."
        )
    left, taken = strength.copy(), np.empty((n_slots, each), dtype=np.int64)
    for turn in range(each):
        for slot in range(n_slots) if turn % 2 == 0 else reversed(range(n_slots)):
            row = left[slot].argmax()
            taken[slot, turn] = row
            left[:, row] = -np.inf
    return taken
