"""Which verb accepts which model: ours, or a bridge or `HookedRootModule` with the hook points that the verb uses."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch.nn.utils import prune
from transformer_lens.HookedRootModule import HookedRootModule

from hooks import BridgeModel, TransformerStack, from_bridge, make_model
from hooks.adapters.bridge.adapter import Foreign
from hooks.adapters.bridge.capabilities import Capabilities, Use
from hooks.interventions.ablation_engine import Net
from hooks.model.baseline import Baseline
from hooks.model.layers import check_weights_usable
from hooks.state import restores_state
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
    lacks: Callable[[TransformerStack], str] = lambda model: ""
    """What a `hooks.Transformer` lacks for it, in a sentence; empty if nothing."""
    without_attention: bool = False
    """Whether it accepts networks without attention."""
    untrained: bool = False
    """Whether it makes an untrained copy of the model."""
    sums: bool = False
    """Whether the residual stream must be the sum of what the layers write."""
    split_inputs: bool = False
    """Whether it edits separate inputs of queries, keys, values and MLP."""

    @property
    def uses(self) -> Mapping[str, tuple[Use, ...]]:
        """Uses of each hook point and weight."""
        return dict.fromkeys(self.edits, ("read", "edit")) | dict.fromkeys(self.reads, ("read",))


_STREAM = ("hook_resid_pre", "hook_resid_post")
_EMBEDDED_STREAM = ("blocks.0.hook_resid_pre", "hook_resid_post")
_HEAD_INPUTS = ("attn.hook_v", "attn.hook_pattern", "attn.W_O")
_ABLATED = ("hook_resid_pre", "attn.hook_z")

_OTHER_PATTERN = VerbNeeds(edits=_ABLATED, reads=_HEAD_INPUTS, answers=True)


def lacks_mlps(model: TransformerStack) -> str:
    """What a model without MLPs lacks to patch them."""
    if "blocks.0.hook_mlp_out" in model.hook_dict:
        return ""
    return "site is 'mlp_out', but this model has no MLPs; choose z, resid or attn_out."


def lacks_minimal_layer(model: TransformerStack) -> str:
    """What a model lacks for the balance condition, which is about one layer with one head over bracket and depth."""
    cfg = model.cfg
    advice = "Make one with interp.config_for(task, 'dyck_minimal')."
    if cfg.embedding is None:
        return (
            f"the model's first layer is not minimal: it embeds tokens, not (bracket, depth), and has {cfg.n_layers} "
            f"layers. The balance condition needs one layer over a minimal first layer. {advice}"
        )
    # One layer of one head, whose output is a sum over keys
    faults = {
        f"it has {cfg.n_layers} layers, not one": cfg.n_layers != 1,
        f"it has {cfg.n_heads} heads, not one": cfg.n_heads != 1,
        f"it has positions {cfg.positions!r}, not 'none'": cfg.positions != "none",
        f"its block is {cfg.block!r}, not 'minimal' or 'dyck'": cfg.block not in ("minimal", "dyck"),
        "its output projection has a bias": bool(model.block(0).attention.o.bias_or_zero.any()),
        "it has b I": cfg.vo_identity,
        "its head is hard-coded and not uniform": any(pattern.kind != "uniform" for pattern in cfg.patterns_of(0)),
    }
    for fault, is_faulty in faults.items():
        if is_faulty:
            return f"the balance condition cannot be computed for this model: {fault}. {advice}"
    return ""


def lacks_layers_of_eq_6(model: TransformerStack) -> str:
    """What a model lacks for Theorem 3, which is about layers of Eq. 6 with relu and without hard-coded heads."""
    cfg = model.cfg
    settings: dict[str, Any] = {"block": "dyck", "embedding": None, "output_projection": True}
    if not cfg.attn_only:
        settings["activation"] = "relu"
    for name, value in settings.items():
        if getattr(cfg, name) != value:
            return (
                f"the target has {name}={getattr(cfg, name)!r}; Theorem 3 is about layers of Eq. 6, so it must be "
                f"{value!r}. Train one with config_for(task, 'dyck_eq6') or block='dyck', activation='relu'."
            )
    if any(cfg.patterns_of(layer) for layer in range(cfg.n_layers)):
        return "the target has hard-coded heads; a pruned random network has none. Train one without."
    return ""


def lacks_sum_over_parts(model: TransformerStack) -> str:
    """What a model lacks for direct logit attribution: layers that add to the stream, and a linear read-out."""
    block = model.cfg.block
    if not model.cfg.block_class.adds_to_stream:
        return (
            f"its block is {block!r}, whose layers do not add the outputs of heads and MLPs to the residual stream, so "
            f"that logits are no sum over them. Blocks that do: pre_ln, no_norm. Use ablate_heads."
        )
    if getattr(model.cfg, "head", "") == "masked_lm":
        return (
            "its masked-LM head is not linear (dense, activation, LayerNorm, read-out), so that logits are no sum over "
            "heads and MLPs. Use ablate_heads."
        )
    return ""


def lacks_sum_of_stream(model: TransformerStack) -> str:
    """What a model lacks for taking scores apart: layers that add to the stream."""
    if model.cfg.block_class.adds_to_stream:
        return ""
    return (
        f"the model's block is {model.cfg.block!r}, whose layers do not add the outputs of heads and MLPs to the "
        f"residual stream, so that scores are no sum over them. Blocks that do: pre_ln, no_norm. Use interp.edges."
    )


def lacks_unpruned_matrices(model: TransformerStack) -> str:
    """Whether a model has masks of torch's pruning, which are in the way of further pruning."""
    if not prune.is_pruned(model):
        return ""
    return (
        "model is pruned already: it has masks of torch.nn.utils.prune. Make them permanent with prune.remove, "
        "matrix by matrix, and then compute its curve."
    )


VERBS = {
    "evaluate": VerbNeeds(answers=True, without_attention=True),
    "perplexity": VerbNeeds(answers=True, without_attention=True),
    "probe": VerbNeeds(reads=_EMBEDDED_STREAM, untrained=True),
    "probe with verify=True": VerbNeeds(edits=_EMBEDDED_STREAM, answers=True, untrained=True),
    "audit_probe": VerbNeeds(edits=_STREAM, answers=True, exact_outputs=True, untrained=True),
    "show_attention": VerbNeeds(reads=["attn.hook_pattern"]),
    "attention_variation": VerbNeeds(reads=["attn.hook_pattern"]),
    "classify_heads": VerbNeeds(reads=["hook_resid_pre", *_HEAD_INPUTS], untrained=True),
    "ablate_heads": VerbNeeds(edits=_ABLATED, reads=["attn.W_O"], answers=True),
    "ablate_heads with another pattern": _OTHER_PATTERN,
    "ablate": VerbNeeds(edits=[*_ABLATED, "hook_mlp_out"], reads=["attn.W_O"], answers=True, lacks=lacks_mlps),
    "keep_heads": VerbNeeds(edits=_ABLATED, reads=["attn.W_O"], answers=True),
    "keep_heads with another pattern": _OTHER_PATTERN,
    "audit": VerbNeeds(edits=_ABLATED, reads=_HEAD_INPUTS, answers=True, exact_outputs=True, untrained=True),
    "patch": VerbNeeds(edits=[*_STREAM, "attn.hook_z"], answers=True),
    "patch of attention outputs": VerbNeeds(edits=[*_STREAM, "hook_attn_out"], answers=True),
    "patch of MLPs": VerbNeeds(edits=[*_STREAM, "hook_mlp_out"], answers=True, lacks=lacks_mlps),
    "implements": VerbNeeds(edits=[*_STREAM, "attn.hook_z"], answers=True, untrained=True),
    "logit_lens": VerbNeeds(reads=_EMBEDDED_STREAM, edits=["hook_resid_post"], answers=True),
    "logit_attribution": VerbNeeds(
        reads=["blocks.0.hook_resid_pre", "attn.hook_z", "attn.W_O"],
        edits=["hook_resid_post"],
        answers=True,
        sums=True,
        lacks=lacks_sum_over_parts,
    ),
    "edges": VerbNeeds(
        reads=["blocks.0.hook_resid_pre", "attn.hook_z", "attn.W_O"],
        edits=["hook_resid_post"],
        answers=True,
        sums=True,
        split_inputs=True,
    ),
    "explain_attention": VerbNeeds(
        answers=True,
        only_transformer="it takes scores apart by the weights of a hooks.Transformer; use show_attention",
        lacks=lacks_sum_of_stream,
    ),
    "diagonals": VerbNeeds(reads=["attn.W_Q", "attn.W_K", "attn.W_V", "attn.W_O"]),
    "train": VerbNeeds(
        answers=True,
        exact_outputs=True,
        without_attention=True,
        only_transformer=(
            "a run is saved and resumed as a hooks.Transformer; train the wrapped model with its own tools"
        ),
    ),
    "balance_violation": VerbNeeds(
        only_transformer="it is defined for one layer over frozen vectors of bracket and depth (presets.dyck_minimal)",
        lacks=lacks_minimal_layer,
    ),
    "extrapolate": VerbNeeds(
        answers=True,
        only_transformer="it reads out after every layer, and applies more layers than trained (read_out, at_depth)",
    ),
    "indistinguishable": VerbNeeds(
        only_transformer="Theorem 3 is about layers of Eq. 6 (block='dyck')", lacks=lacks_layers_of_eq_6
    ),
    "pruning_curve": VerbNeeds(
        answers=True, only_transformer="it prunes the matrices of a hooks.Transformer", lacks=lacks_unpruned_matrices
    ),
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
    net = prepare_scorable(model, verb, task)
    assert not isinstance(net, Baseline)  # refused by verbs that need attention
    return net


def prepare_scorable(model: Any, verb: str, task: Any = NO_TASK) -> Net | Baseline:
    """`prepare_model` for verbs that accept networks without attention as well."""
    needs = VERBS[verb]
    net = _accepted(model, verb, needs)
    if task is not NO_TASK:
        check_sizes(net, task, answers=needs.answers, spare_outputs=not needs.exact_outputs)
    return net


def _accepted(model: Any, verb: str, needs: VerbNeeds) -> Net | Baseline:
    """The model, wrapped if it is not ours, if the verb accepts it."""
    if isinstance(model, Baseline | TransformerStack):
        check_weights_usable("model", model)
        if obstacle := _obstacle_of_ours(model, needs):
            raise ValueError(obstacle)
        return model
    if isinstance(model, AnyModel) and needs.only_transformer:
        wrapped = model.bridge if isinstance(model, BridgeModel) else model
        kind = "HookedRootModule" if isinstance(wrapped, HookedRootModule) else "TransformerLens bridge"
        raise ValueError(f"{verb} does not accept a {kind}: {needs.only_transformer}.")
    # Any other object is refused by `from_bridge`; of a wrapped model, hook points may be missing
    net = from_bridge(model)
    if obstacle := _lacking_points(net.capabilities, needs):
        raise ValueError(f"{verb} does not accept this {net.label}: {obstacle}.")
    return net


def _lacking_points(capabilities: Capabilities, needs: VerbNeeds) -> str:
    """What a verb cannot read, edit or add up in a wrapped model, in words; empty if it has all that it needs."""
    obstacle = capabilities.lacks(needs.uses)
    if not obstacle and needs.sums and not capabilities.sums.ok:
        return capabilities.sums.reason
    if not obstacle and needs.split_inputs and not capabilities.split_inputs.ok:
        return f"it has to edit separate inputs of queries, keys, values and MLP: {capabilities.split_inputs.reason}"
    return obstacle


def _obstacle_of_ours(model: Baseline | TransformerStack, needs: VerbNeeds) -> str:
    """Why a verb does not accept a model of this package, in a sentence; empty if it does."""
    if isinstance(model, Baseline):
        if needs.without_attention:
            return ""
        return (
            f"this model is a {model.cfg.kind}: it has no attention heads and no residual stream to read. Train "
            "a transformer on the task, or use evaluate."
        )
    if needs.answers and getattr(model.cfg, "head", "") == "none":
        return (
            "this model has no read-out: its outputs are the activations of the last layer, not logits of answers. "
            "Load the model with its head (BertForMaskedLM, AlbertForMaskedLM), or use probe."
        )
    return needs.lacks(model)


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
    net = model if isinstance(model, Baseline | TransformerStack) else from_bridge(model)
    obstacles = {verb: _obstacle(net, needs, task) for verb, needs in VERBS.items()}
    return SupportedVerbs(obstacles)


def obstacles_of(capabilities: Capabilities) -> dict[str, str]:
    """Why each verb does not accept a wrapped model of these capabilities; empty if it does."""
    return {verb: _obstacle_of_wrapped(capabilities, needs) for verb, needs in VERBS.items()}


def _obstacle_of_wrapped(capabilities: Capabilities, needs: VerbNeeds) -> str:
    """Why a verb does not accept a wrapped model, in words; empty if it does."""
    obstacle = needs.only_transformer or _lacking_points(capabilities, needs)
    if not obstacle and needs.untrained:
        obstacle = capabilities.no_untrained
    return obstacle


def _obstacle(net: Net | Baseline, needs: VerbNeeds, task: Task | None) -> str:
    """Why a verb does not accept a model, in words; empty if it does."""
    if isinstance(net, BridgeModel):
        obstacle = _obstacle_of_wrapped(net.capabilities, needs)
    else:
        obstacle = _obstacle_of_ours(net, needs)
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
    if isinstance(model, BridgeModel):
        return model.untrained(seed)
    cfg = replace(model.cfg, head_patterns=()) if learned else model.cfg
    return make_model(cfg, seed=seed).eval()
