"""An audit of all heads, against three forward passes per head, the cost of three ablations each.

The bar is above 1 since more than half of an audit is the search for sets of heads, which does not assume that every
part of a set that can be removed can be removed too.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np
import torch

import interp
from benchmarks.timing import BenchmarkResult, cpu_time, ratio
from hooks import Transformer
from hooks.model.attention import Attention
from interp.tasks import Lego

N = 256
PASSES = 3
"""Per head."""
TIMED = 24
"""Passes that are timed, of those for all heads, which are alike."""
ROUNDS = 2


@torch.no_grad()
def comparisons() -> Iterator[BenchmarkResult]:
    task = Lego(n_vars=4)
    config = interp.config_for(task, n_layers=6, n_heads=8, d_model=128)
    model = Transformer(config).eval()
    look_at_equal_tokens(model)
    labels = set(np.ravel(interp.classify_heads(model, task, n=64).label))
    assert "unclassified" not in labels, labels
    batch = task.sample(N, generator=torch.Generator().manual_seed(0), split="test")
    audit = partial(interp.audit, model, task, n=N, at_chance=True)
    passes = partial(forward_passes, model, batch.tokens, TIMED // 2)
    # Half of the passes before and half after, since a machine is not always as fast
    audit_times, pass_times = [], []
    for _ in range(ROUNDS):
        before, during, after = cpu_time(passes), cpu_time(audit), cpu_time(passes)
        audit_times.append(during)
        pass_times.append((before + after) * PASSES * 6 * 8 / TIMED)
    name = f"audit of 6 x 8 heads, width 128, {N} sequences, every head readable"
    yield ratio(name, audit_times, pass_times, bar=2.5)


def look_at_equal_tokens(model: Transformer) -> None:
    """Set W_K to 4 W_Q, the most expensive case for an audit: every head has a pattern that must be tested."""
    for block in model.stored_blocks:
        attention: Attention = block.attention
        attention.k.weight.copy_(attention.q.weight * 4)


def forward_passes(model: Transformer, tokens: torch.Tensor, passes: int) -> None:
    """Forward passes without hooks, in batches of 64, the fastest size."""
    for _ in range(passes):
        for batch in tokens.split(64):
            model(batch)
