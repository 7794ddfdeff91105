"""Comparison of heads with those of untrained models: an exact Monte Carlo test over models."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from math import ceil, floor
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from hooks.interventions.clean_pass import Net
from hooks.model.initialise import initialise
from interp.core.progress import counted
from interp.core.randomness import derived_seed
from interp.core.verbs import AnyModel, Needs, prepare_model, untrained_copy
from interp.core.weight_sums import same_weights, weight_sums
from interp.heads.kinds import PackedRelations
from interp.heads.measures import pattern_scores
from interp.heads.queries import Queries, scored_positions
from interp.tasks.base import Batch, Task

PARAMETERS = 10**9
"""Random weights that are drawn for untrained models by default: a model with 10 million parameters gets 99 of them."""
MOST_MODELS = 999
"""Largest number of untrained models by default, whatever the level: labels have no smaller level than 0.001."""
WRAPPED = 19
"""Largest number by default of untrained copies of a bridge or `HookedRootModule`, each of which takes a tenth of a
second or more to build."""
SEQUENCES = 8
"""Sequences on which models are compared: for each kind, the first that score it. An untrained model repeats its
pattern in all of them."""
MIN_SPREAD = 0.1
"""Smallest unit of the standardised scores, so that kinds on which untrained heads hardly differ do not decide."""
TIE = 1e-6
"""Differences up to this are rounding errors, and count against the label."""

Untrained = AnyModel | Sequence[AnyModel] | int | None


@dataclass(frozen=True, kw_only=True)
class UntrainedComparison:
    """Heads against untrained models. A column is a kind, the last one uniformity."""

    p: Float[np.ndarray, "layer head column"]
    """The larger of two: the smallest p value of any candidate of the model (`monte_carlo_p`), and (1 + untrained
    models with a head that scores as high in this column) / (1 + untrained models)."""
    highest: Float[np.ndarray, "model column"]
    """Highest score of any head of each untrained model."""
    level: float
    """Largest p that counts: alpha, or the smallest p that is possible with this number of models."""


def compare_with_untrained(
    scores: Float[np.ndarray, "layer head column"],
    candidates: Bool[np.ndarray, "layer head column"],
    least: Float[np.ndarray, " column"],
    *,
    highest: Iterator[Float[np.ndarray, " column"]],
    n_models: int,
    alpha: float,
) -> UntrainedComparison:
    """Compare candidates for a label with up to `n_models` untrained models, and stop once none can get it.

    First the model is tested, by its candidate with the smallest p value over all kinds. If that is too large, no head
    gets a label, so that the level is that of the model's test, whatever the number of kinds. Then each candidate is
    compared with the untrained models on its own kind.

    Args:
        scores: Scores of the model's heads on the sequences of the untrained models.
        candidates: Heads that pass all other conditions of a label.
        least: Lowest score that counts, for each column.
        highest: Highest score of any head, one untrained model after the other; read only as far as needed.
        n_models: Number of untrained models.
        alpha: Level of the test, if `n_models` suffice for it.

    Source: Besag & Clifford 1991 for the stopping.
    """
    # The level, and the largest number of higher models with which a head still gets a label.
    level = max(alpha, 1 / (1 + n_models))
    most_higher = floor(level * (1 + n_models) + 1e-9) - 1
    models: list[Float[np.ndarray, " column"]] = []
    # A model with a higher score on the same kind has a higher standardised score, whatever models follow.
    n_higher = np.zeros(scores.shape, dtype=int)
    for untrained in counted("comparing with untrained models", islice(highest, n_models), total=n_models):
        models.append(untrained)
        n_higher += (untrained >= least) & (untrained >= scores - TIE)
        if not (candidates & (n_higher <= most_higher)).any():
            break
    # Kinds are tested together, uniformity alone.
    compared = np.stack(models)
    p_of_kinds = monte_carlo_p(scores[..., :-1], compared[:, :-1], least[:-1])
    p_of_uniformity = monte_carlo_p(scores[..., -1:], compared[:, -1:], least[-1:])
    p = np.where(scores >= least, (1 + n_higher) / (1 + len(models)), 1.0)
    for columns, p_of_cells in ((slice(-1), p_of_kinds), (slice(-1, None), p_of_uniformity)):
        p_of_model = np.where(candidates[..., columns], p_of_cells, 1.0).min()
        p[..., columns] = np.maximum(p[..., columns], p_of_model)
    return UntrainedComparison(p=p, highest=compared, level=level)


def monte_carlo_p(
    scores: Float[np.ndarray, "layer head column"],
    untrained: Float[np.ndarray, "model column"],
    least: Float[np.ndarray, " column"],
) -> Float[np.ndarray, "layer head column"]:
    """p value of every head and kind under the hypothesis that its model is untrained, corrected for all of them.

    Scores become standard deviations above the mean of their kind, over the highest scores of all models, this one
    included. Each untrained model is represented by its most unusual head: the largest of these values among scores of
    at least `least`. p is (1 + the number of untrained models with a value at least as large as the head's) / (1 +
    their number), and 1 for scores below `least`. Since no model is singled out, the smallest p of an untrained model
    is at most a with probability at most a.

    Source: Hope 1968; maximum over tests: Westfall & Young 1993.
    """
    # Standardise by all models, this one included.
    models = np.concatenate([untrained, scores.max((0, 1))[None]])
    spread = np.maximum(models.std(0), MIN_SPREAD)

    def standardised(values: Float[np.ndarray, "*cells column"]) -> Float[np.ndarray, "*cells column"]:
        return np.where(values >= least, (values - models.mean(0)) / spread, -np.inf)

    # Compare each head with the highest score of each untrained model.
    statistic = standardised(untrained).max(-1)
    n_higher = (statistic >= standardised(scores)[..., None] - TIE).sum(-1)
    return (1 + n_higher) / (1 + len(untrained))


def sequences_to_compare(scored: Bool[np.ndarray, "sample kind"]) -> Int[np.ndarray, " chosen"]:
    """The first `SEQUENCES` sequences that score each kind, which must not depend on the model."""
    rows_by_kind = [np.flatnonzero(kind)[:SEQUENCES] for kind in scored.T]
    return np.unique(np.concatenate([*rows_by_kind, [0]])).astype(int)  # the first one if no kind is scored


def untrained_models(
    untrained: Untrained, model: Net, task: Task, needs: Needs, *, alpha: float
) -> tuple[int, Sequence[Net]]:
    """Number of untrained models to compare with, and those that the caller gave, which must have what a verb needs.

    Raises:
        ValueError: a number below 1, or an empty sequence; a model of another architecture, or with the weights of the
            model itself or of one before.
    """
    if isinstance(untrained, int):
        if untrained < 1:
            raise ValueError(
                f"untrained is {untrained}; give a number of untrained models of at least 1, or the models."
            )
        return untrained, ()
    if untrained is None:
        # The number that the level needs, or fewer of a model that takes long to build or to draw.
        needed = min(MOST_MODELS, ceil(1 / alpha - 1e-9) - 1)
        if not model.made_from_cfg:
            needed = min(needed, WRAPPED)
        n_parameters = sum(parameter.numel() for parameter in model.parameters())
        return max(1, min(needed, PARAMETERS // max(1, n_parameters))), ()
    models = untrained if isinstance(untrained, Sequence) else (untrained,)
    if not models:
        raise ValueError("untrained is an empty sequence; give at least one untrained model, their number, or None.")
    return len(models), _prepared(models, model, task, needs)


def _prepared(models: Sequence[AnyModel], model: Net, task: Task, needs: Needs) -> list[Net]:
    """The caller's untrained models, each of the architecture of the model and with weights of its own."""
    nets = []
    architecture = _architecture(model)
    owner_by_weights = {weight_sums(model): "the model that is classified"}
    for index, untrained in enumerate(models):
        name = f"untrained[{index}]" if len(models) > 1 else "untrained"
        net = prepare_model(untrained, needs, task).eval()
        for field, value in _architecture(net).items():
            if value != (expected := architecture.get(field)):
                raise ValueError(
                    f"{name} has {field} {value}, the model {expected}; give models of the same architecture."
                )
        weights = weight_sums(net)
        for known, owner in owner_by_weights.items():
            if same_weights(weights, known):
                raise ValueError(f"{name} has the weights of {owner}; give models with weights of their own.")
        owner_by_weights[weights] = name
        nets.append(net)
    return nets


def _architecture(net: Net) -> dict[str, Any]:
    """What a model is besides its weights: its config, without what only sets weights, and hard-coded heads,
    which untrained models may have learned."""
    fields = vars(net.cfg).items()
    settings = {name: value for name, value in fields if name not in ("init", "embedding_std", "head_patterns")}
    return {"a config of class": type(net.cfg).__name__, **settings}


def highest_scores(
    model: Net,
    models: Sequence[Net],
    batch: Batch,
    related: PackedRelations,
    *,
    queries: Queries = "read",
    seed: int,
) -> Iterator[Float[np.ndarray, " column"]]:
    """Highest score of any head in each column, then the highest uniformity, one untrained model after the other.

    Args:
        model: The model whose config the untrained models have.
        models: Untrained models of the caller; if empty, models with fresh weights, without end.
        batch: Sequences on which models are compared.
        related: The relation of each kind.
        queries: Queries at which kinds are scored; those that are read are those of each untrained model itself.
        seed: Determines the fresh weights.
    """
    if models:
        for untrained in models:
            yield _highest(untrained, batch, related, queries)
        return
    # Scores of models with fresh weights are stored, but for bridges, whose config does not determine the weights.
    scores: list[Float[np.ndarray, " column"]] = []
    if model.made_from_cfg:
        scores = _stored_scores(model.cfg, seed, _digest(batch, related, queries))
    yield from scores
    # Further models: one copy, whose weights are drawn again.
    copy: Any = None
    while True:
        index = len(scores)
        fresh_seed = derived_seed(seed, "untrained twin") if index == 0 else derived_seed(seed, "untrained twin", index)
        fresh_seed %= 2**31
        if copy is None or not copy.made_from_cfg:
            copy = untrained_copy(model, fresh_seed, learned=True)
        else:  # the weights that a new copy would have, in a fifth of the time
            initialise(copy, copy.cfg, fresh_seed)
        scores.append(_highest(copy, batch, related, queries))
        yield scores[-1]


@lru_cache(maxsize=64)
def _stored_scores(cfg: Any, seed: int, digest: str) -> list[Float[np.ndarray, " column"]]:
    """Scores of untrained models of a config, to which `highest_scores` adds: the next model need not repeat them."""
    return []


def _highest(model: Net, batch: Batch, related: PackedRelations, queries: Queries) -> Float[np.ndarray, " column"]:
    return mean_over_sequences(pattern_scores(model, batch, related, queries=queries)).max((0, 1))


def mean_over_sequences(values: Float[np.ndarray, "sample *cells"]) -> Float[np.ndarray, "*cells"]:
    """Mean over the sequences that have a value; 0 if none has."""
    return np.nansum(values, 0) / np.isfinite(values).sum(0).clip(1)


def _digest(batch: Batch, related: PackedRelations, queries: Queries) -> str:
    """Hash of everything that a score depends on besides the model."""
    inputs = {"tokens": batch.tokens, "related": torch.from_numpy(related.bits), **batch.model_inputs()}
    inputs["scored"] = scored_positions(batch)
    digest = hashlib.sha256(queries.encode())
    for name in sorted(inputs):
        value = inputs[name]
        if isinstance(value, torch.Tensor):
            digest.update(f"{name} {tuple(value.shape)} {value.dtype}".encode())
            digest.update(value.cpu().contiguous().numpy().reshape(-1).data)
    return digest.hexdigest()
