"""Hook points that exist on demand, as in TransformerLens: separate inputs of heads, head results, MLP inputs."""

import copy
from typing import Any

from hooks.model.layers import HookPoint

SETTERS = {
    "hook_q_input": "set_use_split_qkv_input",
    "hook_k_input": "set_use_split_qkv_input",
    "hook_v_input": "set_use_split_qkv_input",
    "hook_result": "set_use_attn_result",
    "hook_mlp_in": "set_use_hook_mlp_in",
}
"""The method of a model that adds a hook point to every layer."""


class OptionalPoints:
    """Methods that add hook points to every layer and remove them; they change results by rounding at most."""

    cfg: Any
    blocks: Any
    block: Any
    setup: Any
    training: bool

    def set_use_split_qkv_input(self, use_split_qkv_input: bool) -> None:
        """Add or remove `attn.hook_q_input`, `hook_k_input` and `hook_v_input` (batch, pos, head, d_model).

        Each is a copy, for every head, of the residual stream before `ln1`: an edit reaches the queries, keys or values
        of one head and nothing else. Hook points of `ln1` see the stream itself, and an edit there reaches all copies.
        A layer then takes more time and 3 n_heads times the memory of its input.

        Raises:
            ValueError: a model with hard-coded heads, which have no queries and keys.
        """
        self._refuse_hardcoded("set_use_split_qkv_input", use_split_qkv_input)
        self._flag("use_split_qkv_input", use_split_qkv_input)
        for layer, at in enumerate(self.blocks):
            at.attn.set_optional(("hook_q_input", "hook_k_input", "hook_v_input"), use_split_qkv_input)
            at.keep_unhooked(self.cfg, self.block(layer), use_split_qkv_input)
        self._changed()

    def set_use_attn_result(self, use_attn_result: bool) -> None:
        """Add or remove `attn.hook_result` (batch, pos, head, d_model), what each head writes. Models with b I always
        have it.

        Raises:
            ValueError: a model with hard-coded heads.
        """
        self._refuse_hardcoded("set_use_attn_result", use_attn_result)
        self._flag("use_attn_result", use_attn_result)
        if not self.cfg.vo_identity:
            for at in self.blocks:
                at.attn.set_optional(("hook_result",), use_attn_result)
        self._changed()

    def set_use_hook_mlp_in(self, use_hook_mlp_in: bool) -> None:
        """Add or remove `hook_mlp_in` (batch, pos, d_model), the residual stream before `ln2`, if there is one; only
        the MLP reads it.

        Raises:
            ValueError: blocks other than `pre_ln` and `no_norm`, or a model without MLPs.
        """
        if use_hook_mlp_in and (self.cfg.block not in ("pre_ln", "no_norm") or self.cfg.attn_only):
            raise ValueError(
                f"set_use_hook_mlp_in needs pre_ln or no_norm blocks with an MLP; block is {self.cfg.block!r} and "
                f"d_mlp {self.cfg.d_mlp}. Use hook_resid_mid, or mlp.hook_pre."
            )
        self._flag("use_hook_mlp_in", use_hook_mlp_in)
        for at in self.blocks:
            at.set_optional(("hook_mlp_in",), use_hook_mlp_in)
        self._changed()

    def _refuse_hardcoded(self, method: str, on: bool) -> None:
        if on and any(self.cfg.patterns_of(layer) for layer in range(self.cfg.n_layers)):
            raise ValueError(
                f"{method} needs heads that are all learned, but head_patterns hard-codes some. Use hook_v or hook_z."
            )

    def _flag(self, name: str, on: bool) -> None:
        """Set what TransformerLens's tools read of the config; in a copy, since models may share one."""
        self.cfg = copy.copy(self.cfg)
        object.__setattr__(self.cfg, name, on)

    def _changed(self) -> None:
        """Name the new hook points; they are in the model's mode."""
        for at in self.blocks:
            at.train(self.training)
        self.setup()


class OptionalSites:
    """Hook points of a module that can be added and removed."""

    training: bool

    def set_optional(self, names: tuple[str, ...], on: bool) -> None:
        """Add hook points, unless they exist, or remove them with their hooks."""
        for name in names:
            if (getattr(self, name) is not None) != on:
                setattr(self, name, HookPoint() if on else None)
