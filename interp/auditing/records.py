"""Records of an audit: what an intervention costs, the verdict on a head with its evidence, and sets of heads."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, cast, get_args

import numpy as np
from jaxtyping import Float

from hooks.interventions.ablation_engine import Head
from hooks.typed import COUNT, DIFFERENCE, MAY_BE_MISSING, SHARE, SIZE, Axes
from interp.auditing.interventions import NEEDED_IN, TESTED, TOGETHER
from interp.auditing.removed_sets import Heads
from interp.auditing.sets import HeadSets, heads_without
from interp.auditing.significance import GrowingEvidence, PValues
from interp.auditing.verdicts import Decision, HeadFacts, Verdict, decide, needed_on_outcomes
from interp.core.consistency import check_lost_accuracy, check_that
from interp.core.intervals import Interval
from interp.core.statistics import drop_interval
from interp.heads.classify import HeadPatterns
from interp.heads.interventions import REMOVALS

OfPart = Literal["needed", "redundant", "marginal", "idle", "undecided"]
"""Verdicts on parts that have no pattern to be read."""
PART_VERDICTS: tuple[OfPart, ...] = get_args(OfPart)
FactsAbout = Callable[..., Sequence[Sequence[HeadFacts]]]
"""What p values show about each head on each outcome."""


@dataclass(frozen=True, kw_only=True)
class InterventionCost:
    """Accuracy lost under one intervention, for each outcome that the audit judges by."""

    drop: Annotated[tuple[float, ...], Axes("outcome"), DIFFERENCE]
    """Clean accuracy minus accuracy under the intervention, as a fraction."""
    low: Annotated[tuple[float, ...], Axes("outcome"), DIFFERENCE]
    high: Annotated[tuple[float, ...], Axes("outcome"), DIFFERENCE]
    """Bounds of its 95 % interval; exact, so wider than zero where nothing was lost."""
    p_matters: Annotated[float, SHARE] | None = None
    """p value (Bonferroni) of "no outcome loses more than its threshold"; None if no verdict depends on it."""
    p_harmless: Annotated[float, SHARE] | None = None
    """p value (Bonferroni) of "some outcome loses more than its threshold"."""
    n: Annotated[int, COUNT]
    """Number of sequences."""
    exact: bool = False
    """These are all inputs of the task: the bounds are the drop, and p values are 0 or 1."""

    def __post_init__(self) -> None:
        Interval(value=self.drop, low=self.low, high=self.high, n=self.n, exact=self.exact)  # type: ignore[arg-type]

    def worst(self, threshold: Float[np.ndarray, " outcome"]) -> int:
        """Index of the outcome with the largest drop relative to its threshold."""
        return int((np.array(self.drop) / threshold).argmax())


def check_costs(costs: Sequence[tuple[str, InterventionCost]], *, clean: Float[np.ndarray, " outcome"], n: int) -> None:
    """Check that costs have one number for each outcome of an audit, and fit its accuracies and sequences.

    Args:
        costs: What was removed, in words, and what it costs.
        clean: Accuracy of the whole model on each outcome.
        n: Number of sequences of the audit.

    Raises:
        ValueError: a cost that does not; names it.
    """
    for name, cost in costs:
        text = f"{name} has costs on {len(cost.drop)} outcomes; the audit has {len(clean)}."
        check_that(len(cost.drop) == len(clean), text)
        if cost.n == n:  # others are on fewer sequences, of which the accuracy is not known
            check_lost_accuracy(f"drop of {name}", cost.drop, clean)
        check_that(cost.n <= n, f"n of {name} is {cost.n}; that of the audit is {n}.")


@dataclass(frozen=True, kw_only=True)
class RemovalRecord:
    """What removing a head or another part costs, and its verdict."""

    verdict: str
    reason: str
    """Why: the reason of the rule that gave the verdict (`interp.auditing.verdicts.RULES`)."""
    needed: Mapping[str, bool | None]
    """Whether the model needs it, by what takes the place of its output (zero, mean, resample); None if undecided, also
    if it costs accuracy on an outcome that is left out for too few sequences. The verdict is about the mean: a head
    whose output never changes can be needed under zero and not under the mean."""
    costs: Mapping[str, InterventionCost]
    """By intervention; those that test a label are tried on labelled heads whose removal costs more than a little."""
    beyond_others: InterventionCost | None = None
    """Accuracy lost when it is removed too, once the others are removed of the set in which it costs most beyond them;
    None if it was tested in none."""
    outcome: str = ""
    """The outcome on which this is its verdict."""
    n_to_decide: Annotated[int, COUNT] | None = None
    """Number of sequences that would decide an undecided verdict, if further ones are like those so far; None if it is
    decided, or if 250 times that number would not decide it."""

    @property
    def is_open(self) -> bool:
        """Whether it is undecided, and more sequences could decide it."""
        return self.verdict == "undecided" and self.reason not in ("nothing to lose", "left out")

    @property
    def n(self) -> int:
        """Number of sequences behind the verdict: that of its removal alone, or of more beyond others."""
        n_beyond = 0 if self.beyond_others is None else self.beyond_others.n
        return max(self.costs["mean"].n, n_beyond)


@dataclass(frozen=True, kw_only=True)
class HeadVerdict(RemovalRecord):
    """Verdict on one head, with its evidence."""

    layer: Annotated[int, COUNT]
    head: Annotated[int, COUNT]
    verdict: Verdict  # pyright: ignore[reportIncompatibleVariableOverride]  # records are frozen
    """faithful, hidden, redundant, misleading, marginal, idle or undecided."""
    partners: Annotated[tuple[Head, ...], COUNT]
    """(layer, head) of heads that do the same work, or that cancel this one."""
    label: str
    """Label from `classify_heads`: a kind, uniform or unclassified."""
    kind: str
    """The label if it is a kind, else the kind with the highest score."""
    score: Annotated[float, MAY_BE_MISSING]
    """Attention on the keys of that kind: 0 at chance, 1 for all of it."""
    score_low: Annotated[float, MAY_BE_MISSING]
    score_high: Annotated[float, MAY_BE_MISSING]
    """Bounds of its 95 % interval."""
    p_label: Annotated[float, SHARE, MAY_BE_MISSING]
    """p value of the score (Holm, over all heads and kinds)."""
    value_weighted: Annotated[float, MAY_BE_MISSING]
    """The score with each key weighted by the norm of what the head writes from it."""
    moved: Annotated[float, SIZE, MAY_BE_MISSING]
    """Mean over queries of the sum of those norms, weighted by attention."""
    other_heads: Annotated[tuple[Head, ...], COUNT] = ()
    """The other heads of the set of `beyond_others`; empty if it was tested in none."""
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    """The verdict on each outcome, by its name."""
    acts_like: str = ""
    """The kind whose pattern was tried in place of its own, of a needed head without a label."""
    seeds_agree: Annotated[float, SHARE] | None = None
    """Fraction of the models of other seeds with a head of this label and verdict in this layer."""
    edges_in: tuple[str, ...] | None = None
    """Needed edges into its queries, keys and values, the most costly first; None unless edges were measured
    (`AuditResult.with_edges`)."""
    edges_out: tuple[str, ...] | None = None
    """Needed edges from it to later inputs, through which its effect leaves."""

    @property
    def place(self) -> Head:
        """(layer, head)."""
        return self.layer, self.head

    @property
    def counted_as(self) -> str:
        """Its verdict in counts of heads, where faithful heads without a label are counted apart."""
        return self.reason if self.reason == "like a kind" else self.verdict

    @property
    def readable(self) -> bool:
        """Whether the label is a kind."""
        return self.label == self.kind


@dataclass(frozen=True, kw_only=True)
class PartVerdict(RemovalRecord):
    """Verdict on a part without a pattern to look at, with its evidence."""

    name: str
    """Its name: `0 MLP`, `0 MLP 5`, `0.1` or `embedding`."""
    verdict: OfPart  # pyright: ignore[reportIncompatibleVariableOverride]  # records are frozen
    """needed, redundant, marginal, idle or undecided."""
    partners: tuple[str, ...]
    """Parts that do the same work, or that cancel this one."""
    other_parts: tuple[str, ...] = ()
    """The other parts of the set of `beyond_others`; empty if it was tested in none."""
    verdicts: Mapping[str, OfPart] = field(default_factory=dict)
    """The verdict on each outcome, by its name."""


@dataclass(frozen=True, kw_only=True)
class SetCost:
    """Heads that were removed together, and what that costs."""

    heads: Annotated[tuple[Head, ...], COUNT]
    kind: Literal["costly", "cancelling"]
    """`costly`: in the search, some of the heads cost accuracy once the others are gone, more than alone;
    `cancelling`: in the search, harmless together, though all may be needed alone."""
    cost: InterventionCost


def head_verdicts(
    heads: Sequence[Head],
    patterns: HeadPatterns,
    evidence: GrowingEvidence,
    facts_about: FactsAbout,
    *,
    sets: HeadSets,
    outcomes: Sequence[str],
    tried: Mapping[Head, str],
    interventions: Sequence[str],
) -> tuple[HeadVerdict, ...]:
    """A record of each head: what it looks like, its costs, its verdict.

    Args:
        heads: All heads.
        patterns: Their labels and scores.
        evidence: Effects and p values.
        facts_about: What p values show about each head on each outcome.
        sets: Sets that were tested.
        outcomes: Names of the outcomes that count.
        tried: Kinds whose patterns were tried, by head.
        interventions: Every intervention, by name.
    """

    records = []
    judged = judged_by_removal(heads, evidence, facts_about, sets, outcomes, interventions)
    for (layer, head), decision, other_heads, removal in judged:
        kind = patterns.best_kind(layer, head)
        acts_like = tried.get((layer, head), "")
        if decision.reason == "like a kind":
            kind = patterns.kinds.index(acts_like)
        cell = (layer, head, kind)
        record = HeadVerdict(
            layer=layer,
            head=head,
            verdict=decision.verdict,
            partners=decision.partners,
            label=patterns.label[layer][head],
            kind=patterns.kinds[kind],
            score=float(patterns.score[cell]),
            score_low=float(patterns.score.low[cell]),
            score_high=float(patterns.score.high[cell]),
            p_label=float(patterns.p_holm[cell]),
            value_weighted=float(patterns.value_weighted[cell]),
            moved=float(patterns.moved[layer, head]),
            other_heads=other_heads,
            verdicts=dict(zip(outcomes, decision.verdicts, strict=True)),
            acts_like=acts_like,
            **removal,
        )
        records.append(record)
    return tuple(records)


def part_verdicts(
    names: Mapping[Head, str],
    evidence: GrowingEvidence,
    facts_about: FactsAbout,
    *,
    sets: HeadSets,
    outcomes: Sequence[str],
) -> tuple[PartVerdict, ...]:
    """A record of each part: its costs and its verdict.

    Args:
        names: Name of each part, by its place.
        evidence: Effects and p values.
        facts_about: What p values show about each part on each outcome.
        sets: Sets that were tested.
        outcomes: Names of the outcomes that count.
    """
    records = []
    judged = judged_by_removal(list(names), evidence, facts_about, sets, outcomes, REMOVALS)
    for place, decision, other_places, removal in judged:
        on_outcomes: list[OfPart] = [_of_part(verdict) for verdict in decision.verdicts]
        record = PartVerdict(
            name=names[place],
            verdict=_of_part(decision.verdict),
            partners=tuple(map(names.__getitem__, decision.partners)),
            other_parts=tuple(map(names.__getitem__, other_places)),
            verdicts=dict(zip(outcomes, on_outcomes, strict=True)),
            **removal,
        )
        records.append(record)
    return tuple(records)


def _of_part(verdict: Verdict) -> OfPart:
    """A verdict on a head without a label, in the words for parts: what is needed cannot be hidden by its look."""
    return "needed" if verdict == "hidden" else cast(OfPart, verdict)


def judged_by_removal(
    heads: Sequence[Head],
    evidence: GrowingEvidence,
    facts_about: FactsAbout,
    sets: HeadSets,
    outcomes: Sequence[str],
    interventions: Sequence[str],
) -> Iterator[tuple[Head, Decision, Heads, dict[str, Any]]]:
    """For each head: its verdict, the others of the set in which it costs most beyond them, and the fields of a
    `RemovalRecord`; the arguments are those of `head_verdicts`."""

    def is_decided(p: PValues) -> list[bool]:
        return [decide(facts).verdict != "undecided" for facts in facts_about(p, losses=evidence.losses)]

    n_to_decide, costs = evidence.n_to_decide(is_decided), _costs(evidence, interventions)
    for index, facts in enumerate(facts_about(evidence.p, losses=evidence.losses)):
        decision = decide(facts)
        other_heads, beyond_others = _costliest_set(evidence, sets, heads[index], decision.outcome)
        fields = {
            "reason": decision.reason,
            "needed": {name: needed_on_outcomes(facts, name) for name in REMOVALS},
            "costs": costs[index],
            "beyond_others": beyond_others,
            "outcome": outcomes[decision.outcome],
            "n_to_decide": n_to_decide[index],
        }
        yield heads[index], decision, other_heads, fields


def _costs(evidence: GrowingEvidence, interventions: Sequence[str]) -> list[dict[str, InterventionCost]]:
    """Cost of every intervention that was tried, for each head."""
    p = evidence.p
    costs: list[dict[str, InterventionCost]] = [{} for _ in p.matters["mean"]]
    for name in interventions:
        intervals, sizes = evidence.intervals(name), evidence.effects.n(name)
        for index in np.flatnonzero(sizes).tolist():
            tests = {}
            if name in TESTED:
                # It costs accuracy on some outcome, or is harmless on all of them
                p_matters, p_harmless = p.matters[name][index].min(), p.harmless[name][index].max()
                tests = {"p_matters": float(p_matters), "p_harmless": float(p_harmless)}
            exact = evidence.effects.every_input
            costs[index][name] = _cost(intervals[:, index], int(sizes[index]), exact=exact, **tests)
    return costs


def _costliest_set(
    evidence: GrowingEvidence, sets: HeadSets, head: Head, outcome: int
) -> tuple[tuple[Head, ...], InterventionCost | None]:
    """The others of the set in which a head costs most beyond them on an outcome, and that cost."""
    intervals, sizes = evidence.intervals(NEEDED_IN), evidence.effects.n(NEEDED_IN)
    pairs = [pair for pair, (member, _) in enumerate(sets.needed_pairs) if member == head and sizes[pair]]
    if not pairs:
        return (), None
    costliest = max(pairs, key=lambda pair: intervals[0, pair, outcome])
    other_heads = heads_without(head, sets.needed_pairs[costliest][1])
    cost = _cost(intervals[:, costliest], int(sizes[costliest]), exact=evidence.effects.every_input)
    return other_heads, cost


def set_costs(evidence: GrowingEvidence, sets: HeadSets) -> tuple[SetCost, ...]:
    """Cost of every set that was tested."""
    intervals, sizes = evidence.intervals(TOGETHER), evidence.effects.n(TOGETHER)
    records = []
    for index, heads in enumerate((*sets.costly, *sets.cancelling)):
        kind = "costly" if index < len(sets.costly) else "cancelling"
        cost = _cost(intervals[:, index], int(sizes[index]), exact=evidence.effects.every_input)
        records.append(SetCost(heads=heads, kind=kind, cost=cost))
    return tuple(records)


def cost_of_set(
    drop: Float[np.ndarray, "sample outcome"], total: Float[np.ndarray, "sample outcome"], *, every_input: bool
) -> InterventionCost:
    """What removing heads together costs, without a test.

    Args:
        drop: Right answers lost in each sequence.
        total: Answers scored.
        every_input: The sequences are every input, so that the cost is exact.
    """
    if every_input:
        interval = np.broadcast_to(drop.sum(0) / np.maximum(total.sum(0), 1e-300), (3, drop.shape[1]))
    else:
        interval = np.stack(drop_interval(drop, total))
    return _cost(interval, len(drop), exact=every_input)


def _cost(interval: Float[np.ndarray, "3 outcome"], n: int, *, exact: bool, **tests: float) -> InterventionCost:
    drop, low, high = (tuple(ends.tolist()) for ends in interval)
    return InterventionCost(drop=drop, low=low, high=high, n=n, exact=exact, **tests)
