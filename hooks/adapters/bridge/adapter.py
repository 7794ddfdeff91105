"""Bridges and `HookedRootModule`s under canonical hook names; an edit that would be ignored raises ValueError."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from hooks.adapters.bridge.accepted import SIZES, Foreign, check_model, label
from hooks.adapters.bridge.capabilities import Capabilities, capabilities_of
from hooks.adapters.bridge.points import LayerPoints, add_points, bridge_hooks, refusal
from hooks.adapters.bridge.sites import Cell
from hooks.adapters.bridge.untrained import untrained_bridge
from hooks.adapters.bridge.weights import HeadWeights, head_width
from hooks.model.checked_hooks import CheckedHooks
from hooks.model.layers import take
from hooks.model.locks import ModelLock, holding, lock_of, one_thread
from hooks.model.transformer_lens_names import ReadsText

Mask = Bool[Tensor, "batch pos"] | Int[Tensor, "batch pos"]


def from_bridge(model: Any, *, tokens: Int[Tensor, "batch pos"] | None = None) -> "BridgeModel":
    """Wrap a TransformerLens bridge or a `HookedRootModule`, after testing what can be read and edited in it.

    A `HookedRootModule` needs hook points with TransformerLens's names, a `cfg` with `n_layers`, `n_heads`, `d_model`,
    `d_vocab` and `n_ctx` (optional: `d_head`, `n_key_value_heads`, `attn_scale`), and matrices `blocks[i].attn.W_O`
    (head, d_head, d_model), as well as `W_Q`, `W_K`, `W_V` for verbs that read them.

    Args:
        model: A `transformer_lens.TransformerBridge` or `HookedRootModule`. It is not changed.
        tokens: Tokens to test it on, at least (3, 4); if None, random ones from a fixed seed.

    Raises:
        ValueError: another object, sizes or hook points that are missing, a model whose output is not logits at every
            position, or tokens that do not fit.
    """
    if isinstance(model, BridgeModel):
        return model
    check_model(model)
    with holding(model), torch.inference_mode(False):  # some tests use gradients
        return BridgeModel(model, capabilities_of(model, tokens))


@dataclass(frozen=True, kw_only=True)
class BridgeConfig:
    """Sizes of a wrapped model under the names of `TransformerConfig`. For a new model see `BridgeModel.untrained`."""

    architecture: str
    """The class that a bridge was built around, or the class of a `HookedRootModule`."""
    n_layers: int
    n_heads: int
    """Query heads per layer."""
    n_key_value_heads: int
    """Key and value heads per layer; each is shared by n_heads / n_key_value_heads query heads."""
    d_head: int
    d_model: int
    d_vocab: int
    d_vocab_out: int
    """Logits per position."""
    n_ctx: int
    attention: Literal["causal", "bidirectional"]
    attn_scale: float
    """Divisor of the attention scores."""

    vo_identity: ClassVar[bool] = False
    qk_identity: ClassVar[bool] = False
    head_patterns: ClassVar[tuple] = ()

    def patterns_of(self, layer: int) -> tuple:
        """Empty: no head is hard-coded."""
        return ()


class BridgeModel(ReadsText, CheckedHooks):
    """A wrapped model under canonical hook names. `model(tokens)` gives logits (batch, pos, d_vocab_out).

    Each name refers to the model's own hook point that passed the tests for it. An edit that the model would ignore
    raises ValueError when it is made, and a site that cannot be read has no hook point.

    Args:
        bridge: The `TransformerBridge` or `HookedRootModule` to run.
        capabilities: What can be read and edited in it.
    """

    def __init__(self, bridge: Foreign, capabilities: Capabilities):
        self._bridge = (bridge,)  # in a tuple, so that its parameters and hook points are not registered here
        super().__init__()
        cfg: Any = bridge.cfg
        self.capabilities = capabilities
        self.cfg = BridgeConfig(
            architecture=str(getattr(cfg, "architecture", None) or type(bridge).__name__),
            attention=capabilities.attention,
            attn_scale=capabilities.attn_scale,
            d_vocab_out=capabilities.d_vocab_out,
            n_key_value_heads=getattr(cfg, "n_key_value_heads", None) or cfg.n_heads,
            d_head=head_width(cfg),
            **{name: getattr(cfg, name) for name in SIZES},
        )
        self.tokenizer: Any = getattr(bridge, "tokenizer", None)
        self.blocks = nn.ModuleList(LayerPoints(HeadWeights(bridge, layer)) for layer in range(self.cfg.n_layers))
        self.ln_final = nn.Module()
        add_points(self, self.cfg.n_layers, capabilities)
        self.setup()

    @property
    def bridge(self) -> Any:
        """The wrapped `TransformerBridge` or `HookedRootModule`."""
        return self._bridge[0]

    @property
    def lock(self) -> ModelLock:
        """The lock of the wrapped model: all wrappers of it share one. Passes of the model itself do not take it."""
        return lock_of(self.bridge)

    @property
    def label(self) -> str:
        """What the wrapped model is, in error texts."""
        return label(self.bridge)

    @property
    def training(self) -> bool:
        """The bridge's mode."""
        return self.bridge.training

    @training.setter
    def training(self, mode: bool) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Ignored: torch sets it on construction, but the mode is the bridge's."""

    def train(self, mode: bool = True) -> "BridgeModel":
        """Put the bridge into training or evaluation mode."""
        super().train(mode)
        self.bridge.train(mode)
        return self

    def forward(
        self,
        tokens: Int[Tensor, "batch pos"],
        attention_mask: Mask | None = None,
        *,
        position_ids: Int[Tensor, "#batch pos"] | None = None,
        token_type_ids: Int[Tensor, "batch pos"] | None = None,
    ) -> Float[Tensor, "batch pos d_vocab_out"]:
        """Logits at every position.

        Args:
            tokens: Token ids.
            attention_mask: True or 1 for real tokens.
            position_ids: Position of each token, from 0; if None, the bridge's default (with left padding, most count
                from the first real token).
            token_type_ids: Token types (first or second text), for a bridge that has them.

        Raises:
            ValueError: tokens without a batch axis or out of range, a mask of another shape, or a mask, positions or
                types that this bridge would ignore.
        """
        inputs = self._inputs(tokens, attention_mask, position_ids)
        if token_type_ids is not None:
            self._accept("token_type_ids", self.capabilities.token_type_ids)
            inputs["token_type_ids"] = token_type_ids
        return self._run(tokens, inputs, {}, lambda name: False)

    @one_thread
    def resume(
        self,
        resid: Float[Tensor, "batch pos d_model"],
        layer: int,
        *,
        attn_out: Float[Tensor, "batch pos d_model"] | None = None,
        tokens: Int[Tensor, "batch pos"] | None = None,
        attention_mask: Mask | None = None,
        position_ids: Int[Tensor, "#batch pos"] | None = None,
        read_at: Int[Tensor, "batch read"] | None = None,
    ) -> Float[Tensor, "batch read d_vocab_out"]:
        """Logits from the residual stream at a layer. Exact, at the cost of a full pass; hooks of earlier layers do not
        run.

        Args:
            resid: Input of `layer`; with `layer == n_layers`, input of the final norm and unembedding.
            layer: First layer to apply.
            attn_out: Attention output of `layer`; if None, it is computed.
            tokens: Input of the earlier layers, without effect; default: zeros.
            attention_mask: As in `forward`.
            position_ids: As in `forward`; needed if attention uses positions (`capabilities.positions_in_layers`).
            read_at: Positions to return logits for; if None, all.

        Raises:
            ValueError: a layer outside 0 to n_layers, or a residual stream or attention output that cannot be set in
                this bridge.
        """
        last = self.cfg.n_layers if attn_out is None else self.cfg.n_layers - 1
        if not 0 <= layer <= last:
            raise ValueError(f"layer is {layer}; this model can resume at 0 to {last}.")
        start = f"blocks.{layer}.hook_resid_pre"
        if layer == self.cfg.n_layers:
            start = f"blocks.{layer - 1}.hook_resid_post"
        values = {start: resid}
        if attn_out is not None:
            values[f"blocks.{layer}.hook_attn_out"] = attn_out
        for name in values:
            if not self.capabilities.cell(name, "edit").ok:
                raise ValueError(refusal(name, "edit", self.capabilities))
        skipped = f"blocks.{layer}.attn." if attn_out is not None else None

        def muted(name: str) -> bool:
            if name == "ln_final.hook_normalized":
                return False
            early = not name.startswith("blocks.") or int(name.split(".")[1]) < layer
            return early or (skipped is not None and name.startswith(skipped))

        if tokens is None:
            tokens = torch.zeros(resid.shape[:2], dtype=torch.long, device=resid.device)
        logits = self._run(tokens, self._inputs(tokens, attention_mask, position_ids), values, muted)
        return logits if read_at is None else take(logits, read_at)

    def _run(
        self,
        tokens: Tensor,
        inputs: dict[str, Tensor],
        values: dict[str, Tensor],
        muted: Callable[[str], bool],
    ) -> Tensor:
        with self.bridge.hooks(fwd_hooks=list(bridge_hooks(self, values, muted))):
            return self.bridge(tokens, **inputs)

    def _inputs(self, tokens: Tensor, mask: Tensor | None, positions: Tensor | None) -> dict[str, Tensor]:
        if tokens.ndim != 2:
            raise ValueError(f"tokens is {tuple(tokens.shape)}; it must be (batch, pos). One text? Pass tokens[None].")
        if tokens.shape[1] > self.cfg.n_ctx:
            raise ValueError(f"tokens has {tokens.shape[1]} positions; n_ctx of this model is {self.cfg.n_ctx}.")
        if tokens.numel() and not 0 <= int(tokens.min()) <= int(tokens.max()) < self.cfg.d_vocab:
            raise ValueError(
                f"tokens go from {int(tokens.min())} to {int(tokens.max())}; d_vocab is {self.cfg.d_vocab}."
            )
        inputs: dict[str, Tensor] = {}
        if mask is not None:
            if mask.shape != tokens.shape:
                raise ValueError(f"attention_mask is {tuple(mask.shape)}; tokens is {tuple(tokens.shape)}.")
            if not mask.all():
                self._accept("attention_mask", self.capabilities.attention_mask)
            inputs["attention_mask"] = mask.long()
        if positions is not None:
            self._accept("position_ids", self.capabilities.position_ids)
            inputs["position_ids"] = positions.expand_as(tokens) + self.capabilities.position_offset
        return inputs

    def _accept(self, name: str, cell: Cell) -> None:
        if not cell.ok:
            raise ValueError(f"{name} is given, which this {self.label} cannot use: {cell}.")

    def _check_name(self, name: str) -> None:
        if name not in self.hook_dict and (name, "edit") in self.capabilities.cells:  # weights have no edit
            raise ValueError(refusal(name, "read", self.capabilities))
        super()._check_name(name)

    @property
    def _device(self) -> Any:
        return next(iter(self.bridge.parameters())).device

    def untrained(self, seed: int) -> "BridgeModel":
        """A copy with random weights, in evaluation mode; torch's global generator is not advanced.

        Raises:
            ValueError: a model that cannot be made from its config alone.
        """
        return BridgeModel(untrained_bridge(self.bridge, seed), self.capabilities)
