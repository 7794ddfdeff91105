"""The stack of layers that `Transformer` and `Encoder` share: resuming, hooks, caching, depth."""

from typing import Any, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from hooks.model.attention import Context, allowed_keys
from hooks.model.blocks import Block
from hooks.model.config import TransformerConfig
from hooks.model.hardcoded.token_maps import token_maps
from hooks.model.hook_names import CheckedHooks
from hooks.model.initialise import initialise
from hooks.model.layers import HookPoint, LayerNorm, Module, NormSites, take
from hooks.model.lens import LensModel
from hooks.model.locks import one_thread
from hooks.model.optional_points import OptionalPoints
from hooks.model.positions import FixedPositions, LearnedPositions
from hooks.model.sites import LayerSites


class TransformerStack(LensModel, OptionalPoints, Module, CheckedHooks):
    """The layers of a transformer, without its embedding and read-out.

    `Transformer` and `Encoder` add an embedding and a read-out. Hook points have TransformerLens's canonical names for
    every applied layer, also if layers share weights.

    Args:
        cfg: Architecture and sizes.
        seed: Decides the initial weights, without torch's global generator.
    """

    cfg: Any
    embed: Any
    unembed: Any
    _shared: tuple[str, ...] = ("embed", "positions", "norm_final", "unembed")
    """What `at_depth` shares besides the blocks."""

    def __init__(self, cfg: TransformerConfig, *, seed: int = 0):
        super().__init__()
        self.cfg = cfg
        self.tokenizer = None
        self._build(cfg)
        self._add_sites()
        initialise(self, cfg, seed)

    def _build(self, cfg: Any) -> None:
        """Make every module with weights; the order decides which random numbers each one gets."""
        raise NotImplementedError

    def _build_layers(self, cfg: TransformerConfig) -> None:
        n_blocks = 1 if cfg.tied else cfg.n_layers
        self.weights = nn.ModuleList(
            cfg.block_class(cfg, [cfg.patterns_of(layer) for layer in range(index, cfg.n_layers, n_blocks)])
            for index in range(n_blocks)
        )
        self.norm_final = LayerNorm(cfg.d_model, cfg.layer_norm_eps) if cfg.normalization_type else None

    def _build_positions(self, cfg: TransformerConfig, width: int) -> None:
        self.positions = None
        if cfg.positions == "learned":
            self.positions = LearnedPositions(cfg.n_ctx, width)
        elif cfg.positions != "none":
            self.positions = FixedPositions(cfg.positions, cfg.n_ctx, width)

    def _add_sites(self) -> None:
        self._add_input_sites()
        self.blocks = nn.ModuleList(
            LayerSites(self.cfg, self.block(layer), self.cfg.patterns_of(layer)) for layer in range(self.cfg.n_layers)
        )
        self.ln_final = None if self.norm_final is None else NormSites(self.norm_final)
        self.setup()

    def _add_input_sites(self) -> None:
        self.hook_embed = HookPoint()  # (batch, pos, d_model)
        if self.positions is not None:
            self.hook_pos_embed = HookPoint()

    @property
    def stored_blocks(self) -> list[Block]:
        """The blocks that hold weights: one if tied, else one per layer."""
        return [cast(Block, block) for block in self.weights]

    def block(self, layer: int) -> Block:
        """The stored block that an applied layer uses."""
        return cast(Block, self.weights[layer % len(self.weights)])

    def identity_scalars(self) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
        """The scalars of a I and those of b I, one vector (head,) for each stored block that has them."""
        attention = [block.attention for block in self.stored_blocks]
        return [one.a for one in attention if one.a is not None], [one.b for one in attention if one.b is not None]

    @one_thread
    def resume(
        self,
        resid: Float[Tensor, "batch pos d_model"],
        layer: int,
        *,
        attn_out: Float[Tensor, "batch pos d_model"] | None = None,
        tokens: Int[Tensor, "batch pos"] | None = None,
        attention_mask: Bool[Tensor, "batch pos"] | Int[Tensor, "batch pos"] | None = None,
        read_at: Int[Tensor, "batch read"] | None = None,
    ) -> Float[Tensor, "batch read d_vocab_out"]:
        """Logits, computed from a residual stream instead of from tokens.

        Args:
            resid: The input of `layer` (`hook_resid_pre`); with `layer == n_layers`, the input of the read-out.
            layer: First layer to apply.
            attn_out: Output of attention in `layer`; if None, it is computed from `resid`.
            tokens: Token ids; only models with hard-coded heads need them.
            attention_mask: As in `forward`.
            read_at: Positions to read out; default: all. They are the only query positions of the last layer, and the
                only ones that its hook points see.

        Raises:
            ValueError: a layer outside 0 to n_layers, or hard-coded heads without tokens.
        """
        last = self.cfg.n_layers if attn_out is None else self.cfg.n_layers - 1
        if not 0 <= layer <= last:
            raise ValueError(f"layer is {layer}; this model can resume at 0 to {last}.")
        context = make_context(self.cfg, tokens, _as_bool(attention_mask), resid.shape[1], resid.device)
        for index in range(layer, self.cfg.n_layers):
            if index == self.cfg.n_layers - 1 and read_at is not None:
                context = context.at_queries(read_at)
            resid = self._layer(index, resid, context, attn_out if index == layer else None)
        return self.read_out(take(resid, read_at) if layer == self.cfg.n_layers and read_at is not None else resid)

    def read_out(self, resid: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_vocab_out"]:
        """Logits from the last residual stream."""
        return self.unembed(resid if self.norm_final is None else self.norm_final(resid, self.ln_final))

    def _run(self, resid: Tensor, context: Context, depth: int | None) -> Tensor:
        for layer in range(self.cfg.n_layers if depth is None else depth):
            resid = self._layer(layer, resid, context)
        return self.read_out(resid)

    def _context(self, tokens: Tensor, attention_mask: Tensor | None) -> Context:
        return make_context(self.cfg, tokens, _as_bool(attention_mask), tokens.shape[1], tokens.device)

    def _embed(self, tokens: Tensor, position_ids: Tensor | None) -> Tensor:
        resid = self.hook_embed(self.embed(tokens))
        if self.positions is None:
            return resid
        if position_ids is None:
            position_ids = torch.arange(tokens.shape[1], device=tokens.device)[None]
        return resid + self.hook_pos_embed(self.positions(position_ids).expand_as(resid))

    def _layer(self, layer: int, resid: Tensor, context: Context, attn_out: Tensor | None = None) -> Tensor:
        at, block = self.blocks[layer], self.block(layer)
        return block(at.hook_resid_pre(resid), at, context, attn_out)

    def _check_input(self, tokens: Tensor, attention_mask: Tensor | None, depth: int | None) -> None:
        if tokens.ndim != 2:
            raise ValueError(f"tokens is {tuple(tokens.shape)}; it must be (batch, pos). One text? Pass tokens[None].")
        if tokens.shape[1] > self.cfg.n_ctx:
            raise ValueError(f"tokens has {tokens.shape[1]} positions; n_ctx of this model is {self.cfg.n_ctx}.")
        if attention_mask is not None and attention_mask.shape != tokens.shape:
            raise ValueError(f"attention_mask is {tuple(attention_mask.shape)}; tokens is {tuple(tokens.shape)}.")
        if depth is not None and not 1 <= depth <= self.cfg.n_layers:
            raise ValueError(
                f"depth is {depth}; this model has hook points for 1 to {self.cfg.n_layers} layers. "
                f"A tied model runs longer as model.at_depth({depth})."
            )

    def at_depth(self, n_layers: int) -> "TransformerStack":
        """A model with the same weights (shared, not copied) and another number of layers, with separate hook points.

        Raises:
            ValueError: more layers than an untied model has.
        """
        if not self.cfg.tied and n_layers > self.cfg.n_layers:
            raise ValueError(f"n_layers is {n_layers}; an untied model has only its own {self.cfg.n_layers} layers.")
        other = type(self)(self.cfg.with_depth(n_layers))
        for name in self._shared:
            setattr(other, name, getattr(self, name))
        other.weights = nn.ModuleList(self.weights[: len(other.weights)])
        other.tokenizer = self.tokenizer
        other._add_sites()
        return other.train(self.training)

    W_E = property(lambda self: self.embed.weight)
    b_U = property(lambda self: self.unembed.bias_or_zero)


def make_context(
    cfg: TransformerConfig,
    tokens: Int[Tensor, "batch pos"] | None,
    attention_mask: Bool[Tensor, "batch pos"] | None,
    pos: int,
    device: torch.device,
) -> Context:
    """Causality, padding, and the maps of hard-coded heads, for one batch.

    Raises:
        ValueError: hard-coded heads without token ids; ids or markers that `token_maps` refuses.
    """
    if cfg.pathways is None and not any(cfg.patterns_of(layer) for layer in range(cfg.n_layers)):
        allowed = allowed_keys(cfg.attention, attention_mask, pos, device)
        return Context(allowed=allowed, causal=cfg.attention == "causal" and attention_mask is None)
    if tokens is None:
        raise ValueError("this model has hard-coded heads, which look at token ids: pass tokens as well.")
    return token_maps(tokens, attention_mask, heads=cfg.pathways or (), d_vocab=cfg.d_vocab, attention=cfg.attention)


def _as_bool(mask: Tensor | None) -> Tensor | None:
    return None if mask is None else mask.bool()
