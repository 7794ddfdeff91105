"""A bridge's attention weights, one matrix for each query head."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor


class HeadWeights:
    """W_Q, W_K, W_V (head, d_model, d_head), W_O (head, d_head, d_model) and biases of one layer, as they are now.

    Where several heads share keys and values, their matrices are repeated; a bias that the model does not have is zero.

    Args:
        bridge: Whose weights.
        layer: Of which layer.
    """

    def __init__(self, bridge: Any, layer: int):
        self._bridge, self._layer = (bridge,), layer

    def _weight(self, name: str) -> Tensor:
        weight = getattr(self._bridge[0].blocks[self._layer].attn, name, None)
        if not isinstance(weight, Tensor) or weight.ndim != 3:
            found = "missing" if weight is None else getattr(weight, "shape", type(weight).__name__)
            raise ValueError(f"{name} of layer {self._layer} is {found}; needed is one matrix for each head.")
        return self._each(weight)

    def _bias(self, name: str) -> Tensor:
        bias = getattr(self._bridge[0].blocks[self._layer].attn, name, None)
        weight = self._weight(name.replace("b_", "W_"))
        if bias is None:
            return weight.new_zeros(weight.shape[0], weight.shape[2])
        return self._each(bias.view(-1, weight.shape[2]))

    def _each(self, values: Tensor) -> Tensor:
        return values.repeat_interleave(self._bridge[0].cfg.n_heads // len(values), 0)

    W_Q = property(lambda self: self._weight("W_Q"))
    W_K = property(lambda self: self._weight("W_K"))
    W_V = property(lambda self: self._weight("W_V"))
    W_O = property(lambda self: self._weight("W_O"))
    b_Q = property(lambda self: self._bias("b_Q"))
    b_K = property(lambda self: self._bias("b_K"))
    b_V = property(lambda self: self._bias("b_V"))

    @property
    def b_O(self) -> Float[Tensor, " d_model"]:
        bias = getattr(self._bridge[0].blocks[self._layer].attn, "b_O", None)
        return self.W_O.new_zeros(self.W_O.shape[-1]) if bias is None else bias

    @torch.no_grad()
    def written(self, z: Float[Tensor, "batch pos head d_head"]) -> Float[Tensor, "batch pos d_model"]:
        """What attention writes when its heads hand on z."""
        return torch.einsum("bphe,hed->bpd", z, self.W_O) + self.b_O

    @torch.no_grad()
    def read_in(self, name: str, x: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos head d_head"]:
        """x W + b of `Q`, `K` or `V`."""
        return torch.einsum("bpd,hde->bphe", x, getattr(self, f"W_{name}")) + getattr(self, f"b_{name}")
