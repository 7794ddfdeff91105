"""Activation patching of every head at every position, against TransformerLens's helper and resumed passes by hand."""

from collections.abc import Iterator
from contextlib import redirect_stderr
from functools import partial
from io import StringIO
from typing import Any

import torch
from torch import Tensor
from transformer_lens import TransformerBridge, patching

from benchmarks.bench_ablation import bridge_of
from benchmarks.timing import BenchmarkResult, compare
from hooks import Transformer, TransformerConfig
from interp.core.interchange import Interchange, Place, Rows, sites_of
from interp.tasks.base import Batch

LAYERS, HEADS, POSITIONS = 4, 4, 12
PAIRS = 32
SCORED = (11,)
"""Positions that are read."""


@torch.no_grad()
def comparisons() -> Iterator[BenchmarkResult]:
    model = Transformer(
        TransformerConfig(d_vocab=50, d_model=128, n_heads=HEADS, n_layers=LAYERS, n_ctx=POSITIONS)
    ).eval()
    bridge = bridge_of(model).eval()
    generator = torch.Generator().manual_seed(0)
    base, source = (torch.randint(50, (PAIRS, POSITIONS), generator=generator) for _ in range(2))
    unmyopic = partial(patch, model, base, source)
    check = partial(torch.testing.assert_close, atol=1e-5, rtol=0)
    name = f"patch {LAYERS * HEADS} heads x {POSITIONS} positions, {PAIRS} pairs"
    peer = partial(patch_bridge, bridge, base, source)
    yield compare(f"{name}, against TransformerLens", unmyopic, peer, bar=0.10, rounds=7, check=check)
    yield compare(
        f"{name}, against stacking by hand", unmyopic, partial(by_hand, model, base, source), bar=1.2, check=check
    )


def metric(logits: Tensor) -> Tensor:
    """Mean log-probability of token 0 at the scored positions (batch, scored, d_vocab)."""
    return logits.log_softmax(-1)[..., 0].mean()


def batch_of(tokens: Tensor) -> Batch:
    """A batch that is read at the scored positions."""
    positions = torch.tensor(SCORED).expand(len(tokens), -1)
    return Batch(
        tokens=tokens,
        target_positions=positions,
        labels=torch.zeros_like(positions),
        supervised=torch.ones(len(SCORED), dtype=torch.bool),
    )


def patch(model: Transformer, base: Tensor, source: Tensor) -> Tensor:
    """Our engine."""
    pairs = Rows(torch.arange(len(base)), torch.arange(len(base)))
    interchange = Interchange(model, batch_of(base), [batch_of(source)], ["z"])
    positions = [torch.full((len(base), 1), position) for position in range(base.shape[1])]
    places = [Place(str(index), position, position) for index, position in enumerate(positions)]
    scores = []
    for site in sites_of(model, ["z"]):
        logits = torch.empty(len(places), len(base), len(SCORED), model.cfg.d_vocab)
        for place, rows, logits_of_place in interchange.logits_at_places(site, places, pairs):
            logits[place, rows] = logits_of_place
        scores.append(torch.stack([metric(logits_of_place) for logits_of_place in logits]))
    return torch.stack(scores)


def patch_bridge(bridge: TransformerBridge, base: Tensor, source: Tensor) -> Tensor:
    """TransformerLens's helper: a pass for each head and position."""
    _, cache = bridge.run_with_cache(source)
    helper: Any = patching.get_act_patch_attn_head_out_by_pos
    with redirect_stderr(StringIO()):  # its progress bar
        scores = helper(bridge, base, cache, lambda logits: metric(logits[:, SCORED]))
    return scores.permute(0, 2, 1).flatten(0, 1)  # (layer, position, head) to (layer and head, position)


def by_hand(model: Transformer, base: Tensor, source: Tensor) -> Tensor:
    """Resumed after the layer of the head, all positions of a head in one batch, the last layer at scored positions."""
    cfg = model.cfg
    names = [
        f"blocks.{layer}.{name}"
        for layer in range(cfg.n_layers)
        for name in ("attn.hook_z", "hook_resid_pre", "hook_resid_post")
    ]
    _, cache = model.run_with_cache(base, names_filter=names)
    _, sources = model.run_with_cache(source, names_filter=[name for name in names if name.endswith("z")])
    n, pos = base.shape
    scores = torch.empty(cfg.n_layers * cfg.n_heads, pos)
    read_at = torch.tensor(SCORED).expand(n * pos, -1)
    diagonal = torch.arange(pos)
    for layer in range(cfg.n_layers):
        prefix = f"blocks.{layer}."
        for head in range(cfg.n_heads):
            # Every position has the source's output of the head; copy p of the batch takes position p of them
            z = cache[prefix + "attn.hook_z"].clone()
            z[:, :, head] = sources[prefix + "attn.hook_z"][:, :, head]
            block: Any = model.block(layer)
            attn_out = block.attention.o(z.flatten(2))
            after = block.write(cache[prefix + "hook_resid_pre"], attn_out, model.blocks[layer])
            copies = cache[prefix + "hook_resid_post"].repeat(pos, 1, 1).view(pos, n, pos, -1)
            copies[diagonal, :, diagonal] = after.transpose(0, 1)
            logits = model.resume(copies.flatten(0, 1), layer + 1, read_at=read_at)
            by_position = [metric(logits_of_position) for logits_of_position in logits.split(n)]
            scores[layer * cfg.n_heads + head] = torch.stack(by_position)
    return scores
