"""Return types of a model: logits, or the cross entropy of the next token."""

from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hooks.model.layers import check_mask

ReturnType = Literal["logits", "loss", "both"]
"""`both` is the pair (logits, loss)."""


def next_token_loss(
    logits: Float[Tensor, "batch pos d_vocab"],
    tokens: Int[Tensor, "batch pos"],
    attention_mask: Bool[Tensor, "batch pos"] | Int[Tensor, "batch pos"] | None = None,
    *,
    per_token: bool = False,
) -> Float[Tensor, ""] | Float[Tensor, "batch target"]:
    """Cross entropy in nats of each token given the tokens before it, averaged over the targets.

    Args:
        logits: Logits of the model.
        tokens: Its input; every token but the first of each sequence is a target.
        attention_mask: True or 1 for real tokens; padding, and the token after it, is no target.
        per_token: Return one value per target (0 where padding is involved) in place of the mean.

    Raises:
        ValueError: sequences of one token, which has none before it.

    Source: `loss_fn` of TransformerLens, with the same values.
    """
    if tokens.shape[1] < 2:
        raise ValueError(f"tokens is {tuple(tokens.shape)}; a next-token loss needs two positions or more.")
    losses = F.cross_entropy(logits[:, :-1].mT, tokens[:, 1:], reduction="none")
    if attention_mask is None:
        return losses if per_token else losses.mean()
    check_mask(attention_mask)
    real = attention_mask.bool()
    targets = real[:, 1:] & real[:, :-1]
    losses = torch.where(targets, losses, 0.0)
    return losses if per_token else losses.sum() / targets.sum()


def check_return_type(cfg: Any, return_type: str | None, loss_per_token: bool) -> None:
    """Check that a model can return this.

    Raises:
        ValueError: an unknown return type; a loss of a model that sees the next token, or whose logits are not of its
            tokens; or `loss_per_token` without a loss.
    """
    if return_type not in ("logits", "loss", "both", None):
        raise ValueError(f"return_type is {return_type!r}; choose one of 'logits', 'loss', 'both', None.")
    if return_type in (None, "logits"):
        if loss_per_token:
            raise ValueError(f"loss_per_token is on, but return_type is {return_type!r}; make it 'loss' or 'both'.")
        return
    if cfg.attention != "causal":
        raise ValueError(
            f"return_type {return_type!r} is the loss of the next token, which this {cfg.attention} model reads. "
            f"Compute another loss from the logits."
        )
    if cfg.d_vocab_out != cfg.d_vocab:
        raise ValueError(
            f"return_type {return_type!r} is the loss of the next token, but d_vocab_out is {cfg.d_vocab_out} and "
            f"d_vocab {cfg.d_vocab}: these logits are not of tokens. Compute another loss from them."
        )
