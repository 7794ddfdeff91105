"""Hand-written weights: registers of the residual stream, identity norms, rotations, idle heads.

The stream is divided into named registers and one more coordinate, which keeps its mean at zero. With a very large eps,
LayerNorm divides by sqrt(eps) to one part in eps, and its gain undoes the division, so that every norm is the identity.
A rotation of the stream that preserves the mean hides the registers without changing the function.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from hooks import Transformer, TransformerConfig
from hooks.model.blocks import MLP, Block
from hooks.model.layers import LayerNorm, Linear

LINEAR_EPS = 1e12
"""eps of every norm: LN(x) * sqrt(eps) is x up to a relative error of var(x) / (2 eps), about 1e-12."""
SHARP = 60.0
"""Score of an attended key minus that of any other: exp(-60) is 9e-27."""


@dataclass(frozen=True)
class Registers:
    """Slices of the residual stream by name."""

    sizes: Mapping[str, int]
    """Number of coordinates of each register, in their order."""

    def __getitem__(self, name: str) -> slice:
        names = list(self.sizes)
        start = sum(self.sizes[earlier] for earlier in names[: names.index(name)])
        return slice(start, start + self.sizes[name])

    def after(self, first: int = 0, size: int = 1) -> slice:
        """Some of the coordinates that a wider model has after all registers."""
        start = self.d_model - 1 + first
        return slice(start, start + size)

    @property
    def d_model(self) -> int:
        """Width of all registers, and of the coordinate that keeps the mean at zero."""
        return sum(self.sizes.values()) + 1


@torch.no_grad()
def empty_model(cfg: TransformerConfig) -> Transformer:
    """A model in float64 with zero weights. If the config's eps is `LINEAR_EPS`, its norms are the identity."""
    model = Transformer(cfg).double()
    for parameter in model.parameters():
        parameter.zero_()
    if cfg.layer_norm_eps == LINEAR_EPS:
        set_identity_norms(model)
    return model


@torch.no_grad()
def set_identity_norms(model: Transformer) -> None:
    """Set the gain of every norm so that, with eps `LINEAR_EPS`, it is the identity."""
    for module in model.modules():
        if isinstance(module, LayerNorm):
            module.weight.fill_(LINEAR_EPS**0.5)


def position_table(model: Transformer) -> Float[Tensor, "pos d_model"]:
    """Learned positions."""
    return cast(Tensor, cast(nn.Module, model.positions).weight)


@torch.no_grad()
def balance(model: Transformer) -> None:
    """Write minus the sum of all other coordinates to the last coordinate of the stream, so that its mean is zero."""
    model.embed.weight[:, -1] = -model.embed.weight[:, :-1].sum(1)
    if model.positions is not None:
        position_table(model)[:, -1] = -position_table(model)[:, :-1].sum(1)
    for block in model.stored_blocks:
        for linear in _writers(block):
            linear.weight[-1] = -linear.weight[:-1].sum(0)
            if linear.bias is not None:
                linear.bias[-1] = -linear.bias[:-1].sum()


@torch.no_grad()
def rotate(model: Transformer, rotation: Float[Tensor, "d_model d_model"]) -> None:
    """Rotate the residual stream of a model with identity norms; the function is unchanged.

    The rotation must map the vector of ones to itself (`mean_preserving_rotation`).
    """
    # Everything that writes to the stream, and everything that reads from it
    model.embed.weight.copy_(model.embed.weight @ rotation)
    if model.positions is not None:
        position_table(model).copy_(position_table(model) @ rotation)
    for block in model.stored_blocks:
        readers = [getattr(block.attention, name) for name in "qkv"]
        if block.mlp is not None:
            readers.append(block.mlp.w_in)
        for linear in readers:
            linear.weight.copy_(linear.weight @ rotation)
        for linear in _writers(block):
            linear.weight.copy_(rotation.T @ linear.weight)
            if linear.bias is not None:
                linear.bias.copy_(linear.bias @ rotation)
    read_out = cast(Linear, model.unembed)
    read_out.weight.copy_(read_out.weight @ rotation)


def mean_preserving_rotation(d_model: int, generator: torch.Generator) -> Float[Tensor, "d_model d_model"]:
    """A random orthogonal matrix that maps the vector of ones to itself."""
    noise = torch.randn(d_model, d_model, generator=generator, dtype=torch.float64)
    noise[:, 0] = 1
    basis = torch.linalg.qr(noise).Q  # its first column is the vector of ones, up to sign and length
    # In this basis, keep the first direction and rotate all others
    rotation = torch.linalg.qr(torch.randn(d_model - 1, d_model - 1, generator=generator, dtype=torch.float64)).Q
    return basis @ torch.block_diag(torch.ones(1, 1, dtype=torch.float64), rotation) @ basis.T


def _writers(block: Block) -> list[Linear]:
    """The linear maps that write to the stream."""
    writers = [cast(Linear, block.attention.o)]
    if block.mlp is not None:
        writers.append(cast(Linear, block.mlp.w_out))
    return writers


def bias_of(linear: Linear) -> Tensor:
    """Bias of a linear map that has one."""
    return cast(Tensor, linear.bias)


def head_rows(block: Block, head: int) -> slice:
    """Rows of W_Q, W_K and W_V, and columns of W_O, that belong to a head."""
    width = block.attention.v.weight.shape[0] // block.attention.n_heads
    return slice(head * width, (head + 1) * width)


def mlp_of(block: Block) -> MLP:
    """MLP of a block that has one."""
    return cast(MLP, block.mlp)


@torch.no_grad()
def copy_head(block: Block, source: int, head: int, maps: str = "qk") -> None:
    """Copy maps of one head of a block to another: some of `q`, `k`, `v` and `o`, with their biases."""
    rows, source_rows = head_rows(block, head), head_rows(block, source)
    for name in maps:
        linear = getattr(block.attention, name)
        if name == "o":
            linear.weight[:, rows] = linear.weight[:, source_rows]
            continue
        linear.weight[rows] = linear.weight[source_rows]
        if linear.bias is not None:
            linear.bias[rows] = linear.bias[source_rows]


@torch.no_grad()
def write_map(
    block: Block, head: int, matrix: Float[Tensor, "into source"], *, reads: slice, writes: slice, first: int = 0
) -> None:
    """Let a head write `matrix` times what it reads, through its dimensions from `first` on."""
    rows = head_rows(block, head)
    dimensions = slice(first, first + len(matrix))
    block.attention.v.weight[rows][dimensions, reads] = matrix
    cast(Linear, block.attention.o).weight[writes, rows][:, dimensions] = torch.eye(len(matrix), dtype=torch.float64)


@torch.no_grad()
def write_idle_head(
    block: Block, head: int, *, reads: slice, writes: slice, generator: torch.Generator, strength: float = 1.0
) -> None:
    """Random weights for a head whose output sums to zero, in coordinates that nothing reads.

    `strength` is the standard deviation of scores between unit vectors, and the scale of the output.
    """
    rows = head_rows(block, head)
    width = reads.stop - reads.start
    size = rows.stop - rows.start
    # Queries, keys and values
    spread = (strength * block.attention.scale) ** 0.5 / size**0.25
    for linear, deviation in ((block.attention.q, spread), (block.attention.k, spread), (block.attention.v, 1.0)):
        noise = torch.randn(size, width, generator=generator, dtype=torch.float64)
        linear.weight[rows, reads] = deviation * noise
    # Output, whose sum over the coordinates is zero
    out = torch.randn(writes.stop - writes.start, size, generator=generator, dtype=torch.float64)
    block.attention.o.weight[writes, rows] = (out - out.mean(0)) * strength / size
