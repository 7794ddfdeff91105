"""Sets of heads: time of the exact answer and of the search, and how often the search equals the exact answer."""

import time
from collections.abc import Iterator

import numpy as np
import torch

import interp
from benchmarks.committees import Bits, drawn_committee, sets_of
from benchmarks.timing import Result, seconds
from hooks import Transformer
from interp.auditing.experiments import HeadExperiments
from interp.auditing.sets import MOST_EXACT, HeadSets, find_sets
from interp.tasks import Dyck

N_MODELS = 100
SHAPES = ((2, 5, 65), (5, 2, 64))
"""Layers, heads and width of models with 10 heads."""


def comparisons() -> Iterator[Result]:
    for n_layers, n_heads, width in SHAPES:
        taken = time_of_find_sets(n_layers, n_heads, width, n=256)
        yield seconds(f"all sets of {n_layers} x {n_heads} heads, 256 sequences of 24 tokens", [taken], bar=60.0)
    yield seconds("search in 6 x 4 heads, 64 sequences of 20 tokens", [time_of_find_sets(6, 4, 64, n=64)], bar=8.0)
    yield from agreement()


def time_of_find_sets(n_layers: int, n_heads: int, width: int, *, n: int) -> float:
    """Seconds of CPU for an untrained model, scoring included."""
    task = Dyck(length=23 if n == 256 else 19)
    model = Transformer(interp.config_for(task, n_layers=n_layers, n_heads=n_heads, d_model=width)).eval()
    batch = task.sample(n, generator=torch.Generator().manual_seed(0))
    search = HeadExperiments(model, task, batch, 0, keep=True)
    n_outcomes = len(task.outcomes)
    start = time.process_time()
    find_sets(search, [], range(n_outcomes), np.full(n_outcomes, 0.1))
    return time.process_time() - start


def agreement() -> Iterator[Result]:
    """Sets of the search against all subsets, on random models of 10 heads."""
    pairs: list[tuple[HeadSets, HeadSets]] = []
    for seed in range(N_MODELS):
        model = drawn_committee(seed)
        exact, found = (sets_of(model, Bits(), seed=seed, most_exact=most) for most in (MOST_EXACT, 0))
        pairs.append((exact, found))
    same = {
        "costly sets": [set(exact.costly) == set(found.costly) for exact, found in pairs],
        "harmless sets": [exact.harmless == found.harmless for exact, found in pairs],
        "largest harmless size": [len(one.largest_harmless) == len(two.largest_harmless) for one, two in pairs],
    }
    tried = f"{np.median([found.n_removals for _, found in pairs]):.0f} of {pairs[0][0].n_removals} sets tried"
    for name, equal in same.items():
        bar = None if name.startswith("largest") else 0.95
        passes = bar is None or sum(equal) >= bar * len(equal)
        figures = f"{sum(equal)} of {N_MODELS} models equal, {tried}"
        yield Result(name=f"search: {name}", figures=figures, bar=bar, passes=passes)
