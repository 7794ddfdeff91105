"""Approximations of the effect of removing each head, all heads from a few passes."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from hooks.interventions.ablation_engine import head_output_point, projected_values
from hooks.interventions.replacements import HeadReplacement
from hooks.model.checked_hooks import storing_hooks
from interp.tasks.base import logits_at_targets
from tool_studies.approximations.removal import ModelOnBatch, ScoredSequences

MASS, NORM, DIRECT = "attention mass", "value-weighted attention", "direct logit attribution"
PATTERN, LOSS, LOGIT = "gradient times pattern", "attribution patching (loss)", "attribution patching (logits)"
APPROXIMATIONS = (MASS, NORM, DIRECT, PATTERN, LOSS, LOGIT)
TERMS = "sizes of the terms of attribution patching (loss)"
SEQUENCES = 128
"""Sequences per pass."""


def estimate_heads(
    model: Any, answers: ModelOnBatch, mean: HeadReplacement
) -> Mapping[str, Float[np.ndarray, " head"]]:
    """Every approximation for every head, and `TERMS`.

    `MASS`: mean over real queries of the largest attention weight. `NORM`: mean over real queries of the sum over keys
    of the weight times the norm of what the key's value writes. `DIRECT`: contribution to the margin, along the path
    through no other head or MLP, of what the head writes minus its mean; norms keep their scale. `PATTERN`: sum over
    queries and keys of the size of the weight times the derivative of the loss with respect to it. `LOSS` and `LOGIT`:
    rise of the loss and fall of the margin at the head's mean output, extrapolated with the gradient at its actual
    outputs. `TERMS`: as `LOSS`, with the size of the term of each sequence and position in place of the term.

    Args:
        model: Model in evaluation mode.
        answers: Sequences and their answers.
        mean: What takes the place of a head's output.

    Returns:
        Values in the order of `every_head`. Only `DIRECT`, `LOSS` and `LOGIT` have a sign: positive for a head that
        helps.

    Source: `MASS` is the confidence of Voita et al. 2019 (arXiv:1905.09418); `NORM` Kobayashi et al. 2020
    (arXiv:2004.10102), equation 3, summed over keys; `PATTERN` after Michel et al. 2019 (arXiv:1905.10650) and Hao et
    al. 2021 (arXiv:2004.11207), without integration; `LOSS` and `LOGIT` Nanda 2023 and Syed et al. 2023
    (arXiv:2310.10348), with the mean in place of another prompt's activations.
    """
    sums: dict[str, Tensor | float] = defaultdict(float)
    for _, sequences in answers.parts(SEQUENCES):
        estimates = {
            **_attention_sums(model, sequences),
            **_differentiate(model, sequences, mean),
            DIRECT: _direct(model, sequences, mean),
        }
        for name, value in estimates.items():
            sums[name] = sums[name] + value.detach().double()
    queries = sums.pop("queries")
    for name in (MASS, NORM):
        sums[name] = sums[name] / queries
    return {name: value.flatten().numpy() for name, value in sums.items() if isinstance(value, Tensor)}


@torch.no_grad()
def _attention_sums(model: Any, sequences: ScoredSequences) -> dict[str, Tensor]:
    """Sums over real queries of the largest weight and of the value-weighted attention, and the number of queries."""
    batch = sequences.batch
    inputs: dict[str, Any] = batch.model_inputs()
    names = ("hook_pattern", "hook_v", "hook_resid_pre")
    _, cache = model.run_with_cache(batch.tokens, **inputs, names_filter=lambda name: name.endswith(names))
    real = torch.ones_like(batch.tokens) if batch.attention_mask is None else batch.attention_mask
    mass, moved = [], []
    for layer in range(model.cfg.n_layers):
        pattern = cache[f"blocks.{layer}.attn.hook_pattern"]
        values = cache[f"blocks.{layer}.attn.hook_v"]
        written = projected_values(model, layer, values, cache[f"blocks.{layer}.hook_resid_pre"])
        weighted = einsum(pattern, written.norm(dim=-1), "b h q k, b k h -> b h q")
        mass.append((pattern.amax(-1) * real[:, None]).sum((0, 2)))
        moved.append((weighted * real[:, None]).sum((0, 2)))
    return {MASS: torch.stack(mass), NORM: torch.stack(moved), "queries": real.sum()}


@torch.enable_grad()
def _differentiate(model: Any, sequences: ScoredSequences, mean: HeadReplacement) -> dict[str, Tensor]:
    """The approximations from a gradient at each head's output and pattern."""
    layers = range(model.cfg.n_layers)
    outputs = [f"blocks.{layer}.{head_output_point(model.cfg)}" for layer in layers]
    patterns = [f"blocks.{layer}.attn.hook_pattern" for layer in layers]
    # One forward pass that stores outputs and patterns, with gradients from the embedding on
    activations: dict[str, Tensor] = {}
    start = [(name, _with_gradient) for name in ("blocks.0.hook_resid_pre", *patterns)]
    inputs: dict[str, Any] = sequences.batch.model_inputs()
    logits = model.run_with_hooks(
        sequences.batch.tokens, **inputs, fwd_hooks=[*start, *storing_hooks(outputs + patterns, activations)]
    )
    # Gradients of the loss at all of them, and of the margin at the outputs
    at_targets = logits_at_targets(logits, sequences.batch)
    points = [activations[name] for name in outputs + patterns]
    options: dict[str, Any] = {"allow_unused": True, "materialize_grads": True}
    of_loss = torch.autograd.grad(sequences.loss(at_targets), points, retain_graph=True, **options)
    of_margin = torch.autograd.grad(sequences.margin(at_targets), points[: len(outputs)], **options)
    of_outputs, of_patterns = of_loss[: len(outputs)], of_loss[len(outputs) :]
    # Linear extrapolation to the mean output, term by term for each sequence and position
    terms, falls, weights = [], [], []
    for layer in layers:
        output = activations[outputs[layer]]
        change = mean.replace(output, layer).detach() - output
        terms.append((change * of_outputs[layer]).sum(-1))
        falls.append(-(change * of_margin[layer]).sum((0, 1, 3)))
        weights.append((activations[patterns[layer]] * of_patterns[layer]).abs().sum((0, 2, 3)))
    all_terms = torch.stack(terms)
    return {
        LOSS: all_terms.sum((1, 2)),
        TERMS: all_terms.abs().sum((1, 2)),
        LOGIT: torch.stack(falls),
        PATTERN: torch.stack(weights),
    }


def _with_gradient(activation: Tensor, hook: Any) -> Tensor:
    """The activation, as a leaf if it has no gradient: hard-coded patterns have none."""
    return activation if activation.requires_grad else activation.detach().requires_grad_()


@torch.enable_grad()
def _direct(model: Any, sequences: ScoredSequences, mean: HeadReplacement) -> Float[Tensor, "layer head"]:
    """Contribution of each head's output minus its mean to the margin, along the direct path.

    The outputs of later heads and MLPs and the scales of norms are constants, so that the gradient at the output of a
    layer's attention is the direct path's.
    """
    layers = range(model.cfg.n_layers)
    outputs = [f"blocks.{layer}.{head_output_point(model.cfg)}" for layer in layers]
    activations: dict[str, Tensor] = {}
    leaves: list[Tensor] = []

    def start_here(activation: Tensor, hook: Any) -> Tensor:
        leaves.append(activation.detach().requires_grad_())
        return leaves[-1]

    def constant(activation: Tensor, hook: Any) -> Tensor:
        return activation.detach()

    # Cut every path but the direct one: constant MLPs and norm scales, attention outputs as leaves
    constants = [name for name in model.hook_dict if name.endswith(("hook_mlp_out", "hook_scale"))]
    edits = [(name, constant) for name in constants]
    edits += [(f"blocks.{layer}.hook_attn_out", start_here) for layer in layers]
    inputs: dict[str, Any] = sequences.batch.model_inputs()
    logits = model.run_with_hooks(
        sequences.batch.tokens, **inputs, fwd_hooks=[*edits, *storing_hooks(outputs, activations)]
    )
    margin = sequences.margin(logits_at_targets(logits, sequences.batch))
    slopes = torch.autograd.grad(margin, leaves, allow_unused=True, materialize_grads=True)
    # The gradient at a layer's attention output, at the outputs of its heads
    contributions = []
    for layer, slope in zip(layers, slopes, strict=True):
        output = activations[outputs[layer]]
        change = output - mean.replace(output, layer).detach()
        if model.cfg.vo_identity:
            slope = slope[:, :, None]
        else:
            slope = einsum(slope, model.blocks[layer].attn.W_O, "b p d, h e d -> b p h e")
        contributions.append((change * slope).sum((0, 1, 3)))
    return torch.stack(contributions)
