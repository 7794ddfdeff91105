"""Somebody else's model under our names: true writes, and no edit that is ignored."""

from collections.abc import Callable, Iterable
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformer_lens import ActivationCache, TransformerBridge
from transformer_lens.HookedRootModule import HookedRootModule

from hooks.adapters.bridge.capabilities import Capabilities, Cell
from hooks.adapters.bridge.config import ForeignConfig
from hooks.adapters.bridge.finding import capabilities_of
from hooks.adapters.bridge.points import LayerPoints, add_points, refusal, relays
from hooks.adapters.bridge.untrained import untrained_bridge
from hooks.adapters.bridge.weights import HeadWeights
from hooks.model.hook_names import check_hook_name, check_names_filter
from hooks.model.lens import ReadsText
from hooks.modules import HookPoint, take

Mask = Bool[Tensor, "batch pos"] | Int[Tensor, "batch pos"]


def from_bridge(model: Any, *, tokens: Int[Tensor, "batch pos"] | None = None) -> "BridgeModel":
    """A TransformerLens bridge, ready for every analysis that can be made of it.

    Args:
        model: A `transformer_lens.TransformerBridge`. It is not changed.
        tokens: What to try it on, at least (3, 4); random ones from a fixed seed when left out.

    Raises:
        ValueError: something else than a bridge, one whose output is not logits at every position, or tokens that do
            not fit.
    """
    if isinstance(model, BridgeModel):
        return model
    if not isinstance(model, TransformerBridge):
        raise ValueError(_not_a_bridge(model))
    return BridgeModel(model, capabilities_of(model, tokens))


def _not_a_bridge(model: Any) -> str:
    name, home = type(model).__name__, type(model).__module__.split(".")[0]
    accepted = f"model is a {name}; accepted are hooks.Transformer and transformer_lens.TransformerBridge."
    if home == "hooks":
        return f"model is a {name}, one of our own: it needs no adapter. Pass it as it is."
    if home != "transformers":
        return accepted
    family = getattr(getattr(model, "config", None), "model_type", "")
    load = "Use hooks.from_huggingface, or " if family in ("gpt2", "bert", "albert") else ""
    build = f"{load}build a bridge: TransformerBridge.boot_transformers, or build_bridge_from_module of this model."
    return f"{accepted} {build[0].upper()}{build[1:]}"


class BridgeModel(ReadsText, HookedRootModule):
    """A bridge under our names. `model(tokens)` gives logits (batch, pos, d_vocab_out).

    Each name stands for the place of the bridge that was found to do that job; a hook that edits where the bridge would
    ignore it is refused while it runs, and a place that cannot be read has no hook point.

    Args:
        bridge: What runs.
        capabilities: What was found out about it.
    """

    def __init__(self, bridge: TransformerBridge, capabilities: Capabilities):
        self._bridge = (bridge,)  # in a tuple: its parameters and hook points stay its own
        super().__init__()
        cfg: Any = bridge.cfg
        self.capabilities = capabilities
        self.cfg = ForeignConfig(
            architecture=str(cfg.architecture),
            attention=capabilities.attention,
            attn_scale=capabilities.attn_scale,
            d_vocab_out=capabilities.d_vocab_out,
            n_key_value_heads=cfg.n_key_value_heads or cfg.n_heads,
            **{name: getattr(cfg, name) for name in ("n_layers", "n_heads", "d_head", "d_model", "d_vocab", "n_ctx")},
        )
        self.tokenizer: Any = bridge.tokenizer
        self.blocks = nn.ModuleList(LayerPoints(HeadWeights(bridge, layer)) for layer in range(self.cfg.n_layers))
        self.ln_final = nn.Module()
        add_points(self, self.blocks, capabilities)
        self.setup()

    @property
    def bridge(self) -> TransformerBridge:
        """The bridge itself."""
        return self._bridge[0]

    @property
    def positions_in_layers(self) -> bool:
        """True when attention itself looks at positions, so that `resume` must be told them."""
        return self.capabilities.positions_in_layers

    @property
    def pattern_before_z(self) -> bool:
        """True when a hook on z may look at the pattern of the same pass."""
        return self.capabilities.pattern_before_z

    @property
    def training(self) -> bool:
        """The bridge's own mode."""
        return self.bridge.training

    @training.setter
    def training(self, mode: bool) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Nothing: torch's bookkeeping asks for it, the bridge decides."""

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
            position_ids: Where each token stands, from 0. Left out, the bridge counts: with padding on the left most
                start at the first real token.

            token_type_ids: First text or second, for a bridge that tells them apart.

        Raises:
            ValueError: tokens without a batch axis or out of range, a mask of another shape, or a mask, positions or
                types that this bridge would ignore.
        """
        inputs = self._inputs(tokens, attention_mask, position_ids)
        if token_type_ids is not None:
            self._accept("token_type_ids", self.capabilities.token_type_ids)
            inputs["token_type_ids"] = token_type_ids
        return self._run(tokens, inputs, {}, lambda name: False)

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
        """Logits, going on from a residual stream. Exact, at the price of a full pass, in which hooks of earlier layers
        see nothing.

        Args:
            resid: What enters `layer`; with `layer == n_layers`, what enters the read-out.
            layer: First layer to apply.
            attn_out: What attention of `layer` is to write.
            tokens: What the earlier layers run on, to no effect; zeros when left out.
            attention_mask: As in `forward`.
            position_ids: As in `forward`; needed where attention looks at positions (`positions_in_layers`).
            read_at: Positions to read out; all when left out.

        Raises:
            ValueError: a layer outside 0 to n_layers, or a stream or write that cannot be set in this bridge.
        """
        last = self.cfg.n_layers if attn_out is None else self.cfg.n_layers - 1
        if not 0 <= layer <= last:
            raise ValueError(f"layer is {layer}; this model can resume at 0 to {last}.")
        start = f"blocks.{layer}.hook_resid_pre"
        if layer == self.cfg.n_layers:
            start = f"blocks.{layer - 1}.hook_resid_post"
        put = {start: resid}
        if attn_out is not None:
            put[f"blocks.{layer}.hook_attn_out"] = attn_out
        for name in put:
            if not self.capabilities.cell(name, "edit").ok:
                raise ValueError(refusal(name, "edit", self.capabilities))
        skipped = f"blocks.{layer}.attn." if attn_out is not None else None

        def silent(name: str) -> bool:
            if name == "ln_final.hook_normalized":
                return False
            early = not name.startswith("blocks.") or int(name.split(".")[1]) < layer
            return early or (skipped is not None and name.startswith(skipped))

        if tokens is None:
            tokens = torch.zeros(resid.shape[:2], dtype=torch.long, device=resid.device)
        logits = self._run(tokens, self._inputs(tokens, attention_mask, position_ids), put, silent)
        return logits if read_at is None else take(logits, read_at)

    def _run(
        self,
        tokens: Tensor,
        inputs: dict[str, Tensor],
        put: dict[str, Tensor],
        silent: Callable[[str], bool],
    ) -> Tensor:
        hooks = list(relays(self.hook_dict, self.capabilities, self.cfg.n_heads, put, silent))  # pyright: ignore[reportArgumentType]
        with self.bridge.hooks(fwd_hooks=hooks):
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
            raise ValueError(f"{name} is given, which this bridge of {self.cfg.architecture} cannot use: {cell}.")

    @contextmanager
    def hooks(self, fwd_hooks: Iterable = (), bwd_hooks: Iterable = (), *args: Any, **kwargs: Any):
        """TransformerLens's `hooks`, refusing a name that cannot be read here; an edit that the bridge would ignore is
        refused when it is made.

        Raises:
            ValueError: an unknown name, or one that this model cannot serve (why, and what works instead).
        """
        fwd_hooks, bwd_hooks = list(fwd_hooks), list(bwd_hooks)
        for name, _ in fwd_hooks + bwd_hooks:
            self._check_name(name)
        with super().hooks(fwd_hooks, bwd_hooks, *args, **kwargs) as model:
            yield model

    def add_hook(self, name: str | Callable[[str], bool], hook: Callable, *args: Any, **kwargs: Any) -> None:
        """TransformerLens's `add_hook`, with the checks of `hooks`."""
        self._check_name(name)
        super().add_hook(name, hook, *args, **kwargs)

    def run_with_cache(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, *args: Any, names_filter: Any = None, remove_batch_dim: bool = False, **kwargs: Any
    ):
        """Logits and an `ActivationCache` of the hook points that `names_filter` lets through.

        Raises:
            ValueError: a name that does not exist, or that this model cannot serve.
        """
        for name in names_filter if isinstance(names_filter, list | tuple) else [names_filter]:
            if isinstance(name, str):
                self._check_name(name)
        check_names_filter(self, names_filter)
        logits, cache = super().run_with_cache(
            *args, names_filter=names_filter, remove_batch_dim=remove_batch_dim, **kwargs
        )
        return logits, ActivationCache(cache, self, has_batch_dim=not remove_batch_dim)

    def _check_name(self, name: str | Callable[[str], bool]) -> None:
        if not isinstance(name, str):
            check_names_filter(self, name)
        elif name not in self.hook_dict:
            if (name, "read") in self.capabilities.cells and not name.split(".")[-1].startswith("W_"):
                raise ValueError(refusal(name, "read", self.capabilities))
            check_hook_name(self, name)

    def hook_point(self, name: str) -> HookPoint:
        """The hook point of that name.

        Raises:
            ValueError: there is none (why).
        """
        self._check_name(name)
        return self.hook_dict[name]  # pyright: ignore[reportReturnType]

    @property
    def _device(self) -> Any:
        return next(iter(self.bridge.parameters())).device

    def untrained(self, seed: int) -> "BridgeModel":
        """A twin with fresh random weights, in evaluation mode; torch's global generator is left where it was.

        Raises:
            ValueError: a model that cannot be made from its config alone.
        """
        return from_bridge(untrained_bridge(self.bridge, seed))
