"""Ablation of attention heads, pairs of heads and named sets, with random sets of the same size as a control."""

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from hooks.checks import check_number, checks_types
from hooks.interventions.ablation_engine import AblationEngine, Head, Net, every_head
from hooks.interventions.replacements import Replacement
from interp.core.activations import chunks
from interp.core.evaluation_mode import in_evaluation_mode
from interp.core.inputs import distinct_inputs, repeats_text, sum_by_input
from interp.core.progress import Count
from interp.core.randomness import derived_generator
from interp.core.results import Result, with_interval
from interp.core.statistics import bootstrap_mean
from interp.core.verbs import AnyModel, prepare_model
from interp.heads.methods import check_heads, check_method, replacements
from interp.tasks.base import Score, Task

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

TOKENS_PER_CHUNK = 1536
MOST_LINES = 48
"""Largest number of sets that is printed; of more, those with the largest drops."""


@dataclass(frozen=True, kw_only=True)
class AblationResult(Result):
    """Drop in accuracy and rise in loss for every set of heads and every target."""

    method: str
    """The replacement of the heads' output."""
    names: tuple[str, ...]
    """Names of the sets."""
    heads: tuple[tuple[tuple[int, int], ...], ...]
    """The (layer, head) of each set."""
    targets: tuple[str, ...]
    """Names of the targets."""
    clean: Float[np.ndarray, " target"]
    """Accuracy of the unablated model on the same sequences."""
    drop: Float[np.ndarray, "set target"]
    """Drop in accuracy, as a fraction; negative where accuracy rises."""
    low: Float[np.ndarray, "set target"]
    high: Float[np.ndarray, "set target"]
    """Ends of the 95 % interval (paired bootstrap over sequences)."""
    loss_rise: Float[np.ndarray, "set target"]
    """Rise in cross entropy, in nats."""
    loss_low: Float[np.ndarray, "set target"]
    loss_high: Float[np.ndarray, "set target"]
    random_drop: Float[np.ndarray, "set draw target"] | None
    """Drops of random sets of the same size."""
    shape: tuple[int, int]
    """Number of layers and of heads per layer of the model."""
    n: int
    """Sequences behind each figure."""
    n_distinct: int
    """Distinct inputs among them, the independent units of every interval; fewer in a finite task."""

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per set and target."""
        axes = {"set": self.names, "target": self.targets}
        more = {"clean": np.broadcast_to(self.clean, self.drop.shape)}
        if self.random_drop is not None:
            more |= {"random_mean": self.random_drop.mean(1), "random_largest": self.random_drop.max(1)}
        return self._table(axes, "drop", "low", "high", "loss_rise", "loss_low", "loss_high", **more, n=self.n)

    def plot(self) -> "alt.TopLevelMixin":
        """Layer x head maps of the drop for each target, or a point per set if sets were named."""
        from interp.view.charts import dots, head_maps

        title = f"accuracy lost, heads set to {self.method}, n = {self.n}"
        if all(len(chosen) == 1 for chosen in self.heads) and len(self.heads) == self.shape[0] * self.shape[1]:
            panels = {name: self.drop[:, index].reshape(self.shape) for index, name in enumerate(self.targets)}
            width = float((self.high - self.low).max() / 2)
            return head_maps(panels, title=f"{title} (95 % within ±{width:.3f})", value="drop")
        return dots(self.to_dataframe(), x="target", y="drop", series="set", title=title, rule=0.0)

    def __str__(self) -> str:
        wide = max(20, *(len(name) for name in self.names))
        lines = [f"{'ablated heads':<{wide}}" + "".join(f"{name:>21}" for name in self.targets)]
        lines.append(f"{'none':<{wide}}" + "".join(f"{value:>21.3f}" for value in self.clean))
        worst_first = np.argsort(-self.drop.mean(1), kind="stable")
        shown = range(len(self.names)) if len(self.names) <= MOST_LINES else sorted(worst_first[:MOST_LINES])
        for index in shown:
            cells = map(with_interval, *(self.clean - part[index] for part in (self.drop, self.high, self.low)))
            lines.append(f"{self.names[index]:<{wide}}" + "".join(f"{cell:>21}" for cell in cells))
            if self.random_drop is not None:
                random = self.clean - self.random_drop[index].mean(0)
                lines.append(f"{'  random, same size':<{wide}}" + "".join(f"{value:>21.3f}" for value in random))
        repeats = repeats_text(self.n, self.n_distinct)
        return "\n".join(
            [*lines, f"accuracy with heads set to {self.method}; {self.n} sequences{repeats}, 95 % intervals"]
        )


@checks_types
@in_evaluation_mode
def ablate_heads(
    model: AnyModel,
    task: Task,
    *,
    heads: Literal["each", "pairs"] | Mapping[str, Sequence[Head]] = "each",
    method: str = "zero",
    n: int = 1000,
    n_random: int = 0,
    seed: int = 0,
) -> AblationResult:
    """Ablate attention heads, and measure the drop in accuracy and the rise in loss of every target.

    Args:
        model: Model to intervene on. It is not changed.
        task: Source of the sequences and their labels.
        heads: `each` head separately, all `pairs`, or named sets of (layer, head).
        method: Replacement of a head's output, b_h A_h x included. `zero`; its `mean` over other sequences, position
            by position; the output on another sequence, `resample`; or the same values under another pattern:
            `uniform`, `random_rows` (drawn from the flat simplex), or the ideal map of a registered kind, such as
            `association`.
        n: Number of held-out sequences; distinct ones are the independent units of every interval.
        n_random: Number of random sets of the same size to ablate for each set, drawn from the heads in no set.
        seed: Determines sequences, references and random sets.

    Raises:
        ValueError: a method or kind that does not exist, a head or layer that does not exist, an empty set, or too few
            sequences.
    """
    model = prepare_model(model, "ablate_heads", task)
    check_method(method)
    if n < 8:
        raise ValueError(f"n is {n}; at least 8 sequences are needed for an interval.")
    check_number("n_random", n_random, whole=True, low=0)
    sets = _sets(model, heads)
    random_sets = _random_sets(model, sets, n_random, seed)
    batch = task.sample(n, generator=derived_generator(seed, "ablate"), split="test")
    replacement = replacements(method, model, task, batch, seed=seed)
    names = list(sets)
    clean, lost, scored = [], [], []
    model.eval()
    size = max(1, TOKENS_PER_CHUNK // batch.tokens.shape[1])
    with Count("ablating heads", -(-len(batch) // size)) as count:
        for index, part in enumerate(chunks(batch, size)):
            engine = AblationEngine(model, part.tokens, read_at=part.target_positions, **part.model_inputs())
            replace = replacement(slice(index * size, (index + 1) * size))
            score = task.score(engine.logits, part)
            before = _measures(score)
            clean.append(before)
            scored.append(score.total.double())
            after = _run(engine, replace, heads, [*sets.values(), *random_sets])
            lost.append(torch.stack([before - _measures(task.score(logits, part)) for logits in after], 1))
            count.one()
    drop = torch.cat(lost).numpy()  # (sequence, set, accuracy or loss, outcome)
    weight = torch.cat(scored).numpy()
    total = np.where(weight.sum(0) > 0, weight.sum(0), np.nan)  # an outcome without scored answers has no accuracy
    of_random = (drop[:, len(names) :].sum(0) / total)[:, 0].reshape(-1, n_random or 1, len(task.outcomes))
    inputs = distinct_inputs(batch)
    by_input = sum_by_input(drop[:, : len(names)], inputs)
    mean, low, high = bootstrap_mean(by_input, seed=seed, weight=sum_by_input(weight, inputs))
    return AblationResult(
        method=method,
        names=tuple(names),
        heads=tuple(tuple((int(layer), int(head)) for layer, head in chosen) for chosen in sets.values()),
        targets=task.outcomes,
        clean=torch.cat(clean)[:, 0].sum(0).numpy() / total,
        drop=mean[:, 0],
        low=low[:, 0],
        high=high[:, 0],
        loss_rise=mean[:, 1],
        loss_low=low[:, 1],
        loss_high=high[:, 1],
        random_drop=of_random if n_random else None,
        shape=(model.cfg.n_layers, model.cfg.n_heads),
        n=n,
        n_distinct=len(by_input),
    )


def _sets(model: Net, heads) -> dict[str, list[Head]]:
    every = every_head(model)
    if heads == "each":
        return {f"{layer}.{head}": [(layer, head)] for layer, head in every}
    if heads == "pairs":
        return {f"{a[0]}.{a[1]} {b[0]}.{b[1]}": [a, b] for a, b in combinations(every, 2)}
    if not isinstance(heads, Mapping) or not heads:
        raise ValueError(
            f"heads is {reprlib.repr(heads)}; give 'each', 'pairs', or named sets: {{'first': [(0, 0), (0, 1)]}}."
        )
    return {name: check_heads(f"heads[{reprlib.repr(name)}]", chosen, model) for name, chosen in heads.items()}


def _random_sets(model: Net, sets: dict[str, list[Head]], n_random: int, seed: int) -> list[list[Head]]:
    """For each set, random sets of its size from the heads in no set; if these are too few, from those not in it."""
    every = every_head(model)
    named = {head for chosen in sets.values() for head in chosen}
    drawn = []
    for name, chosen in sets.items():
        unnamed = [head for head in every if head not in named]
        others = [head for head in every if head not in chosen]
        pool = next((pool for pool in (unnamed, others) if len(pool) >= len(chosen)), every)
        generator = derived_generator(seed, "random sets", name)
        for _ in range(n_random):
            order = torch.randperm(len(pool), generator=generator)[: len(chosen)]
            drawn.append([pool[index] for index in order.tolist()])
    return drawn


def _run(engine: AblationEngine, replace: Replacement, heads, sets: list[list[Head]]) -> list[Tensor]:
    if heads == "each" and len(sets) == engine.model.cfg.n_layers * engine.model.cfg.n_heads:
        return [logits for _, logits in engine.each_head(replace)]
    return [engine.head_set(chosen, replace) for chosen in sets]


def _measures(score: Score) -> Float[Tensor, "batch measure outcome"]:
    """Right answers and minus the loss in nats, the two measures that an ablation lowers."""
    return torch.stack([score.right.double(), -score.loss.double()], 1)
