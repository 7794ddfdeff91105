"""Cache of every hook point, against a pass that keeps every activation by hand, and against a forward pass."""

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from benchmarks.timing import BenchmarkResult, compare
from hooks import Transformer, TransformerConfig
from hooks.model.layers import HookPoint

CASES = ((2, 32, 2, 32, 12), (4, 64, 4, 32, 24), (6, 128, 8, 16, 48))
"""Layers, width, heads, sequences, positions.

Most of the difference from a forward pass is memory: activations that stay cannot be overwritten by the next ones, and
the first use of a page costs as much as some arithmetic. With memory that the process keeps (the environment variables
MALLOC_TRIM_THRESHOLD_ and MALLOC_MMAP_THRESHOLD_ at a gigabyte) every ratio is below the bar.
"""


@torch.no_grad()
def comparisons() -> Iterator[BenchmarkResult]:
    for n_layers, width, n_heads, batch, pos in CASES:
        cfg = TransformerConfig(d_vocab=50, d_model=width, n_heads=n_heads, n_layers=n_layers, n_ctx=pos)
        model = Transformer(cfg).eval()
        tokens = torch.randint(50, (batch, pos), generator=torch.Generator().manual_seed(0))
        name = f"cache of every hook point, {n_layers} layers x {width} wide, {batch} x {pos} tokens"
        unmyopic = partial(model.run_with_cache, tokens)
        yield compare(
            f"{name}, against keeping them by hand",
            unmyopic,
            partial(pass_in_memory, model, tokens),
            bar=1.10,
            rounds=51,
        )
        yield compare(f"{name}, against a forward pass", unmyopic, partial(model, tokens), bar=1.4, rounds=51)


def pass_in_memory(model: Transformer, tokens: Tensor) -> list[Tensor]:
    """A forward pass in which every activation stays in memory, and nothing else is done."""
    activations: list[Tensor] = []

    def keep(self: HookPoint, x: Tensor) -> Tensor:
        activations.append(x)
        return x

    original = HookPoint.__call__
    HookPoint.__call__ = keep
    try:
        model(tokens)
    finally:
        HookPoint.__call__ = original
    return activations
