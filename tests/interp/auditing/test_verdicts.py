"""Verdict rules, the family of tests, and a sentence for every reason."""

import itertools
import re
from dataclasses import replace

import numpy as np
import pytest

from interp.auditing.experiments import INTERVENTIONS, READINGS
from interp.auditing.records import Cost, HeadVerdict
from interp.auditing.result import AuditResult
from interp.auditing.sentences import REASONS, cost_in_words, list_of_heads, look_in_words
from interp.auditing.verdicts import (
    CANCELLING,
    JUDGED,
    MUST_COST,
    NEEDED_IN,
    ON_ALL,
    SHARE,
    VERDICTS,
    Judged,
    PValues,
    SetFindings,
    corrections,
    judge,
    raw_p_values,
    sequences_needed,
    set_findings,
)
from interp.core.statistics import drop_tests

ALPHA = 0.01
SURE, OPEN = 0.001, 0.5
MATTERS, HARMLESS, CLOSE = "matters", "harmless", "close"
P = {MATTERS: (SURE, 1.0), HARMLESS: (1.0, SURE), CLOSE: (OPEN, OPEN), "unknown": (np.nan, np.nan)}


def found(
    mean,
    ideal=CLOSE,
    read_part=CLOSE,
    uniform=MATTERS,
    resample=MATTERS,
    wrong_key=MATTERS,
    other_read=MATTERS,
    zero=CLOSE,
):
    """p values of one head, by what is known about each intervention."""
    known = {"mean": mean, "ideal": ideal, "read_part": read_part, "uniform": uniform, "resample": resample}
    known |= {"wrong_key": wrong_key, "other_read": other_read, "zero": zero}
    assert set(known) == set(JUDGED)
    return PValues(*({name: np.array([P[how][part]]) for name, how in known.items()} for part in (0, 1)))


def verdict_of(p, readable=True, **settings):
    return judge([(0, 0)], [readable], p, sets=SetFindings(), alpha=ALPHA, **settings)[0]


RULES = [
    ((HARMLESS,), {}, "misleading", "idle", "not needed"),
    ((CLOSE,), {}, "undecided", "undecided", "too close"),
    ((MATTERS, HARMLESS, HARMLESS), {"uniform": HARMLESS}, "misleading", "hidden", "not through its pattern"),
    ((MATTERS, HARMLESS, HARMLESS), {"resample": HARMLESS}, "misleading", "hidden", "only its range"),
    ((MATTERS, HARMLESS, HARMLESS), {"wrong_key": HARMLESS}, "misleading", "hidden", "any key"),
    ((MATTERS, HARMLESS, HARMLESS), {"other_read": HARMLESS}, "misleading", "hidden", "nothing read"),
    ((MATTERS, HARMLESS, HARMLESS), {"other_read": CLOSE}, "undecided", "hidden", "other_read too close"),
    ((MATTERS, HARMLESS, HARMLESS), {"uniform": CLOSE}, "undecided", "hidden", "uniform too close"),
    ((MATTERS, HARMLESS, HARMLESS), {"resample": CLOSE}, "undecided", "hidden", "resample too close"),
    ((MATTERS, HARMLESS, HARMLESS), {"wrong_key": CLOSE}, "undecided", "hidden", "wrong_key too close"),
    ((MATTERS, CLOSE, CLOSE), {"uniform": CLOSE, "wrong_key": HARMLESS}, "misleading", "hidden", "any key"),
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


@pytest.mark.parametrize(("known", "elsewhere", "readable", "unreadable", "reason"), RULES)
def test_every_verdict_rule(known, elsewhere, readable, unreadable, reason):
    assert verdict_of(found(*known, **elsewhere)) == Judged(readable, reason)
    without = reason if reason in ("not needed", "too close") else "needed"
    untried = dict.fromkeys(("ideal", "read_part", "wrong_key", "other_read"), "unknown")
    assert verdict_of(found(known[0], **elsewhere | untried), False) == Judged(unreadable, without)


def test_a_head_is_faithful_only_if_every_way_to_look_elsewhere_costs():
    assert set(MUST_COST) == {"uniform", "resample", "wrong_key", "other_read"}
    for ways in itertools.product([MATTERS, HARMLESS, CLOSE], repeat=4):
        given = verdict_of(found(MATTERS, HARMLESS, HARMLESS, **dict(zip(MUST_COST, ways, strict=True))))
        assert (given.verdict == "faithful") == (set(ways) == {MATTERS})
        assert (given.verdict == "misleading") == (HARMLESS in ways)


def test_p_values_up_to_the_level_count():
    def p(value):
        return PValues({name: np.ones(1) for name in JUDGED}, {name: np.array([value]) for name in JUDGED})

    assert verdict_of(p(ALPHA)).verdict == "misleading"
    assert verdict_of(p(ALPHA * 1.001)).verdict == "undecided"


@pytest.mark.parametrize("readable", [True, False])
@pytest.mark.parametrize("known", [rule[:2] for rule in RULES])
def test_redundant_partners_take_precedence_over_cancelling_ones(known, readable):
    heads, p, (one, other) = [(0, 0)], found(*known[0], **known[1]), ((1, 1), (2, 0))
    sets = SetFindings(redundant={(0, 0): (one,)}, cancelled={(0, 0): (other,)})
    assert judge(heads, [readable], p, sets=sets, alpha=ALPHA) == [Judged("redundant", "together", (one,))]
    sets = SetFindings(redundant={(5, 5): (one,)}, cancelled={(0, 0): (other,)})
    cancels = judge(heads, [readable], p, sets=sets, alpha=ALPHA)
    assert cancels == [Judged("misleading" if readable else "idle", "cancelled", (other,))]


@pytest.mark.parametrize("readable", [True, False])
def test_an_undecided_set_leaves_its_heads_undecided(readable):
    """A head is not called idle, or faithful, while a set that contains it may show the contrary."""
    other = ((1, 1),)
    maybe = SetFindings(maybe_redundant={(0, 0): other})
    given = judge([(0, 0)], [readable], found(HARMLESS), sets=maybe, alpha=ALPHA)
    assert given == [Judged("undecided", "together too close", other)]
    maybe = SetFindings(maybe_cancelled={(0, 0): other})
    given = judge([(0, 0)], [readable], found(MATTERS, HARMLESS, HARMLESS), sets=maybe, alpha=ALPHA)
    assert given == [Judged("undecided", "cancelling too close", other)]


def test_a_head_that_may_be_needed_on_an_outcome_left_out_is_undecided():
    for known, elsewhere in (rule[:2] for rule in RULES):
        p = found(*known, **elsewhere)
        given = judge([(0, 0)], [True], p, sets=SetFindings(), alpha=ALPHA, doubtful={(0, 0)})
        assert given == [Judged("undecided", "left out") if known == (HARMLESS,) else verdict_of(p)]


@pytest.mark.parametrize("readable", [True, False])
def test_no_head_of_a_model_at_chance_is_harmless(readable):
    for known, elsewhere in (rule[:2] for rule in RULES):
        given = verdict_of(found(*known, **elsewhere), readable, at_chance=True)
        if known[0] == MATTERS:
            assert given == verdict_of(found(*known, **elsewhere), readable)
        else:
            assert given == Judged("undecided", "nothing to lose")


def test_each_head_has_its_own_p_values():
    parts = [found(HARMLESS), found(MATTERS, uniform=HARMLESS), found(CLOSE)]
    p = PValues(
        *(
            {name: np.concatenate([getattr(one, kind)[name] for one in parts]) for name in JUDGED}
            for kind in ("matters", "harmless")
        )
    )
    given = judge([(0, 0), (0, 1), (1, 0)], [False, True, True], p, sets=SetFindings(), alpha=ALPHA)
    assert [one.verdict for one in given] == ["idle", "misleading", "undecided"]


def test_every_verdict_and_every_reason_has_a_rule():
    reached = {rule[2] for rule in RULES} | {rule[3] for rule in RULES} | {"redundant"}
    assert reached == set(VERDICTS)
    of_sets = {"together", "cancelled", "together too close", "cancelling too close", "left out"}
    assert {rule[4] for rule in RULES} | {"needed", "nothing to lose"} | of_sets == set(REASONS)


# one level for all verdicts


def drops(seed=0, n=120, heads=5, outcomes=2):
    rng = np.random.default_rng(seed)
    rate = np.linspace(0, 0.5, heads)[:, None] * np.linspace(1, 0.4, outcomes)
    return (rng.random((n, heads, outcomes)) < rate).astype(float)


def test_p_values_by_hand():
    family = {"mean": drops(0), "uniform": drops(1), NEEDED_IN: drops(2, heads=3)}
    asked, threshold = np.ones((120, 2)), np.array([0.1, 0.08])
    factors = {
        "mean": 2 * 5,
        "uniform": 4 * (3 * 5 + 4 * 2),
        NEEDED_IN: 4 * 3,
    }  # half, a quarter, a quarter
    assert {name: corrections(5, 2, 3)[name] for name in factors} == factors
    result = raw_p_values(family, asked, threshold).corrected(corrections(5, 2, 3))
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
    assert set(factors) == {*JUDGED, NEEDED_IN, CANCELLING}
    tried_on = {name: n_heads if name in ("mean", *ON_ALL) else n_readable for name in JUDGED} | {NEEDED_IN: n_sets}
    assert set(tried_on) & set(READINGS) == set(JUDGED) - {"mean", *ON_ALL}  # those are tried on readable heads only
    assert sum(n / factors[name] for name, n in tried_on.items()) == pytest.approx(1)


def test_interventions_that_were_not_tried_have_no_p_value():
    ideal = drops(1)
    ideal[:, [1, 3]] = np.nan
    found = raw_p_values({"mean": drops(0), "ideal": ideal}, np.ones((120, 2)), np.array([0.1, 0.08]))
    for kind in ("matters", "harmless"):
        values = getattr(found.corrected(corrections(5, 5, 0)), kind)["ideal"]
        assert np.isnan(values).tolist() == [False, True, False, True, False]


def test_a_head_matters_by_one_outcome_and_is_harmless_by_all():
    drop = np.zeros((200, 1, 2))
    drop[:100, 0, 1] = 1
    result = raw_p_values({"mean": drop}, np.ones((200, 2)), np.array([0.1, 0.1])).corrected(corrections(1, 0, 0))
    assert result.matters["mean"][0] < ALPHA
    assert result.harmless["mean"][0] == 1


# sets of heads

PAIR, HEADS = ((0, 0), (1, 1)), [(0, 0), (0, 1), (1, 1)]


def of_sets(kind, sets, matters, harmless, *, alone_matters=1.0, alone_harmless=1.0):
    """Findings from p values of these sets, or of heads in them, and of each of three heads alone."""
    p = PValues(
        {kind: np.array(matters), "mean": np.full(3, alone_matters)},
        {kind: np.array(harmless), "mean": np.full(3, alone_harmless)},
    )
    given = {"needed_in": sets if kind == NEEDED_IN else (), "cancelling": sets if kind == CANCELLING else ()}
    return set_findings(**given, p=p, heads=HEADS, alpha=ALPHA)


EACH_OTHER = {PAIR[0]: (PAIR[1],), PAIR[1]: (PAIR[0],)}
IN_PAIR = [(head, PAIR) for head in PAIR]


@pytest.mark.parametrize("together", [MATTERS, HARMLESS, CLOSE])
@pytest.mark.parametrize("alone", [SURE, OPEN])
def test_redundant_heads_need_significance_in_the_set_and_alone(together, alone):
    (matters,), (harmless,) = [P[together][:1], P[together][1:]]
    findings = of_sets(NEEDED_IN, IN_PAIR, [matters] * 2, [harmless] * 2, alone_harmless=alone)
    assert findings.redundant == (EACH_OTHER if (together, alone) == (MATTERS, SURE) else {})
    assert findings.maybe_redundant == (EACH_OTHER if (together, alone) == (CLOSE, SURE) else {})
    assert findings.cancelled == findings.maybe_cancelled == {}


def test_only_the_heads_that_cost_more_in_the_set_are_redundant():
    """A head that adds little to what a set costs is not, although the set costs accuracy."""
    findings = of_sets(NEEDED_IN, IN_PAIR, [SURE, 1.0], [1.0, SURE], alone_harmless=SURE)
    assert findings.redundant == {PAIR[0]: (PAIR[1],)}
    assert findings.maybe_redundant == {}


@pytest.mark.parametrize("together", [MATTERS, HARMLESS, CLOSE])
@pytest.mark.parametrize("alone", [SURE, OPEN])
def test_cancelling_heads_matter_alone_and_not_together(together, alone):
    (matters,), (harmless,) = [P[together][:1], P[together][1:]]
    findings = of_sets(CANCELLING, [PAIR], [matters], [harmless], alone_matters=alone)
    assert findings.cancelled == (EACH_OTHER if (together, alone) == (HARMLESS, SURE) else {})
    assert findings.maybe_cancelled == (EACH_OTHER if (together, alone) == (CLOSE, SURE) else {})
    assert findings.redundant == findings.maybe_redundant == {}


def test_partners_are_the_others_of_all_smallest_sets():
    """Two of three heads are enough: every pair is needed together."""
    pairs = [(head, pair) for pair in itertools.combinations(HEADS, 2) for head in pair]
    every = [(head, tuple(HEADS)) for head in HEADS]
    findings = of_sets(NEEDED_IN, [*every, *pairs], [SURE] * 9, [1.0] * 9, alone_harmless=SURE)
    assert findings.redundant == {head: tuple(one for one in HEADS if one != head) for head in HEADS}
    only = of_sets(NEEDED_IN, [*every, *IN_PAIR], [SURE] * 5, [1.0] * 5, alone_harmless=SURE)
    assert only.redundant == {**EACH_OTHER, HEADS[1]: PAIR}


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
        found = raw_p_values({"mean": drop}, np.ones((n, 1)), np.array([threshold]))
        return found.corrected(factors).harmless["mean"]

    assert factors["mean"] == n_tests
    n = sequences_needed(float(n_tests), alpha, threshold)
    assert (p_harmless(n) <= alpha).all()
    assert (p_harmless(n - 1) > alpha).all()


def test_sequences_needed_at_a_very_strict_level():
    n = sequences_needed(100.0, 1e-6, 0.1)
    result = raw_p_values({"mean": np.zeros((n, 50, 1))}, np.ones((n, 1)), np.array([0.1])).corrected(
        corrections(50, 0, 0)
    )
    assert (result.harmless["mean"] <= 1e-6).all()


# sentences


def made_up(reason, *, label="association", p_ideal=1.0, drop=(0.25, 0.4), threshold=(0.1, 0.08), **given):
    """An audit of one head that got its verdict for this reason."""
    low, high = tuple(one - 0.125 for one in drop), tuple(one + 0.125 for one in drop)
    cost = Cost(drop=drop, low=low, high=high, p_matters=1.0, p_harmless=1.0, n=100)
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
        smallest_harmful=(),
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


HARMLESS_REASONS = ("together", "not needed", "not through its pattern", "only its range", "any key", "nothing read")


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
    assert 0 < SHARE < 1


def test_the_smaller_p_value_after_a_factor_is_at_most_one():
    def p_values(*values):
        return PValues({"mean": np.array(values)}, {"mean": np.array(values[::-1])})

    smaller = p_values(0.5, 0.02, np.nan, np.nan).smallest(p_values(0.2, 0.3, 0.6, np.nan), 2.0)
    np.testing.assert_allclose(smaller.matters["mean"], [0.4, 0.02, 1, np.nan])
    np.testing.assert_allclose(smaller.harmless["mean"], [np.nan, 1, 0.02, 0.4])
