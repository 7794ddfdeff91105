"""From a TransformerLens bridge or `HookedRootModule` to a `BridgeModel`: what is accepted, and what is refused."""

import sys
from typing import TYPE_CHECKING, Any

from jaxtyping import Int
from torch import Tensor, nn
from transformer_lens.HookedRootModule import HookedRootModule

from hooks.adapters.bridge.capabilities import capabilities_of
from hooks.adapters.bridge.model import SIZES, BridgeModel
from hooks.adapters.bridge.sites import CANDIDATES
from hooks.checks import check_number
from hooks.model.checked_hooks import CheckedHooks
from hooks.model.layers import check_not_compiled, check_weights_usable
from hooks.state import check_differentiable, restores_state
from hooks.typed import checks_types

if TYPE_CHECKING:
    from transformer_lens.model_bridge import TransformerBridge
else:

    class _BridgeType(type):
        def __instancecheck__(cls, instance: object) -> bool:
            # before its module is imported there are no bridges
            module = sys.modules.get("transformer_lens.model_bridge")
            return module is not None and isinstance(instance, module.TransformerBridge)

    class TransformerBridge(metaclass=_BridgeType):
        """`isinstance` of TransformerLens's class, whose import takes two seconds of CPU time."""


Foreign = TransformerBridge | HookedRootModule
"""Models that `from_bridge` accepts."""


@checks_types
@restores_state
def from_bridge(model: Any, *, tokens: Int[Tensor, "batch pos"] | None = None) -> BridgeModel:
    """Wrap a TransformerLens bridge or a `HookedRootModule`, after testing what can be read and edited in it.

    A `HookedRootModule` needs hook points with TransformerLens's names, a `cfg` with `n_layers`, `n_heads`, `d_model`,
    `d_vocab` and `n_ctx` (optional: `d_head`, `n_key_value_heads`, `attn_scale`), and matrices `blocks[i].attn.W_O`
    (head, d_head, d_model), as well as `W_Q`, `W_K`, `W_V` for verbs that read them.

    >>> from transformer_lens import TransformerBridge, TransformerBridgeConfig
    >>> import hooks
    >>> sizes = {"d_model": 8, "d_head": 4, "n_heads": 2, "n_layers": 1, "n_ctx": 9, "d_vocab": 5}
    >>> bridge = TransformerBridge.boot_native(TransformerBridgeConfig(**sizes, act_fn="gelu"))
    >>> str(hooks.from_bridge(bridge).capabilities.cell("blocks.0.attn.hook_pattern", "edit"))
    'works'

    Args:
        model: A `transformer_lens.TransformerBridge` or `HookedRootModule`. It is not changed.
        tokens: Tokens to test it on, at least (3, 4); if None, random ones from a fixed seed.

    Raises:
        ValueError: another object, sizes or hook points that are missing, a model whose output is not logits at every
            position, or tokens that do not fit.
    """
    if isinstance(model, BridgeModel):
        return model
    _check_model(model)
    check_weights_usable("model", model)
    check_differentiable("model", model, "the test of its hook points")
    return BridgeModel(model, capabilities_of(model, tokens))


def _check_model(model: Any) -> None:
    """Refuse a model of this package or of Hugging Face, another object, and a module without sizes or hook points."""
    if isinstance(model, CheckedHooks):
        raise ValueError(f"model is a {type(model).__name__} of this package: it needs no adapter. Pass it as it is.")
    if isinstance(model, nn.Module):
        check_not_compiled(*model.modules())
    if not isinstance(model, Foreign):
        raise ValueError(_not_accepted(model))
    if isinstance(model, HookedRootModule):
        _check_sizes(model)
        _check_points(model)


def _not_accepted(model: Any) -> str:
    """Error text for an object of another class, with the function that accepts it."""
    name = type(model).__name__
    package = type(model).__module__.split(".")[0]
    accepted = (
        f"model is a {name}; accepted are hooks.Transformer and transformer_lens.TransformerBridge, and a "
        f"HookedRootModule with TransformerLens's hook names."
    )
    if package == "transformers":
        family = getattr(getattr(model, "config", None), "model_type", "")
        bridge = "a bridge: TransformerBridge.boot_transformers, or build_bridge_from_module of this model."
        if family in ("gpt2", "bert", "albert"):
            return f"{accepted} Use hooks.from_huggingface, or build {bridge}"
        return f"{accepted} Build {bridge}"
    if isinstance(getattr(model, "module", None), nn.Module):  # DataParallel and the like
        return f"{accepted} Pass the model inside: .module of this {name}."
    if isinstance(model, nn.Module):
        return f"{accepted} Wrap a torch module with hooks.from_module (docs/guides/bring_a_model.md)."
    return accepted


def _check_sizes(model: Any) -> None:
    cfg: Any = getattr(model, "cfg", None)
    name = type(model).__name__
    missing = [size for size in SIZES if getattr(cfg, size, None) is None]
    if missing:
        fault = "is missing" if cfg is None else f"(a {type(cfg).__name__}) lacks {', '.join(missing)}"
        raise ValueError(f"{name}.cfg {fault}; needed are the attributes {', '.join(SIZES)}.")
    for size in SIZES:
        check_number(f"{name}.cfg.{size}", getattr(cfg, size), integer=True, low=1)
    if getattr(cfg, "d_head", None) is None and cfg.d_model % cfg.n_heads:
        raise ValueError(
            f"{name}.cfg has d_model {cfg.d_model} and n_heads {cfg.n_heads}, and no d_head: d_model is no multiple of "
            f"n_heads. Give cfg.d_head."
        )
    blocks = getattr(model, "blocks", None)
    if blocks is not None and len(blocks) != cfg.n_layers:
        raise ValueError(f"{name}.cfg.n_layers is {cfg.n_layers}, but {name}.blocks has {len(blocks)} layers.")


def _check_points(model: Any) -> None:
    name = type(model).__name__
    points = list(getattr(model, "hook_dict", ()))
    if not points:
        raise ValueError(
            f"{name} has no hook points; call self.setup() at the end of its __init__, after its HookPoints."
        )
    # Names outside layers, or those after `blocks.0.`
    known_names = {candidate for candidates in CANDIDATES.values() for candidate in candidates}
    if not any(point in known_names or point.split(".", 2)[-1] in known_names for point in points):
        raise ValueError(
            f"{name} has no hook point with a name of TransformerLens, but {', '.join(points[:3])}. Name them "
            f"blocks.0.hook_resid_pre, blocks.0.attn.hook_pattern, blocks.0.attn.hook_z and so on."
        )
