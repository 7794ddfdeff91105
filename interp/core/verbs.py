"""Which verb accepts which model: ours, or a bridge or `HookedRootModule` with the hook points that the verb uses."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from jaxtyping import Bool, Int
from torch import Tensor
from transformer_lens.HookedRootModule import HookedRootModule

from hooks import BridgeModel, TransformerStack, from_bridge, make_model
from hooks.adapters.bridge.adapter import Foreign
from hooks.adapters.bridge.capabilities import Use
from hooks.interventions.ablation_engine import Net
from hooks.model import attention
from hooks.model.baseline import Baseline
from interp.tasks.base import IS_A_TASK, Task

AnyModel = Net | Foreign
"""Models that the verbs accept."""

WITHOUT = object()
"""In place of a task: the verb uses none."""
_READ: tuple[Use, ...] = ("read",)
_BOTH: tuple[Use, ...] = ("read", "edit")
_HEADS: dict[str, tuple[Use, ...]] = {
    "hook_resid_pre": _READ,
    "attn.hook_v": _READ,
    "attn.hook_pattern": _READ,
    "attn.W_O": _READ,
}
_ABLATION = _HEADS | {"hook_resid_pre": _BOTH, "attn.hook_z": _BOTH, "hook_attn_out": _BOTH}
USES: dict[str, Mapping[str, tuple[Use, ...]]] = {
    "evaluate": {},
    "probe": {"blocks.0.hook_resid_pre": _READ, "hook_resid_post": _READ},
    "probe with verify=True": {"blocks.0.hook_resid_pre": _BOTH, "hook_resid_post": _BOTH},
    "audit_probe": {"hook_resid_pre": _BOTH, "hook_resid_post": _BOTH},
    "show_attention": {"attn.hook_pattern": _READ},
    "attention_variation": {"attn.hook_pattern": _READ},
    "classify_heads": _HEADS,
    "ablate_heads": _ABLATION,
    "keep_heads": _ABLATION,
    "audit": _ABLATION,
    "implements": {"hook_resid_pre": _BOTH, "hook_resid_post": _BOTH, "attn.hook_z": _BOTH, "hook_attn_out": _BOTH},
    "diagonals": {f"attn.W_{name}": _READ for name in "QKVO"},
}
"""Hook points and weights that each verb reads or edits."""
TRANSFORMER_ONLY = {
    "train": "a run is saved and resumed as a hooks.Transformer; train the wrapped model with its own tools",
    "balance_violation": "it is defined for one layer over frozen vectors of bracket and depth (presets.dyck_minimal)",
    "extrapolate": "it reads out after every layer, and applies more layers than trained (read_out, at_depth)",
    "indistinguishable": "Theorem 3 is about layers of Eq. 6 (block='dyck')",
    "pruning_curve": "it prunes the matrices of a hooks.Transformer",
}
"""Verbs that accept only a `hooks.Transformer`, and why."""
ANSWERS = ("evaluate", "probe with verify=True", "ablate_heads", "keep_heads", "audit", "audit_probe",
           "extrapolate", "implements")  # fmt: skip
"""Verbs that use the model's answers to a task, and not only what it reads."""
AUDITS = ("audit", "audit_probe")
"""Verbs that refuse a model with more answers than the task: it was probably made for another one."""


def prepare_model(model: Any, verb: str, task: Any = WITHOUT) -> Net:
    """Check that a verb accepts a model, and wrap a bridge or `HookedRootModule` under our hook names.

    Args:
        model: The caller's model.
        verb: A key of `USES` or `TRANSFORMER_ONLY`.
        task: The task that the verb uses the model on; `WITHOUT` if it needs none.

    Returns:
        The model itself if it is a `hooks.Transformer`, else a `BridgeModel`.

    Raises:
        ValueError: a network without attention, any other object that is no model, or one that lacks what the verb
            needs; a task that is no `Task`, or that the model does not fit.
    """
    net = _accepted(model, verb)
    if task is not WITHOUT:
        check_fit(net, task, answers=verb in ANSWERS, more=verb not in AUDITS)
    return net


def check_fit(model: Net | Baseline, task: Task, *, answers: bool, more: bool = True) -> None:
    """Check that a model can read a task's examples and, where `answers` is set, give its answers.

    A model of more tokens than the task has another vocabulary; only for text, where embeddings are often padded, it is
    accepted. With `more`, a model whose outputs are tokens may have more outputs than the task has answers.

    Raises:
        ValueError: the size that does not fit.
    """
    task, cfg = Task.require(task, IS_A_TASK), model.cfg
    for name in ("d_vocab", "n_ctx"):
        if getattr(cfg, name) < getattr(task, name):
            raise ValueError(
                f"the task has {name} {getattr(task, name)}, the model {getattr(cfg, name)}: it cannot read such "
                f"sequences. Use the task that the model was made for."
            )
    unused = more and cfg.d_vocab_out == cfg.d_vocab and cfg.d_vocab_out > task.d_vocab_out
    if answers and cfg.d_vocab_out != task.d_vocab_out and not unused:
        raise ValueError(
            f"the task has d_vocab_out {task.d_vocab_out}, the model {cfg.d_vocab_out}: its answers cannot be scored. "
            f"Use the task that the model was made for."
        )
    if cfg.d_vocab > task.d_vocab and not task.is_language:
        raise ValueError(
            f"the task has d_vocab {task.d_vocab}, the model {cfg.d_vocab}: its vocabulary is another one, in which "
            f"these tokens mean something else. Use the task that the model was made for."
        )


def _accepted(model: Any, verb: str) -> Net:
    if isinstance(model, Baseline):
        raise ValueError(
            f"this model is a {model.cfg.kind}: it has no attention heads and no residual stream to read. Train "
            "a transformer on the task, or use evaluate."
        )
    if isinstance(model, TransformerStack):
        return model
    if isinstance(model, AnyModel) and verb in TRANSFORMER_ONLY:
        wrapped = model.bridge if isinstance(model, BridgeModel) else model
        kind = "HookedRootModule" if isinstance(wrapped, HookedRootModule) else "TransformerLens bridge"
        raise ValueError(f"{verb} does not accept a {kind}: {TRANSFORMER_ONLY[verb]}.")
    net = from_bridge(model)
    if lacks := net.capabilities.lacks(USES[verb]):
        raise ValueError(f"{verb} does not accept this {net.label}: {lacks}.")
    return net


@dataclass(frozen=True)
class SupportedVerbs:
    """Verbs that accept a model; prints as a table."""

    obstacles: Mapping[str, str]
    """For each verb, why it does not accept the model; empty if it does."""

    def __str__(self) -> str:
        wide = max(map(len, self.obstacles))
        return "\n".join(f"{verb:<{wide}}  {why or 'works'}" for verb, why in self.obstacles.items())


def supported_verbs(model: AnyModel) -> SupportedVerbs:
    """List the verbs that accept a model, and what prevents the others.

    Raises:
        ValueError: neither a `hooks.Transformer`, nor a TransformerLens bridge, nor a `HookedRootModule`.
    """
    if isinstance(model, TransformerStack):
        return SupportedVerbs(dict.fromkeys([*USES, *TRANSFORMER_ONLY], ""))
    found = from_bridge(model).capabilities
    return SupportedVerbs({verb: found.lacks(uses) for verb, uses in USES.items()} | TRANSFORMER_ONLY)


def untrained_copy(model: Net, seed: int, *, learned: bool = False) -> Net:
    """A model with the same config and fresh weights, in evaluation mode.

    Args:
        model: The model whose config to use.
        seed: Seed of the weights.
        learned: Replace hard-coded heads by learned ones.

    Raises:
        ValueError: a wrapped model that cannot be built from its config alone.
    """
    if isinstance(model, BridgeModel):
        return model.untrained(seed)
    cfg = replace(model.cfg, head_patterns=()) if learned else model.cfg
    return make_model(cfg, seed=seed).eval()


def visible_keys(
    model: Net, tokens: Int[Tensor, "batch pos"], attention_mask: Bool[Tensor, "batch pos"] | None = None
) -> Bool[Tensor, "batch query key"]:
    """Keys visible to each query under causal and padding masks."""
    return attention.visible_keys(model.cfg, tokens, attention_mask)
