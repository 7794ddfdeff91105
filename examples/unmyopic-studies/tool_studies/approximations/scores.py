"""Every head of the known answers, the compiled programs and the trained models: approximations, truth, causes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from case_studies.frame.evidence import Evidence, Size, once_per_model
from case_studies.frame.packs import Packs
from case_studies.recipes.learned import has_learned
from interp.known_answers import HeadTruth, KnownAnswer, read_compiled
from interp.known_answers.suite import SUITE, known_answer
from interp.sweeps.spec import ModelSpec
from interp.tasks.base import Task
from tool_studies.approximations.estimates import APPROXIMATIONS, LOGIT, LOSS, TERMS, estimate_heads
from tool_studies.approximations.removal import RemovalEffects, answers_of, fatal_pairs, remove_heads
from tool_studies.audited_models import DYCK, LEGO, TEMPLATE

KNOWN, COMPILED = "known answers", "compiled programs"
TRAINED: Mapping[str, tuple[str, ...]] = {"LEGO": LEGO, "Dyck": DYCK, "template": TEMPLATE}
"""Groups of trained models of each family."""
EXACT = "removing the head alone"
METHODS = (*APPROXIMATIONS, EXACT)
REDUNDANT, SATURATED, FLAT, RANGE = "redundancy", "saturation", "flat network", "wrong range"
TERM_CAUSE, CANCELLED, DECOY = "cancelling terms", "cancelling heads", "unused pattern"
MISSED_CAUSES = (REDUNDANT, SATURATED, FLAT, RANGE, TERM_CAUSE)
"""Causes for which a needed head may be missed."""
FOUND_CAUSES = (CANCELLED, DECOY)
"""Causes for which a head that is not needed may be found."""

SEQUENCES: Mapping[Size, int] = {"quick": 128, "standard": 512, "paper": 2048}
PAIRED = 128
"""Sequences on which pairs of heads are removed."""
EVERY: Mapping[Size, int] = {"quick": 4, "standard": 1, "paper": 1}
"""One in this number of the known answers and of the packs is used."""
CERTAIN = 0.01
"""Loss in nats per answer below which it is saturated: the right answer has a probability of 0.99."""
FACTOR = 2.0
"""A linear estimate that is wrong by more than this factor has the wrong range."""
LEVEL = 0.1
"""A network is flat where the linear estimate of a fall is below this fraction of it."""
SMALL_SUM = 0.1
"""Terms cancel if their sum is below this fraction of the sum of their sizes."""
ROUNDING, LEAST = 1e-5, 1e-6
"""Values below this fraction of the largest of their model are rounding errors; so are smaller rises of the loss."""


@dataclass(frozen=True, kw_only=True)
class ModelScores:
    """The heads of one model."""

    family: str
    name: str
    scores: Mapping[str, Float[np.ndarray, " head"]]
    """Size of each approximation, and under `EXACT` the rise of the loss without the head."""
    needed: Bool[np.ndarray, " head"]
    """Whether the answers need the head, alone or with its partners."""
    decided: Bool[np.ndarray, " head"]
    """Whether that is known."""
    idle: Bool[np.ndarray, " head"]
    """Heads that do nothing: the reference of what counts as found."""
    causes: Mapping[str, Bool[np.ndarray, " head"]]
    """For each cause, the heads that it concerns."""

    @property
    def shares(self) -> Mapping[str, Float[np.ndarray, " head"]]:
        """Scores as a share of the largest of the model; 0 if none is positive."""
        return {name: score.clip(0) / max(score.max(), 1e-300) for name, score in self.scores.items()}


def zero_small(values: Float[np.ndarray, " head"], *, least: float = 0.0) -> Float[np.ndarray, " head"]:
    """The values with rounding errors set to 0."""
    size = np.abs(values)
    return np.where(size < max(ROUNDING * size.max(), least), 0.0, values)


def scores_of(model: Any, task: Task, *, n: int, seed: int) -> tuple[ModelScores, RemovalEffects]:
    """Scores of a model's heads, with the truth as far as removing each head alone shows it, and the removal.

    Args:
        model: The model.
        task: Its task.
        n: Number of sequences.
        seed: Determines them and the reference of the mean.
    """
    model.eval()
    answers, mean = answers_of(model, task, n=n, seed=seed)
    removal = remove_heads(model, answers, mean)
    estimates = estimate_heads(model, answers, mean)
    scores = {name: zero_small(np.abs(estimates[name])) for name in APPROXIMATIONS}
    scores[EXACT] = zero_small(removal.rise, least=LEAST)
    # Causes that the estimates show: how far the linear estimate of the margin is from its fall
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.abs(estimates[LOGIT]) / np.abs(removal.fall)
    saturated = task.d_vocab_out > 1 and removal.loss < CERTAIN
    causes = {
        SATURATED: np.full(len(ratio), saturated),
        FLAT: ratio < LEVEL,
        RANGE: (ratio >= LEVEL) & ~((ratio >= 1 / FACTOR) & (ratio <= FACTOR)),
        TERM_CAUSE: np.abs(estimates[LOSS]) < SMALL_SUM * estimates[TERMS],
    }
    unnamed = ModelScores(
        family="",
        name="",
        scores=scores,
        needed=removal.needed,
        decided=removal.needed | removal.spare,
        idle=removal.spare,
        causes=causes,
    )
    return unnamed, removal


def with_truth(scores: ModelScores, removal: RemovalEffects, answer: KnownAnswer, *, family: str) -> ModelScores:
    """Scores with the truth of a known answer.

    A head is needed if it is faithful, hidden or redundant, or if brute force has found it to be needed under the mean.
    A head that cancels others is not. Whether another misleading head is needed is not known by construction in the
    suite: there it is what removing it alone shows.

    Causes by construction: the heads that are redundant; those that cancel; the readable ones that are not needed; and
    for the wrong range those that the mean breaks and another sequence's output does not. Of compiled programs, the
    wrong range is that of the linear estimate.
    """
    # Whether a head is needed, from its truth; a removal decides where the truth leaves it open
    truth = [answer.heads[head] for head in removal.heads]
    by_removal = np.array([head.truth == "misleading" and head.needed is None and not head.partners for head in truth])
    needed = np.array([_needed(head) for head in truth])
    needed = np.where(by_removal, scores.needed, needed)
    decided = ~by_removal | scores.decided
    # Causes by construction
    partners = np.array([bool(head.partners) for head in truth])
    redundant = np.array([head.truth == "redundant" for head in truth])
    readable = np.array([head.looks is not None for head in truth])
    causes = {name: of & needed & ~redundant for name, of in scores.causes.items()}
    causes |= {REDUNDANT: redundant, CANCELLED: partners & ~redundant, DECOY: readable & ~needed & ~partners & decided}
    if family == KNOWN:
        causes[RANGE] = np.array([_only_under_the_mean(head) for head in truth])
    idle = np.array([head.truth == "idle" for head in truth]) & ~needed & ~partners
    return replace(scores, family=family, name=answer.name, needed=needed, decided=decided, idle=idle, causes=causes)


def _needed(truth: HeadTruth) -> bool:
    by_brute_force = truth.needed is not None and truth.needed["mean"]
    return truth.truth in ("faithful", "hidden", "redundant") or by_brute_force


def _only_under_the_mean(truth: HeadTruth) -> bool:
    return truth.needed is not None and truth.needed["mean"] and not truth.needed["resample"]


@cache
def known_scores(size: Size, seed: int) -> list[ModelScores]:
    """Every model of the suite of this seed; one in four at the size quick."""
    names = list(SUITE)[:: EVERY[size]]
    return [_of_known(known_answer(name, seed), KNOWN, size, seed) for name in names]


@cache
def compiled_scores(packs: Packs, size: Size, seed: int) -> list[ModelScores]:
    """Every compiled program; one in four at the size quick.

    Raises:
        ValueError: there are no packs.
    """
    return [_of_known(read_compiled(path), COMPILED, size, seed) for path in packs.paths[:: EVERY[size]]]


def _of_known(answer: KnownAnswer, family: str, size: Size, seed: int) -> ModelScores:
    scores, removal = scores_of(answer.model, answer.task, n=SEQUENCES[size], seed=seed)
    return with_truth(scores, removal, answer, family=family)


def trained_scores(evidence: Evidence, families: Sequence[str] = tuple(TRAINED)) -> list[ModelScores]:
    """Every trained model of some families that has learned its task."""
    return [
        replace(_of_trained(evidence, spec), family=family, name=f"{group} {spec.seed}")
        for family in families
        for group in TRAINED[family]
        for spec in evidence.specs(group)
        if has_learned(evidence, spec)
    ]


@once_per_model
def _of_trained(evidence: Evidence, spec: ModelSpec) -> ModelScores:
    """The truth is the fall of the accuracy without the head.

    Two heads that are needed together but not alone are redundant. Whether the answers need one of them is open.
    """
    model = evidence.run(spec).model
    task = spec.task
    scores, removal = scores_of(model, task, n=SEQUENCES[evidence.size], seed=evidence.seed)
    # Pairs are many, so that they are removed on fewer sequences
    answers, mean = answers_of(model, task, n=min(PAIRED, SEQUENCES[evidence.size]), seed=evidence.seed)
    redundant = fatal_pairs(model, answers, mean, removal.spare)
    causes = {name: of & scores.needed for name, of in scores.causes.items()} | {REDUNDANT: redundant}
    return replace(scores, decided=scores.decided & ~redundant, idle=removal.spare & ~redundant, causes=causes)
