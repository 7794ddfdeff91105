"""Interchange interventions along the direction that a probe reads, with placebos."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformer_lens.tools.analysis.interchange import NormMatchedPlacebo, SubspaceInterchange, random_basis

from hooks import BridgeModel, TransformerStack
from hooks.interventions.ablation_engine import Net
from hooks.model.layers import has_hooks, take
from interp.core.activations import (
    BLOCK,
    CHUNK,
    chunks,
    class_means,
    residual_names,
    residuals_at_targets,
    same_examples,
)
from interp.core.devices import device_of
from interp.core.progress import counted
from interp.core.randomness import derived_seed
from interp.core.statistics import proportion_interval
from interp.probing.ridge import Moments, one_hot
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


class DirectionSums:
    """Directions of each layer and target, from the examples that have the target, which are added in blocks.

    Args:
        labels: Class of each example at each target.
        present: Whether each example has each target.
        n_classes: Number of classes.
    """

    def __init__(self, labels: Int[Tensor, "batch target"], present: Bool[Tensor, "batch target"], n_classes: int):
        self.labels, self.n_classes = labels, n_classes
        self.groups = list(same_examples(present))
        self.moments: list[list[Moments]] = []
        self.means: list[Float[Tensor, "layer target class d_model"]] = []
        self.counts = [torch.zeros(len(labels.T[targets]), n_classes) for targets, _ in self.groups]

    def add(self, rows: slice, activations: Float[Tensor, "layer target block d_model"]) -> None:
        """Add the activations of some of the examples."""
        dtype = torch.float64 if len(self.labels) > BLOCK else activations.dtype
        if not self.moments:
            n_layers, _, _, width = activations.shape
            shapes = [(len(counts), width, [self.n_classes]) for counts in self.counts]
            self.moments = [[Moments(*shape, dtype=dtype) for _ in range(n_layers)] for shape in shapes]
            self.means = [torch.zeros(n_layers, *counts.shape, width, dtype=dtype) for counts in self.counts]
        for index, (targets, (exist,)) in enumerate(self.groups):
            here = exist if isinstance(exist, slice) else exist[rows]
            classes = self.labels[rows].T[targets][:, here]
            if not classes.shape[1]:
                continue
            onehot = one_hot(classes[:, None], self.n_classes, activations.dtype)
            own = onehot.sum(1)
            self.counts[index] += own
            share = (own / self.counts[index].clamp_min(1))[..., None]
            for one, means, layer in zip(self.moments[index], self.means[index], activations, strict=True):
                inputs = layer[targets][:, here]
                one.add(inputs, [onehot])
                means += (class_means(inputs, classes, self.n_classes) - means).nan_to_num() * share

    def directions(self) -> dict[tuple[int, int], Directions]:
        """The directions, by layer and index of the target."""
        found = {}
        for (targets, _), layers, means, counts in zip(self.groups, self.moments, self.means, self.counts, strict=True):
            indices = torch.arange(self.labels.shape[1])[targets].tolist()
            for layer, one in enumerate(layers):
                weights = one.solve(self.n_classes)[0].weight[:, 0].transpose(1, 2)
                known = means[layer].to(weights).masked_fill(counts[..., None] == 0, torch.nan)
                centre = one.mean[:, 0].to(weights)
                for index, target in enumerate(indices):
                    found[layer, target] = Directions(means=known[index], weights=weights[index], centre=centre[index])
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
    names, streams = residual_names(model), _Streams(model, batch)
    for start, part in enumerate(chunks(batch, CHUNK)):
        streams.keep(start, pairs.values())
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
            resid = cache[names[layer]][rows]
            own, given = (streams.at(layer, target, some[here]) for some in (base, source))
            edited = _edits(along, own, given, derived_seed(seed, "placebo", layer, target))
            after = {
                edit: task.answers(_resume(model, part.select(rows), resid, layer, target, edited[edit]())).cpu()
                for edit in edits
            }
            yield EditedAnswers(layer, target, base[here], source[here], before[rows], after)


class _Streams:
    """Residual streams at the targets of the examples of few parts of a batch."""

    def __init__(self, model: Net, batch: Batch):
        self.model, self.batch = model, batch
        self.parts: dict[int, Float[Tensor, "layer target part d_model"]] = {}

    def keep(self, start: int, pairs: Iterable[tuple[Int[Tensor, " pair"], Int[Tensor, " pair"]]]) -> None:
        """Compute this part and those of its sources, and forget the others."""
        of_sources = {int(one) for base, source in pairs for one in (source[base // CHUNK == start] // CHUNK).unique()}
        kept = {index: self.parts.get(index) for index in sorted({start} | of_sources)}
        self.parts = {}
        for index, streams in kept.items():
            rows = slice(index * CHUNK, (index + 1) * CHUNK)
            if streams is None:
                streams = residuals_at_targets(self.model, self.batch.select(rows), first=rows.start)
            self.parts[index] = streams

    def at(self, layer: int, target: int, rows: Int[Tensor, " row"]) -> Float[Tensor, "row d_model"]:
        """The streams of examples of these parts at one layer and target."""
        part, found = rows // CHUNK, None
        for index, streams in self.parts.items():
            here = part == index
            cell = streams[layer, target]
            found = cell.new_empty(len(rows), cell.shape[1]) if found is None else found
            found[here] = cell[rows[here] - index * CHUNK]
        assert found is not None
        return found


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
    resid[torch.arange(len(resid)), batch.target_positions[:, target]] = edited.to(resid)
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
    answers = edited_answers(model, task, batch, pairs, directions, edits=tuple(edits.values()), seed=seed)
    n_parts = -(-len(batch) // CHUNK)
    for one in counted("interchanges", answers, total=n_parts * len(directions)):
        wanted = batch.labels[one.sources, one.target]
        cell = one.layer, column[one.target]
        for name, edit in edits.items():
            found[name][cell] += int((one.after[edit][:, one.target] == wanted).sum())
        found["n"][cell] += len(wanted)
    n = np.maximum(found["n"], 1)
    found["low"], found["high"] = proportion_interval(found["follows"].astype(int), n.astype(int))
    found |= {name: found[name] / n for name in edits}
    return {name: value if name == "n" else np.where(found["n"] > 0, value, np.nan) for name, value in found.items()}
