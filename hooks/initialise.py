"""Initial weights, drawn from one seed without touching torch's global generator."""

import torch
from torch import Tensor, nn

from hooks.config import TransformerConfig

EMBEDDING_STD = 0.5
NORMAL_STD = 0.02


@torch.no_grad()
def initialise(model: nn.Module, cfg: TransformerConfig, seed: int) -> None:
    """Fill every weight matrix and embedding; biases and identity scalars stay 0, norm gains stay 1.

    Matrices are drawn in the order of `named_parameters`, so a seed means the same weights everywhere.
    """
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2:
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * _std(name, parameter, cfg))


def _std(name: str, parameter: Tensor, cfg: TransformerConfig) -> float:
    embedding = name in ("embed.weight", "positions.weight")
    if cfg.init == "fan_in":
        return EMBEDDING_STD if embedding else parameter.shape[1] ** -0.5
    into_stream = name.endswith(("attention.o.weight", "mlp.w_out.weight"))
    return NORMAL_STD / (2 * cfg.n_layers) ** 0.5 if cfg.init == "gpt2" and into_stream else NORMAL_STD
