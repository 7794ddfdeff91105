"""A rule's text and its verdict come from the same value; the bars, both sides and everything between."""

import pytest
from toys import measured

from case_studies.frame.claims import BEFORE_ANY_MODEL, Preregistration
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

YES, NO, OPEN = "reproduced", "not reproduced", "inconclusive"


@pytest.mark.parametrize(
    ("rule", "low", "high", "verdict"),
    [
        (Above(1), 1.1, 2, YES),
        (Above(1), 1, 2, OPEN),
        (Above(1), 0, 1, OPEN),
        (Above(1), 0, 0.9, NO),
        (AtLeast(1), 1, 2, YES),
        (AtLeast(1), 0.9, 2, OPEN),
        (AtLeast(1), 0, 1, OPEN),
        (AtLeast(1), 0.5, 0.9, NO),
        (Below(1), 0, 0.9, YES),
        (Below(1), 0, 1, OPEN),
        (Below(1), 1, 2, OPEN),
        (Below(1), 1.1, 2, NO),
        (AtMost(1), 0, 1, YES),
        (AtMost(1), 0, 1.1, OPEN),
        (AtMost(1), 1, 2, OPEN),
        (AtMost(1), 1.1, 2, NO),
        (Within(0.5), -0.4, 0.4, YES),
        (Within(0.5), -0.5, 0.4, OPEN),
        (Within(0.5), -0.4, 0.5, OPEN),
        (Within(0.5), -1, -0.5, NO),
        (Within(0.5), 0.5, 1, NO),
        (Within(0.5), -1, 1, OPEN),
        (Between(0.5, 1.5), 0.6, 1.4, YES),
        (Between(0.5, 1.5), 1.5, 2, NO),
        (Equal(1), 1, 1, YES),
        (Equal(1), 0.5, 2, OPEN),
        (Equal(1), 0, 1, OPEN),
        (Equal(1), 1, 2, OPEN),
        (Equal(1), 2, 3, NO),
        (TwoSided(Above(1), Below(0.5)), 1.1, 2, YES),
        (TwoSided(Above(1), Below(0.5)), 0.6, 0.9, OPEN),
        (TwoSided(Above(1), Below(0.5)), 0.1, 0.4, NO),
    ],
)
def test_intervals_against_bars(rule, low, high, verdict):
    assert rule.verdict(measured((low + high) / 2, low, high)) == verdict


def test_values_and_numbers_are_judged_without_interval():
    assert Value(Below(1)).verdict(measured(0.9, 0, 2)) == YES
    assert Value(Below(1)).verdict(measured(1.0, 0, 2)) == NO  # a bar that is only just missed is missed
    wrong = Number("wrong", Equal(0))
    assert wrong.verdict(measured(0.5, 0, 1, wrong=0)) == YES
    assert wrong.verdict(measured(0.5, 0, 1, wrong=2)) == NO
    with pytest.raises(KeyError, match="wrong"):
        wrong.verdict(measured(0.5, 0, 1))


def test_a_condition_that_does_not_hold_leaves_the_claim_open():
    rule = Conditional(Number("heads", AtLeast(8)), Above(0.5))
    assert rule.verdict(measured(0.9, 0.8, 1, heads=8)) == YES
    assert rule.verdict(measured(0.1, 0.0, 0.2, heads=8)) == NO
    assert rule.verdict(measured(0.9, 0.8, 1, heads=7)) == OPEN


def test_all_of_several():
    rule = AllOf(Above(0.5), Number("errors", Equal(0)))
    assert rule.verdict(measured(0.9, 0.8, 1, errors=0)) == YES
    assert rule.verdict(measured(0.9, 0.8, 1, errors=1)) == NO
    assert rule.verdict(measured(0.5, 0.4, 1, errors=0)) == OPEN
    assert rule.verdict(measured(0.5, 0.4, 1, errors=1)) == NO


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (
            Above(0.5),
            "reproduced if the interval is above 0.5, not reproduced if it is below 0.5, else inconclusive",
        ),
        (
            Within(0.05),
            "reproduced if the interval is between -0.05 and 0.05, not reproduced if it is outside, else inconclusive",
        ),
        (Value(Equal(1)), "reproduced if the value is 1, else not reproduced"),
        (Number("p", AtLeast(0.05)), "reproduced if “p” is at or above 0.05, else not reproduced"),
        (
            Conditional(Number("heads", AtLeast(8)), Below(1)),
            "reproduced if the interval is below 1, not reproduced if it is above 1, else inconclusive; "
            "inconclusive unless “heads” is at or above 8",
        ),
        (
            AllOf(Value(AtMost(0.001)), Number("share in order", AtLeast(0.99))),
            "reproduced if the value is at or below 0.001 and “share in order” is at or above 0.99, else not "
            "reproduced",
        ),
        (
            TwoSided(AtMost(0.25), Number("lowest end", Above(0.25))),
            "reproduced if the interval is at or below 0.25, not reproduced if “lowest end” is above 0.25, else "
            "inconclusive",
        ),
    ],
)
def test_text_says_what_the_rule_does(rule, text):
    assert rule.text == text


def test_chance_of_passing_at_the_bar():
    assert Above(0).chance == 0.025
    assert Conditional(Number("heads", AtLeast(8)), Above(0)).chance == 0.025
    assert Value(Above(0)).chance == 0
    assert AllOf(Above(0), Number("errors", Equal(0))).chance == 0
    assert AllOf(Above(0), Below(1)).chance == 0.025


def test_what_had_been_seen_is_said():
    assert BEFORE_ANY_MODEL.text == "before any model"
    assert Preregistration("after a result", "one seed had failed.").text == "after a result: one seed had failed."
    for when, seen in (("after a result", ""), ("before any model", "something")):
        with pytest.raises(ValueError, match="say what had been seen"):
            Preregistration(when, seen)


HIDDEN = AllOf(Value(AtLeast(0.2)), Number("error", AtMost(0.02)), Number("copies", Equal(0)))
"""A rule whose measured value passes while another number fails."""


@pytest.mark.parametrize(
    ("rule", "numbers", "unmet"),
    [
        (HIDDEN, {"error": 0.0249, "copies": 0}, ("“error” is at or below 0.02 (it is 0.0249)",)),
        (HIDDEN, {"error": 0.02, "copies": 0}, ()),
        (
            HIDDEN,
            {"error": 0.03, "copies": 2},
            ("“error” is at or below 0.02 (it is 0.03)", "“copies” is 0 (it is 2)"),
        ),
        (
            AllOf(Value(AtLeast(30)), Number("error", AtMost(1))),
            {"error": 0},
            ("the value is at or above 30 (it is 24.3)",),
        ),
        (AllOf(Above(30), Number("error", AtMost(1))), {"error": 0}, ("the interval is above 30 (it is 20 to 28)",)),
        (AllOf(Above(25), Number("error", AtMost(1))), {"error": 0}, ("the interval is above 25 (it is 20 to 28)",)),
        (Number("error", AtMost(1)), {"error": 2}, ("“error” is at or below 1 (it is 2)",)),
        (Conditional(Number("heads", AtLeast(8)), Above(30)), {"heads": 4}, ("“heads” is at or above 8 (it is 4)",)),
        (Conditional(Number("heads", AtLeast(8)), Above(30)), {"heads": 9}, ()),
        (TwoSided(HIDDEN, Below(1)), {"error": 1, "copies": 0}, ("“error” is at or below 0.02 (it is 1)",)),
        (Above(30), {}, ()),
    ],
)
def test_conditions_that_the_number_does_not_show_are_named(rule, numbers, unmet):
    assert rule.unmet(measured(24.3, 20, 28, **numbers)) == unmet
