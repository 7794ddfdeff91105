"""Edges by EAP, EAP-IG and ACDC, short: on the same edges, sequences and replacements as `interp.edges`.

All three are for blocks whose inputs are sums over parts, with learned heads. Scores are estimates of the rise of the
task's loss when an edge is replaced by the mean.
"""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from hooks import Transformer
from hooks.interventions.circuit_engine import CircuitEngine
from hooks.interventions.edge_engine import EMBEDDING_POINT, Receiver, Sender
from interp.heads.ablation_methods import outputs_instead, part_points
from interp.tasks.base import Batch, Task, logits_at_targets

LETTERS = {"query": "q", "key": "k", "value": "v"}


def edge_attribution(
    model: Transformer, task: Task, batch: Batch, *, steps: int = 1, seed: int = 0
) -> Float[np.ndarray, " edge"]:
    """EAP (Syed et al. 2023, arXiv:2310.10348), or EAP-IG with several steps (Hanna et al. 2024, arXiv:2403.17806).

    The change of the sender's output times the gradient of the loss at the receiver's input; with steps, the mean
    gradient while the embedding goes from its replacement to its value.
    """
    engine = CircuitEngine(model, batch.tokens, **batch.model_inputs())  # type: ignore[arg-type]
    new = outputs_instead("mean", model, task, batch, part_points(model), seed=seed)[0](slice(0, len(batch)))
    changes = _changes(engine, new)
    clean = engine.cache[EMBEDDING_POINT]
    replaced = new[EMBEDDING_POINT].expand_as(clean)
    # EAP differentiates at the clean input; EAP-IG at k / steps of the way from the replacement
    shares = [1.0] if steps == 1 else [step / steps for step in range(1, steps + 1)]
    gradients: dict[Receiver, Tensor] = {}
    for share in shares:
        for receiver, gradient in _gradients(model, task, batch, replaced + share * (clean - replaced)).items():
            gradients[receiver] = gradients.get(receiver, torch.zeros(())) + gradient / len(shares)
    scores = [float((changes[sender] * gradients[receiver]).sum().detach()) for sender, receiver in engine.edges]
    return np.array(scores) / len(batch)


def _changes(engine: CircuitEngine, new: Any) -> dict[Sender, Tensor]:
    """The replacement of each part minus what it writes."""
    changes = {Sender(-1): new[EMBEDDING_POINT] - engine.cache[EMBEDDING_POINT]}
    for layer in range(engine.model.cfg.n_layers):
        point = f"blocks.{layer}.{engine._output_point}"
        written = engine._written(layer, new[point]) - engine._written(layer, engine.cache[point])
        changes |= {Sender(layer, head): change for head, change in enumerate(written.unbind(2))}
        point = f"blocks.{layer}.hook_mlp_out"
        if point in engine.cache.cache_dict:
            changes[Sender(layer)] = new[point] - engine.cache[point]
    return changes


def _gradients(model: Transformer, task: Task, batch: Batch, embedding: Tensor) -> dict[Receiver, Tensor]:
    """Gradient of the summed loss at the input of every receiver."""
    copied = copy.deepcopy(model)
    copied.set_use_split_qkv_input(True)
    cfg = copied.cfg
    inputs: dict[str, Tensor] = {}

    def store(activation: Tensor, hook: Any) -> Tensor:
        activation = activation if activation.requires_grad else activation.requires_grad_()
        activation.retain_grad()
        inputs[hook.name] = activation
        return activation

    names = [f"blocks.{cfg.n_layers - 1}.hook_resid_post"]
    for layer in range(cfg.n_layers):
        names += [f"blocks.{layer}.attn.hook_{letter}_input" for letter in "qkv"]
    if not cfg.attn_only:
        copied.set_use_hook_mlp_in(True)
        names += [f"blocks.{layer}.hook_mlp_in" for layer in range(cfg.n_layers)]
    start = (EMBEDDING_POINT, lambda activation, hook: embedding.clone().requires_grad_())
    with torch.enable_grad():
        model_inputs: Any = batch.model_inputs()
        logits = copied.run_with_hooks(
            batch.tokens, **model_inputs, fwd_hooks=[start, *((name, store) for name in names)]
        )
        task.score(logits_at_targets(logits, batch), batch).loss.sum().backward()
    gradients = {Receiver("read-out", cfg.n_layers): inputs[names[0]].grad}
    for layer in range(cfg.n_layers):
        for kind, letter in LETTERS.items():
            gradient: Any = inputs[f"blocks.{layer}.attn.hook_{letter}_input"].grad
            gradients |= {Receiver(kind, layer, head): gradient[:, :, head] for head in range(cfg.n_heads)}  # type: ignore[arg-type]
        if not cfg.attn_only:
            gradients[Receiver("MLP", layer)] = inputs[f"blocks.{layer}.hook_mlp_in"].grad
    return gradients  # type: ignore[return-value]


@torch.no_grad()
def acdc(
    model: Transformer, task: Task, batch: Batch, *, thresholds: Sequence[float], seed: int = 0
) -> Float[np.ndarray, " edge"]:
    """ACDC (Conmy et al. 2023, arXiv:2304.14997): for each edge, the largest threshold at which it stays.

    From the read-out to the first layer, each edge is removed for good if the divergence from the model (KL at the
    targets, mean squared error of numbers) rises by less than the threshold.
    """
    engine = CircuitEngine(model, batch.tokens, read_at=batch.target_positions, **batch.model_inputs())  # type: ignore[arg-type]
    new = outputs_instead("mean", model, task, batch, part_points(model), seed=seed)[0](slice(0, len(batch)))
    present = batch.present

    def divergence(replaced: Tensor) -> float:
        (logits,) = engine.each_set(replaced[None], new)
        if logits.shape[-1] == 1:
            return float((logits - engine.logits).square()[present].mean())
        clean = engine.logits.log_softmax(-1)
        return float((clean.exp() * (clean - logits.log_softmax(-1))).sum(-1)[present].mean())

    score = np.zeros(len(engine.edges))
    for threshold in sorted(thresholds):
        replaced = torch.zeros(len(engine.edges), dtype=torch.bool)
        current = 0.0
        for index in reversed(range(len(engine.edges))):
            replaced[index] = True
            after = divergence(replaced)
            if after - current < threshold:
                current = after
            else:
                replaced[index] = False
        score[~replaced.numpy()] = threshold
    return score
