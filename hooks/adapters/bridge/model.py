"""Wrapped models under canonical hook names; an edit that would be ignored raises ValueError."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformer_lens.HookedRootModule import HookedRootModule

from hooks.adapters.bridge.capabilities import Capabilities, Use
from hooks.adapters.bridge.sites import GLOBAL_SITES, LAYER_SITES, Cell
from hooks.adapters.bridge.untrained import untrained_bridge
from hooks.adapters.bridge.weights import HeadWeights, head_width
from hooks.model.checked_hooks import CheckedHooks
from hooks.model.layers import HookPoint, check_ids, check_not_compiled, check_tokens, has_hooks, take
from hooks.model.locks import ModelLock, lock_of, one_thread
from hooks.model.recomputation import check_not_recomputed, no_saved_tensors_hooks
from hooks.model.traits import ModelTraits
from hooks.model.transformer import Mask, check_resumed_layer
from hooks.model.transformer_lens_names import ReadsText

READ_OUT_POSITIONS = 32
"""Positions of the sequences in which residual streams are read out, at most."""
SIZES = ("n_layers", "n_heads", "d_model", "d_vocab", "n_ctx")
"""What the config of a wrapped model must have."""
INSTEAD = {
    "attn.hook_q": "attn.hook_z",
    "attn.hook_k": "attn.hook_z",
    "attn.hook_v": "attn.hook_z",
    "attn.hook_attn_scores": "attn.hook_pattern",
    "attn.hook_pattern": "attn.hook_z",
    "attn.hook_z": "hook_attn_out",
    "hook_attn_out": "hook_resid_post",
    "hook_resid_mid": "hook_attn_out",
    "mlp.hook_pre": "mlp.hook_post",
    "mlp.hook_post": "hook_mlp_out",
    "hook_mlp_out": "hook_resid_post",
    "hook_embed": "blocks.0.hook_resid_pre",
    "hook_pos_embed": "blocks.0.hook_resid_pre",
}
"""The site to edit instead of one that cannot be edited."""


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


class BridgeModel(ModelTraits, ReadsText, CheckedHooks):
    """A wrapped model under canonical hook names. `model(tokens)` gives logits (batch, pos, d_vocab_out).

    Each name refers to the model's own hook point that passed the tests for it. An edit that the model would ignore
    raises ValueError when it is made, and a site that cannot be read has no hook point.

    Args:
        bridge: The `TransformerBridge` or `HookedRootModule` to run.
        capabilities: What can be read and edited in it.
    """

    takes_read_at = False
    resumes_inside_layers = False
    made_from_cfg = False
    can_be_sent = False

    def __init__(self, bridge: Any, capabilities: Capabilities):
        self._bridge = (bridge,)  # in a tuple, so that its parameters and hook points are not registered here
        super().__init__()
        cfg: Any = bridge.cfg
        self.capabilities = capabilities
        self.pattern_before_z = capabilities.pattern_before_z
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
        if isinstance(self.bridge, HookedRootModule):
            return f"HookedRootModule {type(self.bridge).__name__}"
        return f"bridge of {self.cfg.architecture}"

    @property
    def kind(self) -> str:
        return f"transformer ({self.cfg.architecture})"

    @property
    def owner(self) -> Any:
        return self.bridge

    def can_edit(self, site: str) -> bool:
        return not self.capabilities.lacks({site: ("read", "edit")})

    def hooked_in_layers(self) -> Iterator[tuple[str, str]]:
        """Also hooks on the wrapped model's own hook points."""
        yield from super().hooked_in_layers()
        for name, point in self.bridge.hook_dict.items():
            if name.startswith("blocks.") and has_hooks(point):
                yield "hook", name

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
        z: Float[Tensor, "batch pos head d_head"] | None = None,
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
            z: Outputs of the heads of `layer`; if None, they are computed.
            attn_out: Attention output of `layer`; if None, it is computed.
            tokens: Input of the earlier layers, without effect; default: zeros.
            attention_mask: As in `forward`.
            position_ids: As in `forward`; needed if attention uses positions (`capabilities.positions_in_layers`).
            read_at: Positions to return logits for; if None, all.

        Raises:
            ValueError: a layer outside 0 to n_layers, or a residual stream, z or attention output that cannot be set
                in this bridge.
        """
        of_attention = {"attn.hook_z": z, "hook_attn_out": attn_out}
        set_in_layer = {f"blocks.{layer}.{site}": value for site, value in of_attention.items() if value is not None}
        check_resumed_layer(layer, self.cfg.n_layers, with_attention=bool(set_in_layer))
        start = f"blocks.{layer}.hook_resid_pre"
        if layer == self.cfg.n_layers:
            start = f"blocks.{layer - 1}.hook_resid_post"
        # Run the whole model with these activations set; hooks that come before them are muted
        values = {start: resid, **set_in_layer}
        for name in values:
            if not self.capabilities.cell(name, "edit").ok:
                raise ValueError(refusal(name, "edit", self.capabilities))
        # With z or an output of attention, the attention of `layer` has no effect either
        skipped = f"blocks.{layer}.attn." if set_in_layer else None

        def muted(name: str) -> bool:
            if name == "ln_final.hook_normalized":
                return False
            early = not name.startswith("blocks.") or int(name.split(".")[1]) < layer
            return early or (skipped is not None and name.startswith(skipped))

        if tokens is None:
            tokens = torch.zeros(resid.shape[:2], dtype=torch.long, device=resid.device)
        logits = self._run(tokens, self._inputs(tokens, attention_mask, position_ids), values, muted)
        return logits if read_at is None else take(logits, read_at)

    def read_out(self, resid: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_vocab_out"]:
        """Logits from the last residual stream, each position by itself: they are put side by side in short sequences,
        the last of which is filled with zeros."""
        rows = resid.flatten(0, 1)
        pos = min(self.cfg.n_ctx, READ_OUT_POSITIONS)
        filled = torch.cat([rows, rows.new_zeros(-len(rows) % pos, rows.shape[1])])
        logits = self.resume(filled.view(-1, pos, rows.shape[1]), self.cfg.n_layers)
        return logits.flatten(0, 1)[: len(rows)].unflatten(0, resid.shape[:2])

    def _run(
        self,
        tokens: Tensor,
        inputs: dict[str, Tensor],
        values: dict[str, Tensor],
        muted: Callable[[str], bool],
    ) -> Tensor:
        hooks = list(bridge_hooks(self, values, muted))
        if not hooks:
            return self.bridge(tokens, **inputs)
        check_not_compiled(*self.bridge.modules())
        # Hooks of the bridge are gone when backward() computes a checkpointed part of the pass again
        with self.bridge.hooks(fwd_hooks=hooks), no_saved_tensors_hooks():
            logits = self.bridge(tokens, **inputs)
        check_not_recomputed(logits)
        return logits

    def _inputs(self, tokens: Tensor, mask: Tensor | None, positions: Tensor | None) -> dict[str, Tensor]:
        check_tokens(tokens, mask, n_ctx=self.cfg.n_ctx)
        check_ids(tokens, self.cfg.d_vocab, "tokens", "d_vocab")
        inputs: dict[str, Tensor] = {}
        if mask is not None:
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

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, nn.Parameter]]:
        """The parameters of the wrapped model under its own names."""
        return self.bridge.named_parameters(prefix, recurse, remove_duplicate)

    @property
    def _device(self) -> Any:
        return next(self.parameters()).device

    def untrained(self, seed: int) -> "BridgeModel":
        """A copy with random weights, in evaluation mode; torch's global generator is not advanced.

        Raises:
            ValueError: a model that cannot be made from its config alone.
        """
        return BridgeModel(untrained_bridge(self.bridge, seed), self.capabilities)


class LayerPoints(nn.Module):
    """The hook points and attention weights of one layer."""

    def __init__(self, weights: HeadWeights):
        super().__init__()
        self.attn, self.mlp = weights, nn.Module()


def add_points(model: nn.Module, n_layers: int, capabilities: Capabilities) -> None:
    """Give a model a hook point for every site that can be read."""
    names = [*GLOBAL_SITES, *(f"blocks.{layer}.{site}" for layer in range(n_layers) for site in LAYER_SITES)]
    for name in names:
        if capabilities.cell(name, "read").ok:
            path, _, last = name.rpartition(".")
            model.get_submodule(path).add_module(last, HookPoint())


def refusal(name: str, use: Use, capabilities: Capabilities) -> str:
    """Error text for a hook point that cannot be read or edited, with what to edit instead."""
    cell = capabilities.cell(name, use)
    fault = "would be ignored by this model" if cell.state == "ignored" else f"is refused: {cell}"
    if use == "read":
        return f"reading {name} {fault}."
    layer = ".".join(name.split(".")[:2]) + "." if name.startswith("blocks.") else ""
    # The nearest later site that can be edited
    site = name.removeprefix(layer)
    while site in INSTEAD:
        site = INSTEAD[site]
        substitute = site if site.startswith("blocks.") else layer + site
        if (substitute, "edit") in capabilities.cells and capabilities.cell(substitute, "edit").ok:
            return f"an edit of {name} {fault}. Edit {substitute} instead."
    return f"an edit of {name} {fault}."


def bridge_hooks(
    model: Any, values: Mapping[str, Tensor], muted: Callable[[str], bool]
) -> Iterator[tuple[str, Callable]]:
    """Hooks for the bridge: one for each hook point of ours that has hooks or a value to set.

    Args:
        model: The `BridgeModel`.
        values: Activations to set before any hook runs, by name.
        muted: True for names whose hooks must not run in this pass.
    """
    for name, point in model.hook_dict.items():
        active = point if has_hooks(point) and not muted(name) else None
        if name in values or active is not None:
            yield model.capabilities.cell(name, "read").point, _bridge_hook(model, name, active, values.get(name))


def _bridge_hook(model: Any, name: str, point: HookPoint | None, value: Tensor | None) -> Callable[..., Tensor | None]:
    def bridge_hook(activation: Tensor, hook: Any) -> Tensor | None:
        if value is not None:
            activation = value
        if point is None:
            return activation
        # Hooks see keys and values once for each query head
        shared = model.cfg.n_heads // activation.shape[2] if name.endswith(("hook_k", "hook_v")) else 1
        per_head = activation.repeat_interleave(shared, 2) if shared > 1 else activation
        # Run the hooks on a copy; if none edits, the bridge goes on with its own tensor
        copy = per_head.clone()
        before = per_head if copy.is_inference() else copy._version
        edited = point.run_hooks(copy)
        if edited is copy and _is_unchanged(copy, before):
            return activation if value is not None else None
        if not model.capabilities.cell(name, "edit").ok:
            raise ValueError(refusal(name, "edit", model.capabilities))
        return _per_key_value_head(edited, shared, name) if shared > 1 else edited

    return bridge_hook


def _is_unchanged(tensor: Tensor, before: Tensor | int) -> bool:
    """Whether no hook edited a tensor in place; tensors of torch's inference mode do not count their versions."""
    if isinstance(before, int):
        return tensor._version == before
    return torch.allclose(tensor, before, rtol=0, atol=0, equal_nan=True)


def _per_key_value_head(edited: Tensor, shared: int, name: str) -> Tensor:
    """One of each group of equal heads, as the bridge has them."""
    groups = edited.unflatten(2, (-1, shared))
    if not (groups == groups[:, :, :, :1]).all():
        raise ValueError(
            f"an edit of {name} differs between heads that share one {name[-1]}: in this model {shared} query heads "
            f"share each. Make the same edit for all {shared}, or edit each head's attn.hook_z."
        )
    return groups[:, :, :, 0]
