"""Class directions of probes, and interchanges along them with placebos."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hooks.interventions.clean_pass import Net
from interp.core.activations import CHUNK, EXAMPLES_PER_BLOCK, chunks, class_means, residuals_at_targets, same_examples
from interp.core.inputs import number_of_pairings, partners
from interp.core.interchange import Recording, Site
from interp.core.progress import counted
from interp.core.randomness import derived_seed
from interp.core.statistics import proportion_interval
from interp.probing.ridge import ROUNDING, Moments, one_hot
from interp.probing.scoring import examples_in_block
from interp.probing.ties import Isolation
from interp.tasks.base import Batch, Task

MAX_PAIRS = 512
STANDARD_ERRORS = 3.0
"""Effects of a label are told from none if they are this many standard errors large: of a label without any, with
activations that vary in one direction only, one in 370 is."""

EDITS = ("interchange", "placebo", "erasure", "erasure placebo", "weights")
"""`interchange`: the component along the class means is set to the source's; `erasure`: to the mean of all examples;
`weights`: the component along the probe's weights is set to the source's. A placebo moves each activation by the same
distance as the interchange or the erasure, in a random direction."""


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Examples to edit at a target, and those that they take their values from, as indices in the batch."""

    bases: Int[Tensor, " pair"]
    """Ascending."""
    sources: Int[Tensor, " pair"]
    groups: Int[Tensor, " pair"] | None = None
    """Row of each in a `Directions.centre` that has one for each group."""

    @staticmethod
    def all_of(rows: Int[Tensor, " example"]) -> "Pairs":
        """Every example with several others, in a fixed order (`partners`), from their indices."""
        n_pairings = number_of_pairings(len(rows)) if len(rows) else 0
        bases = rows.repeat_interleave(n_pairings)
        if not len(bases):
            return Pairs(bases=bases, sources=bases)
        families = [partners(slice(None), len(rows), pairing) for pairing in range(n_pairings)]
        return Pairs(bases=bases, sources=rows[torch.stack(families, 1).flatten()])

    @staticmethod
    def isolated(isolation: Isolation, rows: Int[Tensor, " example"]) -> "Pairs":
        """The pairs of a label that is told apart from others, from the indices of the examples with the target."""
        return Pairs(bases=rows[isolation.bases], sources=rows[isolation.sources], groups=isolation.groups)


@dataclass(frozen=True, kw_only=True)
class Directions:
    """The directions of one layer and target along which activations are edited."""

    means: Float[Tensor, "class d_model"]
    """Class means of the activations, or the effect of each class with other labels held fixed; NaN for a class without
    examples, which adds no direction."""
    weights: Float[Tensor, "class d_model"]
    """Weights of the ridge probe."""
    centre: Float[Tensor, "*group d_model"]
    """Mean of all activations; with other labels held fixed, that of each group, all classes weighted equally."""
    varies: bool = True
    """Whether the activations differ between examples by more than rounding errors."""
    has_effect: bool = True
    """Whether the effects of a label, with others held fixed, exceed their standard errors (`STANDARD_ERRORS`)."""


class DirectionSums:
    """Directions of each layer and target, from the examples that have the target, which are added in blocks.

    Args:
        labels: Class of each example at each target.
        present: Whether each example has each target.
        n_classes: Number of classes.
        isolations: By index of a target, how the label is told apart from others there.
    """

    def __init__(
        self,
        labels: Int[Tensor, "batch target"],
        present: Bool[Tensor, "batch target"],
        n_classes: int,
        isolations: Mapping[int, Isolation] | None = None,
    ):
        self.labels, self.n_classes = labels, n_classes
        self.isolated = {
            target: IsolatedSums(isolation, present[:, target].nonzero()[:, 0], len(labels))
            for target, isolation in (isolations or {}).items()
        }
        self.groups = list(same_examples(present))
        self.moments: list[list[Moments]] = []
        self.means: list[Float[Tensor, "layer target class d_model"]] = []
        self.counts = [torch.zeros(len(labels.T[targets]), n_classes) for targets, _ in self.groups]

    def add(self, rows: slice, activations: Float[Tensor, "layer target block d_model"]) -> None:
        """Add the activations of some of the examples."""
        if not self.moments:
            self._start(activations)
        for index, (targets, (exists,)) in enumerate(self.groups):
            examples = examples_in_block(exists, rows)
            classes = self.labels[rows].T[targets][:, examples]
            if not classes.shape[1]:
                continue
            # Moments for the probe's weights, and running means of each class.
            onehot = one_hot(classes[:, None], self.n_classes, activations.dtype)
            n_added = onehot.sum(1)
            self.counts[index] += n_added
            share = (n_added / self.counts[index].clamp_min(1))[..., None]
            for moments, means, layer in zip(self.moments[index], self.means[index], activations, strict=True):
                inputs = layer[targets][:, examples]
                moments.add(inputs, [onehot])
                block_means = class_means(inputs, classes, self.n_classes)
                means += (block_means - means).nan_to_num() * share
        for target, sums in self.isolated.items():
            sums.add(rows, activations[:, target])

    def _start(self, activations: Float[Tensor, "layer target block d_model"]) -> None:
        """Make empty sums for activations of this shape, in double precision if there are several blocks."""
        n_layers, _, _, width = activations.shape
        dtype = torch.float64 if len(self.labels) > EXAMPLES_PER_BLOCK else activations.dtype
        for counts in self.counts:
            self.moments.append([Moments(len(counts), width, [self.n_classes], dtype=dtype) for _ in range(n_layers)])
            self.means.append(torch.zeros(n_layers, *counts.shape, width, dtype=dtype))

    def directions(self) -> dict[tuple[int, int], Directions]:
        """The directions, by layer and index of the target; with other labels held fixed where there are isolations."""
        directions = self.plain_directions()
        for target, sums in self.isolated.items():
            for layer in range(len(sums.sums)):
                directions[layer, target] = sums.directions(layer, directions[layer, target])
        return directions

    def plain_directions(self) -> dict[tuple[int, int], Directions]:
        """The directions, with no label held fixed."""
        directions = {}
        for (targets, _), layers, means, counts in zip(self.groups, self.moments, self.means, self.counts, strict=True):
            target_indices = torch.arange(self.labels.shape[1])[targets].tolist()
            for layer, moments in enumerate(layers):
                (classifier,) = moments.solve(self.n_classes)
                weights = classifier.weight[:, 0].transpose(1, 2)
                layer_means = means[layer].to(weights).masked_fill(counts[..., None] == 0, torch.nan)
                centre = moments.mean[:, 0].to(weights)
                varies = moments.varying().any(1).tolist()
                for index, target in enumerate(target_indices):
                    directions[layer, target] = Directions(
                        means=layer_means[index], weights=weights[index], centre=centre[index], varies=varies[index]
                    )
        return directions


class IsolatedSums:
    """Effects of a label on the activations at one target, with other labels held fixed, added in blocks.

    Args:
        isolation: Weights of the examples that have the target.
        rows: Their indices.
        n: Number of all examples.
    """

    def __init__(self, isolation: Isolation, rows: Int[Tensor, " example"], n: int):
        self.isolation = isolation
        weights = torch.cat([isolation.effects.nan_to_num(), isolation.group_means])
        self.weights = torch.zeros(len(weights), n, dtype=torch.float64)
        self.weights[:, rows] = weights
        self.in_groups = torch.zeros(n, dtype=torch.bool)
        self.in_groups[rows] = (isolation.group_means > 0).any(0)
        self.group_sizes = (isolation.group_means > 0).sum(1)

    def add(self, rows: slice, activations: Float[Tensor, "layer block d_model"]) -> None:
        """Add the activations of some of the examples, relative to the first example's, as `class_means` does."""
        if rows.start == 0:
            n_layers, _, width = activations.shape
            self.first = activations[:, :1].double()
            self.sums = torch.zeros(n_layers, len(self.weights), width, dtype=torch.float64)
            self.squares = torch.zeros(n_layers, dtype=torch.float64)
        centred = activations.double() - self.first
        self.sums += self.weights[:, rows] @ centred
        self.squares += centred[:, self.in_groups[rows]].square().sum((1, 2))

    def directions(self, layer: int, plain: Directions) -> Directions:
        """The directions of a layer, from those without other labels held fixed."""
        isolation = self.isolation
        effects, group_means = self.sums[layer].split([len(isolation.effects), len(isolation.group_means)])
        exists = isolation.effects.isfinite().all(1)
        # Relative to the activations, of which small effects may be rounding errors
        means = (plain.centre.double() + effects).masked_fill(~exists[:, None], torch.nan).to(plain.means)
        if not isolation.held:
            return replace(plain, means=means)
        # Centres of groups as if every class had the same number of examples: effects have a mean of 0
        centre = group_means + self.first[layer] - isolation.class_shares @ effects
        # Squared standard error of the effects, from the variance within groups
        within_groups = self.squares[layer] - (self.group_sizes[:, None] * group_means.square()).sum()
        variance = within_groups / max(1, int(self.group_sizes.sum()))
        squared_error = isolation.effects.nan_to_num().square().sum() * variance
        has_effect = effects.square().sum() > STANDARD_ERRORS**2 * squared_error
        return replace(plain, means=means, centre=centre.to(plain.centre), has_effect=bool(has_effect))


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
    pairs: Mapping[int, Pairs],
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
        pairs: For each target.
        directions: For each (layer, target) to edit. Layer 0 is the embedding's output.
        edits: Some of `EDITS`, each made in a separate run.
        seed: Determines the placebo's directions.

    Yields:
        Answers at all targets, for each chunk of the batch and each cell.

    Raises:
        ValueError: a hook of the caller's at the input of layer 0, where it would act twice.
    """
    model.eval()
    streams: dict[int, Float[Tensor, "layer target chunk d_model"]] = {}
    for chunk, examples in enumerate(chunks(batch, CHUNK)):
        recording = Recording(model, examples, ["resid"])
        streams = _source_streams(model, batch, chunk, pairs, streams)
        before = task.answers(recording.logits).cpu()
        for (layer, target), cell in directions.items():
            # The pairs whose base is in this chunk.
            bases, sources, groups = pairs[target].bases, pairs[target].sources, pairs[target].groups
            in_chunk = bases // CHUNK == chunk
            rows = bases[in_chunk] - chunk * CHUNK
            if not len(rows):
                continue
            # Activations of base and source at the position of the target, and the edited ones.
            site = Site("resid", layer)
            positions = examples.target_positions[rows, target][:, None]
            source_rows = sources[in_chunk].tolist()
            source = torch.stack([streams[row // CHUNK][layer, target, row % CHUNK] for row in source_rows])
            base = recording.activations(site, positions, rows)[:, 0].to(source)
            if cell.centre.ndim == 2 and groups is not None:
                cell = replace(cell, centre=cell.centre[groups[in_chunk]])
            activations = edited_activations(cell, base, source, derived_seed(seed, "placebo", layer, target))
            # Answers with each of these in place of the base's.
            after = {}
            for edit in edits:
                logits = recording.logits_with(site, positions, activations[edit]()[:, None], rows)
                after[edit] = task.answers(logits).cpu()
            yield EditedAnswers(layer, target, bases[in_chunk], sources[in_chunk], before[rows], after)


def _source_streams(
    model: Net,
    batch: Batch,
    chunk: int,
    pairs: Mapping[int, Pairs],
    computed: Mapping[int, Float[Tensor, "layer target chunk d_model"]],
) -> dict[int, Float[Tensor, "layer target chunk d_model"]]:
    """Residual streams at the targets, for each chunk with sources of the pairs whose bases are in a chunk.

    Those that are already computed are used again.
    """
    source_chunks: set[int] = set()
    for of_target in pairs.values():
        in_chunk = of_target.bases // CHUNK == chunk
        source_chunks |= set((of_target.sources[in_chunk] // CHUNK).tolist())
    streams = {}
    for index in sorted(source_chunks):
        rows = slice(index * CHUNK, (index + 1) * CHUNK)
        if index in computed:
            streams[index] = computed[index]
        else:
            streams[index] = residuals_at_targets(model, batch.select(rows), first=rows.start)
    return streams


def edited_activations(
    cell: Directions, base: Float[Tensor, "row d_model"], source: Float[Tensor, "row d_model"], seed: int
) -> dict[str, Callable[[], Float[Tensor, "row d_model"]]]:
    """For each of `EDITS`, a function that computes the new activations."""
    # takes a second to import
    from transformer_lens.tools.analysis.interchange import NormMatchedPlacebo, SubspaceInterchange, random_basis

    present = cell.means.isfinite().all(-1)
    basis = span_of_differences(cell.means[present])
    interchange = SubspaceInterchange(basis)
    width, rank = basis.shape
    random_directions = random_basis(width, rank, seed % 2**31) if rank else basis
    placebo = NormMatchedPlacebo(interchange, random_directions)
    centre = cell.centre.expand_as(base)

    def interchange_weights() -> Float[Tensor, "row d_model"]:
        return SubspaceInterchange(span_of_differences(cell.weights[present]))(base, source)

    return {
        "interchange": lambda: interchange(base, source),
        "placebo": lambda: placebo(base, source),
        "erasure": lambda: interchange(base, centre),
        "erasure placebo": lambda: placebo(base, centre),
        "weights": interchange_weights,
    }


def span_of_differences(rows: Float[Tensor, "class d_model"]) -> Float[Tensor, "d_model rank"]:
    """Orthonormal basis of the differences between rows: class means, or a probe's weights of each class.

    The rank is at most the number of rows minus 1. It is smaller where rows coincide or depend on each other, and 0
    where all are equal, up to rounding errors. TransformerLens's `probe_basis`, which is the same for the largest rank,
    raises an error for any other.
    """
    rows = rows.float()
    vectors, sizes, _ = torch.linalg.svd((rows - rows.mean(0)).T, full_matrices=False)
    rounding_error = ROUNDING * rows.norm(dim=1).max()
    return vectors[:, sizes > rounding_error]


def interchange_map(
    model: Net,
    task: Task,
    batch: Batch,
    directions: Mapping[tuple[int, int], Directions],
    *,
    seed: int,
    every_input: bool = False,
) -> dict[str, np.ndarray]:
    """Share of pairs in which the answer at a target becomes the source's correct answer, per layer and target.

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
        every_input: The examples are all that there are: each is paired with several others, and `low` and `high` are
            the share.

    Returns:
        Arrays (layer, target), targets in ascending order, as fractions of pairs: `follows` (along the class means)
        with `low` and `high`, `weights` (along the probe's weights), `placebo` (by the same distance in a random
        direction), all NaN without pairs; and `n`, the number of pairs.

    Source: interchange interventions, Geiger et al. 2021, through TransformerLens; filter and pattern, Haufe et al.
    2014 (doi 10.1016/j.neuroimage.2013.10.067).
    """
    # Pair the examples that have each target, and use the pairs with different answers.
    if not every_input:
        batch = batch.select(slice(0, 2 * MAX_PAIRS))
    pairs = {}
    for target in sorted({target for _, target in directions}):
        rows = batch.present[:, target].nonzero()[:, 0]
        if every_input:
            of_target = Pairs.all_of(rows)
            base, source = of_target.bases, of_target.sources
        else:
            n_pairs = len(rows) // 2
            base, source = rows[: 2 * n_pairs].view(-1, 2).T
        different = batch.labels[base, target] != batch.labels[source, target]
        pairs[target] = Pairs(bases=base[different], sources=source[different])
    # Count the answers that become the source's.
    edits = {"follows": "interchange", "weights": "weights", "placebo": "placebo"}
    column = {target: index for index, target in enumerate(pairs)}
    counts = {name: np.zeros((model.cfg.n_layers + 1, len(column)), dtype=int) for name in (*edits, "n")}
    answers = edited_answers(model, task, batch, pairs, directions, edits=tuple(edits.values()), seed=seed)
    n_chunks = -(-len(batch) // CHUNK)
    for edited in counted("interchanges", answers, total=n_chunks * len(directions)):
        labels = batch.labels[edited.sources, edited.target]
        cell = edited.layer, column[edited.target]
        counts["n"][cell] += len(labels)
        for name, edit in edits.items():
            counts[name][cell] += int((edited.after[edit][:, edited.target] == labels).sum())
    # Shares of the pairs, NaN without any.
    totals = np.maximum(counts["n"], 1)
    shares = {name: counts[name] / totals for name in edits}
    shares["low"], shares["high"] = _ends(counts["follows"], totals, every_input=every_input)
    causal = {name: np.where(counts["n"] > 0, share, np.nan) for name, share in shares.items()}
    return causal | {"n": counts["n"].astype(float)}


def isolated_interchanges(
    model: Net,
    task: Task,
    batch: Batch,
    isolations: Mapping[int, Isolation],
    directions: Mapping[tuple[int, int], Directions],
    *,
    seed: int,
    every_input: bool = False,
) -> dict[str, np.ndarray]:
    """Share of pairs in which the answer becomes the source's with the labels held fixed that it is tied to.

    A pair whose base has the source's answer without an edit does not count, such as where the model answers from a
    label that is held fixed.

    Args:
        model: Model to intervene on. It is not changed.
        task: Turns logits into answers.
        batch: The examples that the isolations are of.
        isolations: For each target, in the order of the arrays.
        directions: For each layer and target, with other labels held fixed.
        seed: Determines nothing that is returned.
        every_input: The examples are all that there are: `alone_low` and `alone_high` are the share.

    Returns:
        Arrays (layer, target): `alone` with `alone_low` and `alone_high`, NaN where the labels cannot be told apart,
        and `alone_n`, the number of pairs.
    """
    pairs = {}
    for target, isolation in isolations.items():
        if isolation.held and isolation.testable:
            pairs[target] = Pairs.isolated(isolation, batch.present[:, target].nonzero()[:, 0])
    tested = {cell: along for cell, along in directions.items() if cell[1] in pairs and along.has_effect}
    column = {target: index for index, target in enumerate(isolations)}
    follow, n = (np.zeros((model.cfg.n_layers + 1, len(column)), dtype=int) for _ in range(2))
    for edited in edited_answers(model, task, batch, pairs, tested, edits=("interchange",), seed=seed):
        labels = batch.labels[edited.sources, edited.target]
        counts = edited.before[:, edited.target] != labels
        cell = edited.layer, column[edited.target]
        n[cell] += int(counts.sum())
        follow[cell] += int((counts & (edited.after["interchange"][:, edited.target] == labels)).sum())
    low, high = _ends(follow, np.maximum(n, 1), every_input=every_input)
    shares = {"alone": follow / np.maximum(n, 1), "alone_low": low, "alone_high": high}
    alone = {name: np.where(n > 0, share, np.nan) for name, share in shares.items()}
    return alone | {"alone_n": n.astype(float)}


def _ends(
    counts: Int[np.ndarray, "layer target"], n: Int[np.ndarray, "layer target"], *, every_input: bool
) -> tuple[Float[np.ndarray, "layer target"], Float[np.ndarray, "layer target"]]:
    """Ends of the interval of a share; the share itself if every input was counted."""
    return (counts / n, counts / n) if every_input else proportion_interval(counts, n)
