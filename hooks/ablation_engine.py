"""Exact head interventions at a fraction of their price: one clean pass, then only what follows each edit.

Changing head h of layer l changes what that layer's attention writes by (z'_h - z_h) W_O,h and nothing before it. So
one clean pass keeps each layer's input, its z and its attention write; every intervention starts from there and runs
the rest of that layer and the layers after it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from einops import einsum, repeat
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hooks.attention import take
from hooks.transformer import Transformer

TOKENS_PER_PASS = 1024
"""Heads are edited side by side as long as a pass has at most this many tokens: more is slower on a CPU."""

Head = tuple[int, int]
"""(layer, head)."""


@dataclass(frozen=True, kw_only=True)
class HeadInputs:
    """What a replacement of one layer's heads may look at: the clean run of these inputs."""

    z: Float[Tensor, "batch pos head d_head"]
    v: Float[Tensor, "batch pos head d_head"]
    pattern: Float[Tensor, "batch head query key"]


Replacement = Callable[[int, HeadInputs], Float[Tensor, "batch pos head d_head"]]
"""Given a layer and its clean values, the z that all its heads would have under the intervention."""


class AblationEngine:
    """One batch of inputs, run once, ready for any number of head interventions.

    Args:
        model: What to intervene on. It is not changed.
        tokens: Inputs.
        read_at: Positions whose logits are wanted; all when left out. Fewer are cheaper.
        inputs: Further arguments of the model's forward pass: `attention_mask`, `position_ids`.

    Raises:
        ValueError: a model whose heads write more than z tells (`vo_identity`): edit its `hook_result` instead.
    """

    def __init__(
        self,
        model: Transformer,
        tokens: Int[Tensor, "batch pos"],
        *,
        read_at: Int[Tensor, "batch read"] | None = None,
        **inputs: Any,
    ):
        if model.cfg.vo_identity:
            raise ValueError("vo_identity is on: heads write b_h A_h x beside z, so an edit of z is only part of them.")
        self.model, self.tokens, self.read_at = model, tokens, read_at
        self.attention_mask: Bool[Tensor, "batch pos"] | None = inputs.get("attention_mask")
        kept = ("hook_resid_pre", "attn.hook_z", "attn.hook_v", "attn.hook_pattern", "hook_attn_out")
        with torch.no_grad():
            logits, self.cache = model.run_with_cache(
                tokens, **inputs, names_filter=lambda name: name.startswith("blocks.") and name.endswith(kept)
            )
        self.logits = logits if read_at is None else take(logits, read_at)

    def heads(self, layer: int) -> HeadInputs:
        """The clean values of one layer's heads."""
        at = f"blocks.{layer}.attn."
        return HeadInputs(
            z=self.cache[at + "hook_z"], v=self.cache[at + "hook_v"], pattern=self.cache[at + "hook_pattern"]
        )

    def each_head(self, replace: Replacement) -> Iterator[tuple[Head, Float[Tensor, "batch read d_vocab_out"]]]:
        """Logits with one head replaced, for every head in turn.

        Args:
            replace: Gives the z of all heads of a layer under the intervention.
        """
        batch, pos = self.tokens.shape
        side_by_side = max(1, TOKENS_PER_PASS // (batch * pos))
        for layer in range(self.model.cfg.n_layers):
            change = self._change(layer, replace)
            for start in range(0, self.model.cfg.n_heads, side_by_side):
                heads = list(range(start, min(start + side_by_side, self.model.cfg.n_heads)))
                logits = self._one_by_one(layer, heads, change)
                yield from (((layer, head), part) for head, part in zip(heads, logits, strict=True))

    @torch.no_grad()
    def _change(self, layer: int, replace: Replacement) -> Float[Tensor, "batch pos head d_head"]:
        clean = self.heads(layer)
        return replace(layer, clean) - clean.z

    @torch.no_grad()
    def _one_by_one(
        self, layer: int, heads: list[int], change: Float[Tensor, "batch pos head d_head"]
    ) -> Float[Tensor, "edit batch read d_vocab_out"]:
        weight = self.model.blocks[layer].attn.W_O[heads]
        writes = einsum(change[:, :, heads], weight, "b p h e, h e d -> h b p d")
        return self._after(layer, self.cache[f"blocks.{layer}.hook_attn_out"] + writes, self.read_at)

    @torch.no_grad()
    def head_set(self, heads: Sequence[Head], replace: Replacement) -> Float[Tensor, "batch read d_vocab_out"]:
        """Logits with several heads replaced at once, in any layers.

        Later layers see the edits of earlier ones: their replacement is computed from the values they then have.
        """
        by_layer: dict[int, list[int]] = {}
        for layer, head in heads:
            by_layer.setdefault(layer, []).append(head)
        if not by_layer:
            return self.logits
        first = min(by_layer)
        chosen = by_layer.pop(first)
        change = self._change(first, replace)[:, :, chosen]
        write = einsum(change, self.model.blocks[first].attn.W_O[chosen], "b p h e, h e d -> b p d")
        attn_out = self.cache[f"blocks.{first}.hook_attn_out"] + write
        with self.model.hooks(list(_edits(by_layer, replace))):
            if self.read_at is None or self.model.cfg.n_layers - 1 not in by_layer:
                return self._after(first, attn_out[None], self.read_at)[0]
            return take(self._after(first, attn_out[None], None)[0], self.read_at)  # a replacement needs all of z

    def _after(
        self, layer: int, attn_out: Float[Tensor, "edit batch pos d_model"], read_at: Int[Tensor, "batch read"] | None
    ) -> Float[Tensor, "edit batch read d_vocab_out"]:
        edits = len(attn_out)
        resid = repeat(self.cache[f"blocks.{layer}.hook_resid_pre"], "b p d -> (e b) p d", e=edits)
        mask = self.attention_mask
        logits = self.model.resume(
            resid,
            layer,
            attn_out=attn_out.flatten(0, 1),
            tokens=self.tokens.repeat(edits, 1),
            attention_mask=None if mask is None else mask.repeat(edits, 1),
            read_at=None if read_at is None else read_at.repeat(edits, 1),
        )
        return logits.unflatten(0, (edits, -1))


def _edits(by_layer: Mapping[int, list[int]], replace: Replacement) -> Iterator[tuple[str, Callable]]:
    """Hooks that replace heads of later layers, from the values those layers have under the earlier edits."""
    for layer, heads in by_layer.items():
        seen: dict[str, Tensor] = {}

        def keep(activation: Tensor, hook: Any, seen: dict = seen) -> None:
            seen[hook.name.rsplit("hook_", 1)[1]] = activation

        def edit(z: Tensor, hook: Any, layer: int = layer, heads: list[int] = heads, seen: dict = seen) -> Tensor:
            new = replace(layer, HeadInputs(z=z, v=seen["v"], pattern=seen["pattern"]))
            z = z.clone()
            z[:, :, heads] = new[:, :, heads]
            return z

        yield f"blocks.{layer}.attn.hook_v", keep
        yield f"blocks.{layer}.attn.hook_pattern", keep
        yield f"blocks.{layer}.attn.hook_z", edit
