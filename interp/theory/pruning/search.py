"""Search for the inputs on which two functions differ most: gradient ascent on a ball, and exchanges of tokens.

The result is a lower bound on the largest difference: a longer search can only raise it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hooks import Transformer
from hooks.model.storing import storing
from interp.theory.pruning.network import widened

STEPS = 24
FIRST_STEP, LAST_STEP = 0.3, 0.003
"""Lengths of the first and the last step, as fractions of the radius."""
N_CLIMBED = 8
"""Streams from which the distance between two networks is increased by gradient ascent."""


@dataclass(frozen=True, kw_only=True)
class Worst:
    """The largest difference found."""

    sampled: float
    """Among the sampled inputs."""
    found: float
    """Among all inputs, including those of the search."""
    n: int
    """Number of inputs tried."""


def worst_on_ball(
    difference: Callable[[Tensor], Float[Tensor, " batch"]],
    starts: Float[Tensor, "batch *pos width"],
    *,
    radius: float,
    steps: int = STEPS,
) -> Worst:
    """Maximise a difference by gradient ascent from every start, with step lengths that fall geometrically.

    Each vector along the last axis is projected onto the ball, before the first step and after every step.
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
    """Maximise a difference over token sequences by random exchanges of one token, kept if they increase it.

    Only the `climbers` sequences with the largest difference are changed.
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
    """||X||_{1,2} of the theorem: the largest 2-norm over positions."""
    return x.norm(dim=-1).flatten(1).amax(1) if x.ndim > 2 else x.norm(dim=-1)


def stream_distances(
    target: Transformer, small: Transformer, names: Sequence[str], *, layer: int = 0
) -> Callable[[Tensor], Float[Tensor, "batch stage"]]:
    """Distances of two residual streams as a function of the stream that enters both networks.

    After each random layer of the pruned network `small`, the distance is from the target's hook point in `names`. The
    target is resumed from `layer`, the pruned network from its first layer.
    """
    points = list(dict.fromkeys(names))
    posts = [f"blocks.{index}.hook_resid_post" for index in range(len(names))]
    width = target.cfg.d_model

    def distances(stream: Tensor) -> Tensor:
        wanted = dict(zip(points, _resumed(target, stream, points, layer=layer), strict=True))
        found = _resumed(small, widened(small, stream), posts)
        pairs = zip(found, names, strict=True)
        return torch.stack([norm_1_2(one[..., :width] - wanted[name]) for one, name in pairs], -1)

    return distances


def _resumed(
    model: Transformer, stream: Float[Tensor, "batch pos d_model"], names: Sequence[str], *, layer: int = 0
) -> list[Tensor]:
    """Activations at these hook points when the model resumes from a residual stream."""
    found: dict[str, Tensor] = {}
    with model.hooks(storing(names, found)):
        model.resume(stream, layer)
    return [found[name] for name in names]


def largest_distances(
    distances: Callable[[Tensor], Float[Tensor, "batch stage"]],
    starts: Float[Tensor, "batch pos d_model"],
    *,
    radius: float,
) -> tuple[Float[Tensor, " stage"], Worst]:
    """The largest distance found at every stage, over the starts and the gradient ascent from some of them."""
    with torch.no_grad():
        seen = [distances(starts).amax(0)]

    def last(stream: Tensor) -> Tensor:
        found = distances(stream)
        seen.append(found.detach().amax(0))
        return found[:, -1]

    worst = worst_on_ball(last, starts[:N_CLIMBED], radius=radius, steps=STEPS)
    largest = torch.stack(seen).amax(0)
    return largest, Worst(sampled=float(seen[0][-1]), found=float(largest[-1]), n=worst.n + len(starts))
