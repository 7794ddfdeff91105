"""Gram matrix of the transformer kernel, against one draw at a time with dense one-hot matrices in numpy."""

from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
from threadpoolctl import threadpool_limits

import interp
from benchmarks.timing import BenchmarkResult, compare
from interp.core.randomness import derived_seed
from interp.tasks import Template
from interp.theory.kernels.random_features import BLOCK

DRAWS, ROUNDS = 256, 5
BARS = {128: 0.30, 512: 0.10}
"""Largest ratio by number of strings."""


def comparisons() -> Iterator[BenchmarkResult]:
    with threadpool_limits(1):
        for templates in ("aba_abb", "majority"):
            for n in BARS:
                yield _compare(templates, n)


def _compare(templates: str, n: int) -> BenchmarkResult:
    task = Template(templates=templates, train=n)
    tokens = task.sample(n, generator=torch.Generator().manual_seed(0)).tokens.numpy()
    kernel = interp.theory.TransformerKernel(n_draws=DRAWS)

    def unmyopic() -> np.ndarray:
        return kernel.attention(tokens)

    def peer() -> np.ndarray:
        """Eq. 3: dense features of every draw, sum of their products."""
        _, pos = tokens.shape
        words = int(tokens.max()) + 1
        zeta = np.random.default_rng(derived_seed(kernel.seed, "token", 0)).standard_normal((words, BLOCK))
        p = np.random.default_rng(derived_seed(kernel.seed, "position", 0)).standard_normal((pos, BLOCK))
        onehot = np.concatenate([np.eye(words)[tokens], np.tile(kernel.gamma * np.eye(pos), (n, 1, 1))], 2)
        total = np.zeros((n, n))
        for draw in range(DRAWS):
            # Softmax over positions, then the weighted sum of one-hot vectors
            scores = kernel.beta * (zeta[tokens, draw] + kernel.gamma * p[:, draw])
            weight = np.exp(scores - scores.max(1, keepdims=True))
            weight /= weight.sum(1, keepdims=True)
            feature = (weight[:, None] @ onehot)[:, 0]
            total += feature @ feature.T
        return total / DRAWS

    name = f"kernel of {n} strings of {tokens.shape[1]} tokens, {DRAWS} draws"
    check = partial(np.testing.assert_allclose, rtol=1e-10)
    return compare(name, unmyopic, peer, bar=BARS[n], rounds=ROUNDS, check=check)
