"""A linear subspace in which a variable is learned to be, by gradient descent on the answers after an interchange."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from interp.algorithms.predictions import Prediction
from interp.core.interchange import Interchange, Place, Rows, Site

Scores = Callable[[Float[Tensor, "pair target d_vocab_out"]], Float[Tensor, "pair target choice"]]
"""Scores of the possible answers, from logits."""
MOST_DIMENSIONS = 4
"""Largest dimension of a learned subspace; with n values of a variable it is at most n - 1."""
STEPS, RATE = 60, 0.02
"""Passes, and the learning rate: a small search, so that it cannot memorise pairs."""


def learned_basis(
    engine: Interchange,
    site: Site,
    place: Place,
    rows: Rows,
    prediction: Prediction,
    *,
    start: Float[Tensor, "width rank"],
    scores: Scores,
    order: Int[Tensor, " half"] | None = None,
) -> Float[Tensor, "width rank"]:
    """Learn an orthonormal basis such that an interchange in its span gives the predicted answers.

    Args:
        engine: The model.
        site: Where to learn it.
        place: At which positions.
        rows: The pairs of inputs to learn from, which are the first ones of the prediction.
        prediction: The answers to aim at, changed and unchanged, of a variable with one value for each example.
        start: Directions to begin with.
        scores: Scores of answers.
        order: Pairs whose predicted answers are aimed at, shuffled as a control; default: each its own.

    Source: distributed alignment search, Geiger et al. 2024 (arXiv:2303.02536). Differs: few steps, a fixed dimension,
    and a start from the means of the variable's values.
    """
    from transformer_lens.tools.analysis.interchange import SubspaceInterchange  # takes a second to import

    # The answers to aim at: those of each pair, or of another one.
    aimed_at = torch.arange(len(rows)) if order is None else order
    answers = prediction.answers[0][aimed_at]
    counted = (prediction.changed | prediction.unchanged)[0][aimed_at]
    weights = start.clone().to(engine.logits.device).requires_grad_()
    optimiser = torch.optim.Adam([weights], lr=RATE)
    lowest_loss = float("inf")
    best = weights.detach().clone()
    if not counted.any():
        return _orthonormal(best)

    def interchange(base: Tensor, source: Tensor) -> Tensor:
        return SubspaceInterchange(_orthonormal(weights))(base, source)

    with torch.enable_grad():
        for _ in range(STEPS):
            # Gradients of the loss over all pairs, one chunk after the other.
            optimiser.zero_grad()
            total = 0.0
            for pairs, logits in engine.logits_by_chunk(site, place, rows, interchange):
                chunk_counted = counted[pairs]
                chunk_scores = scores(logits)[chunk_counted.to(logits.device)]
                labels = answers[pairs][chunk_counted].to(chunk_scores.device)
                loss = F.cross_entropy(chunk_scores, labels, reduction="sum")
                loss.backward(inputs=[weights])  # the model keeps its own gradients
                total += float(loss.detach())
            # Keep the best weights: Adam moves away even from a perfect start.
            if total < lowest_loss:
                lowest_loss = total
                best = weights.detach().clone()
            optimiser.step()
    return _orthonormal(best)


def _orthonormal(weights: Float[Tensor, "width rank"]) -> Float[Tensor, "width rank"]:
    return torch.linalg.qr(weights)[0]
