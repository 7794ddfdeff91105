"""Which verbs can be asked of a model? Ours go through as they are, bridges under our names, others are refused."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from jaxtyping import Bool, Int
from torch import Tensor
from transformer_lens import TransformerBridge

from hooks import BridgeModel, FullyConnected, Transformer, from_bridge, make_model
from hooks.adapters.bridge.capabilities import Use
from hooks.interventions.ablation_engine import Net
from hooks.model import attention

AnyModel = Net | TransformerBridge
"""What the verbs take."""

_READ: tuple[Use, ...] = ("read",)
_BOTH: tuple[Use, ...] = ("read", "edit")
_LOOKS: dict[str, tuple[Use, ...]] = {
    "hook_resid_pre": _READ,
    "attn.hook_v": _READ,
    "attn.hook_pattern": _READ,
    "attn.W_O": _READ,
}
_REPLACES = _LOOKS | {"hook_resid_pre": _BOTH, "attn.hook_z": _BOTH, "hook_attn_out": _BOTH}
NEEDS: Mapping[str, Mapping[str, tuple[Use, ...]]] = {
    "evaluate": {},
    "probe": {"blocks.0.hook_resid_pre": _READ, "hook_resid_post": _READ},
    "probe with verify=True": {"hook_resid_pre": _BOTH, "hook_resid_post": _BOTH},
    "audit_probe": {"hook_resid_pre": _BOTH, "hook_resid_post": _BOTH},
    "show_attention": {"attn.hook_pattern": _READ},
    "attention_variation": {"attn.hook_pattern": _READ},
    "classify_heads": _LOOKS,
    "ablate_heads": _REPLACES,
    "audit": _REPLACES,
    "diagonals": {f"attn.W_{name}": _READ for name in "QKVO"},
}
"""What each verb reads and edits in a model."""
ONLY_OURS = {
    "train": "a run is resumed and kept as a hooks.Transformer; train the model that the bridge is around with its own "
    "tools",
    "balance_violation": "it is about one layer over frozen vectors of bracket and depth, which only a "
    "hooks.Transformer has (presets.dyck_minimal)",
    "extrapolate": "it reads the stream after each layer out, and runs on beyond the last one, which only a "
    "hooks.Transformer can (read_out, at_depth)",
    "indistinguishable": "Theorem 3 is about layers of Eq. 6, which only a hooks.Transformer has (block='dyck')",
    "pruning_curve": "it prunes the matrices of a hooks.Transformer",
}
"""Verbs that no other model can serve, and why."""


def prepare_model(model: Any, verb: str) -> Net:
    """The model, in a form that a verb can work on: ours as it is, a bridge under our names.

    Args:
        model: What the caller gave.
        verb: Which of `NEEDS` or `ONLY_OURS`.

    Raises:
        ValueError: a fully connected network, no model that is accepted, or a bridge that cannot serve this verb (why).
    """
    if isinstance(model, FullyConnected):
        raise ValueError(
            "this model is a fully connected network: it has no attention heads and no residual stream to read. Train "
            "a transformer on the task, or use evaluate."
        )
    if isinstance(model, Transformer):
        return model
    if isinstance(model, AnyModel) and verb in ONLY_OURS:
        raise ValueError(f"{verb} cannot be asked of a TransformerLens bridge: {ONLY_OURS[verb]}.")
    net = from_bridge(model)
    if lacks := net.capabilities.lacks(NEEDS[verb]):
        raise ValueError(f"{verb} cannot be asked of this bridge of {net.cfg.architecture}: {lacks}.")
    return net


@dataclass(frozen=True)
class Verbs:
    """Which verbs can be asked of a model; prints as a table."""

    why_not: Mapping[str, str]
    """Why each cannot; empty where it can."""

    def __str__(self) -> str:
        wide = max(map(len, self.why_not))
        return "\n".join(f"{verb:<{wide}}  {why or 'works'}" for verb, why in self.why_not.items())


def verbs_of(model: AnyModel) -> Verbs:
    """Which verbs can be asked of a model, and why the others cannot.

    Raises:
        ValueError: no model that is accepted.
    """
    if isinstance(model, Transformer):
        return Verbs(dict.fromkeys([*NEEDS, *ONLY_OURS], ""))
    found = from_bridge(model).capabilities
    return Verbs({verb: found.lacks(needs) for verb, needs in NEEDS.items()} | ONLY_OURS)


def untrained_copy(model: Net, seed: int, *, learned: bool = False) -> Net:
    """A model of the same shape with fresh weights, in evaluation mode.

    Args:
        model: Whose twin.
        seed: Decides the weights.
        learned: Every head learns, also where the model has hard-coded ones.

    Raises:
        ValueError: a bridge around a model that cannot be made from its config alone.
    """
    if isinstance(model, BridgeModel):
        return model.untrained(seed)
    cfg = replace(model.cfg, head_patterns=(), pathways=None) if learned else model.cfg
    return make_model(cfg, seed=seed).eval()


def visible_keys(
    model: Net, tokens: Int[Tensor, "batch pos"], attention_mask: Bool[Tensor, "batch pos"] | None = None
) -> Bool[Tensor, "batch query key"]:
    """Which keys each query may see: causality and padding, nothing else."""
    cfg = model.cfg.masking if isinstance(model, BridgeModel) else model.cfg
    return attention.visible_keys(cfg, tokens, attention_mask)
