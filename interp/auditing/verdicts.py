"""Verdict rules, as a table, and the facts about heads that they are applied to. docs/audit.md has the same table."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Literal, get_args

import numpy as np

from hooks.interventions.ablation_engine import Head
from interp.auditing.experiments import Effects
from interp.auditing.interventions import CANCELLING, NEEDED_IN, TESTED
from interp.auditing.sets import Heads, HeadSets
from interp.auditing.significance import PValues
from interp.heads.ablation_methods import REMOVALS

Verdict = Literal["faithful", "misleading", "hidden", "idle", "redundant", "undecided"]
HEAD_VERDICTS: tuple[str, ...] = get_args(Verdict)


@dataclass(frozen=True, kw_only=True)
class HeadFacts:
    """What an audit has shown about one head."""

    labelled: bool
    """Its label is a kind."""
    costs: Collection[str]
    """Interventions on it that cost accuracy, each significantly."""
    harmless: Collection[str]
    """Interventions on it that are harmless, each significantly."""
    partners: Mapping[str, tuple[Head, ...]] = field(default_factory=dict)
    """Other heads of the sets that show something about it, by the reason that they give (`partners_in_sets`)."""
    doubtful: Collection[str] = ()
    """Removals of it that cost accuracy on an outcome that is left out for too few sequences."""
    at_chance: bool = False
    """The model has no accuracy to lose, so that no head can be called harmless."""

    def needed(self, removal: str) -> bool | None:
        """Whether the model needs it, by what takes the place of its output; None if undecided."""
        if removal in self.costs:
            return True
        if removal in self.harmless and removal not in self.doubtful:
            return False
        return None


VerdictRule = tuple[Callable[[HeadFacts], bool], Verdict, str]
"""Condition, verdict, and reason, which is a key of `interp.auditing.sentences.REASONS`."""

RULES: tuple[VerdictRule, ...] = (
    # what sets show, and whether the head is needed
    (lambda head: "together" in head.partners,                              "redundant",  "together"),
    (lambda head: "cancelled" in head.partners and head.labelled,           "misleading", "cancelled"),
    (lambda head: "cancelled" in head.partners,                             "idle",       "cancelled"),
    (lambda head: head.at_chance and "mean" not in head.costs,              "undecided",  "nothing to lose"),
    (lambda head: "together too close" in head.partners,                    "undecided",  "together too close"),
    (lambda head: "mean" in head.harmless and "mean" in head.doubtful,      "undecided",  "left out"),
    (lambda head: "mean" in head.harmless and head.labelled,                "misleading", "not needed"),
    (lambda head: "mean" in head.harmless,                                  "idle",       "not needed"),
    (lambda head: "mean" not in head.costs,                                 "undecided",  "too close"),
    (lambda head: "cancelling too close" in head.partners,                  "undecided",  "cancelling too close"),
    # it is needed: through the pattern of its label?
    (lambda head: not head.labelled,                                        "hidden",     "needed"),
    (lambda head: "uniform" in head.harmless,                               "misleading", "not through its pattern"),
    (lambda head: "ideal" in head.costs and "label_only_pattern" in head.costs, "misleading", "through something else"),
    (lambda head: "resample" in head.harmless,                              "misleading", "content unused"),
    (lambda head: "wrong_key" in head.harmless,                             "misleading", "which key is irrelevant"),
    (lambda head: "resampled_values" in head.harmless,                      "misleading", "values unused"),
    (lambda head: "uniform" not in head.costs,                              "undecided",  "uniform too close"),
    (lambda head: "resample" not in head.costs,                             "undecided",  "resample too close"),
    (lambda head: "wrong_key" not in head.costs,                            "undecided",  "wrong_key too close"),
    (lambda head: "resampled_values" not in head.costs,                     "undecided",  "resampled_values too close"),
    (lambda head: "ideal" in head.harmless or "label_only_pattern" in head.harmless, "faithful", "through its pattern"),
    (lambda head: True,                                                     "undecided",  "reading too close"),
)  # fmt: skip
"""The first rule whose condition a head meets gives its verdict."""


@dataclass(frozen=True)
class Decision:
    """Verdict on one head, the rule that gave it, and the other heads involved."""

    verdict: Verdict
    reason: str
    partners: tuple[Head, ...] = ()
    """Heads that do the same work, or that cancel this one."""

    @property
    def is_open(self) -> bool:
        """Whether further sequences may give a verdict."""
        return self.verdict == "undecided" and self.reason != "nothing to lose"


def decide(head: HeadFacts) -> Decision:
    """Apply the rules to what is known about a head."""
    for condition, verdict, reason in RULES:
        if condition(head):
            return Decision(verdict, reason, head.partners.get(reason, ()))
    raise AssertionError


def facts_about_heads(
    p: PValues,
    heads: Sequence[Head],
    sets: HeadSets,
    *,
    labelled: Collection[Head],
    doubtful: Mapping[str, Collection[Head]],
    at_chance: bool,
    alpha: float,
) -> list[HeadFacts]:
    """What is significant about every head.

    Args:
        p: Corrected p values, heads in the order of `heads`.
        heads: All heads.
        sets: Sets that were tested, in the order of their p values.
        labelled: Heads whose label is a kind.
        doubtful: Heads whose removal costs accuracy on an outcome that is left out (`doubtful_heads`).
        at_chance: The model has no accuracy to lose.
        alpha: Level.
    """
    partners = partners_in_sets(p, heads, sets, alpha=alpha)
    facts_by_head = []
    for index, head in enumerate(heads):
        # A p value that is missing is not significant: its intervention was not tried
        facts = HeadFacts(
            labelled=head in labelled,
            costs=frozenset(name for name in TESTED if p.matters[name][index] <= alpha),
            harmless=frozenset(name for name in TESTED if p.harmless[name][index] <= alpha),
            partners=partners[head],
            doubtful=frozenset(name for name in REMOVALS if head in doubtful[name]),
            at_chance=at_chance,
        )
        facts_by_head.append(facts)
    return facts_by_head


def partners_in_sets(
    p: PValues, heads: Sequence[Head], sets: HeadSets, *, alpha: float
) -> dict[Head, dict[str, tuple[Head, ...]]]:
    """For each head and reason: the other heads of the smallest sets that give this reason.

    A head that is harmless alone may be needed in a set (`together`); one that matters alone may be in a set that is
    harmless (`cancelled`). With a set that is undecided, the head is too (`too close`).

    Args:
        p: Corrected p values.
        heads: All heads.
        sets: Sets that were tested, in the order of their p values.
        alpha: Level.
    """
    # What is significant about heads alone, heads in sets, and sets that may cancel
    harmless_alone = {head for head, p_alone in zip(heads, p.harmless["mean"], strict=True) if p_alone <= alpha}
    needed_alone = {head for head, p_alone in zip(heads, p.matters["mean"], strict=True) if p_alone <= alpha}
    needed_in, not_needed_in = p.matters[NEEDED_IN] <= alpha, p.harmless[NEEDED_IN] <= alpha
    costs_together, cancels = p.matters[CANCELLING] <= alpha, p.harmless[CANCELLING] <= alpha
    # The sets that give each reason, and whether the head must be harmless or needed alone
    may_cancel = ~cancels & ~costs_together
    cancelled = [(head, members) for members in compress(sets.cancelling, cancels) for head in members]
    maybe_cancelled = [(head, members) for members in compress(sets.cancelling, may_cancel) for head in members]
    partners_by_reason = {
        "together": _partners(compress(sets.needed_pairs, needed_in), harmless_alone),
        "together too close": _partners(compress(sets.needed_pairs, ~needed_in & ~not_needed_in), harmless_alone),
        "cancelled": _partners(cancelled, needed_alone),
        "cancelling too close": _partners(maybe_cancelled, needed_alone),
    }
    # The same by head
    partners_of_head: dict[Head, dict[str, tuple[Head, ...]]] = {head: {} for head in heads}
    for reason, partners in partners_by_reason.items():
        for head, members in partners.items():
            partners_of_head[head][reason] = members
    return partners_of_head


def _partners(pairs: Iterable[tuple[Head, Heads]], heads: Collection[Head]) -> dict[Head, Heads]:
    """For each of these heads that has sets: the other members of its smallest sets."""
    sets_of_head: dict[Head, list[Heads]] = {}
    for head, members in pairs:
        if head in heads:
            sets_of_head.setdefault(head, []).append(members)
    partners = {}
    for head, sets in sets_of_head.items():
        size = min(map(len, sets))
        smallest_sets = [members for members in sets if len(members) == size]
        members = set().union(*smallest_sets)
        partners[head] = tuple(sorted(members - {head}))
    return partners


def doubtful_heads(effects: Effects, heads: Sequence[Head], too_few: Mapping[int, float]) -> dict[str, set[Head]]:
    """Heads whose removal costs accuracy on an outcome that is left out for too few sequences, by kind of removal.

    Args:
        effects: Effects on all outcomes.
        heads: All heads.
        too_few: Loss of accuracy that counts on each outcome that is left out, by its index.
    """
    outcomes = list(too_few)
    thresholds = np.array(list(too_few.values()))
    doubtful = {}
    for name in REMOVALS:
        loss = effects.mean(name)[:, outcomes]
        doubtful[name] = {head for head, row in zip(heads, loss, strict=True) if (row >= thresholds).any()}
    return doubtful
