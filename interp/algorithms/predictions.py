"""What algorithms predict for pairs of inputs whose variables are interchanged, and how often a model agrees."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.algorithms.algorithm import Algorithm, Outcome, Variable, scored_targets
from interp.core.interchange import Place
from interp.core.randomness import derived_generator
from interp.core.statistics import pooled_interval
from interp.tasks.base import Batch, Task

POOL = 8
"""Pairs are chosen among this many times their number."""
ENOUGH = 144
"""Pairs of the pool in which each variable changes an answer; a variable that changes fewer enlarges the pool."""
LARGEST_POOL = 2**18
CHUNK = 4096
"""Pairs of the pool about which predictions are made at once."""


@dataclass(frozen=True)
class Pairs:
    """Pairs of inputs. The first half of them selects sites, the second half scores them."""

    base: Batch
    source: Batch

    def __len__(self) -> int:
        return len(self.base)

    def part(self, rows: slice) -> "Pairs":
        """Some of the pairs."""
        return Pairs(self.base.select(rows), self.source.select(rows))

    @property
    def scoring(self) -> slice:
        """The pairs that score."""
        return slice(len(self) // 2, None)

    @property
    def selecting(self) -> slice:
        """The pairs on which sites are selected."""
        return slice(0, len(self) // 2)


@dataclass(frozen=True)
class Prediction:
    """What an algorithm says about each pair if one variable is given its value in the source.

    The first axis is the positions of a variable with a value at each position, and has size 1 for others.
    """

    algorithm: Algorithm
    variable: Variable
    answers: Int[Tensor, "at pair target"]
    changed: Bool[Tensor, "at pair target"]
    """Answers that the interchange changes, by the algorithm."""
    kept: Bool[Tensor, "at pair target"]
    """Other answers, which it leaves as they are, in pairs with an answer that changes."""

    def uninformative(self) -> float:
        """Share of pairs without an answer that changes."""
        return 1 - float(self.changed.any((0, 2)).double().mean())


@dataclass(frozen=True)
class Share:
    """A share of answers with its 95 % interval over pairs."""

    value: float
    low: float
    high: float
    n: int
    """Pairs with such answers."""


def share_of(right: Bool[Tensor, "at pair target"], counted: Bool[Tensor, "at pair target"]) -> Share:
    """Share of the counted answers that are right; NaN without any."""
    hits, total = ((part & counted).sum((0, 2)).double().numpy()[:, None] for part in (right, counted))
    if not total.any():
        return Share(np.nan, np.nan, np.nan, 0)
    value, low, high = pooled_interval(hits, total)
    return Share(float(value[0]), float(low[0]), float(high[0]), int((total > 0).sum()))


def predict(
    algorithm: Algorithm,
    variable: Variable,
    task: Task,
    pairs: Pairs,
    *,
    base: Outcome,
    source: Outcome,
) -> Prediction:
    """Answers of an algorithm to the base inputs, with one variable set to its value in the source."""
    n, pos = pairs.base.tokens.shape
    new, own = source.values[variable.name], base.values[variable.name]
    both = pairs.base.present & pairs.source.present & scored_targets(task, pairs.base) & (base.answers >= 0)
    if variable.per_position:
        at = [index for index in range(pos) if bool((new[:, index] != own[:, index]).any())]
        real = torch.ones(n, pos, dtype=torch.bool)
        for one in (pairs.base.attention_mask, pairs.source.attention_mask):
            real &= real if one is None else one
        differs = ((new != own) & real)[:, at].T
        given = {variable.name: new}
        found = [algorithm.run(pairs.base, given, position=index, base=base).answers for index in at]
        answers = torch.full((pos, *base.answers.shape), -1)
        differ = torch.zeros(pos, n, dtype=torch.bool)
        if at:
            answers[at], differ[at] = torch.stack(found), differs
    else:
        answers, differ = algorithm.run(pairs.base, {variable.name: new}, base=base).answers[None], (new != own)[None]
    said = both & (answers >= 0) & differ[..., None]
    changed = said & (answers != base.answers)
    return Prediction(algorithm, variable, answers, changed, said & ~changed & changed.any(-1, keepdim=True))


def answered_right(
    one: Prediction,
    base: Outcome,
    source: Outcome,
    answers: tuple[Int[Tensor, "pair target"], Int[Tensor, "pair target"]],
) -> Prediction:
    """The prediction without the answers that the model gives wrongly when nothing is interchanged.

    What a model does not answer as the algorithm does cannot be explained by it. The source's answer counts only if the
    variable has to be computed: that of a given one is right whatever the model makes of it.
    """
    right = answers[0] == base.answers
    able = right if one.variable.given else right & (answers[1] == source.answers)
    changed = one.changed & able
    return Prediction(
        one.algorithm, one.variable, one.answers, changed, one.kept & right & changed.any(-1, keepdim=True)
    )


def output_only(
    one: Prediction, pairs: Pairs, base: Outcome, source: Outcome, place: Place
) -> Bool[Tensor, "at pair target"]:
    """Whether an interchange of the model's outputs at a place alone would give each answer that is predicted.

    After the last layer the stream at a position is nothing but the answer there, in every model.
    """
    swapped = torch.where(read_at(pairs, place), source.answers, base.answers)
    return one.answers == swapped


def read_at(pairs: Pairs, place: Place) -> Bool[Tensor, "pair target"]:
    """Whether a target is predicted at one of the positions of a place."""
    return (pairs.base.target_positions[:, :, None] == place.base[:, None, :]).any(-1)


def choose_pairs(task: Task, algorithms: Sequence[Algorithm], n: int, seed: int) -> Pairs:
    """Pairs about which the algorithms say something, and something different where they can; rare cases count more.

    Pairs are drawn from a pool without replacement, with a probability proportional to the sum, over the predictions
    that change an answer of the pair, of 1 / (number of pairs in which the prediction changes one). If a variable
    seldom changes an answer, the pool is enlarged.
    """
    informative, n_variables, pool, generator = _pool(task, algorithms, POOL * n, seed)
    counts = informative[:, :n_variables].sum(0)
    fewest = int(counts[counts > 0].min()) if counts.any() else ENOUGH
    size = min(LARGEST_POOL, len(pool) * -(-ENOUGH // fewest))
    if size > len(pool):
        informative, _, pool, generator = _pool(task, algorithms, size, seed)
    weight = (informative.double() / informative.sum(0).clamp_min(1)).sum(1) + 1e-9
    rows = torch.multinomial(weight, n, generator=generator)
    return Pairs(pool.base.select(rows), pool.source.select(rows))


def _pool(
    task: Task, algorithms: Sequence[Algorithm], size: int, seed: int
) -> tuple[Bool[Tensor, "pair prediction"], int, Pairs, torch.Generator]:
    """Pairs, and whether each prediction changes an answer; first come those of each variable, then their number."""
    generator = derived_generator(seed, "implements")
    base = task.sample(size, generator=generator, split="test")
    pool = Pairs(base, task.counterparts(base, generator=generator, split="test"))
    found = [_informative(task, algorithms, pool.part(slice(start, start + CHUNK))) for start in range(0, size, CHUNK)]
    variables, others = (torch.cat(parts) for parts in zip(*found, strict=True))
    return torch.cat([variables, others], 1), variables.shape[1], pool, generator


def _informative(
    task: Task, algorithms: Sequence[Algorithm], pairs: Pairs
) -> tuple[Bool[Tensor, "pair variable"], Bool[Tensor, "pair difference"]]:
    """Whether each variable changes an answer, and whether something that two algorithms say of a pair differs."""
    outcomes = {one.name: (one.run(pairs.base), one.run(pairs.source)) for one in algorithms}
    own = outcomes[algorithms[0].name][0].answers
    variables, others = [], []
    for one in algorithms:
        base, source = outcomes[one.name]
        for variable in one.variables:
            said = predict(one, variable, task, pairs, base=base, source=source)
            variables.append(said.changed)
            others += [said.changed & (said.answers != outcomes[other.name][0].answers) for other in algorithms
                       if other is not one and variable.name not in {v.name for v in other.variables}]  # fmt: skip
    scored = scored_targets(task, pairs.base)
    others += [((outcomes[other.name][0].answers != own) & scored)[None] for other in algorithms[1:]]
    return _per_pair(variables, len(pairs)), _per_pair(others, len(pairs))


def _per_pair(found: Sequence[Bool[Tensor, "_ pair target"]], n: int) -> Bool[Tensor, "pair prediction"]:
    return torch.stack([one.any(0).any(-1) for one in found], 1) if found else torch.zeros(n, 0, dtype=torch.bool)


def agreement(
    answers: Int[Tensor, "at pair target"], one: Prediction, rows: slice, counted: Bool[Tensor, "at pair target"]
) -> Share:
    """Share of the counted answers that are as predicted, over some of the pairs."""
    return share_of((answers == one.answers)[:, rows], counted[:, rows])


def mean_agreement(answers: Tensor, one: Prediction, rows: slice) -> tuple[float, float]:
    """Share of changed and of kept answers that are as predicted, without intervals; NaN for none."""
    same = (answers == one.answers)[:, rows]
    found: list[Float[Tensor, ""]] = [
        (same & counted[:, rows]).sum() / counted[:, rows].sum() for counted in (one.changed, one.kept)
    ]
    return float(found[0]), float(found[1])
