"""The stopwatch runs calls in turn and times each of them."""

import time

import pytest

from benchmarks.timing import compare
from case_studies.frame.stopwatch import time_in_turn


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
    assert len(found.ours) == len(found.theirs) == 4
    assert str(found).endswith("bar 1000000000.00: passes")
