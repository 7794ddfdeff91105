"""One pass of a bridge: some places set, many watched."""

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

Edits = Mapping[str, Tensor]
"""What to put where."""

CANDIDATES = {
    "hook_embed": ("hook_embed", "embed.hook_out"),
    "hook_pos_embed": ("hook_pos_embed", "pos_embed.hook_out"),
    # the last name is tried last: with a gain of one it looks the same and is not
    "ln_final.hook_normalized": ("ln_final.hook_out", "unembed.hook_in", "ln_final.hook_normalized"),
    "hook_resid_pre": ("hook_resid_pre", "hook_in"),
    "hook_resid_post": ("hook_resid_post", "hook_out"),
    "hook_resid_mid": ("hook_resid_mid", "ln1.hook_out", "attn.hook_out"),
    "hook_attn_out": ("hook_attn_out", "attn.hook_out", "attn.o.hook_out"),
    "hook_mlp_out": ("hook_mlp_out", "mlp.hook_out", "mlp.out.hook_out"),
    "attn.hook_q": ("attn.hook_q", "attn.q.hook_out"),
    "attn.hook_k": ("attn.hook_k", "attn.k.hook_out"),
    "attn.hook_v": ("attn.hook_v", "attn.v.hook_out"),
    "attn.hook_attn_scores": ("attn.hook_attn_scores",),
    "attn.hook_pattern": ("attn.hook_pattern",),
    "attn.hook_z": ("attn.hook_z", "attn.o.hook_in"),
    "mlp.hook_pre": ("mlp.hook_pre", "mlp.in.hook_out"),
    "mlp.hook_post": ("mlp.hook_post", "mlp.out.hook_in"),
}
"""The hook points of a bridge that may do a canonical place's job, in the order they are tried."""
BESIDE = ("attn.q.hook_in", "attn.k.hook_in", "attn.v.hook_in", "ln1.hook_in", "ln2.hook_in", "ln2.hook_out")
BESIDE += ("mlp.hook_pre_linear",)
"""Watched as well, to say what the others mean."""


def watched(bridge: Any) -> list[str]:
    """Every hook point of the bridge that is worth a look."""
    sites = {name for names in CANDIDATES.values() for name in names} | set(BESIDE)
    layers = range(bridge.cfg.n_layers)
    names = [*sites, *(f"blocks.{layer}.{site}" for layer in layers for site in sites)]
    known = set(bridge.hook_dict)
    return [name for name in names if name in known]


@torch.no_grad()
def run(
    bridge: Any,
    tokens: Int[Tensor, "batch pos"],
    edits: Edits | None = None,
    watch: Iterable[str] = (),
    **inputs: Any,
) -> tuple[Float[Tensor, "batch pos d_vocab_out"], dict[str, Tensor]]:
    """Logits, and what was seen where; places that did not fire are left out.

    Args:
        bridge: What to run.
        tokens: Token ids.
        edits: What to put where.
        watch: Hook points to record, after the edits.
        inputs: Passed on to the bridge.
    """
    seen: dict[str, Tensor] = {}

    def put(value: Tensor) -> Callable[..., Tensor]:
        return lambda activation, hook: value.clone()

    def record(name: str) -> Callable[..., None]:
        return lambda activation, hook: seen.__setitem__(name, activation.detach().clone())

    hooks = [(name, put(value)) for name, value in (edits or {}).items()]
    hooks += [(name, record(name)) for name in watch]
    with warnings.catch_warnings():  # a bridge that ignores an edit may warn of it; here that is the finding
        warnings.simplefilter("ignore")
        with bridge.hooks(fwd_hooks=hooks):
            logits = bridge(tokens, **inputs)
    return logits.detach(), seen


class Tolerance:
    """When two results count as one, in the precision of a dtype."""

    def __init__(self, dtype: torch.dtype):
        self.eps = torch.finfo(dtype).eps

    def equal(self, found: Tensor | None, wanted: Tensor | None) -> bool:
        """The same up to rounding, beside the largest value."""
        if found is None or wanted is None or found.shape != wanted.shape:
            return False
        scale = float(wanted.abs().max())
        return bool((found - wanted).abs().max() <= self.eps**0.5 * scale + 1e-12)

    def same_change(self, found: Tensor, wanted: Tensor, before: Tensor) -> bool:
        """Both differ from `before` alike, up to a fiftieth of the change or rounding."""
        change = float((wanted - before).abs().max())
        rounding = 64 * self.eps * float(before.abs().max())
        return bool((found - wanted).abs().max() <= max(change / 50, rounding))

    def changed(self, found: Tensor, before: Tensor) -> bool:
        """More than rounding lies between them."""
        return bool((found - before).abs().max() > 8 * self.eps * before.abs().max())
