"""BERT and ALBERT as published: token types, LayerNorm on the embeddings, masked-LM head, pooler."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from hooks.checks import check_fields
from hooks.model.config import BlockName, Initialisation, TransformerConfig
from hooks.model.embeddings import TokenEmbedding
from hooks.model.layers import HookPoint, Identity, LayerNorm, Linear, Module, NormSites, activate
from hooks.model.transformer import Mask, TransformerStack
from hooks.typed import check_field_types

EncoderHead = Literal["masked_lm", "linear", "none"]


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(TransformerConfig):
    """Settings of a `hooks.Encoder`: those of a transformer, and those that BERT and ALBERT add.

    Raises:
        ValueError: as `TransformerConfig`; an unknown head, a read-out that does not fit the head, or bracket states.
    """

    architecture: ClassVar[str] = "encoder"
    block: BlockName | str = "post_ln"
    init: Initialisation = "normal"
    n_token_types: int = 0
    """Number of token types (first text, second text), each with a learned vector; 0: none."""
    d_embedding: int = 0
    """Width of token, position and type embeddings, projected to `d_model` by a Linear (ALBERT); 0: `d_model`, and no
    Linear."""
    embedding_norm: bool = True
    """A LayerNorm on the sum of the embeddings."""
    head: EncoderHead = "masked_lm"
    """`masked_lm`: dense, activation, LayerNorm, then one row per token and a bias. `linear`: one Linear. `none`: the
    logits are the last hidden states."""
    tied_embedding: bool | None = None  # pyright: ignore[reportIncompatibleVariableOverride]
    """The rows of the masked-LM head are the token embedding. None: yes, if the head is `masked_lm`."""
    pooler: bool = False
    """Has the weights of `Encoder.pool`."""

    def __post_init__(self):
        check_field_types(self)
        check_fields(self, "n_token_types", "d_embedding", integer=True, low=0)
        if self.embedding is not None:
            raise ValueError("embedding holds bracket states; an encoder learns a vector per token. Remove it.")
        if self.tied_embedding and self.head != "masked_lm":
            raise ValueError(
                f"tied_embedding is on, but head is {self.head!r}; only masked_lm reads out with an embedding."
            )
        # Only a linear head has a free number of outputs
        required = {"masked_lm": self.d_vocab, "none": self.d_model}.get(self.head, self.d_vocab_out)
        if self.d_vocab_out not in (0, required):
            name = "d_vocab" if self.head == "masked_lm" else "d_model"
            raise ValueError(
                f"d_vocab_out is {self.d_vocab_out}; with head {self.head!r} it is {name}, {required}. Remove it."
            )
        object.__setattr__(self, "d_vocab_out", required)
        if self.tied_embedding is None:
            object.__setattr__(self, "tied_embedding", self.head == "masked_lm")
        super().__post_init__()

    @property
    def embedding_width(self) -> int:
        """Width of the embeddings, before any Linear."""
        return self.d_embedding or self.d_model

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {"architecture": self.architecture, **super().to_dict()}


class MaskedLMHead(Module):
    """y = LN(act(x W + b)) E^T + c, where E is the token embedding or a separate matrix."""

    def __init__(self, cfg: EncoderConfig, embed: TokenEmbedding):
        super().__init__()
        width = cfg.embedding_width
        self.activation = cfg.activation
        self.dense = Linear(cfg.d_model, width)
        self.norm = LayerNorm(width, cfg.layer_norm_eps)
        self.rows = None if cfg.tied_embedding else nn.Parameter(torch.empty(cfg.d_vocab, width))
        self.bias = nn.Parameter(torch.zeros(cfg.d_vocab))
        self._embed = (embed,)  # in a tuple, so that its parameters are not registered twice

    def forward(
        self, x: Float[Tensor, "*batch d_model"], sites: NormSites | None = None
    ) -> Float[Tensor, "*batch d_vocab"]:
        """Logits; without sites (for a logit lens) there are no hook points."""
        hidden = activate(self.dense(x), self.activation)
        hidden = self.norm(hidden, NormSites(self.norm) if sites is None else sites)
        return F.linear(hidden, self.weight, self.bias)

    @property
    def weight(self) -> Float[Tensor, "d_vocab width"]:
        """One row per token."""
        return self._embed[0].weight if self.rows is None else self.rows

    @property
    def bias_or_zero(self) -> Float[Tensor, " d_vocab"]:
        return self.bias


class Encoder(TransformerStack):
    """A transformer with BERT's and ALBERT's inputs and heads.

    Hook points, in addition to those of a `Transformer`: `hook_token_type_embed`, `ln_embed` (LayerNorm on the
    embeddings) and `ln_head` (LayerNorm inside the masked-LM head). If the embedding is factorised, `hook_embed`,
    `hook_pos_embed` and `hook_token_type_embed` are (batch, pos, d_embedding), `W_E` is (d_vocab, d_embedding), and
    `blocks.0.hook_resid_pre` comes after the Linear.

    Args:
        cfg: Architecture and sizes.
        seed: Decides the initial weights, without torch's global generator.

    Source: Devlin et al. 2018 (arXiv:1810.04805); Lan et al. 2019 (arXiv:1909.11942). Differs: no dropout.
    """

    config_class = EncoderConfig
    cfg: EncoderConfig

    def forward(
        self,
        tokens: Int[Tensor, "batch pos"] | str | Sequence[str],
        attention_mask: Mask | None = None,
        *,
        position_ids: Int[Tensor, "#batch pos"] | None = None,
        token_type_ids: Int[Tensor, "batch pos"] | None = None,
        depth: int | None = None,
        read_at: Int[Tensor, "batch read"] | None = None,
    ) -> Float[Tensor, "batch read d_vocab_out"]:
        """Logits at every position. Arguments as in `Transformer.forward`, without `return_type`, and:

        Args:
            token_type_ids: Type of each token, 0 to `n_token_types` - 1; default: all 0.

        Raises:
            ValueError: as `Transformer.forward`; token types of another shape, out of range, or for a model without
                them.
        """
        if not isinstance(tokens, Tensor):
            tokens = self.to_tokens(tokens)
        inputs = {"position_ids": position_ids, "token_type_ids": token_type_ids}
        return self._compute_logits(tokens, attention_mask, depth, read_at, **inputs)

    def _embed_tokens(
        self,
        tokens: Int[Tensor, "batch pos"],
        position_ids: Int[Tensor, "#batch pos"] | None = None,
        token_type_ids: Int[Tensor, "batch pos"] | None = None,
    ) -> Float[Tensor, "batch pos d_model"]:
        """The sum of all embeddings, normalised, and projected to d_model if they are narrower."""
        resid = super()._embed_tokens(tokens, position_ids)
        # Add the types of the tokens
        if self.token_types is not None:
            type_ids = torch.zeros_like(tokens) if token_type_ids is None else token_type_ids
            if type_ids.shape != tokens.shape:
                raise ValueError(f"token_type_ids is {tuple(type_ids.shape)}; tokens is {tuple(tokens.shape)}.")
            resid = resid + self.hook_token_type_embed(self.token_types(type_ids))
        elif token_type_ids is not None:
            raise ValueError("token_type_ids is given, but n_token_types of this model is 0; remove it.")
        # Normalise, and project to d_model
        if self.norm_embed is not None:
            resid = self.norm_embed(resid, self.ln_embed)
        return resid if self.embed_up is None else self.embed_up(resid)

    def read_out(self, resid: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_vocab_out"]:
        """Logits from the last residual stream."""
        if self.ln_head is None:
            return super().read_out(resid)
        hidden = resid if self.norm_final is None else self.norm_final(resid, self.ln_final)
        return self.unembed(hidden, self.ln_head)

    def pool(self, hidden: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch d_model"]:
        """One vector per text, tanh(W h_0 + b), from the last hidden states (`hook_resid_post` of the last layer).

        Raises:
            ValueError: this model has no pooler.
        """
        if self.pooler is None:
            raise ValueError("this model has no pooler; make it with pooler=True, or load one that has it.")
        return self.pooler(hidden[:, 0]).tanh()

    def _make_weights(self, cfg: EncoderConfig) -> None:
        super()._make_weights(cfg)
        width = cfg.embedding_width
        self.token_types = None
        if cfg.n_token_types:
            self.token_types = TokenEmbedding(cfg.n_token_types, width, ids="token_type_ids", limit="n_token_types")
        self.norm_embed = LayerNorm(width, cfg.layer_norm_eps) if cfg.embedding_norm else None
        self.embed_up = Linear(width, cfg.d_model) if cfg.d_embedding else None
        self.pooler = Linear(cfg.d_model, cfg.d_model) if cfg.pooler else None

    def _make_embedding(self, cfg: EncoderConfig) -> nn.Module:
        return TokenEmbedding(cfg.d_vocab, cfg.embedding_width)

    def _make_read_out(self, cfg: EncoderConfig) -> nn.Module:
        if cfg.head == "masked_lm":
            return MaskedLMHead(cfg, self.embed)
        return Linear(cfg.d_model, cfg.d_vocab_out) if cfg.head == "linear" else Identity(cfg.d_model)

    def _make_input_sites(self) -> None:
        super()._make_input_sites()
        if self.token_types is not None:
            self.hook_token_type_embed = HookPoint()
        self.ln_embed = None if self.norm_embed is None else NormSites(self.norm_embed)
        self.ln_head = NormSites(self.unembed.norm) if self.cfg.head == "masked_lm" else None

    @property
    def W_U(self) -> Float[Tensor, "d_model d_vocab_out"]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The read-out.

        Raises:
            ValueError: the head is not linear.
        """
        if self.cfg.head == "masked_lm":
            raise ValueError(
                "this model has no W_U: its masked-LM head is not linear (dense, activation, LayerNorm, read-out). "
                "Use model.read_out(resid) for the logits of a residual stream, or model.unembed.weight for the rows."
            )
        return self.unembed.weight.T
