"""Scaling curves: positions of points, reference curves, logarithmic axes and unusual column names."""

import math
import multiprocessing
import pickle
import re
import sys
from html import unescape

import numpy as np
import pandas as pd
import pytest
from test_points import marks, texts

from interp.view.charts import chart_svg, head_maps, scaling_curves

HEIGHT, WIDTH = 220, 300


@pytest.fixture
def table():
    rows = [(16, 1.0, 0.9, 1.2, "plain"), (64, 0.5, 0.4, 0.7, "plain"), (256, 0.25, 0.0, 0.3, "plain"),
            (16, 0.6, 0.5, 0.8, "with a I"), (256, 0.01, 0.0, 0.02, "with a I")]  # fmt: skip
    return pd.DataFrame(rows, columns=["symbols", "test loss", "low", "high", "models"])


@pytest.fixture
def behind():
    rows = [(16, 1.1, "plain"), (256, 0.5, "plain"), (16, 0.2, "an LSTM"), (256, 0.0, "an LSTM")]
    return pd.DataFrame(rows, columns=["symbols", "test loss", "models"])


def draw(table, **options):
    names = {"x": "symbols", "y": "test loss", "series": "models", "title": "loss by symbols"}
    return chart_svg(scaling_curves(table, **{**names, **options}))


def lines(svg, dashed):
    """Lines as (colour, points), those with dashes or those without."""
    curves = []
    for attributes in re.findall(r'<path aria-label="[^"]*"[^>]*aria-roledescription="line mark"([^>]*)>', svg):
        if ("stroke-dasharray" in attributes) == dashed:
            points = re.search(r'd="M([^"]*)"', attributes)[1].split("L")
            colour = re.search(r'stroke="([^"]*)"', attributes)[1]
            curves.append((colour, [tuple(map(float, point.split(","))) for point in points]))
    return curves


def test_scaling_curves_have_a_point_per_row_and_a_line_per_series(table):
    svg = draw(table)
    assert {"plain", "with a I", "symbols", "test loss", "loss by symbols"} <= set(texts(svg))
    assert len(marks(svg, "point")) == len(table)
    curves = lines(svg, dashed=False)
    assert sorted(len(points) for _, points in curves) == [2, 3]
    assert len({colour for colour, _ in curves}) == 2
    assert not lines(svg, dashed=True)
    (plain,) = [points for _, points in curves if len(points) == 3]
    across = [x for x, _ in plain]
    assert across[1] - across[0] == pytest.approx(across[2] - across[1], abs=0.01)  # 16 to 64 is as far as 64 to 256
    heights = [HEIGHT - y for _, y in plain]
    assert [height / heights[0] for height in heights] == pytest.approx([1, 0.5, 0.25], abs=0.01)  # and from zero


def test_tooltips_of_points(table):
    points = marks(draw(table), "point")
    for row, mark in zip(table.to_dict("records"), points, strict=True):
        assert mark["models"] == row["models"]
        assert float(mark["test loss"]) == row["test loss"]
        assert (float(mark["low"]), float(mark["high"])) == (row["low"], row["high"])
        assert float(mark["symbols"]) == row["symbols"]


def test_reference_curves_are_dashed_in_matching_colours(table, behind):
    svg = draw(table, behind=behind)
    colours = {len(points): colour for colour, points in lines(svg, dashed=False)}
    assert colours == {len(points): colour for colour, points in lines(draw(table), dashed=False)}  # as without them
    reference = lines(svg, dashed=True)
    assert [len(points) for _, points in reference] == [2, 2]
    assert {colour for colour, _ in reference} == {colours[3], "#999999"}
    assert "#999999" not in colours.values()
    assert "an LSTM" in texts(svg)
    assert svg.index("stroke-dasharray") < svg.index('aria-roledescription="point"')


def test_a_logarithmic_axis_shows_zero_at_its_lower_end(table, behind):
    below = table.assign(**{"test loss": [1.0, 0.1, 0.01, 0.1, 0.0]})
    curves = lines(draw(below, behind=behind, log_y=True), dashed=False)
    (plain,) = [points for _, points in curves if len(points) == 3]
    (reference,) = [points for _, points in curves if len(points) == 2]
    assert plain[1][1] - plain[0][1] == pytest.approx(plain[2][1] - plain[1][1], abs=0.01)
    assert reference[1][1] == pytest.approx(HEIGHT, abs=0.01)
    assert all(math.isfinite(y) and 0 <= y <= HEIGHT for points in (plain, reference) for _, y in points)
    dashed = lines(draw(below, behind=behind, log_y=True), dashed=True)
    assert max(y for _, points in dashed for _, y in points) == pytest.approx(HEIGHT, abs=0.01)


@pytest.mark.parametrize("log_y", [False, True])
def test_a_rule_is_at_its_value(table, log_y):
    svg = draw(table, rule=0.5, log_y=log_y)
    assert 'stroke-dasharray="2,3"' in svg
    assert 'stroke-dasharray="2,3"' not in draw(table, log_y=log_y)
    position = re.search(r'transform="translate\((\S+),(\S+)\)"[^>]*stroke-dasharray="2,3"', svg)
    (plain,) = [points for _, points in lines(svg, dashed=False) if len(points) == 3]
    assert float(position[2]) == pytest.approx(plain[1][1], abs=0.01)  # its loss is 0.5


@pytest.mark.parametrize("names", [("d.model", "loss [nats]"), ("n['x']", "error 0.5"), ("a\\b", "loss. ")])
def test_any_column_name(table, names):
    table = table.rename(columns=dict(zip(("symbols", "test loss"), names, strict=True)))
    svg = draw(table, x=names[0], y=names[1])
    assert len(marks(svg, "point")) == len(table)
    assert {unescape(name).strip() for name in names} <= {text.strip() for text in texts(svg)}
    assert sorted(len(points) for _, points in lines(svg, dashed=False)) == [2, 3]


def test_the_table_is_not_changed(table, behind):
    before = table.copy(), behind.copy()
    draw(table, behind=behind, log_y=True)
    pd.testing.assert_frame_equal(table, before[0])
    pd.testing.assert_frame_equal(behind, before[1])


def test_intervals_reach_from_low_to_high(table):
    svg = draw(table)
    rules = re.findall(r'transform="translate\(([^,]+),([^)]+)\)" x2="0" y2="([^"]+)"', svg)
    (plain,) = [points for _, points in lines(svg, dashed=False) if len(points) == 3]
    per_unit = (HEIGHT - plain[0][1]) / 1.0
    lengths = sorted(abs(float(length)) / per_unit for *_, length in rules)
    expected = sorted(table["high"] - table["low"])
    for length in expected:
        assert any(abs(length - length_of_axis) < 0.01 for length_of_axis in lengths)


def draws_again(texts):
    """Draw a chart again, and send its SVG text to a queue."""
    texts.put(chart_svg(SPEC))


def draws_in_grandchild(texts):
    child = multiprocessing.get_context("fork").Process(target=draws_again, args=(texts,))
    child.start()
    child.join()


def draws_twice(texts):
    chart_svg(SPEC)
    texts.put(chart_svg(SPEC))


SPEC = {
    "data": {"values": [{"accuracy": 0.25, "name": "depth \u00e9"}]},
    "mark": "point",
    "encoding": {"x": {"field": "accuracy", "type": "quantitative"}, "y": {"field": "name", "type": "nominal"}},
}


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
@pytest.mark.parametrize("draws", [draws_again, draws_in_grandchild, draws_twice])
def test_a_forked_process_draws_what_its_parent_drew(draws):
    drawn = chart_svg(SPEC)
    context = multiprocessing.get_context("fork")
    texts = context.Queue()
    child = context.Process(target=draws, args=(texts,))
    child.start()
    try:
        assert texts.get(timeout=60) == drawn
    finally:
        child.kill()


def test_maps_share_their_encodings_and_a_changed_copy_leaves_them():
    """Altair copies a chart whenever it is composed: with an axis for each map, that took most of the time."""
    chart = head_maps({"a": np.eye(2), "b": np.ones((2, 2))}, title="t", value="score")
    before = chart.to_dict()
    first, second = (panel.layer[0].encoding for panel in chart.concat)
    assert all(first[name] is second[name] for name in ("x", "y", "color"))
    encoded = chart.concat[0].copy()
    encoded.layer[0] = encoded.layer[0].encode(x="head:Q")
    assert chart.to_dict() == before == pickle.loads(pickle.dumps(chart)).to_dict()
    assert (chart & chart).to_dict()["vconcat"][0]["concat"][0]["layer"] == before["concat"][0]["layer"]
