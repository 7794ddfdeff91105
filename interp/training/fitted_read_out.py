"""A linear read-out that is fitted on a task, on top of a model whose other weights stay as they are."""

from typing import cast

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from hooks import TransformerStack
from hooks.model.layers import Linear
from interp.core.devices import device_of
from interp.core.randomness import derived_generator
from interp.evaluation.evaluate import chunks_on_device
from interp.tasks.base import Batch, Task, logits_at_targets
from interp.tasks.splits import sample_split

N_FIT = 2000
"""Training examples that a read-out is fitted on."""
FAR_BELOW = 20.0
"""Distance of the logit of an answer that no example has to the lowest bias of the others."""


def fit_read_out(model: TransformerStack, task: Task, *, n: int = N_FIT, seed: int = 0) -> str:
    """Fit the read-out of a model by logistic regression on the answers of training examples.

    The inputs are what the read-out gets at the scored targets, standardised; the scale is then a part of the weights.

    Args:
        model: A model with a linear read-out, which is changed in place; no other weight is.
        task: Task with training examples.
        n: Number of examples.
        seed: Seed of the examples.

    Returns:
        How it was fitted, in words.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    batch = sample_split(task, n, generator=derived_generator(seed, "read-out"), split="train")
    inputs, labels = _read_out_inputs(model, batch)
    scaler = StandardScaler().fit(inputs)
    regression = LogisticRegression(max_iter=2000).fit(scaler.transform(inputs), labels)
    # two classes have one row; each gets half of it
    rows, constants = regression.coef_, regression.intercept_
    if len(regression.classes_) == 2:
        rows, constants = np.concatenate([-rows, rows]) / 2, np.concatenate([-constants, constants]) / 2
    mean, scale = (np.asarray(values, dtype=float) for values in (scaler.mean_, scaler.scale_))
    weights = rows / scale
    biases = constants - weights @ mean
    # answers without an example are never given
    unembed = cast(Linear, model.unembed)
    weight = torch.zeros_like(unembed.weight)
    bias = torch.full_like(cast(Tensor, unembed.bias), float(biases.min()) - FAR_BELOW)
    weight[regression.classes_] = torch.tensor(weights).to(weight)
    bias[regression.classes_] = torch.tensor(biases).to(bias)
    with torch.no_grad():
        unembed.weight.copy_(weight)
        cast(Tensor, unembed.bias).copy_(bias)
    right = float((regression.predict(scaler.transform(inputs)) == labels).mean())
    return (
        f"read-out fitted by logistic regression on {len(labels)} answers of {n} training examples (seed {seed}), of "
        f"which it gives {right:.0%} rightly; all other weights as they were"
    )


@torch.no_grad()
def _read_out_inputs(
    model: TransformerStack, batch: Batch
) -> tuple[Float[np.ndarray, "row d_model"], Int[np.ndarray, " row"]]:
    """What the read-out gets at every scored target, and the answers."""
    inputs: list[Tensor] = []
    captured: list[Tensor] = []
    handle = model.unembed.register_forward_pre_hook(lambda _, arguments: captured.append(arguments[0]))
    try:
        for chunk in chunks_on_device(model, batch):
            captured.clear()
            model(chunk.tokens, **chunk.model_inputs())
            scored = chunk.present & chunk.supervised.to(device_of(model))
            inputs.append(logits_at_targets(captured[0], chunk)[scored].float().cpu())
    finally:
        handle.remove()
    scored = batch.present & batch.supervised
    return torch.cat(inputs).double().numpy(), batch.labels[scored].numpy()
