"""Interventions: what takes the place of what a part of a model writes, or of a head's attention pattern.

An intervention is one class, which `ablate_heads`, `keep_heads`, `edges`, circuits and `audit` use alike, on every
model, and on a sample as on every input. Ours are `zero`, `mean`, `resample`, `uniform`, `random_rows` and the ideal
map of each kind; `docs/guides/add_an_intervention.md` adds one.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hooks.checks import did_you_mean, shown
from hooks.interventions.ablation_engine import head_output_point
from hooks.interventions.clean_pass import Net
from hooks.interventions.replacements import HeadInputs, Pattern, Replacement
from hooks.model.attention import visible_keys
from interp.core.activations import chunks
from interp.core.randomness import derived_generator
from interp.core.sample import Sample
from interp.heads.kinds import PackedRelations, kinds_of, known_kinds, sequences_at_once
from interp.heads.queries import real_positions
from interp.tasks.base import Batch, Task


class HeadIntervention(ABC):
    """Something that takes the place of what heads write: of their outputs, their patterns, or the values they mix."""

    name: str
    """Its name in results."""
    draws: bool = False
    """Whether it draws something for each input. On every input of a task, effects are averaged over several draws."""
    reads_patterns: bool = False
    """Whether it reads the heads' patterns and values."""

    @abstractmethod
    def replacement(self, references: "References", rows: slice, draw: int) -> Replacement:
        """The replacement of the heads of a layer, on some rows of the sample, in one of the draws."""


class Intervention(HeadIntervention):
    """Something that takes the place of what any part of a model writes, from what it writes.

    >>> import interp
    >>> class Spread(interp.Intervention):
    ...     "The mean of the part plus noise of its own spread."
    ...     name, draws = "spread", True
    ...     def new_output(self, output, reference):
    ...         return reference.mean() + reference.samples().std(0) * reference.normal()
    >>> task = interp.tasks.Lego(n_vars=2)
    >>> interp.ablate_heads(interp.known_answers.lego_loop(task), task, method=Spread(), n=32).method
    'spread'
    """

    @abstractmethod
    def new_output(
        self, output: Float[Tensor, "batch pos *width"], reference: "Reference"
    ) -> Float[Tensor, "#batch pos *width"]:
        """What is written instead.

        Args:
            output: What the part writes: of attention, the output of each head of a layer (batch, pos, head, width), or
                their sum where whole layers are replaced; of an MLP and the embedding, a vector (batch, pos, width).
            reference: What the same part writes for other inputs, and random numbers.
        """

    def replacement(self, references: "References", rows: slice, draw: int) -> Replacement:
        def replace(layer: int, inputs: HeadInputs) -> Float[Tensor, "batch pos head width"]:
            point = f"blocks.{layer}.{head_output_point(references.model.cfg)}"
            new = self.new_output_at(point, inputs.z, references=references, rows=rows, draw=draw)
            return new.expand_as(inputs.z)

        return replace

    def new_output_at(
        self,
        hook_point: str,
        output: Float[Tensor, "batch pos *width"],
        *,
        references: "References",
        rows: slice,
        draw: int,
    ) -> Float[Tensor, "#batch pos *width"]:
        """What is written instead at a hook point, on some rows of the sample, in one of the draws; in the dtype and on
        the device of the output.

        Raises:
            ValueError: `new_output` returned no numbers of that shape.
        """
        new = self.new_output(output, Reference(references, hook_point, rows, draw))
        fits = isinstance(new, Tensor) and new.is_floating_point() and new.ndim == output.ndim
        if not fits or any(size not in (1, expected) for size, expected in zip(new.shape, output.shape, strict=True)):
            returned = f"numbers of shape {tuple(new.shape)}" if isinstance(new, Tensor) else shown(new)
            raise ValueError(
                f"the intervention {self.name!r} returned {returned} for {hook_point}; new_output must "
                f"return numbers of the shape {tuple(output.shape)}, in which axes may have length 1."
            )
        return new.to(output)


class PatternIntervention(HeadIntervention):
    """An intervention on attention patterns: the same values under other rows."""

    reads_patterns = True

    @abstractmethod
    def new_rows(
        self, visible: Bool[Tensor, "batch query key"], references: "References", rows: slice, draw: int
    ) -> Float[Tensor, "batch query key"]:
        """Weights of keys, which are normalised over the visible ones."""

    def replacement(self, references: "References", rows: slice, draw: int) -> Replacement:
        chunk = references.sample.batch.select(rows)
        visible = visible_keys(references.model.cfg, chunk.tokens, chunk.attention_mask)
        return Pattern(normalised(self.new_rows(visible, references, rows, draw), visible))


class _Zero(Intervention):
    name = "zero"

    def new_output(self, output: Tensor, reference: "Reference") -> Tensor:
        return torch.zeros_like(output)


class _Mean(Intervention):
    name = "mean"

    def new_output(self, output: Tensor, reference: "Reference") -> Tensor:
        return reference.mean()


class _Resample(Intervention):
    name = "resample"
    draws = True

    def new_output(self, output: Tensor, reference: "Reference") -> Tensor:
        return reference.other_input()


class _Counterpart(Intervention):
    name = "counterpart"
    draws = True

    def new_output(self, output: Tensor, reference: "Reference") -> Tensor:
        return reference.counterpart(output)


class _Uniform(PatternIntervention):
    name = "uniform"

    def new_rows(self, visible: Tensor, references: "References", rows: slice, draw: int) -> Tensor:
        return visible.double()


class _RandomRows(PatternIntervention):
    """Rows drawn from the flat simplex."""

    name = "random_rows"
    draws = True

    def new_rows(self, visible: Tensor, references: "References", rows: slice, draw: int) -> Tensor:
        sample = references.sample
        return random_weights(visible, sample.draw_seed(draw), sample.first + rows.start)


class _Ideal(PatternIntervention):
    """The ideal map of a kind."""

    def __init__(self, kind: str):
        self.name = kind

    def new_rows(self, visible: Tensor, references: "References", rows: slice, draw: int) -> Tensor:
        return (references.relations(self.name).on(rows)[:, 0] & visible).double()


REMOVALS = ("zero", "mean", "resample")
OF_PARTS: Mapping[str, Intervention] = {
    intervention.name: intervention for intervention in (_Zero(), _Mean(), _Resample(), _Counterpart())
}
"""Those that also replace embeddings and MLPs: the removals, and what is written for the counterpart of an input."""
BUILT_IN: Mapping[str, HeadIntervention] = {
    **OF_PARTS,
    **{pattern.name: pattern for pattern in (_Uniform(), _RandomRows())},
}
METHODS = tuple(BUILT_IN)
"""The registered kinds are methods too: the pattern becomes the ideal map of that relation."""


def intervention_of(method: str | HeadIntervention, task: Task, batch: Batch) -> HeadIntervention:
    """The intervention of a name, or one of the caller's own.

    Args:
        method: One of `METHODS`, a kind that is registered or the task's own, or an intervention.
        task: The task.
        batch: The sequences, which must have relations of the kind.

    Raises:
        ValueError: an unknown name, a kind that this task does not have, or an intervention with the name of ours.
    """
    check_method(method, task)
    if isinstance(method, HeadIntervention):
        return method
    if method in BUILT_IN:
        return BUILT_IN[method]
    kinds_of(task, batch, [method])  # raises an error if the task does not have it
    return _Ideal(method)


def intervention_of_parts(method: str | HeadIntervention, task: Task) -> Intervention:
    """As `intervention_of`, of those that also replace embeddings and MLPs.

    Raises:
        ValueError: an unknown name, or one that only heads have.
    """
    check_method(method, task, of_parts=True)
    return method if isinstance(method, Intervention) else OF_PARTS[str(method)]


def check_method(method: str | HeadIntervention, task: Task, *, of_parts: bool = False) -> None:
    """Check a method before the task is asked for anything.

    Args:
        method: A name, or an intervention of the caller's.
        task: The task.
        of_parts: Whether it must replace embeddings and MLPs too, which have no pattern.

    Raises:
        ValueError: an unknown name, an intervention with the name of ours, or one that replaces patterns of all parts.
    """
    kinds = known_kinds(task)
    if isinstance(method, HeadIntervention):
        check_intervention(method, kinds)
        if of_parts and not isinstance(method, Intervention):
            raise ValueError(f"method is {method.name}, which only heads have; choose one of {', '.join(OF_PARTS)}.")
        return
    if not isinstance(method, str):
        raise ValueError(f"method is {shown(method)}; choose a name, or give an interp.Intervention.")
    names = tuple(OF_PARTS) if of_parts else (*METHODS, *kinds)
    if method not in names:
        raise ValueError(f"method is {method!r}; choose one of {', '.join(names)}.{did_you_mean(method, names)}")


def needs_patterns(method: str | HeadIntervention) -> bool:
    """Whether a method replaces patterns, or reads them."""
    return method.reads_patterns if isinstance(method, HeadIntervention) else method not in OF_PARTS


def check_intervention(intervention: HeadIntervention, kinds: Sequence[str], *, argument: str = "method") -> None:
    """Check that an intervention of the caller's has a name that is not one of ours.

    Raises:
        ValueError: no intervention, or one without a name of its own.
    """
    if not isinstance(intervention, HeadIntervention):
        raise ValueError(f"{argument} has {shown(intervention)}; give instances of a class of interp.Intervention.")
    name = getattr(intervention, "name", None)
    if not isinstance(name, str) or not name:
        raise ValueError(
            f"{argument} is a {type(intervention).__name__} without a name; set name = '...' in its class."
        )
    if intervention is not BUILT_IN.get(name) and name in (*METHODS, *kinds):
        raise ValueError(f"{argument} is an intervention with the name {name!r}, which is one of ours; choose another.")


@dataclass(frozen=True)
class Reference:
    """What a part of a model writes for other inputs, and random numbers, for an intervention on some inputs."""

    references: "References"
    hook_point: str
    """Where the part writes."""
    rows: slice
    draw: int

    def mean(self) -> Float[Tensor, "1 pos *width"]:
        """The mean over other inputs, position by position; of every input if the verb is about all of them."""
        return self.references.means[self.hook_point]

    def samples(self) -> Float[Tensor, "sample pos *width"]:
        """What the part writes for each of 256 other inputs, or for every input."""
        return self.references.samples[self.hook_point]

    def other_input(self) -> Float[Tensor, "batch pos *width"]:
        """What the part writes for another input, which is drawn for each input."""
        return self.references.of_other_inputs(self.rows, self.draw)[self.hook_point]

    def counterpart(self, output: Float[Tensor, "batch pos *width"]) -> Float[Tensor, "batch pos *width"]:
        """What the part writes for the counterpart of each input (`Task.counterparts`): of a pair of prompts, the
        corrupted one. Where the counterpart is padding, it is `output`, what the part writes for the input itself."""
        instead, real = self.references.of_counterparts(self.rows, self.draw)
        exists = real.view(*real.shape, *[1] * (output.ndim - 2)).to(output.device)
        return torch.where(exists, instead[self.hook_point], output)

    def normal(self) -> Float[Tensor, "batch pos *width"]:
        """Standard normal numbers, which depend on the seed, the input and the hook point only."""
        sample, mean = self.references.sample, self.mean()
        numbers = torch.empty(len(sample.batch.tokens[self.rows]), *mean.shape[1:], dtype=torch.float32)
        for index, of_input in enumerate(numbers):
            position = sample.first + self.rows.start + index
            names = ("normal", self.hook_point, position)
            of_input.normal_(generator=derived_generator(sample.draw_seed(self.draw), *names))
        return numbers.to(mean.device)


class References:
    """What parts of a model write for other inputs than those of a sample; computed when it is asked for.

    Padding is no source: at a position where an input is padding, it has what the part writes for the next input that
    is not, and means are over those that are not. Positions where all are padding have those of the last position where
    one is not.

    Args:
        model: The model. It is not changed.
        sample: The sample.
        names: Hook points of the parts; if empty, the heads' outputs.
    """

    def __init__(self, model: Net, sample: Sample, names: Sequence[str] = ()):
        self.model, self.sample = model, sample
        self.names = tuple(names) or tuple(
            f"blocks.{layer}.{head_output_point(model.cfg)}" for layer in range(model.cfg.n_layers)
        )
        self._relations: dict[str, PackedRelations] = {}
        self._last: tuple[Any, dict[str, Tensor]] = (None, {})

    @cached_property
    def means(self) -> dict[str, Float[Tensor, "1 pos *width"]]:
        """The mean over the reference inputs at each hook point."""
        real = real_positions(self.sample.reference)
        share = real.double() / real.sum(0).clamp_min(1)
        sums: dict[str, list[Tensor]] = {name: [] for name in self.names}
        size = sequences_at_once(self.sample.reference)
        for outputs, weight in zip(self._outputs(), share.split(size), strict=True):
            for name, output in outputs.items():
                weights = weight.to(output).view(*weight.shape, *[1] * (output.ndim - 2))
                sums[name].append((output * weights).sum(0, keepdim=True))
        return {name: self._in_width(torch.cat(blocks).sum(0, keepdim=True)) for name, blocks in sums.items()}

    @cached_property
    def samples(self) -> dict[str, Float[Tensor, "sample pos *width"]]:
        """What is written for each of the reference inputs."""
        blocks = list(self._outputs())
        outputs = {name: torch.cat([block[name] for block in blocks]) for name in self.names}
        real = real_positions(self.sample.reference)
        if not real.all():
            source, position = _next_real(real), torch.arange(real.shape[1])
            outputs = {name: output[source, position] for name, output in outputs.items()}
        return {name: self._in_width(output) for name, output in outputs.items()}

    def of_other_inputs(self, rows: slice, draw: int) -> dict[str, Float[Tensor, "batch pos *width"]]:
        """What is written for the partners of some inputs (`Sample.partners`)."""
        sources = self.sample.partners(rows, draw)
        if not self.sample.exact:
            return {name: samples[sources.to(samples.device)] for name, samples in self.samples.items()}
        # Of every input there are too many to keep; those of one draw are asked for layer by layer
        key = rows.start, rows.stop, draw
        if self._last[0] != key:
            self._last = key, self._of_partners(sources)
        return self._last[1]

    def of_counterparts(
        self, rows: slice, draw: int
    ) -> tuple[dict[str, Float[Tensor, "batch pos *width"]], Bool[Tensor, "batch pos"]]:
        """What is written for the counterparts of some inputs, and where these are not padding.

        Counterparts that a task draws are a sample: of every input, the partners stand for them.
        """
        if self.sample.exact and not self.sample.task.counterparts_are_fixed:
            outputs = self.of_other_inputs(rows, draw)
            return outputs, torch.ones(next(iter(outputs.values())).shape[:2], dtype=torch.bool)
        counterparts = self.sample.counterparts.select(rows)
        key = rows.start, rows.stop, None
        if self._last[0] != key:
            self._last = key, self._run(counterparts)
        return self._last[1], real_positions(counterparts)

    def relations(self, kind: str) -> PackedRelations:
        """The relation of a kind on the sample."""
        if kind not in self._relations:
            self._relations[kind] = PackedRelations.of(self.sample.task, self.sample.batch, [kind])
        return self._relations[kind]

    def _of_partners(self, sources: Int[Tensor, " batch"]) -> dict[str, Float[Tensor, "batch pos *width"]]:
        """What is written for some of every input."""
        every = self.sample.reference
        outputs = self._run(every.select(sources))
        real = real_positions(every)
        if real.all():
            return outputs
        next_real = _next_real(real)
        moved = next_real[sources] != sources[:, None]
        next_sources, row = next_real[sources][moved].unique(return_inverse=True)
        position = moved.nonzero()[:, 1]
        of_next = self._run(every.select(next_sources))
        for name, output in outputs.items():
            output[moved] = of_next[name][row, position]
        return outputs

    def _outputs(self) -> Any:
        """What is written for some of the reference inputs after the others."""
        for chunk in chunks(self.sample.reference, sequences_at_once(self.sample.reference)):
            yield self._run(chunk)

    @torch.no_grad()
    def _run(self, batch: Batch) -> dict[str, Float[Tensor, "batch pos *width"]]:
        inputs: dict[str, Any] = batch.model_inputs()
        _, cache = self.model.run_with_cache(batch.tokens, **inputs, names_filter=list(self.names))
        return {name: cache[name].clone() for name in self.names}

    def _in_width(self, outputs: Float[Tensor, "sample pos *width"]) -> Float[Tensor, "sample wanted *width"]:
        """Outputs at the positions of the sample: a task may pad each batch to its own longest sequence."""
        real = real_positions(self.sample.reference)
        position = torch.arange(self.sample.batch.tokens.shape[1])
        if len(position) == real.shape[1] and real.any(0).all():
            return outputs
        # Where no sequence is real, the last position where one is
        not_all_padding = real.any(0).nonzero()[:, 0]
        last = not_all_padding[torch.searchsorted(not_all_padding, position, right=True).sub(1).clamp_min(0)]
        return outputs[:, last]


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
