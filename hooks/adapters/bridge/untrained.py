"""An untrained model like somebody else's."""

import copy
from typing import Any

import torch
from transformer_lens import TransformerBridge
from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module

NATIVE = "TransformerLensNative"


def untrained_bridge(bridge: Any, seed: int) -> TransformerBridge:
    """A bridge around a fresh model of the same class and config, in evaluation mode.

    torch's global generator is left where it was.

    Args:
        bridge: Whose twin.
        seed: Decides the weights.

    Raises:
        ValueError: a model that cannot be made from its config alone.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        twin = _native(bridge, seed) if bridge.cfg.architecture == NATIVE else _hugging_face(bridge)
    return twin.eval()


def _native(bridge: Any, seed: int) -> TransformerBridge:
    cfg = copy.deepcopy(bridge.cfg)
    cfg.seed, cfg.init_weights = seed, True
    boot_native: Any = TransformerBridge.boot_native  # pyright: ignore[reportAttributeAccessIssue]
    return boot_native(cfg, **_place(bridge))


def _place(bridge: Any) -> dict[str, Any]:
    """Where its weights are, and how precise."""
    first = next(iter(bridge.parameters()))
    return {"device": first.device, "dtype": first.dtype}


def _hugging_face(bridge: Any) -> TransformerBridge:
    model = bridge.original_model
    config = getattr(model, "config", None)
    if not hasattr(config, "to_dict"):
        raise ValueError(
            f"the bridge is around a {type(model).__name__} without a Hugging Face config: no untrained twin can be "
            f"made of it. Where the verb takes one, give your own (untrained=)."
        )
    try:
        fresh = type(model)(copy.deepcopy(config))
        fresh = fresh.to(**_place(bridge)).eval()
        return build_bridge_from_module(fresh, bridge.cfg.architecture, hf_config=copy.deepcopy(config))
    except (TypeError, ValueError, RuntimeError, AttributeError, KeyError) as error:
        raise ValueError(
            f"no untrained {type(model).__name__} could be made from the model's config ({error}). Where the verb "
            f"takes one, give your own (untrained=)."
        ) from error
