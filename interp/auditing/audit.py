"""Audit of attention heads: does each head do what it looks like?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from hooks.checks import checks_types
from hooks.interventions.ablation_engine import Head, Net
from interp.auditing.experiments import INTERVENTIONS, Effects, HeadExperiments
from interp.auditing.records import Cost, HeadVerdict, SetCost
from interp.auditing.result import AuditResult
from interp.auditing.sets import HeadSets, find_sets
from interp.auditing.significance import Evidence, planned_looks, share_of_look
from interp.auditing.verdicts import (
    CANCELLING,
    JUDGED,
    NEEDED_IN,
    SHARES,
    TOGETHER,
    Judged,
    JudgedOutcomes,
    PValues,
    corrections,
    judge,
    judged_outcomes,
    set_findings,
)
from interp.core.activations import chunks
from interp.core.evaluation_mode import in_evaluation_mode
from interp.core.progress import Count
from interp.core.randomness import derived_generator
from interp.core.statistics import check_level
from interp.core.verbs import AnyModel, prepare_model, visible_keys
from interp.heads.classify import HeadPatterns, classify_heads
from interp.heads.kinds import kinds_of, related_keys, sequences_at_once
from interp.heads.methods import REMOVALS
from interp.tasks.base import Batch, Task
from interp.tasks.check import check_task

SEARCHED = 4
"""Sets of heads are searched for on a separate batch, smaller by this factor."""


@checks_types
@in_evaluation_mode
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
        n: Number of held-out sequences, the independent units of every interval and p value: in a finite task, draws
            from its few inputs, about which the verdicts then are. "enough": look after 256 sequences, then double the
            number for the undecided heads until all are decided or `limit` is reached; the level is that of all looks
            together.
        limit: Largest number of sequences with `n="enough"`.
        alpha: Level of all verdicts of an audit together (Bonferroni), and of labels.
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
    with Count("auditing heads", 2 + len(looks)) as count:
        experiments, judged_by = _first_look(model, task, looks, outcomes, alpha=alpha, at_chance=at_chance, seed=seed)
        count.one()
        patterns = classify_heads(model, task, n=len(experiments.batch), alpha=alpha, seed=seed)
        labels = {head: patterns.label[head[0]][head[1]] for head in experiments.heads}
        labels = {head: label for head, label in labels.items() if label in patterns.kinds}
        count.one()
        found = _Audit(labels, judged_by, alpha=alpha, looks=looks)
        found.look(experiments)
        inputs = set(experiments.batch.input_keys())
        for size in looks:
            done = len(found.evidence.total)
            if size > done and found.undecided():
                batch = task.sample(size - done, generator=derived_generator(seed, "audit", size), split="test")
                found.look_again(HeadExperiments(model, task, batch, seed, first=done))
                inputs.update(batch.input_keys())
            count.one()
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
        n_distinct=len(inputs),
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
        factor = len(experiments.heads) / SHARES["needed"]
        options = {"alpha": alpha * share_of_look(size, looks), "factor": factor}
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
    looks: Sequence[int]
    evidence: Evidence = field(init=False)
    sets: HeadSets = field(init=False)
    heads: list[Head] = field(init=False)
    doubtful: dict[str, set[Head]] = field(init=False, default_factory=dict)
    """Heads whose removal costs accuracy on an outcome that is left out for too few sequences, by kind of removal."""

    def look(self, experiments: HeadExperiments) -> None:
        """Measure every head, search for sets of heads on other sequences, and measure those."""
        model, task, seed, by = experiments.model, experiments.task, experiments.seed, self.judged_by
        self.heads = experiments.heads
        negligible = np.full(len(task.outcomes), np.inf)
        negligible[by.places] = by.threshold / 2
        effects = experiments.effects(self.labels, negligible=negligible)
        batch = task.sample(
            max(32, len(experiments.batch) // SEARCHED), generator=derived_generator(seed, "search"), split="validation"
        )
        lost = effects.mean("mean")
        left_out, bars = list(by.too_few), np.array(list(by.too_few.values()))
        for name in REMOVALS:
            rows = zip(self.heads, effects.mean(name)[:, left_out], strict=True)
            self.doubtful[name] = {head for head, row in rows if (row >= bars).any()}
        needed = {head: bool((lost[at, by.places] > by.threshold).any()) for at, head in enumerate(self.heads)}
        searching = HeadExperiments(model, task, batch, seed, keep=True)
        self.sets = find_sets(searching, needed, by.places, by.threshold)
        n_pairs, n_cancelling = len(self._pairs), len(self.sets.cancelling)
        factors = corrections(len(self.heads), len(self.labels), n_pairs + n_cancelling)
        self.evidence = Evidence(by.threshold, self.looks, factors)
        self._add(experiments, effects, range(n_pairs), range(n_cancelling))

    def look_again(self, experiments: HeadExperiments) -> None:
        """Measure the undecided heads, and the undecided sets that may decide one, on further sequences."""
        undecided, p = self.undecided(), self.evidence.p
        of_heads, of_sets = (np.minimum(p.matters[name], p.harmless[name]) for name in (NEEDED_IN, CANCELLING))
        pairs = [at for at, (head, _) in enumerate(self._pairs) if of_heads[at] > self.alpha and head in undecided]
        cancelling = self.sets.cancelling
        sets = [at for at, chosen in enumerate(cancelling) if of_sets[at] > self.alpha and undecided & set(chosen)]
        # interventions that test a label were left out where no verdict depends on them
        tried = np.isfinite(self.evidence.drop["ideal"][0]).all(-1)
        labels = {head: self.labels[head] for head, was in zip(self.heads, tried, strict=True) if was}
        effects = experiments.effects(labels, chosen=undecided, described=self.labels)
        self._add(experiments, effects, pairs, sets)

    @property
    def _pairs(self) -> list[tuple[Head, tuple[Head, ...]]]:
        """Heads, each with a set in which it may be needed."""
        return [(head, chosen) for head, own in self.sets.needed_in.items() for chosen in own]

    @property
    def _sets(self) -> list[tuple[Head, ...]]:
        return [*self.sets.harmful, *self.sets.cancelling]

    def _add(
        self, experiments: HeadExperiments, effects: Effects, pairs: Sequence[int], cancelling: Sequence[int]
    ) -> None:
        """Add effects on heads, and those of the heads in sets and of the cancelling sets with these indices."""
        wanted = [chosen for at in pairs for chosen in (self._pairs[at][1], self._without(at))]
        wanted = list(dict.fromkeys([*wanted, *(self.sets.cancelling[at] for at in cancelling)]))
        places = self.judged_by.places
        lost = dict(zip(wanted, experiments.removed(wanted)[:, :, places].swapaxes(0, 1), strict=True))
        effects = effects.on(places)
        untried = np.full((len(effects.total), len(places)), np.nan)
        more = [lost[self._pairs[at][1]] - lost[self._without(at)] if at in pairs else untried
                for at in range(len(self._pairs))]  # fmt: skip
        whole = [lost[chosen] if at in cancelling else untried for at, chosen in enumerate(self.sets.cancelling)]
        together = [lost.get(chosen, untried) for chosen in self._sets]
        sets = {NEEDED_IN: more, CANCELLING: whole, TOGETHER: together}
        shape = (0, *untried.shape)
        stacked = {name: np.array(each).reshape(-1, *shape[1:]).swapaxes(0, 1) for name, each in sets.items()}
        self.evidence.add({**effects.drop, **stacked}, effects.total)

    def _without(self, at: int) -> tuple[Head, ...]:
        head, chosen = self._pairs[at]
        return tuple(other for other in chosen if other != head)

    def judge(self, p: PValues) -> list[Judged]:
        """Verdicts on all heads by these p values."""
        findings = set_findings(self._pairs, self.sets.cancelling, p, heads=self.heads, alpha=self.alpha)
        readable = [head in self.labels for head in self.heads]
        options = {"alpha": self.alpha, "at_chance": self.judged_by.at_chance, "doubtful": self.doubtful["mean"]}
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
            needed |= {name: needed[name] or None for name in REMOVALS if head in self.doubtful[name]}
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
        ends, sizes = self.evidence.intervals(TOGETHER), self.evidence.n(TOGETHER)
        n_harmful = len(self.sets.harmful)
        return tuple(
            SetCost(
                heads=chosen,
                kind="harmful" if index < n_harmful else "cancelling",
                cost=_cost(ends, index, int(sizes[index])),
            )
            for index, chosen in enumerate(self._sets)
        )


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
    kinds = kinds_of(task, batch)
    if not kinds:
        raise ValueError("this task has none of the registered kinds; register one with interp.heads.register_kind.")

    def reaches(part: Batch) -> bool:
        allowed = visible_keys(model, part.tokens, part.attention_mask)
        return bool((related_keys(task, part, kinds) & allowed[:, None]).any())

    if not any(reaches(part) for part in chunks(batch, sequences_at_once(batch))):
        raise ValueError(
            f"none of the task's relations ({', '.join(kinds)}) reaches a key that is visible to the model, whose "
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
