"""Operations and parameters of models with pathways, counted on the meta device and from the sizes."""

from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from hooks import Encoder, EncoderConfig, token_maps
from hooks.checks import check_choice
from hooks.model.attention import Context
from hooks.model.hardcoded.token_maps import PathwayMaps, Segments

CountedLayers = Literal["layers", "head"]


@dataclass(frozen=True, kw_only=True)
class Operations:
    """Floating-point operations of one pass, two per multiply-add.

    Lookups, sums over segments, norms, softmax and activations are not counted.
    """

    forward: int
    backward: int
    """With the groups of each convolution taken into account."""
    backward_by_torch: int
    """By torch's rule, which counts a depthwise kernel's gradient as that of a dense kernel."""


def count_operations(
    cfg: EncoderConfig,
    tokens: Int[Tensor, "batch pos"],
    *,
    counted_layers: CountedLayers = "layers",
    device: str = "meta",
) -> Operations:
    """Count the operations of a model's layers, or of its head at every position; embeddings have none.

    Attention is unfused, at every length. A fused kernel has the same forward operations, and computes the
    scores again in the backward pass.

    Args:
        cfg: Configuration of the model.
        tokens: Ids, which determine the token maps; on the CPU.
        counted_layers: Whether to count the layers or the head.
        device: Device of the activations; "meta" counts any size without computing.

    Raises:
        ValueError: as `hooks.token_maps`; an unknown `counted_layers`, or more positions than the model has.

    Source: `torch.utils.flop_counter`. Differs: the gradient of a grouped convolution's weights, where torch's rule
    ignores groups.
    """
    check_choice("counted_layers", counted_layers, CountedLayers)
    if tokens.shape[1] > cfg.n_ctx:
        raise ValueError(f"tokens has {tokens.shape[1]} positions; n_ctx of this model is {cfg.n_ctx}.")
    with torch.device(device):
        model = Encoder(cfg).eval()
        resid = torch.ones(*tokens.shape, cfg.d_model, requires_grad=True)
    # The token maps are computed on the CPU, then moved: they are not counted
    context = Context()
    if cfg.pathways is not None and counted_layers == "layers":
        maps = token_maps(tokens, heads=cfg.pathways, d_vocab=cfg.d_vocab)
        context = _moved(cast(PathwayMaps, maps), device)
    forward = FlopCounterMode(display=False)
    with forward, sdpa_kernel(SDPBackend.MATH):  # torch does not count its fused kernel
        for layer in range(cfg.n_layers if counted_layers == "layers" else 0):
            resid = model.block(layer)(resid, cast(Any, model.blocks[layer]), context)
        out = model.read_out(resid) if counted_layers == "head" else resid
    # The backward pass runs once under both rules for the gradients of convolutions
    backward_counter = FlopCounterMode(display=False)
    convolution_counter = FlopCounterMode(
        display=False, custom_mapping={torch.ops.aten.convolution_backward: _convolution_backward}
    )
    with backward_counter, convolution_counter:
        out.backward(torch.ones_like(out))
    return Operations(
        forward=forward.get_total_flops(),
        backward=convolution_counter.get_total_flops(),
        backward_by_torch=backward_counter.get_total_flops(),
    )


def count_parameters(cfg: EncoderConfig) -> int:
    """Number of parameters of a model; shared ones count once."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in Encoder(cfg).parameters())


def multiplications(cfg: EncoderConfig, pos: int) -> dict[str, int]:
    """Multiplications per token and layer, by part of the layer, computed from the sizes.

    Args:
        cfg: Configuration of the model.
        pos: Tokens in a sequence, all visible.
    """
    width, sizes = _sizes(cfg)
    return {
        "queries and keys": 2 * cfg.d_model * sizes["learned"],
        "values and output": 2 * cfg.d_model * width,
        "scores and mixing": 2 * pos * sizes["learned"],
        "convolution": sizes["kernels"],
        "MLP": 2 * cfg.d_model * (cfg.d_mlp or 0),
    }


def head_multiplications(cfg: EncoderConfig) -> int:
    """Multiplications per token of the masked-LM head: its dense map and the unembedding."""
    return cfg.embedding_width * (cfg.d_model + cfg.d_vocab)


def unseen_additions(cfg: EncoderConfig) -> int:
    """Additions per token and layer that are not counted: every association value is added to one sum.

    A broadcast pathway only adds one row per marker.
    """
    return _sizes(cfg)[1]["association"]


def parameters_from_sizes(cfg: EncoderConfig) -> int:
    """Number of parameters from the sizes, for an untied encoder with a masked-LM head and one embedding width."""
    d, mlp = cfg.d_model, cfg.d_mlp or 0
    width, sizes = _sizes(cfg)
    attention = 2 * (d + 1) * sizes["learned"] + (d + 1) * width + (width + 1) * d
    layer = attention + sizes["kernels"] + (d + 1) * mlp + (mlp + 1) * d + 4 * d
    embeddings = (cfg.d_vocab + cfg.n_ctx + cfg.n_token_types) * d + 2 * d
    return embeddings + cfg.n_layers * layer + (d + 1) * d + 2 * d + cfg.d_vocab


def _sizes(cfg: EncoderConfig) -> tuple[int, dict[str, int]]:
    """Width of all heads and of each pathway, and the weights of all kernels; without pathways, all are learned."""
    width = cfg.n_heads * cfg.d_head
    if cfg.pathways is None:
        return width, {"learned": width, "association": 0, "kernels": 0}
    sizes = cfg.pathways.sizes
    return width, {**sizes, "kernels": cfg.pathways.kernel_width * sizes["convolution"]}


def _moved(maps: PathwayMaps, device: str) -> PathwayMaps:
    """Copy of the maps on another device."""

    def segments(moved: Segments) -> Segments:
        return Segments(moved.rows.to(device), moved.starts.to(device))

    return replace(
        maps,
        tokens=maps.tokens.to(device),
        key_classes=maps.key_classes.to(device),
        members=segments(maps.members),
        markers={token: segments(marker_segments) for token, marker_segments in maps.markers.items()},
    )


def _convolution_backward(grad: Any, x: Any, weight: Any, *arguments: Any, **options: Any) -> int:
    """Operations of the gradients: each has those of the forward pass, one per output and kernel weight."""
    once = 2 * torch.Size(grad).numel() * torch.Size(weight[1:]).numel()
    output_mask = arguments[-1]
    return once * sum(output_mask[:2])
