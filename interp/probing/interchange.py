"""Does the output follow when the direction that a probe reads is interchanged between two examples?"""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformer_lens.tools.analysis.interchange import (
    NormMatchedPlacebo,
    SubspaceInterchange,
    intervened_logits,
    probe_basis,
    random_basis,
)

from hooks.interventions.ablation_engine import Net
from interp.core.activations import residual_names, residuals_at_targets
from interp.core.randomness import derived_seed
from interp.core.statistics import proportion_interval
from interp.tasks.base import Batch, logits_at_targets

MAX_PAIRS = 512


def interchange_map(
    model: Net,
    batch: Batch,
    labels: Int[Tensor, "batch target"],
    *,
    weights: Float[Tensor, "layer target class d_model"],
    means: Float[Tensor, "layer target class d_model"],
    answers: Callable[[Float[Tensor, "pair 1 d_vocab_out"]], Int[Tensor, "pair 1"]],
    seed: int,
) -> dict[str, np.ndarray]:
    """For every layer and target: how often the output becomes the source's label.

    Examples are paired, each in one pair; pairs whose labels agree are left out. At the target's position the
    base's component in a subspace is set to the source's.

    A least-squares probe has two directions. Its weights are a filter: they look for what tells classes apart and is
    least disturbed, often where activations hardly vary. Its activation pattern, covariance times weights, is
    where activations move when the class changes; for least squares it is the direction between class means.
    The first says what can be read, only the second is a fair place to write.

    Args:
        model: What to intervene on. It is not changed.
        batch: Examples to pair, even rows with the odd ones after them.
        labels: What the outputs are compared with; for another label than the task's own, nothing follows.
        weights: Probe weights of each cell, one row per class.
        means: Class means of each cell's activations, from other examples than `batch`.
        answers: The labels that logits stand for (the task's).
        seed: Decides the placebo's directions.

    Returns:
        Each (layer, target), as fractions of pairs: `follows` (along the class means) with `low` and `high`,
        `weights` (along the probe's weights), `placebo` (as far as the first, in a random direction); and `n`, the
        pairs behind each.

    Source: interchange interventions, Geiger et al. 2021, through TransformerLens; filter against pattern,
    Haufe et al. 2014 (doi 10.1016/j.neuroimage.2013.10.067).
    """
    batch, labels = batch.select(slice(0, 2 * MAX_PAIRS)), labels[: 2 * MAX_PAIRS]
    base, source = torch.arange(len(batch) // 2 * 2).view(-1, 2).T
    names, activations = residual_names(model), residuals_at_targets(model, batch)
    found = {
        key: np.zeros((len(names), labels.shape[1])) for key in ("follows", "weights", "placebo", "low", "high", "n")
    }
    for layer, target in np.ndindex(len(names), labels.shape[1]):
        different = labels[base, target] != labels[source, target]
        wanted = labels[source, target][different]
        along_means = SubspaceInterchange(probe_basis(means[layer, target]))
        random = random_basis(means.shape[-1], means.shape[2] - 1, derived_seed(seed, "placebo", layer, target) % 2**31)
        interventions = {
            "follows": along_means,
            "weights": SubspaceInterchange(probe_basis(weights[layer, target])),
            "placebo": NormMatchedPlacebo(along_means, random),
        }
        for key, intervention in interventions.items():
            logits = intervened_logits(
                model,
                names[layer],
                intervention,
                base[different],
                activations[layer, target, source[different]],
                lambda rows, target=target: _target_logits(model, batch.select(rows), target),
                positions=batch.target_positions[base[different], target],
            )
            found[key][layer, target] = int((answers(logits[:, None])[:, 0] == wanted).sum()) / max(1, len(wanted))
        found["n"][layer, target] = len(wanted)
    follows, n = found["follows"], np.maximum(found["n"], 1)
    found["low"], found["high"] = proportion_interval(np.rint(follows * n).astype(int), n.astype(int))
    return found


def _target_logits(model: Net, batch: Batch, target: int) -> Float[Tensor, "batch class"]:
    logits = model(batch.tokens, **batch.model_inputs())
    return logits_at_targets(logits, batch)[:, target]
