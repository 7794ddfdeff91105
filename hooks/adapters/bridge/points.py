"""Our names for the places of a bridge: hook points of our own, to which its values are handed on and back."""

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor, nn

from hooks.adapters.bridge.capabilities import GLOBAL_SITES, LAYER_SITES, Capabilities
from hooks.adapters.bridge.weights import HeadWeights
from hooks.modules import HookPoint, has_hooks

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
"""Where an edit can be made that comes nearest."""


class AttentionPoints(nn.Module):
    """Hook points inside attention, and its weights under TransformerLens's names."""

    def __init__(self, weights: HeadWeights):
        super().__init__()
        self._weights = weights

    W_Q = property(lambda self: self._weights.W_Q)
    W_K = property(lambda self: self._weights.W_K)
    W_V = property(lambda self: self._weights.W_V)
    W_O = property(lambda self: self._weights.W_O)
    b_Q = property(lambda self: self._weights.b_Q)
    b_K = property(lambda self: self._weights.b_K)
    b_V = property(lambda self: self._weights.b_V)
    b_O = property(lambda self: self._weights.b_O)


class LayerPoints(nn.Module):
    """The hook points of one layer."""

    def __init__(self, weights: HeadWeights):
        super().__init__()
        self.attn = AttentionPoints(weights)
        self.mlp = nn.Module()


def add_points(model: nn.Module, blocks: nn.ModuleList, found: Capabilities) -> None:
    """Give a model a hook point for every place that can be read."""
    names = [*GLOBAL_SITES, *(f"blocks.{layer}.{site}" for layer in range(len(blocks)) for site in LAYER_SITES)]
    for name in names:
        if found.cell(name, "read").ok:
            *path, last = name.split(".")
            home: Any = model
            for part in path:
                home = home[int(part)] if part.isdigit() else getattr(home, part)
            home.add_module(last, HookPoint())


def instead_of(name: str, found: Capabilities) -> str:
    """What to edit in place of a name; empty when there is nothing."""
    layer = ".".join(name.split(".")[:2]) + "." if name.startswith("blocks.") else ""
    site = name.removeprefix(layer)
    while site in INSTEAD:
        site = INSTEAD[site]
        other = site if site.startswith("blocks.") else layer + site
        if (other, "edit") in found.cells and found.cell(other, "edit").ok:
            return other
    return ""


def refusal(name: str, use: str, found: Capabilities) -> str:
    """Why a place cannot be read or edited, and what can."""
    cell = found.cell(name, "edit" if use == "edit" else "read")
    said = "would be ignored by this model" if cell.state == "ignored" else f"is refused: {cell}"
    text = f"{'an edit of' if use == 'edit' else 'reading'} {name} {said}."
    other = instead_of(name, found)
    return f"{text} Edit {other} instead." if use == "edit" and other else text


def relays(
    points: dict[str, HookPoint],
    found: Capabilities,
    n_heads: int,
    put: dict[str, Tensor],
    silent: Callable[[str], bool],
) -> Iterator[tuple[str, Callable]]:
    """Hooks for a bridge: one for each of our hook points that is in use, or that has a value to take.

    Args:
        points: Ours, by name.
        found: Where each stands in the bridge.
        n_heads: Query heads of a layer.
        put: What to put where before anybody sees it.
        silent: Names that nobody is to see in this pass.
    """
    for name, point in points.items():
        if name in put or (has_hooks(point) and not silent(name)):
            cell = found.cell(name, "read")
            seen = point if has_hooks(point) and not silent(name) else None
            yield cell.point, _relay(name, seen, found, n_heads, put.get(name))


def _relay(
    name: str, point: HookPoint | None, found: Capabilities, n_heads: int, value: Tensor | None
) -> Callable[..., Tensor | None]:
    def relay(activation: Tensor, hook: Any) -> Tensor | None:
        if value is not None:
            activation = value
        if point is None:
            return activation
        shared = n_heads // activation.shape[2] if name.endswith(("hook_k", "hook_v")) else 1
        given = activation.repeat_interleave(shared, 2) if shared > 1 else activation
        version = given._version
        result = point(given)
        if result is given and given._version == version:  # nobody edited it
            return activation if value is not None else None
        if not found.cell(name, "edit").ok:
            raise ValueError(refusal(name, "edit", found))
        return _for_each_key_value_head(result, shared, name) if shared > 1 else result

    return relay


def _for_each_key_value_head(edited: Tensor, shared: int, name: str) -> Tensor:
    groups = edited.unflatten(2, (-1, shared))
    if not (groups == groups[:, :, :, :1]).all():
        raise ValueError(
            f"an edit of {name} tells apart heads that have one {name[-1]} together: {shared} query heads share each "
            f"in this model. Edit all {shared} alike, or each head's attn.hook_z."
        )
    return groups[:, :, :, 0]
