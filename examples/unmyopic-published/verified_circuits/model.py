"""The transformer of the weight files: causal, without norms, read out from the sum over positions.

x = tok[tokens] + pos                                           blocks.0.hook_resid_pre
x = x + attention(x);  x = x + W_2 relu(W_1 x + b_1) + b_2      blocks.0.hook_attn_out, blocks.0.hook_resid_post
p = sum over positions of x                                     hook_pooled
logits = H_2 relu(H_1 p + c_1) + c_2                            the same at every position
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformer_lens.hook_points import HookPoint
from transformer_lens.HookedRootModule import HookedRootModule

WEIGHT_STD = 0.2
"""Standard deviation of untrained weights."""


@dataclass(frozen=True, kw_only=True)
class PooledConfig:
    """Sizes, under TransformerLens's names."""

    n_ctx: int
    """Number of tokens; all inputs have this length."""
    n_layers: int = 2
    n_heads: int = 2
    d_model: int = 32
    d_mlp: int = 64
    d_vocab: int = 2
    d_vocab_out: int = 2

    @property
    def d_head(self) -> int:
        """Width of a head."""
        return self.d_model // self.n_heads


class Attention(nn.Module):
    """Causal attention without biases; scores are divided by the root of the head's width."""

    def __init__(self, cfg: PooledConfig):
        super().__init__()
        self.W_Q, self.W_K, self.W_V = (
            nn.Parameter(torch.empty(cfg.n_heads, cfg.d_model, cfg.d_head)) for _ in range(3)
        )
        self.hook_q, self.hook_k, self.hook_v = HookPoint(), HookPoint(), HookPoint()
        self.W_O = nn.Parameter(torch.empty(cfg.n_heads, cfg.d_head, cfg.d_model))
        self.hook_pattern, self.hook_z = HookPoint(), HookPoint()

    def forward(
        self, x: Float[Tensor, "batch pos d_model"], first_query: int = 0
    ) -> Float[Tensor, "batch query d_model"]:
        """Output of all heads at the positions from `first_query` on."""
        q = self.hook_q(_by_head(x[:, first_query:], self.W_Q))
        k = self.hook_k(_by_head(x, self.W_K))
        v = self.hook_v(_by_head(x, self.W_V))
        scores = q.transpose(1, 2) @ k.permute(0, 2, 3, 1) / q.shape[-1] ** 0.5
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        pattern = self.hook_pattern(scores.masked_fill(later[first_query:], -torch.inf).softmax(-1))
        z = self.hook_z((pattern @ v.transpose(1, 2)).transpose(1, 2))
        return z.flatten(2) @ self.W_O.flatten(0, 1)


def _by_head(
    x: Float[Tensor, "batch pos d_model"], weight: Float[Tensor, "head d_model d_head"]
) -> Float[Tensor, "batch pos head d_head"]:
    """A map of each head, as one matrix product."""
    n_heads, _, d_head = weight.shape
    return (x @ weight.transpose(0, 1).flatten(1)).unflatten(2, (n_heads, d_head))


class Block(nn.Module):
    """Attention, then an MLP, each added to the residual stream."""

    def __init__(self, cfg: PooledConfig):
        super().__init__()
        self.attn = Attention(cfg)
        self.mlp = nn.Sequential(nn.Linear(cfg.d_model, cfg.d_mlp), nn.ReLU(), nn.Linear(cfg.d_mlp, cfg.d_model))
        self.hook_resid_pre, self.hook_attn_out = HookPoint(), HookPoint()
        self.hook_mlp_out, self.hook_resid_post = HookPoint(), HookPoint()

    def forward(
        self, x: Float[Tensor, "batch pos d_model"], first_query: int = 0
    ) -> Float[Tensor, "batch query d_model"]:
        """The residual stream after the block, at the positions from `first_query` on."""
        x = self.hook_resid_pre(x)
        x = x[:, first_query:] + self.hook_attn_out(self.attn(x, first_query))
        return self.add_mlp(x)

    def add_mlp(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """The residual stream after the block, from that after attention."""
        return self.hook_resid_post(x + self.hook_mlp_out(self.mlp(x)))


class PooledTransformer(HookedRootModule):
    """A causal transformer whose logits are an MLP of the sum of its last residual stream over positions.

    Verbs take it as any `HookedRootModule`. Every position has the same logits, so a task may read them anywhere.

    Args:
        cfg: Sizes.
        seed: Seed of the untrained weights.
    """

    def __init__(self, cfg: PooledConfig, *, seed: int = 0):
        super().__init__()
        self.cfg = cfg  # pyright: ignore[reportAttributeAccessIssue]
        self.embed = nn.Embedding(cfg.d_vocab, cfg.d_model)
        self.positions = nn.Embedding(cfg.n_ctx, cfg.d_model)
        self.blocks = nn.ModuleList(Block(cfg) for _ in range(cfg.n_layers))
        self.hook_pooled = HookPoint()
        self.hidden = nn.Linear(cfg.d_model, cfg.d_model)
        self.unembed = nn.Linear(cfg.d_model, cfg.d_vocab_out)
        self.setup()
        # Untrained weights, without torch's global generator
        generator = torch.Generator().manual_seed(seed)
        for weight in self.parameters():
            nn.init.normal_(weight, std=WEIGHT_STD, generator=generator)

    def forward(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos d_vocab_out"]:
        """Logits, the same at every position."""
        x = self.embed_tokens(tokens)
        for block in self.blocks:
            x = block(x)
        logits = self.read_out(self.hook_pooled(x.sum(1)))
        return logits[:, None].expand(-1, tokens.shape[1], -1)

    def embed_tokens(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos d_model"]:
        """The sum of token and position embeddings."""
        return self.embed(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))

    def read_out(self, pooled: Float[Tensor, "batch d_model"]) -> Float[Tensor, "batch d_vocab_out"]:
        """Logits from the sum over positions."""
        return self.unembed(self.hidden(pooled).relu())

    def untrained(self, seed: int) -> "PooledTransformer":
        """The same model with random weights."""
        return PooledTransformer(self.cfg, seed=seed)  # pyright: ignore[reportArgumentType]
