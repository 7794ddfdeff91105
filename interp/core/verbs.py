"""Which verb accepts which model: ours, or a bridge or `HookedRootModule` with the hook points that the verb uses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from transformer_lens.HookedRootModule import HookedRootModule

from hooks import BridgeModel, TransformerStack, from_bridge, make_model
from hooks.adapters.bridge.adapter import Foreign
from hooks.adapters.bridge.capabilities import Use
from hooks.interventions.ablation_engine import Net
from hooks.model.baseline import Baseline
from interp.tasks.base import IS_A_TASK, Task

AnyModel = Net | Foreign
"""Models that the verbs accept."""

NO_TASK = object()
"""In place of a task: the verb uses none."""


@dataclass(frozen=True, kw_only=True)
class VerbNeeds:
    """What a verb needs of a model."""

    reads: Sequence[str] = ()
    """Hook points and weights that it reads; a name without its layer, such as `attn.hook_z`, means all layers."""
    edits: Sequence[str] = ()
    """Hook points that it reads and edits."""
    answers: bool = False
    """Whether it scores the model's answers to a task, and does not only read activations."""
    exact_outputs: bool = False
    """Whether it refuses a model with more outputs than the task has answers: probably one for another task."""
    only_transformer: str = ""
    """Why it accepts only a `hooks.Transformer`; empty if it accepts others."""

    @property
    def uses(self) -> Mapping[str, tuple[Use, ...]]:
        """Uses of each hook point and weight."""
        return dict.fromkeys(self.edits, ("read", "edit")) | dict.fromkeys(self.reads, ("read",))


_STREAM = ("hook_resid_pre", "hook_resid_post")
_EMBEDDED_STREAM = ("blocks.0.hook_resid_pre", "hook_resid_post")
_HEAD_INPUTS = ("attn.hook_v", "attn.hook_pattern", "attn.W_O")
_ABLATED = ("hook_resid_pre", "attn.hook_z", "hook_attn_out")

VERBS = {
    "evaluate": VerbNeeds(answers=True),
    "probe": VerbNeeds(reads=_EMBEDDED_STREAM),
    "probe with verify=True": VerbNeeds(edits=_EMBEDDED_STREAM, answers=True),
    "audit_probe": VerbNeeds(edits=_STREAM, answers=True, exact_outputs=True),
    "show_attention": VerbNeeds(reads=["attn.hook_pattern"]),
    "attention_variation": VerbNeeds(reads=["attn.hook_pattern"]),
    "classify_heads": VerbNeeds(reads=["hook_resid_pre", *_HEAD_INPUTS]),
    "ablate_heads": VerbNeeds(edits=_ABLATED, reads=_HEAD_INPUTS, answers=True),
    "keep_heads": VerbNeeds(edits=_ABLATED, reads=_HEAD_INPUTS, answers=True),
    "audit": VerbNeeds(edits=_ABLATED, reads=_HEAD_INPUTS, answers=True, exact_outputs=True),
    "implements": VerbNeeds(edits=[*_STREAM, "attn.hook_z", "hook_attn_out"], answers=True),
    "diagonals": VerbNeeds(reads=["attn.W_Q", "attn.W_K", "attn.W_V", "attn.W_O"]),
    "train": VerbNeeds(
        only_transformer="a run is saved and resumed as a hooks.Transformer; train the wrapped model with its own tools"
    ),
    "balance_violation": VerbNeeds(
        only_transformer="it is defined for one layer over frozen vectors of bracket and depth (presets.dyck_minimal)"
    ),
    "extrapolate": VerbNeeds(
        answers=True,
        only_transformer="it reads out after every layer, and applies more layers than trained (read_out, at_depth)",
    ),
    "indistinguishable": VerbNeeds(only_transformer="Theorem 3 is about layers of Eq. 6 (block='dyck')"),
    "pruning_curve": VerbNeeds(only_transformer="it prunes the matrices of a hooks.Transformer"),
}
"""What each verb needs. A new verb adds its row."""


def prepare_model(model: Any, verb: str, task: Any = NO_TASK) -> Net:
    """Check that a verb accepts a model, and wrap a bridge or `HookedRootModule` under our hook names.

    Args:
        model: The caller's model.
        verb: A key of `VERBS`.
        task: The task that the verb uses the model on; `NO_TASK` if it needs none.

    Returns:
        The model itself if it is a `hooks.Transformer`, else a `BridgeModel`.

    Raises:
        ValueError: a network without attention, any other object that is no model, or one that lacks what the verb
            needs; a task that is no `Task`, or that the model does not fit.
    """
    needs = VERBS[verb]
    net = _accepted(model, verb, needs)
    if task is not NO_TASK:
        check_sizes(net, task, answers=needs.answers, spare_outputs=not needs.exact_outputs)
    return net


def _accepted(model: Any, verb: str, needs: VerbNeeds) -> Net:
    """The model, wrapped if it is not ours, if the verb accepts it."""
    if isinstance(model, Baseline):
        raise ValueError(
            f"this model is a {model.cfg.kind}: it has no attention heads and no residual stream to read. Train "
            "a transformer on the task, or use evaluate."
        )
    if isinstance(model, TransformerStack):
        return model
    if isinstance(model, AnyModel) and needs.only_transformer:
        wrapped = model.bridge if isinstance(model, BridgeModel) else model
        kind = "HookedRootModule" if isinstance(wrapped, HookedRootModule) else "TransformerLens bridge"
        raise ValueError(f"{verb} does not accept a {kind}: {needs.only_transformer}.")
    # Any other object is refused by `from_bridge`; of a wrapped model, hook points may be missing
    net = from_bridge(model)
    if obstacle := net.capabilities.lacks(needs.uses):
        raise ValueError(f"{verb} does not accept this {net.label}: {obstacle}.")
    return net


def check_sizes(model: Net | Baseline, task: Task, *, answers: bool, spare_outputs: bool = True) -> None:
    """Check that a model can read a task's examples and, with `answers`, give its answers.

    A model of more tokens than the task has another vocabulary; only for text, where embeddings are often padded, it is
    accepted. With `spare_outputs`, a model whose outputs are tokens may have more outputs than the task has answers.

    Raises:
        ValueError: the size that does not fit.
    """
    task = Task.require(task, IS_A_TASK)
    cfg = model.cfg
    # The model must be able to read the sequences
    for name in ("d_vocab", "n_ctx"):
        if getattr(cfg, name) < getattr(task, name):
            raise ValueError(
                f"the task has {name} {getattr(task, name)}, the model {getattr(cfg, name)}: it cannot read such "
                f"sequences. Use the task that the model was made for."
            )
    # Its outputs must be the task's answers, perhaps with spare ones
    has_spare_outputs = cfg.d_vocab_out == cfg.d_vocab and cfg.d_vocab_out > task.d_vocab_out
    if answers and cfg.d_vocab_out != task.d_vocab_out and not (spare_outputs and has_spare_outputs):
        raise ValueError(
            f"the task has d_vocab_out {task.d_vocab_out}, the model {cfg.d_vocab_out}: its answers cannot be scored. "
            f"Use the task that the model was made for."
        )
    # Its tokens must be the task's
    if cfg.d_vocab > task.d_vocab and not task.is_language:
        raise ValueError(
            f"the task has d_vocab {task.d_vocab}, the model {cfg.d_vocab}: its vocabulary is another one, in which "
            f"these tokens mean something else. Use the task that the model was made for."
        )


@dataclass(frozen=True)
class SupportedVerbs:
    """Verbs that accept a model; prints as a table."""

    obstacles: Mapping[str, str]
    """For each verb, why it does not accept the model; empty if it does."""

    def __str__(self) -> str:
        width = max(map(len, self.obstacles))
        return "\n".join(f"{verb:<{width}}  {obstacle or 'works'}" for verb, obstacle in self.obstacles.items())


def supported_verbs(model: AnyModel) -> SupportedVerbs:
    """List the verbs that accept a model, and what prevents the others.

    Raises:
        ValueError: neither a `hooks.Transformer`, nor a TransformerLens bridge, nor a `HookedRootModule`.

    Example:
        >>> import hooks, interp
        >>> model = hooks.Transformer(hooks.TransformerConfig(d_vocab=5, d_model=8, n_heads=2, n_layers=1))
        >>> print(interp.supported_verbs(model))
        evaluate                works
        probe                   works
        ...
    """
    if isinstance(model, TransformerStack):
        return SupportedVerbs(dict.fromkeys(VERBS, ""))
    capabilities = from_bridge(model).capabilities
    obstacles = {}
    for verb, needs in VERBS.items():
        obstacles[verb] = needs.only_transformer or capabilities.lacks(needs.uses)
    return SupportedVerbs(obstacles)


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
