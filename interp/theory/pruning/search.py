"""Where do two functions differ most? Inputs climbed to, from where sampling has put them.

What is found is a lower bound of the true largest difference: a longer search can only find more.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

STEPS = 24
FIRST_STEP, LAST_STEP = 0.3, 0.003
"""Lengths of the first and the last step, over the radius."""


@dataclass(frozen=True, kw_only=True)
class Worst:
    """The largest difference found."""

    sampled: float
    """Among the inputs as they were sampled."""
    found: float
    """Among all inputs seen, those climbed to included."""
    n: int
    """How many inputs were seen."""


def worst_on_ball(
    difference: Callable[[Tensor], Float[Tensor, " batch"]],
    starts: Float[Tensor, "batch *pos width"],
    *,
    radius: float,
    steps: int = STEPS,
) -> Worst:
    """Climb the difference from every start, by steps along the gradient whose length falls geometrically.

    Args:
        difference: Of each input, differentiable.
        starts: Inputs sampled; each vector along the last axis is first brought within the ball.
        radius: Of the ball, for each vector along the last axis.
        steps: How many.
    """
    at = _within(starts.detach(), radius)
    best, sampled = torch.full((len(at),), -torch.inf), None
    for step in range(steps + 1):
        at.requires_grad_(True)
        found = difference(at)
        best = torch.maximum(best, found.detach().to(best))
        sampled = best.max() if sampled is None else sampled
        (slope,) = torch.autograd.grad(found.sum(), at)
        length = radius * FIRST_STEP * (LAST_STEP / FIRST_STEP) ** (step / steps)
        slope = slope / slope.flatten(1).norm(dim=1).clamp_min(1e-30).view(-1, *[1] * (at.ndim - 1))
        at = _within(at.detach() + length * slope, radius)
    assert sampled is not None
    return Worst(sampled=float(sampled), found=float(best.max()), n=(steps + 1) * len(starts))


@torch.no_grad()
def worst_tokens(
    difference: Callable[[Int[Tensor, "batch pos"]], Float[Tensor, " batch"]],
    tokens: Int[Tensor, "batch pos"],
    *,
    d_vocab: int,
    generator: torch.Generator,
    steps: int,
    climbers: int = 16,
) -> Worst:
    """Exchange tokens of the sequences that are worst, one at a time, and keep what makes them worse.

    Args:
        difference: Of each sequence.
        tokens: Sequences sampled.
        d_vocab: Tokens there are.
        generator: Decides which token becomes which.
        steps: Exchanges tried for each.
        climbers: How many of the worst sequences are made worse.
    """
    found = difference(tokens)
    order = found.argsort(descending=True)[:climbers]
    at, best = tokens[order].clone(), found[order].clone()
    sampled, rows = float(best.max()), torch.arange(len(at))
    for _ in range(steps):
        tried = at.clone()
        where = torch.randint(at.shape[1], (len(at),), generator=generator)
        tried[rows, where] = torch.randint(d_vocab, (len(at),), generator=generator)
        now = difference(tried)
        better = now > best
        at[better], best[better] = tried[better], now[better]
    return Worst(sampled=sampled, found=float(best.max()), n=len(tokens) + steps * len(at))


def _within(x: Tensor, radius: float) -> Tensor:
    return x * (radius / x.norm(dim=-1, keepdim=True).clamp_min(1e-30)).clamp_max(1)


def norm_1_2(x: Float[Tensor, "batch *pos width"]) -> Float[Tensor, " batch"]:
    """The largest 2-norm of any position's vector: the theorem's ||X||_{1,2}."""
    return x.norm(dim=-1).flatten(1).amax(1) if x.ndim > 2 else x.norm(dim=-1)
