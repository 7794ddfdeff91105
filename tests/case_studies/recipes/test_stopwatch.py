"""The stopwatch runs calls in turn and times each of them."""

import time

import pytest

from benchmarks.timing import compare, ratio, seconds, speed
from case_studies.recipes.stopwatch import time_in_turn


def test_calls_take_turns_and_each_round_is_timed():
    order = []

    def slow():
        order.append("slow")
        time.sleep(0.01)

    slow_seconds, fast_seconds = time_in_turn([slow, lambda: order.append("fast")], rounds=3)
    assert order == ["slow", "fast"] * 3
    assert len(slow_seconds) == len(fast_seconds) == 3
    assert min(slow_seconds) >= 0.01
    assert min(fast_seconds) > 0


def test_no_rounds_are_refused():
    with pytest.raises(ValueError, match="rounds is 0; give at least 1"):
        time_in_turn([], rounds=0)


def test_a_comparison_checks_the_results_of_the_warm_up():
    checked, calls = [], []
    found = compare(
        "x", lambda: calls.append(1), lambda: 2, bar=1e9, rounds=4, check=lambda *both: checked.append(both)
    )
    assert checked == [(None, 2)]
    assert len(calls) == 5
    assert found.passes
    assert str(found).endswith("bar 1,000,000,000.00: passes")
    with pytest.raises(AssertionError):
        compare("x", lambda: 1, lambda: 2, bar=1, check=same)


def same(a, b):
    assert a == b


def test_results_pass_on_the_right_side_of_their_bar():
    assert str(ratio("x", [2, 4, 9], [1, 2, 3], bar=2)).endswith("ratio 2.000 [2.000, 3.000], n = 3, bar 2.00: passes")
    assert str(ratio("x", [2, 4, 9], [1, 2, 3], bar=1.9)).endswith("bar 1.90: FAILS")
    assert str(ratio("x", [2, 4, 9], [1, 2, 3])).endswith("no bar")
    assert str(seconds("x", [1, 3, 2], bar=1.5)).endswith("2.00 s, worst 3.00 s, bar 1.50: FAILS")
    assert speed("x", int, n=10, bar=1).passes
    assert not speed("x", int, n=1, bar=1e12).passes
