"""Ablation methods by name: zero, mean, resample, uniform, random_rows, and the ideal map of each registered kind; and
what parts of a model write in the place of their outputs, for the removals among them.

Random draws are made per sequence, so results do not depend on how a batch is split. On every input of a task, means
are those of these inputs, and `resample` and `random_rows` have one replacement for each pairing of a fixed family
(`interp.core.inputs`), over which their effect is averaged.
"""

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hooks.interventions.ablation_engine import Net, head_output_point
from hooks.interventions.replacements import Mean, Pattern, Replacement, Resample, Zero
from hooks.model.attention import visible_keys
from interp.core.activations import chunks
from interp.core.inputs import number_of_pairings, partners
from interp.core.randomness import derived_generator, derived_seed
from interp.heads.kinds import PackedRelations, kinds_of, known_kinds, sequences_at_once
from interp.heads.queries import real_positions
from interp.tasks.base import Batch, Task
from interp.tasks.splits import sample_split

REMOVALS = ("zero", "mean", "resample")
METHODS = (*REMOVALS, "uniform", "random_rows")
"""The registered kinds are methods too: the pattern becomes the ideal map of that relation."""
PAIRED = ("resample", "random_rows")
"""Methods that draw something for each sequence."""
N_REFERENCE = 256

ReplacementOf = Callable[[slice], Replacement]
"""The replacement for some rows of the batch."""
OutputsOf = Callable[[slice], Mapping[str, Float[Tensor, "#batch pos *width"]]]
"""What is written at each of some hook points instead, for some rows of the batch."""


def check_method(method: str, task: Task) -> None:
    """Raise ValueError unless a method is one of `METHODS` or a kind that is registered or the task's own."""
    names = (*METHODS, *known_kinds(task))
    if method not in names:
        near = get_close_matches(method, names, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise ValueError(f"method is {method!r}; choose one of {', '.join(names)}.{hint}")


def replacements(method: str, model: Net, task: Task, batch: Batch, *, seed: int, first: int = 0) -> ReplacementOf:
    """Replacement of heads by the name of its method.

    Args:
        method: One of `METHODS`, or a registered kind.
        model: The model whose heads are replaced.
        task: Task of the batch, from which reference sequences are sampled.
        batch: All sequences that heads will be replaced on.
        seed: Seed of the reference sequences, their assignment to sequences of the batch, and the random rows.
        first: Number of sequences in earlier batches, whose references and random rows are not used again.

    Raises:
        ValueError: an unknown method, or a kind that this task does not have.
    """
    # Other outputs in place of a head's.
    if method == "zero":
        return lambda rows: Zero()
    width = batch.tokens.shape[1]
    if method == "mean":
        mean = Mean(_outputs(model, reference_batch(task, seed), average=True, width=width))
        return lambda rows: mean
    if method == "resample":
        reference = _outputs(model, reference_batch(task, seed), average=False, width=width)
        generator = derived_generator(seed, "replacement")
        references = torch.randint(N_REFERENCE, (first + len(batch),), generator=generator)[first:]
        return lambda rows: Resample(reference, references[rows])
    # Another pattern: the ideal map of a kind, or uniform or random rows.
    check_method(method, task)
    related = None
    if method not in METHODS:
        related = PackedRelations.of(task, batch, kinds_of(task, batch, [method]))

    def pattern_of(rows: slice) -> Replacement:
        chunk = batch.select(rows)
        allowed = visible_keys(model.cfg, chunk.tokens, chunk.attention_mask)
        if related is not None:
            weight = (related.on(rows)[:, 0] & allowed).double()
        elif method == "random_rows":
            weight = random_weights(allowed, seed, first + rows.start)
        else:
            weight = allowed.double()
        return Pattern(normalised(weight, allowed))

    return pattern_of


def replacements_on_all(method: str, model: Net, task: Task, batch: Batch) -> list[ReplacementOf]:
    """Replacements of heads where a batch has every input of a task: one, or one for each pairing of inputs.

    Args:
        method: One of `METHODS`, or a registered kind.
        model: The model whose heads are replaced.
        task: Task of the batch.
        batch: Every input, in the order of `inputs_or_sample`.

    Raises:
        ValueError: an unknown method, or a kind that this task does not have.
    """
    pairings = range(number_of_pairings(len(batch)) if method in PAIRED else 1)
    if method == "mean":
        mean = Mean(_outputs(model, batch, average=True))
        return [lambda rows: mean]
    if method == "resample":
        outputs_of = _outputs_of_partners(model, batch, _head_outputs(model))

        def resampled_from(pairing: int) -> ReplacementOf:
            def resample(rows: slice) -> Replacement:
                outputs = outputs_of(rows, pairing)
                return Resample(outputs, torch.arange(len(outputs[0])))

            return resample

        return [resampled_from(pairing) for pairing in pairings]
    return [replacements(method, model, task, batch, seed=derived_seed(0, "pairing", pairing)) for pairing in pairings]


def _outputs_of_partners(
    model: Net, batch: Batch, names: Sequence[str]
) -> Callable[[slice, int], list[Float[Tensor, "sample pos *width"]]]:
    """Function of rows and the number of a pairing: activations of each input's partner, in the order of the rows.

    At positions where the partner is padding, those of the next input that is not: what a model computes at padding is
    the output of nothing.
    """
    real = real_positions(batch)
    next_real = None if real.all() else _next_real(real)

    def outputs_of(rows: slice, pairing: int) -> list[Float[Tensor, "sample pos *width"]]:
        sources = partners(rows, len(batch), pairing)
        outputs = _activations(model, batch.select(sources), names)
        if next_real is None:
            return outputs
        moved = next_real[sources] != sources[:, None]
        next_sources, row = next_real[sources][moved].unique(return_inverse=True)
        position = moved.nonzero()[:, 1]
        for output, next_output in zip(outputs, _activations(model, batch.select(next_sources), names), strict=True):
            output[moved] = next_output[row, position]
        return outputs

    return outputs_of


def check_removal(method: str) -> None:
    """Raise ValueError unless a method is one of `REMOVALS`, which also replace embeddings and MLPs."""
    if method not in REMOVALS:
        raise ValueError(f"method is {method!r}; choose one of {', '.join(REMOVALS)}.")


def part_points(model: Net) -> list[str]:
    """Hook points of what all parts write: the embedding, and the heads and MLP of each layer."""
    points = ["blocks.0.hook_resid_pre"]
    for layer in range(model.cfg.n_layers):
        points += [f"blocks.{layer}.{head_output_point(model.cfg)}"]
        points += [name for name in [f"blocks.{layer}.hook_mlp_out"] if name in model.hook_dict]
    return points


def outputs_instead(
    method: str, model: Net, task: Task, batch: Batch, names: Sequence[str], *, seed: int, every_input: bool = False
) -> list[OutputsOf]:
    """What parts write instead, at their hook points, by the name of a removal: one way, or one for each pairing.

    Args:
        method: One of `REMOVALS`, with the references of `replacements`.
        model: The model whose parts are replaced.
        task: Task of the batch, from which reference sequences are sampled.
        batch: All sequences that parts will be replaced on.
        names: Hook points.
        seed: Seed of the reference sequences, and of their assignment to sequences of the batch.
        every_input: The batch is every input of the task, in the order of `inputs_or_sample`: means are those of the
            batch, and inputs are paired with each other.
    """
    if method == "zero":
        shapes = _outputs(model, batch.select(slice(0, 1)), average=False, names=names)
        zeros = {name: torch.zeros_like(output) for name, output in zip(names, shapes, strict=True)}
        return [lambda rows: zeros]
    reference = batch if every_input else reference_batch(task, seed)
    width = batch.tokens.shape[1]
    if method == "mean":
        means = dict(zip(names, _outputs(model, reference, average=True, names=names, width=width), strict=True))
        return [lambda rows: means]
    if every_input:
        outputs_of = _outputs_of_partners(model, batch, names)

        def of_pairing(pairing: int) -> OutputsOf:
            return lambda rows: dict(zip(names, outputs_of(rows, pairing), strict=True))

        return [of_pairing(pairing) for pairing in range(number_of_pairings(len(batch)))]
    samples = dict(zip(names, _outputs(model, reference, average=False, names=names, width=width), strict=True))
    assigned = torch.randint(N_REFERENCE, (len(batch),), generator=derived_generator(seed, "replacement"))
    return [lambda rows: {name: output[assigned[rows]] for name, output in samples.items()}]


def reference_batch(task: Task, seed: int) -> Batch:
    """The sequences that references are computed on."""
    return sample_split(task, N_REFERENCE, generator=derived_generator(seed, "reference"), split="validation")


def _head_outputs(model: Net) -> list[str]:
    """Hook points of the head outputs of each layer."""
    return [f"blocks.{layer}.{head_output_point(model.cfg)}" for layer in range(model.cfg.n_layers)]


@torch.no_grad()
def _activations(model: Net, batch: Batch, names: Sequence[str]) -> list[Float[Tensor, "sample pos *width"]]:
    """Activations of some hook points, of few sequences that fit one pass."""
    inputs: dict[str, Any] = batch.model_inputs()
    _, cache = model.run_with_cache(batch.tokens, **inputs, names_filter=list(names))
    return [cache[name].clone() for name in names]


@torch.no_grad()
def _outputs(
    model: Net, batch: Batch, *, average: bool, names: Sequence[str] = (), width: int | None = None
) -> list[Float[Tensor, "sample pos *width"]]:
    """Activations of some hook points (default: head outputs of each layer) on some sequences, or their average over
    the real tokens at each position.

    Padding is no source: at a position where a sequence is padding, it has the activation of the next sequence that is
    not, and the average is over those that are not. Positions where all are padding have the activation, or the
    average, of the last position where one is not.

    Args:
        model: The model.
        batch: The sequences.
        average: Whether to average them.
        names: Hook points.
        width: Number of positions; default: that of the batch. A task may pad each batch to its own longest sequence.
    """
    names = list(names) or _head_outputs(model)
    # The weight of each sequence in the mean at a position.
    real = real_positions(batch)
    share = real.double() / real.sum(0).clamp_min(1)
    # Outputs of some sequences after the other, or their weighted sums.
    size = sequences_at_once(batch)
    blocks = []
    for chunk, weight in zip(chunks(batch, size), share.split(size), strict=True):
        inputs: dict[str, Any] = chunk.model_inputs()
        _, cache = model.run_with_cache(chunk.tokens, **inputs, names_filter=names)
        if average:
            weights = {
                name: weight.to(cache[name]).view(*weight.shape, *[1] * (cache[name].ndim - 2)) for name in names
            }
            blocks.append([(cache[name] * weights[name]).sum(0, keepdim=True) for name in names])
        else:
            blocks.append([cache[name] for name in names])
    outputs = [torch.cat(layer) for layer in zip(*blocks, strict=True)]
    if average:
        outputs = [output.sum(0, keepdim=True) for output in outputs]
    elif not real.all():
        source = _next_real(real)
        outputs = [output[source, torch.arange(source.shape[1])] for output in outputs]
    # Where no sequence is real, the last position where one is
    position = torch.arange(width or batch.tokens.shape[1])
    if len(position) == batch.tokens.shape[1] and real.any(0).all():
        return outputs
    not_all_padding = real.any(0).nonzero()[:, 0]
    last = not_all_padding[torch.searchsorted(not_all_padding, position, right=True).sub(1).clamp_min(0)]
    return [output[:, last] for output in outputs]


def _next_real(real: Bool[Tensor, "sample pos"]) -> Int[Tensor, "sample pos"]:
    """For each sequence and position the sequence itself, or the next one, in a circle, that is real there."""
    n_samples = len(real)
    sample = torch.arange(n_samples)
    # Of two rounds, the first real sequence from each on
    twice = torch.where(real, sample[:, None], 2 * n_samples).repeat(2, 1)
    twice[n_samples:] = torch.where(real, sample[:, None] + n_samples, 2 * n_samples)
    first = twice.flip(0).cummin(0).values.flip(0)[:n_samples]
    return torch.where(first < 2 * n_samples, first % n_samples, sample[:, None])


def random_weights(allowed: Bool[Tensor, "batch query key"], seed: int, first: int) -> Float[Tensor, "batch query key"]:
    """Random attention weights; normalised, each row is uniform on the simplex over the keys its query may see.

    Args:
        allowed: Keys that each query may see.
        seed: Seed; together with its index in the whole batch it decides the rows of a sequence.
        first: Index of the first sequence in the whole batch.
    """
    weights = torch.empty(allowed.shape, dtype=torch.float32)
    for index, weight in enumerate(weights):
        weight.exponential_(generator=derived_generator(seed, "random rows", first + index))
    return weights.double() * allowed


def normalised(
    weight: Float[Tensor, "batch query key"], allowed: Bool[Tensor, "batch query key"]
) -> Float[Tensor, "batch query key"]:
    """Rows that sum to one, uniform over the allowed keys where a row has no weight."""
    weight = torch.where(weight.sum(-1, keepdim=True) > 0, weight, allowed.double())
    return weight / weight.sum(-1, keepdim=True)
