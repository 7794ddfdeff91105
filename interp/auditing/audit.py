"""Audit of attention heads: does each head do what it looks like?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from hooks.interventions.ablation_engine import Head, Net
from interp.auditing.evidence import Evidence, planned_looks
from interp.auditing.experiments import INTERVENTIONS, Effects, HeadExperiments
from interp.auditing.records import Cost, HeadVerdict, SetCost
from interp.auditing.result import AuditResult
from interp.auditing.sets import HeadSets, find_sets
from interp.auditing.verdicts import (
    CANCELLING,
    HARMFUL,
    JUDGED,
    TOGETHER,
    Judged,
    JudgedOutcomes,
    PValues,
    judge,
    judged_outcomes,
    set_findings,
)
from interp.core.randomness import derived_generator
from interp.core.statistics import check_level
from interp.core.verbs import AnyModel, prepare_model, visible_keys
from interp.heads.classify import HeadPatterns, classify_heads
from interp.heads.kinds import relations_of
from interp.heads.methods import REMOVALS
from interp.tasks.base import Batch, Task
from interp.tasks.check import check_task

SEARCHED = 4
"""Sets of heads are searched for on a separate batch, smaller by this factor."""


def audit(
    model: AnyModel,
    task: Task,
    *,
    n: int | Literal["enough"] = 256,
    limit: int = 1024,
    alpha: float = 0.01,
    outcomes: Sequence[str] | None = None,
    at_chance: bool = False,
    seed: int = 0,
) -> AuditResult:
    """Decide for every head whether it does what it looks like.

    The verdicts are faithful, misleading, hidden, idle, redundant and undecided. For each head the audit measures what
    it looks like (`classify_heads`); the same weighted by the norm of what it writes; and the accuracy lost when its
    output is replaced by zero, its mean, or another sequence's, or its pattern by a uniform one, a random one, the
    ideal map of its kind, only the part of it that its label describes, or one wrong key, or what it reads at the keys
    of its kind by what such keys of other sequences hold. It searches for sets of heads
    that are needed together though none is alone, and for sets that are harmless though some are needed alone.
    docs/audit.md states every rule and threshold. Models of other seeds: `AuditResult.with_other_seeds`.

    Args:
        model: Model to audit. It is not changed.
        task: Source of sequences, relations and correct answers.
        n: Number of held-out sequences, the independent units of every interval and p value. "enough": look after 256
            sequences, then double the number for the undecided heads until all are decided or `limit` is reached; the
            level is that of all looks together.
        limit: Largest number of sequences with `n="enough"`.
        alpha: Level of all verdicts of an audit together (Holm), and of labels.
        outcomes: Names of the outcomes that count; if None, all of the task's. Verdicts are based on those on which the
            model is far enough above chance for n sequences.
        at_chance: Accept a model that is not above chance, for which few verdicts are possible.
        seed: Determines sequences, references and random rows.

    Raises:
        ValueError: an inconsistent task, a model that does not fit it, a task without relations visible to the model,
            an unknown outcome, too few sequences for any verdict (says how many are needed), or a model at chance.

    Source: rules on growing samples: see `Evidence`.
    """
    check_task(task)
    model = prepare_model(model, "audit", task)
    check_level(alpha)
    looks = planned_looks(n, limit)
    experiments, judged_by = _first_look(model, task, looks, outcomes, alpha=alpha, at_chance=at_chance, seed=seed)
    patterns = classify_heads(model, task, n=len(experiments.batch), alpha=alpha, seed=seed)
    labels = {head: patterns.label[head[0]][head[1]] for head in experiments.heads}
    labels = {head: label for head, label in labels.items() if label in patterns.kinds}
    found = _Audit(labels, judged_by, alpha=alpha, n_looks=len(looks))
    found.look(experiments)
    for size in looks:
        done = len(found.evidence.total)
        if size > done and found.undecided():
            batch = task.sample(size - done, generator=derived_generator(seed, "audit", size), split="test")
            found.look_again(HeadExperiments(model, task, batch, seed, first=done))
    return AuditResult(
        heads=found.verdicts(patterns),
        kinds=patterns.kinds,
        interventions=INTERVENTIONS,
        outcomes=judged_by.names,
        clean=judged_by.clean,
        threshold=judged_by.threshold,
        sets=found.set_costs(),
        exact=found.sets.exact,
        largest_harmless=found.sets.largest_harmless,
        smallest_harmful=found.sets.smallest_harmful,
        warnings=judged_by.warnings,
        alpha=alpha,
        n=len(found.evidence.total),
        n_looks=len(looks),
    )


def _first_look(
    model: Net, task: Task, looks: Sequence[int], outcomes: Sequence[str] | None, *, alpha: float, at_chance: bool,
    seed: int,
) -> tuple[HeadExperiments, JudgedOutcomes]:  # fmt: skip
    """Experiments on the smallest planned number of sequences that is enough for every outcome above chance."""
    for size in looks:
        batch = task.sample(size, generator=derived_generator(seed, "audit"), split="test")
        _check_relations(model, task, batch)
        experiments = HeadExperiments(model, task, batch, seed)
        options = {"alpha": alpha / len(looks), "n_tests": 2 * len(JUDGED) * len(experiments.heads)}
        score, last = experiments.score(), size == looks[-1]
        judged_by = judged_outcomes(score, task, outcomes, **options, at_chance=at_chance or not last)
        if last or not judged_by.too_few:
            return experiments, judged_by
    raise AssertionError


@dataclass
class _Audit:
    """The evidence on all heads and sets after one or several looks."""

    labels: Mapping[Head, str]
    judged_by: JudgedOutcomes
    alpha: float
    n_looks: int
    evidence: Evidence = field(init=False)
    sets: HeadSets = field(init=False)
    heads: list[Head] = field(init=False)
    doubtful: set[Head] = field(init=False, default_factory=set)
    """Heads whose removal costs accuracy on an outcome that is left out for too few sequences."""

    def look(self, experiments: HeadExperiments) -> None:
        """Measure every head, search for sets of heads on other sequences, and measure those."""
        model, task, seed, by = experiments.model, experiments.task, experiments.seed, self.judged_by
        self.heads, self.evidence = experiments.heads, Evidence(by.threshold, self.n_looks)
        negligible = np.full(len(task.outcomes), np.inf)
        negligible[by.places] = by.threshold / 2
        effects = experiments.effects(self.labels, negligible=negligible)
        batch = task.sample(
            max(32, len(experiments.batch) // SEARCHED), generator=derived_generator(seed, "search"), split="validation"
        )
        for place, threshold in by.too_few.items():
            costly = effects.mean("mean")[:, place] >= threshold
            self.doubtful |= {head for head, one in zip(self.heads, costly, strict=True) if one}
        mean = effects.on(by.places).mean("mean")
        needed = dict(zip(self.heads, (mean > by.threshold).any(-1).tolist(), strict=True))
        searching = HeadExperiments(model, task, batch, seed, keep=True)
        self.sets = find_sets(searching, needed, by.places, by.threshold)
        self._add(experiments, effects, range(len(self._sets)))

    def look_again(self, experiments: HeadExperiments) -> None:
        """Measure the undecided heads, and the undecided sets that contain one, on further sequences."""
        undecided, p = self.undecided(), self.evidence.p
        together = np.concatenate([np.minimum(p.matters[name], p.harmless[name]) for name in (HARMFUL, CANCELLING)])
        still = [at for at, one in enumerate(self._sets) if together[at] > self.alpha and undecided & set(one)]
        chosen = undecided.union(*(self._sets[at] for at in still))
        # patterns that test a label were left out where no verdict depends on them
        tried = np.isfinite(self.evidence.drop["ideal"][0]).all(-1)
        labels = {
            head: self.labels[head] for head, was in zip(self.heads, tried, strict=True) if was and head in chosen
        }
        self._add(experiments, experiments.effects(labels, chosen=chosen, described=self.labels), still)

    @property
    def _sets(self) -> list[tuple[Head, ...]]:
        return [*self.sets.harmful, *self.sets.cancelling]

    def _add(self, experiments: HeadExperiments, effects: Effects, wanted: Sequence[int]) -> None:
        """Add effects on heads, and those of the sets with these indices."""
        places, n_harmful = self.judged_by.places, len(self.sets.harmful)
        effects = effects.on(places)
        together = np.full((len(effects.total), len(self._sets), len(places)), np.nan)
        together[:, list(wanted)] = experiments.removed([self._sets[at] for at in wanted])[:, :, places]
        excess = together[:, :n_harmful].copy()
        for at, chosen in enumerate(self.sets.harmful):
            excess[:, at] -= effects.drop["mean"][:, [self.heads.index(head) for head in chosen]].sum(1)
        sets = {HARMFUL: excess, CANCELLING: together[:, n_harmful:], TOGETHER: together}
        self.evidence.add({**effects.drop, **sets}, effects.total)

    def judge(self, p: PValues) -> list[Judged]:
        """Verdicts on all heads by these p values."""
        findings = set_findings(self.sets.harmful, self.sets.cancelling, p, heads=self.heads, alpha=self.alpha)
        readable = [head in self.labels for head in self.heads]
        options = {"alpha": self.alpha, "at_chance": self.judged_by.at_chance, "doubtful": self.doubtful}
        return judge(self.heads, readable, p, sets=findings, **options)

    def undecided(self) -> set[Head]:
        """Heads without a verdict, of which further sequences may give one."""
        judged = zip(self.heads, self.judge(self.evidence.p), strict=True)
        return {head for head, one in judged if one.verdict == "undecided" and one.reason != "nothing to lose"}

    def verdicts(self, patterns: HeadPatterns) -> tuple[HeadVerdict, ...]:
        """A record of each head: what it looks like, its costs, its verdict."""
        p, to_decide = self.evidence.p, self.evidence.n_to_decide(self.judge)
        costs = self._costs(p)
        records = []
        for index, (head, one) in enumerate(zip(self.heads, self.judge(p), strict=True)):
            needed = {name: _decided(costs[index][name], self.alpha) for name in REMOVALS}
            more = {"needed": needed, "costs": costs[index], "n_to_decide": to_decide[index]}
            records.append(HeadVerdict(**vars(one), **_evidence(patterns, head), **more))
        return tuple(records)

    def _costs(self, p: PValues) -> list[dict[str, Cost]]:
        """Cost of every intervention that was tried, for each head."""
        costs: list[dict[str, Cost]] = [{} for _ in self.heads]
        for name in INTERVENTIONS:
            ends, sizes = self.evidence.intervals(name), self.evidence.n(name)
            for head in np.flatnonzero(sizes).tolist():
                tests = {}
                if name in JUDGED:
                    tests = {"p_matters": float(p.matters[name][head]), "p_harmless": float(p.harmless[name][head])}
                costs[head][name] = _cost(ends, head, int(sizes[head]), **tests)
        return costs

    def set_costs(self) -> tuple[SetCost, ...]:
        """Cost of every set that was tested."""
        p, ends, sizes = self.evidence.p, self.evidence.intervals(TOGETHER), self.evidence.n(TOGETHER)
        kinds = [(HARMFUL, at) for at in range(len(self.sets.harmful))]
        kinds += [(CANCELLING, at) for at in range(len(self.sets.cancelling))]
        found = []
        for index, (chosen, (kind, at)) in enumerate(zip(self._sets, kinds, strict=True)):
            tests = {"p_matters": float(p.matters[kind][at]), "p_harmless": float(p.harmless[kind][at])}
            found.append(SetCost(heads=chosen, kind=kind, cost=_cost(ends, index, int(sizes[index]), **tests)))
        return tuple(found)


def _cost(ends: tuple[np.ndarray, np.ndarray, np.ndarray], at: int, n: int, **tests: float) -> Cost:
    drop, low, high = (tuple(end[at].tolist()) for end in ends)
    return Cost(drop=drop, low=low, high=high, n=n, **tests)


def _decided(cost: Cost, alpha: float) -> bool | None:
    """Whether an intervention costs accuracy; None if undecided."""
    if cost.p_matters is not None and cost.p_matters <= alpha:
        return True
    return False if cost.p_harmless is not None and cost.p_harmless <= alpha else None


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
