"""Ablation of every head: the ablation engine, against a pass per head in TransformerLens, and resumed by hand."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformer_lens import TransformerBridge, TransformerBridgeConfig

from benchmarks.timing import BenchmarkResult, compare
from hooks import Transformer, TransformerConfig
from hooks.interventions.ablation_engine import AblationEngine
from hooks.model.transformer import TransformerStack

CASES = (
    # layers, width, heads, batch, positions, largest ratio if few positions are read, and if all are
    (4, 64, 4, 32, 24, 0.45, 0.45),
    (6, 128, 8, 16, 48, 0.40, 0.50),
)
"""Starting in the layer of the head saves half of the arithmetic: the layers before it, on average half of them. All
further saving is in the last layer and the unembedding at positions that are not read, and in calls of hooks, which
count less the more arithmetic a call has. So where all positions are read, half is what can be promised."""
D_VOCAB = 50
PEER_NAMES = {
    "weights": "blocks",
    "attention": "attn",
    "norm_1": "ln1",
    "norm_2": "ln2",
    "w_in": "in",
    "w_out": "out",
    "positions": "pos_embed",
    "norm_final": "ln_final",
}


@torch.no_grad()
def comparisons() -> Iterator[BenchmarkResult]:
    for n_layers, width, n_heads, batch, pos, *bars in CASES:
        cfg = TransformerConfig(d_vocab=D_VOCAB, d_model=width, n_heads=n_heads, n_layers=n_layers, n_ctx=pos)
        model = Transformer(cfg).eval()
        bridge = bridge_of(model)
        tokens = torch.randint(D_VOCAB, (batch, pos), generator=torch.Generator().manual_seed(0))
        places = {"at every fifth position": torch.arange(1, pos, 5), "everywhere": None}
        for bar, (place, read_at) in zip(bars, places.items(), strict=True):
            unmyopic = partial(each_head, model, tokens, read_at)
            peer = partial(loop, bridge, tokens, read_at)
            name = f"zero {n_layers} x {n_heads} heads, {batch} x {pos} tokens, read {place}"
            check = partial(torch.testing.assert_close, atol=1e-5, rtol=0)
            yield compare(name, unmyopic, peer, bar=bar, check=check)
            resumed = partial(resumed_by_hand, model, tokens, read_at)
            yield compare(f"{name}, resumed by hand", unmyopic, resumed, bar=1.10, check=check)


def bridge_of(model: Transformer) -> TransformerBridge:
    """TransformerLens's model with our weights."""
    cfg = model.cfg
    bridge = TransformerBridge.boot_native(  # pyright: ignore[reportAttributeAccessIssue]
        TransformerBridgeConfig(
            d_model=cfg.d_model,
            d_head=cfg.d_head,
            n_heads=cfg.n_heads,
            n_layers=cfg.n_layers,
            n_ctx=cfg.n_ctx,
            d_vocab=cfg.d_vocab,
            act_fn="gelu",
            normalization_type="LN",
            attention_dir=cfg.attention,
            seed=0,
        )
    )
    weights = {}
    for name, weight in model.state_dict().items():
        peer_modules = [PEER_NAMES.get(module, module) for module in name.split(".")]
        weights[".".join(peer_modules)] = weight
    bridge.load_state_dict(weights, strict=True)
    return bridge


def metric(logits: Tensor) -> Tensor:
    """Mean log-probability of token 0 at the scored positions."""
    return logits.log_softmax(-1)[..., 0].mean()


def each_head(model: TransformerStack, tokens: Tensor, read_at: Tensor | None) -> Tensor:
    positions = None if read_at is None else read_at.expand(len(tokens), -1)
    engine = AblationEngine(model, tokens, read_at=positions, patterns=False)
    scores = torch.empty(model.cfg.n_layers, model.cfg.n_heads)
    for head, logits in engine.each_head(lambda layer, clean: torch.zeros_like(clean.z)):
        scores[head] = metric(logits)
    return scores


def resumed_by_hand(model: Transformer, tokens: Tensor, read_at: Tensor | None) -> Tensor:
    """A pass for each head from its layer on, with the clean input of the layer."""
    names = [
        f"blocks.{layer}.{name}" for layer in range(model.cfg.n_layers) for name in ("attn.hook_z", "hook_resid_pre")
    ]
    _, cache = model.run_with_cache(tokens, names_filter=names)
    positions = None if read_at is None else read_at.expand(len(tokens), -1)
    scores = torch.empty(model.cfg.n_layers, model.cfg.n_heads)
    for layer in range(model.cfg.n_layers):
        output_map: Any = model.block(layer).attention.o
        for head in range(model.cfg.n_heads):
            z = cache[f"blocks.{layer}.attn.hook_z"].clone()
            z[:, :, head] = 0
            resid = cache[f"blocks.{layer}.hook_resid_pre"]
            scores[layer, head] = metric(
                model.resume(resid, layer, attn_out=output_map(z.flatten(2)), read_at=positions)
            )
    return scores


def loop(bridge: TransformerBridge, tokens: Tensor, read_at: Tensor | None) -> Tensor:
    """The loop of a TransformerLens user."""
    scores = torch.empty(bridge.cfg.n_layers, bridge.cfg.n_heads)
    for layer in range(bridge.cfg.n_layers):
        for head in range(bridge.cfg.n_heads):

            def zero(z: Tensor, hook: object, head: int = head) -> Tensor:
                z[:, :, head] = 0
                return z

            logits = bridge.run_with_hooks(tokens, fwd_hooks=[(f"blocks.{layer}.attn.hook_z", zero)])
            scores[layer, head] = metric(logits if read_at is None else logits[:, read_at])
    return scores
