"""Initial weights, drawn from one seed without touching torch's global generator."""

from typing import Any

import torch
from einops import rearrange
from torch import Tensor

from hooks.model.config import TransformerConfig
from hooks.model.mimetic import mimetic_query_key

EMBEDDING_STD = {"fan_in": 0.5, "normal": 0.02, "gpt2": 0.02, "template": 1.0, "mimetic": 1.0, "uniform": 1.0}
NORMAL_STD = 0.02


@torch.no_grad()
def initialise(model: Any, cfg: TransformerConfig, seed: int) -> None:
    """Fill every weight matrix and embedding; biases and identity scalars stay 0, norm gains stay 1.

    Matrices are drawn in the order of `named_parameters`, so a seed means the same weights everywhere.
    """
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2:
            parameter.copy_(_drawn(name, parameter, cfg, generator))
    if cfg.init == "mimetic":
        for block in model.stored_blocks:
            if block.attention.learned:
                heads = len(block.attention.q.weight) // cfg.d_head
                query, key = mimetic_query_key(cfg.d_model, heads, cfg.d_head, generator=generator)
                block.attention.q.weight.copy_(rearrange(query, "h d e -> (h e) d"))
                block.attention.k.weight.copy_(rearrange(key, "h d e -> (h e) d"))


def _drawn(name: str, parameter: Tensor, cfg: TransformerConfig, generator: torch.Generator) -> Tensor:
    if name in ("embed.weight", "positions.weight"):
        return torch.randn(parameter.shape, generator=generator) * (cfg.embedding_std or EMBEDDING_STD[cfg.init])
    fan_in = parameter.shape[1] ** -0.5
    if name.endswith("attention.kernel"):  # a mixture about as large as what it mixes
        return torch.randn(parameter.shape, generator=generator) * fan_in
    if cfg.init in ("template", "mimetic", "uniform"):
        return (2 * torch.rand(parameter.shape, generator=generator) - 1) * (1.0 if cfg.init == "uniform" else fan_in)
    std = fan_in if cfg.init == "fan_in" else NORMAL_STD
    if cfg.init == "gpt2" and name.endswith(("attention.o.weight", "mlp.w_out.weight")):
        std /= (2 * cfg.n_layers) ** 0.5  # the projections into the stream
    return torch.randn(parameter.shape, generator=generator) * std
