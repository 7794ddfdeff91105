"""Fully connected networks on strings, the baselines of the template paper: one-hot inputs, equalities, embeddings."""

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from hooks.checks import check_class, check_fields
from hooks.model.baseline import Baseline, BaselineConfig
from hooks.model.initialise import draw_normal, draw_uniform
from hooks.model.layers import HookPoint, Linear, LinearWeights, check_ids, check_token_type
from hooks.randomness import seeded_generator
from hooks.typed import check_field_types

Inputs = Literal["one_hot", "one_hot_and_equality", "shared_embedding"]


@dataclass(frozen=True, kw_only=True)
class FullyConnectedConfig(BaselineConfig):
    """Settings of a `hooks.FullyConnected`.

    `n_ctx` is the length of the strings; no other length is accepted.

    Raises:
        ValueError: a size below one, or unknown inputs.
    """

    inputs: Inputs = "one_hot"
    """`one_hot`: one column for each token at each position. `one_hot_and_equality`: also which positions hold equal
    tokens (X X^T). `shared_embedding`: one learned vector per token, the same at all positions."""
    width: int = 1024
    """Hidden units per layer."""
    depth: int = 3
    """Number of affine maps, with ReLU between them."""
    d_embed: int = 64
    """Width of a shared embedding."""

    architecture: ClassVar[str] = "fully_connected"
    kind: ClassVar[str] = "fully connected network"
    attention = "bidirectional"
    """Every output depends on the whole string, as in a bidirectional transformer."""

    def __post_init__(self):
        check_field_types(self)
        check_fields(self, "d_vocab", "n_ctx", "d_vocab_out", "width", "depth", "d_embed", integer=True, low=1)

    @property
    def d_model(self) -> int:
        """Hidden width."""
        return self.width


class FullyConnected(Baseline):
    """A multi-layer perceptron on a string of tokens, with the same output at every position.

    `model(tokens)` gives (batch, pos, d_vocab_out), like a transformer, and is trained and scored in the same way. Hook
    points: `hook_pre.{i}`, the input of each ReLU.

    Source: template paper (arXiv:2310.09753), released code: depth 3, ReLU, concatenated one-hot inputs,
    with or without X X^T. Differs: the width of 1024 is our choice; the paper gives none.

    Args:
        cfg: Inputs and sizes.
        seed: Decides the initial weights: uniform within 1/sqrt(fan_in), shared embeddings N(0, 1), biases 0.
    """

    def __init__(self, cfg: FullyConnectedConfig, *, seed: int = 0):
        super().__init__()
        check_class("cfg", cfg, FullyConnectedConfig)
        self.cfg = cfg
        self.tokenizer = None
        generator = seeded_generator(seed)
        # Sizes of the affine maps; the first one is applied as a sum of columns unless tokens are embedded
        widths = [cfg.width] * (cfg.depth - 1) + [cfg.d_vocab_out]
        fan_in = cfg.n_ctx * (cfg.d_embed if cfg.inputs == "shared_embedding" else cfg.d_vocab)
        if cfg.inputs == "shared_embedding":
            self.embed = nn.Parameter(draw_normal((cfg.d_vocab, cfg.d_embed), generator))
            self.first = Linear(fan_in, widths[0])
        else:
            equalities = cfg.n_ctx**2 if cfg.inputs == "one_hot_and_equality" else 0
            fan_in += equalities
            columns = draw_uniform((cfg.n_ctx * cfg.d_vocab, widths[0]), fan_in**-0.5, generator)
            self.columns = nn.Parameter(columns)
            if equalities:
                self.first = Linear(equalities, widths[0])
            else:
                self.first = LinearWeights(0, widths[0], instead="hook_pre.0")
        later = [Linear(d_in, d_out) for d_in, d_out in pairwise(widths)]
        # Draw the weights, map by map
        self.first.weight.data = draw_uniform(self.first.weight.shape, fan_in**-0.5, generator)
        for layer in later:
            layer.weight.data = draw_uniform(layer.weight.shape, layer.weight.shape[1] ** -0.5, generator)
        self.later = nn.ModuleList(later)
        self.hook_pre = nn.ModuleList(HookPoint() for _ in later)  # (batch, width)
        self.setup()

    def forward(
        self, tokens: Int[Tensor, "batch pos"], attention_mask: None = None, *, depth: None = None
    ) -> Float[Tensor, "batch pos d_vocab_out"]:
        """The output, the same at every position; there is no padding and no choice of depth.

        Raises:
            ValueError: strings of another length than `n_ctx`, or tokens outside the vocabulary.
        """
        check_token_type(tokens)
        if tokens.ndim != 2 or tokens.shape[1] != self.cfg.n_ctx:
            raise ValueError(f"tokens is {tuple(tokens.shape)}; this network reads (batch, {self.cfg.n_ctx}).")
        check_ids(tokens, self.cfg.d_vocab, "tokens", "d_vocab")
        x = self._first(tokens)
        for point, layer in zip(self.hook_pre, self.later, strict=True):
            x = layer(F.relu(point(x)))
        return x[:, None].expand(-1, tokens.shape[1], -1)

    def _first(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch width"]:
        """The first affine map. One-hot inputs times their columns are a sum of chosen columns."""
        if self.cfg.inputs == "shared_embedding":
            return self.first(F.embedding(tokens, self.embed).flatten(1))
        columns = tokens + self.cfg.d_vocab * torch.arange(self.cfg.n_ctx, device=tokens.device)
        column_sum = F.embedding_bag(columns, self.columns, mode="sum")
        if self.cfg.inputs == "one_hot":
            return column_sum + self.first.bias_or_zero
        equalities = (tokens[:, :, None] == tokens[:, None, :]).to(column_sum.dtype).flatten(1)
        return column_sum + self.first(equalities)
