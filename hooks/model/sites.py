"""The hook points of one applied layer, and its weights under TransformerLens's names.

Weights belong to a stored block, hook points to an applied layer: a tied model has one block, and one set of hook
points for each time it is applied. Sites keep their block in a tuple, so that torch does not register its parameters
twice.
"""

from typing import Any

import torch
from einops import rearrange
from jaxtyping import Float, Shaped
from torch import Tensor

from hooks.model.hardcoded.head_patterns import HeadPattern, has_learned
from hooks.model.layers import HookPoint, NormSites, Sites


class AttentionSites(Sites):
    """Hook points inside attention, and the pattern of each head; queries and keys exist only if a head is learned."""

    hook_q_input: HookPoint | None = None  # (batch, pos, head, d_model); see `set_use_split_qkv_input`
    hook_k_input: HookPoint | None = None
    hook_v_input: HookPoint | None = None
    hook_result: HookPoint | None = None  # (batch, pos, head, d_model); see `set_use_attn_result`

    def __init__(self, cfg: Any, attention: Any, patterns: tuple[HeadPattern, ...]):
        super().__init__()
        self._attention: tuple[Any] = (attention,)
        self._heads = cfg.n_heads
        self.patterns = patterns
        if has_learned(patterns):
            self.hook_q = HookPoint()  # (batch, pos, head, d_head)
            self.hook_k = HookPoint()
        self.hook_v = HookPoint()
        self.hook_attn_scores = HookPoint()  # (batch, head, query, key), -inf where masked
        self.hook_pattern = HookPoint()  # (batch, head, query, key), rows sum to one
        self.hook_z = HookPoint()  # (batch, pos, head, d_head)
        if cfg.vo_identity:
            self.hook_result = HookPoint()  # z lacks b I

    @property
    def input_points(self) -> list[HookPoint]:
        """The points of `set_use_split_qkv_input`: of queries, keys and values; none if it is off."""
        return [point for point in (self.hook_q_input, self.hook_k_input, self.hook_v_input) if point is not None]

    def _input_weight(self, name: str) -> Float[Tensor, "head d_model d_head"]:
        rows = self._with_unlearned_heads(getattr(self._attention[0], name).weight)
        return rearrange(rows, "(h e) d -> h d e", h=self._heads)

    def _input_bias(self, name: str) -> Float[Tensor, "head d_head"]:
        rows = self._with_unlearned_heads(getattr(self._attention[0], name).bias_or_zero)
        return rearrange(rows, "(h e) -> h e", h=self._heads)

    def _with_unlearned_heads(self, rows: Shaped[Tensor, "row *width"]) -> Shaped[Tensor, "all_rows *width"]:
        """Append zeros for the last heads if they have no queries and keys."""
        n_missing = self._attention[0].v.weight.shape[0] - len(rows)
        if not n_missing:
            return rows
        return torch.cat([rows, rows.new_zeros(n_missing, *rows.shape[1:])])

    W_Q = property(lambda self: self._input_weight("q"))
    W_K = property(lambda self: self._input_weight("k"))
    W_V = property(lambda self: self._input_weight("v"))
    b_Q = property(lambda self: self._input_bias("q"))
    b_K = property(lambda self: self._input_bias("k"))
    b_V = property(lambda self: self._input_bias("v"))
    b_O = property(lambda self: self._attention[0].o.bias_or_zero)

    @property
    def W_O(self) -> Float[Tensor, "head d_head d_model"]:
        return rearrange(self._attention[0].o.weight, "d (h e) -> h e d", h=self._heads)


class MLPSites(Sites):
    """Hook points before and after the nonlinearity of the MLP."""

    def __init__(self, mlp: Any):
        super().__init__()
        self._mlp = (mlp,)
        self.hook_pre = HookPoint()  # (batch, pos, d_mlp)
        self.hook_post = HookPoint()

    W_in = property(lambda self: self._mlp[0].w_in.weight.T)
    W_out = property(lambda self: self._mlp[0].w_out.weight.T)
    b_in = property(lambda self: self._mlp[0].w_in.bias_or_zero)
    b_out = property(lambda self: self._mlp[0].w_out.bias_or_zero)


class LayerSites(Sites):
    """All hook points of one applied layer, (batch, pos, d_model) unless noted."""

    hook_out_is_single_residual_stream = True  # TransformerLens's logit lens reads this
    hook_mlp_in: HookPoint | None = None  # see `set_use_hook_mlp_in`
    _unhooked: tuple["LayerSites", ...] = ()

    def __init__(self, cfg: Any, block: Any, patterns: tuple[HeadPattern, ...]):
        super().__init__()
        self.hook_resid_pre = HookPoint()
        if block.n_norms:
            self.ln1 = NormSites(block.norm_1)
        self.attn = AttentionSites(cfg, block.attention, patterns)
        self.hook_attn_out = HookPoint()
        if not cfg.attn_only:
            self.hook_resid_mid = HookPoint()
            if block.norm_2 is not None:
                self.ln2 = NormSites(block.norm_2)
            self.mlp = MLPSites(block.mlp)
            self.hook_mlp_out = HookPoint()
        self.hook_resid_post = HookPoint()
        # Names that make TransformerLens's path patching refuse such a layer
        if not block.adds_to_stream:
            self.submodules = {"attn": None, "norm": None}
            self.hook_aliases = {"hook_attn_out": "norm"}

    def keep_unhooked(self, cfg: Any, block: Any, on: bool) -> None:
        """Keep sites of the same layer that no hook can be attached to, or drop them."""
        self._unhooked = (LayerSites(cfg, block, ()),) if on else ()  # in a tuple: no part of the model

    @property
    def unhooked(self) -> "LayerSites":
        """Sites of the same layer without hooks, to compute a part of it a second time."""
        return self._unhooked[0]
