"""What would decide a claim: numbers of units worked by hand, costs, and the words for every case."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from toys import DISTANT, DRAWN, FAILING, PASSING, measured

from case_studies.frame.deciding import (
    FAR,
    seconds_per_model,
    seconds_to_decide,
    to_decide,
    units_to_decide,
    what_is_open,
)
from case_studies.frame.results import ClaimResult, StudyResult
from case_studies.frame.rules import (
    Above,
    AllOf,
    AtLeast,
    AtMost,
    Below,
    Between,
    Conditional,
    Equal,
    Number,
    Split,
    Value,
    Within,
)
from case_studies.recipes.intervals import t_interval


@pytest.mark.parametrize(
    ("value", "low", "high", "n", "bars", "units"),
    [
        (1.0, 0.0, 2.0, 10, (0.5,), 40),  # w = 1, d = 1/2
        (-1.0, -2.0, 0.5, 4, (0.0,), 9),  # the side of the bar counts: w = 1.5, d = 1
        (0.1, 0.05, 0.35, 9, (0.25,), 25),  # w = 0.25, d = 0.15
        (1.0, 0.5, 1.6, 4, (0.75, 1.25), 23.04),  # between the bars: both are to be excluded, w = 0.6, d = 0.25
        (1.5, 0.7, 2.3, 4, (0.75, 1.25), 40.96),  # outside: the nearer one, w = 0.8, d = 0.25
        (1.0, 0.8, 1.2, 10, (0.5,), 0),
        (1.0, 0.8, 1.2, 10, (), 0),
        (0.5, 0.0, 1.0, 10, (0.5,), math.inf),
        (0.5, -math.inf, math.inf, 1, (0.0,), math.inf),
        (0.25, 0.0, 0.5, 8, (0.0,), 8),  # a bar at the end of the interval
    ],
)
def test_units_worked_by_hand(value, low, high, n, bars, units):
    assert units_to_decide(measured(value, low, high, n), bars) == pytest.approx(units)


def test_that_many_units_are_what_an_interval_takes():
    def interval(n):
        return t_interval(np.where(np.arange(n) % 2, 1.1, -0.9))  # mean 0.1, standard deviation 1

    value, low, high = interval(100)
    units = units_to_decide(measured(value, low, high, 100), (0.0,))
    assert units == pytest.approx(397.5, abs=3)  # (1.984 / 0.1)^2, with the t quantile of 99 degrees of freedom
    assert interval(2 * math.ceil(units / 2))[1] > 0
    assert interval(2 * math.floor(0.95 * units / 2))[1] < 0


@pytest.mark.parametrize(
    ("rule", "bars"),
    [
        (Above(1), (1,)),
        (AtLeast(2), (2,)),
        (Below(3), (3,)),
        (AtMost(4), (4,)),
        (Between(1, 2), (1, 2)),
        (Within(0.5), (-0.5, 0.5)),
        (Equal(1), ()),
        (Value(Above(1)), ()),
        (Number("x", Above(1)), ()),
        (Conditional(Number("x", Above(1)), Below(2)), (2,)),
        (AllOf(Above(1), Value(Above(9)), Below(5)), (1, 5)),
        (Split(AtMost(0.25), Number("x", Equal(True))), (0.25,)),
    ],
)
def test_bars_are_those_that_an_interval_is_compared_with(rule, bars):
    assert rule.bars == bars


def study_of(*results, seconds=1000.0, there=10):
    manifest = {"seconds": seconds, "models": {"there": there}}
    models = {"few": 4, "more": 6}
    return StudyResult(
        study="toy", size="quick", claims=results, manifest=manifest, models=models, page=Path("report.html")
    )


def said(m, rule, **fields):
    claim = replace(PASSING, rule=rule)
    one = ClaimResult(claim=claim, verdict=claim.verdict(m), measurement=m, **fields)
    return to_decide(one, study_of(one))


SIX = {"settings": {"few": {"models": 4}, "more": {"models": 2}}, "made": {"trained": {"seconds": 600.0}}}
COST = {"seconds": 30.0, "cpu_seconds": 20.0, "peak_mb": 1.0}


def test_models_and_hours_of_the_units():
    m = measured(1.0, 0.0, 2.0, 2)  # 8 units at a bar of 0.5, so 6 more: three times the models and the measuring
    text = "about 8 seeds in place of 2, if value and spread stay the same: 18 more models, 31 min of one core"
    assert said(m, Above(0.5), **SIX, cost=COST) == text  # 18 * 100 s + 3 * 20 s
    hours = {**SIX, "made": {"trained": {"seconds": 6000.0}}}
    assert said(m, Above(0.5), **hours, cost=COST).endswith("18 more models, 5.0 h of one core")
    assert said(m, Above(0.5), cost=COST | {"cpu_seconds": None}).endswith("the same: 2 min of one core")  # 3 * 30 s
    assert said(m, Above(0.5), cost=COST | {"cpu_seconds": 1.0}).endswith("the same: below a minute of one core")
    assert said(m, Above(0.5)).endswith("if value and spread stay the same")


def test_one_more_unit_is_the_least():
    assert said(measured(0.25, 0.0, 0.5, 8), Above(0.0)).startswith("about 9 seeds in place of 8")


def test_training_time_is_the_claims_own_or_the_mean_of_the_study():
    own = ClaimResult(claim=PASSING, **SIX)
    other = ClaimResult(claim=FAILING, cost=COST)
    assert seconds_per_model(own, study_of(own)) == 100
    assert seconds_per_model(other, study_of(own, other)) == pytest.approx((1000 - 30) / 10)
    assert seconds_per_model(other, study_of(other, there=0)) is None
    assert seconds_per_model(other, study_of(other, seconds=20.0)) is None


def test_a_value_at_the_bar_is_hardly_decided():
    at = measured(0.5, 0.0, 1.0, 8)
    assert said(at, Above(0.5)) == "hardly more seeds: the value is at the bar, and more than 800 would be needed"
    near = measured(0.0, -1.0, 1.0, 4)
    assert said(near, Above(1.01 / math.sqrt(FAR))).startswith("about 393 seeds")
    assert said(near, Above(0.99 / math.sqrt(FAR))).startswith("hardly more seeds")


def test_one_unit_has_no_interval():
    m = measured(0.5, -math.inf, math.inf, 1)
    assert said(m, Above(0)) == "more than one of its seeds, for an interval at all"


def test_conditions_come_first():
    rule = Conditional(Number("models that learned", AtLeast(4)), Above(0))
    few = measured(1.0, 0.5, 1.5, 6, **{"models that learned": 3})
    assert said(few, rule) == "first, “models that learned” is at or above 4 (it is 3), which takes about 8 seeds"
    both = measured(1.0, -1.0, 3.0, 6, **{"models that learned": 3})
    assert said(both, rule).endswith(
        "which takes about 8 seeds; about 24 seeds in place of 6, if value and spread stay the same"
    )
    rule = Conditional(Number("accuracy", AtLeast(0.9)), Above(0))
    share = measured(1.0, 0.5, 1.5, 6, accuracy=0.66)
    assert said(share, rule) == "first, “accuracy” is at or above 0.9 (it is 0.66)"
    none = measured(1.0, 0.5, 1.5, 6, **{"models that learned": 0})
    assert said(none, Conditional(Number("models that learned", AtLeast(4)), Above(0))).endswith("(it is 0)")


def test_a_condition_within_a_condition():
    rule = Conditional(Number("a", AtLeast(1)), Conditional(Number("b", AtLeast(1)), Above(0)))
    assert said(measured(1.0, 0.5, 1.5, a=1, b=0.5), rule).startswith("first, “b”")


def test_an_open_condition_is_not_decided_by_units():
    rule = Split(AtMost(0.25), Number("all above", Equal(True)))
    open_ = measured(0.5, 0.4, 0.6, all=0, **{"all above": False})
    assert said(open_, rule) == "not more seeds: no bar is in the interval, a condition of the rule is open"


def test_what_else_is_needed_is_added_while_a_claim_is_undecided():
    claim = replace(PASSING, rule=Above(0.0), remedy="longer training, an hour")
    for m, expected in (
        (
            measured(0.25, 0.0, 0.5, 8),
            "about 9 seeds in place of 8, if value and spread stay the same; longer training",
        ),
        (measured(0.25, 0.1, 0.5, 8), ""),
        (None, "a run of interp reproduce toy --size quick --only figure-1.some, without models to train; longer"),
    ):
        one = ClaimResult(claim=claim, verdict=m and claim.verdict(m), measurement=m)
        assert to_decide(one, study_of(one)).startswith(expected)
        assert bool(to_decide(one, study_of(one))) == bool(expected)


def test_decided_claims_say_nothing():
    assert said(measured(1.0, 0.5, 1.5), Above(0)) == said(measured(-1.0, -1.5, -0.5), Above(0)) == ""


def test_claims_that_are_not_measured():
    results = [ClaimResult(claim=claim) for claim in (PASSING, FAILING, DRAWN, DISTANT)]
    study, run = study_of(*results), "a run of interp reproduce toy --size quick --only"
    assert [to_decide(one, study) for one in results] == [
        f"{run} figure-1.some, without models to train",
        f"{run} figure-1.all: 4 models, 7 min of one core if none is stored",
        f"{run} table-3.drawn: 6 models, 10 min of one core if none is stored",
        "a run at size paper; its cost there is not recorded",
    ]
    assert to_decide(results[1], study_of(results[1], there=0)).endswith("figure-1.all: 4 models if none is stored")
    nowhere = ClaimResult(claim=replace(DISTANT, sizes=()))
    assert to_decide(nowhere, study) == "nothing: no size measures it"


def seconds(m, rule, **fields):
    claim = replace(PASSING, rule=rule)
    one = ClaimResult(claim=claim, verdict=claim.verdict(m), measurement=m, **fields)
    return seconds_to_decide(one, study_of(one))


def test_seconds_are_those_of_the_words():
    m = measured(1.0, 0.0, 2.0, 2)
    assert seconds(m, Above(0.5), **SIX, cost=COST) == 18 * 100 + 3 * 20
    assert seconds(m, Above(0.5), **SIX) == 0  # not recorded


@pytest.mark.parametrize(
    ("m", "rule"),
    [
        (measured(0.5, 0.0, 1.0, 8), Above(0.5)),  # at the bar
        (measured(0.4, 0.0, 1.0, 1), Above(0.5)),  # one unit
        (measured(0.4, 0.0, 1.0, 8, undecided=3), Above(0.5)),
        (measured(0.4, 0.0, 1.0, 8, heads=3), Conditional(Number("heads", AtLeast(8)), Above(0.5))),
        (measured(0.4, 0.3, 0.45, 8, heads=3), Conditional(Number("heads", AtLeast(8)), Above(0.5))),
        (measured(0.5, 0.4, 0.6, 8, clear=False), Split(AtMost(0.25), Number("clear", Equal(True)))),
    ],
)
def test_more_models_do_not_decide(m, rule):
    assert seconds(m, rule, **SIX, cost=COST) == math.inf


def test_models_are_needed_for_more_models():
    assert seconds(measured(0.4, 0.0, 1.0, 8), Above(0.5), cost=COST) == math.inf


def test_undecided_ones_are_named():
    m = measured(1.0, 0.0, 2.0, 2, undecided=3)
    text = said(m, Above(0.5), **SIX, cost=COST)
    assert text.startswith("fewer undecided ones (now 3), which more seeds do not make fewer; about 8 seeds in place")


def test_what_is_open_counts_by_cost():
    def one(m, **fields):
        claim = replace(PASSING, rule=Above(0.5))
        return ClaimResult(claim=claim, verdict=claim.verdict(m), measurement=m, **fields)

    near, at, decided = measured(1.0, 0.0, 2.0, 2), measured(0.5, 0.0, 1.0, 8), measured(1.0, 0.9, 1.1, 8)
    long = SIX | {"made": {"trained": {"seconds": 6e6}}}
    results = one(near, **SIX, cost=COST), one(near, **long, cost=COST), one(at, **SIX, cost=COST), one(decided)
    assert what_is_open(study_of(*results)) == (
        "What would decide the 3 inconclusive claims: up to 12 h of one core each for 1, longer or a GPU for 1, "
        "something other than more models for 1."
    )
    only = "What would decide the 1 inconclusive claim: up to 12 h of one core each for 1."
    assert what_is_open(study_of(one(near, **SIX, cost=COST))) == only
    assert what_is_open(study_of(one(decided))) == ""
