"""What algorithms predict for pairs of inputs whose variables are interchanged, and how often a model agrees."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.algorithms.algorithm import Algorithm, Computation, Variable, scored_targets
from interp.core.interchange import Place
from interp.core.intervals import Interval
from interp.core.randomness import derived_generator
from interp.core.statistics import pooled_interval
from interp.tasks.base import Batch, Task
from interp.tasks.splits import sample_split

POOL = 8
"""Pairs are chosen among this many times their number."""
INFORMATIVE_PAIRS = 144
"""Pairs of the pool in which each variable changes an answer; a variable that changes fewer enlarges the pool."""
LARGEST_POOL = 2**18
POOL_CHUNK = 4096
"""Pairs of the pool about which predictions are made at once."""


@dataclass(frozen=True)
class Pairs:
    """Pairs of inputs. The first half of them selects sites, the second half scores them."""

    base: Batch
    source: Batch

    def __len__(self) -> int:
        return len(self.base)

    def select(self, rows: slice | Int[Tensor, " row"]) -> "Pairs":
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


Computations = Mapping[str, tuple[Computation, Computation]]
"""What each algorithm, by name, computes on the base and on the source inputs."""


def computations_on(pairs: Pairs, algorithms: Sequence[Algorithm]) -> Computations:
    """What algorithms compute on the base and on the source inputs."""
    return {algorithm.name: (algorithm.run(pairs.base), algorithm.run(pairs.source)) for algorithm in algorithms}


@dataclass(frozen=True)
class Prediction:
    """What an algorithm predicts for each pair if one variable is set to its value in the source.

    The axis `at` is the positions of a variable with a value at each position, and has size 1 for others.
    """

    algorithm: Algorithm
    variable: Variable
    answers: Int[Tensor, "at pair target"]
    changed: Bool[Tensor, "at pair target"]
    """Answers that the interchange changes, by the algorithm."""
    unchanged: Bool[Tensor, "at pair target"]
    """Other answers, in pairs with an answer that changes."""

    @property
    def name(self) -> tuple[str, str]:
        """Names of the algorithm and of the variable."""
        return self.algorithm.name, self.variable.name

    def uninformative(self) -> float:
        """Share of pairs without an answer that changes."""
        return 1 - float(self.changed.any((0, 2)).double().mean())


def predict(
    algorithm: Algorithm, variable: Variable, task: Task, pairs: Pairs, computations: tuple[Computation, Computation]
) -> Prediction:
    """Answers of an algorithm to the base inputs, with one variable set to its value in the source.

    Args:
        algorithm: The algorithm.
        variable: One of its variables.
        task: Task of the pairs.
        pairs: Base and source inputs.
        computations: What the algorithm computes on them.
    """
    base, source = computations
    before, new = base.values[variable.name], source.values[variable.name]
    # Answers with the source's value, and the pairs in which the value differs.
    if variable.per_position:
        answers, differs = _by_position(algorithm, variable, pairs, new, base)
    else:
        answers = algorithm.run(pairs.base, {variable.name: new}, base=base).answers[None]
        differs = (new != before)[None]
    # Answers that count: scored targets of both inputs about which the algorithm predicts something.
    present = pairs.base.present & pairs.source.present & scored_targets(task, pairs.base)
    predicted = present & (base.answers >= 0) & (answers >= 0) & differs[..., None]
    changed = predicted & (answers != base.answers)
    unchanged = predicted & ~changed & changed.any(-1, keepdim=True)
    return Prediction(algorithm, variable, answers, changed, unchanged)


def _by_position(
    algorithm: Algorithm, variable: Variable, pairs: Pairs, new: Int[Tensor, "pair pos"], base: Computation
) -> tuple[Int[Tensor, "pos pair target"], Bool[Tensor, "pos pair"]]:
    """Answers with the variable set at each position alone, and pairs in which its value there differs."""
    n, pos = pairs.base.tokens.shape
    real = torch.ones(n, pos, dtype=torch.bool)
    for mask in (pairs.base.attention_mask, pairs.source.attention_mask):
        if mask is not None:
            real &= mask
    differs = new != base.values[variable.name]
    answers = torch.full((pos, *base.answers.shape), -1)
    for position in differs.any(0).nonzero()[:, 0].tolist():
        answers[position] = algorithm.run(pairs.base, {variable.name: new}, position=position, base=base).answers
    return answers, (differs & real).T


def answered_right(
    prediction: Prediction,
    computations: tuple[Computation, Computation],
    answers: tuple[Int[Tensor, "pair target"], Int[Tensor, "pair target"]],
) -> Prediction:
    """The prediction without the answers that the model gives wrongly when nothing is interchanged.

    What a model does not answer as the algorithm does cannot be explained by it. The source's answer counts only if the
    variable has to be computed: an input is right whatever the model makes of it.

    Args:
        prediction: The prediction.
        computations: What the algorithm computes on base and source inputs.
        answers: The model's answers to base and source inputs.
    """
    base_answers, source_answers = answers
    base, source = computations
    base_right = base_answers == base.answers
    source_right = source_answers == source.answers
    right = base_right if prediction.variable.is_input else base_right & source_right
    changed = prediction.changed & right
    unchanged = prediction.unchanged & base_right & changed.any(-1, keepdim=True)
    return replace(prediction, changed=changed, unchanged=unchanged)


def answers_of_outputs(
    pairs: Pairs, computations: tuple[Computation, Computation], place: Place
) -> Int[Tensor, "pair target"]:
    """Answers after an interchange of the model's outputs at a place.

    After the last layer the stream at a position is nothing but the answer there, in every model.
    """
    base, source = computations
    return torch.where(predicted_at(pairs, place), source.answers, base.answers)


def predicted_at(pairs: Pairs, place: Place) -> Bool[Tensor, "pair target"]:
    """Whether a target is predicted at one of the positions of a place."""
    return (pairs.base.target_positions[:, :, None] == place.base[:, None, :]).any(-1)


def choose_pairs(task: Task, algorithms: Sequence[Algorithm], n: int, seed: int) -> Pairs:
    """Pairs for which the algorithms predict changes, and different ones where they can; rare cases count more.

    Pairs are drawn from a pool without replacement, with a probability proportional to the sum, over the predictions
    that change an answer of the pair, of 1 / (number of pairs in which the prediction changes one). If a variable
    seldom changes an answer, the pool is enlarged.
    """
    # A pool of pairs, larger if some variable changes an answer in few of them.
    pool, generator = _pool(task, POOL * n, seed)
    changes, differences = _informative(task, algorithms, pool)
    counts = changes.sum(0)
    fewest = int(counts[counts > 0].min()) if counts.any() else INFORMATIVE_PAIRS
    size = min(LARGEST_POOL, len(pool) * -(-INFORMATIVE_PAIRS // fewest))
    if size > len(pool):
        pool, generator = _pool(task, size, seed)
        changes, differences = _informative(task, algorithms, pool)
    # Draw from it; a prediction that is informative in few pairs gives each of these a larger weight.
    informative = torch.cat([changes, differences], 1)
    weight = (informative.double() / informative.sum(0).clamp_min(1)).sum(1) + 1e-9
    return pool.select(torch.multinomial(weight, n, generator=generator))


def _pool(task: Task, size: int, seed: int) -> tuple[Pairs, torch.Generator]:
    """Sampled pairs, and the generator in its state after them."""
    generator = derived_generator(seed, "implements")
    base = sample_split(task, size, generator=generator, split="test")
    return Pairs(base, task.counterparts(base, generator=generator, split="test")), generator


def _informative(
    task: Task, algorithms: Sequence[Algorithm], pool: Pairs
) -> tuple[Bool[Tensor, "pair variable"], Bool[Tensor, "pair difference"]]:
    """Whether each variable changes an answer, and whether two algorithms differ in something about a pair."""
    changes, differences = [], []
    for start in range(0, len(pool), POOL_CHUNK):
        chunk = pool.select(slice(start, start + POOL_CHUNK))
        chunk_changes, chunk_differences = _informative_chunk(task, algorithms, chunk)
        changes.append(chunk_changes)
        differences.append(chunk_differences)
    return torch.cat(changes), torch.cat(differences)


def _informative_chunk(
    task: Task, algorithms: Sequence[Algorithm], pairs: Pairs
) -> tuple[Bool[Tensor, "pair variable"], Bool[Tensor, "pair difference"]]:
    computations = computations_on(pairs, algorithms)
    answers = {name: base.answers for name, (base, _) in computations.items()}
    changes, differences = [], []
    for algorithm in algorithms:
        for variable in algorithm.variables:
            prediction = predict(algorithm, variable, task, pairs, computations[algorithm.name])
            changes.append(prediction.changed)
            # By an algorithm that does not have the variable its interchange changes nothing.
            for rival in algorithms:
                has_variable = variable.name in {shared.name for shared in rival.variables}
                if rival is not algorithm and not has_variable:
                    differences.append(prediction.changed & (prediction.answers != answers[rival.name]))
    # Rivals may also answer the base inputs differently.
    scored = scored_targets(task, pairs.base)
    first, *rivals = (answers[algorithm.name] for algorithm in algorithms)
    for rival_answers in rivals:
        differences.append(((rival_answers != first) & scored)[None])
    return _any_answer(changes, len(pairs)), _any_answer(differences, len(pairs))


def _any_answer(answers: Sequence[Bool[Tensor, "_ pair target"]], n: int) -> Bool[Tensor, "pair column"]:
    """For each of several tensors, the pairs in which it has any answer."""
    columns = [column.any(0).any(-1) for column in answers]
    return torch.stack(columns, 1) if columns else torch.zeros(n, 0, dtype=torch.bool)


def share_of(right: Bool[Tensor, "at pair target"], counted: Bool[Tensor, "at pair target"]) -> Interval:
    """Share of the counted answers that are right, with its 95 % interval over pairs; NaN without any."""
    hits = (right & counted).sum((0, 2)).double().numpy()[:, None]
    total = counted.sum((0, 2)).double().numpy()[:, None]
    value, low, high = (ends[0] for ends in pooled_interval(hits, total))
    return Interval(value=value, low=low, high=high, n=int((total > 0).sum()))


def agreement(
    answers: Int[Tensor, "at pair target"],
    prediction: Prediction,
    rows: slice,
    counted: Bool[Tensor, "at pair target"],
) -> Interval:
    """Share of the counted answers that are as predicted, over some of the pairs."""
    return share_of((answers == prediction.answers)[:, rows], counted[:, rows])


def mean_agreement(answers: Int[Tensor, "at pair target"], prediction: Prediction, rows: slice) -> tuple[float, float]:
    """Share of changed and of unchanged answers that are as predicted, without intervals; NaN for none."""
    same = (answers == prediction.answers)[:, rows]
    changed, unchanged = prediction.changed[:, rows], prediction.unchanged[:, rows]
    return float((same & changed).sum() / changed.sum()), float((same & unchanged).sum() / unchanged.sum())
