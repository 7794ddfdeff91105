"""A linear subspace in which a variable is learned to be, by gradient descent on the answers after an interchange."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from interp.algorithms.interchange import Interchange, Place, Site
from interp.algorithms.predictions import Prediction
from interp.core.randomness import derived_generator

Choices = Callable[[Float[Tensor, "pair target d_vocab_out"]], Float[Tensor, "pair target choice"]]
"""Scores of the possible answers, from logits."""
MOST_DIMENSIONS = 4
"""Largest dimension of a learned subspace; with n values of a variable it is at most n - 1."""
STEPS, RATE = 60, 0.02
"""Passes over few pairs, and the learning rate: a small search, so that it cannot fit pairs by heart."""


def learned_basis(
    engine: Interchange,
    site: Site,
    place: Place,
    one: Prediction,
    rank: int,
    *,
    choices: Choices,
    shuffled: bool = False,
    seed: int = 0,
) -> Float[Tensor, "width rank"]:
    """Learn an orthonormal basis such that an interchange in its span gives the predicted answers.

    Args:
        engine: The model on pairs of inputs, the first half of which are learned from.
        site: Where to learn it.
        place: At which positions.
        one: The answers to aim at: telling and kept ones, of one value for each example.
        rank: Dimension of the subspace.
        choices: Scores of answers.
        shuffled: Aim at the answers that are predicted for other pairs, as a control.
        seed: Determines the start and the shuffling.

    Source: distributed alignment search, Geiger et al. 2024 (arXiv:2303.02536). Differs: few steps, a fixed dimension.
    """
    generator = derived_generator(seed, "subspace", str(site), place.name, one.variable.name)
    half = len(place.base) // 2
    order = torch.arange(len(place.base))
    if shuffled:
        order = torch.cat([torch.randperm(half, generator=generator), order[half:]])
    wanted, counted = one.answers[0][order], (one.telling | one.kept)[0][order]
    width = engine.activations(site, place)[0].shape[1]
    weights = torch.randn(width, min(rank, MOST_DIMENSIONS), generator=generator)
    weights = weights.to(engine.logits.device).requires_grad_()
    optimiser = torch.optim.Adam([weights], lr=RATE)
    step = 0
    with torch.enable_grad():
        while step < STEPS:
            for start, logits in engine.parts(site, place, lambda: _orthonormal(weights), half):
                rows = slice(start, start + len(logits))
                here = counted[rows].clone()
                here[max(0, half - start) :] = False
                if not here.any():
                    continue
                scores = choices(logits)[here.to(logits.device)]
                loss = F.cross_entropy(scores, wanted[rows][here].to(scores.device))
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                step += 1
                if step == STEPS:
                    break
            else:
                if not counted[:half].any():
                    break
    return _orthonormal(weights).detach()


def _orthonormal(weights: Float[Tensor, "width rank"]) -> Float[Tensor, "width rank"]:
    return torch.linalg.qr(weights)[0]
