"""Hand-written models of the same architecture that do compute the stated circuit, in either reading."""

from typing import Any, Literal

import torch
from torch import Tensor

from verified_circuits.model import PooledConfig, PooledTransformer
from verified_circuits.strings import BALANCED, CLOSE, OPEN

Wiring = Literal["literal", "charitable"]
BRACKET, MEAN, FLAG, DEPTH, LAST_DEPTH, FIRST_POSITION = range(6)
"""Coordinates of the residual stream before it is rotated; positions have one each, from the last of these on."""
MARGIN = 6.0
"""Logit of "balanced" for balanced strings; each other string has it lower by at least twice as much."""


@torch.no_grad()
def handwritten_circuit(n: int, wiring: Wiring, *, seed: int = 0) -> PooledTransformer:
    """A model whose decisions and wiring are those of a reading of the stated circuit, for at most 16 tokens.

    Head 0 of block 0 averages the brackets of the prefix. The MLP of block 0 turns the mean into the running depth and
    its flag. Block 1 adds nothing. The read-out compares two sums over positions with zero: of the flags, and of the
    brackets (charitable) or of the depth that only the last position has (literal).

    Args:
        n: Number of tokens.
        wiring: Where the final depth comes from.
        seed: Seed of the rotation of the residual stream.

    Raises:
        ValueError: more than 16 tokens.

    Example:
        >>> model = handwritten_circuit(4, "charitable")
        >>> model(torch.tensor([[0, 0, 1, 1], [0, 1, 1, 0]]))[:, 0].argmax(-1).tolist()
        [1, 0]
    """
    if not 1 <= n <= 16:
        raise ValueError(f"n is {n}; the width of the model is enough for 1 to 16 tokens.")
    cfg = PooledConfig(n_ctx=n)
    model = PooledTransformer(cfg)
    for weight in model.parameters():
        weight.zero_()
    blocks: Any = model.blocks
    block = blocks[0]
    # Brackets and positions
    model.embed.weight[OPEN, BRACKET], model.embed.weight[CLOSE, BRACKET] = 1, -1
    for position in range(n):
        model.positions.weight[position, FIRST_POSITION + position] = 1
    # Uniform attention to the prefix: the mean bracket is the running depth divided by the number of tokens
    block.attn.W_V[0, BRACKET, 0] = 1
    block.attn.W_O[0, 0, MEAN] = 1
    _write_depths(block.mlp, n, wiring)
    _write_flags(block.mlp, n)
    # The read-out compares the two sums with zero
    total = BRACKET if wiring == "charitable" else LAST_DEPTH
    model.hidden.weight[0, total], model.hidden.weight[1, total], model.hidden.weight[2, FLAG] = 1, -1, 1
    model.unembed.weight[BALANCED, :3] = -2 * MARGIN
    model.unembed.bias[BALANCED] = MARGIN
    _rotate(model, seed)
    return model.eval()


def _write_depths(mlp: Any, n: int, wiring: Wiring) -> None:
    """Two hidden units for each position, which multiply its mean bracket by its number of tokens."""
    gate = n + 1.0  # larger than any depth
    for position in range(n):
        for index, sign in enumerate((1, -1)):
            unit = 2 * position + index
            mlp[0].weight[unit, MEAN] = sign * (position + 1)
            mlp[0].weight[unit, FIRST_POSITION + position] = gate
            mlp[0].bias[unit] = -gate
            mlp[2].weight[DEPTH, unit] = sign
            if wiring == "literal" and position == n - 1:
                mlp[2].weight[LAST_DEPTH, unit] = sign


def _write_flags(mlp: Any, n: int) -> None:
    """A step in two hidden units: 1 where the mean bracket is below zero, by at least 1 / n."""
    step = n + 1.0
    for index, unit in enumerate((2 * n, 2 * n + 1)):
        mlp[0].weight[unit, MEAN] = -step
        mlp[0].bias[unit] = -index
        mlp[2].weight[FLAG, unit] = 1 - 2 * index


def _rotate(model: PooledTransformer, seed: int) -> None:
    """Rotate the residual stream at random; the model computes the same."""
    generator = torch.Generator().manual_seed(seed)
    width = model.embed.weight.shape[1]
    rotation: Tensor = torch.linalg.qr(torch.randn(width, width, generator=generator, dtype=torch.float64))[0].float()
    for table in (model.embed, model.positions):
        table.weight.copy_(table.weight @ rotation)
    blocks: Any = model.blocks
    for block in blocks:
        for name in ("W_Q", "W_K", "W_V"):
            weight = getattr(block.attn, name)
            weight.copy_(rotation.T @ weight)
        block.attn.W_O.copy_(block.attn.W_O @ rotation)
        block.mlp[0].weight.copy_(block.mlp[0].weight @ rotation)
        block.mlp[2].weight.copy_(rotation.T @ block.mlp[2].weight)
        block.mlp[2].bias.copy_(block.mlp[2].bias @ rotation)
    model.hidden.weight.copy_(model.hidden.weight @ rotation)
