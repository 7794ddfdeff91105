import copy
import json
import pickle
from dataclasses import replace

import numpy as np
import pytest

from interp.core.intervals import Interval
from interp.evaluation import EvaluationResult


@pytest.fixture
def accuracy():
    return Interval(
        value=np.array([0.5, 0.9]), low=np.array([0.4, 0.8]), high=np.array([0.6, 1.0]), n=np.array([96, 90])
    )


def test_it_acts_as_its_values(accuracy):
    assert (accuracy - 0.5).tolist() == [0.0, 0.4]
    assert (accuracy > 0.7).tolist() == [False, True]
    assert (accuracy == 0.9).tolist() == [False, True]
    assert np.asarray(accuracy).tolist() == [0.5, 0.9]
    assert np.asarray(accuracy, dtype=np.float32).dtype == np.float32
    assert np.max(accuracy) == 0.9
    assert float(accuracy[0]) == 0.5
    assert accuracy.half_width == pytest.approx(0.1)
    assert (accuracy.mean(), accuracy.tolist(), accuracy.shape) == (0.7, [0.5, 0.9], (2,))


def test_numbers_become_arrays_and_shapes_must_be_equal():
    interval = Interval(value=0.5, low=np.float64(0.25), high=1, n=3)  # type: ignore[arg-type]
    assert (interval.value.shape, interval.low.dtype, str(interval)) == ((), float, "0.500 [0.250, 1.000]")
    with pytest.raises(ValueError, match=r"value, low and high have the shapes \(2,\), \(\) and \(2,\); they must"):
        Interval(value=np.zeros(2), low=np.zeros(()), high=np.ones(2), n=3)


def test_it_can_be_copied_and_pickled(accuracy):
    for copied in (copy.copy(accuracy), copy.deepcopy(accuracy), pickle.loads(pickle.dumps(accuracy))):
        assert copied.low.tolist() == [0.4, 0.8]
    with pytest.raises(AttributeError, match="no attribute 'mean_of_all'"):
        accuracy.mean_of_all()


def test_a_value_minus_an_interval_has_the_ends_in_the_other_order(accuracy):
    error = accuracy.subtracted_from(np.array([1.0, 2.0]))
    assert [cell.text(1) for cell in error] == ["0.5 [0.4, 0.6]", "1.1 [1.0, 1.2]"]
    assert error.n.tolist() == [96, 90]


def test_an_index_selects_cells_of_all_fields(accuracy):
    cell = accuracy[1]
    assert (cell.value, cell.low, cell.high, cell.n) == (0.9, 0.8, 1.0, 90)
    assert cell.text() == str(cell) == "0.900 [0.800, 1.000]"
    assert f"{cell:.2f} {cell}" == "0.90 0.900 [0.800, 1.000]"
    assert [float(cell) for cell in accuracy] == [0.5, 0.9]
    assert accuracy[::-1].columns("x")["low"].tolist() == [0.8, 0.4]
    with pytest.raises(ValueError, match=r"the interval has shape \(2,\); choose one cell"):
        accuracy.text()


def test_changing_an_array_made_from_it_does_not_change_it(accuracy):
    values = np.array(accuracy, copy=True)
    values[0] = 7
    assert accuracy.value[0] == 0.5


def saved(tmp_path, kind, values):
    path = tmp_path / "before.json"
    path.write_text(json.dumps({"result": kind, "version": 1, "values": values}))
    return path


def array(values, dtype="float64"):
    return {"array": values, "dtype": dtype}


def test_a_result_without_its_interval_is_refused(tmp_path, accuracy):
    result = EvaluationResult(targets=("a", "b"), accuracy=replace(accuracy, n=96), chance=0.5, n=96, split="test")
    content = result.to_dict()
    del content["values"]["accuracy"]
    (tmp_path / "result.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match="the EvaluationResult lacks the fields 'accuracy'"):
        EvaluationResult.load(tmp_path / "result.json")


def test_an_exact_interval_has_no_width(accuracy):
    exact = accuracy.as_exact()
    assert (exact.low.tolist(), exact.high.tolist(), exact.exact) == ([0.5, 0.9], [0.5, 0.9], True)
    assert (exact.n.tolist(), exact.half_width) == ([96, 90], 0.0)
    # it stays exact in cells, differences and tables
    assert [exact[1].text(), str(exact[1])] == ["0.900 (exact)"] * 2
    assert exact.subtracted_from(1.0).exact
    assert exact.subtracted_from(1.0).low == pytest.approx([0.5, 0.1])
    assert exact.columns("x")["low"].tolist() == [0.5, 0.9]
    assert not accuracy.exact
    assert accuracy[1].text() == "0.900 [0.800, 1.000]"
    # missing values are not errors, other ends are
    assert Interval(value=np.nan, low=np.nan, high=np.nan, n=0, exact=True).exact  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="exact is True, but high differs from value; an exact interval has no width"):
        Interval(value=np.zeros(2), low=np.zeros(2), high=np.ones(2), n=3, exact=True)


def test_exact_intervals_are_saved(tmp_path, accuracy):
    exact = replace(accuracy.as_exact(), n=96)
    result = EvaluationResult(targets=("a", "b"), accuracy=exact, chance=0.5, n=96, split="test")
    result.save(tmp_path / "exact.json")
    assert EvaluationResult.load(tmp_path / "exact.json").accuracy.exact
