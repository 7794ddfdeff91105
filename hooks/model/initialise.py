"""Initial weights, drawn from one seed without torch's global generator."""

from collections.abc import Sequence
from typing import Any

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from hooks.model.config import TransformerConfig
from hooks.randomness import seeded_generator

EMBEDDING_STD = {"fan_in": 0.5, "normal": 0.02, "gpt2": 0.02, "template": 1.0, "mimetic": 1.0, "uniform": 1.0}
NORMAL_STD = 0.02


@torch.no_grad()
def initialise(model: Any, cfg: TransformerConfig, seed: int) -> None:
    """Fill every weight matrix and embedding; biases and identity scalars stay 0, norm gains stay 1.

    Matrices are drawn in the order of `named_parameters`, so that a seed gives the same weights on every device.
    Weights on the meta device have no values: to draw them, torch would import its compiler, which takes a second.
    """
    if next(model.parameters()).is_meta:
        return
    generator = seeded_generator(seed)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2:
            parameter.copy_(_draw(name, parameter, cfg, generator))
    if cfg.init == "mimetic":
        for block in model.stored_blocks:
            if block.attention.learned:
                n_heads = len(block.attention.q.weight) // cfg.d_head
                w_q, w_k = mimetic_query_key(cfg.d_model, n_heads, cfg.d_head, generator=generator)
                block.attention.q.weight.copy_(rearrange(w_q, "h d e -> (h e) d"))
                block.attention.k.weight.copy_(rearrange(w_k, "h d e -> (h e) d"))


def _draw(name: str, parameter: Tensor, cfg: TransformerConfig, generator: torch.Generator) -> Tensor:
    """The initial values of one matrix."""
    fan_in_std = parameter.shape[1] ** -0.5
    is_kernel = name.endswith("attention.kernel")
    if name in ("embed.weight", "positions.weight"):
        std = cfg.embedding_std or EMBEDDING_STD[cfg.init]
    elif is_kernel or cfg.init == "fan_in":
        std = fan_in_std  # the output is about as large as the input
    elif cfg.init in ("template", "mimetic", "uniform"):
        bound = 1.0 if cfg.init == "uniform" else fan_in_std
        return draw_uniform(parameter.shape, bound, generator)
    else:
        std = NORMAL_STD
        # The projections into the residual stream
        if cfg.init == "gpt2" and name.endswith(("attention.o.weight", "mlp.w_out.weight")):
            std /= (2 * cfg.n_layers) ** 0.5
    weights = draw_normal(parameter.shape, generator) * std
    if not weights.isfinite().all():
        raise ValueError(
            f"embedding_std is {std:g}: {name} has a weight that is not finite in {weights.dtype}. Give a smaller one, "
            f"such as {EMBEDDING_STD[cfg.init]}."
        )
    return weights


def draw_normal(shape: Sequence[int], generator: torch.Generator) -> Float[Tensor, "..."]:
    """Random numbers from N(0, 1), in torch's default dtype; the same numbers for each dtype."""
    draws = torch.randn(tuple(shape), generator=generator, dtype=torch.float32)
    return draws.to(torch.get_default_dtype())


def draw_uniform(shape: Sequence[int], bound: float, generator: torch.Generator) -> Float[Tensor, "..."]:
    """Random numbers, uniform between -bound and bound, in torch's default dtype; the same numbers for each dtype."""
    draws = (2 * torch.rand(tuple(shape), generator=generator, dtype=torch.float32) - 1) * bound
    return draws.to(torch.get_default_dtype())


@torch.no_grad()
def mimetic_query_key(
    d_model: int,
    n_heads: int,
    d_head: int,
    *,
    alpha: float = 0.7,
    beta: float = 0.7,
    generator: torch.Generator,
) -> tuple[Float[Tensor, "head d_model d_head"], Float[Tensor, "head d_model d_head"]]:
    """W_Q and W_K whose product is the best approximation of rank d_head to sqrt(alpha) Z_1^T Z_2 + sqrt(beta) I.

    Z_1 and Z_2 are (d_head, d_model), uniform within 1 / sqrt(d_model), so that an entry of their product has variance
    d_head / (3 d_model)^2; alpha = 1 and beta = 0 give the product of torch's default queries and keys. Each factor has
    the square root of the d_head largest singular values: W_Q = U sqrt(S), W_K = V sqrt(S).

    Args:
        d_model: Width of the residual stream.
        n_heads: Number of heads, each with its Z_1 and Z_2.
        d_head: Width of a head.
        alpha: Square of the factor of the noise.
        beta: Square of the factor of the identity.
        generator: Decides Z_1 and Z_2; the only randomness.

    Raises:
        ValueError: a negative alpha or beta, or heads wider than the residual stream.

    Source: Trockman & Kolter 2023 (arXiv:2305.09828); template paper (arXiv:2310.09753), released model. Differs: the
    alpha and beta of the template paper's figure are not known; 0.7 is that of the former paper, as far as we remember,
    which multiplies by alpha and beta, not by their roots, and whose Z is a full matrix of N(0, 1 / d_model).
    """
    if min(alpha, beta) < 0:
        raise ValueError(f"alpha is {alpha} and beta {beta}; neither may be negative, their roots are taken.")
    if d_head > d_model:
        raise ValueError(f"d_head is {d_head}, wider than d_model {d_model}: no product has that rank. Lower d_head.")
    z_1, z_2 = draw_uniform((2, n_heads, d_head, d_model), d_model**-0.5, generator)
    u, singular_values, v_transposed = torch.linalg.svd(alpha**0.5 * z_1.mT @ z_2 + beta**0.5 * torch.eye(d_model))
    root = singular_values[:, None, :d_head].sqrt()
    return u[..., :d_head] * root, v_transposed.mT[..., :d_head] * root
