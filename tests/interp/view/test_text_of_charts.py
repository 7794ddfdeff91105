"""Text of charts in Chromium: nothing is cut by the frame, shortened, or drawn over other text."""

import json

import numpy as np
import pandas as pd
import pytest
from chart_text import FAULTS
from markupsafe import Markup
from saved_results import lacks_value
from sized_results import sized_results

from interp.comparison.training_charts import filmstrip, lines
from interp.core.results import Result
from interp.view import charts, points, pruning
from interp.view.chain import chain_svg
from interp.view.page import Section, write_page

pytestmark = [pytest.mark.slow, pytest.mark.browser]
SIZES = {
    "1 target, 2 heads": {"targets": 1, "layers": 1, "heads": 2},
    "20 targets, 2 heads": {"targets": 20, "layers": 2, "heads": 1},
    "1 target, 48 heads": {"targets": 1, "layers": 4, "heads": 12},
    "20 targets, 48 heads": {"targets": 20, "layers": 4, "heads": 12},
}
WIDER_FONT = "Verdana, DejaVu Sans, sans-serif"
"""For machines without Arial or a font of its widths, in which charts are laid out."""


def faults_of(browser, charts_by_name, folder):
    """(chart, fault, text) of every text of the charts that is cut, shortened or drawn over another one."""
    # Pages do not check charts against Vega-Lite's schema
    for chart in charts_by_name.values():
        if not isinstance(chart, str):
            chart.to_dict(validate=True)
    kinds = {name: "html" if isinstance(chart, str) else "chart" for name, chart in charts_by_name.items()}
    sections = [Section(title=name, **{kinds[name]: chart}) for name, chart in charts_by_name.items()]
    page = browser.open(write_page(folder / "charts.html", title="Charts", lead="", sections=sections))
    faults = page.run(FAULTS)
    # On another machine letters may be wider: then text may reach over the frame, which does not cut it
    page.run(f"document.head.append(Object.assign(document.createElement('style'), {{ textContent: "
             f"'.chart svg text {{ font-family: {WIDER_FONT} }}' }}))")  # fmt: skip
    wider = [(*fault, "wider letters") for fault in page.run(FAULTS) if fault[1] != "cut"]
    page.close()
    return faults + wider


def has_chart(result):
    return type(result).plot is not Result.plot and not (hasattr(result, "columns") and lacks_value(result))


def test_text_of_every_result_is_readable(browser, tmp_path):
    plots, contents = {}, set()
    for size, lengths in SIZES.items():
        for name, result in sized_results(tmp_path, **lengths).items():
            # results without heads, or without targets, are the same in two sizes
            content = json.dumps(result.to_dict())
            if has_chart(result) and content not in contents:
                plots[f"{name}, {size}"] = result.plot()
            contents.add(content)
    assert len({name.partition(",")[0] for name in plots}) > 20
    assert faults_of(browser, plots, tmp_path) == []


def table_of(series, *, points=6, panels=("model",)):
    """Curves of every series in every panel, over steps up to some thousands."""
    rows = [
        (panel, name, 4000 * step, 0.1 + step / 10, step / 10, 0.2 + step / 10)
        for panel in panels
        for name in series
        for step in range(1, points + 1)
    ]
    return pd.DataFrame(rows, columns=["panel", "target", "step", "accuracy", "low", "high"])


def charts_of(n):
    """Charts that no saved result has, with n series, categories or tokens."""
    series = [f"#{index} not trained" for index in range(n)]
    table = table_of(series, panels=("model", "control"))
    axes = {"x": "step", "y": "accuracy", "series": "target"}
    over_training = table.rename(columns={"panel": "seed"}).assign(head=table["step"] % 7, layer=table["target"])
    tokens = [f"[token {index}]" for index in range(max(4, n))]
    names = [f"{index} layers, {index} heads" for index in range(n)]
    models = pd.concat([table.assign(condition=condition) for condition in ("trained", "untrained, at chance")])
    return {
        "learning curves of two runs": charts.curves(table, **axes, panel="panel", title="accuracy, n = 512 per point"),
        "scaling": charts.scaling_curves(table_of(series), **axes, title="accuracy by number of training examples"),
        "points": charts.dots(table_of(series, points=1), x="target", y="accuracy", title="accuracy, n = 512"),
        "maps of sites": charts.heatmaps(
            {name: np.eye(n) for name in names[:4]},
            x=series, y=names, x_title="place", y_title="site", title="share of answers that change", value="share",
        ),
        "patterns": charts.pattern_maps(
            {f"head {name}": np.eye(len(tokens)) for name in names[:4]},
            tokens=tokens, title="attention, example 1", full_tokens=True,
        ),
        "a model each": points.scatter(table_of(series), **axes, title="accuracy of every model"),
        "two conditions": points.slopes(
            models, x="condition", y="accuracy", line="step", panel="panel", title="each model in both conditions"
        ),
        "quartiles": pruning.error_quartiles(table, **axes, title="error by number of candidates"),
        "over training": lines(over_training, "accuracy", by=["target"], title="accuracy over training"),
        "film strip": filmstrip(over_training, "accuracy", x="head", y="layer", title="accuracy of each head"),
        "chain": chain_svg(
            root="1", variables=tokens, operations=["not"] * len(tokens), values=["-1"] * len(tokens),
            answers=["-1"] * len(tokens),
        ),
    }  # fmt: skip


@pytest.mark.parametrize("n", [1, 20])
def test_text_of_every_other_chart_is_readable(browser, tmp_path, n):
    assert faults_of(browser, charts_of(n), tmp_path) == []


def test_what_is_wrong_with_text_is_noticed(browser, tmp_path):
    def text(x, words):
        return f'<text x="{x}" y="20" font-size="12">{words}</text>'

    def svg(*texts):
        return Markup('<svg class="chain" width="200" height="40" viewBox="0 0 200 40">' + "".join(texts) + "</svg>")

    drawings = {
        "fine": svg(text(40, "one"), text(120, "two")),
        "overlap": svg(text(80, "untrained model"), text(150, "output")),
        "cut": svg(text(120, "manipulation, association")),
        "shortened": svg(text(90, "manipulat…")),
    }
    faults = faults_of(browser, drawings, tmp_path)
    assert {(name, fault) for name, fault, *_ in faults} == {(name, name) for name in drawings if name != "fine"}
