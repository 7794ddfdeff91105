"""Interchange interventions along the direction that a probe reads, with placebos."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformer_lens.tools.analysis.interchange import NormMatchedPlacebo, SubspaceInterchange, random_basis

from hooks import BridgeModel, TransformerStack
from hooks.interventions.ablation_engine import Net
from hooks.modules import has_hooks, take
from interp.core.activations import (
    CHUNK,
    chunks,
    class_means,
    residual_names,
    residuals_at_targets,
    same_examples,
)
from interp.core.devices import device_of
from interp.core.randomness import derived_seed
from interp.core.statistics import proportion_interval
from interp.probing.ridge import factorise, fit
from interp.tasks.base import Batch, Task

MAX_PAIRS = 512
ROUNDING = 64 * torch.finfo(torch.float32).eps
"""Differences between class means below this share of their norm are rounding errors of the means."""

EDITS = ("interchange", "placebo", "erasure", "erasure placebo", "weights")
"""`interchange`: the component along the class means is set to the source's; `erasure`: to the mean of all examples;
`weights`: the component along the probe's weights is set to the source's. A placebo moves each activation by the same
distance as the interchange or the erasure, in a random direction."""


@dataclass(frozen=True, kw_only=True)
class Directions:
    """The directions of one layer and target along which activations are edited."""

    means: Float[Tensor, "class d_model"]
    """Class means of the activations; NaN for a class without examples, which adds no direction."""
    weights: Float[Tensor, "class d_model"]
    """Weights of the ridge probe."""
    centre: Float[Tensor, " d_model"]
    """Mean of all activations."""


def class_directions(
    activations: Float[Tensor, "layer target batch d_model"],
    labels: Int[Tensor, "batch target"],
    present: Bool[Tensor, "batch target"],
    n_classes: int,
) -> dict[tuple[int, int], Directions]:
    """Directions of each layer and target, from the examples that have the target."""
    found = {}
    for targets, (rows,) in same_examples(present):
        inputs = activations[:, targets][:, :, rows]
        classes = labels.T[targets][:, rows].expand(len(inputs), -1, -1)
        classifier = fit(factorise(inputs.flatten(0, 1)), classes.flatten(0, 1)[:, None], n_classes)
        weights = classifier.weight[:, 0].transpose(1, 2).unflatten(0, inputs.shape[:2])
        means, centre = class_means(inputs, classes, n_classes), inputs.mean(2)
        for index, target in enumerate(torch.arange(labels.shape[1])[targets].tolist()):
            for layer in range(len(inputs)):
                at = layer, index
                found[layer, target] = Directions(means=means[at], weights=weights[at], centre=centre[at])
    return found


@dataclass(frozen=True)
class EditedAnswers:
    """Answers of some examples before and after the activation at one layer and target is edited."""

    layer: int
    target: int
    rows: Int[Tensor, " row"]
    """Indices of the examples in the batch."""
    sources: Int[Tensor, " row"]
    """Indices of the examples that they take their values from."""
    before: Int[Tensor, "row answer"]
    after: Mapping[str, Int[Tensor, "row answer"]]


@torch.no_grad()
def edited_answers(
    model: Net,
    task: Task,
    batch: Batch,
    pairs: Mapping[int, tuple[Int[Tensor, " pair"], Int[Tensor, " pair"]]],
    directions: Mapping[tuple[int, int], Directions],
    *,
    edits: Sequence[str],
    seed: int,
) -> Iterator[EditedAnswers]:
    """Edit the residual stream at one layer and target position, for each of several cells, and collect the answers.

    Args:
        model: Model to intervene on. It is not changed.
        task: Turns logits into answers.
        batch: Examples.
        pairs: For each target, the examples to edit, ascending, and the example that each takes its value from.
        directions: For each (layer, target) to edit. Layer 0 is the embedding's output.
        edits: Some of `EDITS`, each made in a separate run.
        seed: Determines the placebo's directions.

    Yields:
        Answers at all targets, for each part of the batch and each cell.

    Raises:
        ValueError: a hook of the caller's at the input of layer 0, where it would act twice.
    """
    if isinstance(model, TransformerStack) and has_hooks(model.hook_point("blocks.0.hook_resid_pre")):
        raise ValueError(
            "a hook is attached to blocks.0.hook_resid_pre, from which the pass resumes and where it would act twice. "
            "Remove it, or attach it to hook_embed."
        )
    model.eval()
    names, activations = residual_names(model), residuals_at_targets(model, batch)
    for start, part in enumerate(chunks(batch, CHUNK)):
        part = part.to(device_of(model))
        inputs: dict[str, Any] = part.model_inputs()
        logits, cache = model.run_with_cache(part.tokens, names_filter=names, **inputs)
        before = task.answers(take(logits, part.target_positions)).cpu()
        for (layer, target), along in directions.items():
            base, source = pairs[target]
            here = base.div(CHUNK, rounding_mode="floor") == start
            rows = base[here] - start * CHUNK
            if not len(rows):
                continue
            streams = cache[names[layer]][rows]
            cell = activations[layer, target]
            edited = _edits(along, cell[base[here]], cell[source[here]], derived_seed(seed, "placebo", layer, target))
            after = {
                edit: task.answers(_resume(model, part.select(rows), streams, layer, target, edited[edit]())).cpu()
                for edit in edits
            }
            yield EditedAnswers(layer, target, base[here], source[here], before[rows], after)


def _edits(
    along: Directions, base: Float[Tensor, "row d_model"], source: Float[Tensor, "row d_model"], seed: int
) -> dict[str, Callable[[], Float[Tensor, "row d_model"]]]:
    present = along.means.isfinite().all(-1)
    basis = span_of_differences(along.means[present])
    means = SubspaceInterchange(basis)
    width, rank = basis.shape
    placebo = NormMatchedPlacebo(means, random_basis(width, rank, seed % 2**31) if rank else basis)
    return {
        "interchange": lambda: means(base, source),
        "placebo": lambda: placebo(base, source),
        "erasure": lambda: means(base, along.centre.expand_as(base)),
        "erasure placebo": lambda: placebo(base, along.centre.expand_as(base)),
        "weights": lambda: SubspaceInterchange(span_of_differences(along.weights[present]))(base, source),
    }


def span_of_differences(rows: Float[Tensor, "class d_model"]) -> Float[Tensor, "d_model rank"]:
    """Orthonormal basis of the differences between rows: class means, or a probe's weights of each class.

    The rank is at most the number of rows minus 1. It is smaller where rows coincide or depend on each other, and 0
    where all are equal, up to rounding errors. TransformerLens's `probe_basis`, which is the same for the largest rank,
    raises an error for any other.
    """
    rows = rows.float()
    left, sizes, _ = torch.linalg.svd((rows - rows.mean(0)).T, full_matrices=False)
    return left[:, sizes > ROUNDING * rows.norm(dim=1).max()]


def _resume(
    model: Net,
    batch: Batch,
    resid: Float[Tensor, "row pos d_model"],
    layer: int,
    target: int,
    edited: Float[Tensor, "row d_model"],
) -> Float[Tensor, "row target d_vocab_out"]:
    """Logits at all targets with the stream that enters a layer edited at one target's position."""
    resid = resid.clone()
    resid[torch.arange(len(resid)), batch.target_positions[:, target]] = edited.to(resid.device)
    positions: dict[str, Any] = {}
    if isinstance(model, BridgeModel) and model.capabilities.positions_in_layers:
        positions["position_ids"] = batch.position_ids
    return model.resume(
        resid,
        layer,
        tokens=batch.tokens,
        attention_mask=batch.attention_mask,
        read_at=batch.target_positions,
        **positions,
    )


def interchange_map(
    model: Net,
    task: Task,
    batch: Batch,
    directions: Mapping[tuple[int, int], Directions],
    *,
    seed: int,
) -> dict[str, np.ndarray]:
    """How often the answer at a target becomes the source's correct answer, for every layer and target.

    The examples that have a target are paired, each in one pair; pairs with equal answers are left out. At the target's
    position the base's component in a subspace is set to the source's.

    A least-squares probe has two directions. Its weights are a filter: they separate the classes with the least
    noise, often along directions in which activations hardly vary. Its activation pattern, covariance times weights,
    is the direction in which activations change with the class; for least squares it is the difference between class
    means. The weights show what can be read; only an edit along the class means stays on the activations' own scale.

    Args:
        model: Model to intervene on. It is not changed.
        task: Turns logits into answers.
        batch: Examples to pair: the first with the second, and so on.
        directions: For each layer and target to edit, from other examples than `batch`.
        seed: Determines the placebo's directions.

    Returns:
        Arrays (layer, target), targets in ascending order, as fractions of pairs: `follows` (along the class means)
        with `low` and `high`, `weights` (along the probe's weights), `placebo` (by the same distance in a random
        direction), all NaN without pairs; and `n`, the number of pairs.

    Source: interchange interventions, Geiger et al. 2021, through TransformerLens; filter and pattern, Haufe et al.
    2014 (doi 10.1016/j.neuroimage.2013.10.067).
    """
    batch = batch.select(slice(0, 2 * MAX_PAIRS))
    column = {target: index for index, target in enumerate(sorted({target for _, target in directions}))}
    pairs = {}
    for target in column:
        rows = batch.present[:, target].nonzero()[:, 0]
        base, source = rows[: len(rows) // 2 * 2].view(-1, 2).T
        different = batch.labels[base, target] != batch.labels[source, target]
        pairs[target] = base[different], source[different]
    edits = {"follows": "interchange", "weights": "weights", "placebo": "placebo"}
    found = {name: np.zeros((model.cfg.n_layers + 1, len(column))) for name in (*edits, "low", "high", "n")}
    for one in edited_answers(model, task, batch, pairs, directions, edits=tuple(edits.values()), seed=seed):
        wanted = batch.labels[one.sources, one.target]
        cell = one.layer, column[one.target]
        for name, edit in edits.items():
            found[name][cell] += int((one.after[edit][:, one.target] == wanted).sum())
        found["n"][cell] += len(wanted)
    n = np.maximum(found["n"], 1)
    found["low"], found["high"] = proportion_interval(found["follows"].astype(int), n.astype(int))
    found |= {name: found[name] / n for name in edits}
    return {name: value if name == "n" else np.where(found["n"] > 0, value, np.nan) for name, value in found.items()}
