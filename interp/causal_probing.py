"""Does the output follow when the direction that a probe reads is interchanged between two examples?"""

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformer_lens.tools.analysis.interchange import (
    NormMatchedPlacebo,
    SubspaceInterchange,
    intervened_logits,
    mean_difference_basis,
    probe_basis,
    random_basis,
)

from hooks import Transformer
from interp.activations import residual_names, residuals_at_targets
from interp.randomness import derived_seed
from interp.statistics import proportion_interval
from interp.tasks.base import Batch, Task, logits_at_targets

MAX_PAIRS = 512


def interchange_map(
    model: Transformer,
    task: Task,
    batch: Batch,
    labels: Int[Tensor, "batch target"],
    directions: Float[Tensor, "layer target class d_model"],
    seed: int,
) -> dict[str, np.ndarray]:
    """For every layer and target: how often the output becomes the source's label.

    Each base example is paired with the next one of the batch; pairs whose labels agree are left out. At the
    target's position the base's component in a subspace is set to the source's.

    A least-squares probe has two directions. Its weights are a filter: they look for what tells classes apart and
    least disturbed, often where activations hardly vary. Its activation pattern, covariance times weights, is
    where activations move when the class changes; for least squares it is the direction between class means.
    The first says what can be read, only the second is a fair place to write.

    Returns:
        Each (layer, target), as fractions of pairs: `follows` (along the class means) with `low` and `high`,
        `weights` (along the probe's weights), `placebo` (as far as the first, in a random direction); and `n`, the
        pairs behind each.

    Source: interchange interventions, Geiger et al. 2021, through TransformerLens; filter against pattern,
    Haufe et al. 2014 (doi 10.1016/j.neuroimage.2013.10.067).
    """
    batch = batch.select(slice(0, MAX_PAIRS + 1))
    labels = labels[: len(batch)]
    names = residual_names(model)
    activations = residuals_at_targets(model, batch)
    rows = torch.arange(len(batch) - 1)
    shape = (len(names), labels.shape[1])
    found = {key: np.zeros(shape) for key in ("follows", "weights", "placebo", "low", "high", "n")}
    for target in range(labels.shape[1]):
        different = labels[:-1, target] != labels[1:, target]
        base, wanted = rows[different], labels[1:, target][different]
        for layer, name in enumerate(names):
            here = activations[layer, target]
            by_weights = SubspaceInterchange(probe_basis(directions[layer, target]))
            means = mean_difference_basis(here, labels[:, target].tolist())
            by_means = SubspaceInterchange(means)
            rank = means.shape[1]
            noise = random_basis(here.shape[1], rank, derived_seed(seed, "placebo", layer, target) % 2**31)
            interventions = {
                "follows": by_means,
                "weights": by_weights,
                "placebo": NormMatchedPlacebo(by_means, noise),
            }
            for key, intervention in interventions.items():
                logits = intervened_logits(
                    model,
                    name,
                    intervention,
                    base,
                    here[base + 1],
                    lambda chosen, target=target: _target_logits(model, batch.select(chosen), target),
                    positions=batch.target_positions[base, target],
                )
                found[key][layer, target] = float((logits.argmax(-1) == wanted).double().mean())
            found["n"][layer, target] = len(base)
            count = round(found["follows"][layer, target] * len(base))
            found["low"][layer, target], found["high"][layer, target] = proportion_interval(np.array(count), len(base))
    return found


def _target_logits(model: Transformer, batch: Batch, target: int) -> Float[Tensor, "batch class"]:
    logits = model(batch.tokens, **batch.model_inputs())
    return logits_at_targets(logits, batch)[:, target]
