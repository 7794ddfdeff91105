"""What algorithms predict for pairs of inputs whose variables are interchanged, and how often a model agrees."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.algorithms.algorithm import Algorithm, Computation, Variable, scored_targets
from interp.core.interchange import Place, Rows
from interp.core.intervals import Interval
from interp.core.randomness import derived_generator
from interp.core.statistics import effective_trials, share_interval
from interp.tasks.base import Batch, Task
from interp.tasks.outputs import checked_batch
from interp.tasks.splits import sample_split

POOL = 8
"""Pairs are chosen among this many times their number."""
INFORMATIVE_PAIRS = 144
"""Pairs of the pool in which each variable changes an answer; a variable that changes fewer enlarges the pool."""
LARGEST_POOL = 2**18
PAIRS_OF_ALL = 2**17
"""Pairs of all inputs that are looked at: every pair of up to 362 inputs."""
MOST_PAIRS_OF_ALL = 2**14
"""Pairs of all inputs that are interchanged."""
FEWEST_PAIRS = 32
POOL_CHUNK = 4096
"""Pairs of the pool about which predictions are made at once."""


@dataclass(frozen=True)
class Pairs:
    """Pairs of inputs. The first half of them selects sites, the second half scores them; all pairs do both."""

    base_inputs: Batch
    source_inputs: Batch
    rows: Rows
    """The pairs, as rows of these inputs."""
    of_all_inputs: bool = False
    """Whether they are made of all inputs there are, in a fixed order."""
    every_pair: bool = False
    """Whether they are all pairs of all inputs in which a variable changes an answer, so that shares are exact."""

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def base(self) -> Batch:
        """The base input of each pair."""
        return self.base_inputs.select(self.rows.base)

    @cached_property
    def source(self) -> Batch:
        """The source input of each pair."""
        return self.source_inputs.select(self.rows.source)

    def select(self, pairs: slice | Int[Tensor, " some"]) -> "Pairs":
        """Some of the pairs."""
        return replace(self, rows=self.rows.select(pairs))

    @property
    def scoring(self) -> slice:
        """The pairs that score."""
        return slice(0 if self.every_pair else len(self) // 2, len(self))

    @property
    def selecting(self) -> slice:
        """The pairs on which sites are selected."""
        return slice(0, len(self) if self.every_pair else len(self) // 2)


def paired(base: Batch, source: Batch) -> Pairs:
    """Each base input with the source input of the same row."""
    rows = torch.arange(len(base))
    return Pairs(base, source, Rows(rows, rows))


Computations = Mapping[str, tuple[Computation, Computation]]
"""What each algorithm, by name, computes on the base and on the source inputs of the pairs."""


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
    if pairs.source.tokens.shape[1] != pos:
        raise ValueError(
            f"variable {variable.name!r} has a value at each position, and inputs have {pos} positions, their sources "
            f"{pairs.source.tokens.shape[1]}; let the task pad its batches to one length."
        )
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
    positions = place.base[pairs.rows.base]
    return (pairs.base.target_positions[:, :, None] == positions[:, None, :]).any(-1)


def choose_pairs(task: Task, algorithms: Sequence[Algorithm], n: int, seed: int) -> Pairs:
    """Pairs for which the algorithms predict changes, and different ones where they can; rare cases count more.

    Pairs are drawn from a pool without replacement, with a probability proportional to the sum, over the predictions
    that change an answer of the pair, of 1 / (number of pairs in which the prediction changes one in this direction).
    If a variable seldom changes an answer, the pool is enlarged.
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
    chosen = pool.select(_drawn(torch.cat([changes, differences], 1), n, generator))
    return paired(chosen.base, chosen.source)


def pairs_of_all(task: Task, algorithms: Sequence[Algorithm]) -> Pairs:
    """Pairs of all inputs of the test split in which some variable changes an answer; no seed has a part in them.

    They are all such pairs where these are few. Else each input is the base of as many pairs as fit, with sources at
    fixed distances in a fixed random order of the inputs, and if still too many have a change, some of them are drawn.

    Raises:
        ValueError: inputs that cannot be listed, or a task that pairs inputs by rules of its own.
    """
    if has_own_counterparts(task):
        raise ValueError(
            f"n is 'all', which pairs every input with every other; {type(task).__name__}.counterparts has rules of "
            "its own for pairs. Give a number of pairs."
        )
    generator = torch.Generator().manual_seed(0)
    inputs = sample_split(task, "all", generator=generator, split="test")
    n = len(inputs)
    if n < 2:
        raise ValueError(f"n is 'all', and the test split has {n} input; pairs need at least two.")
    # Each input with the next ones in a random order.
    order = torch.randperm(n, generator=generator)
    n_distances = min(n - 1, max(1, PAIRS_OF_ALL // n))
    distances = torch.linspace(1, n - 1, n_distances, dtype=torch.float32).round().long()
    base = order.repeat(n_distances)
    source = torch.cat([order.roll(-int(distance)) for distance in distances])
    pool = Pairs(inputs, inputs, Rows(base, source), of_all_inputs=True)
    # Those in which something changes.
    changes, differences = _informative(task, algorithms, pool)
    informative = torch.cat([changes, differences], 1)
    chosen = informative.any(1).nonzero()[:, 0]
    every_pair = n_distances == n - 1 and len(chosen) <= MOST_PAIRS_OF_ALL
    if len(chosen) > MOST_PAIRS_OF_ALL:
        chosen = chosen[_drawn(informative[chosen], MOST_PAIRS_OF_ALL, generator)]
    if not len(chosen):
        chosen = torch.arange(min(len(pool), FEWEST_PAIRS))
    return replace(pool.select(chosen), every_pair=every_pair)


def has_own_counterparts(task: Task) -> bool:
    """Whether a task pairs inputs by rules of its own, so that an input cannot be the source of any other."""
    return type(task).counterparts is not Task.counterparts


def _drawn(informative: Bool[Tensor, "pair column"], n: int, generator: torch.Generator) -> Int[Tensor, " n"]:
    """Pairs drawn without replacement; a prediction that is informative in few gives each of these a larger weight."""
    weight = (informative.double() / informative.sum(0).clamp_min(1)).sum(1) + 1e-9
    return torch.multinomial(weight, n, generator=generator)


def _pool(task: Task, size: int, seed: int) -> tuple[Pairs, torch.Generator]:
    """Sampled pairs, and the generator in its state after them."""
    generator = derived_generator(seed, "implements")
    base = sample_split(task, size, generator=generator, split="test")
    source = checked_batch(
        task, task.counterparts(base, generator=generator, split="test"), "counterparts", n=len(base)
    )
    return paired(base, source), generator


def _informative(
    task: Task, algorithms: Sequence[Algorithm], pool: Pairs
) -> tuple[Bool[Tensor, "pair change"], Bool[Tensor, "pair difference"]]:
    """Whether each variable changes an answer, in each direction, and whether two algorithms differ about a pair."""
    chunks = [pool.select(slice(start, start + POOL_CHUNK)) for start in range(0, len(pool), POOL_CHUNK)]
    possible = torch.cat([algorithms[0].run(chunk.base).answers.unique() for chunk in chunks]).unique()
    possible = possible[possible >= 0]
    directions = possible.tolist() if len(possible) == 2 else []
    changes, differences = [], []
    for chunk in chunks:
        chunk_changes, chunk_differences = _informative_chunk(task, algorithms, chunk, directions)
        changes.append(chunk_changes)
        differences.append(chunk_differences)
    return torch.cat(changes), torch.cat(differences)


def _informative_chunk(
    task: Task, algorithms: Sequence[Algorithm], pairs: Pairs, directions: Sequence[int]
) -> tuple[Bool[Tensor, "pair change"], Bool[Tensor, "pair difference"]]:
    computations = computations_on(pairs, algorithms)
    answers = {name: base.answers for name, (base, _) in computations.items()}
    changes, differences = [], []
    for algorithm in algorithms:
        for variable in algorithm.variables:
            prediction = predict(algorithm, variable, task, pairs, computations[algorithm.name])
            # Changes of a two-way answer to the one and to the other.
            if directions:
                changes += [prediction.changed & (prediction.answers == answer) for answer in directions]
            else:
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
        differences.append(((rival_answers != first) & (rival_answers >= 0) & scored)[None])
    return _any_answer(changes, len(pairs)), _any_answer(differences, len(pairs))


def _any_answer(answers: Sequence[Bool[Tensor, "_ pair target"]], n: int) -> Bool[Tensor, "pair column"]:
    """For each of several tensors, the pairs in which it has any answer."""
    columns = [column.any(0).any(-1) for column in answers]
    return torch.stack(columns, 1) if columns else torch.zeros(n, 0, dtype=torch.bool)


def share_of(
    right: Bool[Tensor, "at pair target"],
    counted: Bool[Tensor, "at pair target"],
    answers: Int[Tensor, "at pair target"],
    *,
    exact: bool = False,
) -> Interval:
    """Share of the counted answers that are right, in which no answer has more than half of the weight.

    Of two answers that occur both have the same weight, and a single one has all. A model that always says the same, or
    that says the same after any damage, is right in at most half of the cases if both occur.

    Args:
        right: Whether each answer is right.
        counted: Which answers count.
        answers: The answer that is right, at each.
        exact: Whether these are all answers that there are.

    Returns:
        The share with its 95 % interval over pairs; NaN without any. Its sample size is the number of pairs.
    """
    weights = _weights(counted, answers)
    hits = (right * weights).sum((0, 2)).numpy()[:, None]
    total = weights.sum((0, 2)).numpy()[:, None]
    n = int((total > 0).sum())
    if not n:
        return Interval(value=np.array(np.nan), low=np.array(np.nan), high=np.array(np.nan), n=0)
    share, effective = effective_trials(hits, total)
    if exact:
        return Interval(value=share[0], low=share[0], high=share[0], n=n, exact=True)
    # Answers of unequal weight are worth fewer of equal weight (Kish 1965).
    of_equal_weight = total.sum() ** 2 / (total**2).sum()
    low, high = share_interval(share, np.minimum(effective, of_equal_weight))
    return Interval(value=share[0], low=low[0], high=high[0], n=n)


def share_value(
    right: Bool[Tensor, "at pair target"], counted: Bool[Tensor, "at pair target"], answers: Int[Tensor, "..."]
) -> float:
    """The share alone, as `share_of`; NaN without any."""
    weights = _weights(counted, answers)
    return float((right * weights).sum() / weights.sum())


def _weights(
    counted: Bool[Tensor, "at pair target"], answers: Int[Tensor, "at pair target"]
) -> Float[Tensor, "at pair target"]:
    """Weights of the counted answers, of which none has more than half; their mean is 1."""
    weights = counted.double()
    possible, sizes = answers[counted].unique(return_counts=True)
    n = int(sizes.sum())
    if len(possible) < 2 or 2 * int(sizes.max()) <= n:
        return weights
    # The most frequent answer gets one half, all others together the other half.
    is_most_frequent = counted & (answers == possible[sizes.argmax()])
    weights[is_most_frequent] = n / 2 / int(sizes.max())
    weights[counted & ~is_most_frequent] = n / 2 / (n - int(sizes.max()))
    return weights
