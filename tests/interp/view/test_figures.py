"""Charts as HTML figures: the same text for the same chart, distinct ids, text alternative, values of marks."""

import re
from html import unescape

import altair as alt
import numpy as np
import pandas as pd

from interp.view.charts import chart_svg, dots, head_maps, pattern_maps
from interp.view.figures import chart_figure, chart_html
from interp.view.verdicts import verdict_chart


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


def test_maps_whose_low_values_are_nearly_white_stay_on_a_light_ground():
    greys = pattern_maps({"a": np.eye(2)}, tokens=["a", "b"], title="t")
    assert '<figure class="chart pale"' in chart_figure(greys)
    assert '<figure class="chart inked"' in chart_figure(maps())  # numbers in cells keep their contrast
    table = pd.DataFrame({"x": ["a"], "y": [0.1], "low": 0.05, "high": 0.9})
    assert '<figure class="chart"' in chart_figure(dots(table, x="x", y="y", title="t"))


def test_verdicts_in_cells_keep_their_colours():
    head = {"layer": 0, "head": 0, "verdict": "faithful", "label": "a", "kind": "a", "score": 0.5, "mean": 0.1}
    ends = {"score_low": 0.4, "score_high": 0.6, "mean_low": 0.0, "mean_high": 0.2}
    table = pd.DataFrame([head | ends])
    assert '<figure class="chart inked"' in chart_figure(
        verdict_chart(table, sentences=["fine"], counted="8 sequences")
    )


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
