"""Verdict rules, the family of tests, and a sentence for every reason."""

import itertools
import re
from dataclasses import replace

import numpy as np
import pytest

from interp.auditing.experiments import INTERVENTIONS
from interp.auditing.result import REASONS, AuditResult, Cost, HeadVerdict, cost_in_words, list_of_heads, look_in_words
from interp.auditing.verdicts import (
    JUDGED,
    SHARE,
    VERDICTS,
    Judged,
    PValues,
    cancelled_partners,
    judge,
    p_values,
    redundant_partners,
    sequences_needed,
)
from interp.core.statistics import drop_tests, holm

ALPHA = 0.01
SURE, OPEN = 0.001, 0.5
MATTERS, HARMLESS, CLOSE = "matters", "harmless", "close"
P = {MATTERS: (SURE, 1.0), HARMLESS: (1.0, SURE), CLOSE: (OPEN, OPEN), "unknown": (np.nan, np.nan)}


def found(mean, uniform=CLOSE, ideal=CLOSE, read_part=CLOSE):
    """p values of one head, by what is known about each intervention."""
    known = dict(zip(JUDGED, (mean, uniform, ideal, read_part), strict=True))
    return PValues(*({name: np.array([P[how][part]]) for name, how in known.items()} for part in (0, 1)))


def verdict_of(p, readable=True, **settings):
    return judge([(0, 0)], [readable], p, redundant={}, cancelled={}, alpha=ALPHA, **settings)[0]


RULES = [
    ((HARMLESS,), "misleading", "idle", "not needed"),
    ((CLOSE,), "undecided", "undecided", "too close"),
    ((MATTERS, HARMLESS), "misleading", "hidden", "not through its pattern"),
    ((MATTERS, CLOSE, HARMLESS, HARMLESS), "undecided", "hidden", "pattern too close"),
    ((MATTERS, MATTERS, HARMLESS, HARMLESS), "faithful", "hidden", "through its pattern"),
    ((MATTERS, MATTERS, HARMLESS, MATTERS), "faithful", "hidden", "through its pattern"),
    ((MATTERS, MATTERS, MATTERS, HARMLESS), "faithful", "hidden", "through its pattern"),
    ((MATTERS, MATTERS, CLOSE, HARMLESS), "faithful", "hidden", "through its pattern"),
    ((MATTERS, MATTERS, HARMLESS, CLOSE), "faithful", "hidden", "through its pattern"),
    ((MATTERS, MATTERS, MATTERS, MATTERS), "misleading", "hidden", "through something else"),
    ((MATTERS, MATTERS, CLOSE, MATTERS), "undecided", "hidden", "reading too close"),
    ((MATTERS, MATTERS, MATTERS, CLOSE), "undecided", "hidden", "reading too close"),
    ((MATTERS, MATTERS, CLOSE, CLOSE), "undecided", "hidden", "reading too close"),
]


@pytest.mark.parametrize(("known", "readable", "unreadable", "reason"), RULES)
def test_every_verdict_rule(known, readable, unreadable, reason):
    assert verdict_of(found(*known)) == Judged(readable, reason)
    without = reason if reason in ("not needed", "too close") else "needed"
    assert verdict_of(found(*known[:2], "unknown", "unknown") if len(known) > 1 else found(*known), False) == Judged(
        unreadable, without
    )


def test_p_values_up_to_the_level_count():
    def p(value):
        return PValues({name: np.ones(1) for name in JUDGED}, {name: np.array([value]) for name in JUDGED})

    assert verdict_of(p(ALPHA)).verdict == "misleading"
    assert verdict_of(p(ALPHA * 1.001)).verdict == "undecided"


@pytest.mark.parametrize("readable", [True, False])
@pytest.mark.parametrize("known", [rule[0] for rule in RULES])
def test_redundant_partners_take_precedence_over_cancelling_ones(known, readable):
    heads, p, (one, other) = [(0, 0)], found(*known), ((1, 1), (2, 0))
    both = judge(heads, [readable], p, redundant={(0, 0): (one,)}, cancelled={(0, 0): (other,)}, alpha=ALPHA)
    assert both == [Judged("redundant", "together", (one,))]
    cancels = judge(heads, [readable], p, redundant={(5, 5): (one,)}, cancelled={(0, 0): (other,)}, alpha=ALPHA)
    assert cancels == [Judged("misleading" if readable else "idle", "cancelled", (other,))]


@pytest.mark.parametrize("readable", [True, False])
def test_no_head_of_a_model_at_chance_is_harmless(readable):
    for known in (rule[0] for rule in RULES):
        given = verdict_of(found(*known), readable, at_chance=True)
        if known[0] == MATTERS:
            assert given == verdict_of(found(*known), readable)
        else:
            assert given == Judged("undecided", "nothing to lose")


def test_each_head_has_its_own_p_values():
    parts = [found(HARMLESS), found(MATTERS, HARMLESS), found(CLOSE)]
    p = PValues(
        *(
            {name: np.concatenate([getattr(one, kind)[name] for one in parts]) for name in JUDGED}
            for kind in ("matters", "harmless")
        )
    )
    given = judge([(0, 0), (0, 1), (1, 0)], [False, True, True], p, redundant={}, cancelled={}, alpha=ALPHA)
    assert [one.verdict for one in given] == ["idle", "misleading", "undecided"]


def test_every_verdict_and_every_reason_has_a_rule():
    reached = {rule[1] for rule in RULES} | {rule[2] for rule in RULES} | {"redundant"}
    assert reached == set(VERDICTS)
    assert {rule[3] for rule in RULES} | {"needed", "together", "cancelled", "nothing to lose"} == set(REASONS)


# one family of tests


def drops(seed=0, n=120, heads=5, outcomes=2):
    rng = np.random.default_rng(seed)
    rate = np.linspace(0, 0.5, heads)[:, None] * np.linspace(1, 0.4, outcomes)
    return (rng.random((n, heads, outcomes)) < rate).astype(float)


def test_both_kinds_of_p_of_all_interventions_are_one_family():
    family = {"mean": drops(0), "uniform": drops(1), "sets": drops(2, heads=3)}
    asked, threshold = np.ones((120, 2)), np.array([0.1, 0.08])
    result = p_values(family, asked, threshold)
    raw = {}
    for name, drop in family.items():
        for head in range(drop.shape[1]):
            each = [drop_tests(drop[:, head, [at]], asked[:, [at]], threshold[[at]]) for at in range(2)]
            raw["matters", name, head] = min(1.0, 2 * min(float(larger[0]) for larger, _ in each))
            raw["harmless", name, head] = max(float(smaller[0]) for _, smaller in each)
    corrected = dict(zip(raw, holm(np.array(list(raw.values()))), strict=True))
    assert len(raw) == 2 * (5 + 5 + 3)
    for (kind, name, head), p in corrected.items():
        assert getattr(result, kind)[name][head] == pytest.approx(p, rel=1e-9), (kind, name, head)


def test_interventions_that_were_not_tried_are_not_in_the_family():
    asked, threshold = np.ones((120, 2)), np.array([0.1, 0.08])
    ideal = drops(1)
    ideal[:, [1, 3]] = np.nan
    whole = p_values({"mean": drops(0), "ideal": ideal}, asked, threshold)
    without = p_values({"mean": drops(0), "ideal": ideal[:, [0, 2, 4]]}, asked, threshold)
    for kind in ("matters", "harmless"):
        with_gaps, packed = getattr(whole, kind), getattr(without, kind)
        assert np.isnan(with_gaps["ideal"]).tolist() == [False, True, False, True, False]
        assert (with_gaps["mean"] == packed["mean"]).all()
        assert (with_gaps["ideal"][[0, 2, 4]] == packed["ideal"]).all()


def test_a_head_matters_by_one_outcome_and_is_harmless_by_all():
    drop = np.zeros((200, 1, 2))
    drop[:100, 0, 1] = 1
    result = p_values({"mean": drop}, np.ones((200, 2)), np.array([0.1, 0.1]))
    assert result.matters["mean"][0] < ALPHA
    assert result.harmless["mean"][0] == 1


# sets of heads

PAIR, HEADS = ((0, 0), (1, 1)), [(0, 0), (0, 1), (1, 1)]


def of_pair(matters, harmless, *, alone_matters=1.0, alone_harmless=1.0):
    """p values of one pair, and of each of three heads alone."""
    return PValues(
        {"sets": np.array([matters]), "mean": np.full(3, alone_matters)},
        {"sets": np.array([harmless]), "mean": np.full(3, alone_harmless)},
    )


@pytest.mark.parametrize("together", [SURE, OPEN])
@pytest.mark.parametrize("alone", [SURE, OPEN])
def test_redundant_heads_need_significance_for_the_pair_and_for_each(together, alone):
    p = of_pair(together, 1.0, alone_harmless=alone)
    partners = redundant_partners([PAIR], p, heads=HEADS, alpha=ALPHA)
    assert partners == ({PAIR[0]: (PAIR[1],), PAIR[1]: (PAIR[0],)} if together == alone == SURE else {})


@pytest.mark.parametrize("together", [SURE, OPEN])
@pytest.mark.parametrize("alone", [SURE, OPEN])
def test_cancelling_heads_matter_alone_and_not_together(together, alone):
    p = of_pair(1.0, together, alone_matters=alone)
    partners = cancelled_partners([PAIR], p, heads=HEADS, alpha=ALPHA)
    assert partners == ({PAIR[0]: (PAIR[1],), PAIR[1]: (PAIR[0],)} if together == alone == SURE else {})


# how many sequences it takes


ENOUGH = [
    *itertools.product([8, 100], [0.05, 0.1, 0.2], [0.05, 0.01]),
    (1000, 0.1, 0.05),
]


@pytest.mark.parametrize(("n_tests", "threshold", "alpha"), ENOUGH)
def test_sequences_needed_is_the_smallest_sufficient_number(n_tests, threshold, alpha):
    def p_harmless(n):
        drop = np.zeros((n, n_tests // 2, 1))
        return p_values({"mean": drop}, np.ones((n, 1)), np.array([threshold])).harmless["mean"]

    n = sequences_needed(n_tests, alpha, threshold)
    assert (p_harmless(n) <= alpha).all()
    assert (p_harmless(n - 1) > alpha).all()


def test_sequences_needed_at_a_very_strict_level():
    n = sequences_needed(100, 1e-6, 0.1)
    result = p_values({"mean": np.zeros((n, 50, 1))}, np.ones((n, 1)), np.array([0.1]))
    assert (result.harmless["mean"] <= 1e-6).all()


# sentences


def made_up(reason, *, label="association", p_ideal=1.0, drop=(0.25, 0.4), threshold=(0.1, 0.08)):
    """An audit of one head that got its verdict for this reason."""
    low, high = tuple(one - 0.125 for one in drop), tuple(one + 0.125 for one in drop)
    cost = Cost(drop=drop, low=low, high=high, p_matters=1.0, p_harmless=1.0)
    head = HeadVerdict(
        layer=0,
        head=3,
        verdict="undecided",
        reason=reason,
        partners=((1, 2), (3, 0)) if reason in ("together", "cancelled") else (),
        label=label,
        kind="association",
        score=0.5,
        score_low=0.5,
        score_high=0.5,
        p_label=0.5,
        value_weighted=0.5,
        moved=0.5,
        costs=dict.fromkeys(INTERVENTIONS, cost) | {"ideal": replace(cost, p_harmless=p_ideal)},
    )
    return AuditResult(
        heads=(head,),
        kinds=("association", "broadcast"),
        interventions=INTERVENTIONS,
        outcomes=("first", "second"),
        clean=np.array([1.0, 0.9]),
        threshold=np.array(threshold),
        sets=(),
        warnings=(),
        alpha=ALPHA,
        n=100,
    )


@pytest.mark.parametrize("label", ["association", "uniform", "unclassified"])
@pytest.mark.parametrize("reason", sorted(REASONS))
def test_every_reason_makes_a_sentence(reason, label):
    (sentence,) = made_up(reason, label=label).sentences()
    assert re.fullmatch(r"0\.3 looks [^{}]*[^{} .]\.", sentence)
    assert "  " not in sentence
    assert ("1.2 and 3.0" in sentence) == (reason in ("together", "cancelled"))
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
    assert "with the ideal pattern by" in made_up("through its pattern", p_ideal=SURE).sentences()[0]
    assert "with all other attention spread evenly by" in made_up("through its pattern").sentences()[0]


def test_words_for_heads_labels_and_costs():
    assert list_of_heads([(0, 1)]) == "0.1"
    assert list_of_heads([(0, 1), (2, 3), (4, 5)]) == "0.1, 2.3 and 4.5"
    assert look_in_words("unclassified", "self", 0.125) == "looks like no known kind (nearest: self, 0.12)"
    assert cost_in_words("#1", 0.5, -0.25, 0.75) == "0.50 [-0.25, 0.75] on #1"
    assert 0 < SHARE < 1
