"""What would decide a claim: numbers of units worked by hand, and the words for every case."""

import math
from dataclasses import replace

import numpy as np
import pytest
from toys import DISTANT, PASSING, measured

from case_studies.frame.results import ClaimResult
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
    TwoSided,
    Value,
    Within,
)
from case_studies.frame.to_decide import (
    FAR,
    to_decide,
    units_to_decide,
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
        return t_interval(np.where(np.arange(n) % 2, 1.1, -0.9)).floats()  # mean 0.1, standard deviation 1

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
        (TwoSided(AtMost(0.25), Number("x", Equal(True))), (0.25,)),
    ],
)
def test_bars_are_those_that_an_interval_is_compared_with(rule, bars):
    assert rule.bars == bars


def remedy(m, rule):
    claim = replace(PASSING, rule=rule)
    return to_decide(ClaimResult(claim=claim, verdict=claim.verdict(m), measurement=m))


def test_units_in_words():
    m = measured(1.0, 0.0, 2.0, 2)
    assert remedy(m, Above(0.5)) == "about 8 seeds in place of 2, if value and spread stay the same"


def test_one_more_unit_is_the_least():
    assert remedy(measured(0.25, 0.0, 0.5, 8), Above(0.0)).startswith("about 9 seeds in place of 8")


def test_a_value_at_the_bar_is_hardly_decided():
    at = measured(0.5, 0.0, 1.0, 8)
    assert remedy(at, Above(0.5)) == "hardly more seeds: the value is at the threshold"
    near = measured(0.0, -1.0, 1.0, 4)
    assert remedy(near, Above(1.01 / math.sqrt(FAR))).startswith("about 393 seeds")
    assert remedy(near, Above(0.99 / math.sqrt(FAR))).startswith("hardly more seeds")


def test_one_unit_has_no_interval():
    m = measured(0.5, -math.inf, math.inf, 1)
    assert remedy(m, Above(0)) == "more than one of its seeds, for an interval at all"


def test_conditions_come_first():
    rule = Conditional(Number("models that learned", AtLeast(4)), Above(0))
    few = measured(1.0, 0.5, 1.5, 6, **{"models that learned": 3})
    assert remedy(few, rule) == "“models that learned” is at or above 4 (it is 3)"
    wide = measured(1.0, -1.0, 3.0, 6, **{"models that learned": 3})
    assert remedy(wide, rule) == (
        "“models that learned” is at or above 4 (it is 3); "
        "about 24 seeds in place of 6, if value and spread stay the same"
    )
    rule = Conditional(Number("accuracy", AtLeast(0.9)), Above(0))
    share = measured(1.0, 0.5, 1.5, 6, accuracy=0.66)
    assert remedy(share, rule) == "“accuracy” is at or above 0.9 (it is 0.66)"
    none = measured(1.0, 0.5, 1.5, 6, **{"models that learned": 0})
    assert remedy(none, Conditional(Number("models that learned", AtLeast(4)), Above(0))).endswith("(it is 0)")


def test_a_condition_within_a_condition():
    rule = Conditional(Number("a", AtLeast(1)), Conditional(Number("b", AtLeast(1)), Above(0)))
    assert remedy(measured(1.0, 0.5, 1.5, a=1, b=0.5), rule).startswith("“b”")


def test_an_open_condition_is_not_decided_by_units():
    rule = TwoSided(AtMost(0.25), Number("all above", Equal(True)))
    m = measured(0.5, 0.4, 0.6, **{"all above": False})
    assert remedy(m, rule) == "not more seeds: no threshold is in the interval"


def test_what_else_is_needed_is_added_while_a_claim_is_undecided():
    claim = replace(PASSING, rule=Above(0.0), remedy="longer training, an hour")
    for m, expected in (
        (
            measured(0.25, 0.0, 0.5, 8),
            "about 9 seeds in place of 8, if value and spread stay the same; longer training",
        ),
        (measured(0.25, 0.1, 0.5, 8), ""),
        (None, "a run at size quick or standard or paper; longer training"),
    ):
        result = ClaimResult(claim=claim, verdict=m and claim.verdict(m), measurement=m)
        assert to_decide(result).startswith(expected)
        assert bool(to_decide(result)) == bool(expected)


def test_decided_claims_need_nothing():
    assert remedy(measured(1.0, 0.5, 1.5), Above(0)) == remedy(measured(-1.0, -1.5, -0.5), Above(0)) == ""


def test_claims_that_are_not_measured():
    assert to_decide(ClaimResult(claim=DISTANT)) == "a run at size paper"
    assert to_decide(ClaimResult(claim=replace(DISTANT, sizes=()))) == "nothing: no size measures it"


def test_undecided_heads_are_named():
    m = measured(1.0, 0.0, 2.0, 2, undecided=3)
    assert remedy(m, Above(0.5)).startswith("fewer undecided heads or models (now 3); about 8 seeds in place")
