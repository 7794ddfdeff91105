"""Writing a transformer down: registers in the residual stream, heads that look and copy, hidden units that decide.

The stream is cut into named registers, and one coordinate takes what keeps its mean zero. With a norm whose eps is
huge, LN(x) is x over sqrt(eps) to one part in eps, and its gain gives x back: nothing but the wiring acts. A rotation
of the stream that keeps that mean hides the registers without changing the function.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor

from hooks import Transformer
from hooks.model.blocks import MLP, Block
from hooks.modules import LayerNorm, Linear

LINEAR_EPS = 1e12
"""Of every norm: LN(x) * sqrt(eps) is x to a relative error of var(x) / eps, below the rounding of float64 squared."""
SHARP = 60.0
"""Score of a key that is looked at, over one that is not: exp(-60) is 9e-27."""


@dataclass(frozen=True)
class Registers:
    """Where each register stands in the stream."""

    sizes: Mapping[str, int]
    _starts: dict[str, int] = field(init=False, default_factory=dict)

    def __post_init__(self):
        start = 0
        for name, size in self.sizes.items():
            self._starts[name] = start
            start += size

    def __getitem__(self, name: str) -> slice:
        return slice(self._starts[name], self._starts[name] + self.sizes[name])

    @property
    def d_model(self) -> int:
        """All registers, and the coordinate that keeps the mean zero."""
        return sum(self.sizes.values()) + 1


@torch.no_grad()
def wire_norms(model: Transformer) -> None:
    """Make every norm hand on what it gets."""
    for module in model.modules():
        if isinstance(module, LayerNorm):
            module.weight.fill_(LINEAR_EPS**0.5)


@torch.no_grad()
def balance(model: Transformer) -> None:
    """Let the last coordinate of the stream take minus the sum of all that is written, so that its mean is zero."""
    model.embed.weight[:, -1] = -model.embed.weight[:, :-1].sum(1)
    if model.positions is not None:
        table = cast(Tensor, model.positions.weight)
        table[:, -1] = -table[:, :-1].sum(1)
    for block in model.stored_blocks:
        for linear in _writers(block):
            linear.weight[-1] = -linear.weight[:-1].sum(0)
            if linear.bias is not None:
                linear.bias[-1] = -linear.bias[:-1].sum()


@torch.no_grad()
def rotate(model: Transformer, rotation: Float[Tensor, "d_model d_model"]) -> None:
    """Turn the residual stream: every reader and writer of it, so that the function stays.

    Args:
        model: With norms as `wire_norms` leaves them; changed in place.
        rotation: Orthogonal, and the vector of ones is mapped to itself (`mean_keeping_rotation`).
    """
    model.embed.weight.copy_(model.embed.weight @ rotation)
    if model.positions is not None:
        table = cast(Tensor, model.positions.weight)
        table.copy_(table @ rotation)
    for block in model.stored_blocks:
        readers = [getattr(block.attention, name) for name in "qkv"]
        for linear in (*readers, *([] if block.mlp is None else [block.mlp.w_in])):
            linear.weight.copy_(linear.weight @ rotation)
        for linear in _writers(block):
            linear.weight.copy_(rotation.T @ linear.weight)
            if linear.bias is not None:
                linear.bias.copy_(linear.bias @ rotation)
    read_out = cast(Linear, model.unembed)
    read_out.weight.copy_(read_out.weight @ rotation)


def mean_keeping_rotation(d_model: int, generator: torch.Generator) -> Float[Tensor, "d_model d_model"]:
    """A random orthogonal matrix that maps the vector of ones to itself."""
    noise = torch.randn(d_model, d_model, generator=generator, dtype=torch.float64)
    noise[:, 0] = 1
    basis = torch.linalg.qr(noise).Q  # its first column is the vector of ones, up to sign and length
    turned = torch.linalg.qr(torch.randn(d_model - 1, d_model - 1, generator=generator, dtype=torch.float64)).Q
    return basis @ torch.block_diag(torch.ones(1, 1, dtype=torch.float64), turned) @ basis.T


def _writers(block: Block) -> list[Linear]:
    """What writes to the stream."""
    return [cast(Linear, block.attention.o), *([] if block.mlp is None else [cast(Linear, block.mlp.w_out)])]


def bias_of(linear: Linear) -> Tensor:
    """The bias of a map that has one."""
    return cast(Tensor, linear.bias)


def head_rows(block: Block, head: int) -> slice:
    """Rows of W_Q, W_K and W_V, and columns of W_O, that are one head's."""
    width = block.attention.v.weight.shape[0] // block.attention.n_heads
    return slice(head * width, (head + 1) * width)


def mlp_of(block: Block) -> MLP:
    """The MLP of a block that has one."""
    return cast(MLP, block.mlp)
