"""Sets of heads: time of the exact answer and of the search, and how often the search equals the exact answer."""

from collections.abc import Iterator

import numpy as np
import torch

import interp
from benchmarks.committees import Bits, drawn_committee, sets_of
from benchmarks.timing import BenchmarkResult, cpu_time, seconds
from hooks import Transformer
from interp.auditing.experiments import HeadExperiments
from interp.auditing.sets import MOST_HEADS_EXHAUSTIVE, HeadSets, find_sets
from interp.core.sample import Sample
from interp.tasks import Dyck

N_MODELS = 50
SHAPES = ((2, 5, 65), (5, 2, 64))
"""Layers, heads and width of models with 10 heads."""


def comparisons() -> Iterator[BenchmarkResult]:
    for n_layers, n_heads, width in SHAPES:
        time = time_of_find_sets(n_layers, n_heads, width, n=256)
        yield seconds(f"all sets of {n_layers} x {n_heads} heads, 256 sequences of 24 tokens", [time], bar=60.0)
    yield seconds("search in 6 x 4 heads, 64 sequences of 20 tokens", [time_of_find_sets(6, 4, 64, n=64)], bar=8.0)
    yield from agreement()


def time_of_find_sets(n_layers: int, n_heads: int, width: int, *, n: int) -> float:
    """Seconds of CPU for an untrained model, scoring included."""
    task = Dyck(length=23 if n == 256 else 19)
    model = Transformer(interp.config_for(task, n_layers=n_layers, n_heads=n_heads, d_model=width)).eval()
    batch = task.sample(n, generator=torch.Generator().manual_seed(0))
    search = HeadExperiments(model, Sample(task, batch, 0))
    n_outcomes = len(task.outcomes)
    return cpu_time(lambda: find_sets(search, [], range(n_outcomes), np.full(n_outcomes, 0.1), further=search))


def agreement() -> Iterator[BenchmarkResult]:
    """Sets of the search against all subsets, on random models of 10 heads."""
    exact: list[HeadSets] = []
    searched: list[HeadSets] = []
    for seed in range(N_MODELS):
        model = drawn_committee(seed)
        exact.append(sets_of(model, Bits(), seed=seed, most_exact=MOST_HEADS_EXHAUSTIVE))
        searched.append(sets_of(model, Bits(), seed=seed, most_exact=0))
    # Compare the two answers of every model
    pairs = list(zip(exact, searched, strict=True))
    same = {
        "costly sets": [set(a.costly) == set(b.costly) for a, b in pairs],
        "harmless sets": [a.harmless == b.harmless for a, b in pairs],
        "largest harmless size": [len(a.largest_harmless) == len(b.largest_harmless) for a, b in pairs],
    }
    n_tried = np.median([sets.n_removals for sets in searched])
    for name, equal in same.items():
        bar = None if name.startswith("largest") else 0.95
        passes = bar is None or sum(equal) >= bar * len(equal)
        figures = f"{sum(equal)} of {N_MODELS} models equal, {n_tried:.0f} of {exact[0].n_removals} sets tried"
        yield BenchmarkResult(name=f"search: {name}", figures=figures, bar=bar, passes=passes)
