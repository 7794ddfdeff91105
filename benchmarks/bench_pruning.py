"""Subset sums for many weights, against the loop over weights that one would write with numpy."""

import time
from collections.abc import Iterator
from itertools import product

import numpy as np
import torch

from benchmarks.timing import Comparison, Seconds, compare
from hooks import Transformer, TransformerConfig
from interp.theory.pruning import nearest_subsets, prune_to_transformer

WEIGHTS, CANDIDATES, PROMISED = 10_000, 20, 3.0
FEW = 500
"""Weights that the loop is timed on."""
MEDIAN = 1e-5
"""Largest median error that was promised."""


def comparisons() -> Iterator[Comparison | Seconds]:
    generator = torch.Generator().manual_seed(0)
    candidates = 2 * torch.rand(WEIGHTS, CANDIDATES, generator=generator, dtype=torch.float64) - 1
    targets = 2 * torch.rand(WEIGHTS, generator=generator, dtype=torch.float64) - 1
    assert nearest_subsets(candidates, targets).error.median() < MEDIAN
    taken = []
    for _ in range(5):
        started = time.perf_counter()
        nearest_subsets(candidates, targets)
        taken.append(time.perf_counter() - started)
    yield Seconds(
        name=f"subset sums, {WEIGHTS} weights, {CANDIDATES} candidates", taken=tuple(taken), promised=PROMISED
    )

    bits = np.array(list(product([0.0, 1.0], repeat=CANDIDATES // 2)))

    def ours() -> np.ndarray:
        return nearest_subsets(candidates[:FEW], targets[:FEW]).error.numpy()

    def theirs() -> np.ndarray:
        errors = []
        for row, target in zip(candidates[:FEW].numpy(), targets[:FEW].numpy(), strict=True):
            left, right = bits @ row[: CANDIDATES // 2], np.sort(bits @ row[CANDIDATES // 2 :])
            at = np.searchsorted(right, target - left).clip(1, len(right) - 1)
            gaps = [np.abs(right[index] + left - target).min() for index in (at - 1, at)]
            errors.append(min(gaps))
        return np.array(errors)

    np.testing.assert_allclose(ours(), theirs(), atol=1e-12)
    yield compare(f"subset sums, {FEW} weights, against a loop that keeps no masks", ours, theirs, bar=1.0, rounds=11)
    target = Transformer(
        TransformerConfig(d_vocab=8, d_model=8, n_heads=1, d_mlp=16, block="dyck", activation="relu", n_ctx=32)
    )
    taken = []
    for seed in range(3):
        started = time.perf_counter()
        prune_to_transformer(target, rescale=True, seed=seed)
        taken.append(time.perf_counter() - started)
    yield Seconds(name="two layers of width 8 out of eight random ones, searched", taken=tuple(taken), promised=60.0)
