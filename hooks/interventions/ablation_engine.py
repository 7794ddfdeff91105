"""Exact replacement of attention heads from one cached pass.

Replacing head h of layer l changes that layer's attention output by (z'_h - z_h) W_O,h and nothing before it. So one
clean pass caches the input, z and attention output of each layer; every intervention starts there and computes only the
rest of that layer and the layers after it.

With b I on (`vo_identity`) a head's output is z_h W_O,h + b_h A_h x, of which z is only a part. In that case the whole
output takes the place of z, and v W_O + b x, a head's output for each key alone, takes the place of v.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from einops import einsum, repeat
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hooks.adapters.bridge import BridgeModel
from hooks.interventions.replacements import HeadInputs, Replacement
from hooks.model.stack import TransformerStack
from hooks.model.storing import storing
from hooks.modules import has_activation_hooks, has_hooks, take

TOKENS_PER_PASS = 1024
"""Several heads are replaced per pass, in copies of the batch, up to this number of tokens: more is slower on CPU."""

Head = tuple[int, int]
"""(layer, head)."""
Net = TransformerStack | BridgeModel
"""A model whose heads can be replaced."""


def every_head(model: Net) -> list[Head]:
    """(layer, head) of every head of a model."""
    return [(layer, head) for layer in range(model.cfg.n_layers) for head in range(model.cfg.n_heads)]


def head_output_point(cfg: Any) -> str:
    """The hook point of a layer that has each head's whole output: `hook_result` with b I on, else `hook_z`."""
    return "attn.hook_result" if cfg.vo_identity else "attn.hook_z"


def projected_values(
    model: Net, layer: int, v: Float[Tensor, "batch pos head d_head"], resid: Float[Tensor, "batch pos d_model"]
) -> Float[Tensor, "batch pos head d_model"]:
    """Output of each head for each key alone: v W_O, plus b x with b I on.

    Args:
        model: Model with the heads.
        layer: Index of the layer.
        v: Values of the layer.
        resid: Input of the layer (`hook_resid_pre`).
    """
    at: Any = model.blocks[layer]
    written = einsum(v, at.attn.W_O, "b p h e, h e d -> b p h d")
    if not model.cfg.vo_identity or isinstance(model, BridgeModel):
        return written
    block = model.block(layer)
    b: Any = block.attention.b
    return written + b[:, None] * block.read(resid, at)[:, :, None]


class AblationEngine:
    """One clean pass on a batch, from which any number of head replacements are computed.

    Args:
        model: Model with the heads. It is not changed.
        tokens: Token ids.
        read_at: Positions to return logits for; if None, all. Fewer positions cost less.
        inputs: Further arguments of the model's forward pass: `attention_mask`, `position_ids`.

    Raises:
        ValueError: a hook of the caller's at a point that the engine resumes from, where it would act twice or not at
            all.
    """

    def __init__(
        self,
        model: Net,
        tokens: Int[Tensor, "batch pos"],
        *,
        read_at: Int[Tensor, "batch read"] | None = None,
        **inputs: Any,
    ):
        if isinstance(model, TransformerStack):
            _check_hooks(model)
        self.model, self.tokens, self.read_at = model, tokens, read_at
        self.attention_mask: Bool[Tensor, "batch pos"] | None = inputs.get("attention_mask")
        self.position_ids: Int[Tensor, "#batch pos"] | None = inputs.get("position_ids")
        self._output = head_output_point(model.cfg)
        resid = ("hook_resid_pre",) if model.cfg.vo_identity else ()
        self._inputs_at = ("attn.hook_v", "attn.hook_pattern", *resid)
        kept = (*self._inputs_at, self._output, "hook_resid_pre", "hook_attn_out")
        with torch.no_grad():
            logits, self.cache = model.run_with_cache(
                tokens, **inputs, names_filter=lambda name: name.startswith("blocks.") and name.endswith(kept)
            )
        self.logits = logits if read_at is None else take(logits, read_at)

    def heads(self, layer: int) -> HeadInputs:
        """Clean activations of one layer's heads."""
        return self._head_inputs(layer, self.cache.cache_dict)

    @torch.no_grad()
    def _head_inputs(self, layer: int, seen: Mapping[str, Tensor]) -> HeadInputs:
        at = f"blocks.{layer}."
        v = seen[at + "attn.hook_v"]
        if self.model.cfg.vo_identity:
            v = projected_values(self.model, layer, v, seen[at + "hook_resid_pre"])
        return HeadInputs(z=seen[at + self._output], v=v, pattern=seen[at + "attn.hook_pattern"])

    def each_head(
        self, replace: Replacement, chosen: Collection[Head] | None = None
    ) -> Iterator[tuple[Head, Float[Tensor, "batch read d_vocab_out"]]]:
        """Logits with one head replaced, for each head in turn.

        Args:
            replace: New outputs of all heads of a layer.
            chosen: Heads to replace; if None, all.
        """
        batch, pos = self.tokens.shape
        per_pass = max(1, TOKENS_PER_PASS // (batch * pos))
        for layer in range(self.model.cfg.n_layers):
            every = [head for head in range(self.model.cfg.n_heads) if chosen is None or (layer, head) in chosen]
            if not every:
                continue
            change = self._change(layer, replace)
            for start in range(0, len(every), per_pass):
                heads = every[start : start + per_pass]
                logits = self._one_by_one(layer, heads, change)
                yield from (((layer, head), part) for head, part in zip(heads, logits, strict=True))

    @torch.no_grad()
    def head_set(self, heads: Sequence[Head], replace: Replacement) -> Float[Tensor, "batch read d_vocab_out"]:
        """Logits with several heads replaced together, in any layers.

        The replacement in a layer is computed from activations under the edits of earlier layers.
        """
        by_layer: dict[int, list[int]] = {}
        for layer, head in heads:
            by_layer.setdefault(layer, []).append(head)
        if not by_layer:
            return self.logits
        first = min(by_layer)
        if isinstance(self.model, BridgeModel) and not self.model.capabilities.pattern_before_z:
            return self._layer_by_layer(by_layer, replace)
        chosen = by_layer.pop(first)
        attn_out = self._attn_out(first) + self._written(first, chosen, self._change(first, replace), "b p d")
        with self.model.hooks(list(self._edits(by_layer, replace))):
            if self.read_at is None or self.model.cfg.n_layers - 1 not in by_layer:
                return self._after(first, attn_out[None], self.read_at)[0]
            return take(self._after(first, attn_out[None], None)[0], self.read_at)  # a replacement needs all of z

    @torch.no_grad()
    def _one_by_one(
        self, layer: int, heads: list[int], change: Float[Tensor, "batch pos head width"]
    ) -> Float[Tensor, "edit batch read d_vocab_out"]:
        attn_out = self._attn_out(layer) + self._written(layer, heads, change, "h b p d")
        return self._after(layer, attn_out, self.read_at)

    def _attn_out(self, layer: int) -> Float[Tensor, "batch pos d_model"]:
        return self.cache[f"blocks.{layer}.hook_attn_out"]

    @torch.no_grad()
    def _change(self, layer: int, replace: Replacement) -> Float[Tensor, "batch pos head width"]:
        clean = self.heads(layer)
        return replace(layer, clean) - clean.z

    def _written(
        self, layer: int, heads: list[int], change: Float[Tensor, "batch pos head width"], axes: str
    ) -> Float[Tensor, "*edit batch pos d_model"]:
        """Change of the attention output by a change of these heads' outputs, summed over heads unless `axes` has h."""
        if self.model.cfg.vo_identity:
            return einsum(change[:, :, heads], f"b p h d -> {axes}")
        at: Any = self.model.blocks[layer]
        return einsum(change[:, :, heads], at.attn.W_O[heads], f"b p h e, h e d -> {axes}")

    def _layer_by_layer(
        self, by_layer: Mapping[int, list[int]], replace: Replacement
    ) -> Float[Tensor, "batch read d_vocab_out"]:
        """As `head_set`, in one pass per layer: for bridges that compute a layer's pattern after its z."""
        seen: dict[str, Tensor] = dict(self.cache.cache_dict)
        logits, layers = self.logits, sorted(by_layer)
        for layer, following in zip(layers, [*layers[1:], None], strict=True):
            clean, heads = self._head_inputs(layer, seen), by_layer[layer]
            written = self._written(layer, heads, replace(layer, clean) - clean.z, "b p d")
            name = f"blocks.{layer}."
            resid, attn_out = seen[name + "hook_resid_pre"], seen[name + "hook_attn_out"] + written
            kept = [] if following is None else [one for one in seen if one.startswith(f"blocks.{following}.")]

            with self.model.hooks(storing(kept, seen)):
                logits = self._resume(resid, layer, attn_out, self.read_at if following is None else None)
        return logits

    def _after(
        self, layer: int, attn_out: Float[Tensor, "edit batch pos d_model"], read_at: Int[Tensor, "batch read"] | None
    ) -> Float[Tensor, "edit batch read d_vocab_out"]:
        """Logits for several attention outputs of a layer, computed in copies of the batch."""
        edits = len(attn_out)
        resid = repeat(self.cache[f"blocks.{layer}.hook_resid_pre"], "b p d -> (e b) p d", e=edits)
        logits = self._resume(resid, layer, attn_out.flatten(0, 1), read_at)
        return logits.unflatten(0, (edits, -1))

    def _resume(
        self,
        resid: Float[Tensor, "copies pos d_model"],
        layer: int,
        attn_out: Float[Tensor, "copies pos d_model"],
        read_at: Int[Tensor, "batch read"] | None,
    ) -> Float[Tensor, "copies read d_vocab_out"]:
        """Logits from the input and attention output of a layer, for one or several copies of the batch."""
        edits = len(resid) // len(self.tokens)
        given = {"tokens": self.tokens, "attention_mask": self.attention_mask, "read_at": read_at}
        if (
            isinstance(self.model, BridgeModel)
            and self.model.capabilities.positions_in_layers
            and self.position_ids is not None
        ):
            given["position_ids"] = self.position_ids.expand_as(self.tokens)
        copies = {name: value.repeat(edits, 1) for name, value in given.items() if value is not None}
        return self.model.resume(resid, layer, attn_out=attn_out, **copies)

    def _edits(self, by_layer: Mapping[int, list[int]], replace: Replacement) -> Iterator[tuple[str, Callable]]:
        """Hooks that replace heads of later layers, from their activations under the earlier edits."""
        seen: dict[str, Tensor] = {}

        def edit(activation: Tensor, hook: Any) -> Tensor:
            seen[hook.name] = activation
            layer = hook.layer()
            new, heads = replace(layer, self._head_inputs(layer, seen)), by_layer[layer]
            edited = activation.clone()
            edited[:, :, heads] = new[:, :, heads]
            return edited

        for layer in by_layer:
            yield from storing([f"blocks.{layer}.{name}" for name in self._inputs_at], seen)
            yield f"blocks.{layer}.{self._output}", edit


def _check_hooks(model: TransformerStack) -> None:
    """Refuse hooks where passes resume: the input of a layer would be edited twice, the output of attention not."""
    for layer in range(model.cfg.n_layers):
        attention = model.block(layer).attention
        if has_activation_hooks(attention) or has_activation_hooks(attention.o):
            raise ValueError(
                f"a torch hook is attached to the attention of layer {layer}, which replaced heads do not pass. Remove "
                f"it, or attach it to blocks.{layer}.attn.hook_z."
            )
        before = f"blocks.{layer - 1}.hook_resid_post" if layer else "hook_embed"
        at = f"blocks.{layer}."
        instead = {at + "hook_resid_pre": before, at + "hook_attn_out": at + "attn.hook_z"}
        if not model.cfg.vo_identity:  # with b I it is where heads are replaced
            instead[at + "attn.hook_result"] = at + "attn.hook_z"
        for name, other in instead.items():
            if name in model.hook_dict and has_hooks(model.hook_point(name)):
                raise ValueError(
                    f"a hook is attached to {name}, from which ablation resumes. Remove it, or attach it to {other}."
                )
