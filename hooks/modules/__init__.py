"""The modules that models are built from: hook points, affine maps, LayerNorm, attention with learned heads."""

from hooks.modules.attention import FUSED_FROM, Attention, Context, allowed_keys, pattern_is_hooked, visible_keys
from hooks.modules.basic import (
    HookPoint,
    Identity,
    LayerNorm,
    Linear,
    LinearWeights,
    Module,
    NeverCalled,
    NormSites,
    Sites,
    TiedReadOut,
    check_ids,
    has_hooks,
    hook_tables,
    look_up,
    take,
)

__all__ = [
    "FUSED_FROM",
    "Attention",
    "Context",
    "HookPoint",
    "Identity",
    "LayerNorm",
    "Linear",
    "LinearWeights",
    "Module",
    "NeverCalled",
    "NormSites",
    "Sites",
    "TiedReadOut",
    "allowed_keys",
    "check_ids",
    "has_hooks",
    "hook_tables",
    "look_up",
    "pattern_is_hooked",
    "take",
    "visible_keys",
]
