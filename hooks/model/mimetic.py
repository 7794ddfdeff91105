"""Queries and keys that start out alike: W_Q W_K^T near a multiple of the identity."""

import torch
from jaxtyping import Float
from torch import Tensor


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
    """W_Q and W_K whose product is the best one of rank d_head to sqrt(alpha) Z_1^T Z_2 + sqrt(beta) I.

    Z_1 and Z_2 are (d_head, d_model), uniform within 1 / sqrt(d_model), so that an entry of their product has variance
    d_head / (3 d_model)^2; alpha = 1 and beta = 0 give the product of queries and keys as torch draws them. Each factor
    takes the root of the singular values: W_Q = U sqrt(S), W_K = V sqrt(S), the d_head largest.

    Args:
        d_model: Width of the residual stream.
        n_heads: Heads, each with a Z_1 and Z_2 of its own.
        d_head: Width of a head.
        alpha: Weight of the noise; its root multiplies it.
        beta: Weight of the identity, likewise.
        generator: Decides Z_1 and Z_2; the only randomness.

    Raises:
        ValueError: a negative weight, or heads wider than the stream, whose product has no such rank.

    Source: Trockman & Kolter 2023 (arXiv:2305.09828); template paper (arXiv:2310.09753), released model. Differs: the
    alpha and beta of the template paper's figure are not known; 0.7 is remembered of the former paper, which
    multiplies by them and not by their roots, and whose Z is a full matrix of N(0, 1 / d_model).
    """
    if min(alpha, beta) < 0:
        raise ValueError(f"alpha is {alpha} and beta {beta}; neither may be negative, their roots are taken.")
    if d_head > d_model:
        raise ValueError(f"d_head is {d_head}, wider than d_model {d_model}: no product has that rank. Lower d_head.")
    z_1, z_2 = (2 * torch.rand(2, n_heads, d_head, d_model, generator=generator) - 1) * d_model**-0.5
    left, strength, right = torch.linalg.svd(alpha**0.5 * z_1.mT @ z_2 + beta**0.5 * torch.eye(d_model))
    root = strength[:, None, :d_head].sqrt()
    return left[..., :d_head] * root, right.mT[..., :d_head] * root
