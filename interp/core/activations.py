"""Residual streams at target positions, class means, and attention patterns of several models."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hooks.model.checked_hooks import storing_hooks
from interp.core.devices import device_of
from interp.tasks.base import Batch, logits_at_targets

CHUNK = 512
"""Examples per forward pass, at most."""
TOKENS_PER_CHUNK = 1536
"""Tokens of a chunk whose clean run is kept while heads are ablated."""
EXAMPLES_PER_BLOCK = 8 * CHUNK
"""Examples whose residual streams at the targets are in memory at the same time where statistics are collected."""
TOKENS_PER_FORWARD_PASS = {"cpu": 1 << 12, "accelerator": 1 << 15}
"""Tokens of a forward pass without a cache: on a CPU more take longer for each."""


def examples_per_pass(batch: Batch, device: torch.device) -> int:
    """Examples of a batch that are run at once on a device, at most `CHUNK`."""
    most_tokens = TOKENS_PER_FORWARD_PASS["cpu" if device.type == "cpu" else "accelerator"]
    return max(1, min(CHUNK, most_tokens // batch.tokens.shape[1]))


def chunks(batch: Batch, size: int) -> Iterator[Batch]:
    """Split a batch into parts of at most `size` examples."""
    for start in range(0, len(batch), size):
        yield batch.select(slice(start, start + size))


def residual_names(model: Any) -> list[str]:
    """Hook points of the residual stream: before layer 0, then after each layer."""
    return ["blocks.0.hook_resid_pre"] + [f"blocks.{layer}.hook_resid_post" for layer in range(model.cfg.n_layers)]


def activations_at_targets(
    model: Any, batch: Batch, names: Sequence[str], **inputs: Any
) -> list[Float[Tensor, "batch target d"]]:
    """Activations of some hook points at each target position, from one pass that stores nothing else.

    They are zero where an example does not have the target, and in float32 if the model is in half precision.
    """
    activations: dict[str, Tensor] = {}

    def select_targets(activation: Tensor) -> Tensor:
        rows = logits_at_targets(activation, batch)
        if rows.dtype in (torch.float16, torch.bfloat16):  # torch cannot factorise matrices of these
            rows = rows.float()
        if batch.target_mask is not None:
            rows = rows.masked_fill(~batch.target_mask[..., None], 0)
        return rows

    hooks = storing_hooks(names, activations, transform=select_targets)
    model.run_with_hooks(batch.tokens, **inputs, **batch.model_inputs(), fwd_hooks=hooks)
    return [activations[name] for name in names]


@torch.no_grad()
def residuals_at_targets(model: Any, batch: Batch, *, first: int = 0) -> Float[Tensor, "layer target batch d_model"]:
    """Residual stream at each target position, on the CPU; layer 0 is the output of the embedding.

    Args:
        model: Model to read.
        batch: Examples.
        first: Number of examples in earlier batches, for the error.

    Raises:
        ValueError: a value that is not finite, with its location.
    """
    names = residual_names(model)
    activations = torch.empty(0)
    size = examples_per_pass(batch, device_of(model))
    for index, chunk in enumerate(chunks(batch, size)):
        streams = activations_at_targets(model, chunk.to(device_of(model)), names)
        if index == 0:  # the sizes are known with the first chunk
            n_targets, width = streams[0].shape[1:]
            activations = torch.empty(len(names), n_targets, len(batch), width, dtype=streams[0].dtype)
        rows = slice(index * size, index * size + len(chunk))
        for layer, stream in enumerate(streams):
            activations[layer, :, rows] = stream.transpose(0, 1)
    if not activations.isfinite().all():
        layer, target, sample, _ = (~activations.isfinite()).nonzero()[0].tolist()
        raise ValueError(
            f"activations has a value that is not finite, first at layer {layer}, target {target}, sample "
            f"{first + sample}. Did training diverge? Check the model's weights."
        )
    return activations


def residual_blocks(
    model: Any, batch: Batch, targets: Sequence[int]
) -> Iterator[tuple[slice, Float[Tensor, "layer target block d_model"]]]:
    """Rows of the batch, and the residual streams of these examples at some of the targets, block by block.

    Raises:
        ValueError: an error of `residuals_at_targets`.
    """
    all_targets = list(targets) == list(range(batch.labels.shape[1]))
    for start in range(0, len(batch), EXAMPLES_PER_BLOCK):
        rows = slice(start, min(start + EXAMPLES_PER_BLOCK, len(batch)))
        streams = residuals_at_targets(model, batch.select(rows), first=start)
        if not all_targets:  # without a copy where all are chosen
            streams = streams[:, list(targets)]
        yield rows, streams


def same_examples(*present: Bool[Tensor, "_ target"]) -> Iterator[tuple[Any, list[Any]]]:
    """Group the targets that the same examples have, so that each group can be computed at once.

    Args:
        present: For one or more batches, whether each example has each target.

    Yields:
        Indices of the targets and, for each batch, which examples have them; slices if all have all.
    """
    if all(bool(exists.all()) for exists in present):
        yield slice(None), [slice(None)] * len(present)
        return
    # Targets with equal columns, in all batches together, are one group
    distinct, group = torch.cat(present).T.unique(dim=0, return_inverse=True)
    for index in range(len(distinct)):
        targets = (group == index).nonzero()[:, 0].tolist()
        yield targets, [exists[:, targets[0]] for exists in present]


def class_means(
    activations: Float[Tensor, "*cells batch d_model"], labels: Int[Tensor, "*cells batch"], n_classes: int
) -> Float[Tensor, "*cells label d_model"]:
    """Mean activation of each class in each cell; NaN for a class without examples."""
    onehot = F.one_hot(labels, n_classes).to(activations.dtype)
    count = onehot.sum(-2, keepdim=True)
    # relative to the first example, so that rounding errors are a share of the differences, not of the values
    shift = activations[..., :1, :].sum(-2, keepdim=True)
    means = (onehot / count.clamp_min(1)).mT @ (activations - shift) + shift
    return means.masked_fill(count.mT == 0, torch.nan)


@torch.no_grad()
def patterns_on(models: Sequence[Any], batch: Batch) -> Float[Tensor, "layer model batch head query key"]:
    """Attention patterns of models of one shape on the same examples. The models are left in evaluation mode.

    Raises:
        ValueError: a model with a pattern that is not finite.
    """
    cfg = models[0].cfg
    n_layers = cfg.n_layers
    examples, pos = batch.tokens.shape
    patterns = torch.empty(n_layers, len(models), examples, cfg.n_heads, pos, pos)
    names = [f"blocks.{layer}.attn.hook_pattern" for layer in range(n_layers)]
    for index, model in enumerate(models):
        if model.training:  # eval() costs a hundred times more than this check
            model.eval()
        moved = batch.to(device_of(model))
        _, cache = model.run_with_cache(moved.tokens, names_filter=names, **moved.model_inputs())
        for layer, name in enumerate(names):
            patterns[layer, index] = cache[name].cpu()
        if not patterns[:, index].sum().isfinite():
            raise ValueError(f"models[{index}] has an attention pattern that is not finite. Did its training diverge?")
    return patterns
