"""Audit of attention heads: does each head do what it looks like?"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float

from hooks.interventions.ablation_engine import Net, every_head
from interp.auditing.experiments import INTERVENTIONS, Effects, HeadExperiments
from interp.auditing.result import AuditResult, Cost, HeadVerdict, SetCost
from interp.auditing.sets import HeadSets, sets_to_test
from interp.auditing.verdicts import (
    JUDGED,
    PValues,
    cancelled_partners,
    judge,
    judged_outcomes,
    p_values,
    redundant_partners,
)
from interp.core.randomness import derived_generator
from interp.core.statistics import check_level, drop_interval
from interp.core.verbs import AnyModel, prepare_model, visible_keys
from interp.heads.classify import HeadPatterns, classify_heads
from interp.heads.kinds import relations_of
from interp.tasks.base import Batch, Task
from interp.tasks.check import check_task

SEARCHED = 4
"""Sets of heads are searched for on a separate batch, smaller by this factor."""


def audit(
    model: AnyModel,
    task: Task,
    *,
    n: int = 256,
    alpha: float = 0.01,
    outcomes: Sequence[str] | None = None,
    other_seeds: Sequence[AnyModel] = (),
    at_chance: bool = False,
    seed: int = 0,
) -> AuditResult:
    """Decide for every head whether it does what it looks like.

    The verdicts are faithful, misleading, hidden, idle, redundant and undecided. For each head the audit measures what
    it looks like (`classify_heads`); the same weighted by the norm of what it writes; and the accuracy lost when its
    output is replaced by zero, its mean, or another sequence's, or its pattern by a uniform one, a random one, the
    ideal map of its kind, or only the part of it that its label describes. Among heads that are not needed alone it
    searches for sets that are needed together; among needed heads, for others that cancel them. docs/audit.md states
    every rule and threshold.

    Args:
        model: Model to audit. It is not changed.
        task: Source of sequences, relations and correct answers.
        n: Number of held-out sequences, the independent units of every interval and p value.
        alpha: Level of all verdicts of an audit together (Holm), and of labels.
        outcomes: Names of the outcomes that count; if None, all of the task's. Verdicts are based on those on which the
            model is far enough above chance for n sequences.
        other_seeds: Models of the same shape trained from other seeds; how many of them have such a head in that layer
            is reported.
        at_chance: Accept a model that is not above chance, for which few verdicts are possible.
        seed: Determines sequences, references and random rows.

    Raises:
        ValueError: an inconsistent task, a model that does not fit it, a task without relations visible to the model,
            an unknown outcome, too few sequences for any verdict (says how many are needed), or a model at chance.
    """
    check_task(task)
    model = prepare_model(model, "audit", task)
    check_level(alpha)
    if n < 8:
        raise ValueError(f"n is {n}; at least 8 sequences are needed for an interval.")
    batch = task.sample(n, generator=derived_generator(seed, "audit"), split="test")
    _check_relations(model, task, batch)
    experiments = HeadExperiments(model, task, batch, seed)
    heads, score = experiments.heads, experiments.score()
    n_tests = 2 * len(JUDGED) * len(heads)
    judged_by = judged_outcomes(score, task, outcomes, n_tests=n_tests, alpha=alpha, at_chance=at_chance)
    patterns = classify_heads(model, task, n=n, alpha=alpha, seed=seed)
    labels = {head: patterns.label[head[0]][head[1]] for head in heads}
    labels = {head: label for head, label in labels.items() if label in patterns.kinds}
    negligible = np.full(len(task.outcomes), np.inf)
    negligible[judged_by.places] = judged_by.threshold / 2
    effects = experiments.effects(labels, negligible=negligible)
    search = task.sample(max(32, n // SEARCHED), generator=derived_generator(seed, "search"), split="validation")
    searching = HeadExperiments(model, task, search, seed, keep=True)
    sets = sets_to_test(searching, effects, judged_by.places, judged_by.threshold)
    together = experiments.removed(sets.all)
    beyond = sets.effects(together, effects.drop["mean"], heads)[:, :, judged_by.places]
    together, effects = together[:, :, judged_by.places], effects.on(judged_by.places)
    family = {name: effects.drop[name] for name in JUDGED} | {"sets": beyond}
    p = p_values(family, effects.total, judged_by.threshold)
    judged = judge(
        heads,
        [head in labels for head in heads],
        p,
        redundant=redundant_partners(sets.fatal, p, heads=heads, alpha=alpha),
        cancelled=cancelled_partners(sets.opposed, p, heads=heads, alpha=alpha),
        alpha=alpha,
        at_chance=judged_by.at_chance,
    )
    costs = _costs(effects, p)
    records = [
        HeadVerdict(**vars(one), **_evidence(patterns, head), costs=cost)
        for head, one, cost in zip(heads, judged, costs, strict=True)
    ]
    result = AuditResult(
        heads=tuple(records),
        kinds=patterns.kinds,
        interventions=INTERVENTIONS,
        outcomes=judged_by.names,
        clean=judged_by.clean,
        threshold=judged_by.threshold,
        sets=_set_costs(sets, together, effects.total),
        warnings=judged_by.warnings,
        alpha=alpha,
        n=n,
    )
    if not other_seeds:
        return result
    settings = {"n": n, "alpha": alpha, "outcomes": outcomes, "at_chance": at_chance, "seed": seed}
    return _with_agreement(result, other_seeds, task, settings)


def _check_relations(model: Net, task: Task, batch: Batch) -> None:
    """Check that the task has a relation which attention of the model can follow."""
    relations = relations_of(task, batch)
    if not relations:
        raise ValueError("this task has none of the registered kinds; register one with interp.heads.register_kind.")
    allowed = visible_keys(model, batch.tokens, batch.attention_mask)
    if not any((related & allowed).any() for related in relations.values()):
        raise ValueError(
            f"none of the task's relations ({', '.join(relations)}) reaches a key that is visible to the model, whose "
            f"attention is {model.cfg.attention}. Register one with interp.heads.register_kind."
        )


def _evidence(patterns: HeadPatterns, head: tuple[int, int]) -> dict[str, Any]:
    """What a head looks like: fields of `HeadVerdict`."""
    label = patterns.label[head[0]][head[1]]
    kind = patterns.kinds.index(label) if label in patterns.kinds else int(patterns.score[head].argmax())
    by_kind = {
        "score": patterns.score,
        "score_low": patterns.low,
        "score_high": patterns.high,
        "p_label": patterns.p_holm,
        "value_weighted": patterns.value_weighted,
    }
    scores = {name: float(values[(*head, kind)]) for name, values in by_kind.items()}
    named = {"layer": head[0], "head": head[1], "label": label, "kind": patterns.kinds[kind]}
    return {**named, **scores, "moved": float(patterns.moved[head])}


def _costs(effects: Effects, p: PValues) -> list[dict[str, Cost]]:
    """Cost of every intervention that was tried, for each head."""
    costs: list[dict[str, Cost]] = [{} for _ in effects.drop["mean"][0]]
    for name in INTERVENTIONS:
        ends = drop_interval(effects.drop[name], effects.total[:, None])
        for head, (drop, low, high) in enumerate(zip(*(end.tolist() for end in ends), strict=True)):
            if not np.isnan(drop).any():
                tests = {}
                if name in JUDGED:
                    tests = {"p_matters": float(p.matters[name][head]), "p_harmless": float(p.harmless[name][head])}
                costs[head][name] = Cost(drop=tuple(drop), low=tuple(low), high=tuple(high), **tests)
    return costs


def _set_costs(
    sets: HeadSets, together: Float[np.ndarray, "sample set outcome"], total: Float[np.ndarray, "sample outcome"]
) -> tuple[SetCost, ...]:
    ends = zip(*(end.tolist() for end in drop_interval(together, total[:, None])), strict=True)
    return tuple(
        SetCost(heads=heads, cost=Cost(drop=tuple(drop), low=tuple(low), high=tuple(high)))
        for heads, (drop, low, high) in zip(sets.all, ends, strict=True)
    )


def _with_agreement(
    result: AuditResult, other_seeds: Sequence[AnyModel], task: Task, settings: dict[str, Any]
) -> AuditResult:
    """Add the fraction of other models with a head of the same label and verdict in the same layer."""
    shape = result.heads[-1].place
    likes = []
    for index, one in enumerate(other_seeds):
        other = prepare_model(one, "audit")
        if every_head(other)[-1] != shape:
            raise ValueError(
                f"other_seeds[{index}] has {other.cfg.n_layers} layers of {other.cfg.n_heads} heads, the "
                f"audited model {shape[0] + 1} of {shape[1] + 1}; pass models of the same shape."
            )
        likes.append({(head.layer, head.label, head.verdict) for head in audit(other, task, **settings).heads})
    heads = tuple(
        replace(head, seeds_agree=sum((head.layer, head.label, head.verdict) in like for like in likes) / len(likes))
        for head in result.heads
    )
    return replace(result, heads=heads, n_seeds=len(likes))
