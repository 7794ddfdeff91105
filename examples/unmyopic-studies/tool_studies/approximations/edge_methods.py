"""Edges by EAP, EAP-IG and ACDC: the same edges, sequences, replacement and metric as for `interp.edges`.

All are for blocks whose inputs are sums over parts, with learned heads. The metric is the loss per answer of
`ModelOnBatch`, so that a score is in nats per answer, and positive for an edge whose replacement raises the loss.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from hooks import Transformer
from hooks.interventions.ablation_engine import head_output_point, part_points
from hooks.interventions.circuit_engine import CircuitEngine
from hooks.interventions.edge_engine import EMBEDDING, EMBEDDING_POINT, LETTERS, Edge, Receiver, Sender
from interp.tasks.base import Batch, logits_at_targets
from tool_studies.approximations.removal import ModelOnBatch

NewOutputs = Mapping[str, Float[Tensor, "#batch pos *width"]]
"""What parts write instead, at their hook points (`interp.heads.interventions.part_points`)."""


def all_edges(model: Transformer, batch: Batch) -> list[Edge]:
    """Every edge of a model, in the order of `interp.edges`."""
    first = batch.select(slice(0, 1))
    inputs: dict[str, Any] = first.model_inputs()
    return CircuitEngine(model, first.tokens, **inputs).edges


def edge_attribution(
    model: Transformer, answers: ModelOnBatch, new_outputs: NewOutputs, *, steps: int = 1
) -> Float[np.ndarray, " edge"]:
    """EAP with one step, EAP-IG with several.

    The change of what the sender writes, times the gradient of the loss at the receiver's input. EAP takes the gradient
    at the model's own activations; EAP-IG its mean over passes in which the embedding is k / steps of the way from its
    replacement to its value.

    Args:
        model: The model.
        answers: Sequences and their answers.
        new_outputs: What parts write instead.
        steps: Number of gradients.

    Source: Syed et al. 2023 (arXiv:2310.10348), Section 3; Hanna et al. 2024 (arXiv:2403.17806), Equation 5.
    """
    batch = answers.batch
    changes = changes_of_parts(model, batch, new_outputs)
    separate, edges = with_separate_inputs(model), all_edges(model, batch)
    receivers = list(dict.fromkeys(receiver for _, receiver in edges))
    gradients: dict[Receiver, Tensor] = {}
    for step in range(1, steps + 1):
        # What is left of the embedding's change after this step: nothing after the last
        remaining = (1 - step / steps) * changes[EMBEDDING]
        for receiver, gradient in _gradients(separate, receivers, answers, remaining).items():
            gradients[receiver] = gradients.get(receiver, torch.zeros_like(gradient)) + gradient / steps
    return np.array([float((changes[sender] * gradients[receiver]).sum()) for sender, receiver in edges])


@torch.no_grad()
def acdc(
    model: Transformer,
    answers: ModelOnBatch,
    new_outputs: NewOutputs,
    *,
    thresholds: Sequence[float],
    measure: Literal["loss", "divergence"] = "loss",
) -> Float[np.ndarray, " edge"]:
    """ACDC: for each edge, the largest threshold at which it stays; 0 if it stays at none.

    From the read-out to the first layer, each edge is removed for good if the measure rises by less than the threshold.

    Args:
        model: The model.
        answers: Sequences and their answers.
        new_outputs: What parts write instead.
        thresholds: Thresholds, each for a separate search.
        measure: The `loss`, or the `divergence` of the answers from those of the model: KL at the targets, mean squared
            error of numbers.

    Source: Conmy et al. 2023 (arXiv:2304.14997), Algorithm 1, whose measure is the divergence.
    """
    batch = answers.batch
    engine = CircuitEngine(model, batch.tokens, read_at=batch.target_positions, **batch.model_inputs())  # type: ignore[arg-type]
    ((_, sequences),) = answers.parts(len(batch))

    def measured(replaced: Tensor) -> float:
        (logits,) = engine.each_set(replaced[None], new_outputs)
        if measure == "loss":
            return float(sequences.loss(logits))
        return _divergence(engine.logits, logits, batch)

    scores = np.zeros(len(engine.edges))
    for threshold in sorted(thresholds):
        replaced = torch.zeros(len(engine.edges), dtype=torch.bool)
        current = measured(replaced)
        for index in reversed(range(len(engine.edges))):
            replaced[index] = True
            after = measured(replaced)
            if after - current < threshold:
                current = after
            else:
                replaced[index] = False
        scores[~replaced.numpy()] = threshold
    return scores


@torch.no_grad()
def changes_of_parts(model: Transformer, batch: Batch, new_outputs: NewOutputs) -> dict[Sender, Tensor]:
    """What each part would write instead, minus what it writes."""
    inputs: dict[str, Any] = batch.model_inputs()
    _, cache = model.run_with_cache(batch.tokens, **inputs, names_filter=part_points(model))
    changes = {EMBEDDING: new_outputs[EMBEDDING_POINT] - cache[EMBEDDING_POINT]}
    for layer in range(model.cfg.n_layers):
        point = f"blocks.{layer}.{head_output_point(model.cfg)}"
        of_heads = new_outputs[point] - cache[point]
        if not model.cfg.vo_identity:
            of_heads = einsum(of_heads, model.blocks[layer].attn.W_O, "b p h e, h e d -> b p h d")
        changes |= {Sender(layer, head): change for head, change in enumerate(of_heads.unbind(2))}
        if not model.cfg.attn_only:
            point = f"blocks.{layer}.hook_mlp_out"
            changes[Sender(layer)] = new_outputs[point] - cache[point]
    return changes


def with_separate_inputs(model: Transformer) -> Transformer:
    """A copy of a model, with hook points at the query, key and value inputs of each head and at those of MLPs."""
    copied = copy.deepcopy(model)
    copied.set_use_split_qkv_input(True)
    if not copied.cfg.attn_only:
        copied.set_use_hook_mlp_in(True)
    return copied


def input_point(receiver: Receiver) -> str:
    """The hook point of an input in a model with separate inputs; at those of attention, all heads have one."""
    if receiver.kind == "read-out":
        return f"blocks.{receiver.layer - 1}.hook_resid_post"
    if receiver.kind == "MLP":
        return f"blocks.{receiver.layer}.hook_mlp_in"
    return f"blocks.{receiver.layer}.attn.hook_{LETTERS[receiver.kind]}_input"


def _gradients(
    separate: Transformer, receivers: Sequence[Receiver], answers: ModelOnBatch, change: Tensor
) -> dict[Receiver, Tensor]:
    """Gradient of the loss at every input of a model with separate inputs, with its embedding changed."""
    batch = answers.batch
    inputs: dict[str, Tensor] = {}

    def store(activation: Tensor, hook: Any) -> Tensor:
        inputs[hook.name] = activation if activation.requires_grad else activation.requires_grad_()
        return inputs[hook.name]

    # The embedding comes first, and has a gradient from there on
    start = (EMBEDDING_POINT, lambda activation, hook: (activation.detach() + change).requires_grad_())
    names = list(dict.fromkeys(map(input_point, receivers)))
    model_inputs: dict[str, Any] = batch.model_inputs()
    ((_, sequences),) = answers.parts(len(batch))
    with torch.enable_grad():
        logits = separate.run_with_hooks(
            batch.tokens, **model_inputs, fwd_hooks=[start, *((name, store) for name in names)]
        )
        loss = sequences.loss(logits_at_targets(logits, batch))
        values = torch.autograd.grad(loss, [inputs[name] for name in names])
    by_name = dict(zip(names, values, strict=True))
    gradients = {receiver: by_name[input_point(receiver)] for receiver in receivers}
    return {
        receiver: gradient if receiver.head is None else gradient[:, :, receiver.head]
        for receiver, gradient in gradients.items()
    }


def _divergence(clean: Tensor, logits: Tensor, batch: Batch) -> float:
    """Mean divergence at the targets."""
    present = batch.present
    if logits.shape[-1] == 1:
        return float((logits - clean).square()[present].mean())
    log_p = clean.log_softmax(-1)
    return float((log_p.exp() * (log_p - logits.log_softmax(-1))).sum(-1)[present].mean())
