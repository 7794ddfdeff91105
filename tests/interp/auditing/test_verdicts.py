"""Verdict rules, the family of tests, and a sentence for every reason."""

import itertools
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from interp.auditing.experiments import Effects
from interp.auditing.interventions import CANCELLING, INTERVENTIONS, LABEL_TESTS, NEEDED_IN, TESTED
from interp.auditing.outcomes import SHARE_THAT_COUNTS
from interp.auditing.records import HeadVerdict, InterventionCost
from interp.auditing.result import AuditResult
from interp.auditing.sentences import REASONS, cost_in_words, list_of_heads, look_in_words
from interp.auditing.sets import HeadSets
from interp.auditing.significance import PValues, corrections, sequences_needed, uncorrected_p_values
from interp.auditing.verdicts import HEAD_VERDICTS, RULES, Decision, decide, facts_about_heads, partners_in_sets
from interp.core.statistics import drop_tests

ALPHA = 0.01
SURE, OPEN = 0.001, 0.5
MATTERS, HARMLESS, CLOSE = "matters", "harmless", "close"
P = {MATTERS: (SURE, 1.0), HARMLESS: (1.0, SURE), CLOSE: (OPEN, OPEN), "unknown": (np.nan, np.nan)}


def found(
    mean,
    ideal=CLOSE,
    label_only_pattern=CLOSE,
    uniform=MATTERS,
    resample=MATTERS,
    wrong_key=MATTERS,
    resampled_values=MATTERS,
    zero=CLOSE,
):
    """p values of one head, by what is known about each intervention."""
    known = {"mean": mean, "ideal": ideal, "label_only_pattern": label_only_pattern, "uniform": uniform}
    known |= {"resample": resample, "wrong_key": wrong_key, "resampled_values": resampled_values, "zero": zero}
    assert set(known) == set(TESTED)
    matters, harmless = ({name: np.array([P[how][index]]) for name, how in known.items()} for index in (0, 1))
    return PValues(matters | NO_SET_TESTS, harmless | NO_SET_TESTS)


NO_SET_TESTS = {NEEDED_IN: np.ones(0), CANCELLING: np.ones(0)}
NO_SETS = HeadSets(needed_in={}, harmless={}, largest_harmless=(), smallest_costly=(), exact=True, n_removals=0)


def facts(p, heads, labelled, *, at_chance=False, doubtful=()):
    doubtful = dict.fromkeys(("zero", "mean", "resample"), doubtful)
    return facts_about_heads(p, heads, NO_SETS, labelled=labelled, doubtful=doubtful, at_chance=at_chance, alpha=ALPHA)


def verdict_of(p, readable=True, partners=(), **settings):
    (head,) = facts(p, [(0, 0)], [(0, 0)] if readable else [], **settings)
    return decide(replace(head, partners=dict(partners)))


CASES = [
    ((HARMLESS,), {}, "misleading", "idle", "not needed"),
    ((CLOSE,), {}, "undecided", "undecided", "too close"),
    ((MATTERS, HARMLESS, HARMLESS), {"uniform": HARMLESS}, "misleading", "hidden", "not through its pattern"),
    ((MATTERS, HARMLESS, HARMLESS), {"resample": HARMLESS}, "misleading", "hidden", "content unused"),
    ((MATTERS, HARMLESS, HARMLESS), {"wrong_key": HARMLESS}, "misleading", "hidden", "which key is irrelevant"),
    ((MATTERS, HARMLESS, HARMLESS), {"resampled_values": HARMLESS}, "misleading", "hidden", "values unused"),
    ((MATTERS, HARMLESS, HARMLESS), {"resampled_values": CLOSE}, "undecided", "hidden", "resampled_values too close"),
    ((MATTERS, HARMLESS, HARMLESS), {"uniform": CLOSE}, "undecided", "hidden", "uniform too close"),
    ((MATTERS, HARMLESS, HARMLESS), {"resample": CLOSE}, "undecided", "hidden", "resample too close"),
    ((MATTERS, HARMLESS, HARMLESS), {"wrong_key": CLOSE}, "undecided", "hidden", "wrong_key too close"),
    (
        (MATTERS, CLOSE, CLOSE),
        {"uniform": CLOSE, "wrong_key": HARMLESS},
        "misleading",
        "hidden",
        "which key is irrelevant",
    ),
    ((MATTERS, MATTERS, MATTERS), {"wrong_key": CLOSE}, "misleading", "hidden", "through something else"),
    ((MATTERS, HARMLESS, HARMLESS), {}, "faithful", "hidden", "through its pattern"),
    ((MATTERS, HARMLESS, MATTERS), {}, "faithful", "hidden", "through its pattern"),
    ((MATTERS, MATTERS, HARMLESS), {}, "faithful", "hidden", "through its pattern"),
    ((MATTERS, CLOSE, HARMLESS), {}, "faithful", "hidden", "through its pattern"),
    ((MATTERS, HARMLESS, CLOSE), {}, "faithful", "hidden", "through its pattern"),
    ((MATTERS, HARMLESS, CLOSE), {"zero": HARMLESS}, "faithful", "hidden", "through its pattern"),
    ((MATTERS, MATTERS, MATTERS), {}, "misleading", "hidden", "through something else"),
    ((MATTERS, CLOSE, MATTERS), {}, "undecided", "hidden", "reading too close"),
    ((MATTERS, MATTERS, CLOSE), {}, "undecided", "hidden", "reading too close"),
    ((MATTERS, CLOSE, CLOSE), {}, "undecided", "hidden", "reading too close"),
]


@pytest.mark.parametrize(("known", "elsewhere", "readable", "unreadable", "reason"), CASES)
def test_every_verdict_rule(known, elsewhere, readable, unreadable, reason):
    assert verdict_of(found(*known, **elsewhere)) == Decision(readable, reason)
    without = reason if reason in ("not needed", "too close") else "needed"
    untried = dict.fromkeys(("ideal", "label_only_pattern", "wrong_key", "resampled_values"), "unknown")
    assert verdict_of(found(known[0], **elsewhere | untried), False) == Decision(unreadable, without)


def test_a_head_is_faithful_only_if_every_way_to_look_elsewhere_costs():
    must_cost = ("uniform", "resample", "wrong_key", "resampled_values")
    for ways in itertools.product([MATTERS, HARMLESS, CLOSE], repeat=4):
        given = verdict_of(found(MATTERS, HARMLESS, HARMLESS, **dict(zip(must_cost, ways, strict=True))))
        assert (given.verdict == "faithful") == (set(ways) == {MATTERS})
        assert (given.verdict == "misleading") == (HARMLESS in ways)


def test_p_values_up_to_the_level_count():
    def p(value):
        return PValues(
            {name: np.ones(1) for name in TESTED} | NO_SET_TESTS,
            {name: np.array([value]) for name in TESTED} | NO_SET_TESTS,
        )

    assert verdict_of(p(ALPHA)).verdict == "misleading"
    assert verdict_of(p(ALPHA * 1.001)).verdict == "undecided"


@pytest.mark.parametrize("readable", [True, False])
@pytest.mark.parametrize("known", [rule[:2] for rule in CASES])
def test_redundant_partners_take_precedence_over_cancelling_ones(known, readable):
    p, (one, other) = found(*known[0], **known[1]), ((1, 1), (2, 0))
    both = {"together": (one,), "cancelled": (other,)}
    assert verdict_of(p, readable, both) == Decision("redundant", "together", (one,))
    cancels = verdict_of(p, readable, {"cancelled": (other,)})
    assert cancels == Decision("misleading" if readable else "idle", "cancelled", (other,))


@pytest.mark.parametrize("readable", [True, False])
def test_an_undecided_set_leaves_its_heads_undecided(readable):
    """A head is not called idle, or faithful, while a set that contains it may show the contrary."""
    other = ((1, 1),)
    given = verdict_of(found(HARMLESS), readable, {"together too close": other})
    assert given == Decision("undecided", "together too close", other)
    given = verdict_of(found(MATTERS, HARMLESS, HARMLESS), readable, {"cancelling too close": other})
    assert given == Decision("undecided", "cancelling too close", other)


def test_a_head_that_may_be_needed_on_an_outcome_left_out_is_undecided():
    for known, elsewhere in (rule[:2] for rule in CASES):
        p = found(*known, **elsewhere)
        given = verdict_of(p, doubtful={(0, 0)})
        assert given == (Decision("undecided", "left out") if known == (HARMLESS,) else verdict_of(p))


@pytest.mark.parametrize("readable", [True, False])
def test_no_head_of_a_model_at_chance_is_harmless(readable):
    for known, elsewhere in (rule[:2] for rule in CASES):
        given = verdict_of(found(*known, **elsewhere), readable, at_chance=True)
        if known[0] == MATTERS:
            assert given == verdict_of(found(*known, **elsewhere), readable)
        else:
            assert given == Decision("undecided", "nothing to lose")


def test_each_head_has_its_own_p_values():
    parts = [found(HARMLESS), found(MATTERS, uniform=HARMLESS), found(CLOSE)]
    p = PValues(
        *(
            {name: np.concatenate([getattr(one, kind)[name] for one in parts]) for name in TESTED}
            for kind in ("matters", "harmless")
        )
    )
    p = PValues(p.matters | NO_SET_TESTS, p.harmless | NO_SET_TESTS)
    heads = [(0, 0), (0, 1), (1, 0)]
    given = [decide(head) for head in facts(p, heads, heads[1:])]
    assert [one.verdict for one in given] == ["idle", "misleading", "undecided"]


def test_every_verdict_and_every_reason_has_a_rule():
    reached = {rule[2] for rule in CASES} | {rule[3] for rule in CASES} | {"redundant"}
    assert reached == set(HEAD_VERDICTS)
    of_sets = {"together", "cancelled", "together too close", "cancelling too close", "left out"}
    assert {rule[4] for rule in CASES} | {"needed", "nothing to lose"} | of_sets == set(REASONS)
    assert {reason for _, _, reason in RULES} == set(REASONS)


def test_the_documentation_has_the_table_of_rules():
    """The verdict and the reason of every rule, in the same order."""
    text = (Path(__file__).parents[3] / "docs" / "audit.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \d+ \| .* \| (\w+) \| (.+) \|$", text, re.MULTILINE)
    assert rows == [(verdict, reason) for _, verdict, reason in RULES]


# one level for all verdicts


def drops(seed=0, n=120, heads=5, outcomes=2):
    rng = np.random.default_rng(seed)
    rate = np.linspace(0, 0.5, heads)[:, None] * np.linspace(1, 0.4, outcomes)
    return (rng.random((n, heads, outcomes)) < rate).astype(float)


def p_values(drop, total, threshold, factors):
    return uncorrected_p_values(Effects(total, drop), threshold).times(factors)


def test_p_values_by_hand():
    family = {"mean": drops(0), "uniform": drops(1), NEEDED_IN: drops(2, heads=3)}
    asked, threshold = np.ones((120, 2)), np.array([0.1, 0.08])
    factors = {
        "mean": 2 * 5,
        "uniform": 4 * (3 * 5 + 4 * 2),
        NEEDED_IN: 4 * 3,
    }  # half, a quarter, a quarter
    assert {name: corrections(5, 2, 3)[name] for name in factors} == factors
    result = p_values(family, asked, threshold, corrections(5, 2, 3))
    for name, drop in family.items():
        for head in range(drop.shape[1]):
            each = [drop_tests(drop[:, head, [at]], asked[:, [at]], threshold[[at]]) for at in range(2)]
            matters = min(1.0, 2 * min(float(larger[0]) for larger, _ in each))
            harmless = max(float(smaller[0]) for _, smaller in each)
            assert result.matters[name][head] == pytest.approx(min(1, factors[name] * matters), rel=1e-9)
            assert result.harmless[name][head] == pytest.approx(min(1, factors[name] * harmless), rel=1e-9)


def test_every_question_gets_its_share_and_all_of_them_the_level():
    """One error of each intervention at its corrected level, added up over heads and sets."""
    n_heads, n_readable, n_sets = 7, 3, 4
    factors = corrections(n_heads, n_readable, n_sets)
    assert set(factors) == {*TESTED, NEEDED_IN, CANCELLING}
    tried_on = {name: n_readable if name in LABEL_TESTS else n_heads for name in TESTED} | {NEEDED_IN: n_sets}
    assert sum(n / factors[name] for name, n in tried_on.items()) == pytest.approx(1)


def test_interventions_that_were_not_tried_have_no_p_value():
    ideal = drops(1)
    ideal[:, [1, 3]] = np.nan
    drop, threshold = {"mean": drops(0), "ideal": ideal}, np.array([0.1, 0.08])
    found = p_values(drop, np.ones((120, 2)), threshold, corrections(5, 5, 0))
    for kind in ("matters", "harmless"):
        values = getattr(found, kind)["ideal"]
        assert np.isnan(values).tolist() == [False, True, False, True, False]


def test_a_head_matters_by_one_outcome_and_is_harmless_by_all():
    drop = np.zeros((200, 1, 2))
    drop[:100, 0, 1] = 1
    result = p_values({"mean": drop}, np.ones((200, 2)), np.array([0.1, 0.1]), corrections(1, 0, 0))
    assert result.matters["mean"][0] < ALPHA
    assert result.harmless["mean"][0] == 1


# sets of heads

PAIR, HEADS = ((0, 0), (1, 1)), [(0, 0), (0, 1), (1, 1)]


def of_sets(kind, sets, matters, harmless, *, alone_matters=1.0, alone_harmless=1.0):
    """Partners by reason, from p values of these sets, or of heads in them, and of each of three heads alone."""
    p = PValues(
        NO_SET_TESTS | {kind: np.array(matters), "mean": np.full(3, alone_matters)},
        NO_SET_TESTS | {kind: np.array(harmless), "mean": np.full(3, alone_harmless)},
    )
    if kind == NEEDED_IN:
        needed_in = {head: tuple(members for one, members in sets if one == head) for head, _ in sets}
        tested = replace(NO_SETS, needed_in=needed_in)
    else:
        tested = replace(NO_SETS, harmless={members[0]: members for members in sets})
    partners = partners_in_sets(p, HEADS, tested, alpha=ALPHA)
    return {
        reason: {head: partners[head][reason] for head in HEADS if reason in partners[head]}
        for reason in ("together", "together too close", "cancelled", "cancelling too close")
    }


EACH_OTHER = {PAIR[0]: (PAIR[1],), PAIR[1]: (PAIR[0],)}
IN_PAIR = [(head, PAIR) for head in PAIR]


@pytest.mark.parametrize("together", [MATTERS, HARMLESS, CLOSE])
@pytest.mark.parametrize("alone", [SURE, OPEN])
def test_redundant_heads_need_significance_in_the_set_and_alone(together, alone):
    (matters,), (harmless,) = [P[together][:1], P[together][1:]]
    findings = of_sets(NEEDED_IN, IN_PAIR, [matters] * 2, [harmless] * 2, alone_harmless=alone)
    assert findings["together"] == (EACH_OTHER if (together, alone) == (MATTERS, SURE) else {})
    assert findings["together too close"] == (EACH_OTHER if (together, alone) == (CLOSE, SURE) else {})
    assert findings["cancelled"] == findings["cancelling too close"] == {}


def test_only_the_heads_that_cost_more_in_the_set_are_redundant():
    """A head that adds little to what a set costs is not, although the set costs accuracy."""
    findings = of_sets(NEEDED_IN, IN_PAIR, [SURE, 1.0], [1.0, SURE], alone_harmless=SURE)
    assert findings["together"] == {PAIR[0]: (PAIR[1],)}
    assert findings["together too close"] == {}


@pytest.mark.parametrize("together", [MATTERS, HARMLESS, CLOSE])
@pytest.mark.parametrize("alone", [SURE, OPEN])
def test_cancelling_heads_matter_alone_and_not_together(together, alone):
    (matters,), (harmless,) = [P[together][:1], P[together][1:]]
    findings = of_sets(CANCELLING, [PAIR], [matters], [harmless], alone_matters=alone)
    assert findings["cancelled"] == (EACH_OTHER if (together, alone) == (HARMLESS, SURE) else {})
    assert findings["cancelling too close"] == (EACH_OTHER if (together, alone) == (CLOSE, SURE) else {})
    assert findings["together"] == findings["together too close"] == {}


def test_partners_are_the_others_of_all_smallest_sets():
    """Two of three heads are enough: every pair is needed together."""
    pairs = [(head, pair) for pair in itertools.combinations(HEADS, 2) for head in pair]
    every = [(head, tuple(HEADS)) for head in HEADS]
    findings = of_sets(NEEDED_IN, [*every, *pairs], [SURE] * 9, [1.0] * 9, alone_harmless=SURE)
    assert findings["together"] == {head: tuple(one for one in HEADS if one != head) for head in HEADS}
    only = of_sets(NEEDED_IN, [*every, *IN_PAIR], [SURE] * 5, [1.0] * 5, alone_harmless=SURE)
    assert only["together"] == {**EACH_OTHER, HEADS[1]: PAIR}


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


def made_up(reason, *, label="association", p_ideal=1.0, drop=(0.25, 0.4), threshold=(0.1, 0.08), **given):
    """An audit of one head that got its verdict for this reason."""
    low, high = tuple(one - 0.125 for one in drop), tuple(one + 0.125 for one in drop)
    cost = InterventionCost(drop=drop, low=low, high=high, p_matters=1.0, p_harmless=1.0, n=100)
    head = HeadVerdict(
        layer=0,
        head=3,
        verdict=given.pop("verdict", "misleading"),
        reason=reason,
        partners=((1, 2), (3, 0)) if "together" in reason or "cancel" in reason else (),
        label=label,
        kind="association",
        score=0.5,
        score_low=0.5,
        score_high=0.5,
        p_label=0.5,
        value_weighted=0.5,
        moved=0.5,
        needed=given.pop("needed", {"zero": None, "mean": None, "resample": None}),
        costs=dict.fromkeys(INTERVENTIONS, cost) | {"ideal": replace(cost, p_harmless=p_ideal)},
        **given,
    )
    return AuditResult(
        heads=(head,),
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


@pytest.mark.parametrize("label", ["association", "uniform", "unclassified"])
@pytest.mark.parametrize("reason", sorted(REASONS))
def test_every_reason_makes_a_sentence(reason, label):
    (sentence,) = made_up(reason, label=label).sentences()
    assert re.fullmatch(r"0\.3 looks [^{}]*[^{} .]\.", sentence)
    assert "  " not in sentence
    assert ("1.2 and 3.0" in sentence) == ("together" in reason or "cancel" in reason)
    costs = "0.40 [0.28, 0.53] on second" in sentence  # of the outcome that suffers most
    assert costs == (reason != "nothing to lose")
    look = {"association": "association (0.50)", "uniform": "uniform", "unclassified": "no known kind (nearest"}[label]
    assert look in sentence


def test_the_worst_outcome_is_the_one_furthest_above_its_threshold():
    values, outcomes = made_up("needed", drop=(0.3, 0.2), threshold=(0.2, 0.05)).cost("mean")
    assert (outcomes, values[0, 0]) == (("second",), 0.2)


def test_a_decoy_gets_a_but_and_an_idle_head_an_and():
    assert ", but is not needed" in made_up("not needed").sentences()[0]
    assert ", and is not needed" in made_up("not needed", label="unclassified").sentences()[0]


def test_the_sentence_gives_the_intervention_that_is_harmless():
    assert "with the ideal pattern by less than 0.08" in made_up("through its pattern", p_ideal=SURE).sentences()[0]
    assert "with all other attention spread evenly by less than 0.08" in made_up("through its pattern").sentences()[0]


HARMLESS_REASONS = (
    "together",
    "not needed",
    "not through its pattern",
    "content unused",
    "which key is irrelevant",
    "values unused",
)


@pytest.mark.parametrize("reason", HARMLESS_REASONS)
def test_a_sentence_says_what_was_shown_less_than_the_loss_that_counts(reason):
    assert "by less than 0.08 (0.40 [0.28, 0.53] on second)" in made_up(reason).sentences()[0]


def test_a_sentence_says_where_another_ablation_gives_another_answer():
    """A head whose output never changes: its mean is its output, while zeros are not."""
    needed = {"zero": True, "mean": False, "resample": False}
    (sentence,) = made_up("not needed", needed=needed).sentences()
    assert sentence.endswith("; it is needed with zeros in its place (0.40 [0.28, 0.53] on second).")
    needed = {"zero": True, "mean": True, "resample": False}
    (sentence,) = made_up("needed", needed=needed, label="uniform").sentences()
    assert "; it is not needed with its output in another sequence in its place (0.40" in sentence
    for same in ({"zero": None, "mean": True, "resample": True}, {"zero": True, "mean": None, "resample": False}):
        assert "in its place" not in made_up("needed", needed=same).sentences()[0]


def test_an_undecided_head_says_how_many_sequences_would_decide_it():
    told = made_up("too close", verdict="undecided", n_to_decide=1234).sentences()[0]
    assert told.endswith("and 0.08 counts; about 1,234 sequences would decide it.")
    told = made_up("too close", verdict="undecided").sentences()[0]
    assert told.endswith("; many more sequences would not decide it.")
    assert "sequences" not in made_up("nothing to lose", verdict="undecided").sentences()[0]


def test_words_for_heads_labels_and_costs():
    assert list_of_heads([(0, 1)]) == "0.1"
    assert list_of_heads([(0, 1), (2, 3), (4, 5)]) == "0.1, 2.3 and 4.5"
    assert look_in_words("unclassified", "self", 0.125) == "looks like no known kind (nearest: self, 0.12)"
    assert cost_in_words("#1", 0.5, -0.25, 0.75) == "0.50 [-0.25, 0.75] on #1"
    assert 0 < SHARE_THAT_COUNTS < 1


def test_the_smaller_p_value_after_a_factor_is_at_most_one():
    def p_values(*values):
        return PValues({"mean": np.array(values)}, {"mean": np.array(values[::-1])})

    doubled = p_values(0.2, 0.3, 0.6, np.nan).times({"mean": 2.0})
    smaller = p_values(0.5, 0.02, np.nan, np.nan).or_smaller(doubled)
    np.testing.assert_allclose(smaller.matters["mean"], [0.4, 0.02, 1, np.nan])
    np.testing.assert_allclose(smaller.harmless["mean"], [np.nan, 1, 0.02, 0.4])
