"""Canonical hook points of a bridge, and the hooks that pass the bridge's activations through them."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from hooks.adapters.bridge.capabilities import Capabilities, Use
from hooks.adapters.bridge.sites import GLOBAL_SITES, LAYER_SITES
from hooks.adapters.bridge.weights import HeadWeights
from hooks.model.layers import HookPoint, has_hooks

INSTEAD = {
    "attn.hook_q": "attn.hook_z",
    "attn.hook_k": "attn.hook_z",
    "attn.hook_v": "attn.hook_z",
    "attn.hook_attn_scores": "attn.hook_pattern",
    "attn.hook_pattern": "attn.hook_z",
    "attn.hook_z": "hook_attn_out",
    "hook_attn_out": "hook_resid_post",
    "hook_resid_mid": "hook_attn_out",
    "mlp.hook_pre": "mlp.hook_post",
    "mlp.hook_post": "hook_mlp_out",
    "hook_mlp_out": "hook_resid_post",
    "hook_embed": "blocks.0.hook_resid_pre",
    "hook_pos_embed": "blocks.0.hook_resid_pre",
}
"""The site to edit instead of one that cannot be edited."""


class LayerPoints(nn.Module):
    """The hook points and attention weights of one layer."""

    def __init__(self, weights: HeadWeights):
        super().__init__()
        self.attn, self.mlp = weights, nn.Module()


def add_points(model: nn.Module, n_layers: int, capabilities: Capabilities) -> None:
    """Give a model a hook point for every site that can be read."""
    names = [*GLOBAL_SITES, *(f"blocks.{layer}.{site}" for layer in range(n_layers) for site in LAYER_SITES)]
    for name in names:
        if capabilities.cell(name, "read").ok:
            path, _, last = name.rpartition(".")
            model.get_submodule(path).add_module(last, HookPoint())


def refusal(name: str, use: Use, capabilities: Capabilities) -> str:
    """Error text for a hook point that cannot be read or edited, with what to edit instead."""
    cell = capabilities.cell(name, use)
    fault = "would be ignored by this model" if cell.state == "ignored" else f"is refused: {cell}"
    if use == "read":
        return f"reading {name} {fault}."
    layer = ".".join(name.split(".")[:2]) + "." if name.startswith("blocks.") else ""
    site = name.removeprefix(layer)
    while site in INSTEAD:
        site = INSTEAD[site]
        other = site if site.startswith("blocks.") else layer + site
        if (other, "edit") in capabilities.cells and capabilities.cell(other, "edit").ok:
            return f"an edit of {name} {fault}. Edit {other} instead."
    return f"an edit of {name} {fault}."


def bridge_hooks(
    model: Any, values: Mapping[str, Tensor], muted: Callable[[str], bool]
) -> Iterator[tuple[str, Callable]]:
    """Hooks for the bridge: one for each hook point of ours that has hooks or a value to set.

    Args:
        model: The `BridgeModel`.
        values: Activations to set before any hook runs, by name.
        muted: True for names whose hooks must not run in this pass.
    """
    for name, point in model.hook_dict.items():
        active = point if has_hooks(point) and not muted(name) else None
        if name in values or active is not None:
            yield model.capabilities.cell(name, "read").point, _bridge_hook(model, name, active, values.get(name))


def _bridge_hook(model: Any, name: str, point: HookPoint | None, value: Tensor | None) -> Callable[..., Tensor | None]:
    def bridge_hook(activation: Tensor, hook: Any) -> Tensor | None:
        if value is not None:
            activation = value
        if point is None:
            return activation
        shared = model.cfg.n_heads // activation.shape[2] if name.endswith(("hook_k", "hook_v")) else 1
        given = activation.repeat_interleave(shared, 2) if shared > 1 else activation
        before = given.clone() if given.is_inference() else given._version
        result = point(given)
        if result is given and _is_unchanged(given, before):
            return activation if value is not None else None
        if not model.capabilities.cell(name, "edit").ok:
            raise ValueError(refusal(name, "edit", model.capabilities))
        return _per_key_value_head(result, shared, name) if shared > 1 else result

    return bridge_hook


def _is_unchanged(tensor: Tensor, before: Tensor | int) -> bool:
    """Whether no hook edited a tensor in place; tensors of torch's inference mode do not count their versions."""
    if isinstance(before, int):
        return tensor._version == before
    return torch.allclose(tensor, before, rtol=0, atol=0, equal_nan=True)


def _per_key_value_head(edited: Tensor, shared: int, name: str) -> Tensor:
    groups = edited.unflatten(2, (-1, shared))
    if not (groups == groups[:, :, :, :1]).all():
        raise ValueError(
            f"an edit of {name} differs between heads that share one {name[-1]}: in this model {shared} query heads "
            f"share each. Make the same edit for all {shared}, or edit each head's attn.hook_z."
        )
    return groups[:, :, :, 0]
