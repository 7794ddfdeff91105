"""Which verb accepts which model: ours, or a bridge or `HookedRootModule` with the hook points that the verb uses."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from importlib import import_module
from typing import Any, Literal, cast

from transformer_lens.HookedRootModule import HookedRootModule

import interp
from hooks import TransformerStack, from_bridge, make_model
from hooks.adapters.bridge.adapter import Foreign
from hooks.adapters.bridge.capabilities import Capabilities, Use
from hooks.interventions.clean_pass import Net
from hooks.lazy_names import modules_of_names
from hooks.model.architectures import Model
from hooks.model.baseline import Baseline
from hooks.model.layers import check_weights_usable
from hooks.state import restores_state
from hooks.typed import checks_types
from interp.tasks.base import Task

AnyModel = Net | Foreign
"""Models that the verbs accept."""

NO_TASK = object()
"""In place of a task: the verb uses none."""


@dataclass(frozen=True)
class Needs:
    """What a verb needs of a model: a constant of the verb's module, which `supported_verbs` finds there."""

    verb: str
    """Name of the function, and in which use of it, such as `probe with verify=True`."""
    _: KW_ONLY
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
    lacks: Callable[[TransformerStack], str] = lambda model: ""
    """What a `hooks.Transformer` lacks for it, in a sentence; empty if nothing."""
    without_attention: bool = False
    """Whether it accepts networks without attention."""
    untrained: bool = False
    """Whether it makes an untrained copy of the model."""
    sums: Literal["", "layers", "heads", "scores"] = ""
    """What the residual stream must be the sum of: what attention and MLPs of the `layers` write, or also each of their
    `heads`; with `scores`, attention scores must be sums over pairs of these too."""
    split_inputs: bool = False
    """Whether it edits separate inputs of queries, keys, values and MLP."""
    instead: str = ""
    """What to use for a wrapped model that lacks something."""

    @property
    def uses(self) -> Mapping[str, tuple[Use, ...]]:
        """Uses of each hook point and weight."""
        return dict.fromkeys(self.edits, ("read", "edit")) | dict.fromkeys(self.reads, ("read",))


STREAM = ("hook_resid_pre", "hook_resid_post")
EMBEDDED_STREAM = ("blocks.0.hook_resid_pre", "hook_resid_post")
HEAD_OUTPUTS = ("hook_resid_pre", "attn.hook_z")
HEAD_INPUTS = ("attn.hook_v", "attn.hook_pattern", "attn.W_O")
"""Hook points that several verbs need: the residual stream, before and after each layer or as embedded and after each
layer; heads and the stream from which passes resume; and what a head reads, with its output weights."""


def without_mlps(sentence: str) -> Callable[[TransformerStack], str]:
    """What `Needs.lacks` says of a model without MLPs."""
    return lambda model: "" if "blocks.0.hook_mlp_out" in model.hook_dict else sentence


def without_sums(sentence: str) -> Callable[[TransformerStack], str]:
    """What `Needs.lacks` says of a model whose layers do not add to the stream; `{block}` is its block."""

    def lacks(model: TransformerStack) -> str:
        return "" if model.cfg.block_class.adds_to_stream else sentence.format(block=repr(model.cfg.block))

    return lacks


def prepare_model(model: Any, needs: Needs, task: Any = NO_TASK) -> Net:
    """Check that a verb accepts a model, and wrap a bridge or `HookedRootModule` under our hook names.

    Args:
        model: The caller's model.
        needs: What the verb needs of it.
        task: The task that the verb uses the model on; `NO_TASK` if it needs none.

    Returns:
        The model itself if it is a `hooks.Transformer`, else a `BridgeModel`.

    Raises:
        ValueError: a network without attention, any other object that is no model, or one that lacks what the verb
            needs; a task that is no `Task`, or that the model does not fit.
    """
    return cast(Net, prepare_scorable(model, needs, task))  # others are refused by verbs that need attention


def prepare_scorable(model: Any, needs: Needs, task: Any = NO_TASK) -> Net | Baseline:
    """`prepare_model` for verbs that accept networks without attention as well."""
    net = _accepted(model, needs)
    if task is not NO_TASK:
        check_sizes(net, task, answers=needs.answers, spare_outputs=not needs.exact_outputs)
    return net


def _accepted(model: Any, needs: Needs) -> Net | Baseline:
    """The model, wrapped if it is not ours, if the verb accepts it."""
    if isinstance(model, Model):
        check_weights_usable("model", model)
        if obstacle := _obstacle(model, needs):
            raise ValueError(obstacle)
        return model
    if isinstance(model, AnyModel) and needs.only_transformer:
        wrapped = getattr(model, "bridge", model)
        kind = "HookedRootModule" if isinstance(wrapped, HookedRootModule) else "TransformerLens bridge"
        raise ValueError(f"{needs.verb} does not accept a {kind}: {needs.only_transformer}.")
    # Any other object is refused by `from_bridge`; of a wrapped model, hook points may be missing
    net = from_bridge(model)
    if obstacle := _lacking_points(net.capabilities, needs):
        instead = f" Use {needs.instead}." if needs.instead else ""
        raise ValueError(f"{needs.verb} does not accept this {net.label}: {obstacle}.{instead}")
    return net


def _lacking_points(capabilities: Capabilities, needs: Needs) -> str:
    """What a verb cannot read, edit or add up in a wrapped model, in words; empty if it has all that it needs."""
    obstacle = capabilities.lacks(needs.uses)
    sums = {"layers": capabilities.layer_sums, "heads": capabilities.sums, "scores": capabilities.score_sums}
    if not obstacle and needs.sums and not sums[needs.sums].ok:
        return sums[needs.sums].reason
    if not obstacle and needs.split_inputs and not capabilities.split_inputs.ok:
        return f"it has to edit separate inputs of queries, keys, values and MLP: {capabilities.split_inputs.reason}"
    return obstacle


def _obstacle(model: Net | Baseline, needs: Needs) -> str:
    """Why a verb does not accept a model, in words, of a model of this package in a sentence; empty if it does."""
    if model.capabilities is not None:
        return _obstacle_of_wrapped(model.capabilities, needs)
    if not model.has_attention:
        if needs.without_attention:
            return ""
        return (
            f"this model is a {model.kind}: it has no attention heads and no residual stream to read. Train "
            "a transformer on the task, or use evaluate."
        )
    if needs.answers and getattr(model.cfg, "head", "") == "none":
        return (
            "this model has no read-out: its outputs are the activations of the last layer, not logits of answers. "
            "Load the model with its head (BertForMaskedLM, AlbertForMaskedLM), or use probe."
        )
    return needs.lacks(cast(TransformerStack, model))


def check_sizes(model: Net | Baseline, task: Task, *, answers: bool, spare_outputs: bool = True) -> None:
    """Check that a model can read a task's examples and, with `answers`, give its answers.

    A model of more tokens than the task has another vocabulary; only for text, where embeddings are often padded, it is
    accepted. With `spare_outputs`, a model whose outputs are tokens may have more outputs than the task has answers.

    Raises:
        ValueError: the size that does not fit.
    """
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


@checks_types
@restores_state
def supported_verbs(model: AnyModel | Baseline, task: Task | None = None) -> SupportedVerbs:
    """List the verbs that accept a model, and what prevents the others.

    Args:
        model: The model.
        task: The task to use it on, whose sizes must fit those of the model; if None, sizes are not compared.

    Raises:
        ValueError: neither a model of `hooks`, nor a TransformerLens bridge, nor a `HookedRootModule`.

    Example:
        >>> import hooks, interp
        >>> model = hooks.Transformer(hooks.TransformerConfig(d_vocab=5, d_model=8, n_heads=2, n_layers=1))
        >>> print(interp.supported_verbs(model))
        evaluate                           works
        perplexity                         works
        probe                              works
        ...
    """
    net = model if isinstance(model, Model) else from_bridge(model)
    obstacles = {verb: _obstacle_with(net, needs, task) for verb, needs in needs_of_verbs().items()}
    return SupportedVerbs(obstacles)


def needs_of_verbs() -> dict[str, Needs]:
    """What each public verb of `interp` needs, by its name, in the order of `interp/__init__.pyi`."""
    verbs: dict[str, Needs] = {}
    for name, path in modules_of_names("interp", interp.__file__).items():
        constants = vars(import_module(path)).values()
        needs_here = [needs for needs in constants if isinstance(needs, Needs)]
        verbs |= {needs.verb: needs for needs in needs_here if needs.verb.split()[0] == name}
    return verbs


def obstacles_of(capabilities: Capabilities) -> dict[str, str]:
    """Why each verb does not accept a wrapped model of these capabilities; empty if it does."""
    return {verb: _obstacle_of_wrapped(capabilities, needs) for verb, needs in needs_of_verbs().items()}


def _obstacle_of_wrapped(capabilities: Capabilities, needs: Needs) -> str:
    """Why a verb does not accept a wrapped model, in words; empty if it does."""
    obstacle = needs.only_transformer or _lacking_points(capabilities, needs)
    if not obstacle and needs.untrained:
        obstacle = capabilities.no_untrained
    return obstacle


def _obstacle_with(net: Net | Baseline, needs: Needs, task: Task | None) -> str:
    """Why a verb does not accept a model and, unless it is None, a task; empty if it does."""
    obstacle = _obstacle(net, needs)
    if obstacle or task is None:
        return obstacle
    try:
        check_sizes(net, task, answers=needs.answers, spare_outputs=not needs.exact_outputs)
    except ValueError as error:
        return str(error)
    return ""


def untrained_copy(model: Net, seed: int, *, learned: bool = False) -> Net:
    """A model with the same config and fresh weights, in evaluation mode.

    Args:
        model: The model whose config to use.
        seed: Seed of the weights.
        learned: Replace hard-coded heads by learned ones.

    Raises:
        ValueError: a wrapped model that cannot be built from its config alone.
    """
    if not model.made_from_cfg:
        return cast(Any, model).untrained(seed)
    cfg = replace(model.cfg, head_patterns=()) if learned else model.cfg
    return make_model(cfg, seed=seed).eval()
