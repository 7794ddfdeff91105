"""Verdict rules, the family of tests, and a sentence for every reason."""

import itertools
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from interp.auditing.experiments import Effects
from interp.auditing.interventions import (
    CANCELLING,
    INTERVENTIONS,
    LABEL_TESTS,
    MOSTLY_SHARED,
    NEEDED_IN,
    READINGS,
    TESTED,
)
from interp.auditing.records import HeadVerdict, InterventionCost
from interp.auditing.result import REASONS_OF_NEEDED_HEADS, REASONS_OF_VERDICTS, AuditResult
from interp.auditing.sentences import REASONS, cost_in_words, list_of_heads, look_in_words, reason_in_words
from interp.auditing.sets import HeadSets
from interp.auditing.significance import LITTLE, MUCH, PValues, corrections, sequences_needed, uncorrected_p_values
from interp.auditing.verdicts import (
    HEAD_VERDICTS,
    MUST_COST,
    RULES,
    Decision,
    HeadFacts,
    decide,
    facts_about_heads,
    needed_on_outcomes,
    partners_in_sets,
)
from interp.core.statistics import SHARE_THAT_COUNTS, drop_tests

ALPHA = 0.01
SURE, OPEN = 0.001, 0.5
QUESTIONS = ("matters", "harmless", "more_than_little", "limited")
MATTERS, HARMLESS, CLOSE, ABOUT, SMALL = "matters", "harmless", "close", "about", "small"
UNTRIED = "untried"
P = {
    MATTERS: (SURE, 1.0, SURE, 1.0),
    HARMLESS: (1.0, SURE, 1.0, SURE),
    CLOSE: (OPEN, OPEN, OPEN, OPEN),
    ABOUT: (OPEN, OPEN, SURE, SURE),
    SMALL: (1.0, SURE, SURE, SURE),  # less than counts, but something
    UNTRIED: (np.nan,) * 4,
}
"""p values of the four questions, by what is known about an intervention."""


def p_values_of(states):
    """p values by question and intervention, from what is known about each head, or set, on each outcome."""
    p = {question: {} for question in QUESTIONS}
    for name, rows in states.items():
        for index, question in enumerate(QUESTIONS):
            p[question][name] = np.array([[P[state][index] for state in row] for row in rows])
    no_sets = np.ones((0, len(states["mean"][0])))
    for question in QUESTIONS:
        for name in (NEEDED_IN, MOSTLY_SHARED, CANCELLING):
            p[question].setdefault(name, no_sets)
    return PValues(**p)


def known_of(mean, ideal=CLOSE, label_only_pattern=CLOSE, *, zero=CLOSE, **tests):
    """What is known about each intervention on a head: every test of its label costs, unless said otherwise."""
    known = {"mean": mean, "zero": zero, "ideal": ideal, "label_only_pattern": label_only_pattern}
    known |= dict.fromkeys(MUST_COST, MATTERS) | tests
    assert set(known) == set(TESTED)
    return known


def found(*known, **tests):
    """p values of one head on one outcome."""
    return p_values_of({name: [[state]] for name, state in known_of(*known, **tests).items()})


def found_on(*outcomes):
    """p values of one head on several outcomes, from what is known on each (`known_of`)."""
    return p_values_of({name: [[known[name] for known in outcomes]] for name in TESTED})


NO_SETS = HeadSets(
    needed_in={}, harmless={}, largest_harmless=(), smallest_costly=(), exact=True, n_removals=0, n_pairs=0
)


def facts(p, heads, labelled, *, sets=NO_SETS, losses=None, doubtful=(), strata=None, at_chance=False, tried=()):
    return facts_about_heads(
        p,
        {head: "labelled" if head in labelled else "tried" if head in tried else "none" for head in heads},
        sets,
        losses=np.zeros(p.matters["mean"].shape) if losses is None else np.array(losses),
        doubtful=dict.fromkeys(("zero", "mean", "resample"), doubtful),
        strata=strata or {},
        at_chance=at_chance,
        alpha=ALPHA,
    )


def verdict_of(p, readable=True, partners=(), **settings):
    (outcomes,) = facts(p, [(0, 0)], [(0, 0)] if readable else [], **settings)
    return decide([replace(facts_on_outcome, partners=dict(partners)) for facts_on_outcome in outcomes])


FITS = (MATTERS, HARMLESS, HARMLESS)
"""Needed, and either pattern of its label would do."""
NOT_SHOWN_NEEDED = ("not needed", "too close", "about as much as counts", "less than counts")
CASES = [
    # is it needed?
    ((HARMLESS,), {}, "misleading", "idle", "not needed"),
    ((CLOSE,), {}, "undecided", "undecided", "too close"),
    ((ABOUT,), {}, "marginal", "marginal", "about as much as counts"),
    ((SMALL,), {}, "marginal", "marginal", "less than counts"),
    # a test of its label that costs nothing
    (FITS, {"uniform": HARMLESS}, "misleading", "hidden", "not through its pattern"),
    (FITS, {"resample": HARMLESS}, "misleading", "hidden", "content unused"),
    (FITS, {"wrong_key": HARMLESS}, "misleading", "hidden", "which key is irrelevant"),
    (FITS, {"resampled_pattern": HARMLESS}, "misleading", "hidden", "any pattern would do"),
    (FITS, {"resampled_values": HARMLESS}, "misleading", "hidden", "values unused"),
    (FITS, {"resampled_values": SMALL}, "misleading", "hidden", "values unused"),
    # one that costs about as much as counts
    *((FITS, {name: ABOUT}, "marginal", "hidden", f"{name} about") for name in MUST_COST),
    # one that is open
    *((FITS, {name: CLOSE}, "undecided", "hidden", f"{name} too close") for name in MUST_COST),
    # what is shown comes before what is open
    (
        (MATTERS, CLOSE, CLOSE),
        {"uniform": CLOSE, "wrong_key": HARMLESS},
        "misleading",
        "hidden",
        "which key is irrelevant",
    ),
    (FITS, {"uniform": CLOSE, "resampled_pattern": ABOUT}, "marginal", "hidden", "resampled_pattern about"),
    ((MATTERS, MATTERS, MATTERS), {"wrong_key": CLOSE}, "misleading", "hidden", "through something else"),
    # the patterns of its label
    (FITS, {}, "faithful", "hidden", "through its pattern"),
    (FITS, {"resampled_pattern": UNTRIED}, "faithful", "hidden", "through its pattern"),
    ((MATTERS, HARMLESS, MATTERS), {}, "faithful", "hidden", "through its pattern"),
    ((MATTERS, MATTERS, HARMLESS), {}, "faithful", "hidden", "through its pattern"),
    ((MATTERS, CLOSE, HARMLESS), {}, "faithful", "hidden", "through its pattern"),
    ((MATTERS, HARMLESS, CLOSE), {}, "faithful", "hidden", "through its pattern"),
    ((MATTERS, SMALL, ABOUT), {}, "faithful", "hidden", "through its pattern"),
    ((MATTERS, HARMLESS, CLOSE), {"zero": HARMLESS}, "faithful", "hidden", "through its pattern"),
    ((MATTERS, MATTERS, MATTERS), {}, "misleading", "hidden", "through something else"),
    ((MATTERS, ABOUT, ABOUT), {}, "marginal", "hidden", "reading about"),
    ((MATTERS, MATTERS, ABOUT), {}, "marginal", "hidden", "reading about"),
    ((MATTERS, ABOUT, CLOSE), {}, "undecided", "hidden", "reading too close"),
    ((MATTERS, CLOSE, MATTERS), {}, "undecided", "hidden", "reading too close"),
    ((MATTERS, MATTERS, CLOSE), {}, "undecided", "hidden", "reading too close"),
    ((MATTERS, CLOSE, CLOSE), {}, "undecided", "hidden", "reading too close"),
    # a detector of whether there is a related key
    (FITS, {"uniform": HARMLESS, "wrong_key": HARMLESS}, "faithful", "hidden", "through presence"),
    (
        FITS,
        {"uniform": HARMLESS, "wrong_key": HARMLESS, "resampled_values": HARMLESS},
        "faithful",
        "hidden",
        "through presence",
    ),
    (
        FITS,
        {"uniform": HARMLESS, "wrong_key": HARMLESS, "resampled_pattern": CLOSE},
        "undecided",
        "hidden",
        "resampled_pattern too close",
    ),
    (
        FITS,
        {"uniform": HARMLESS, "wrong_key": HARMLESS, "resample": HARMLESS, "resampled_pattern": CLOSE},
        "misleading",
        "hidden",
        "not through its pattern",
    ),
    (
        FITS,
        {"uniform": HARMLESS, "wrong_key": HARMLESS, "resampled_pattern": HARMLESS},
        "misleading",
        "hidden",
        "not through its pattern",
    ),
    (
        FITS,
        {"uniform": HARMLESS, "wrong_key": HARMLESS, "resampled_pattern": UNTRIED},
        "misleading",
        "hidden",
        "not through its pattern",
    ),
    (
        (MATTERS, CLOSE, CLOSE),
        {"uniform": HARMLESS, "wrong_key": HARMLESS},
        "misleading",
        "hidden",
        "not through its pattern",
    ),
]


@pytest.mark.parametrize(("known", "elsewhere", "readable", "unreadable", "reason"), CASES)
def test_every_verdict_rule(known, elsewhere, readable, unreadable, reason):
    assert verdict_of(found(*known, **elsewhere)) == Decision(readable, reason)
    without = reason if reason in NOT_SHOWN_NEEDED else "needed"
    untried = dict.fromkeys(LABEL_TESTS, UNTRIED)
    assert verdict_of(found(known[0], **elsewhere | untried), False) == Decision(unreadable, without)


def test_a_head_is_faithful_only_if_every_way_to_look_elsewhere_costs():
    """Or if any key would do, but not the row of a sequence without a related one."""
    for ways in itertools.product([MATTERS, HARMLESS, CLOSE, ABOUT], repeat=len(MUST_COST)):
        known = dict(zip(MUST_COST, ways, strict=True))
        given = verdict_of(found(*FITS, **known))
        # It may be a detector, unless the test of that shows the contrary
        may_detect = known["uniform"] == known["wrong_key"] == HARMLESS != known["resample"]
        if may_detect and known["resample"] == known["resampled_pattern"] == MATTERS:
            assert given == Decision("faithful", "through presence")
            continue
        if may_detect and known["resampled_pattern"] in (CLOSE, ABOUT):
            state = ("undecided", "too close") if known["resampled_pattern"] == CLOSE else ("marginal", "about")
            assert given == Decision(state[0], f"resampled_pattern {state[1]}")
            continue
        assert (given.verdict == "faithful") == (set(ways) == {MATTERS})
        assert (given.verdict == "misleading") == (HARMLESS in ways)
        assert (given.verdict == "marginal") == (HARMLESS not in ways and ABOUT in ways)


@pytest.mark.parametrize("state", [MATTERS, HARMLESS, CLOSE, ABOUT, SMALL])
@pytest.mark.parametrize("name", [name for name in MUST_COST if name != "resampled_pattern"])
def test_only_the_pattern_of_another_sequence_may_be_untried(name, state):
    """A test of another name without p values is open, whatever else is known."""
    given = verdict_of(found(*FITS, **{name: UNTRIED, "resampled_pattern": state}))
    assert given.verdict != "faithful"


def test_p_values_up_to_the_level_count():
    def p(value):
        p_values = found(CLOSE)
        for question in QUESTIONS:
            for name in TESTED:
                getattr(p_values, question)[name][:] = value if question == "harmless" else 1.0
        return p_values

    assert verdict_of(p(ALPHA)).verdict == "misleading"
    assert verdict_of(p(ALPHA * 1.001)).verdict == "undecided"


def test_about_as_much_as_counts_needs_both_bounds():
    """More than a quarter of the threshold, and less than twice it; more or less than the threshold comes first."""
    for question, others in (("more_than_little", ("limited",)), ("limited", ("more_than_little",))):
        p_values = found(ABOUT)
        for name in others:
            getattr(p_values, name)["mean"][:] = SURE
        getattr(p_values, question)["mean"][:] = ALPHA
        assert verdict_of(p_values) == Decision("marginal", "about as much as counts")
        getattr(p_values, question)["mean"][:] = ALPHA * 1.001
        assert verdict_of(p_values) == Decision("undecided", "too close")
    both = found(ABOUT)
    both.matters["mean"][:] = SURE
    assert verdict_of(both).reason == "reading too close"
    assert 0 < LITTLE < 1 < MUCH


@pytest.mark.parametrize("readable", [True, False])
@pytest.mark.parametrize("known", [rule[:2] for rule in CASES])
def test_what_sets_show_takes_precedence(known, readable):
    p, (first, second) = found(*known[0], **known[1]), ((1, 1), (2, 0))
    cancels = verdict_of(p, readable, {"cancelled": (second,)})
    assert cancels == Decision("misleading" if readable else "idle", "cancelled", (second,))
    shares = verdict_of(p, readable, {"together": (first,), "together too close": (second,)})
    assert shares == Decision("redundant", "together", (first,))


@pytest.mark.parametrize("readable", [True, False])
def test_an_undecided_set_leaves_its_heads_undecided(readable):
    """A head is not called idle, or faithful, while a set that contains it may show the contrary."""
    other = ((1, 1),)
    for known in (HARMLESS, SMALL, ABOUT, CLOSE):
        given = verdict_of(found(known), readable, {"together too close": other, "together about": other})
        assert given == Decision("undecided", "together too close", other)
    given = verdict_of(found(*FITS), readable, {"cancelling too close": other})
    assert given == Decision("undecided", "cancelling too close", other)


@pytest.mark.parametrize("readable", [True, False])
def test_a_head_that_costs_about_as_much_as_counts_in_a_set_is_marginal(readable):
    other = ((1, 1),)
    for known in (HARMLESS, SMALL, ABOUT, CLOSE):
        given = verdict_of(found(known), readable, {"together about": other})
        assert given == Decision("marginal", "together about", other)
    for reason in ("together about", "together too close"):  # what it does alone is known
        assert verdict_of(found(*FITS), readable, {reason: other}) == verdict_of(found(*FITS), readable)


@pytest.mark.parametrize(("known", "elsewhere"), [rule[:2] for rule in CASES])
def test_a_partner_that_is_needed_is_redundant_unless_it_may_act_through_its_pattern(known, elsewhere):
    """Another head shares its work with it, so that no test of its label shows what it does alone."""
    other = ((1, 1),)
    alone = verdict_of(found(*known, **elsewhere))
    given = verdict_of(found(*known, **elsewhere), partners={"partner": other})
    if alone.verdict == "misleading":
        assert given == Decision("redundant", "partner", other)
    else:
        assert given == replace(alone, partners=other)
    needed = verdict_of(found(*known, **elsewhere), False, {"partner": other})
    assert known[0] != MATTERS or needed == Decision("hidden", "needed", other)


def test_a_head_that_may_be_needed_on_an_outcome_left_out_is_undecided():
    for known, elsewhere in (rule[:2] for rule in CASES):
        p = found(*known, **elsewhere)
        given = verdict_of(p, doubtful={(0, 0)})
        is_harmless = known[0] in (HARMLESS, SMALL)
        assert given == (Decision("undecided", "left out") if is_harmless else verdict_of(p))


@pytest.mark.parametrize("readable", [True, False])
def test_a_head_that_is_needed_in_a_rare_stratum_is_marginal(readable):
    for known, elsewhere in (rule[:2] for rule in CASES):
        p = found(*known, **elsewhere)
        given = verdict_of(p, readable, strata={(0, 0): (0, "answers of class 3")})
        is_harmless = known[0] in (HARMLESS, SMALL)
        assert given == (Decision("marginal", "needed in a stratum") if is_harmless else verdict_of(p, readable))
        assert verdict_of(p, readable, strata={(0, 1): (0, "answers of class 3")}) == verdict_of(p, readable)


@pytest.mark.parametrize("readable", [True, False])
def test_no_head_of_a_model_at_chance_is_harmless(readable):
    for known, elsewhere in (rule[:2] for rule in CASES):
        given = verdict_of(found(*known, **elsewhere), readable, at_chance=True)
        if known[0] == MATTERS:
            assert given == verdict_of(found(*known, **elsewhere), readable)
        else:
            assert given == Decision("undecided", "nothing to lose")
            assert not given.is_open


def test_each_head_has_its_own_p_values():
    rows = [known_of(HARMLESS), known_of(MATTERS, uniform=HARMLESS), known_of(CLOSE)]
    p = p_values_of({name: [[known[name]] for known in rows] for name in TESTED})
    heads = [(0, 0), (0, 1), (1, 0)]
    given = [decide(head) for head in facts(p, heads, heads[1:])]
    assert [decision.verdict for decision in given] == ["idle", "misleading", "undecided"]


def test_every_verdict_and_every_reason_has_a_rule():
    reached = {rule[2] for rule in CASES} | {rule[3] for rule in CASES} | {"redundant"}
    assert reached == set(HEAD_VERDICTS)
    of_sets = {"together", "partner", "cancelled", "together too close", "together about", "cancelling too close"}
    elsewhere = {"needed", "nothing to lose", "left out", "needed in a stratum"}
    of_tried_kinds = {"like a kind", "like a kind too close"}
    reasons = {reason for _, _, reason in RULES}
    assert {rule[4] for rule in CASES} | elsewhere | of_sets == reasons
    assert set(REASONS) - reasons == of_tried_kinds
    assert all(reason_in_words(reason) for reason in reasons)


def test_the_documentation_has_the_table_of_rules():
    """The verdict and the reason of every rule, in the same order."""
    text = (Path(__file__).parents[3] / "docs" / "audit_rules.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \d+ \| .* \| (\w+) \| (.+) \|$", text, re.MULTILINE)
    assert rows == [(verdict, reason) for _, verdict, reason in RULES]


# several outcomes

IDLE, FAITHFUL, DECOY = known_of(HARMLESS), known_of(*FITS), known_of(*FITS, uniform=HARMLESS)


def test_a_loss_on_one_outcome_and_a_dependence_on_the_pattern_on_another_are_not_faithful():
    """Without the head 0.57 is lost on the first, with a uniform pattern nothing; on the second it is reversed."""
    lost_on_first = known_of(MATTERS, HARMLESS, HARMLESS, **dict.fromkeys(MUST_COST, HARMLESS))
    by_pattern_on_second = known_of(HARMLESS, HARMLESS, HARMLESS)  # every test of the label costs
    for reverse in (False, True):
        outcomes = [lost_on_first, by_pattern_on_second]
        index = 0
        if reverse:
            outcomes, index = outcomes[::-1], 1
        given = verdict_of(found_on(*outcomes))
        assert given == Decision("misleading", "not through its pattern", outcome=index)


@pytest.mark.parametrize("name", MUST_COST)
def test_every_test_that_must_cost_does_on_the_same_outcome(name):
    """Each costs on the outcome without a loss, and one of them nothing where the loss is."""
    given = verdict_of(found_on(known_of(*FITS, **{name: HARMLESS}), known_of(HARMLESS, HARMLESS, HARMLESS)))
    assert (given.verdict, given.outcome) == ("misleading", 0)


@pytest.mark.parametrize("reading", READINGS)
def test_a_pattern_of_its_label_would_do_on_the_same_outcome(reading):
    through_something_else = known_of(MATTERS, MATTERS, MATTERS)
    harmless_elsewhere = known_of(HARMLESS, **{reading: HARMLESS})
    given = verdict_of(found_on(through_something_else, harmless_elsewhere))
    assert given == Decision("misleading", "through something else", outcome=0)


MARGINAL, LITTLE_COST, OPEN_NEED, OPEN_TEST = (
    known_of(ABOUT), known_of(SMALL), known_of(CLOSE), known_of(*FITS, wrong_key=CLOSE)
)  # fmt: skip
BY_RANK = [
    ("faithful", FAITHFUL),
    ("undecided", OPEN_TEST),  # it may be faithful there
    ("undecided", OPEN_NEED),
    ("misleading", DECOY),
    ("marginal", MARGINAL),
    ("marginal", LITTLE_COST),
    ("misleading", IDLE),
]


FAILED_READINGS = ((0, 1), (0, 3))
"""Faithful on one outcome, and needed for something else on the other, or perhaps."""


@pytest.mark.parametrize(
    ("first", "second"),
    [pair for pair in itertools.combinations(range(len(BY_RANK)), 2) if pair not in FAILED_READINGS],
)
def test_what_a_head_does_on_some_outcome_is_its_verdict(first, second):
    """Shown work first, then what is open, then what it is shown not to do; in either order of the outcomes."""
    (verdict, known), (_, other) = BY_RANK[first], BY_RANK[second]
    for outcomes, index in (((known, other), 0), ((other, known), 1)):
        given = verdict_of(found_on(*outcomes))
        assert given.verdict == verdict
        if {first, second} != {4, 5}:  # two marginal ones
            assert given.outcome == index


def test_an_unlabelled_head_that_is_needed_on_one_outcome_is_hidden():
    given = verdict_of(found_on(IDLE, FAITHFUL, MARGINAL), readable=False)
    assert given == Decision("hidden", "needed", outcome=1)


def test_a_stratum_is_one_of_its_own_outcome():
    given = verdict_of(found_on(IDLE, IDLE), strata={(0, 0): (1, "rare")})
    assert given == Decision("marginal", "needed in a stratum", outcome=1)
    given = verdict_of(found_on(FAITHFUL, IDLE), strata={(0, 0): (1, "rare")})
    assert (given.verdict, given.outcome) == ("faithful", 0)


def test_of_equal_verdicts_the_outcome_with_the_largest_loss_is_named():
    for losses, index in (([[0.3, 0.9]], 1), ([[0.9, 0.3]], 0)):
        assert verdict_of(found_on(FAITHFUL, FAITHFUL), losses=losses).outcome == index
        assert verdict_of(found_on(DECOY, DECOY), losses=losses).outcome == index


@pytest.mark.parametrize(("known", "verdict"), [(DECOY, "misleading"), (OPEN_TEST, "undecided")])
@pytest.mark.parametrize("losses", [[1.7, 4.0], [4.0, 1.7]])
def test_a_head_is_faithful_if_it_is_on_every_outcome_on_which_it_is_needed(known, verdict, losses):
    decision = verdict_of(found_on(FAITHFUL, known), losses=[losses])
    assert (decision.verdict, decision.outcome) == (verdict, 1)
    assert decision.verdicts == ("faithful", verdict)
    # Not needed, or about as much as counts, says nothing about what it does where it is needed
    for elsewhere in (IDLE, MARGINAL, LITTLE_COST):
        assert verdict_of(found_on(FAITHFUL, elsewhere), losses=[losses]).verdict == "faithful"


def test_of_several_outcomes_without_its_pattern_the_costliest_is_the_verdict():
    something_else = known_of(MATTERS, MATTERS, MATTERS)
    for losses, reason in (((1.5, 2, 3), "through something else"), ((1.5, 3, 2), "not through its pattern")):
        decision = verdict_of(found_on(FAITHFUL, DECOY, something_else), losses=[losses])
        assert (decision.verdict, decision.reason) == ("misleading", reason)


def test_an_outcome_on_which_it_probably_is_needed_for_something_else_leaves_a_head_open():
    may_be_needed = known_of(CLOSE, HARMLESS, HARMLESS, uniform=HARMLESS)
    assert verdict_of(found_on(FAITHFUL, may_be_needed), losses=[[2, 1.2]]).verdict == "undecided"
    assert verdict_of(found_on(FAITHFUL, may_be_needed), losses=[[2, 0.8]]).verdict == "faithful"
    assert verdict_of(found_on(FAITHFUL, OPEN_NEED), losses=[[2, 1.2]]).verdict == "faithful"


@pytest.mark.parametrize(
    "shown",
    [
        {},
        {"partners": {"together too close": ((0, 2),)}},
        {"partners": {"together about": ((0, 2),)}},
        {"more_than_little": ["mean"], "limited": ["mean"]},
    ],
)
def test_a_head_that_may_be_needed_alone_is_not_called_redundant(shown):
    may_be_needed = HeadFacts(labelled=False, loss=1.4, costs=(), harmless=(), **shown)
    shares = HeadFacts(labelled=False, loss=0.9, costs=(), harmless=(), partners={"together": ((0, 1),)})
    for outcomes in ([may_be_needed, shares], [shares, may_be_needed]):
        decision = decide(outcomes)
        assert (decision.verdict, decision.reason, decision.is_open) == ("undecided", "too close", True)
    # Its partners are named, and it is redundant once it is shown not to be needed alone
    not_needed = replace(may_be_needed, harmless=["mean"], partners={})
    assert decide([not_needed, shares]).verdict == "redundant"
    probably_not_needed = replace(may_be_needed, loss=0.9)
    assert decide([probably_not_needed, shares]).is_open == (shown == {})
    needed = replace(may_be_needed, costs=["mean"])
    assert decide([needed, shares]) == Decision("hidden", "needed", ((0, 1),))


@pytest.mark.parametrize(
    ("tests", "verdict", "reason"),
    [
        ({}, "faithful", "like a kind"),
        ({"uniform": HARMLESS}, "hidden", "needed"),
        ({"wrong_key": ABOUT}, "hidden", "needed"),
        ({"resampled_values": CLOSE}, "undecided", "like a kind too close"),
    ],
)
def test_a_head_without_a_label_acts_like_a_kind_or_is_hidden(tests, verdict, reason):
    (outcomes,) = facts(found(*FITS, **tests), [(0, 0)], [], tried=[(0, 0)])
    decision = decide(outcomes)
    assert (decision.verdict, decision.reason) == (verdict, reason)
    # Where it is not needed the kind that was tried makes no difference
    (not_needed,) = facts(found(HARMLESS), [(0, 0)], [], tried=[(0, 0)])
    assert decide(not_needed).verdict == "idle"


def test_partners_on_every_outcome_are_named():
    outcomes = [
        HeadFacts(labelled=True, costs=["mean"], harmless=[], partners={"partner": ((0, 2),)}),
        HeadFacts(labelled=True, costs=[], harmless=["mean"], partners={"together": ((0, 1), (0, 3))}),
    ]
    assert decide(outcomes).partners == ((0, 1), (0, 2), (0, 3))


def test_an_audit_goes_on_while_a_verdict_may_become_another():
    def decision(known, *, loss, partners=()):
        return verdict_of(found(*known), partners=partners, losses=[[loss]])

    assert not decision([HARMLESS], loss=LITTLE).is_open
    assert decision([HARMLESS], loss=LITTLE + 0.01).is_open  # it may do a little
    assert decision([CLOSE], loss=1.0).is_open
    assert not decision([ABOUT], loss=1.0).is_open
    # A needed head of which another is a partner: it may do most of its work together with it
    may_share = {"partner": ((1, 1),), "may be mostly shared": ((1, 1),)}
    assert decision(FITS, loss=2.0, partners=may_share).is_open
    assert not decision(FITS, loss=2.0, partners={"partner": ((1, 1),)}).is_open
    assert not decision(FITS, loss=2.0, partners={"may be mostly shared": ((1, 1),)}).is_open


def test_a_head_is_needed_if_it_is_on_some_outcome():
    def needed(*states):
        (outcomes,) = facts(found_on(*map(known_of, states)), [(0, 0)], [])
        return needed_on_outcomes(outcomes, "mean")

    assert needed(HARMLESS, MATTERS) is needed(CLOSE, MATTERS) is True
    assert needed(HARMLESS, CLOSE) is needed(ABOUT, HARMLESS) is None
    assert needed(HARMLESS, SMALL) is False


# one level for all verdicts


def drops(seed=0, n=120, heads=5, outcomes=2):
    rng = np.random.default_rng(seed)
    rate = np.linspace(0, 0.5, heads)[:, None] * np.linspace(1, 0.4, outcomes)
    return (rng.random((n, heads, outcomes)) < rate).astype(float)


def p_values(drop, total, threshold, factors):
    return uncorrected_p_values(Effects(total, drop), threshold).times(factors)


def test_p_values_by_hand():
    """What is shown on either of two outcomes counts."""
    n_sets = 3
    family = {
        "mean": drops(0), "uniform": drops(1), "ideal": drops(3),
        NEEDED_IN: drops(2, heads=n_sets), MOSTLY_SHARED: drops(4, heads=n_sets) - drops(5, heads=n_sets),
    }  # fmt: skip
    asked, threshold = np.ones((120, 2)), np.array([0.1, 0.08])
    pattern, of_sets = 4 * (3 * 5 + 5 * 2), 4 * n_sets  # half, a quarter, a quarter
    factors = {"mean": 2 * 5, "uniform": pattern, "ideal": pattern, NEEDED_IN: of_sets, MOSTLY_SHARED: of_sets}
    assert {name: corrections(5, 2, n_sets)[name] for name in factors} == factors
    result = p_values(family, asked, threshold, corrections(5, 2, n_sets))
    for name, drop in family.items():
        for head, at in itertools.product(range(drop.shape[1]), range(2)):
            bar = np.zeros(1) if name == MOSTLY_SHARED else threshold[[at]]
            larger, smaller, some, limited = (
                float(drop_tests(drop[:, head, [at]], asked[:, [at]], times * bar)[side][0])
                for times, side in ((1, 0), (1, 1), (0.25, 0), (2, 1))
            )
            if name == MOSTLY_SHARED:  # either of two costs may be larger
                smaller = float(drop_tests(-drop[:, head, [at]], asked[:, [at]], bar)[0][0])
            by_question = {
                "matters": min(1, 2 * larger),
                "harmless": min(1, 2 * smaller),
                "more_than_little": min(1, 2 * some),
                "limited": min(1, 2 * limited),
            }
            for question, p in by_question.items():
                given = getattr(result, question)[name][head, at]
                assert given == pytest.approx(min(1, factors[name] * p), rel=1e-9)


def test_every_question_gets_its_share_and_all_of_them_the_level():
    """One error of each intervention at its corrected level, added up over heads and sets."""
    n_heads, n_readable, n_sets = 7, 3, 4
    factors = corrections(n_heads, n_readable, n_sets)
    assert set(factors) == {*TESTED, NEEDED_IN, MOSTLY_SHARED, CANCELLING}
    tried_on = {name: n_readable if name in LABEL_TESTS else n_heads for name in TESTED} | {NEEDED_IN: n_sets}
    assert sum(n / factors[name] for name, n in tried_on.items()) == pytest.approx(1)


def test_interventions_that_were_not_tried_have_no_p_value():
    ideal = drops(1)
    ideal[:, [1, 3]] = np.nan
    drop, threshold = {"mean": drops(0), "ideal": ideal}, np.array([0.1, 0.08])
    given = p_values(drop, np.ones((120, 2)), threshold, corrections(5, 5, 0))
    for question in QUESTIONS:
        values = getattr(given, question)["ideal"]
        assert np.isnan(values).tolist() == [[untried] * 2 for untried in (False, True, False, True, False)]


def test_a_head_may_matter_on_one_outcome_and_be_harmless_on_another():
    drop = np.zeros((200, 1, 2))
    drop[:100, 0, 1] = 1
    result = p_values({"mean": drop}, np.ones((200, 2)), np.array([0.1, 0.1]), corrections(1, 0, 0))
    assert (result.matters["mean"][0] < ALPHA).tolist() == [False, True]
    assert (result.harmless["mean"][0] < ALPHA).tolist() == [True, False]
    assert result.harmless["mean"][0, 1] == 1


@pytest.mark.parametrize(
    ("lost", "shown"),
    [
        (0, {"harmless", "limited"}),
        (36, {"harmless", "limited", "more_than_little"}),
        (80, {"limited", "more_than_little"}),
        (150, {"matters", "more_than_little"}),
    ],
)
def test_what_a_loss_shows_by_its_size(lost, shown):
    """Of 800 answers the threshold is 80: a quarter of it 20, twice it 160."""
    drop = (np.arange(800) < lost).astype(float)[:, None, None]
    p = uncorrected_p_values(Effects(np.ones((800, 1)), {"mean": drop}), np.array([0.1]))
    assert {question for question in QUESTIONS if getattr(p, question)["mean"][0, 0] <= ALPHA} == shown


# sets of heads

PAIR, HEADS = ((0, 0), (1, 1)), [(0, 0), (0, 1), (1, 1)]
THREE = tuple(HEADS)


def sets_and_p_values(*, in_sets=(), mostly=(), cancelling=(), alone=HARMLESS):
    """Sets and p values from what is known, on one outcome or several.

    Args:
        in_sets: What each head costs beyond the others of a set, by head and set.
        mostly: Whether that is more than twice what it costs alone, where it is not less.
        cancelling: What each of these sets costs.
        alone: What is known of heads alone: the same of all, or of each.
    """
    in_sets, mostly, cancelling = dict(in_sets), dict(mostly), dict(cancelling)
    needed_in = {}
    for head, members in in_sets:
        needed_in.setdefault(head, []).append(members)
    sets = replace(
        NO_SETS,
        needed_in={head: tuple(members) for head, members in needed_in.items()},
        harmless={members[0]: members for members in cancelling},
    )

    def on_outcomes(states):
        return [list(state) if isinstance(state, tuple) else [state] for state in states]

    states = {"mean": on_outcomes(alone[head] if isinstance(alone, dict) else alone for head in HEADS)}
    n_outcomes = len(states["mean"][0])
    if in_sets:
        states[NEEDED_IN] = on_outcomes(in_sets[pair] for pair in sets.needed_pairs)
        states[MOSTLY_SHARED] = on_outcomes(mostly.get(pair, (HARMLESS,) * n_outcomes) for pair in sets.needed_pairs)
    if cancelling:
        states[CANCELLING] = on_outcomes(cancelling[members] for members in sets.cancelling)
    return sets, p_values_of(states)


OF_SETS = ("together", "partner", "together about", "together too close", "cancelled", "cancelling too close")


def of_sets(outcome=0, **known):
    """Partners by reason, from what is known of sets and heads (`sets_and_p_values`)."""
    sets, p = sets_and_p_values(**known)
    partners = partners_in_sets(p, HEADS, sets, outcome=outcome, alpha=ALPHA)
    return {reason: {head: partners[head][reason] for head in HEADS if reason in partners[head]} for reason in OF_SETS}


EACH_OTHER = {PAIR[0]: (PAIR[1],), PAIR[1]: (PAIR[0],)}


def in_pair(first, second):
    return {(PAIR[0], PAIR): first, (PAIR[1], PAIR): second}


@pytest.mark.parametrize("together", [MATTERS, HARMLESS, SMALL, CLOSE, ABOUT])
@pytest.mark.parametrize("alone", [HARMLESS, SMALL, CLOSE, ABOUT, MATTERS])
@pytest.mark.parametrize("mostly", [MATTERS, HARMLESS, CLOSE])
def test_heads_share_their_work_by_what_they_cost_beyond_each_other(together, alone, mostly):
    """A head that is not shown to be harmless alone shares its work if it costs at least twice as much beyond them."""
    findings = of_sets(in_sets=in_pair(together, together), alone=alone, mostly=in_pair(mostly, mostly))
    is_shared = together == MATTERS and (alone in (HARMLESS, SMALL) or mostly == MATTERS)
    assert findings["together"] == findings["partner"] == (EACH_OTHER if is_shared else {})
    assert findings["together too close"] == (EACH_OTHER if together == CLOSE else {})
    assert findings["together about"] == (EACH_OTHER if together in (ABOUT, SMALL) else {})
    assert findings["cancelled"] == findings["cancelling too close"] == {}


def test_a_partner_that_is_needed_alone_shares_work_without_doing_it_all_together():
    """The second is needed alone, and beyond the first costs less than twice that: it is the first one's partner."""
    findings = of_sets(in_sets=in_pair(MATTERS, MATTERS), alone={**dict.fromkeys(HEADS, HARMLESS), PAIR[1]: MATTERS})
    assert findings["together"] == {PAIR[0]: (PAIR[1],)}
    assert findings["partner"] == {PAIR[1]: (PAIR[0],)}


def test_who_adds_next_to_nothing_to_what_a_set_costs_is_no_partner():
    three = dict(zip([(head, THREE) for head in HEADS], [MATTERS, HARMLESS, MATTERS], strict=True))
    findings = of_sets(in_sets=three)
    assert findings["together"] == findings["partner"] == EACH_OTHER
    assert findings["together too close"] == findings["together about"] == {}
    nobody = of_sets(in_sets=in_pair(MATTERS, HARMLESS))
    assert all(by_head == {} for by_head in nobody.values())


@pytest.mark.parametrize(("second", "reason"), [(CLOSE, "too close"), (ABOUT, "about"), (SMALL, "about")])
def test_a_partner_may_be_undecided_or_add_little(second, reason):
    findings = of_sets(in_sets=in_pair(MATTERS, second))
    assert findings["together"] == {PAIR[0]: (PAIR[1],)}
    assert findings["partner"] == {PAIR[1]: (PAIR[0],)}
    assert findings[f"together {reason}"] == {PAIR[1]: (PAIR[0],)}


@pytest.mark.parametrize("reason", ["together", "together too close", "together about"])
@pytest.mark.parametrize("rule", CASES)
def test_a_head_that_may_share_its_work_is_never_idle_and_misleading_only_if_needed(rule, reason):
    known, elsewhere = rule[:2]
    for readable in (True, False):
        alone = verdict_of(found(*known, **elsewhere), readable)
        shared = verdict_of(found(*known, **elsewhere), readable, {reason: ((1, 1),)})
        if reason == "together" or known[0] != MATTERS:
            verdict = {"together": "redundant", "together too close": "undecided", "together about": "marginal"}[reason]
            assert shared == Decision(verdict, reason, ((1, 1),))
        else:
            assert shared == alone


def test_sets_show_something_on_each_outcome():
    """On the second outcome nothing is shared."""
    known = {"in_sets": in_pair((MATTERS, HARMLESS), (MATTERS, HARMLESS)), "alone": (HARMLESS, HARMLESS)}
    assert of_sets(0, **known)["together"] == EACH_OTHER
    assert of_sets(1, **known) == {reason: {} for reason in OF_SETS}


@pytest.mark.parametrize("together", [MATTERS, HARMLESS, CLOSE])
@pytest.mark.parametrize("alone", [MATTERS, CLOSE, ABOUT])
def test_cancelling_heads_matter_alone_and_not_together(together, alone):
    findings = of_sets(cancelling={PAIR: together}, alone=alone)
    assert findings["cancelled"] == (EACH_OTHER if (together, alone) == (HARMLESS, MATTERS) else {})
    assert findings["cancelling too close"] == (EACH_OTHER if (together, alone) == (CLOSE, MATTERS) else {})
    assert all(findings[reason] == {} for reason in OF_SETS if reason.startswith(("together", "partner")))


@pytest.mark.parametrize(
    ("second", "reason"),
    [(MATTERS, "cancelled"), (HARMLESS, None), (SMALL, None), (CLOSE, "cancelling too close")],
)
def test_a_head_is_cancelled_only_by_heads_that_are_needed_alone(second, reason):
    """One that only reroutes is not needed itself: what the first one costs is real."""
    findings = of_sets(cancelling={PAIR: HARMLESS}, alone={**dict.fromkeys(HEADS, MATTERS), PAIR[1]: second})
    assert findings["cancelled"] == (EACH_OTHER if reason == "cancelled" else {})
    expected = {PAIR[0]: (PAIR[1],)} if reason == "cancelling too close" else {}
    assert findings["cancelling too close"] == expected


def test_a_set_that_cancels_is_harmless_on_every_outcome():
    for states in ((HARMLESS, HARMLESS), (HARMLESS, MATTERS), (HARMLESS, CLOSE)):
        for outcome in (0, 1):
            findings = of_sets(outcome, cancelling={PAIR: states}, alone=(MATTERS, MATTERS))
            assert findings["cancelled"] == (EACH_OTHER if states == (HARMLESS, HARMLESS) else {})
            assert findings["cancelling too close"] == (EACH_OTHER if CLOSE in states else {})


def test_partners_are_the_others_of_all_sets():
    """Two of three heads are enough: every pair is needed together."""
    pairs = {(head, pair): MATTERS for pair in itertools.combinations(HEADS, 2) for head in pair}
    every = {(head, THREE): MATTERS for head in HEADS}
    findings = of_sets(in_sets={**every, **pairs})
    assert findings["together"] == {head: tuple(other for other in HEADS if other != head) for head in HEADS}
    # The smallest sets name them; the third head shares work only with both together
    only = of_sets(in_sets={**every, **in_pair(MATTERS, MATTERS)})
    assert only["together"] == {**EACH_OTHER, HEADS[1]: PAIR}
    assert only["partner"] == {PAIR[0]: (HEADS[1], PAIR[1]), PAIR[1]: (PAIR[0], HEADS[1])}


def drawn_facts(rng, n_outcomes, *, with_cancelling):
    """Facts about three heads from random knowledge about all interventions and sets."""

    def draw(n_rows, states=(MATTERS, HARMLESS, CLOSE, ABOUT, SMALL)):
        return [[states[index] for index in rng.integers(len(states), size=n_outcomes)] for _ in range(n_rows)]

    every_set = [*itertools.combinations(HEADS, 2), THREE]
    chosen = [members for members in every_set if rng.random() < 0.6]
    cancelling = [members for members in every_set if with_cancelling and rng.random() < 0.4]
    sets = replace(
        NO_SETS,
        needed_in={head: tuple(members for members in chosen if head in members) for head in HEADS},
        harmless={members[0]: members for members in cancelling},
    )
    states = {name: draw(len(HEADS)) for name in TESTED}
    if rng.random() < 0.5:  # otherwise few sets are of heads that are all needed
        states["mean"] = [[MATTERS] * n_outcomes for _ in HEADS]
    states[NEEDED_IN] = draw(len(sets.needed_pairs))
    states[MOSTLY_SHARED] = draw(len(sets.needed_pairs), (MATTERS, HARMLESS, CLOSE))
    states[CANCELLING] = draw(len(sets.cancelling))
    states = {name: rows for name, rows in states.items() if rows}
    labelled = [head for head in HEADS if rng.random() < 0.8]
    return facts(p_values_of(states), HEADS, labelled, sets=sets, losses=rng.random((len(HEADS), n_outcomes)))


@pytest.mark.parametrize("with_cancelling", [False, True])
@pytest.mark.parametrize("n_outcomes", [1, 2, 3])
def test_partners_agree_whatever_is_known(n_outcomes, with_cancelling):
    """A head that shares work with another has it as a partner, which is neither idle nor misleading."""
    rng = np.random.default_rng(n_outcomes)
    n_shared = 0
    for _ in range(150):
        outcomes_of_head = dict(zip(HEADS, drawn_facts(rng, n_outcomes, with_cancelling=with_cancelling), strict=True))
        decisions = {head: decide(outcomes) for head, outcomes in outcomes_of_head.items()}
        sharing = {head: set() for head in HEADS}
        for head, outcomes in outcomes_of_head.items():
            for facts_on_outcome, reason in itertools.product(outcomes, ("together", "partner")):
                sharing[head].update(facts_on_outcome.partners.get(reason, ()))
        for head, partners in sharing.items():
            n_shared += len(partners)
            assert partners <= set(decisions[head].partners)
            assert head not in partners
            assert all(head in sharing[partner] for partner in partners)
            for partner in partners:
                assert decisions[partner].verdict not in ("idle", "misleading"), (decisions, outcomes_of_head[partner])
            if decisions[head].verdict == "redundant":
                facts_there = outcomes_of_head[head][decisions[head].outcome]
                assert not {"together", "partner"}.isdisjoint(facts_there.partners)
        # A head of a set whose cost is open is not called unneeded meanwhile
        for decision in decisions.values():
            if decision.reason.startswith("together"):
                assert all(decisions[partner].reason != "not needed" for partner in decision.partners)
    assert n_shared > 50


# how many sequences it takes


ENOUGH = [
    *itertools.product([8, 100], [0.05, 0.1, 0.2], [0.05, 0.01]),
    (1000, 0.1, 0.05),
]


@pytest.mark.parametrize(("n_tests", "threshold", "alpha"), ENOUGH)
def test_sequences_needed_is_the_smallest_sufficient_number(n_tests, threshold, alpha):
    factors = corrections(n_tests // 2, 0, 0)

    def p_harmless(n):
        drop = np.zeros((n, n_tests // 2, 1))
        return p_values({"mean": drop}, np.ones((n, 1)), np.array([threshold]), factors).harmless["mean"]

    assert factors["mean"] == n_tests
    n = sequences_needed(float(n_tests), alpha, threshold)
    assert (p_harmless(n) <= alpha).all()
    assert (p_harmless(n - 1) > alpha).all()


def test_sequences_needed_at_a_very_strict_level():
    n = sequences_needed(100.0, 1e-6, 0.1)
    drop = {"mean": np.zeros((n, 50, 1))}
    result = p_values(drop, np.ones((n, 1)), np.array([0.1]), corrections(50, 0, 0))
    assert (result.harmless["mean"] <= 1e-6).all()


# sentences

OTHERS = ((1, 2), (3, 0))


def verdicts_of(reason):
    return sorted(verdict for verdict, reason_of_verdict in REASONS_OF_VERDICTS if reason_of_verdict == reason)


def fits(verdict, label):
    """Whether a head of this label can have a verdict that is about its label."""
    return {"misleading": label == "association", "idle": label != "association", "hidden": True}.get(verdict, True)


def made_up(reason, *, label="association", drops=(), drop=(0.25, 0.4), threshold=(0.1, 0.08), **given):
    """An audit of one head that got its verdict for this reason.

    Args:
        reason: The reason.
        label: Its label.
        drops: Accuracy lost on both outcomes, of interventions that differ from the others.
        drop: Accuracy lost on both outcomes.
        threshold: Loss that counts on each.
        given: Fields of the record.
    """

    def cost(drop):
        low, high = tuple(value - 0.125 for value in drop), tuple(value + 0.125 for value in drop)
        return InterventionCost(drop=drop, low=low, high=high, n=100)

    shares = reason.startswith(("together", "partner"))
    is_needed = True if reason in REASONS_OF_NEEDED_HEADS else None
    values = {
        "layer": 0,
        "head": 3,
        "verdict": next(verdict for verdict in verdicts_of(reason) if fits(verdict, label)),
        "partners": OTHERS if shares or "cancel" in reason else (),
        "other_heads": OTHERS[:1] if shares else (),
        "beyond_others": cost((0.5, 0.75)) if shares else None,
        "label": label,
        "kind": "association",
        **dict.fromkeys(("score", "score_low", "score_high", "p_label", "value_weighted", "moved"), 0.5),
        "needed": {"zero": None, "mean": is_needed, "resample": None},
        "costs": dict.fromkeys(INTERVENTIONS, cost(drop)) | {name: cost(value) for name, value in dict(drops).items()},
    }
    return AuditResult(
        heads=(HeadVerdict(reason=reason, **(values | given)),),
        kinds=("association", "broadcast"),
        interventions=INTERVENTIONS,
        outcomes=("first", "second"),
        clean=np.array([1.0, 0.9]),
        threshold=np.array(threshold),
        sets=(),
        exact=True,
        largest_harmless=(),
        smallest_costly=(),
        warnings=(),
        alpha=ALPHA,
        n=100,
        n_distinct=100,
    )


def sentence_about(reason, **given):
    (text,) = made_up(reason, **given).sentences()
    return text


EVERY_REASON = sorted({*REASONS, *(reason for _, _, reason in RULES)})


@pytest.mark.parametrize(
    ("reason", "label"),
    [
        (reason, label)
        for reason in EVERY_REASON
        for label in ("association", "uniform", "unclassified")
        if any(fits(verdict, label) for verdict in verdicts_of(reason))
    ],
)
def test_every_reason_makes_a_sentence(reason, label):
    text = sentence_about(reason, label=label)
    assert re.fullmatch(r"0\.3 looks [^{}]*[^{} .]\.", text)
    assert "  " not in text
    shares = reason.startswith(("together", "partner"))
    assert ("1.2" in text) == (shares or "cancel" in reason)
    assert ("0.75 [0.62, 0.88] on second" in text) == shares  # beyond the others
    costs = "0.40 [0.28, 0.53] on second" in text  # without an outcome, that which suffers most
    assert costs == (reason != "nothing to lose")
    look = {"association": "association (0.50)", "uniform": "uniform", "unclassified": "no known kind (nearest"}[label]
    assert look in text


@pytest.mark.parametrize("reason", EVERY_REASON)
def test_costs_are_those_of_the_outcome_that_gave_the_verdict(reason):
    """Also where another outcome suffers more, which is named; "less than" is said of its own threshold."""
    text = sentence_about(reason, outcome="first")
    text, _, largest = text.partition("; removing it costs most on another outcome: ")
    assert largest.startswith("0.40 [0.28, 0.53] on second")
    assert "on second" not in text
    assert "0.08" not in text
    assert ("0.25 [0.12, 0.38] on first" in text) == (reason != "nothing to lose")


def test_the_worst_outcome_is_the_one_furthest_above_its_threshold():
    values, outcomes = made_up("needed", drop=(0.3, 0.2), threshold=(0.2, 0.05)).cost("mean")
    assert (outcomes, values[0, 0]) == (("second",), 0.2)


def test_a_decoy_gets_a_but_and_an_idle_head_an_and():
    assert ", but is not needed" in sentence_about("not needed")
    assert ", and is not needed" in sentence_about("not needed", label="unclassified")


def test_the_sentence_gives_the_pattern_of_the_label_that_costs_less():
    little = (0.25, 0.02)
    ideal = sentence_about("through its pattern", drops={"ideal": little})
    assert ideal.endswith(
        "The ideal pattern would do: only 0.02 [-0.10, 0.14] on second is lost with it, less than 0.08."
    )
    label_only = sentence_about("through its pattern", drops={"label_only_pattern": little})
    enough = "only 0.02 [-0.10, 0.14] on second is lost if all other attention is spread evenly, less than 0.08."
    assert label_only.endswith(enough)
    assert "ideal" not in label_only


HARMLESS_REASONS = (
    "not needed",
    "not through its pattern",
    "content unused",
    "which key is irrelevant",
    "any pattern would do",
    "values unused",
)


@pytest.mark.parametrize("reason", HARMLESS_REASONS)
def test_a_sentence_gives_the_cost_first_and_then_what_counts(reason):
    assert "by 0.40 [0.28, 0.53] on second, less than 0.08" in sentence_about(reason)


def test_what_a_faithful_head_costs_is_said_apart_from_what_would_do():
    """Losses in one sentence, the harmless intervention in the next."""
    losses, harmless = sentence_about("through its pattern", drops={"ideal": (0.25, 0.02)}).split(". ", 1)
    assert losses.count("0.40 [0.28, 0.53]") == len(("mean", "uniform", "resampled_pattern", "wrong_key"))
    assert "0.02" not in losses
    assert "0.40" not in harmless


@pytest.mark.parametrize("name", MUST_COST)
def test_a_test_of_a_label_that_is_open_or_at_the_threshold_gives_its_cost(name):
    lost = {"drops": {name: (0.25, 0.09)}}
    is_open, about = sentence_about(f"{name} too close", **lost), sentence_about(f"{name} about", **lost)
    assert "is undecided: with " in is_open
    assert "by 0.09 [-0.04, 0.21] on second, and 0.08 counts" in is_open
    assert " in part: with " in about
    assert "by 0.09 [-0.04, 0.21] on second, about the 0.08 that counts" in about


def test_sentences_about_costs_at_the_threshold():
    assert "about the 0.08 that counts" in sentence_about("about as much as counts")
    assert "less than the 0.08 that counts, but more than 0.02" in sentence_about("less than counts")


def test_a_head_that_shares_its_work_says_what_it_costs_beyond_others_and_alone():
    text = sentence_about("together", verdict="redundant")
    assert "shares its work with 1.2 and 3.0: accuracy falls by 0.40 [0.28, 0.53] on second if it is removed" in text
    assert "and by 0.75 [0.62, 0.88] on second if 1.2 is removed before (0.08 counts)" in text


def test_a_sentence_says_where_another_ablation_gives_another_answer():
    """A head whose output never changes: its mean is its output, while zeros are not."""
    needed = {"zero": True, "mean": False, "resample": False}
    text = sentence_about("not needed", needed=needed)
    assert text.endswith("; it is needed with zeros in its place (0.40 [0.28, 0.53] on second).")
    needed = {"zero": True, "mean": True, "resample": False}
    text = sentence_about("needed", needed=needed, label="uniform")
    assert "; it is not needed with its output in another sequence in its place (0.40" in text
    open_or_same = {"zero": None, "mean": True, "resample": True}
    assert "in its place" not in sentence_about("needed", needed=open_or_same)
    not_known = {"zero": True, "mean": None, "resample": False}
    assert "in its place" not in sentence_about("too close", needed=not_known)


def test_an_undecided_head_says_how_many_sequences_would_decide_it():
    told = sentence_about("too close", verdict="undecided", n_to_decide=1234)
    assert told.endswith("the 0.08 that counts is undecided; about 1,234 sequences would decide it.")
    told = sentence_about("too close", verdict="undecided")
    assert told.endswith("; more sequences would hardly decide it.")
    assert "sequences" not in sentence_about("nothing to lose", verdict="undecided")


def test_words_for_heads_labels_and_costs():
    assert list_of_heads([(0, 1)]) == "0.1"
    assert list_of_heads([(0, 1), (2, 3), (4, 5)]) == "0.1, 2.3 and 4.5"
    assert look_in_words("unclassified", "self", 0.125) == "looks like no known kind (nearest: self, 0.12)"
    assert cost_in_words("#1", 0.5, (-0.25, 0.75)) == "0.50 [-0.25, 0.75] on #1"
    assert 0 < SHARE_THAT_COUNTS < 1


def test_the_smaller_p_value_after_a_factor_is_at_most_one():
    def p_values(*values):
        values = np.array(values)[:, None]
        return PValues(
            matters={"mean": values},
            harmless={"mean": values[::-1]},
            more_than_little={"mean": values / 2},
            limited={"mean": values},
        )

    doubled = p_values(0.2, 0.3, 0.6, np.nan).times({"mean": 2.0})
    smaller = p_values(0.5, 0.02, np.nan, np.nan).or_smaller(doubled)
    np.testing.assert_allclose(smaller.matters["mean"][:, 0], [0.4, 0.02, 1, np.nan])
    np.testing.assert_allclose(smaller.harmless["mean"][:, 0], [np.nan, 1, 0.02, 0.4])
    np.testing.assert_allclose(smaller.more_than_little["mean"][:, 0], [0.2, 0.01, 0.6, np.nan])
    np.testing.assert_allclose(smaller.limited["mean"][:, 0], [0.4, 0.02, 1, np.nan])
