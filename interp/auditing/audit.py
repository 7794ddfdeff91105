"""Is what a head looks like what it does? Patterns, what moves, what breaks, and a verdict on every head."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from interp.auditing.effects import INTERVENTIONS, Effects, Laboratory, every_head
from interp.auditing.questions import Outcomes, check_fit, check_relations, judged_outcomes
from interp.auditing.result import AuditResult
from interp.auditing.sets import HeadSets, cancelled_partners, redundant_partners, set_effects, sets_to_test
from interp.auditing.verdicts import JUDGED, Judged, Tested, judge, tested
from interp.core.randomness import derived_generator
from interp.core.statistics import check_level, drop_interval
from interp.core.verbs import AnyModel, prepare_model
from interp.evaluation.evaluate import score_batch
from interp.heads.classify import HeadPatterns, classify_heads
from interp.tasks.base import Task

SEARCHED = 4
"""Sets of heads are looked for on a separate batch, this many times smaller."""


def audit(
    model: AnyModel,
    task: Task,
    *,
    n: int = 256,
    alpha: float = 0.01,
    outcomes: Sequence[str] | None = None,
    twins: Sequence[AnyModel] = (),
    at_chance: bool = False,
    seed: int = 0,
) -> AuditResult:
    """Say of every head whether it does what it looks like: faithful, misleading, hidden, idle, redundant, undecided.

    For each head: what it looks like (`classify_heads`), what it moves (the same, weighted by the norm of what keys
    write), and what it does: accuracy lost when its output is zero, its mean, or another sequence's; when its pattern
    is uniform, random, the ideal map of its kind, or only that part of it that is read. Heads that can go alone are
    searched for sets that cannot go together, heads that cannot go alone for others that undo them. Every rule and
    threshold stands in docs/audit.md.

    Args:
        model: What to audit. It is not changed.
        task: Where sequences and relations come from, and what is right.
        n: Held-out sequences: the independent units behind every interval and p value.
        alpha: Level of all verdicts of an audit together (Holm), and of labels.
        outcomes: Names of the outcomes that count; all of the task's when left out. Of these the audit judges by
            those that the model knows, and knows well enough for n sequences to tell.
        twins: Models of the same shape trained from other seeds: how many have such a head in that layer?
        at_chance: Audit a model that is no better than chance, where nothing can be lost and hardly any verdict comes.
        seed: Decides sequences, references and random rows.

    Raises:
        ValueError: a model that the task does not fit, a task without relations that the model could look at, an
            unknown outcome, too few sequences for any verdict (says how many are needed), or a model at chance.
    """
    model = prepare_model(model, "audit")
    check_fit(model, task)
    check_level(alpha)
    if n < 8:
        raise ValueError(f"n is {n}; at least 8 sequences are needed for an interval.")
    batch = task.sample(n, generator=derived_generator(seed, "audit"), split="test")
    check_relations(model, task, batch)
    heads, score = every_head(model), score_batch(model, task, batch)
    n_tests = 2 * len(JUDGED) * len(heads)
    judged_by = judged_outcomes(score, task, outcomes, n_tests=n_tests, alpha=alpha, at_chance=at_chance)
    patterns = classify_heads(model, task, n=n, alpha=alpha, seed=seed)
    looks = {(layer, head): patterns.label[layer][head] for layer, head in heads}
    labels = {head: label for head, label in looks.items() if label in patterns.kinds}
    laboratory = Laboratory(model, task, batch, seed=seed)
    little = np.full(len(task.outcomes), np.inf)
    little[judged_by.places] = judged_by.threshold / 2
    effects = laboratory.effects(labels, little=little)
    search = task.sample(max(32, n // SEARCHED), generator=derived_generator(seed, "search"), split="validation")
    sets = sets_to_test(Laboratory(model, task, search, seed=seed), effects, judged_by)
    together = laboratory.removed(sets.all) if sets.all else None
    drop = {name: values[:, :, judged_by.places] for name, values in effects.drop.items()}
    asked = effects.total[:, judged_by.places]
    family = {name: drop[name] for name in JUDGED}
    if together is not None:
        family["sets"] = set_effects(sets, together, effects, heads)[:, :, judged_by.places]
    found = tested(family, asked, judged_by.threshold)
    verdicts = judge(
        heads,
        [head in labels for head in heads],
        found,
        redundant=redundant_partners(sets, found, alpha, heads),
        cancelled=cancelled_partners(sets, found, alpha, heads),
        alpha=alpha,
        knows=not judged_by.at_chance,
    )
    result = _result(patterns, effects, judged_by, found, verdicts, sets, together, alpha=alpha)
    if not twins:
        return result
    return _compare(result, twins, task, alpha=alpha, outcomes=outcomes, n=n, at_chance=at_chance, seed=seed)


def _result(
    patterns: HeadPatterns,
    effects: Effects,
    judged_by: Outcomes,
    found: Tested,
    verdicts: Sequence[Judged],
    sets: HeadSets,
    together: Float[np.ndarray, "sample set outcome"] | None,
    *,
    alpha: float,
) -> AuditResult:
    heads = [(layer, head) for layer, row in enumerate(patterns.label) for head in range(len(row))]
    label = [patterns.label[layer][head] for layer, head in heads]
    kind = [
        patterns.kinds.index(name) if name in patterns.kinds else int(patterns.score[head].argmax())
        for name, head in zip(label, heads, strict=True)
    ]
    cells = tuple(np.array([(*head, one) for head, one in zip(heads, kind, strict=True)]).T)
    asked = effects.total[:, judged_by.places]
    costs = [drop_interval(effects.drop[name][:, :, judged_by.places], asked[:, None]) for name in INTERVENTIONS]
    drop, low, high = (np.stack([cost[part] for cost in costs]) for part in range(3))
    of_sets = np.zeros((len(asked), 0, len(judged_by.names)))
    if together is not None:
        of_sets = together[:, :, judged_by.places]
    set_drop, set_low, set_high = drop_interval(of_sets, asked[:, None])
    return AuditResult(
        heads=tuple(heads),
        verdict=tuple(one.verdict for one in verdicts),
        because=tuple(one.because for one in verdicts),
        partners=tuple(one.partners for one in verdicts),
        kinds=patterns.kinds,
        label=tuple(label),
        kind=tuple(patterns.kinds[one] for one in kind),
        score=patterns.score[cells],
        score_low=patterns.low[cells],
        score_high=patterns.high[cells],
        p_label=patterns.p_holm[cells],
        value_weighted=patterns.value_weighted[cells],
        moved=patterns.moved[cells[:2]],
        interventions=INTERVENTIONS,
        outcomes=judged_by.names,
        clean=judged_by.clean,
        threshold=judged_by.threshold,
        drop=drop,
        low=low,
        high=high,
        p_matters=np.stack([found.matters[name] for name in JUDGED]),
        p_harmless=np.stack([found.harmless[name] for name in JUDGED]),
        sets=tuple(sets.all),
        set_drop=set_drop,
        set_low=set_low,
        set_high=set_high,
        warnings=judged_by.warnings,
        alpha=alpha,
        n=len(asked),
    )


def _compare(result: AuditResult, twins: Sequence[AnyModel], task: Task, **settings) -> AuditResult:
    """How many twins have a head of the same look and verdict in the same layer?"""
    shape = max(result.heads)
    agree = np.zeros(len(result.heads))
    for index, one in enumerate(twins):
        twin = prepare_model(one, "audit")
        if max(every_head(twin)) != shape:
            raise ValueError(
                f"twins[{index}] has {twin.cfg.n_layers} layers of {twin.cfg.n_heads} heads; give models of one shape."
            )
        other = audit(twin, task, **settings)
        theirs = {(head[0], *rest) for head, *rest in zip(other.heads, other.label, other.verdict, strict=True)}
        agree += [
            (head[0], label, verdict) in theirs
            for head, label, verdict in zip(result.heads, result.label, result.verdict, strict=True)
        ]
    return replace(result, twins_agree=agree / len(twins), n_twins=len(twins))
