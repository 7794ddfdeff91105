"""Verdict rules, and the facts about heads that they are applied to. docs/audit_rules.md has the same table.

The rules are applied to each outcome, since a head may do different work on different outcomes; `decide` says which of
the verdicts is the head's.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

import numpy as np
from jaxtyping import Bool, Float

from hooks.interventions.ablation_engine import Head
from interp.auditing.experiments import Effects
from interp.auditing.interventions import CANCELLING, ITS_OWN_READING, MOSTLY_SHARED, NEEDED_IN, READINGS, TESTED
from interp.auditing.sets import HeadSets
from interp.auditing.significance import LITTLE, PValues, on_every_outcome, on_some_outcome
from interp.heads.interventions import REMOVALS

Verdict = Literal["faithful", "misleading", "hidden", "redundant", "marginal", "idle", "undecided"]
Look = Literal["labelled", "tried", "none"]
"""How a head is judged: by its label, by a kind that was tried, or without one."""
HEAD_VERDICTS: tuple[str, ...] = get_args(Verdict)


@dataclass(frozen=True, kw_only=True)
class HeadFacts:
    """What an audit has shown about one head on one outcome."""

    labelled: bool
    """Its label is a kind."""
    tried: bool = False
    """It has no label, and the pattern of a kind was tried in its place (`kinds_to_try`)."""
    loss: float = 0.0
    """Accuracy lost without it so far, as a multiple of the threshold; how long an audit goes on depends on it."""
    costs: Collection[str]
    """Interventions on it that cost more than the threshold, each significantly."""
    harmless: Collection[str]
    """Interventions on it that cost less, each significantly."""
    more_than_little: Collection[str] = ()
    """Interventions on it that cost more than `LITTLE` times the threshold, each significantly."""
    limited: Collection[str] = ()
    """Interventions on it that cost less than `MUCH` times the threshold, each significantly."""
    untried: Collection[str] = ()
    """Tests of a label that its kind does not allow."""
    partners: Mapping[str, tuple[Head, ...]] = field(default_factory=dict)
    """Other heads of the sets that show something about it, by the reason that they give (`partners_in_sets`)."""
    doubtful: Collection[str] = ()
    """Removals that cost accuracy on an outcome that is left out for too few sequences."""
    stratum: str = ""
    """A rare class of answers, or of sequences, in which removing it costs accuracy significantly."""
    at_chance: bool = False
    """The model has no accuracy to lose, so that no head can be called harmless."""

    @property
    def needed_alone(self) -> bool:
        """Whether removing it alone costs accuracy."""
        return "mean" in self.costs

    @property
    def about(self) -> Collection[str]:
        """Interventions that cost about as much as counts: not shown to cost more or less, but not far from it."""
        return set(self.more_than_little) & set(self.limited) - set(self.costs) - set(self.harmless)

    @property
    def is_partner(self) -> bool:
        """Whether another head shares its work with this one."""
        return "partner" in self.partners

    @property
    def readings(self) -> tuple[str, ...]:
        """Patterns that do what its label says. Of a head without one only its own attention to the keys of the kind:
        with the ideal pattern another head than this could be right, by other means."""
        return READINGS if self.labelled else (ITS_OWN_READING,)

    @property
    def has_readable_pattern(self) -> bool:
        """Whether the pattern that its label describes would do."""
        return not set(self.readings).isdisjoint(self.harmless)

    @property
    def any_key_would_do(self) -> bool:
        """Whether the pattern that its label describes would do, and any other attention in its rows as well, though
        the content of its output is not shown to be unused."""
        any_key = {"uniform", "wrong_key"} <= set(self.harmless) and "resample" not in self.harmless
        return any_key and self.has_readable_pattern

    @property
    def signals_presence(self) -> bool:
        """Whether its pattern says only whether there is a related key, as that of a duplicate detector does.

        Then any key would do, and the same row in a sequence without a related key would not.
        """
        return self.any_key_would_do and {"resample", "resampled_pattern"} <= set(self.costs)

    @property
    def may_signal_presence(self) -> bool:
        """Whether that is open."""
        return self.any_key_would_do and self.is_open("resampled_pattern") and "resampled_pattern" not in self.about

    @property
    def may_be_faithful(self) -> bool:
        """Whether no test of its label shows that it does not act through its pattern."""
        through_something_else = set(self.readings) <= set(self.costs)
        return not through_something_else and set(MUST_COST).isdisjoint(self.harmless)

    @property
    def may_be_needed_otherwise(self) -> bool:
        """Whether it probably is needed and does not act through its pattern, though neither is shown yet."""
        reading_fails = set(self.readings) <= set(self.costs) or not set(MUST_COST).isdisjoint(self.harmless)
        return self.is_open("mean") and self.loss > 1 and reading_fails

    @property
    def may_be_needed_alone(self) -> bool:
        """Whether it probably is needed alone, though that is not shown yet."""
        return self.is_open("mean") and self.loss > 1

    def is_open(self, name: str) -> bool:
        """Whether it is not known yet if an intervention that must cost accuracy does."""
        return name not in self.costs and name not in self.harmless and name not in self.untried

    def needed(self, removal: str) -> bool | None:
        """Whether the model needs it, by what takes the place of its output; None if undecided."""
        if removal in self.costs:
            return True
        if removal in self.harmless and removal not in self.doubtful:
            return False
        return None


MUST_COST = ("uniform", "resample", "wrong_key", "resampled_pattern", "resampled_values")
"""Interventions that cost accuracy if a head acts through its pattern."""
VerdictRule = tuple[Callable[[HeadFacts], bool], Verdict, str]
"""Condition, verdict, and reason, which is a key of `interp.auditing.sentences.REASONS`."""


def _about(name: str) -> Callable[[HeadFacts], bool]:
    return lambda head: head.is_open(name) and name in head.about


def _open(name: str) -> Callable[[HeadFacts], bool]:
    return lambda head: head.is_open(name)


RULES_OF_NEED: tuple[VerdictRule, ...] = (
    # what sets show, and whether the head is needed
    (lambda head: "cancelled" in head.partners and head.labelled,           "misleading", "cancelled"),
    (lambda head: "cancelled" in head.partners,                             "idle",       "cancelled"),
    (lambda head: "together" in head.partners,                              "redundant",  "together"),
    (lambda head: head.at_chance and not head.needed_alone,                 "undecided",  "nothing to lose"),
    (lambda head: "together too close" in head.partners and not head.needed_alone, "undecided", "together too close"),
    (lambda head: "mean" in head.harmless and "mean" in head.doubtful,      "undecided",  "left out"),
    (lambda head: "together about" in head.partners and not head.needed_alone, "marginal", "together about"),
    (lambda head: "mean" in head.harmless and bool(head.stratum),           "marginal",   "needed in a stratum"),
    (lambda head: "mean" in head.harmless and "mean" in head.more_than_little, "marginal",  "less than counts"),
    (lambda head: "mean" in head.harmless and head.labelled,                "misleading", "not needed"),
    (lambda head: "mean" in head.harmless,                                  "idle",       "not needed"),
    (lambda head: "mean" in head.about,                                     "marginal",   "about as much as counts"),
    (lambda head: not head.needed_alone,                                    "undecided",  "too close"),
    (lambda head: "cancelling too close" in head.partners,                  "undecided",  "cancelling too close"),
)  # fmt: skip
RULES_OF_READING: tuple[VerdictRule, ...] = (
    # it is needed: through the pattern of its label, or of the kind that was tried?
    (lambda head: not (head.labelled or head.tried),                        "hidden",     "needed"),
    (lambda head: head.signals_presence,                                    "faithful",   "through presence"),
    (lambda head: head.any_key_would_do and "resampled_pattern" in head.about, "marginal", "resampled_pattern about"),
    (lambda head: head.may_signal_presence,                             "undecided",  "resampled_pattern too close"),
    (lambda head: head.is_partner and not head.may_be_faithful,             "redundant",  "partner"),
    (lambda head: "uniform" in head.harmless,                               "misleading", "not through its pattern"),
    (lambda head: set(head.readings) <= set(head.costs),                       "misleading", "through something else"),
    (lambda head: "resample" in head.harmless,                              "misleading", "content unused"),
    (lambda head: "wrong_key" in head.harmless,                             "misleading", "which key is irrelevant"),
    (lambda head: "resampled_pattern" in head.harmless,                     "misleading", "any pattern would do"),
    (lambda head: "resampled_values" in head.harmless,                      "misleading", "values unused"),
    (_about("uniform"),                                                     "marginal",   "uniform about"),
    (_about("resample"),                                                    "marginal",   "resample about"),
    (_about("wrong_key"),                                                   "marginal",   "wrong_key about"),
    (_about("resampled_pattern"),                                           "marginal",   "resampled_pattern about"),
    (_about("resampled_values"),                                            "marginal",   "resampled_values about"),
    (_open("uniform"),                                                      "undecided",  "uniform too close"),
    (_open("resample"),                                                     "undecided",  "resample too close"),
    (_open("wrong_key"),                                                    "undecided",  "wrong_key too close"),
    (_open("resampled_pattern"),                                        "undecided",  "resampled_pattern too close"),
    (_open("resampled_values"),                                             "undecided",  "resampled_values too close"),
    (lambda head: head.has_readable_pattern,                                "faithful",   "through its pattern"),
    (lambda head: all(name in head.costs or name in head.about for name in head.readings), "marginal", "reading about"),
    (lambda head: True,                                                     "undecided",  "reading too close"),
)  # fmt: skip
RULES = (*RULES_OF_NEED, *RULES_OF_READING)
"""The first rule whose condition a head meets on an outcome gives its verdict there."""
NOT_NEEDED = ("not needed", "left out", "nothing to lose")
"""Reasons of heads that are not shown to cost anything on an outcome."""


@dataclass(frozen=True)
class Decision:
    """Verdict on one head, the rule that gave it, and the other heads involved."""

    verdict: Verdict
    reason: str
    partners: tuple[Head, ...] = ()
    """Heads that do the same work, or that cancel this one."""
    outcome: int = 0
    """Index of the outcome that gave it."""
    may_change: bool = False
    """It is needed alone, and whether most of its work is shared is not known yet; or it is not needed, and whether it
    does a little is not known yet."""
    verdicts: tuple[Verdict, ...] = field(default=(), compare=False)
    """The verdict on each outcome."""

    @property
    def is_open(self) -> bool:
        """Whether further sequences may give a verdict, or another one."""
        return (self.verdict == "undecided" and self.reason != "nothing to lose") or self.may_change

    @property
    def rank(self) -> int:
        """Which of the verdicts on several outcomes is the head's: the one of the lowest rank.

        What it is shown to do on some outcome comes first, also if another may show that it acts through its pattern;
        then whether it is needed, if that is open; then what it shares, and what it is shown not to do.
        """
        if self.reason in NOT_NEEDED:
            return ("undecided", "misleading", "idle").index(self.verdict) + 10
        state = self.verdict
        if self.verdict == "undecided" and self.reason != "together too close":
            state = "may be needed" if self.reason == "too close" else "open"
        order = ("faithful", "hidden", "open", "may be needed", "redundant", "undecided", "misleading", "idle")
        return (*order, "marginal").index(state)


def decide(outcomes: Sequence[HeadFacts]) -> Decision:
    """Apply the rules to what is known about a head on each outcome.

    A head is faithful if it acts through its pattern on every outcome on which it is needed. If it does not on some of
    them, its verdict is that on the one of these where removing it costs most.
    """
    decisions = [replace(_decide_on_outcome(facts), outcome=index) for index, facts in enumerate(outcomes)]
    candidates = _of_failed_readings(decisions, outcomes) or decisions
    # Of outcomes with equal verdicts, the one on which removing it costs most
    decision = min(candidates, key=lambda decision: (decision.rank, -outcomes[decision.outcome].loss))
    if decision.verdict == "faithful":
        # An outcome may show that it is needed there for something else: open
        doubts = [doubt for doubt in decisions if outcomes[doubt.outcome].may_be_needed_otherwise]
        if doubts:
            decision = max(doubts, key=lambda doubt: outcomes[doubt.outcome].loss)
    if decision.verdict == "redundant":
        # It may be needed for itself on another outcome, which would come first: open
        not_shared = [on_outcome for on_outcome in decisions if on_outcome.verdict != "redundant"]
        doubts = [doubt for doubt in not_shared if outcomes[doubt.outcome].may_be_needed_alone]
        if doubts:
            most_likely = max(doubts, key=lambda doubt: outcomes[doubt.outcome].loss)
            decision = Decision("undecided", "too close", outcome=most_likely.outcome)
    # Partners on any outcome are named, also by a head that is needed for itself on another
    shared = [facts.partners.get(reason, ()) for facts in outcomes for reason in ("together", "partner")]
    partners = set(decision.partners).union(*shared)
    if any(shared) and decision.verdict in ("misleading", "idle"):
        is_shared = [any(facts.partners.get(reason) for reason in ("together", "partner")) for facts in outcomes]
        decision = Decision("redundant", "partner", outcome=is_shared.index(True))
    facts = outcomes[decision.outcome]
    is_shared_too = facts.is_partner and facts.loss > 1 and decision.verdict != "redundant"
    may_share = is_shared_too and "may be mostly shared" in facts.partners
    may_do_little = decision.reason == "not needed" and facts.loss > LITTLE
    return replace(
        decision,
        partners=tuple(sorted(partners)),
        may_change=may_share or may_do_little,
        verdicts=tuple(on_outcome.verdict for on_outcome in decisions),
    )


def _of_failed_readings(decisions: Sequence[Decision], outcomes: Sequence[HeadFacts]) -> list[Decision]:
    """Of a head that acts through its pattern on some outcomes: the costliest one of those on which it is needed and
    does not, or may not. Empty if there is none of either."""
    if all(decision.verdict != "faithful" for decision in decisions):
        return []
    failed = []
    for decision in decisions:
        is_read = decision.verdict in ("faithful", "redundant")
        if outcomes[decision.outcome].needed_alone and not is_read:
            failed.append(decision)
    failed.sort(key=lambda decision: outcomes[decision.outcome].loss)
    return failed[-1:]


def _decide_on_outcome(facts: HeadFacts) -> Decision:
    rule = next(rule for rule in RULES if rule[0](facts))
    _, verdict, reason = rule
    if facts.tried and rule in RULES_OF_READING:
        # A head without a label cannot mislead: it acts like the kind that was tried, or like no known kind
        if verdict == "faithful":
            return Decision(verdict, "like a kind")
        if verdict == "undecided":
            return Decision(verdict, "like a kind too close")
        if verdict != "redundant":
            return Decision("hidden", "needed")
    return Decision(verdict, reason, facts.partners.get(reason, ()))


def facts_about_heads(
    p: PValues,
    heads: Mapping[Head, Look],
    sets: HeadSets,
    *,
    losses: Float[np.ndarray, "head outcome"],
    doubtful: Mapping[str, Collection[Head]],
    strata: Mapping[Head, tuple[int, str]],
    at_chance: bool,
    alpha: float,
) -> list[list[HeadFacts]]:
    """What is significant about every head on every outcome.

    Args:
        p: Corrected p values, heads in the order of `heads`.
        heads: All heads, with how they are judged: by their label, by a kind that was tried, or by none.
        sets: Sets that were tested, in the order of their p values.
        losses: Accuracy lost without each head, as a multiple of the threshold.
        doubtful: Heads whose removal costs accuracy on an outcome that is left out (`doubtful_heads`).
        strata: Heads that are needed in a rare stratum, with the index of the outcome and the name of the stratum.
        at_chance: The model has no accuracy to lose.
        alpha: Level.
    """
    n_outcomes = p.matters["mean"].shape[1]
    partners = [partners_in_sets(p, list(heads), sets, outcome=outcome, alpha=alpha) for outcome in range(n_outcomes)]
    is_untried = np.all(np.isnan(p.matters["resampled_pattern"]), axis=-1).tolist()
    untried = [frozenset(["resampled_pattern"]) if missing else frozenset[str]() for missing in is_untried]
    facts_by_head = []
    for index, (head, look) in enumerate(heads.items()):
        facts_by_outcome = []
        stratum_outcome, stratum = strata.get(head, (-1, ""))
        for outcome in range(n_outcomes):
            # A p value that is missing is not significant: its intervention was not tried
            shown = {}
            for question, p_values in vars(p).items():
                shown[question] = frozenset(name for name in TESTED if p_values[name][index, outcome] <= alpha)
            facts = HeadFacts(
                labelled=look == "labelled",
                tried=look == "tried",
                loss=float(losses[index, outcome]),
                costs=shown["matters"],
                harmless=shown["harmless"],
                more_than_little=shown["more_than_little"],
                limited=shown["limited"],
                untried=untried[index],
                partners=partners[outcome][head],
                doubtful=frozenset(name for name in REMOVALS if head in doubtful[name]),
                stratum=stratum if outcome == stratum_outcome else "",
                at_chance=at_chance,
            )
            facts_by_outcome.append(facts)
        facts_by_head.append(facts_by_outcome)
    return facts_by_head


def needed_on_outcomes(outcomes: Sequence[HeadFacts], removal: str) -> bool | None:
    """Whether the model needs a head, by what takes the place of its output; None if undecided."""
    answers = [facts.needed(removal) for facts in outcomes]
    if any(answers):
        return True
    return None if None in answers else False


def partners_in_sets(
    p: PValues, heads: Sequence[Head], sets: HeadSets, *, outcome: int, alpha: float
) -> dict[Head, dict[str, tuple[Head, ...]]]:
    """For each head and reason: the other heads of the sets that give this reason on an outcome.

    A head shares its work with others if it costs more than the threshold once they are gone, and not alone, or at
    least twice as much as alone (`together`). Those of them that are not shown to cost next to nothing in the same set
    are its partners, and so is it theirs (`partner`). For a head that is needed alone that may be open (`may be mostly
    shared`). A head may cost something in a set, but not more than counts
    (`together about`), or that may be open (`together too close`). A needed head may be in a set of needed heads that
    is harmless (`cancelled`, `cancelling too close`).

    Args:
        p: Corrected p values.
        heads: All heads.
        sets: Sets that were tested, in the order of their p values.
        outcome: Index of the outcome.
        alpha: Level.
    """
    partners: dict[Head, dict[str, set[Head]]] = {head: {} for head in heads}
    cancelling = cancelled_heads(p, heads, sets, alpha=alpha)

    def add(head: Head, reason: str, members: Collection[Head]) -> None:
        partners[head].setdefault(reason, set()).update(set(members) - {head})

    # What is shown of each head alone, and of each head in a set
    def heads_shown(p_alone: Float[np.ndarray, "head outcome"]) -> set[Head]:
        return {head for head, p_head in zip(heads, p_alone[:, outcome], strict=True) if p_head <= alpha}

    def shown(p_values: Float[np.ndarray, "pair outcome"]) -> Bool[np.ndarray, " pair"]:
        return p_values[:, outcome] <= alpha

    harmless_alone, needed_alone = heads_shown(p.harmless["mean"]), heads_shown(p.matters["mean"])
    costs, costs_less, costs_some = (
        shown(p_values[NEEDED_IN]) for p_values in (p.matters, p.harmless, p.more_than_little)
    )
    is_limited = shown(p.limited[NEEDED_IN]) | costs_less
    mostly_shared, mostly_alone = shown(p.matters[MOSTLY_SHARED]), shown(p.harmless[MOSTLY_SHARED])
    pairs_of_set: dict[tuple[Head, ...], list[int]] = {}
    for index, (_, members) in enumerate(sets.needed_pairs):
        pairs_of_set.setdefault(members, []).append(index)

    # Sets of needed heads that can be removed together
    for reason, members in cancelling.items():
        for head in set(members) & needed_alone:
            add(head, reason, members[head])
    # Sets of heads that share their work: what each of their heads adds once the others are gone
    sharing: dict[Head, list[set[Head]]] = {}
    for pairs in pairs_of_set.values():
        adding = {sets.needed_pairs[pair][0]: pair for pair in pairs if costs_some[pair] or not costs_less[pair]}
        # What cancelled heads do together is no work of theirs
        adding = {head: pair for head, pair in adding.items() if head not in cancelling["cancelled"]}
        for head, pair in adding.items():
            other_heads = set(adding) - {head}
            if not other_heads:
                continue
            if costs[pair] and (head in harmless_alone or mostly_shared[pair]):
                sharing.setdefault(head, []).append(other_heads)
            elif costs[pair] and not mostly_alone[pair]:
                add(head, "may be mostly shared", other_heads)
            elif not costs[pair]:
                add(
                    head,
                    "together about" if costs_some[pair] and is_limited[pair] else "together too close",
                    other_heads,
                )
    # Of several sets that show it of a head, the smallest name its partners
    for head, partners_by_set in sharing.items():
        size = min(map(len, partners_by_set))
        for other_heads in partners_by_set:
            if len(other_heads) == size:
                add(head, "together", other_heads)
                for partner in other_heads:
                    add(partner, "partner", [head])
    return {
        head: {reason: tuple(sorted(members)) for reason, members in by_reason.items()}
        for head, by_reason in partners.items()
    }


def cancelled_heads(
    p: PValues, heads: Sequence[Head], sets: HeadSets, *, alpha: float
) -> dict[str, dict[Head, tuple[Head, ...]]]:
    """Sets of heads, each needed alone, that are harmless on every outcome: `cancelled`, or `cancelling too close` if
    that is open; for each of their heads. A set is no longer one if a head of it is shown to be harmless alone."""
    is_needed = dict(zip(heads, on_some_outcome(p.matters["mean"], alpha), strict=True))
    is_harmless = dict(zip(heads, on_every_outcome(p.harmless["mean"], alpha), strict=True))
    cancelling: dict[str, dict[Head, tuple[Head, ...]]] = {"cancelled": {}, "cancelling too close": {}}
    for index, members in enumerate(sets.cancelling):
        costs_together = (p.matters[CANCELLING][index] <= alpha).any()
        if costs_together or any(is_harmless[member] for member in members):
            continue
        is_shown = (p.harmless[CANCELLING][index] <= alpha).all() and all(is_needed[member] for member in members)
        cancelling["cancelled" if is_shown else "cancelling too close"] |= dict.fromkeys(members, members)
    return cancelling


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
