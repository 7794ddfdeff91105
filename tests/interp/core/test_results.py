"""Long tables of results, and sample sizes as text."""

import json
from dataclasses import dataclass

import numpy as np
import pytest
from saved_results import classes, stored

from interp.core.results import Result, count_range

STORED = {saved["result"]: saved for saved in stored()}


@dataclass(frozen=True, kw_only=True)
class Scores(Result):
    score: np.ndarray
    name: tuple[str, ...]

    def to_dataframe(self):
        return self._table(
            {"layer": range(2), "kind": ("a", "b", "c")}, "name", "score", last=np.broadcast_to([7, 8, 9], (2, 3)), n=5
        )


def test_a_table_has_a_row_per_cell_and_repeats_values_along_later_axes():
    table = Scores(score=np.arange(6.0).reshape(2, 3), name=("first", "second")).to_dataframe()
    assert list(table.columns) == ["layer", "kind", "name", "score", "last", "n"]
    assert table["layer"].tolist() == [0, 0, 0, 1, 1, 1]
    assert table["kind"].tolist() == ["a", "b", "c"] * 2
    assert table["name"].tolist() == ["first"] * 3 + ["second"] * 3
    assert table["score"].tolist() == [0, 1, 2, 3, 4, 5]
    assert table["last"].tolist() == [7, 8, 9] * 2
    assert table["n"].tolist() == [5] * 6


def test_a_result_that_prints_no_table_has_the_repr_of_a_dataclass():
    assert repr(Scores(score=np.zeros(1), name=("first",))) == "Scores(score=array([0.]), name=('first',))"


def test_the_sample_size_of_cells_is_one_number_or_a_range():
    assert count_range(np.array([20, 20])) == "20"
    assert count_range(np.array([[31, 20], [8, 20]])) == "8 to 31"


@pytest.mark.parametrize("name", STORED)
def test_a_notebook_shows_chart_and_table(name, tmp_path):
    path = tmp_path / "result.json"
    path.write_text(json.dumps(STORED[name]))
    result = classes()[name].load(path)
    assert repr(result) == str(result)  # at a prompt
    html = result._repr_html_()
    table = result.to_dataframe()
    assert f"{len(table)} rows × {len(table.columns)} columns" in html
    assert 2 <= html.count("<tr") <= 14
    assert ("<svg" in html) == (name not in ("VerbTable", "SweepTable"))  # tables of any verb
