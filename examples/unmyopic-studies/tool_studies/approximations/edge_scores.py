"""Every edge of trained models: its exact cost, its scores by EAP, EAP-IG and ACDC, and two truths."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy import stats
from torch import Tensor

from case_studies.frame.evidence import Evidence, Size, once_per_model
from case_studies.recipes.intervals import as_interval, clipped, t_interval
from case_studies.recipes.learned import has_learned
from hooks import Transformer
from hooks.interventions.ablation_engine import part_points
from hooks.interventions.edge_engine import Receiver, Sender
from interp.core.inputs import inputs_or_sample
from interp.core.intervals import Interval
from interp.core.randomness import derived_generator
from interp.core.sample import Sample
from interp.core.statistics import SHARE_THAT_COUNTS
from interp.heads.edges import EdgesResult, edges
from interp.heads.interventions import References
from interp.sweeps.spec import ModelSpec
from interp.tasks.base import Batch, Task, logits_at_targets
from tool_studies.approximations.edge_methods import (
    acdc,
    all_edges,
    changes_of_parts,
    edge_attribution,
    input_point,
    with_separate_inputs,
)
from tool_studies.approximations.removal import ModelOnBatch
from tool_studies.approximations.scores import LEAST, zero_small

STEPS = 5
"""Steps of EAP-IG."""
THRESHOLDS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""Thresholds of ACDC, in nats per answer."""
EXACT, EAP, EAP_IG, ACDC = "exact", "EAP", f"EAP-IG, {STEPS} steps", "ACDC"
PEERS = (EAP, EAP_IG, ACDC)
METHODS = (EXACT, *PEERS)
FAMILIES = {"LEGO": "edges-lego", "Dyck": "edges-dyck", "template": "edges-template"}
"""Groups of models by family."""
SEQUENCES = 128
"""Sequences that all methods score on."""
FOR_VERDICTS: Mapping[Size, int] = {"quick": 128, "standard": 512, "paper": 2048}
"""Sequences of the exact verdicts."""
FOR_PLAIN_PASSES = 256
"""Other sequences, on which each edge is replaced in a pass of its own."""
RESOLUTION = 0.01
"""Distance of two models' numbers that counts as a difference where all models have the same."""


@dataclass(frozen=True, kw_only=True)
class EdgeScores:
    """The edges of one model."""

    family: str
    seed: int
    scores: Mapping[str, Float[np.ndarray, " edge"]]
    """Size of the score of each of `METHODS`; the exact one is the rise of the loss."""
    seconds: Mapping[str, float]
    """CPU seconds of each."""
    needed: Bool[np.ndarray, " edge"]
    """Exact verdict."""
    decided: Bool[np.ndarray, " edge"]
    """Whether the exact verdict is needed or harmless."""
    needed_elsewhere: Bool[np.ndarray, " edge"]
    """Whether a plain pass on other sequences costs more than counts."""


def edge_scores(evidence: Evidence) -> list[EdgeScores]:
    """Every trained model that has learned its task."""
    return [
        _of_trained(evidence, spec, family=family)
        for family, group in FAMILIES.items()
        for spec in evidence.specs(group)
        if has_learned(evidence, spec)
    ]


@once_per_model
def _of_trained(evidence: Evidence, spec: ModelSpec, *, family: str) -> EdgeScores:
    model: Any = evidence.run(spec).model
    return score_edges(
        model, spec.task, n=FOR_VERDICTS[evidence.size], seed=evidence.seed, family=family, model_seed=spec.seed
    )


def score_edges(
    model: Transformer, task: Task, *, n: int, seed: int, family: str = "", model_seed: int = 0
) -> EdgeScores:
    """All scores and truths of a model's edges.

    Args:
        model: The model.
        task: Its task.
        n: Sequences of the exact verdicts.
        seed: Determines sequences and references.
        family: Family of the model.
        model_seed: Seed of its training.
    """
    model.eval()
    # The sequences and the mean of `interp.edges`, for all methods
    batch = inputs_or_sample(task, SEQUENCES, generator=derived_generator(seed, "edges"))
    answers = ModelOnBatch(task, batch, next(model.parameters()).dtype)
    seconds, scores = {}, {}
    methods: dict[str, Callable[[], np.ndarray]] = {
        EXACT: lambda: loss_rise(edges(model, task, n=SEQUENCES, seed=seed), task),
        EAP: lambda: edge_attribution(model, answers, means(model, task, batch, seed)),
        EAP_IG: lambda: edge_attribution(model, answers, means(model, task, batch, seed), steps=STEPS),
        ACDC: lambda: acdc(model, answers, means(model, task, batch, seed), thresholds=THRESHOLDS),
    }
    for name, method in methods.items():
        start = time.process_time()
        values = method()
        seconds[name] = time.process_time() - start
        scores[name] = zero_small(np.abs(values), least=LEAST)
    verdicts = np.array(edges(model, task, n=n, seed=seed).verdicts)
    return EdgeScores(
        family=family,
        seed=model_seed,
        scores=scores,
        seconds=seconds,
        needed=verdicts == "needed",
        decided=verdicts != "undecided",
        needed_elsewhere=needed_by_plain_passes(model, task, n=FOR_PLAIN_PASSES, seed=seed + 1),
    )


def means(model: Transformer, task: Task, batch: Batch, seed: int) -> Mapping[str, Tensor]:
    """What each part writes on average."""
    return References(model, Sample(task, batch, seed), part_points(model)).means


def loss_rise(result: EdgesResult, task: Task) -> Float[np.ndarray, " edge"]:
    """Rise of the loss per answer, mean over the audited outcomes that have answers."""
    audited = [name in task.audited_outcomes for name in result.outcomes]
    judged = np.array(audited) & np.isfinite(result.clean)
    return result.loss_rise.value[:, judged].mean(1)


@torch.no_grad()
def needed_by_plain_passes(model: Transformer, task: Task, *, n: int, seed: int) -> Bool[np.ndarray, " edge"]:
    """Whether replacing an edge costs more than counts, each edge in a whole pass with hooks at the input that reads.

    Args:
        model: The model.
        task: Its task.
        n: Number of sequences.
        seed: Determines these and the reference of the mean.
    """
    batch = inputs_or_sample(task, n, generator=derived_generator(seed, "edges"))
    inputs: dict[str, Any] = batch.model_inputs()
    changes = changes_of_parts(model, batch, means(model, task, batch, seed))
    separate = with_separate_inputs(model)
    clean = task.score(logits_at_targets(model(batch.tokens, **inputs), batch), batch)
    total = clean.total.sum(0)
    accuracy = clean.right.sum(0) / total
    # A fifth of the accuracy above chance, on the outcomes on which the model is above it
    margin = SHARE_THAT_COUNTS * (accuracy - torch.tensor(task.chances))
    judged = (total > 0) & (margin > 0)
    needed = []
    for sender, receiver in all_edges(model, batch):
        logits = plain_pass(separate, batch, changes, sender, receiver)
        right = task.score(logits_at_targets(logits, batch), batch).right.sum(0)
        needed.append(bool((accuracy - right / total > margin)[judged].any()))
    return np.array(needed)


def plain_pass(
    separate: Transformer, batch: Batch, changes: Mapping[Sender, Tensor], sender: Sender, receiver: Receiver
) -> Float[Tensor, "batch pos d_vocab_out"]:
    """Logits of a model with separate inputs, one of which reads a changed output."""

    def add(activation: Tensor, hook: Any) -> Tensor:
        edited = activation.clone()
        if receiver.head is None:
            return edited + changes[sender]
        edited[:, :, receiver.head] += changes[sender]
        return edited

    inputs: dict[str, Any] = batch.model_inputs()
    return separate.run_with_hooks(batch.tokens, **inputs, fwd_hooks=[(input_point(receiver), add)])


# How well scores order edges, in one model


def rank_correlation(model: EdgeScores, method: str) -> float:
    """Spearman's correlation of the sizes of a score and of the exact rise of the loss; 0 if all scores are equal."""
    score, exact = model.scores[method], model.scores[EXACT]
    if not (np.ptp(score) and np.ptp(exact)):
        return 0.0
    return float(np.corrcoef(stats.rankdata(score), stats.rankdata(exact))[0, 1])


def auroc(scores: Float[np.ndarray, " edge"], needed: Bool[np.ndarray, " edge"]) -> float:
    """Chance that a needed edge has a higher score than another one; a tie counts one half."""
    difference = scores[needed][:, None] - scores[~needed][None]
    return float((difference > 0).mean() + (difference == 0).mean() / 2)


def share_missed(scores: Float[np.ndarray, " edge"], needed: Bool[np.ndarray, " edge"]) -> float:
    """Share of the needed edges that are not among as many edges with the highest scores; ties are drawn at random."""
    n_needed = int(needed.sum())
    bar = np.sort(scores)[-n_needed]
    above, tied = scores > bar, scores == bar
    # Chance of each tied edge to be among them
    chance = (n_needed - above.sum()) / tied.sum()
    return float(1 - (above[needed].sum() + chance * tied[needed].sum()) / n_needed)


def aurocs(models: Sequence[EdgeScores], method: str, *, elsewhere: bool = False) -> Float[np.ndarray, " model"]:
    """AUROC of each model that has needed and other edges.

    Args:
        models: The models.
        method: One of `METHODS`.
        elsewhere: By plain passes on other sequences; default: by the exact verdict, where it is decided.
    """
    values = []
    for model in models:
        of_truth = np.ones_like(model.decided) if elsewhere else model.decided
        needed = (model.needed_elsewhere if elsewhere else model.needed)[of_truth]
        if needed.any() and not needed.all():
            values.append(auroc(model.scores[method][of_truth], needed))
    return np.array(values)


def shares_missed(models: Sequence[EdgeScores], method: str) -> Float[np.ndarray, " model"]:
    """`share_missed` of each model that has needed edges, of the edges that are decided."""
    return np.array(
        [
            share_missed(model.scores[method][model.decided], model.needed[model.decided])
            for model in models
            if model.needed.any()
        ]
    )


def over_models(values: Float[np.ndarray, " model"], least: float, largest: float) -> Interval:
    """Mean over models with its t interval, cut to a range; without models its middle, and the range."""
    if not len(values):
        return as_interval((least + largest) / 2, least, largest, 0)
    return clipped(t_interval(values, resolution=RESOLUTION), least, largest)
