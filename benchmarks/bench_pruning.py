"""Subset sums for many weights, against a loop over weights in numpy; time of one pruned transformer."""

from collections.abc import Iterator
from functools import partial
from itertools import count, product

import numpy as np
import torch

from benchmarks.timing import BenchmarkResult, compare, seconds
from case_studies.recipes.stopwatch import time_in_turn
from hooks import Transformer, TransformerConfig
from interp.theory.pruning import nearest_subsets, prune_to_transformer

WEIGHTS, CANDIDATES = 10_000, 20
FEW = 500
"""Number of weights in the comparison with the loop."""
MEDIAN = 1e-5
"""Largest median error."""


def comparisons() -> Iterator[BenchmarkResult]:
    # Many weights
    generator = torch.Generator().manual_seed(0)
    candidates = 2 * torch.rand(WEIGHTS, CANDIDATES, generator=generator, dtype=torch.float64) - 1
    targets = 2 * torch.rand(WEIGHTS, generator=generator, dtype=torch.float64) - 1
    assert nearest_subsets(candidates, targets).error.median() < MEDIAN
    name = f"subset sums, {WEIGHTS} weights, {CANDIDATES} candidates"
    yield seconds(name, *time_in_turn([partial(nearest_subsets, candidates, targets)], rounds=5), bar=3.0)

    # Few weights, against a loop
    bits = np.array(list(product([0.0, 1.0], repeat=CANDIDATES // 2)))

    def unmyopic() -> np.ndarray:
        return nearest_subsets(candidates[:FEW], targets[:FEW]).error.numpy()

    def peer() -> np.ndarray:
        errors = []
        for row, target in zip(candidates[:FEW].numpy(), targets[:FEW].numpy(), strict=True):
            first_sums = bits @ row[: CANDIDATES // 2]
            second_sums = np.sort(bits @ row[CANDIDATES // 2 :])
            above = np.searchsorted(second_sums, target - first_sums).clip(1, len(second_sums) - 1)
            gaps = [np.abs(second_sums[index] + first_sums - target).min() for index in (above - 1, above)]
            errors.append(min(gaps))
        return np.array(errors)

    name = f"subset sums, {FEW} weights, against a loop that keeps no masks"
    yield compare(name, unmyopic, peer, bar=1.0, rounds=11, check=partial(np.testing.assert_allclose, atol=1e-12))
    # A whole transformer
    target = Transformer(
        TransformerConfig(d_vocab=8, d_model=8, n_heads=1, d_mlp=16, block="dyck", activation="relu", n_ctx=32)
    )
    seeds = count()
    times = time_in_turn([lambda: prune_to_transformer(target, rescale=True, seed=next(seeds))], rounds=3)
    yield seconds("two layers of width 8 pruned from eight random layers", *times, bar=60.0)
