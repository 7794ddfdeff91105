"""Attention variation of many models, against loops over pairs with TransformerLens caches."""

from collections.abc import Iterator
from functools import partial
from itertools import combinations

import numpy as np
import torch
from torch import Tensor

import interp
from benchmarks.timing import BenchmarkResult, compare, seconds
from case_studies.recipes.stopwatch import time_in_turn
from hooks import Transformer
from interp.comparison.distances import pair_distances
from interp.tasks import Dyck

MODELS, REPEATS = 60, (1, 31)
MANY, TOKENS = 200, 512

CLOSE = partial(np.testing.assert_allclose, rtol=1e-4)


@torch.no_grad()
def comparisons() -> Iterator[BenchmarkResult]:
    task = Dyck()
    cfg = interp.config_for(task, "dyck_gpt")
    models = [Transformer(cfg, seed=seed).eval() for seed in range(MODELS)]
    names = [f"blocks.{layer}.attn.hook_pattern" for layer in range(cfg.n_layers)]
    # The verb, on a short and a long prefix
    for repeat in REPEATS:
        prefix = task.staircase(repeat=repeat)
        tokens = task.read(prefix).tokens

        def unmyopic(prefix=prefix) -> np.ndarray:
            """Includes intervals, entropy and all baselines."""
            return interp.attention_variation(models, task, prefixes=prefix).variation.value

        def peer(tokens=tokens) -> np.ndarray:
            caches = [model.run_with_cache(tokens, names_filter=names)[1] for model in models]
            means = []
            for name in names:
                patterns = [cache[name][0, 0] for cache in caches]
                distances = [(a - b).square().sum().item() for a, b in combinations(patterns, 2)]
                means.append(sum(distances) / len(distances))
            return np.array(means)

        name = f"variation, {MODELS} models, {tokens.shape[1]} tokens, all baselines"
        yield compare(name, unmyopic, peer, bar=1.50, rounds=11, check=CLOSE)  # dominated by the models
    # Distances of random patterns alone
    for count, length in ((60, 17), (60, 512), (MANY, TOKENS)):
        patterns = _random_patterns(count, length)

        def gram(patterns=patterns) -> np.ndarray:
            return pair_distances(patterns)[0]

        def loops(patterns=patterns) -> np.ndarray:
            distances = np.zeros((len(patterns), len(patterns)))
            for i, a in enumerate(patterns[:, 0]):
                for j, b in enumerate(patterns[:i, 0]):
                    distances[i, j] = distances[j, i] = (a - b).square().sum().item()
            return distances

        yield compare(f"all pairs of {count} models, {length} tokens", gram, loops, bar=0.50, rounds=5, check=CLOSE)
    patterns = _random_patterns(MANY, TOKENS)
    times = time_in_turn([partial(pair_distances, patterns)], rounds=5)
    yield seconds(f"all pairs of {MANY} models, {TOKENS} tokens, one layer", *times, bar=2.0)


def _random_patterns(models: int, length: int) -> Tensor:
    weights = torch.rand(models, 1, length, length, generator=torch.Generator().manual_seed(0)).tril()
    return weights / weights.sum(-1, keepdim=True)
