"""Search for the inputs on which two functions differ most: gradient ascent on a ball, and exchanges of tokens.

The result is a lower bound on the largest difference: a longer search can only raise it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hooks import Transformer
from hooks.model.checked_hooks import storing_hooks
from interp.core.randomness import derived_generator
from interp.theory.pruning.network import widened

STEPS = 24
"""Steps of gradient ascent over vectors of the unit ball."""
STREAM_STEPS = 24
"""Steps of gradient ascent over residual streams."""
FIRST_STEP, LAST_STEP = 0.3, 0.003
"""Lengths of the first and the last step, as fractions of the radius."""
N_STARTS = 32
"""Random inputs of norm 1 from which gradient ascent starts."""
N_CLIMBED = 8
"""Streams from which the distance between two networks is increased by gradient ascent."""


@dataclass(frozen=True, kw_only=True)
class LargestError:
    """The largest difference found."""

    sampled: float
    """Among the sampled inputs."""
    largest: float
    """Among all inputs, including those of the search."""
    n: int
    """Number of inputs tried."""


@torch.enable_grad()
def climb_on_ball(
    distances: Callable[[Tensor], Float[Tensor, "batch stage"]],
    starts: Float[Tensor, "batch *pos width"],
    *,
    radius: float,
    steps: int,
) -> Float[Tensor, "step stage"]:
    """Increase the distance at the last stage by gradient ascent from every start, with step lengths that fall.

    Each vector along the last axis is projected onto the ball, before the first step and after every step.

    Returns:
        The largest distance over the batch, at every stage, before the first step and after each one.
    """
    inputs = _project_onto_ball(starts.detach(), radius)
    largest = []
    for step in range(steps + 1):
        # Distances at the inputs, and their gradient
        inputs.requires_grad_(True)
        distance = distances(inputs)
        largest.append(distance.detach().amax(0))
        (slope,) = torch.autograd.grad(distance[:, -1].sum(), inputs)
        # One step along the normalised gradient, back onto the ball
        length = radius * FIRST_STEP * (LAST_STEP / FIRST_STEP) ** (step / steps)
        slope_norm = slope.flatten(1).norm(dim=1).clamp_min(1e-30)
        direction = slope / slope_norm.view(-1, *[1] * (inputs.ndim - 1))
        inputs = _project_onto_ball(inputs.detach() + length * direction, radius)
    return torch.stack(largest)


def _project_onto_ball(x: Tensor, radius: float) -> Tensor:
    return x * (radius / x.norm(dim=-1, keepdim=True).clamp_min(1e-30)).clamp_max(1)


def worst_on_unit_ball(
    difference: Callable[[Tensor], Float[Tensor, " batch"]], shape: tuple[int, ...], *, seed: int
) -> LargestError:
    """The largest difference over the unit ball, searched from random inputs of this shape."""
    starts = torch.randn(N_STARTS, *shape, generator=derived_generator(seed, "starts"), dtype=torch.float64)
    starts = starts / starts.norm(dim=-1, keepdim=True)
    history = climb_on_ball(lambda x: difference(x)[:, None], starts, radius=1.0, steps=STEPS)
    errors = history[:, 0].float()  # reported in single precision
    return LargestError(sampled=float(errors[0]), largest=float(errors.max()), n=len(history) * N_STARTS)


@torch.no_grad()
def worst_tokens(
    difference: Callable[[Int[Tensor, "batch pos"]], Float[Tensor, " batch"]],
    tokens: Int[Tensor, "batch pos"],
    *,
    d_vocab: int,
    generator: torch.Generator,
    steps: int,
    climbers: int = 16,
) -> LargestError:
    """Maximise a difference over token sequences by random exchanges of one token, kept if they increase it.

    Only the `climbers` sequences with the largest difference are changed.
    """
    # Start from the sequences with the largest difference
    differences = difference(tokens)
    order = differences.argsort(descending=True)[:climbers]
    sequences, best = tokens[order].clone(), differences[order].clone()
    sampled = float(best.max())
    rows = torch.arange(len(sequences))
    for _ in range(steps):
        # Exchange one token of each sequence; keep the exchanges that increase the difference
        candidates = sequences.clone()
        positions = torch.randint(sequences.shape[1], (len(sequences),), generator=generator)
        candidates[rows, positions] = torch.randint(d_vocab, (len(sequences),), generator=generator)
        differences = difference(candidates)
        better = differences > best
        sequences[better] = candidates[better]
        best[better] = differences[better]
    return LargestError(sampled=sampled, largest=float(best.max()), n=len(tokens) + steps * len(sequences))


def norm_1_2(x: Float[Tensor, "batch *pos width"]) -> Float[Tensor, " batch"]:
    """||X||_{1,2} of the theorem: the largest 2-norm over positions."""
    return x.norm(dim=-1).flatten(1).amax(1) if x.ndim > 2 else x.norm(dim=-1)


def worst_streams(
    distances: Callable[[Tensor], Float[Tensor, "batch stage"]],
    starts: Float[Tensor, "batch pos d_model"],
    *,
    radius: float,
) -> tuple[LargestError, Float[Tensor, " stage"]]:
    """The largest distance at the last stage and at every stage, over the starts and gradient ascent from some."""
    with torch.no_grad():
        sampled = distances(starts).amax(0)
    climbers = starts[:N_CLIMBED]
    history = climb_on_ball(distances, climbers, radius=radius, steps=STREAM_STEPS)
    by_stage = torch.maximum(sampled, history.amax(0))
    n = len(history) * len(climbers) + len(starts)
    return LargestError(sampled=float(sampled[-1]), largest=float(by_stage[-1]), n=n), by_stage


def stream_distances(
    target: Transformer, pruned: Transformer, points: Sequence[str], *, layer: int = 0
) -> Callable[[Tensor], Float[Tensor, "batch stage"]]:
    """Distances of two residual streams as a function of the stream that enters both networks.

    After each random layer of the pruned network, the distance is from the target's hook point in `points`. The target
    is resumed from `layer`, the pruned network from its first layer.
    """
    distinct_points = list(dict.fromkeys(points))
    outputs = [f"blocks.{index}.hook_resid_post" for index in range(len(points))]
    width = target.cfg.d_model

    def distances(stream: Tensor) -> Tensor:
        exact = _resume(target, stream, distinct_points, layer=layer)
        approximate = _resume(pruned, widened(pruned, stream), outputs, layer=0)
        by_layer = []
        for output, point in zip(outputs, points, strict=True):
            by_layer.append(norm_1_2(approximate[output][..., :width] - exact[point]))
        return torch.stack(by_layer, -1)

    return distances


def _resume(
    model: Transformer, stream: Float[Tensor, "batch pos d_model"], points: Sequence[str], *, layer: int
) -> dict[str, Tensor]:
    """Activations at these hook points when the model resumes from a residual stream."""
    activations: dict[str, Tensor] = {}
    with model.hooks(storing_hooks(points, activations)):
        model.resume(stream, layer)
    return activations
