"""Charts as HTML figures: the same text for the same chart, distinct ids, text alternative, values of marks."""

import re
from html import unescape

import altair as alt
import numpy as np
import pandas as pd
import pytest

from interp.view.charts import COLOURS, chart_svg, dots, head_maps, pattern_maps
from interp.view.figures import chart_figure, chart_html
from interp.view.verdicts import VERDICT_COLOURS


def maps(value=0.25):
    return head_maps({"one": np.array([[value, 0.123456789]])}, title="it's <maps>", value="score")


def ids(figure):
    return re.findall(r' id="([^"]*)"', figure)


def test_the_same_chart_gives_the_same_text():
    first = chart_figure(maps())
    assert chart_figure(maps()) == first  # although the renderer counts gradients of the whole process
    assert chart_figure(maps().to_dict()) == first
    assert chart_figure(maps(0.5)) != first


def test_two_charts_have_no_id_in_common_and_use_their_own():
    first, second = (str(chart_figure(maps(value))) for value in (0.25, 0.5))
    assert ids(first)
    assert not set(ids(first)) & set(ids(second))
    for figure in (first, second):
        assert set(re.findall(r"url\(#([^)]*)\)", figure)) <= set(ids(figure))
        assert all(re.match("[a-z]", name) for name in ids(figure))


def test_the_text_alternative_names_title_axes_legend_and_marks():
    figure = str(chart_figure(maps()))
    text = unescape(re.search(r'<svg role="img" aria-label="([^"]*)"', figure)[1])
    assert text.startswith("Chart. it's <maps>. one. ")
    assert "X-axis titled 'head'" in text
    assert "Y-axis titled 'layer'" in text
    assert "'score'" in text
    assert text.endswith(f"{len(re.findall('data-tip=', figure))} marks")
    assert figure.count("aria-label=") == 2  # the image and what scrolls; nothing inside the image
    assert "role=" not in figure.split("<svg", 1)[1].split(">", 1)[1]


def test_values_of_marks_are_short():
    figure = str(chart_figure(maps()))
    assert 'data-tip="head: 1; layer: 0; score: 0.1235; map: one"' in figure
    assert "0.123456789" not in figure


def test_positions_are_those_of_the_chart_to_a_hundredth():
    table = pd.DataFrame({"x": ["a", "b", "c"], "y": [0.1, 0.5, 0.7], "low": 0.05, "high": 0.9})
    chart = dots(table, x="x", y="y", title="t")
    unseen = r'<path[^>]*d="M0,0h0v0h0Z"[^>]*/>'
    places = [
        re.findall(r"translate\((-?[\d.]+),(-?[\d.]+)\)", re.sub(unseen, "", str(draw(chart))))
        for draw in (chart_svg, chart_figure)
    ]
    assert len(places[0]) > 20
    np.testing.assert_allclose(*(np.array(place, dtype=float) for place in places), atol=0.0051, rtol=0)


def test_figures_are_shorter_than_the_rendered_chart():
    chart = maps()
    assert len(chart_figure(chart)) < 0.75 * len(chart_svg(chart))


@pytest.mark.parametrize("draw", [chart_svg, chart_figure, chart_html])
def test_charts_have_no_ground_and_the_ink_of_their_page(draw):
    """Also maps of weights, whose pale cells are transparent; numbers in cells keep their contrast with the cell."""
    table = pd.DataFrame({"x": ["a"], "y": [0.1], "low": 0.05, "high": 0.9})
    patterns = pattern_maps({"a": np.eye(2)}, tokens=["a", "b"], title="t")
    for chart in (dots(table, x="x", y="y", title="t"), patterns):
        svg = str(draw(chart))
        assert 'fill="currentColor"' in svg
        assert not re.search(r'="(#000|black|white|#fff|#ddd)"', svg)
    assert "#111" in draw(maps(0.9))


def test_a_stored_chart_has_the_colours_of_today():
    """Stored charts have a scheme of greys, whose small weights are nearly white."""
    old = {
        "color": {"field": "w", "type": "quantitative", "scale": {"scheme": "greys", "domain": [0, 1]}, "legend": None}
    }
    encoding = {"x": {"field": "a", "type": "nominal"}} | old
    data = {"values": [{"a": "x", "w": 0.25}, {"a": "y", "w": 1}]}
    svg = chart_svg({"data": data, "mark": "rect", "encoding": encoding})
    assert re.findall(r'fill="currentColor" opacity="([\d.]+)"', svg)[0] == "0.25"
    assert "rgb(0, 0, 0)" not in svg
    line = {"mark": {"type": "point", "color": "#9a031e"}, "data": data, "encoding": {"x": encoding["x"]}}
    assert "#9a031e" not in chart_svg(line)


def test_of_many_weights_the_largest_are_drawn(monkeypatch):
    monkeypatch.setattr("interp.view.figures.MOST_WEIGHTS", 3)
    values = np.array([[0.9, 0.1], [0.5, 0.3]])
    figure = chart_figure(pattern_maps({"a": values}, tokens=["a", "b"], title="t"))
    assert "Weights below 0.3 are not drawn." in figure
    assert "weight: 0.1" not in figure
    assert all(f"weight: {weight}" in figure for weight in (0.3, 0.5, 0.9))
    assert "not drawn" not in chart_figure(pattern_maps({"a": values[:1, :1]}, tokens=["a"], title="t"))


def test_a_chart_that_is_a_file_has_a_rule_for_dark_systems():
    assert "prefers-color-scheme: dark" in chart_svg(maps())
    assert "<style>" not in chart_figure(maps())


@pytest.mark.parametrize("colour", [*COLOURS, *VERDICT_COLOURS.values()])
def test_series_can_be_seen_on_a_dark_page(colour):
    assert contrast(colour, "#14181e") >= 3


def contrast(first, second):
    """WCAG's contrast of two colours."""

    def luminance(colour):
        shares = np.array([int(colour[index : index + 2], 16) / 255 for index in (1, 3, 5)])
        return np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]

    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_notebook_html_has_one_image_and_no_script():
    html = chart_html(maps())
    assert html.count("<svg") == 1
    assert "<script" not in html
    assert 'role="img"' in html


def many_points(n=60):
    """A chart of points with colours that stand for a third value."""
    table = pd.DataFrame({"x": range(n), "y": np.linspace(0.1, 0.9, n), "kind": ["a", "b"] * (n // 2)})
    return alt.Chart(table).mark_point(filled=True).encode(x="x:Q", y="y:Q", color="kind:N")


def test_what_many_marks_have_is_written_once():
    figure = str(chart_figure(many_points()))
    assert figure.count("<use ") == 60
    shapes = set(re.findall(r'<use [^>]*href="#([^"]*)"', figure))
    assert shapes <= set(re.findall(r'<path id="([^"]*)"', figure))
    # Every value is there, its name once
    assert figure.count('data-names="x; y; kind"') == 1
    tips = re.findall(r'data-tip="([^"]*)"', figure)
    assert tips[:2] == ["0; 0.1; a", "1; 0.1136; b"]
    # Colours differ between marks, so they stay
    assert len(set(re.findall(r'<use [^>]*fill="([^"]*)"', figure))) == 2


def test_marks_with_other_values_keep_their_names():
    figure = str(chart_figure(many_points(10)))
    assert "data-names" not in figure
    assert 'data-tip="x: 0; y: 0.1; kind: a"' in figure
