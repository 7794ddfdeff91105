"""Interchange of all variables of a chain at every layer and position: `implements`, and a loop over run_with_hooks."""

import time
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

import interp
from benchmarks.timing import Result, compare, seconds
from hooks import Transformer
from interp.algorithms import chain_loop
from interp.core.interchange import Interchange, Place, sites_of
from interp.core.randomness import derived_generator
from interp.tasks import Lego
from interp.tasks.base import Batch, Task, logits_at_targets

TASK = Lego(n_vars=4)
PAIRS = 512


@torch.no_grad()
def comparisons() -> Iterator[Result]:
    model = Transformer(interp.config_for(TASK, n_layers=6, d_model=64)).eval()
    start = time.process_time()
    interp.implements(model, TASK, chain_loop(TASK), n=PAIRS)
    what = f"chain of 4, 6 layers, width 64, {PAIRS} pairs"
    yield seconds(f"implements with its control, {what}", [time.process_time() - start], bar=60.0)
    generator = derived_generator(0, "benchmark")
    base = TASK.sample(PAIRS, generator=generator, split="test")
    source = TASK.counterparts(base, generator=generator)
    pairs = partial(ours, model, base, source), partial(theirs, model, base, source)
    yield compare(f"interchange at every layer and position, {what}", *pairs, bar=0.5, check=check, rounds=3)


def check(one: list[Tensor], other: list[Tensor]) -> None:
    torch.testing.assert_close(torch.stack(one), torch.stack(other), atol=1e-4, rtol=0)


def ours(model: Transformer, base: Batch, source: Batch) -> list[Tensor]:
    """Logits at the targets for each site and position."""
    engine = Interchange(model, base, source, ["resid"])
    found = []
    for site in sites_of(model, ["resid"]):
        for name, at in Task.places(TASK, base).items():
            parts = engine.logits_by_part(site, Place(name, at, at))
            found.append(torch.cat([logits for _, logits in parts]))
    return found


def theirs(model: Transformer, base: Batch, source: Batch) -> list[Tensor]:
    """The same with a hook for each site and position, from one cache."""
    _, cache = model.run_with_cache(source.tokens)
    last = model.cfg.n_layers - 1
    names = [f"blocks.{layer}.hook_resid_pre" for layer in range(last + 1)] + [f"blocks.{last}.hook_resid_post"]
    found = []
    for name in names:
        for pos in range(base.tokens.shape[1]):

            def put(resid: Tensor, hook: object, pos: int = pos, given: Tensor = cache[name]) -> Tensor:
                resid = resid.clone()
                resid[:, pos] = given[:, pos]
                return resid

            logits = model.run_with_hooks(base.tokens, fwd_hooks=[(name, put)])
            found.append(logits_at_targets(logits, base))
    return found
