"""Transformer blocks: seven ways to wire attention, MLP and LayerNorm, one class each, and a registry for others.

A block has two halves, so that an ablation can start in the middle of a layer: `read` maps the residual stream to the
input of attention, `write` maps the stream and the output of attention to the next stream.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from hooks.model.attention import Attention, Context
from hooks.model.hardcoded.head_patterns import HeadPattern, has_learned
from hooks.model.hardcoded.lego_attention import HardcodedAttention
from hooks.model.layers import Layer, LayerNorm, Linear, activate
from hooks.model.sites import LayerSites, MLPSites
from hooks.typed import checks_types


class MLP(Layer):
    """out = act(x W_in + b_in) W_out + b_out."""

    def __init__(self, cfg: Any):
        super().__init__()
        self.activation = cfg.activation
        self.w_in = Linear(cfg.d_model, cfg.d_mlp, bias=cfg.mlp_bias)
        self.w_out = Linear(cfg.d_mlp, cfg.d_model, bias=cfg.mlp_bias)

    def forward(self, x: Float[Tensor, "batch pos d_model"], sites: MLPSites) -> Float[Tensor, "batch pos d_model"]:
        """The output of the MLP."""
        pre = sites.hook_pre(self.w_in(x))
        post = sites.hook_post(activate(pre, self.activation))
        return self.w_out(post)


class DeepMLP(Layer):
    """out = W_out relu(W_3 relu(W_2 relu(W_in x))), with hook points at the first hidden layer; no biases."""

    def __init__(self, cfg: Any):
        super().__init__()
        width = cfg.d_mlp
        self.w_in = Linear(cfg.d_model, width, bias=False)
        self.w_2 = Linear(width, width, bias=False)
        self.w_3 = Linear(width, width, bias=False)
        self.w_out = Linear(width, cfg.d_model, bias=False)

    def forward(self, x: Float[Tensor, "batch pos d_model"], sites: MLPSites) -> Float[Tensor, "batch pos d_model"]:
        """The output of the MLP."""
        hidden = sites.hook_post(F.relu(sites.hook_pre(self.w_in(x))))
        return self.w_out(F.relu(self.w_3(F.relu(self.w_2(hidden)))))


class Block(Layer):
    """The weights of one stored block. Subclasses say how they are wired."""

    n_norms: ClassVar[int] = 1
    """LayerNorms of the block: `norm_1`, then `norm_2`, which a layer without an MLP does not have."""
    final_norm: ClassVar[bool] = False
    """Whether a LayerNorm precedes the read-out, because the residual stream is not normalised."""
    adds_to_stream: ClassVar[bool] = False
    """Whether the output of attention is added to the residual stream as it is; TransformerLens's path patching needs
    it."""
    mlp_class: ClassVar[type[MLP] | type[DeepMLP]] = MLP

    attention: Any
    """`Attention`, or `HardcodedAttention` if a head is hard-coded."""

    def __init__(self, cfg: Any, rows: Sequence[tuple[HeadPattern, ...]] = ((),)):
        super().__init__()
        if cfg.pathways is not None or any(rows):
            self.attention = HardcodedAttention(cfg, cfg.pathways, learned=any(map(has_learned, rows)))
        else:
            self.attention = Attention(cfg)
        if self.n_norms:
            self.norm_1 = LayerNorm(cfg.d_model, cfg.layer_norm_eps)
        needs_norm_2 = self.n_norms > 1 and not cfg.attn_only
        self.norm_2 = LayerNorm(cfg.d_model, cfg.layer_norm_eps) if needs_norm_2 else None
        self.mlp = None if cfg.attn_only else self.mlp_class(cfg)

    def forward(
        self,
        resid: Float[Tensor, "batch pos d_model"],
        sites: LayerSites,
        context: Context,
        attn_out: Float[Tensor, "batch query d_model"] | None = None,
    ) -> Float[Tensor, "batch query d_model"]:
        """One applied layer, at the query positions; the output of attention is computed if it is None."""
        # An ablation starts here, with the output of attention
        if attn_out is not None:
            return self.write(context.query_rows(resid), attn_out, sites)
        attention_input = self.read(resid, sites)
        if sites.attn.hook_q_input is None:
            computed = self.attention(attention_input, context, sites.attn)
        else:
            # Hooks edit the inputs of queries, keys and values head by head
            inputs = self._split_inputs(resid, attention_input, sites, context)
            computed = self.attention.with_split_inputs(*inputs, context, sites.attn)
        return self.write(context.query_rows(resid), sites.hook_attn_out(computed), sites)

    def _split_inputs(
        self, resid: Tensor, attention_input: Tensor, sites: LayerSites, context: Context
    ) -> list[Tensor]:
        """The inputs of queries, keys and values of each head (batch, pos, head, d_model): the input of attention, plus
        the change of it that hooks on copies of the residual stream cause."""
        query_rows = (context.query_rows(resid), context.query_rows(attention_input))
        all_rows = (resid, attention_input)
        rows_of_inputs = (query_rows, all_rows, all_rows)  # of queries, keys and values
        inputs = []
        for point, (stream, shared_input) in zip(sites.attn.input_points, rows_of_inputs, strict=True):
            edited_copies = point(stream[:, :, None].repeat(1, 1, self.attention.n_heads, 1))
            change = self.read(edited_copies, sites.unhooked) - self.read(stream, sites.unhooked)[:, :, None]
            inputs.append(shared_input[:, :, None] + change)
        return inputs

    def read(self, resid: Tensor, sites: LayerSites) -> Tensor:
        """The input of attention."""
        raise NotImplementedError

    def write(self, resid: Tensor, attn_out: Tensor, sites: LayerSites) -> Tensor:
        """The residual stream after this layer, given the output of attention."""
        raise NotImplementedError


class PreLNBlock(Block):
    """mid = x + Attn(LN1(x));  out = mid + MLP(LN2(mid))."""

    n_norms = 2
    final_norm = True
    adds_to_stream = True

    def read(self, resid: Tensor, sites: LayerSites) -> Tensor:
        return self.norm_1(resid, sites.ln1)

    def write(self, resid: Tensor, attn_out: Tensor, sites: LayerSites) -> Tensor:
        resid = resid + attn_out
        if self.mlp is not None and self.norm_2 is not None:
            resid = sites.hook_resid_mid(resid)
            mlp_in = resid if sites.hook_mlp_in is None else sites.hook_mlp_in(resid.clone())
            resid = resid + sites.hook_mlp_out(self.mlp(self.norm_2(mlp_in, sites.ln2), sites.mlp))
        return sites.hook_resid_post(resid)


class PostLNBlock(Block):
    """mid = LN1(x + Attn(x));  out = LN2(mid + MLP(mid))."""

    n_norms = 2

    def read(self, resid: Tensor, sites: LayerSites) -> Tensor:
        return resid

    def write(self, resid: Tensor, attn_out: Tensor, sites: LayerSites) -> Tensor:
        resid = self.norm_1(resid + attn_out, sites.ln1)
        if self.mlp is not None and self.norm_2 is not None:
            resid = sites.hook_resid_mid(resid)
            resid = self.norm_2(resid + sites.hook_mlp_out(self.mlp(resid, sites.mlp)), sites.ln2)
        return sites.hook_resid_post(resid)


class DyckBlock(Block):
    """mid = x + LN(Attn(x));  out = MLP(mid).

    Source: bounded-Dyck paper (arXiv:2312.01429) Eq. 6, g_l a plain MLP. Differs: the norm is a LayerNorm with
    gain, bias and eps where Eq. 7 has LN_C, and attention keeps an output projection.
    """

    def read(self, resid: Tensor, sites: LayerSites) -> Tensor:
        return resid

    def write(self, resid: Tensor, attn_out: Tensor, sites: LayerSites) -> Tensor:
        resid = resid + self.norm_1(attn_out, sites.ln1)
        if self.mlp is not None:
            resid = sites.hook_mlp_out(self.mlp(sites.hook_resid_mid(resid), sites.mlp))
        return sites.hook_resid_post(resid)


class MinimalBlock(Block):
    """mid = LN(Attn(x));  out = MLP(mid).

    Source: the layer after a minimal first layer in the bounded-Dyck paper's released code. Unlike in Eq. 6 there is no
    residual connection around attention.
    """

    def read(self, resid: Tensor, sites: LayerSites) -> Tensor:
        return resid

    def write(self, resid: Tensor, attn_out: Tensor, sites: LayerSites) -> Tensor:
        resid = self.norm_1(attn_out, sites.ln1)
        if self.mlp is not None:
            resid = sites.hook_mlp_out(self.mlp(sites.hook_resid_mid(resid), sites.mlp))
        return sites.hook_resid_post(resid)


class BareBlock(Block):
    """mid = Attn(x);  out = MLP(mid).

    Source: template paper (arXiv:2310.09753) Section 2, the model of its theory: no norm and no residual connection.
    """

    n_norms = 0

    def read(self, resid: Tensor, sites: LayerSites) -> Tensor:
        return resid

    def write(self, resid: Tensor, attn_out: Tensor, sites: LayerSites) -> Tensor:
        resid = attn_out
        if self.mlp is not None:
            resid = sites.hook_mlp_out(self.mlp(sites.hook_resid_mid(resid), sites.mlp))
        return sites.hook_resid_post(resid)


class NoNormBlock(Block):
    """mid = x + Attn(x);  out = mid + MLP(mid).

    Source: the layers of compiled programs (Lindner et al. 2023, arXiv:2301.05062), with `attn_bias` and `mlp_bias` off
    and scores not scaled, and of attention-only models (Elhage et al. 2021), with `d_mlp=0`.
    """

    n_norms = 0
    adds_to_stream = True

    def read(self, resid: Tensor, sites: LayerSites) -> Tensor:
        return resid

    def write(self, resid: Tensor, attn_out: Tensor, sites: LayerSites) -> Tensor:
        resid = resid + attn_out
        if self.mlp is not None:
            resid = sites.hook_resid_mid(resid)
            mlp_in = resid if sites.hook_mlp_in is None else sites.hook_mlp_in(resid.clone())
            resid = resid + sites.hook_mlp_out(self.mlp(mlp_in, sites.mlp))
        return sites.hook_resid_post(resid)


class ExtendedBlock(DyckBlock):
    """mid = W_R x + LN(Attn(x));  out = DeepMLP(mid).

    Source: bounded-Dyck paper (arXiv:2312.01429) Theorem 3, the layers of its large random network: a weight on the
    residual connection, and a projection of four matrices. Differs: as `DyckBlock`, whose norm keeps its gain at
    one and its bias at zero here; heads have an output matrix.
    """

    mlp_class = DeepMLP
    residual: Linear
    mlp: DeepMLP | None

    def __init__(self, cfg: Any, rows: Sequence[tuple[HeadPattern, ...]] = ((),)):
        super().__init__(cfg, rows)
        self.residual = Linear(cfg.d_model, cfg.d_model, bias=False)

    def write(self, resid: Tensor, attn_out: Tensor, sites: LayerSites) -> Tensor:
        return super().write(self.residual(resid), attn_out, sites)


BLOCKS: dict[str, type[Block]] = {
    "pre_ln": PreLNBlock,
    "post_ln": PostLNBlock,
    "dyck": DyckBlock,
    "minimal": MinimalBlock,
    "bare": BareBlock,
    "extended": ExtendedBlock,
    "no_norm": NoNormBlock,
}
"""Blocks by their name in a config."""


def find_block(name: str) -> type[Block]:
    """The block of this name.

    Raises:
        ValueError: no block has this name.
    """
    if name not in BLOCKS:
        raise ValueError(f"block is {name!r}; choose one of {', '.join(BLOCKS)}, or add it with hooks.register_block.")
    return BLOCKS[name]


@checks_types
def register_block(name: str, block: type[Block]) -> None:
    """Add a block, so that `TransformerConfig(block=name)` builds models of it.

    A checkpoint stores the name only: register the block again before loading it.

    Args:
        name: Its name in configs.
        block: A subclass of `Block` that defines `read` and `write`.

    Raises:
        ValueError: an empty name, the name of another block, or no subclass of `Block`.
    """
    if not isinstance(block, type) or not issubclass(block, Block):
        raise ValueError(f"block is {block!r}; give a subclass of hooks.model.blocks.Block.")
    registered = BLOCKS.get(name, block)
    # The same class again, as when a notebook cell is run twice, replaces itself
    if not name or (registered.__module__, registered.__qualname__) != (block.__module__, block.__qualname__):
        raise ValueError(f"name is {name!r}, which is empty or the name of another block; choose another name.")
    BLOCKS[name] = block
