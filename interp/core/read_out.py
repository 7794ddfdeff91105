"""Logits of any residual stream, and the directions of the stream that logit differences are read from.

Both run the model's own read-out, whatever it is made of, and so are the same for our models and for wrapped ones.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hooks.interventions.clean_pass import Net
from hooks.model.checked_hooks import storing_hooks
from hooks.state import evaluation_mode
from interp.core.activations import examples_per_pass
from interp.core.devices import device_of
from interp.tasks.base import Batch, logits_at_targets
from interp.tasks.batch import check_finite_logits

MOST_LOGITS = 1 << 24
"""Largest number of logits of targets in memory at a time, if there is more than one sequence."""


def read_out(model: Net, streams: Float[Tensor, "row d_model"]) -> Float[Tensor, "row d_vocab_out"]:
    """Logits of residual streams: final norm, if there is one, and unembedding."""
    streams = streams.to(_dtype(model))
    return _not_half(model.read_out(streams[None])[0])


def check_read_out(error: float, size: float) -> None:
    """Check that logits computed from the last residual stream are those of the model.

    Raises:
        ValueError: an error of more than a thousandth of the size of logits, or of 1.
    """
    if error > 1e-3 * max(1.0, size):
        raise ValueError(
            f"the read-out of this model is not a function of the residual stream at a position: after the last layer "
            f"its logits differ by {error:.2g} from those of the model. Use probe."
        )


def chunk_size(model: Net, batch: Batch) -> int:
    """Examples to read out at a time, of which a pass has the logits of every position; two are compared at least."""
    n_places = max(batch.tokens.shape[1], batch.labels.shape[1])
    most = MOST_LOGITS // max(1, n_places * model.cfg.d_vocab_out)
    return max(2, min(examples_per_pass(batch, device_of(model)), most))


@torch.no_grad()
def rows_at_targets(model: Net, batch: Batch, names: Sequence[str]) -> tuple[Tensor, dict[str, Tensor]]:
    """Logits and activations at the targets that examples have: a row for each, in the order of `batch.present`.

    Activations of heads are flattened to one axis. Half precision becomes float32.

    Raises:
        ValueError: an activation that is not finite.
    """
    moved = batch.to(device_of(model))
    activations: dict[str, Tensor] = {}

    def rows_of(activation: Tensor) -> Float[Tensor, "row width"]:
        return _not_half(logits_at_targets(activation.flatten(2), moved)[moved.present])

    hooks: Any = storing_hooks(names, activations, transform=rows_of)
    inputs: Any = moved.model_inputs()
    logits = model.run_with_hooks(moved.tokens, **inputs, fwd_hooks=hooks)
    for name, rows in activations.items():
        if not rows.isfinite().all():
            raise ValueError(f"{name} has a value that is not finite. Did training diverge? Check the model's weights.")
    logits_of_rows = rows_of(logits)
    check_finite_logits(logits_of_rows)
    return logits_of_rows, activations


def contrasts_of(labels: Int[Tensor, " row"], n_answers: int, d_vocab_out: int) -> Float[Tensor, "row d_vocab_out"]:
    """Weights of the logits in the contrast of an answer with the mean of all others: 1, and -1 / (n_answers - 1)."""
    contrasts = torch.zeros(len(labels), d_vocab_out, device=labels.device)
    contrasts[:, :n_answers] = -1 / (n_answers - 1)
    return contrasts.scatter(1, labels[:, None], 1.0)


def mean_contrasts(
    frequencies: Float[Tensor, "target answer"], d_vocab_out: int
) -> Float[Tensor, "target d_vocab_out"]:
    """Mean of `contrasts_of` over answers, weighted by how frequent each is at a target.

    An answer has the weight 1 in its own contrast and -1 / (n_answers - 1) in all others, so that the mean weight is
    f - (sum of f - f) / (n_answers - 1).
    """
    n_targets, n_answers = frequencies.shape
    contrasts = torch.zeros(n_targets, d_vocab_out)
    contrasts[:, :n_answers] = frequencies - (frequencies.sum(1, keepdim=True) - frequencies) / (n_answers - 1)
    return contrasts


def read_directions(
    model: Net,
    streams: Float[Tensor, "row d_model"],
    model_logits: Float[Tensor, "row d_vocab_out"],
    contrasts: Sequence[Float[Tensor, "row d_vocab_out"]],
) -> list[tuple[Float[Tensor, "row d_model"], Float[Tensor, " row"]]]:
    """For each contrast of logits, the direction of the residual stream that it is read from, and its constant.

    The scale of the final norm is held at its value for each stream, so that the read-out is affine: a contrast is the
    dot product of stream and direction, plus the constant, which comes from biases of the norm and the read-out.

    With y = N(x), a LayerNorm or RMSNorm of scale s, the gradient at x is that of the frozen norm minus the term that
    comes from the change of s, y (y . g) / (s d_model), where y . g is what is read. So the term is added again; eps,
    which is part of s, follows from the derivative along x, which is zero without it.

    Args:
        model: The model.
        streams: Inputs of the final norm; at least two rows.
        model_logits: What the model made of them.
        contrasts: Weights of the logits. The first tells what norm there is, and should not be zero.

    Raises:
        ValueError: a read-out that is not linear after one norm, such as the masked-LM head of BERT, or not a function
            of these streams.
    """
    tolerance = 4 * torch.finfo(_dtype(model)).eps ** 0.5  # relative error that rounding may cause
    slopes, constants, written = [], [], []
    with torch.enable_grad(), evaluation_mode(model):
        model.requires_grad_(False)  # gradients of the stream alone; a bridge keeps activations of a pass
        x = streams.detach().requires_grad_(True)
        logits = read_out(model, x)
        without_stream = read_out(model, torch.zeros_like(x[:1])).detach()
        for contrast in contrasts:
            difference = (logits * contrast).sum(-1)
            slopes.append(torch.autograd.grad(difference.sum(), x, retain_graph=True)[0])
            constants.append((without_stream * contrast).sum(-1))
            written.append(difference.detach() - constants[-1])
    x, logits = x.detach(), logits.detach()
    check_read_out(float((logits - model_logits).abs().max()), float(model_logits.abs().max()))
    centred, square = _frozen_norm(x, slopes[0], written[0], tolerance)
    directions = slopes
    if centred is not None:
        directions = [
            slope + centred * (amount / (square * x.shape[1]))[:, None]
            for slope, amount in zip(slopes, written, strict=True)
        ]
    # The same read-out must give the contrasts of another row's stream, at the scale of that stream
    ratio = (square / square.roll(1, 0)).sqrt()
    predicted = (directions[0] * x.roll(1, 0)).sum(-1) * ratio + constants[0]
    actual = (logits.roll(1, 0) * contrasts[0]).sum(-1)
    error = float((predicted - actual).abs().max())
    size = float(torch.cat([written[0], actual - constants[0]]).abs().max())
    if error > tolerance * size:
        raise ValueError(
            "the model's read-out is not linear after one LayerNorm or RMSNorm (a head with its own layers, or capped "
            "logits?), so that logits are not sums over parts. logit_lens and ablate_heads accept such a model."
        )
    return list(zip(directions, constants, strict=True))


def _frozen_norm(
    x: Float[Tensor, "row d_model"],
    slope: Float[Tensor, "row d_model"],
    written: Float[Tensor, " row"],
    tolerance: float,
) -> tuple[Any, Float[Tensor, " row"]]:
    """What the final norm divides, None if there is no norm, and the square of what it divides by.

    Args:
        x: Inputs of the norm.
        slope: Gradient of a contrast of the logits.
        written: The contrast without its constant.
        tolerance: Relative error that rounding may cause.
    """
    along = (slope * x).sum(-1)
    if float((along - written).abs().max()) <= tolerance * float(written.abs().max()):
        return None, torch.ones_like(along)
    # A LayerNorm ignores what is added to all coordinates
    is_layer_norm = float(slope.sum(-1).abs().max()) <= tolerance * float(slope.abs().sum(-1).max())
    centred = x - x.mean(-1, keepdim=True) if is_layer_norm else x
    variance = centred.square().mean(-1)
    # along = written eps / (variance + eps), by least squares for one eps
    missing = written - along
    eps = (along * variance * missing).sum() / missing.square().sum()
    return centred, variance + eps.clamp_min(0)


def _not_half(values: Tensor) -> Tensor:
    """Values in float32 if they are in half precision."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def _dtype(model: Net) -> torch.dtype:
    return next(iter(model.parameters())).dtype
