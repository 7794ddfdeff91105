"""Measurements are plain and finite, claims are validated, digits follow the interval."""

import json
from dataclasses import replace

import altair as alt
import numpy as np
import pandas as pd
import pytest
from scipy import stats
from toys import DISTANT, PASSING

from case_studies.frame.measurement import Measurement, rounded_interval
from case_studies.recipes.intervals import difference_interval, t_interval

GOOD = {"value": 0.5, "low": 0.4, "high": 0.6, "n": 3, "unit": "seeds"}


def test_measurements_round_trip_through_json():
    chart = alt.Chart(pd.DataFrame({"x": [1.0, np.nan]})).mark_point().encode(x="x:Q")
    given = Measurement(
        **GOOD,
        numbers={"array": np.array([1.0, np.nan]), "deep": {"tuple": (1, "a", None)}, "count": np.int64(4)},
        tables=[("title", [("a", "b"), (1, 0.123456), (None, True)])],
        charts=[chart, {"mark": "bar"}],
        note="odd",
    )
    assert given.numbers == {"array": [1.0, None], "deep": {"tuple": [1, "a", None]}, "count": 4}
    assert given.tables == (("title", [["a", "b"], ["1", "0.1235"], ["", "True"]]),)
    assert given.charts[0]["mark"]["type"] == "point"
    back = Measurement.from_dict(json.loads(json.dumps(given.to_dict(), allow_nan=False)))
    assert json.dumps(back.to_dict()) == json.dumps(given.to_dict())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"value": float("nan")}, "value is nan"),
        ({"value": float("inf"), "high": float("inf")}, "value is inf"),
        ({"low": float("nan")}, "low is nan"),
        ({"low": 0.5, "high": 0.5}, "the interval is the point 0.5; give .* resolution"),
        ({"low": 0.7}, "from low 0.7 to high 0.6"),
        ({"n": 0}, "n is 0; give the number of independent seeds"),
        ({"n": 2.5}, "n is 2.5"),
        ({"numbers": {"models": [object()]}}, r"numbers\['models\[0\]'\] is a object"),
    ],
)
def test_invalid_measurements_are_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        Measurement(**{**GOOD, **changes})


@pytest.mark.parametrize(
    ("claim", "changes", "words"),
    [
        (PASSING, {"id": "../x"}, "claim id is '../x'"),
        (PASSING, {"id": "Figure 1"}, "claim id is 'Figure 1'"),
        (PASSING, {"needs": "few"}, "needs of claim figure-1.some is the text 'few'"),
        (PASSING, {"sizes": ["huge"]}, "size is 'huge'; choose one of quick, standard, paper"),
        (PASSING, {"before_training": ["huge"]}, "size is 'huge'; choose one of quick, standard, paper"),
        (DISTANT, {"sizes_reason": ""}, "table-4.large is measured at paper; give sizes_reason for others"),
        (PASSING, {"sizes": ()}, "measured at no size"),
        (PASSING, {"method": "A share."}, "method of claim figure-1.some ends with '.'"),
    ],
)
def test_invalid_claims_are_refused(claim, changes, words):
    with pytest.raises(ValueError, match=words):
        replace(claim, **changes)


def test_one_unit_leaves_the_interval_unbounded():
    assert t_interval(np.array([0.5])).floats() == (0.5, -np.inf, np.inf)
    difference = difference_interval(np.array([0.5]), np.array([0.1, 0.2]))
    assert difference.floats() == (pytest.approx(0.35), -np.inf, np.inf)
    measurement = Measurement.from_interval(t_interval(np.array([0.5])), unit="seeds")
    assert measurement.n == 1
    stored = json.loads(json.dumps(measurement.to_dict(), allow_nan=False))
    assert stored["low"] is None
    assert Measurement.from_dict(stored) == measurement
    assert PASSING.verdict(measurement) == "inconclusive"


def test_equal_values_have_the_error_of_their_resolution():
    equal = np.full(3, 2.0)
    assert t_interval(equal).floats() == (2, 2, 2)
    mean, low, high = t_interval(equal, resolution=1.0).floats()
    assert (mean, high - 2) == (2, pytest.approx(4.303 / 6, abs=1e-3))  # t(2) * sqrt(1 / 12) / sqrt(3)
    assert low == pytest.approx(4 - high)
    spread = np.array([0.0, 5.0, 9.0])
    assert t_interval(spread, resolution=1.0).floats() == t_interval(spread).floats()
    assert difference_interval(equal, equal - 1).floats() == (1, 1, 1)
    _, low, high = difference_interval(equal, equal - 1, resolution=1.0).floats()
    assert low < 1 < high


def test_welchs_interval_is_that_of_scipy():
    a, b = np.random.default_rng(0).normal(size=(2, 6)) * [[1], [3]]
    expected = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.9)
    assert difference_interval(a, b, confidence=0.9).floats()[1:] == pytest.approx(tuple(expected))


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ((0.98765, 0.97, 0.99), ("0.988", "0.970", "0.990")),
        ((0.5, 0.2, 0.8), ("0.50", "0.20", "0.80")),
        ((1.0, 1.0, 1.0), ("1", "1", "1")),
        ((12.34, 10.0, 15.0), ("12.3", "10.0", "15.0")),
        ((12345.6, 12000.0, 13000.0), ("12,346", "12,000", "13,000")),
        ((1.23e-5, 1e-5, 2e-5), ("0.000012", "0.000010", "0.000020")),
    ],
)
def test_digits_follow_the_interval(numbers, text):
    assert rounded_interval(*numbers) == text
