"""The transformer: embedding, applied layers and read-out, in the order in which they run.

    resid = W_E[tokens] + W_pos                                     hook_embed, hook_pos_embed
    resid = block(resid)          for every applied layer           blocks.0.hook_resid_pre ... hook_resid_post
    logits = LN(resid) W_U + b_U                                    ln_final.hook_normalized

`TransformerStack` has this pass; `Transformer` adds an embedding, a linear read-out and the loss of the next token,
`hooks.Encoder` (encoder.py) the inputs and heads of BERT. Inside a layer, blocks.py has one class per equation and
attention.py the heads; hook_names.py has the names of all hook points.
"""

from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch
from einops import einsum
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from hooks.checks import check_class
from hooks.model.attention import Context, allowed_keys
from hooks.model.blocks import Block
from hooks.model.checked_hooks import CheckedHooks
from hooks.model.config import TransformerConfig
from hooks.model.embeddings import BracketEmbedding, TokenEmbedding
from hooks.model.hardcoded.token_maps import token_maps
from hooks.model.initialise import initialise
from hooks.model.layers import (
    HookPoint,
    LayerNorm,
    Linear,
    Module,
    NormSites,
    Sites,
    TiedReadOut,
    check_read_positions,
    check_tokens,
    has_activation_hooks,
    is_hooked,
    take,
)
from hooks.model.locks import one_thread
from hooks.model.next_token_loss import ReturnType, check_return_type, next_token_loss
from hooks.model.positions import make_positions
from hooks.model.sites import LayerSites
from hooks.model.traits import ModelTraits
from hooks.model.transformer_lens_names import TransformerLensNames

Mask = Bool[Tensor, "batch pos"] | Int[Tensor, "batch pos"]
"""True or 1 for real tokens, False or 0 for padding."""


class TransformerStack(ModelTraits, TransformerLensNames, Module, CheckedHooks):
    """The forward pass that `Transformer` and `Encoder` share.

    Args:
        cfg: Architecture and sizes.
        seed: Decides the initial weights, without torch's global generator.
    """

    config_class: type = TransformerConfig
    cfg: Any
    embed: Any
    unembed: Any
    records = True

    def __init__(self, cfg: TransformerConfig, *, seed: int = 0):
        super().__init__()
        check_class("cfg", cfg, self.config_class)
        self.cfg = cfg
        self.tokenizer = None
        self._make_weights(cfg)
        self._make_sites()
        # Weights are drawn last, in the order of `named_parameters`
        initialise(self, cfg, seed)

    # The forward pass

    def _compute_logits(
        self,
        tokens: Int[Tensor, "batch pos"],
        attention_mask: Mask | None,
        depth: int | None,
        read_at: Int[Tensor, "batch read"] | None = None,
        **embedding_inputs: Tensor | None,
    ) -> Float[Tensor, "batch read d_vocab_out"]:
        """Embedding, layers and read-out; arguments as in `Transformer.forward`."""
        self._check_input(tokens, attention_mask, depth)
        if read_at is not None:
            check_read_positions(read_at, tokens)
        # Masks and maps of token ids are made once and shared by all layers
        context = make_context(self.cfg, tokens, attention_mask, tokens.shape[1], tokens.device)
        resid = self._embed_tokens(tokens, **embedding_inputs)
        layers = range(self.cfg.n_layers if depth is None else depth)
        return self.read_out(self._apply_layers(layers, resid, context, read_at))

    def _embed_tokens(
        self, tokens: Int[Tensor, "batch pos"], position_ids: Int[Tensor, "#batch pos"] | None = None
    ) -> Float[Tensor, "batch pos d_model"]:
        """The sum of token and position embeddings; positions are 0, 1, 2 ... if None."""
        resid = self.hook_embed(self.embed(tokens))
        if self.positions is None:
            return resid
        if position_ids is None:
            position_ids = torch.arange(tokens.shape[1], device=tokens.device)[None]
        return resid + self.hook_pos_embed(self.positions(position_ids).expand_as(resid))

    def _apply_layers(
        self,
        layers: range,
        resid: Float[Tensor, "batch pos d_model"],
        context: Context,
        read_at: Int[Tensor, "batch read"] | None,
        attn_out: Tensor | None = None,
    ) -> Float[Tensor, "batch read d_model"]:
        """The residual stream after some layers, at the positions that are read; `attn_out` is that of the first."""
        for layer in layers:
            # No later layer needs other positions of the last one
            if layer == layers[-1] and read_at is not None:
                context = context.at_queries(read_at)
            resid = self._apply_layer(layer, resid, context, attn_out if layer == layers[0] else None)
        if not layers and read_at is not None:
            resid = take(resid, read_at)
        return resid

    def _apply_layer(self, layer: int, resid: Tensor, context: Context, attn_out: Tensor | None = None) -> Tensor:
        sites = self.blocks[layer]
        return self.block(layer)(sites.hook_resid_pre(resid), sites, context, attn_out)

    def attention_output(
        self, layer: int, outputs: Float[Tensor, "*rows head width"]
    ) -> Float[Tensor, "*rows d_model"]:
        """Attention output of a layer from the outputs of its heads, computed as in a forward pass.

        Args:
            layer: Index of the layer.
            outputs: The heads' outputs: `attn.hook_z`, with b I on `attn.hook_result`.
        """
        sites: Any = self.blocks[layer]
        output_map = self.block(layer).attention.o
        if sites.attn.hook_result is None:
            return output_map(outputs.flatten(-2))
        # Where each head's output has a hook point, these are summed
        if not self.cfg.vo_identity:
            outputs = einsum(outputs, sites.attn.W_O, "... h e, h e d -> ... h d")
        return outputs.sum(-2) + output_map.bias_or_zero

    def read_out(self, resid: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_vocab_out"]:
        """Logits from the last residual stream."""
        if self.norm_final is not None:
            resid = self.norm_final(resid, self.ln_final)
        return self.unembed(resid)

    @property
    def is_hooked_at_the_end(self) -> bool:
        """Whether a hook is attached in the last layer or the read-out, where `read_at` leaves some positions out."""
        last = self.cfg.n_layers - 1
        modules = (self.blocks[last], self.block(last), self.ln_final, self.norm_final, self.unembed)
        return any(module is not None and is_hooked(module) for module in modules)

    @one_thread
    def resume(
        self,
        resid: Float[Tensor, "batch pos d_model"],
        layer: int,
        *,
        z: Float[Tensor, "batch query head width"] | None = None,
        attn_out: Float[Tensor, "batch pos d_model"] | None = None,
        tokens: Int[Tensor, "batch pos"] | None = None,
        attention_mask: Mask | None = None,
        position_ids: Int[Tensor, "#batch pos"] | None = None,
        read_at: Int[Tensor, "batch read"] | None = None,
    ) -> Float[Tensor, "batch read d_vocab_out"]:
        """Logits, computed from a residual stream instead of from tokens.

        Args:
            resid: The input of `layer` (`hook_resid_pre`); with `layer == n_layers`, the input of the read-out.
            layer: First layer to apply.
            z: Outputs of the heads of `layer`, as for `attention_output`; if None, they are computed. In the last layer
                only those at `read_at`.
            attn_out: Output of attention in `layer`; if None, it is computed.
            tokens: Token ids; only models with hard-coded heads need them.
            attention_mask: As in `forward`.
            position_ids: Without effect, as layers do not use them; a wrapped model may need them.
            read_at: Positions to read out; default: all. They are the only query positions of the last layer, and the
                only ones that its hook points see.

        Raises:
            ValueError: a layer outside 0 to n_layers, or hard-coded heads without tokens.
        """
        n_layers = self.cfg.n_layers
        check_resumed_layer(layer, n_layers, with_attention=z is not None or attn_out is not None)
        context = make_context(self.cfg, tokens, attention_mask, resid.shape[1], resid.device)
        if attn_out is not None and layer == n_layers - 1 and read_at is not None:
            attn_out = take(attn_out, read_at)
        elif attn_out is None and z is not None:
            attn_out = self.attention_output(layer, z)
        return self.read_out(self._apply_layers(range(layer, n_layers), resid, context, read_at, attn_out))

    def _check_input(self, tokens: Tensor, attention_mask: Tensor | None, depth: int | None) -> None:
        check_tokens(tokens, attention_mask, n_ctx=self.cfg.n_ctx)
        if depth is not None and not 1 <= depth <= self.cfg.n_layers:
            raise ValueError(
                f"depth is {depth}; this model has hook points for 1 to {self.cfg.n_layers} layers. "
                f"A tied model runs longer as model.at_depth({depth})."
            )

    # Weights and hook points

    def _make_weights(self, cfg: Any) -> None:
        """Make every module with weights; the order decides which random numbers each one gets."""
        self.embed = self._make_embedding(cfg)
        # `weights` has the stored blocks: one if tied, else one per layer. Their hook points are in `blocks`, one entry
        # per applied layer, since TransformerLens's hook names start with `blocks.0`.
        n_blocks = 1 if cfg.tied else cfg.n_layers
        self.weights = nn.ModuleList(
            cfg.block_class(cfg, [cfg.patterns_of(layer) for layer in range(index, cfg.n_layers, n_blocks)])
            for index in range(n_blocks)
        )
        self.norm_final = LayerNorm(cfg.d_model, cfg.layer_norm_eps) if cfg.normalization_type else None
        self.unembed = self._make_read_out(cfg)
        self.positions = make_positions(cfg.positions, cfg.n_ctx, cfg.embedding_width)

    def _make_embedding(self, cfg: Any) -> nn.Module:
        raise NotImplementedError

    def _make_read_out(self, cfg: Any) -> nn.Module:
        raise NotImplementedError

    def _make_sites(self) -> None:
        """Make every hook point, and name it."""
        self._make_input_sites()
        self.blocks = nn.ModuleList(
            LayerSites(self.cfg, self.block(layer), self.cfg.patterns_of(layer)) for layer in range(self.cfg.n_layers)
        )
        self.ln_final = None if self.norm_final is None else NormSites(self.norm_final)
        self.setup()

    def _make_input_sites(self) -> None:
        self.hook_embed = HookPoint()
        if self.positions is not None:
            self.hook_pos_embed = HookPoint()

    def hooked_in_layers(self) -> Iterator[tuple[str, str]]:
        yield from super().hooked_in_layers()
        for layer, block in enumerate(self.stored_blocks):
            for name, module in block.named_modules():
                if has_activation_hooks(module):
                    yield "torch hook", f"{name or 'the block'} of layer {layer}"

    @property
    def stored_blocks(self) -> list[Block]:
        """The blocks that hold weights: one if tied, else one per layer."""
        return [cast(Block, block) for block in self.weights]

    def block(self, layer: int) -> Block:
        """The stored block that an applied layer uses."""
        return cast(Block, self.weights[layer % len(self.weights)])

    def identity_scalars(self) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
        """The scalars of a I and those of b I, one vector (head,) for each stored block that has them."""
        attentions = [block.attention for block in self.stored_blocks]
        a = [attention.a for attention in attentions if attention.a is not None]
        b = [attention.b for attention in attentions if attention.b is not None]
        return a, b

    def at_depth(self, n_layers: int) -> "TransformerStack":
        """A model with the same weights (shared, not copied) and another number of layers, with separate hook points.

        Raises:
            ValueError: more layers than an untied model has.
        """
        if not self.cfg.tied and n_layers > self.cfg.n_layers:
            raise ValueError(f"n_layers is {n_layers}; an untied model has only its own {self.cfg.n_layers} layers.")
        model = type(self)(self.cfg.with_depth(n_layers))
        # Share everything that has weights
        for name, module in self.named_children():
            if name not in ("weights", "blocks") and not isinstance(module, HookPoint | Sites):
                setattr(model, name, module)
        model.weights = nn.ModuleList(self.weights[: len(model.weights)])
        model.tokenizer = self.tokenizer
        # Hook points refer to the blocks of their layer, so they are made again
        model._make_sites()
        return model.train(self.training)


class Transformer(TransformerStack):
    """A transformer with a TransformerLens hook point at every intermediate value.

    `model(tokens)` gives logits (batch, pos, d_vocab_out). Hook points have TransformerLens's canonical names for
    every applied layer, also if layers share weights. Results do not depend on the other sequences of a batch.

    >>> import torch
    >>> from hooks import Transformer, TransformerConfig
    >>> model = Transformer(TransformerConfig(d_vocab=5, d_model=8, n_heads=2), seed=0)
    >>> logits, cache = model.run_with_cache(torch.tensor([[1, 2, 3]]))
    >>> tuple(logits.shape), tuple(cache["blocks.1.attn.hook_pattern"].shape)
    ((1, 3, 5), (1, 2, 3, 3))

    Args:
        cfg: Architecture and sizes.
        seed: Decides the initial weights, without torch's global generator.
    """

    cfg: TransformerConfig

    def forward(
        self,
        tokens: Int[Tensor, "batch pos"] | str | Sequence[str],
        attention_mask: Mask | None = None,
        *,
        position_ids: Int[Tensor, "#batch pos"] | None = None,
        depth: int | None = None,
        read_at: Int[Tensor, "batch read"] | None = None,
        return_type: ReturnType | None = "logits",
        loss_per_token: bool = False,
        stop_at_layer: int | None = None,
    ) -> Float[Tensor, "..."] | tuple[Float[Tensor, "batch pos d_vocab_out"], Float[Tensor, "..."]] | None:
        """Logits at every position.

        Args:
            tokens: Token ids, or a text or texts of the attached tokenizer, as in `to_tokens`.
            attention_mask: True or 1 for real tokens; no real token attends to padding.
            position_ids: Position of each token; default: 0, 1, 2 ...
            depth: Number of layers to apply, for stochastic depth; default: all. For more layers than the model has,
                see `at_depth`.
            read_at: Positions to return logits for, as in `resume`; default: all.
            return_type: `loss`: mean cross entropy of each next token, as in `next_token_loss`, in place of logits
                (batch, pos, d_vocab_out). `both`: (logits, loss). None: nothing, for hooks alone.
            loss_per_token: The loss of each target (batch, pos - 1) in place of the mean.
            stop_at_layer: Return the residual stream (batch, pos, d_model) before this layer, from which on nothing is
                computed; negative numbers count from the end. Arguments about logits have no effect.

        Raises:
            ValueError: tokens without a batch axis, tokens or positions out of range, a sequence longer than `n_ctx`, a
                mask or `read_at` of another shape, a depth or a layer that the model does not have, a text without a
                tokenizer, or a loss of a model that does not predict next tokens, or of some positions only.
        """
        if not isinstance(tokens, Tensor):
            tokens = self.to_tokens(tokens)
        if stop_at_layer is not None:
            return self._stream_before(stop_at_layer, tokens, attention_mask, position_ids)
        if return_type != "logits" or loss_per_token:
            check_return_type(self.cfg, return_type, loss_per_token)
            if read_at is not None and return_type is not None:
                raise ValueError(f"return_type is {return_type!r}, which needs every position; omit read_at.")
        logits = self._compute_logits(tokens, attention_mask, depth, read_at, position_ids=position_ids)
        if return_type is None:
            return None
        if return_type == "logits":
            return logits
        loss = next_token_loss(logits, tokens, attention_mask, per_token=loss_per_token)
        return loss if return_type == "loss" else (logits, loss)

    def _stream_before(
        self, layer: int, tokens: Tensor, attention_mask: Mask | None, position_ids: Tensor | None
    ) -> Float[Tensor, "batch pos d_model"]:
        """The residual stream before a layer."""
        n_layers = self.cfg.n_layers
        if not -n_layers <= layer <= n_layers:
            raise ValueError(f"stop_at_layer is {layer}; this model can stop at {-n_layers} to {n_layers}.")
        self._check_input(tokens, attention_mask, None)
        context = make_context(self.cfg, tokens, attention_mask, tokens.shape[1], tokens.device)
        layers = range(layer if layer >= 0 else n_layers + layer)
        return self._apply_layers(layers, self._embed_tokens(tokens, position_ids=position_ids), context, None)

    def _make_embedding(self, cfg: TransformerConfig) -> nn.Module:
        if cfg.embedding is not None:
            return BracketEmbedding(cfg.embedding, cfg.d_model)
        return TokenEmbedding(cfg.d_vocab, cfg.d_model)

    def _make_read_out(self, cfg: TransformerConfig) -> nn.Module:
        return TiedReadOut(self.embed) if cfg.tied_embedding else Linear(cfg.d_model, cfg.d_vocab_out)


def make_context(
    cfg: TransformerConfig,
    tokens: Int[Tensor, "batch pos"] | None,
    attention_mask: Mask | None,
    pos: int,
    device: torch.device,
) -> Context:
    """Causality, padding, and the maps of hard-coded heads, for one batch.

    Raises:
        ValueError: hard-coded heads without token ids; ids or markers that `token_maps` refuses.
    """
    hard_coded = cfg.pathways is not None or any(cfg.patterns_of(layer) for layer in range(cfg.n_layers))
    if not hard_coded:
        if cfg.attention == "causal" and attention_mask is None:
            return Context(causal=True)
        real = None if attention_mask is None else attention_mask.bool()
        return Context(allowed=allowed_keys(cfg.attention, real, pos, device))
    if tokens is None:
        raise ValueError("this model has hard-coded heads, which depend on token ids: pass tokens as well.")
    return token_maps(tokens, attention_mask, heads=cfg.pathways or (), d_vocab=cfg.d_vocab, attention=cfg.attention)


def check_resumed_layer(layer: int, n_layers: int, *, with_attention: bool) -> None:
    """Check the layer that a pass resumes at; with an output of attention it must be one of the layers.

    Raises:
        ValueError: a layer outside the range.
    """
    last = n_layers - 1 if with_attention else n_layers
    if not 0 <= layer <= last:
        raise ValueError(f"layer is {layer}; this model can resume at 0 to {last}.")
