"""Multi-head attention with learned heads, and the masks it uses."""

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from einops import einsum
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from hooks.model.layers import Identity, Layer, Linear, has_activation_hooks, is_read, take

FUSED_FROM = 64
"""Attention over at least this many tokens stores no scores and patterns unless a hook needs them. For fewer tokens the
fused kernel saves little: at most a seventh of a forward pass on a CPU."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """What attention needs besides the residual stream: made once per batch, shared by all layers."""

    allowed: Bool[Tensor, "#batch #query key"] | None = None
    """Keys that each query may see; None if every query sees every key, or with `causal`."""
    causal: bool = False
    """True if each query sees itself and all earlier keys, and nothing is padded."""
    queries: Int[Tensor, "batch query"] | None = None
    """Query positions; None for all positions. `allowed` has one row for each of them."""

    def at_queries(self, queries: Int[Tensor, "batch query"]) -> "Context":
        """The same batch, with queries at these positions only."""
        allowed = self.allowed
        if allowed is not None and allowed.shape[1] > 1:
            allowed = take(allowed.expand(len(queries), -1, -1), queries)
        return replace(self, allowed=allowed, queries=queries)

    def mask(self, pos: int, device: torch.device) -> Bool[Tensor, "#batch #query {pos}"] | None:
        """Keys that each query may see in sequences of `pos` tokens; None if every query sees every key."""
        if not self.causal:
            return self.allowed
        if self.queries is None:
            return allowed_keys("causal", None, pos, device)
        return torch.arange(pos, device=device) <= self.queries[..., None]

    def query_rows(self, x: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch query d_model"]:
        """The rows of x at the query positions."""
        return x if self.queries is None else take(x, self.queries)


def allowed_keys(
    attention: str, attention_mask: Bool[Tensor, "batch pos"] | None, pos: int, device: torch.device
) -> Bool[Tensor, "#batch #query key"] | None:
    """Keys that each query may see; None if every query sees every key.

    A query with no key left to see, which only padding can cause, sees itself: its row remains a distribution, which
    no real token reads.

    Args:
        attention: "causal" or "bidirectional".
        attention_mask: True for real tokens.
        pos: Sequence length.
        device: Where the result is.
    """
    allowed = None
    if attention == "causal":
        allowed = torch.ones(1, pos, pos, dtype=torch.bool, device=device).tril()
    if attention_mask is not None:
        real_keys = attention_mask[:, None, :]
        allowed = real_keys.expand(-1, pos, -1) if allowed is None else allowed & real_keys
        # A row without a key would be NaN after softmax
        sees_none = ~allowed.any(-1, keepdim=True)
        allowed = allowed | (sees_none & torch.eye(pos, dtype=torch.bool, device=device))
    return allowed


def visible_keys(
    cfg: Any, tokens: Int[Tensor, "batch pos"], attention_mask: Bool[Tensor, "batch pos"] | None = None
) -> Bool[Tensor, "batch query key"]:
    """Keys that each query may see: causality and padding, regardless of the kind of head."""
    batch, pos = tokens.shape
    allowed = allowed_keys(cfg.attention, attention_mask, pos, tokens.device)
    if allowed is None:
        allowed = torch.ones(1, pos, pos, dtype=torch.bool, device=tokens.device)
    return allowed.expand(batch, -1, -1)


class Attention(Layer):
    """z_h = softmax(q_h k_h^T / scale) v_h;  out = sum_h z_h W_O,h + b_O.

    With `qk_identity` the scores of head h gain a_h x x^T, with `vo_identity` the output gains
    sum_h b_h A_h x, where x is what attention reads. Both scalars start at zero.

    Args:
        cfg: Sizes and terms, under the names of `hooks.TransformerConfig`.
        n_query_heads: Number of heads with queries and keys, the first ones; all of them if None.

    Source: template paper (arXiv:2310.09753), its released model; neither term is divided by the scale.
    """

    def __init__(self, cfg: Any, *, n_query_heads: int | None = None):
        super().__init__()
        self.n_heads, self.d_head, self.scale = cfg.n_heads, cfg.d_head, cfg.attn_scale
        self.n_query_heads = cfg.n_heads if n_query_heads is None else n_query_heads
        self.learned = self.n_query_heads > 0
        width = cfg.n_heads * cfg.d_head
        # The order of these modules decides which random numbers each one gets
        if self.learned:
            self.q = Linear(cfg.d_model, self.n_query_heads * cfg.d_head, bias=cfg.attn_bias)
            self.k = Linear(cfg.d_model, self.n_query_heads * cfg.d_head, bias=cfg.attn_bias)
        self.v = Linear(cfg.d_model, width, bias=cfg.attn_bias)
        self.o = Linear(width, cfg.d_model, bias=cfg.attn_bias) if cfg.output_projection else Identity(width)
        self.a = nn.Parameter(torch.zeros(cfg.n_heads)) if cfg.qk_identity and self.learned else None
        self.b = nn.Parameter(torch.zeros(cfg.n_heads)) if cfg.vo_identity else None

    def forward(
        self, x: Float[Tensor, "batch pos d_model"], context: Context, sites: Any
    ) -> Float[Tensor, "batch query d_model"]:
        """The output of attention, before it is added to the residual stream.

        Args:
            x: What attention reads.
            context: Masks of this batch.
            sites: Hook points of the applied layer.
        """
        if self._can_fuse(x, sites):
            return self._fused_output(x, context, sites)
        pattern = sites.hook_pattern(sites.hook_attn_scores(self._scores(x, context, sites)).softmax(-1))
        return self._mixed_output(pattern, self._values(x, sites), x[:, None], sites)

    def with_split_inputs(
        self,
        for_queries: Float[Tensor, "batch query head d_model"],
        for_keys: Float[Tensor, "batch pos head d_model"],
        for_values: Float[Tensor, "batch pos head d_model"],
        context: Context,
        sites: Any,
    ) -> Float[Tensor, "batch query d_model"]:
        """The output of attention whose heads read separate inputs for queries, keys and values.

        Raises:
            ValueError: a torch hook on this module, or on a map that is applied head by head here, which would be
                ignored.
        """
        if has_activation_hooks(self):
            raise ValueError(
                "a torch hook on attention would be ignored: with split inputs it is not called as a module. Attach it "
                "to hook_attn_out of a layer instead."
            )
        self._check_unhooked("q", "k", "v")
        # Each head applies its matrices to its inputs
        project = "b p h d, h d e -> b p h e"
        q = sites.hook_q(einsum(for_queries, sites.W_Q, project) + sites.b_Q)
        k = sites.hook_k(einsum(for_keys, sites.W_K, project) + sites.b_K)
        scores = (q / self.scale).transpose(1, 2) @ k.permute(0, 2, 3, 1)
        if self.a is not None:
            scores = scores + self.a[:, None, None] * (for_queries.transpose(1, 2) @ for_keys.permute(0, 2, 3, 1))
        pattern = sites.hook_pattern(sites.hook_attn_scores(masked_scores(scores, context)).softmax(-1))
        v = sites.hook_v(einsum(for_values, sites.W_V, project) + sites.b_V)
        return self._mixed_output(pattern, v, for_values.transpose(1, 2), sites)

    def _mixed_output(
        self,
        pattern: Float[Tensor, "batch head query key"],
        v: Float[Tensor, "batch key head d_head"],
        x: Float[Tensor, "batch #head key d_model"],
        sites: Any,
    ) -> Float[Tensor, "batch query d_model"]:
        z = sites.hook_z((pattern @ v.transpose(1, 2)).transpose(1, 2))
        if sites.hook_result is None:
            return self.o(z.flatten(2))
        # What each head writes is computed separately, for its hook point
        self._check_unhooked("o")
        result = einsum(z, sites.W_O, "b p h e, h e d -> b p h d")
        if self.b is not None:
            result = result + (pattern @ x).transpose(1, 2) * self.b[:, None]
        return sites.hook_result(result).sum(2) + self.o.bias_or_zero

    def _check_unhooked(self, *names: str) -> None:
        for name in names:
            if has_activation_hooks(getattr(self, name)):
                point = "hook_attn_out" if name == "o" else f"hook_{name}"
                raise ValueError(
                    f"a torch hook on attention.{name} would be ignored: with split inputs or head results the map is "
                    f"applied head by head. Attach it to {point} of a layer instead."
                )

    def _can_fuse(self, x: Tensor, sites: Any) -> bool:
        return x.shape[1] >= FUSED_FROM and not pattern_is_hooked(sites)

    def _fused_output(self, x: Tensor, context: Context, sites: Any) -> Float[Tensor, "batch query d_model"]:
        """The same up to rounding, without storing scores and patterns."""
        v = self._values(x, sites)
        if self.a is None and self.b is None:
            return self.o(sites.hook_z(self._fused_z(x, v, context, sites)).flatten(2))
        # The fused kernel has no a I and no b I: one pattern is stored
        pattern = self._scores(x, context, sites).softmax(-1)
        out = self.o(sites.hook_z((pattern @ v.transpose(1, 2)).transpose(1, 2)).flatten(2))
        return out if self.b is None else out + einsum(pattern, self.b, "b h q k, h -> b q k") @ x

    def _fused_z(
        self, x: Tensor, v: Float[Tensor, "batch pos head d_head"], context: Context, sites: Any
    ) -> Float[Tensor, "batch query head d_head"]:
        q, k = self._query_key(x, context, sites)
        # The kernel takes a mask or `is_causal`, not both
        is_causal = context.causal and context.queries is None
        allowed = None if is_causal else context.mask(x.shape[1], x.device)
        z = F.scaled_dot_product_attention(
            q.transpose(1, 2),
            k.transpose(1, 2),
            v.transpose(1, 2),
            None if allowed is None else allowed[:, None],
            is_causal=is_causal,
            scale=1 / self.scale,
        )
        return z.transpose(1, 2)

    def _values(self, x: Tensor, sites: Any) -> Float[Tensor, "batch pos head d_head"]:
        return sites.hook_v(self.v(x).unflatten(-1, (self.n_heads, -1)))

    def _query_key(
        self, x: Tensor, context: Context, sites: Any
    ) -> tuple[Float[Tensor, "batch query head d_head"], Float[Tensor, "batch pos head d_head"]]:
        q = sites.hook_q(self.q(context.query_rows(x)).unflatten(-1, (self.n_query_heads, -1)))
        return q, sites.hook_k(self.k(x).unflatten(-1, (self.n_query_heads, -1)))

    def _scores(self, x: Tensor, context: Context, sites: Any) -> Float[Tensor, "batch head query key"]:
        q, k = self._query_key(x, context, sites)
        scores = (q / self.scale).transpose(1, 2) @ k.permute(0, 2, 3, 1)
        if self.a is not None:
            scores = scores + self.a[:, None, None] * (context.query_rows(x) @ x.transpose(1, 2))[:, None]
        return masked_scores(scores, context)


def masked_scores(
    scores: Float[Tensor, "*copies batch head query key"], context: Context
) -> Float[Tensor, "*copies batch head query key"]:
    """Scores with minus infinity at the keys that queries may not see."""
    allowed = context.mask(scores.shape[-1], scores.device)
    return scores if allowed is None else scores.masked_fill(~allowed[:, None], -torch.inf)


def pattern_is_hooked(sites: Any) -> bool:
    """True if scores, patterns or results are read, which fused attention does not compute."""
    points = [getattr(sites, name, None) for name in ("hook_attn_scores", "hook_pattern", "hook_result")]
    return any(point is not None and is_read(point) for point in points)
