"""Attention variation of many models, against the loops that TransformerLens leaves to its users."""

import time
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

import interp
from benchmarks.timing import Comparison, Seconds, compare
from hooks import Transformer
from interp.comparison.distances import pair_distances
from interp.tasks import Dyck

MODELS, REPEATS = 60, (1, 31)
MANY, TOKENS, PROMISED = 200, 512, 2.0


@torch.no_grad()
def comparisons() -> Iterator[Comparison | Seconds]:
    task = Dyck()
    cfg = interp.config_for(task, "dyck_gpt")
    models = [Transformer(cfg, seed=seed).eval() for seed in range(MODELS)]
    names = [f"blocks.{layer}.attn.hook_pattern" for layer in range(cfg.n_layers)]
    for repeat in REPEATS:
        prefix = task.staircase(repeat=repeat)
        tokens = task.read(prefix).tokens

        def ours(prefix=prefix) -> np.ndarray:
            """Intervals, entropy and all baselines are in the price."""
            return interp.attention_variation(models, task, prefixes=prefix).variation

        def theirs(tokens=tokens) -> np.ndarray:
            caches = [model.run_with_cache(tokens, names_filter=names)[1] for model in models]
            means = []
            for name in names:
                patterns = [cache[name][0, 0] for cache in caches]
                pairs = [(a - b).square().sum().item() for i, a in enumerate(patterns) for b in patterns[:i]]
                means.append(sum(pairs) / len(pairs))
            return np.array(means)

        np.testing.assert_allclose(ours(), theirs(), rtol=1e-4)
        name = f"variation, {MODELS} models, {tokens.shape[1]} tokens, all baselines"
        yield compare(name, ours, theirs, bar=1.50, rounds=11)  # both mostly wait for the models
    for count, length in ((60, 17), (60, 512), (MANY, TOKENS)):
        patterns = _random_patterns(count, length)

        def gram(patterns=patterns) -> np.ndarray:
            return pair_distances(patterns)[0]

        def loops(patterns=patterns) -> np.ndarray:
            found = np.zeros((len(patterns), len(patterns)))
            for i, a in enumerate(patterns[:, 0]):
                for j, b in enumerate(patterns[:i, 0]):
                    found[i, j] = found[j, i] = (a - b).square().sum().item()
            return found

        np.testing.assert_allclose(gram(), loops(), rtol=1e-4)
        yield compare(f"all pairs of {count} models, {length} tokens", gram, loops, bar=0.50, rounds=5)
    yield Seconds(
        name=f"all pairs of {MANY} models, {TOKENS} tokens, one layer", taken=tuple(_many()), promised=PROMISED
    )


def _random_patterns(models: int, length: int) -> Tensor:
    weights = torch.rand(models, 1, length, length, generator=torch.Generator().manual_seed(0)).tril()
    return weights / weights.sum(-1, keepdim=True)


def _many() -> Iterator[float]:
    patterns = _random_patterns(MANY, TOKENS)
    for _ in range(5):
        started = time.perf_counter()
        pair_distances(patterns)
        yield time.perf_counter() - started
