"""Attention weights of a bridge, one matrix per query head."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn


class HeadWeights(nn.Module):
    """W_Q, W_K, W_V (head, d_model, d_head), W_O (head, d_head, d_model) and biases of one layer, read at each access.

    Matrices that several heads share are repeated; a missing bias is zero. The module also has the layer's attention
    hook points.

    Args:
        bridge: The wrapped model.
        layer: Index of the layer.
    """

    def __init__(self, bridge: Any, layer: int):
        super().__init__()
        self._bridge, self._layer = (bridge,), layer  # in a tuple, so that its parameters are not registered here

    def _attribute(self, name: str) -> Any:
        return getattr(layer_part(self._bridge[0], self._layer, "attn"), name, None)

    def _weight(self, name: str) -> Tensor:
        weight = self._attribute(name)
        if not isinstance(weight, Tensor) or weight.ndim != 3:
            description = "missing" if weight is None else getattr(weight, "shape", type(weight).__name__)
            raise ValueError(f"{name} of layer {self._layer} is {description}; needed is one matrix for each head.")
        return self._per_head(weight)

    def _bias(self, name: str) -> Tensor:
        bias, weight = self._attribute(name), self._weight(name.replace("b_", "W_"))
        if bias is None:
            return weight.new_zeros(weight.shape[0], weight.shape[2])
        return self._per_head(bias.view(-1, weight.shape[2]))

    def _per_head(self, values: Tensor) -> Tensor:
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
        bias = self._attribute("b_O")
        return self.W_O.new_zeros(self.W_O.shape[-1]) if bias is None else bias

    @torch.no_grad()
    def output(self, z: Float[Tensor, "batch pos head d_head"]) -> Float[Tensor, "batch pos d_model"]:
        """Attention output of head outputs z: the sum of z W_O over heads, plus b_O."""
        return torch.einsum("bphe,hed->bpd", z, self.W_O) + self.b_O

    @torch.no_grad()
    def project(self, name: str, x: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos head d_head"]:
        """x W + b of `Q`, `K` or `V`."""
        return torch.einsum("bpd,hde->bphe", x, getattr(self, f"W_{name}")) + getattr(self, f"b_{name}")


def layer_part(model: Any, layer: int, name: str) -> Any:
    """`blocks[layer].attn`, or another part of a layer; None if the model has none."""
    blocks = getattr(model, "blocks", None)
    return None if blocks is None else getattr(blocks[layer], name, None)


def head_width(cfg: Any) -> int:
    """`d_head` of a config; default: d_model / n_heads."""
    return getattr(cfg, "d_head", None) or cfg.d_model // cfg.n_heads


def attention_scale(cfg: Any, d_head: int) -> float:
    """Divisor of the attention scores by a config of TransformerLens, where -1 means sqrt(d_head).

    Args:
        cfg: Config, perhaps with `attn_scale` and `use_attn_scale`.
        d_head: Width of a head.
    """
    if not getattr(cfg, "use_attn_scale", True):
        return 1.0
    scale = getattr(cfg, "attn_scale", None) or -1
    return float(scale) if scale > 0 else float(d_head**0.5)
