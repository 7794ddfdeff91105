"""Position embeddings: learned, linear, sinusoidal."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from hooks.model.embeddings import TokenEmbedding
from hooks.model.layers import look_up


def make_positions(kind: str, n_ctx: int, width: int) -> nn.Module | None:
    """Position embeddings of this kind; None if there are none."""
    if kind == "none":
        return None
    if kind == "learned":
        return TokenEmbedding(n_ctx, width, ids="position_ids", limit="n_ctx")
    table = linear_table(n_ctx, width) if kind == "linear" else sinusoidal_table(n_ctx, width)
    return FixedPositions(table)


class FixedPositions(nn.Module):
    """Positions from a formula: a table that is neither trained nor saved."""

    table: Tensor

    def __init__(self, table: Float[Tensor, "n_ctx d_model"]):
        super().__init__()
        self.register_buffer("table", table, persistent=False)

    def forward(self, position_ids: Int[Tensor, "#batch pos"]) -> Float[Tensor, "#batch pos d_model"]:
        """The vectors of these positions."""
        return look_up(self.table, position_ids, "position_ids", "n_ctx")


def linear_table(n_ctx: int, d_model: int) -> Float[Tensor, "n_ctx d_model"]:
    """i / n_ctx in the last coordinate, zero elsewhere.

    Source: bounded-Dyck paper, released code, where the divisor is 6000 (`presets.dyck_gpt` has that `n_ctx`).
    """
    table = torch.zeros(n_ctx, d_model)
    table[:, -1] = torch.arange(n_ctx) / n_ctx
    return table


def sinusoidal_table(n_ctx: int, d_model: int) -> Float[Tensor, "n_ctx d_model"]:
    """sin and cos of i / 10000^(2j/d_model), in alternate coordinates (Vaswani et al. 2017, Section 3.5)."""
    rate = 10000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    angle = torch.arange(n_ctx, dtype=torch.float64)[:, None] * rate
    table = torch.zeros(n_ctx, d_model, dtype=torch.float64)
    table[:, 0::2] = angle.sin()
    table[:, 1::2] = angle.cos()[:, : d_model // 2]
    return table.float()
