"""Affine map and LayerNorm as bare parameters: nothing random happens until the model initialises them."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from hooks.model.sites import NormSites, has_hooks


class Linear(nn.Module):
    """y = x W^T + b, with W (output, input)."""

    def __init__(self, d_in: int, d_out: int, *, bias: bool = True):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_out, d_in))
        self.bias = nn.Parameter(torch.zeros(d_out)) if bias else None

    def forward(self, x: Float[Tensor, "*batch d_in"]) -> Float[Tensor, "*batch d_out"]:
        """Apply the map."""
        return F.linear(x, self.weight, self.bias)

    @property
    def bias_or_zero(self) -> Float[Tensor, " d_out"]:
        """The bias, or zeros where there is none."""
        return self.bias if self.bias is not None else self.weight.new_zeros(self.weight.shape[0])


class Identity(nn.Module):
    """y = x: stands where a `Linear` could, with the weight that it would need for that."""

    weight: Tensor

    def __init__(self, width: int):
        super().__init__()
        self.register_buffer("weight", torch.eye(width), persistent=False)

    def forward(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        """Hand on."""
        return x

    @property
    def bias_or_zero(self) -> Float[Tensor, " width"]:
        """Zeros."""
        return self.weight.new_zeros(len(self.weight))


class TiedReadOut(nn.Module):
    """y = x W_E^T, with the rows of an embedding; it holds no weights of its own."""

    def __init__(self, embedding: nn.Module):
        super().__init__()
        self._embedding = (embedding,)  # in a tuple, so that its parameters are not registered twice

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_vocab"]:
        """Products with every token's vector."""
        return F.linear(x, self.weight)

    @property
    def weight(self) -> Float[Tensor, "d_vocab d_model"]:
        """The embedding."""
        return self._embedding[0].weight  # type: ignore[return-value]

    @property
    def bias_or_zero(self) -> Float[Tensor, " d_vocab"]:
        """Zeros."""
        return self.weight.new_zeros(len(self.weight))


class LayerNorm(nn.Module):
    """y = (x - mean) / sqrt(var + eps) * w + b over the last axis."""

    def __init__(self, width: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.eps = eps

    def forward(self, x: Float[Tensor, "*batch d_model"], at: NormSites) -> Float[Tensor, "*batch d_model"]:
        """Normalise.

        The scale is materialised only when somebody hooks it; an edit of it then rescales the result.
        Written so that an unedited scale leaves every bit of the result as it was.
        """
        y = F.layer_norm(x, (x.shape[-1],), self.weight, self.bias, self.eps)
        if has_hooks(at.hook_scale):
            scale = (x.var(-1, keepdim=True, unbiased=False) + self.eps).sqrt()
            ratio = scale / at.hook_scale(scale.clone())
            y = y + (y - self.bias) * (ratio - 1)
        return at.hook_normalized(y)
