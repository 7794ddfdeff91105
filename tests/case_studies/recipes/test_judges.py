"""How claims judge frames: numbers against the intervals that they name, the table, the chart, and refusals."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from case_studies.frame.claims import BEFORE_ANY_MODEL, SHARE, Claim
from case_studies.frame.judge import Readings
from case_studies.frame.rules import Above
from case_studies.recipes import judges
from case_studies.recipes.intervals import (
    bootstrap_interval,
    correlation,
    difference_interval,
    proportion,
    t_interval,
)

FRAME = pd.DataFrame(
    {
        "arm": ["a", "a", "a", "b", "b", "b"],
        "seed": [0, 1, 2, 0, 1, 2],
        "accuracy": [0.5, 0.7, 0.9, 0.2, 0.25, 0.4],
        "before": [0.1, 0.2, 0.2, 0.1, 0.1, 0.3],
        "strings": 50,
        "passes": [True, True, False, True, False, False],
        "verdict": ["yes", "open", "no", "yes", "open", "open"],
    }
)
ACCURACY, BEFORE = FRAME["accuracy"].to_numpy(), FRAME["before"].to_numpy()
INTERVALS = pd.DataFrame(
    {"width": [8, 16], "loss": [1.0, 2.0], "low": [0.5, 1.8], "high": [2.5, 2.2], "models": [3, 4]}
)
A_ARM = {"arm": "a"}


def judged(judge, frame=FRAME):
    return judge.measurement(Readings(frame=frame), seed=3)


def numbers(judge, frame=FRAME):
    measurement = judged(judge, frame)
    return measurement.value, measurement.low, measurement.high, measurement.n


def of(interval):
    return (*interval.floats(), interval.n)


def logs(interval):
    return (*np.exp(interval.floats()), interval.n)


@pytest.mark.parametrize(
    ("judge", "expected"),
    [
        (judges.Mean("accuracy", unit="models"), of(t_interval(ACCURACY))),
        (judges.Mean("accuracy", unit="seeds", where=A_ARM, share_of="strings"), of(t_interval(ACCURACY[:3]))),
        (judges.Mean("before", unit="models", resolution="accuracy"), of(t_interval(BEFORE, resolution=0.9))),
        (judges.BootstrapMean("accuracy", unit="models"), of(bootstrap_interval(ACCURACY, seed=3))),
        (judges.GeometricMean("accuracy", unit="models"), logs(t_interval(np.log(ACCURACY)))),
        (judges.PairedDifference("accuracy", "before", unit="models"), of(t_interval(ACCURACY - BEFORE))),
        (
            judges.BootstrapDifference("accuracy", "before", unit="models"),
            of(bootstrap_interval(ACCURACY - BEFORE, seed=3)),
        ),
        (judges.PairedRatio("accuracy", "before", unit="models"), logs(t_interval(np.log(ACCURACY / BEFORE)))),
        (
            judges.ArmDifference("accuracy", "arm", ("a", "b"), unit="seeds an arm"),
            of(difference_interval(ACCURACY[:3], ACCURACY[3:])),
        ),
        (judges.Share("passes", unit="models"), of(proportion(3, 6))),
        (judges.Share("verdict", "yes", unit="models"), of(proportion(2, 6))),
        (judges.Correlation("accuracy", "before", unit="models"), of(correlation(ACCURACY, BEFORE, seed=3))),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_judge_gives_the_interval_that_it_names(judge, expected):
    assert numbers(judge) == pytest.approx(expected)


def test_undecided_rows_widen_the_upper_end_only():
    share = judges.Share("verdict", "yes", undecided="open", unit="models")
    assert numbers(share) == (2 / 6, proportion(2, 6).low, proportion(5, 6).high, 6)


@pytest.mark.parametrize(
    ("judge", "width"),
    [
        (judges.Row("loss", unit="models", units="models"), 16),
        (judges.Row("loss", by="high", unit="models", units="models"), 8),
        (judges.Row("loss", by="high", extreme="smallest", unit="models", units="models"), 16),
        (judges.Row("loss", unit="models", units="models", where={"width": 8}), 8),
    ],
    ids=["largest", "highest end", "lowest end", "only row"],
)
def test_one_row_is_judged_with_its_interval(judge, width):
    row = INTERVALS.set_index("width").loc[width]
    assert numbers(judge, INTERVALS) == (row["loss"], row["low"], row["high"], row["models"])
    if len(judge.where):
        assert judged(judge, INTERVALS).numbers["width"] == width
    else:
        assert judged(judge, INTERVALS).numbers["judged: width"] == width


def test_the_largest_of_exact_numbers_has_no_interval():
    measurement = judged(judges.Row("loss", unit="models", units="models", exact=True), INTERVALS)
    assert (measurement.value, measurement.low, measurement.high, measurement.exact) == (2, 2, 2, True)


def test_without_a_judged_row_the_given_interval_is_used():
    judge = judges.Mean("accuracy", unit="models", where={"arm": "c"}, without_rows=(0.0, -1.0, 1.0))
    assert numbers(judge) == (0, -1, 1, 1)


def test_the_page_shows_the_frame_and_the_judged_column():
    measurement = judged(judges.Row("loss", unit="models", units="models"), INTERVALS)
    ((_, rows),) = measurement.tables
    assert rows == [["width", "loss", "95 %", "models"], ["8", "1", "[0.5, 2.5]", "3"], ["16", "2", "[1.8, 2.2]", "4"]]
    (chart,) = judged(judges.Mean("accuracy", unit="seeds", where=A_ARM)).charts
    assert "arm, seed" in str(chart)
    assert judged(judges.Share("verdict", "yes", unit="models")).charts == ()


def refused_claim(measure, judge):
    return Claim(
        id="toy", source="ours", statement="A toy.", method="Mean", rule=Above(0), preregistration=BEFORE_ANY_MODEL,
        measure=measure, judged=judge, quantity="accuracy", value_range=SHARE,
    ).measurement(SimpleNamespace(seed=0))  # fmt: skip


MEAN = judges.Mean("accuracy", unit="seeds", where=A_ARM)


@pytest.mark.parametrize(
    ("judge", "frame", "words"),
    [
        (judges.Mean("acuracy", unit="models"), FRAME, "'acuracy' is not in the frame.*Did you mean accuracy"),
        (judges.Mean("accuracy", unit="models", where={"group": 1}), FRAME, "'group' is not in the frame"),
        (MEAN, FRAME.iloc[:0], "the frame has no rows; give one"),
        (judges.Mean("accuracy", unit="models", where={"arm": "c"}), FRAME, "no row of the frame has arm 'c'"),
        (MEAN, FRAME.assign(accuracy=[0.5, np.nan, 0.9, 0, 0, 0]), "no number in the row .*'seed': 1.*exclude the row"),
        (judges.Mean("accuracy", unit="seeds"), FRAME, "2 judged rows of seed 0, and seeds are the unit"),
        (MEAN, pd.concat([FRAME, FRAME["seed"]], axis=1), "the column 'seed' twice"),
        (judges.Share("accuracy", unit="models"), FRAME, "has the value 0.5; give true and false"),
        (judges.ArmDifference("accuracy", "arm", ("a", "c"), unit="models"), FRAME, "no judged row has arm 'c'"),
        (MEAN, FRAME.assign(accuracy=[2.0, 2.1, 2.2, 0, 0, 0]), "has the value 2.1; it must be from 0 to 1"),
    ],
    ids=["column", "where", "no rows", "none judged", "missing", "seed twice", "twice", "share", "arm", "range"],
)
def test_frames_that_cannot_be_judged_are_refused(judge, frame, words):
    with pytest.raises(ValueError, match=words):
        refused_claim(lambda evidence: frame, judge)


def test_a_measure_that_returns_a_number_is_refused():
    with pytest.raises(TypeError, match=r"measure of claim toy returned a float; return a frame or Readings\."):
        refused_claim(lambda evidence: 0.5, MEAN)
