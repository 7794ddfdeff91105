"""Interchange of all variables of a chain at every layer and position: `implements`, and a loop over run_with_hooks."""

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

import interp
from benchmarks.timing import BenchmarkResult, compare, cpu_time, seconds
from hooks import Transformer
from interp.algorithms import chain_loop
from interp.core.interchange import Interchange, Place, Rows, sites_of
from interp.core.randomness import derived_generator
from interp.tasks import Lego
from interp.tasks.base import Batch, Task, logits_at_targets

TASK = Lego(n_vars=4)
PAIRS, FEWER = 512, 128


@torch.no_grad()
def comparisons() -> Iterator[BenchmarkResult]:
    model = Transformer(interp.config_for(TASK, n_layers=6, d_model=64)).eval()
    time = cpu_time(lambda: interp.implements(model, TASK, chain_loop(TASK), n=PAIRS))
    setting = "chain of 4, 6 layers, width 64"
    yield seconds(f"implements with its control, {setting}, {PAIRS} pairs", [time], bar=60.0)
    generator = derived_generator(0, "benchmark")
    base = TASK.sample(FEWER, generator=generator, split="test")
    source = TASK.counterparts(base, generator=generator)
    pairs = partial(unmyopic, model, base, source), partial(peer, model, base, source)
    yield compare(
        f"interchange at every layer and position, {setting}, {FEWER} pairs", *pairs, bar=0.5, check=check, rounds=3
    )


def check(unmyopic_logits: list[Tensor], peer_logits: list[Tensor]) -> None:
    torch.testing.assert_close(torch.stack(unmyopic_logits), torch.stack(peer_logits), atol=1e-4, rtol=0)


def unmyopic(model: Transformer, base: Batch, source: Batch) -> list[Tensor]:
    """Logits at the targets for each site and position."""
    engine = Interchange(model, base, [source], ["resid"])
    rows = torch.arange(len(base))
    pairs = Rows(rows, rows)
    logits = []
    for site in sites_of(model, ["resid"]):
        for name, positions in Task.places(TASK, base).items():
            place = Place(name, positions, positions)
            logits.append(torch.cat([batch_logits for _, batch_logits in engine.logits_by_chunk(site, place, pairs)]))
    return logits


def peer(model: Transformer, base: Batch, source: Batch) -> list[Tensor]:
    """The same with a hook for each site and position, from one cache."""
    _, cache = model.run_with_cache(source.tokens)
    last = model.cfg.n_layers - 1
    names = [f"blocks.{layer}.hook_resid_pre" for layer in range(last + 1)] + [f"blocks.{last}.hook_resid_post"]
    logits = []
    for name in names:
        for pos in range(base.tokens.shape[1]):

            def patch(resid: Tensor, hook: object, pos: int = pos, source_resid: Tensor = cache[name]) -> Tensor:
                resid = resid.clone()
                resid[:, pos] = source_resid[:, pos]
                return resid

            patched_logits = model.run_with_hooks(base.tokens, fwd_hooks=[(name, patch)])
            logits.append(logits_at_targets(patched_logits, base))
    return logits
