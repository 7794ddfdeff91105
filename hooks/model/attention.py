"""Multi-head attention: scores, then pattern, then mix. Every stage passes a hook point."""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from einops import einsum
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from hooks.hardcoded.head_patterns import HeadPattern, attention_map
from hooks.hardcoded.token_maps import TokenMaps, token_maps
from hooks.model.config import TransformerConfig
from hooks.model.sites import AttentionSites
from hooks.modules import FUSED_FROM, Identity, Linear, Module, has_hooks, take


@dataclass(frozen=True)
class Context:
    """What attention needs beside the residual stream; made once per batch, shared by all layers."""

    allowed: Bool[Tensor, "#batch #query key"] | None
    """Keys that each query may see; None when every query sees every key."""
    fixed_scores: dict[HeadPattern, Float[Tensor, "batch query key"]] = field(default_factory=dict)
    """Log of the attention map of each hard-coded pattern in use: softmax gives the map back."""
    queries: Int[Tensor, "batch query"] | None = None
    """Positions that ask; None when all do. The two maps above then have a row for each of these only."""
    causal: bool = False
    """Each query sees itself and all earlier keys, and no padding."""
    maps: TokenMaps | None = None
    """What pathways need, in a model that has them: equal tokens and markers."""

    def asked_at(self, queries: Int[Tensor, "batch query"]) -> "Context":
        """The same batch, with queries at these positions only."""
        allowed = self.allowed if self.allowed is None else self.allowed.expand(len(queries), -1, -1)
        fixed = {pattern: take(scores, queries) for pattern, scores in self.fixed_scores.items()}
        maps = None if self.maps is None else self.maps.asked_at(queries)
        return Context(allowed if allowed is None else take(allowed, queries), fixed, queries, maps=maps)

    def asking(self, x: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch query d_model"]:
        """The rows of x at the positions that ask."""
        return x if self.queries is None else take(x, self.queries)


def make_context(
    cfg: TransformerConfig,
    tokens: Int[Tensor, "batch pos"] | None,
    attention_mask: Bool[Tensor, "batch pos"] | None,
    pos: int,
    device: torch.device,
) -> Context:
    """Causality, padding and hard-coded maps of one batch.

    A query with no key left to see (only padding can cause that) sees itself: its row stays a
    distribution and nobody reads it.

    Raises:
        ValueError: a hard-coded head needs token ids and there are none; ids or markers that `token_maps` refuses.
    """
    fixed = {p for row in cfg.head_patterns for p in row if not p.learned}
    if (fixed or cfg.pathways is not None) and tokens is None:
        raise ValueError("this model has hard-coded heads, which look at token ids: pass tokens as well.")
    if cfg.pathways is not None and tokens is not None:
        return Context(None, maps=token_maps(tokens, attention_mask, pathways=cfg.pathways, d_vocab=cfg.d_vocab))
    allowed = _allowed(cfg, attention_mask, pos, device)
    if not fixed or tokens is None:
        return Context(allowed, causal=cfg.attention == "causal" and attention_mask is None)
    seen = torch.ones(1, pos, pos, dtype=torch.bool, device=device) if allowed is None else allowed
    return Context(allowed, {pattern: attention_map(pattern, tokens, seen).log() for pattern in fixed})


def _allowed(
    cfg: TransformerConfig, attention_mask: Bool[Tensor, "batch pos"] | None, pos: int, device: torch.device
) -> Bool[Tensor, "#batch query key"] | None:
    """Keys that each query may see; None when every query sees every key."""
    allowed = None
    if cfg.attention == "causal":
        allowed = torch.ones(1, pos, pos, dtype=torch.bool, device=device).tril()
    if attention_mask is not None:
        keys = attention_mask[:, None, :]
        allowed = keys.expand(-1, pos, -1) if allowed is None else allowed & keys
        nothing = ~allowed.any(-1, keepdim=True)
        allowed = allowed | (nothing & torch.eye(pos, dtype=torch.bool, device=device))
    return allowed


def visible_keys(
    cfg: TransformerConfig, tokens: Int[Tensor, "batch pos"], attention_mask: Bool[Tensor, "batch pos"] | None = None
) -> Bool[Tensor, "batch query key"]:
    """Which keys each query may see: causality and padding, nothing else."""
    batch, pos = tokens.shape
    allowed = _allowed(cfg, attention_mask, pos, tokens.device)
    if allowed is None:
        allowed = torch.ones(1, pos, pos, dtype=torch.bool, device=tokens.device)
    return allowed.expand(batch, -1, -1)


class Attention(Module):
    """z_h = softmax(q_h k_h^T / scale) v_h;  out = sum_h z_h W_O,h + b_O.

    With `qk_identity` the scores of head h gain a_h x x^T, with `vo_identity` the output gains
    sum_h b_h A_h x, where x is what attention reads. Both scalars start at zero.
    Source: template paper (arXiv:2310.09753), its released model; neither term is divided by the scale.
    """

    def __init__(self, cfg: TransformerConfig, *, learned: bool):
        super().__init__()
        self.n_heads, self.scale = cfg.n_heads, cfg.attn_scale
        self.learned = learned
        width = cfg.n_heads * cfg.d_head
        if learned:
            self.q = Linear(cfg.d_model, width, bias=cfg.attn_bias)
            self.k = Linear(cfg.d_model, width, bias=cfg.attn_bias)
        self.v = Linear(cfg.d_model, width, bias=cfg.attn_bias)
        self.o = Linear(width, cfg.d_model, bias=cfg.attn_bias) if cfg.output_projection else Identity(width)
        self.a = nn.Parameter(torch.zeros(cfg.n_heads)) if cfg.qk_identity and learned else None
        self.b = nn.Parameter(torch.zeros(cfg.n_heads)) if cfg.vo_identity else None

    def forward(
        self,
        x: Float[Tensor, "batch pos d_model"],
        at: AttentionSites,
        patterns: tuple[HeadPattern, ...],
        context: Context,
    ) -> Float[Tensor, "batch query d_model"]:
        """What attention writes, before it joins the residual stream."""
        if self.training and x.shape[1] >= FUSED_FROM and not patterns and not _watched(at):
            return self._fused(x, at, context)
        scores = at.hook_attn_scores(self._scores(x, at, patterns, context))
        pattern = at.hook_pattern(scores.softmax(-1))
        v = at.hook_v(self.v(x).unflatten(-1, (self.n_heads, -1)))
        z = at.hook_z((pattern @ v.transpose(1, 2)).transpose(1, 2))
        if self.b is None:
            return self.o(z.flatten(2))
        result = einsum(z, at.W_O, "b p h e, h e d -> b p h d")
        identity = (pattern @ x[:, None]).transpose(1, 2) * self.b[:, None]
        return at.hook_result(result + identity).sum(2) + self.o.bias_or_zero

    def _fused(
        self, x: Float[Tensor, "batch pos d_model"], at: AttentionSites, context: Context
    ) -> Float[Tensor, "batch query d_model"]:
        """The same to rounding, for less: no scores and patterns are kept, or with a I, b I one sum over heads is."""
        v = at.hook_v(self.v(x).unflatten(-1, (self.n_heads, -1))).transpose(1, 2)
        if self.a is None and self.b is None:
            q, k = self._query_key(x, at, context)
            allowed = None if context.causal or context.allowed is None else context.allowed[:, None]
            z = F.scaled_dot_product_attention(
                q.transpose(1, 2), k.transpose(1, 2), v, allowed, is_causal=context.causal, scale=1 / self.scale
            )
            return self.o(at.hook_z(z.transpose(1, 2)).flatten(2))
        pattern = self._scores(x, at, (), context).softmax(-1)
        out = self.o(at.hook_z((pattern @ v).transpose(1, 2)).flatten(2))
        return out if self.b is None else out + einsum(pattern, self.b, "b h q k, h -> b q k") @ x

    def _query_key(
        self, x: Tensor, at: AttentionSites, context: Context
    ) -> tuple[Float[Tensor, "batch query head d_head"], Float[Tensor, "batch pos head d_head"]]:
        q = at.hook_q(self.q(context.asking(x)).unflatten(-1, (self.n_heads, -1)))
        return q, at.hook_k(self.k(x).unflatten(-1, (self.n_heads, -1)))

    def _scores(
        self, x: Tensor, at: AttentionSites, patterns: tuple[HeadPattern, ...], context: Context
    ) -> Float[Tensor, "batch head query key"]:
        if patterns and all(not pattern.learned for pattern in patterns):
            return torch.stack([context.fixed_scores[pattern] for pattern in patterns], 1).to(x.dtype)
        q, k = self._query_key(x, at, context)
        scores = (q / self.scale).transpose(1, 2) @ k.permute(0, 2, 3, 1)
        if self.a is not None:
            scores = scores + self.a[:, None, None] * (context.asking(x) @ x.transpose(1, 2))[:, None]
        if context.allowed is not None:
            scores = scores.masked_fill(~context.allowed[:, None], -torch.inf)
        if patterns:
            by_head = list(scores.unbind(1))
            for head, pattern in enumerate(patterns):
                if not pattern.learned:
                    by_head[head] = context.fixed_scores[pattern].to(x.dtype)
            scores = torch.stack(by_head, 1)
        return scores


def _watched(at: AttentionSites) -> bool:
    """True when somebody looks at what the fused computation leaves out."""
    points = [at.hook_attn_scores, at.hook_pattern]
    return any(has_hooks(point) for point in points + ([at.hook_result] if hasattr(at, "hook_result") else []))
