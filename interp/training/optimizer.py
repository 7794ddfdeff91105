"""The optimiser of a training run; `TrainSettings.learning_rate_at` is its schedule."""

from typing import Any

import torch

from hooks.model.architectures import Model
from interp.training.settings import TrainSettings


def make_optimizer(model: Model, settings: TrainSettings) -> torch.optim.Optimizer:
    """AdamW, with a group for each relative learning rate: the scalars a_h and b_h may have other ones."""
    qk_scalars, vo_scalars = model.identity_scalars()
    relative_rates = {id(scalar): settings.qk_identity_rate for scalar in qk_scalars}
    relative_rates |= {id(scalar): settings.vo_identity_rate for scalar in vo_scalars}
    groups: dict[float, list[torch.nn.Parameter]] = {1.0: []}
    for parameter in model.parameters():
        groups.setdefault(relative_rates.get(id(parameter), 1.0), []).append(parameter)
    described: Any = [{"params": parameters, "relative_rate": rate} for rate, parameters in groups.items()]
    return torch.optim.AdamW(described, betas=settings.betas, weight_decay=settings.weight_decay, fused=True)


def apply_gradients(optimizer: torch.optim.Optimizer, model: Model, *, learning_rate: float, clip_norm: float) -> None:
    """Change the weights by their clipped gradients, and remove the gradients."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate * group["relative_rate"]
    torch.nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
