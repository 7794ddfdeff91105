"""Ablation of heads and other parts, alone and in sets, with random sets of heads of the same size as a control."""

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, combinations
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import torch
from jaxtyping import Float

from hooks.checks import check_number, shown
from hooks.interventions.ablation_engine import Head, every_head
from hooks.interventions.clean_pass import Net
from hooks.state import restores_state
from hooks.typed import (
    COUNT,
    DIFFERENCE,
    DISTINCT,
    MAY_BE_INFINITE,
    MAY_BE_MISSING,
    POSITIVE_COUNT,
    SHARE,
    Axes,
    checks_types,
)
from interp.core.consistency import check_heads_of_shape, check_lost_accuracy
from interp.core.devices import check_jobs
from interp.core.heads import check_heads
from interp.core.inputs import all_inputs_text, repeats_text
from interp.core.intervals import Interval
from interp.core.randomness import derived_generator
from interp.core.results import Result, table_lines
from interp.core.sample import Sample
from interp.core.statistics import bootstrap_mean, drop_interval
from interp.core.verbs import HEAD_INPUTS, HEAD_OUTPUTS, AnyModel, Needs, prepare_model, without_mlps
from interp.heads.experiment import Edit, Effects, Experiment
from interp.heads.interventions import (
    HeadIntervention,
    Intervention,
    check_method,
    intervention_of,
    intervention_of_parts,
    needs_patterns,
)
from interp.heads.parts import KINDS_OF_PARTS, engine_part, experiment_on_parts, has_mlps, names_of_parts
from interp.tasks.base import Task
from interp.tasks.splits import EveryInput

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

MOST_LINES = 48
"""Largest number of sets that is printed; of more, those with the largest drops."""


@dataclass(frozen=True, kw_only=True)
class _SetLosses(Result):
    """Drop in accuracy and rise in loss for every set of parts and every target.

    The independent units of every interval are distinct inputs, fewer than sequences in a finite task. With every
    input of the task (`n="all"`) the intervals are exact.
    """

    method: str
    """What takes the place of the parts' output."""
    names: Annotated[tuple[str, ...], Axes("set"), DISTINCT]
    """Names of the sets."""
    targets: Annotated[tuple[str, ...], Axes("target"), DISTINCT]
    """Names of the targets."""
    clean: Annotated[Float[np.ndarray, " target"], SHARE, MAY_BE_MISSING]
    """Accuracy of the unablated model on the same sequences."""
    drop: Annotated[Interval, Axes("set target"), DIFFERENCE, MAY_BE_MISSING]
    """Per set and target: drop in accuracy, as a fraction, with its 95 % interval (exact for losses and for gains,
    `drop_interval`); negative where accuracy rises."""
    loss_rise: Annotated[Interval, Axes("set target"), MAY_BE_INFINITE]
    """Per set and target: rise in cross entropy, in nats, with its 95 % interval (bootstrap over distinct inputs)."""
    random_drop: Annotated[Float[np.ndarray, "set draw target"], DIFFERENCE, MAY_BE_MISSING] | None
    """Drops of random sets of the same size."""
    n: Annotated[int, COUNT]
    """Sequences behind each figure."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_lost_accuracy("drop", self.drop.value, self.clean)
        if self.random_drop is not None:
            check_lost_accuracy("random_drop", self.random_drop, self.clean)

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per set and target."""
        axes = {"set": self.names, "target": self.targets}
        columns = self.drop.columns("drop") | self.loss_rise.columns("loss_rise", "loss_low", "loss_high")
        columns["clean"] = np.broadcast_to(self.clean, self.drop.shape)
        if self.random_drop is not None:
            columns |= {"random_mean": self.random_drop.mean(1), "random_largest": self.random_drop.max(1)}
        return self._table(axes, **columns, n=self.n)

    def plot(self) -> "alt.TopLevelMixin":
        """A point per set and target."""
        from interp.view.charts import dots

        return dots(self.to_dataframe(), x="target", y="drop", series="set", title=self._title, rule=0.0)

    def __str__(self) -> str:
        rows = [[f"ablated {self._parts}", *self.targets], ["none", *(f"{value:.3f}" for value in self.clean)]]
        # One line per set, of many those with the largest drops.
        sets = range(len(self.names))
        if len(sets) > MOST_LINES:
            sets = sorted(np.argsort(-self.drop.value.mean(1), kind="stable")[:MOST_LINES])
        for index in sets:
            accuracies = self.drop[index].subtracted_from(self.clean)
            rows.append([self.names[index], *(accuracy.text() for accuracy in accuracies)])
            if self.random_drop is not None:
                random = self.clean - self.random_drop[index].mean(0)
                rows.append(["  random, same size", *(f"{value:.3f}" for value in random)])
        sequences = f"{self.n} sequences{repeats_text(self.n, self.drop.n)}, 95 % intervals"
        if self.drop.exact:
            sequences = all_inputs_text(self.n)
        return "\n".join([*table_lines(rows), f"accuracy with {self._parts} set to {self.method}; {sequences}"])

    @property
    def _parts(self) -> str:
        """What the sets consist of, in a word."""
        return "parts"

    @property
    def _title(self) -> str:
        return f"accuracy lost, {self._parts} set to {self.method}, n = {self.n}"


@dataclass(frozen=True, kw_only=True)
class AblationResult(_SetLosses):
    """What every set of attention heads is worth."""

    heads: Annotated[tuple[tuple[tuple[int, int], ...], ...], Axes("set ..."), COUNT]
    """The (layer, head) of each set."""
    shape: Annotated[tuple[int, int], POSITIVE_COUNT]
    """Number of layers and of heads per layer of the model."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, members in zip(self.names, self.heads, strict=True):
            check_heads_of_shape(f"heads of {shown(name)}", members, self.shape)

    def plot(self) -> "alt.TopLevelMixin":
        """Layer x head maps of the drop for each target, or a point per set if sets were named."""
        from interp.view.charts import head_maps

        n_layers, n_heads = self.shape
        single_heads = all(len(members) == 1 for members in self.heads)
        if not single_heads or len(self.heads) < n_layers * n_heads:
            return super().plot()
        panels = {name: self.drop.value[:, index].reshape(self.shape) for index, name in enumerate(self.targets)}
        accuracy = "exact" if self.drop.exact else f"95 % within ±{self.drop.half_width:.3f}"
        return head_maps(panels, title=f"{self._title} ({accuracy})", value="drop")

    @property
    def _parts(self) -> str:
        return "heads"


@dataclass(frozen=True, kw_only=True)
class PartAblationResult(_SetLosses):
    """What every set of heads, MLPs, neurons and the embedding is worth."""

    parts: Annotated[tuple[tuple[str, ...], ...], Axes("set ...")]
    """Names of the parts of each set: heads (`0.1`), MLPs (`0 MLP`), neurons (`0 MLP 5`) and the `embedding`."""


NEEDS = Needs("ablate_heads", edits=HEAD_OUTPUTS, reads=["attn.W_O"], answers=True)
NEEDS_FOR_PATTERNS = Needs("ablate_heads with another pattern", edits=HEAD_OUTPUTS, reads=HEAD_INPUTS, answers=True)
NEEDS_OF_PARTS = Needs(
    "ablate",
    edits=[*HEAD_OUTPUTS, "hook_mlp_out"],
    reads=["attn.W_O"],
    answers=True,
    lacks=without_mlps("this model has no MLPs; use ablate_heads."),
)


@checks_types
@restores_state
def ablate_heads(
    model: AnyModel,
    task: Task,
    *,
    heads: Literal["each", "pairs"] | Mapping[str, Sequence[Head]] = "each",
    method: str | HeadIntervention = "zero",
    n: int | EveryInput = 1000,
    n_random: int = 0,
    seed: int = 0,
    n_jobs: int = 1,
) -> AblationResult:
    """Ablate attention heads, and measure the drop in accuracy and the rise in loss of every target.

    Args:
        model: Model to intervene on. It is not changed.
        task: Source of the sequences and their labels.
        heads: `each` head separately, all `pairs`, or named sets of (layer, head).
        method: Replacement of a head's output, b_h A_h x included. `zero`; its `mean` over other sequences, position
            by position; the output on another sequence, `resample`; or the same values under another pattern:
            `uniform`, `random_rows` (drawn from the flat simplex), or the ideal map of a registered kind, such as
            `association`; or an `interp.Intervention` of your own.
        n: Number of held-out sequences; distinct ones are the independent units of every interval. "all": every input
            of the test split once, without sampling error. Means are then over these inputs, and `resample` and
            `random_rows` are averaged over a fixed family of pairings of inputs (`interp.core.inputs`).
        n_random: Number of random sets of the same size to ablate for each set, drawn from the heads in no set.
        seed: Determines sequences, references and random sets.
        n_jobs: Number of processes, each with one torch thread, that share the sequences. The numbers are the same.
            Processes that are started for it take some seconds of imports.

    Raises:
        ValueError: a method or kind that does not exist, a head or layer that does not exist, an empty set, or too few
            sequences.

    Example:
        >>> import interp
        >>> from interp.known_answers import lego_loop
        >>> task = interp.tasks.Lego(n_vars=2)
        >>> lost = interp.ablate_heads(lego_loop(task), task, heads={"last layer": [(2, 0), (2, 1)]}, n=32)
        >>> lost.clean.tolist(), (lost.drop > 0.2).tolist()  # the accuracy of each variable, and whether it drops
        ([1.0, 1.0], [[False, True]])
    """
    model = prepare_model(model, NEEDS_FOR_PATTERNS if needs_patterns(method) else NEEDS, task)
    check_method(method, task)
    check_number("n_random", n_random, integer=True, low=0)
    check_jobs(n_jobs, model)
    # The sets, and what replaces their heads.
    sets = _sets(model, heads)
    random_sets = _random_sets(model, sets, n_random, seed)
    sample = Sample.of(task, n, seed=seed, name="ablate")
    intervention = intervention_of(method, task, sample.batch)
    # Right answers and loss of every sequence, and what is lost of them by the ablation of each set.
    model.eval()
    experiment = Experiment(model, sample, options={"patterns": intervention.reads_patterns})
    edits = [Edit(tuple(members), intervention) for members in (*sets.values(), *random_sets)]
    effects = experiment.run(edits, name="ablating heads", n_jobs=n_jobs)
    return AblationResult(
        method=intervention.name,
        names=tuple(sets),
        heads=tuple(tuple((int(layer), int(head)) for layer, head in members) for members in sets.values()),
        shape=(model.cfg.n_layers, model.cfg.n_heads),
        **losses_of_sets(effects, sample, n_sets=len(sets), n_random=n_random, seed=seed),
    )


@checks_types
@restores_state
def ablate(
    model: AnyModel,
    task: Task,
    *,
    parts: Literal["mlps", "heads", "each"] | Mapping[str, Sequence[str]] = "mlps",
    method: str | Intervention = "mean",
    n: int | EveryInput = 1000,
    seed: int = 0,
    n_jobs: int = 1,
) -> PartAblationResult:
    """Ablate MLPs and other parts, and measure the drop in accuracy and the rise in loss of every target.

    Args:
        model: Model to intervene on. It is not changed.
        task: Source of the sequences and their labels.
        parts: Each of the `mlps` separately, each of the `heads`, `each` of both; or named sets of parts: heads
            (`0.1`), MLPs (`0 MLP`), neurons after the nonlinearity (`0 MLP 5`), and the `embedding`.
        method: What takes the place of what a part writes: its `mean` over other sequences, position by position;
            `zero`; what it writes on another sequence, `resample`; or an `interp.Intervention` of your own.
        n: Number of held-out sequences; distinct ones are the independent units of every interval. "all": every input
            of the test split once, without sampling error.
        seed: Determines sequences and references.
        n_jobs: Number of processes, each with one torch thread, that share the sequences.

    Raises:
        ValueError: a part that the model does not have, an empty set, a method that only heads have, or too few
            sequences.

    Example:
        >>> import interp
        >>> from interp.known_answers import lego_loop
        >>> task = interp.tasks.Lego(n_vars=2)
        >>> lost = interp.ablate(lego_loop(task), task, n=64)
        >>> lost.names, (lost.drop > 0.2).any(1).tolist()
        (('0 MLP', '1 MLP', '2 MLP'), [True, True, True])
    """
    names = parts if isinstance(parts, str) else list(chain(*parts.values()))
    net = prepare_model(model, NEEDS_OF_PARTS if has_mlps(names) else replace(NEEDS, verb="ablate"), task)
    intervention = intervention_of_parts(method, task)
    check_jobs(n_jobs, net)
    sets = _sets_of_parts(net, parts)
    members = [tuple(engine_part(name, net) for name in names) for names in sets.values()]
    sample = Sample.of(task, n, seed=seed, name="ablate")
    net.eval()
    experiment = experiment_on_parts(net, sample, list(chain(*members)))
    effects = experiment.run([Edit(of_set, intervention) for of_set in members], name="ablating parts", n_jobs=n_jobs)
    return PartAblationResult(
        method=intervention.name,
        names=tuple(sets),
        parts=tuple(map(tuple, sets.values())),
        **losses_of_sets(effects, sample, n_sets=len(sets), n_random=0, seed=seed),
    )


def _sets_of_parts(net: Net, parts: str | Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """The sets of parts to ablate, by name."""
    if isinstance(parts, str) and parts in KINDS_OF_PARTS:
        return {name: [name] for name in names_of_parts(net, parts)}
    if isinstance(parts, str) or not parts:
        raise ValueError(
            f"parts is {reprlib.repr(parts)}; give 'mlps', 'heads', 'each', or named sets: "
            "{'first': ['0.1', '0 MLP']}."
        )
    for name, members in parts.items():
        if not name.strip() or name == "none" or len(name.splitlines()) > 1:
            raise ValueError(f"parts has a set of the name {shown(name)}; give it a name of one line, other than none.")
        if not members:
            raise ValueError(f"parts[{shown(name)}] is {shown(members)}; give names of one part or more.")
        DISTINCT.check(list(members), f"parts[{shown(name)}]")
    return {name: list(members) for name, members in parts.items()}


def losses_of_sets(effects: Effects, sample: Sample, *, n_sets: int, n_random: int, seed: int) -> dict[str, Any]:
    """The fields of a result but for names and method, from the effects of sets and of random sets after them."""
    # Shares of the scored answers; an outcome without any has no accuracy.
    lost, weight = effects.lost, effects.total
    drop = lost[:, :, 0]
    total = np.where(weight.sum(0) > 0, weight.sum(0), np.nan)
    clean = effects.clean[:, 0].sum(0) / total
    random_drop = (drop[:, n_sets:].sum(0) / total).reshape(-1, n_random or 1, len(sample.task.outcomes))
    drop_of_sets = sample.estimate(drop[:, :n_sets], weight[:, None], partial(_dropped, clean=clean))
    loss_rise = sample.estimate(-lost[:, :n_sets, 1], weight[:, None], partial(_resampled, seed=seed))
    return {
        "targets": sample.task.outcomes,
        "clean": clean,
        "drop": drop_of_sets,
        "loss_rise": loss_rise,
        "random_drop": random_drop if n_random else None,
        "n": len(sample),
    }


def _dropped(
    values: Float[np.ndarray, "input *cells"],
    weight: Float[np.ndarray, "input *leading_cells"],
    *,
    clean: Float[np.ndarray, " outcome"],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean drop of accuracy, and ends between which what is left is a share.

    No resample would say what a few further losses cost where none was seen.
    """
    mean, low, high = drop_interval(values, weight)
    return mean, np.maximum(low, clean - 1), np.minimum(high, clean)


def _resampled(
    values: Float[np.ndarray, "input *cells"], weight: Float[np.ndarray, "input *leading_cells"], *, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean with the interval of a bootstrap over inputs."""
    return bootstrap_mean(values, seed=seed, weight=weight)


def _sets(model: Net, heads: str | Mapping[str, Sequence[Head]]) -> dict[str, list[Head]]:
    """The sets of heads to ablate, by name."""
    model_heads = every_head(model)
    if heads == "each":
        return {f"{layer}.{head}": [(layer, head)] for layer, head in model_heads}
    if heads == "pairs":
        pairs = combinations(model_heads, 2)
        return {f"{first[0]}.{first[1]} {second[0]}.{second[1]}": [first, second] for first, second in pairs}
    if not isinstance(heads, Mapping) or not heads:
        raise ValueError(
            f"heads is {reprlib.repr(heads)}; give 'each', 'pairs', or named sets: {{'first': [(0, 0), (0, 1)]}}."
        )
    return {name: check_heads(f"heads[{reprlib.repr(name)}]", members, model) for name, members in heads.items()}


def _random_sets(model: Net, sets: dict[str, list[Head]], n_random: int, seed: int) -> list[list[Head]]:
    """For each set, random sets of its size from the heads in no set; if these are too few, from those not in it."""
    model_heads = every_head(model)
    members_of_any = {head for members in sets.values() for head in members}
    random_sets = []
    for name, members in sets.items():
        # The strictest pool that has enough heads.
        pool = [head for head in model_heads if head not in members_of_any]
        if len(pool) < len(members):
            pool = [head for head in model_heads if head not in members]
        if len(pool) < len(members):
            pool = model_heads
        generator = derived_generator(seed, "random sets", name)
        for _ in range(n_random):
            order = torch.randperm(len(pool), generator=generator)[: len(members)]
            random_sets.append([pool[index] for index in order.tolist()])
    return random_sets
