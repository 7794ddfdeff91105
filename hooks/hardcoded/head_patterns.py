"""Attention patterns that are written down instead of learned.

A `HeadPattern` turns token ids into one head's attention map. The maps are computed once per batch and
shared by every layer that uses them.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

PatternKind = Literal["learned", "uniform", "association", "local", "broadcast", "convolution"]


@dataclass(frozen=True, kw_only=True)
class HeadPattern:
    """Where one head attends.

    `learned` is ordinary query-key attention. The other kinds ignore queries and keys: `uniform` over
    every key the query may see, `association` over keys with the query's own token id (itself included),
    `local` over neighbours weighted by `kernel`, `broadcast` over the keys that hold `token`. `convolution` weighs
    neighbours by learned kernels, one per coordinate, and is found only where a config has `pathways`.

    Source: LEGO (arXiv:2206.04301) Section 5, maps row-normalised. Differs: a row with no key to attend
    to (a `broadcast` token that is absent) falls back to uniform, so that every row sums to one.
    """

    kind: PatternKind = "learned"
    kernel: tuple[float, ...] = ()
    """`local` only: weights by offset, centre in the middle, an odd number of them."""
    token: int | None = None
    """`broadcast` only: the token id attended to."""

    def __post_init__(self):
        if self.kind not in get_args(PatternKind):
            raise ValueError(f"kind is {self.kind!r}; choose one of {', '.join(get_args(PatternKind))}.")
        if (self.kind == "local") != bool(self.kernel):
            raise ValueError(f"kernel is {self.kernel!r} for kind {self.kind!r}; give it for 'local' and only there.")
        if self.kernel and (len(self.kernel) % 2 == 0 or min(self.kernel) < 0 or sum(self.kernel) <= 0):
            raise ValueError(f"kernel is {self.kernel}; give an odd number of weights, none negative, not all zero.")
        if (self.kind == "broadcast") != (self.token is not None):
            raise ValueError(f"token is {self.token!r} for kind {self.kind!r}; give it for 'broadcast' and only there.")

    @property
    def learned(self) -> bool:
        """True when queries and keys decide where this head attends."""
        return self.kind == "learned"


def attention_map(
    pattern: HeadPattern,
    tokens: Int[Tensor, "batch pos"],
    allowed: Bool[Tensor, "#batch #query key"],
) -> Float[Tensor, "batch query key"]:
    """The row-normalised attention map of a pattern that is not learned.

    Args:
        pattern: Any kind but `learned` and `convolution`.
        tokens: Token ids.
        allowed: Keys that each query may see (causality and padding).

    Raises:
        ValueError: the pattern is learned, so that there is no map to write down.
    """
    batch, pos = tokens.shape
    if pattern.kind in ("learned", "convolution"):
        raise ValueError(f"pattern is {pattern.kind!r}; only a hard-coded pattern has a map.")
    if pattern.kind == "association":
        weight = (tokens[:, :, None] == tokens[:, None, :]).float()
    elif pattern.kind == "broadcast":
        weight = (tokens == pattern.token).float()[:, None, :].expand(batch, pos, pos)
    elif pattern.kind == "local":
        weight = local_band(pos, pattern.kernel).to(tokens.device).expand(batch, pos, pos)
    else:
        weight = torch.ones(batch, pos, pos, device=tokens.device)
    weight = weight * allowed
    weight = torch.where(weight.sum(-1, keepdim=True) > 0, weight, allowed.float())
    return weight / weight.sum(-1, keepdim=True)


def local_band(pos: int, kernel: tuple[float, ...]) -> Float[Tensor, "query key"]:
    """A band matrix: row q holds `kernel` centred on q, cut off at the edges, not normalised."""
    weights = torch.tensor(kernel, dtype=torch.float32)
    offset = torch.arange(pos)[None, :] - torch.arange(pos)[:, None] + len(kernel) // 2
    inside = (offset >= 0) & (offset < len(kernel))
    return weights[offset.clamp(0, len(kernel) - 1)] * inside
