"""Untrained copies of bridges and other wrapped models."""

import copy
from typing import Any

import torch
from transformer_lens.HookedRootModule import HookedRootModule

from hooks.randomness import usable_seed

NATIVE = "TransformerLensNative"
NOT_FROM_CONFIG = (TypeError, ValueError, RuntimeError, AttributeError, LookupError, AssertionError, OSError)
"""Errors of a class that cannot be made from its config alone."""


def untrained_bridge(bridge: Any, seed: int) -> Any:
    """A model of the same class and config with random weights, in evaluation mode.

    torch's global generator is not advanced. A `HookedRootModule` is made by its method `untrained(seed)` if it has
    one, else by its class from `cfg` alone.

    Args:
        bridge: The `TransformerBridge` or `HookedRootModule` to copy.
        seed: Seed of the weights.

    Raises:
        ValueError: a model that cannot be made from its config alone.
    """
    # TransformerLens seeds numpy too, whose former generator takes 32 bits
    seed = usable_seed(seed) % 2**32
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if isinstance(bridge, HookedRootModule):
            untrained = _hooked_root_module(bridge, seed)
        else:
            untrained = _native(bridge, seed) if bridge.cfg.architecture == NATIVE else _hugging_face(bridge)
    return untrained.eval()


def no_untrained(bridge: Any) -> str:
    """Why `untrained_bridge` can make no copy, in words; empty if it can. No model of Hugging Face is made for it."""
    try:
        if isinstance(bridge, HookedRootModule):
            reason = getattr(bridge, "lacks_untrained", None)
            if reason is None and not hasattr(bridge, "untrained"):
                untrained_bridge(bridge, seed=0)
            return reason or ""
        if bridge.cfg.architecture != NATIVE:
            _hugging_face_config(bridge)
    except ValueError as error:
        return str(error)
    return ""


def _hooked_root_module(model: Any, seed: int) -> Any:
    if hasattr(model, "untrained"):
        return model.untrained(seed).to(**_device_and_dtype(model))
    try:
        return type(model)(copy.deepcopy(model.cfg)).to(**_device_and_dtype(model))
    except NOT_FROM_CONFIG as error:
        name = type(model).__name__
        raise ValueError(
            f"no untrained {name} could be made as {name}(cfg) ({error}). Let it be made from its cfg alone, or "
            f"give it a method untrained(seed) that returns one with random weights."
        ) from error


def _native(bridge: Any, seed: int) -> Any:
    from transformer_lens import TransformerBridge

    cfg = copy.deepcopy(bridge.cfg)
    cfg.seed, cfg.init_weights = seed, True
    boot_native: Any = TransformerBridge.boot_native  # pyright: ignore[reportAttributeAccessIssue]
    return boot_native(cfg, **_device_and_dtype(bridge))


def _device_and_dtype(bridge: Any) -> dict[str, Any]:
    first = next(iter(bridge.parameters()))
    return {"device": first.device, "dtype": first.dtype}


def _hugging_face(bridge: Any) -> Any:
    # takes a second to import
    from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module

    model = bridge.original_model
    config = _hugging_face_config(bridge)
    try:
        fresh = type(model)(copy.deepcopy(config))
        fresh = fresh.to(**_device_and_dtype(bridge)).eval()
        return build_bridge_from_module(fresh, bridge.cfg.architecture, hf_config=copy.deepcopy(config))
    except NOT_FROM_CONFIG as error:
        raise ValueError(
            f"no untrained {type(model).__name__} could be made from the model's config ({error}). If the verb has an "
            f"argument untrained=, pass your own."
        ) from error


def _hugging_face_config(bridge: Any) -> Any:
    model = bridge.original_model
    config = getattr(model, "config", None)
    if not hasattr(config, "to_dict"):
        raise ValueError(
            f"the bridge is around a {type(model).__name__} without a Hugging Face config: no untrained copy can be "
            f"made of it. If the verb has an argument untrained=, pass your own."
        )
    return config
