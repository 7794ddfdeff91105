"""How far apart are the streams of a pruned network and of its target, layer by layer?"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from hooks import Transformer
from interp.theory.pruning.network import widened
from interp.theory.pruning.search import Worst, norm_1_2, worst_on_ball

CLIMBERS, CLIMB_STEPS = 8, 24


def caught(
    model: Transformer, stream: Float[Tensor, "batch pos d_model"], names: Sequence[str], *, layer: int = 0
) -> list[Tensor]:
    """What passes these hook points when the model goes on from a stream."""
    found: dict[str, Tensor] = {}

    def keep(activation: Tensor, hook: Any) -> None:
        found[hook.name] = activation

    with model.hooks([(name, keep) for name in names]):
        model.resume(stream, layer)
    return [found[name] for name in names]


def stages(cfg: Any, layers: Sequence[int]) -> list[str]:
    """Hook points of the target after each half of these layers: attention and norm, then the MLP."""
    mid = "hook_resid_post" if cfg.attn_only else "hook_resid_mid"
    return [f"blocks.{layer}.{name}" for layer in layers for name in (mid, "hook_resid_post")]


def stream_distances(
    target: Transformer, small: Transformer, names: Sequence[str], *, layer: int = 0
) -> Callable[[Tensor], Float[Tensor, "batch stage"]]:
    """Of each input stream, the distance after each random layer to a hook point of the target."""
    points = list(dict.fromkeys(names))
    posts = [f"blocks.{index}.hook_resid_post" for index in range(len(names))]
    width = target.cfg.d_model

    def distances(stream: Tensor) -> Tensor:
        wanted = dict(zip(points, caught(target, stream, points, layer=layer), strict=True))
        found = caught(small, widened(small, stream), posts)
        pairs = zip(found, names, strict=True)
        return torch.stack([norm_1_2(one[..., :width] - wanted[name]) for one, name in pairs], -1)

    return distances


def largest_distances(
    distances: Callable[[Tensor], Float[Tensor, "batch stage"]],
    starts: Float[Tensor, "batch pos d_model"],
    *,
    radius: float,
) -> tuple[Float[Tensor, " stage"], Worst]:
    """The largest distances found, at every stage, on the starts and on the way up from some of them."""
    with torch.no_grad():
        largest = distances(starts).amax(0)
    seen = [largest]

    def last(stream: Tensor) -> Tensor:
        found = distances(stream)
        seen.append(found.detach().amax(0))
        return found[:, -1]

    worst = worst_on_ball(last, starts[:CLIMBERS], radius=radius, steps=CLIMB_STEPS)
    largest = torch.stack(seen).amax(0)
    sampled = float(seen[0][-1])
    return largest, Worst(sampled=sampled, found=float(largest[-1]), n=worst.n + len(starts))
