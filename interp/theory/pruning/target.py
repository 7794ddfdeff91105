"""A trained layer as the matrices of Theorem 3: every bias is a column of weights on a coordinate that is always 1."""

import copy
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from hooks import Transformer, TransformerStack
from hooks.checks import check_number
from hooks.model.baseline import Baseline
from hooks.model.layers import Linear
from interp.core.verbs import AnyModel, Needs, prepare_model

ROUNDING = 1e-6
"""Tolerance of a norm of 1 in float32."""


@dataclass(frozen=True, kw_only=True)
class LayerMaps:
    """The maps of one layer of Eq. 6, in float64. `wide` is d_model + 1: the stream and the coordinate that is 1."""

    score: Float[Tensor, "head wide wide"]
    """Key by query: W_K^T W_Q over the scale, plus a I if the model has it. Terms that are the same for all keys are
    dropped: softmax ignores them."""
    write: Float[Tensor, "head d_model wide"]
    """W_O W_V, plus b I if the model has it."""
    gain: Float[Tensor, " d_model"]
    bias: Float[Tensor, " d_model"]
    """Of the norm."""
    w_in: Float[Tensor, "d_mlp wide"] | None
    w_out: Float[Tensor, "d_model d_mlp_and_one"] | None
    """Of the MLP; None without one."""

    @property
    def centred(self) -> Float[Tensor, "head d_model wide"]:
        """`write` minus its mean over outputs, as the norm subtracts it."""
        return self.write - self.write.mean(1, keepdim=True)

    def norms(self) -> dict[str, float]:
        """Spectral norm of every map that the theorem bounds."""
        maps = {f"score.{head}": score for head, score in enumerate(self.score)}
        maps |= {f"write.{head}": write for head, write in enumerate(self.write)}
        maps["gain"] = torch.cat([self.gain.diag(), self.bias[:, None]], 1)
        if self.w_in is not None and self.w_out is not None:
            maps |= {"w_in": self.w_in, "w_out": self.w_out}
        return {name: spectral_norm(matrix) for name, matrix in maps.items()}


def spectral_norm(matrix: Float[Tensor, "output input"]) -> float:
    """The largest singular value; nan for a matrix that is not finite."""
    return float(torch.linalg.matrix_norm(matrix.detach(), 2)) if matrix.isfinite().all() else float("nan")


def check_layer(model: Transformer, layer: int) -> None:
    """Raise ValueError if the model has no such layer."""
    check_number("layer", layer, integer=True, low=0, high=model.cfg.n_layers - 1)


@torch.no_grad()
def layer_maps(model: Transformer, layer: int) -> LayerMaps:
    """The maps of one applied layer. Raises ValueError if the model has no such layer."""
    check_layer(model, layer)
    block = model.block(layer)
    sites = model.blocks[layer].attn
    # Scores and writes of every head
    query = _with_bias_row(sites.W_Q, sites.b_Q)
    key = _with_bias_row(sites.W_K, sites.b_K)
    value = _with_bias_row(sites.W_V, sites.b_V)
    score = key @ query.mT / model.cfg.attn_scale
    write = (value @ sites.W_O.double()).mT  # (head, d_model, wide)
    write[0, :, -1] += sites.b_O.double()
    # The identities a I and b I
    unit = torch.eye(model.cfg.d_model, model.cfg.d_model + 1, dtype=torch.float64)
    if block.attention.a is not None:
        score = score + block.attention.a.double()[:, None, None] * F.pad(unit, (0, 0, 0, 1))
    if block.attention.b is not None:
        write = write + block.attention.b.double()[:, None, None] * unit
    score[:, -1] = 0  # the same for all keys
    w_in = w_out = None
    if block.mlp is not None:
        w_in, w_out = _with_bias(block.mlp.w_in), _with_bias(block.mlp.w_out)
    return LayerMaps(
        score=score,
        write=write,
        gain=block.norm_1.weight.double(),
        bias=block.norm_1.bias.double(),
        w_in=w_in,
        w_out=w_out,
    )


def _with_bias_row(
    weight: Float[Tensor, "head d_model d_head"], bias: Float[Tensor, "head d_head"]
) -> Float[Tensor, "head wide d_head"]:
    return torch.cat([weight, bias[:, None]], 1).double()


def _with_bias(linear: Linear) -> Float[Tensor, "output input_and_one"]:
    return torch.cat([linear.weight, linear.bias_or_zero[:, None]], 1).double()


def in_float64(target: Transformer) -> Transformer:
    """A copy in float64, whose rounding is as small as a pruned network's."""
    return copy.deepcopy(target).double().eval().requires_grad_(False)


def _lacks_layers_of_eq_6(model: TransformerStack) -> str:
    """What a model lacks for Theorem 3, which is about layers of Eq. 6 with relu and without hard-coded heads."""
    cfg = model.cfg
    settings: dict[str, Any] = {"block": "dyck", "embedding": None, "output_projection": True}
    if not cfg.attn_only:
        settings["activation"] = "relu"
    for name, value in settings.items():
        if getattr(cfg, name) != value:
            return (
                f"the target has {name}={getattr(cfg, name)!r}; Theorem 3 is about layers of Eq. 6, so it must be "
                f"{value!r}. Train one with config_for(task, 'dyck_eq6') or block='dyck', activation='relu'."
            )
    if any(cfg.patterns_of(layer) for layer in range(cfg.n_layers)):
        return "the target has hard-coded heads; a pruned random network has none. Train one without."
    return ""


NEEDS_OF_TARGET = Needs(
    "indistinguishable",
    only_transformer="Theorem 3 is about layers of Eq. 6 (block='dyck')",
    lacks=_lacks_layers_of_eq_6,
)
"""Of `indistinguishable`, and of every other function that prunes a random network to a target."""


def check_target(target: Transformer) -> None:
    """Raise ValueError unless a target is a transformer with layers of Eq. 6, with settings that Theorem 3 covers."""
    if not isinstance(target, AnyModel | Baseline):
        raise ValueError(f"the target is a {type(target).__name__}; Theorem 3 is about a hooks.Transformer.")
    prepare_model(target, NEEDS_OF_TARGET)


def norms_of(models: dict[str, Transformer]) -> dict[str, float]:
    """Spectral norm of every map of every layer, by name of model, layer and map."""
    norms = {}
    for model_name, model in models.items():
        for layer in range(model.cfg.n_layers):
            for map_name, norm in layer_maps(model, layer).norms().items():
                norms[f"{model_name} layer {layer} {map_name}"] = norm
    return norms


def scale_for(norms: dict[str, float], *, rescale: bool) -> float:
    """Scale of the random weights at which targets of these norms are in the theorem's ball: the largest norm, or 1.

    Raises:
        ValueError: the largest norm is not finite, or is above 1 without `rescale`.
    """
    name = max(norms, key=lambda name: norms[name])
    if not norms[name] < float("inf"):
        raise ValueError(f"{name} has a spectral norm of {norms[name]}. Did training diverge?")
    if norms[name] > 1 + ROUNDING and not rescale:
        size = f"{norms[name]:.2f}"
        raise ValueError(
            f"{name} has a spectral norm of {size}; the theorem's ball ends at 1. With rescale=True, products of two "
            f"random weights are {size} times as large, and in those units the target is in the ball."
        )
    return max(norms[name], 1.0)
