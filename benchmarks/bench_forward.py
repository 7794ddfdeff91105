"""Overhead of hook points without hooks: our forward pass, against the same equations in plain torch.

On long sequences the plain equations use torch's fused attention, as the model does.
"""

from collections.abc import Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.timing import BenchmarkResult, compare
from hooks import Transformer, TransformerConfig
from hooks.model.attention import FUSED_FROM

CASES = (
    # layers, width, heads, batch, positions, largest ratio
    (4, 64, 4, 32, 24, 1.10),
    (6, 128, 8, 64, 48, 1.03),
    (4, 64, 4, 16, 64, 1.10),
    (4, 64, 4, 4, 256, 1.10),
    (4, 64, 4, 1, 1024, 1.10),
)


@torch.no_grad()
def comparisons() -> Iterator[BenchmarkResult]:
    for n_layers, width, heads, batch, pos, bar in CASES:
        cfg = TransformerConfig(d_vocab=50, d_model=width, n_heads=heads, n_layers=n_layers, n_ctx=pos)
        model = Transformer(cfg).eval()
        weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
        tokens = torch.randint(cfg.d_vocab, (batch, pos), generator=torch.Generator().manual_seed(0))
        name = f"forward pass, {n_layers} layers x {width} wide, {batch} x {pos} tokens, against plain torch"
        check = partial(torch.testing.assert_close, atol=1e-5, rtol=0)
        peer = partial(plain, weights, tokens, cfg)
        yield compare(name, partial(model, tokens), peer, bar=bar, rounds=101 if pos < 256 else 31, check=check)


def plain(w: dict[str, Tensor], tokens: Tensor, cfg: TransformerConfig) -> Tensor:
    """A pre-LN encoder without hook points."""
    heads, scale, eps = cfg.n_heads, cfg.attn_scale, cfg.layer_norm_eps
    batch, pos = tokens.shape
    x = F.embedding(tokens, w["embed.weight"]) + w["positions.weight"][:pos]
    for layer in range(cfg.n_layers):
        block = f"weights.{layer}"
        y = layer_norm(w, f"{block}.norm_1", x, eps)
        inputs = (linear(w, f"{block}.attention.{name}", y) for name in "qkv")
        q, k, v = (heads_input.view(batch, pos, heads, -1).transpose(1, 2) for heads_input in inputs)
        if pos < FUSED_FROM:
            pattern = F.softmax((q @ k.transpose(-2, -1)) / scale, dim=-1)
            z = pattern @ v
        else:
            z = F.scaled_dot_product_attention(q, k, v, scale=1 / scale)
        z = z.transpose(1, 2).contiguous().view(batch, pos, -1)
        x = x + linear(w, f"{block}.attention.o", z)
        y = layer_norm(w, f"{block}.norm_2", x, eps)
        x = x + linear(w, f"{block}.mlp.w_out", F.gelu(linear(w, f"{block}.mlp.w_in", y)))
    return linear(w, "unembed", layer_norm(w, "norm_final", x, eps))


def linear(w: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    return F.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])


def layer_norm(w: dict[str, Tensor], name: str, x: Tensor, eps: float) -> Tensor:
    return F.layer_norm(x, (x.shape[-1],), w[f"{name}.weight"], w[f"{name}.bias"], eps)
