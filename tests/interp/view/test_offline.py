"""Charts of results need no network: in a notebook, saved as HTML, composed, and in Chromium."""

import base64
import pickle

import altair as alt
import pandas as pd
import pytest
from IPython.core.formatters import DisplayFormatter

import interp
from hooks import Transformer
from interp.core.results import Result
from interp.tasks import Lego
from interp.view.charts import chart_svg
from interp.view.offline import offline

TASK = Lego(n_vars=2, sentence_format="compact")
TABLE = pd.DataFrame({"a": ["x", "y"], "b": [1.0, 2.0]})


def chart():
    return alt.Chart(TABLE).mark_bar().encode(x="b:Q", y="a:N")


@pytest.fixture(scope="module")
def result():
    model = Transformer(interp.config_for(TASK, n_layers=1, d_model=8, n_heads=2), seed=0)
    return interp.evaluate(model, TASK, n=20)


def shown(chart):
    """What a notebook shows of an object."""
    data, _ = DisplayFormatter().format(chart)
    return data


def test_a_notebook_shows_the_chart_of_a_result_as_an_image(result):
    data = shown(result.plot())
    assert set(data) == {"image/svg+xml", "text/plain"}
    assert data["image/svg+xml"].startswith("<svg")


def test_a_result_of_another_package_plots_offline():
    class Mine(Result):
        def plot(self):
            return chart()

    class Yours(Mine):
        pass

    assert set(shown(Mine().plot())) == set(shown(Yours().plot())) == {"image/svg+xml", "text/plain"}


def test_a_training_run_plots_offline():
    settings = interp.TrainSettings(steps=2, batch_size=4, eval_every=1, n_eval=20)
    run = interp.train(Transformer(interp.config_for(TASK, n_layers=1, d_model=8, n_heads=2), seed=0), TASK, settings)
    assert set(shown(run.plot())) == {"image/svg+xml", "text/plain"}


@pytest.mark.parametrize(
    "compose",
    [
        lambda chart: chart | chart,
        lambda chart: chart & chart,
        lambda chart: chart + chart,
        lambda chart: (chart | chart) | chart,
        lambda chart: chart.facet("a:N"),
        lambda chart: chart.properties(title="t"),
        lambda chart: chart.interactive(),
        lambda chart: chart.configure_view(stroke=None),
    ],
)
def test_composed_and_changed_charts_stay_offline(compose):
    offline_chart, plain = compose(offline(chart())), compose(chart())
    assert set(shown(offline_chart)) == {"image/svg+xml", "text/plain"}
    assert "text/html" in shown(plain)  # what Altair alone shows, which loads a script
    assert type(plain).__module__.startswith("altair")
    # parameters have counted names
    assert offline_chart.to_dict() == plain.to_dict() or "name" in str(offline_chart.to_dict())


def test_another_renderer_is_used_if_one_is_enabled():
    with alt.renderers.enable("mimetype"):
        assert "application/vnd.vegalite.v6.json" in shown(offline(chart()))
    assert "image/svg+xml" in shown(offline(chart()))


def test_altair_is_left_as_it_is():
    offline(chart()).to_dict()
    assert alt.renderers.active == "default"
    assert type(alt.Chart.from_dict(chart().to_dict())) is alt.Chart
    assert "text/html" in shown(chart())


def test_an_offline_chart_can_be_pickled():
    again = pickle.loads(pickle.dumps(offline(chart())))
    assert again.to_dict() == chart().to_dict()
    assert set(shown(again)) == {"image/svg+xml", "text/plain"}


def test_characters_that_cannot_be_drawn_are_replaced(tmp_path):
    """vl-convert ends the process on some of them, and raises an error for halves of the others."""
    table = pd.DataFrame({"token": ["a\0", "\x1b[0m", "\ufffe", "𝕏" * 80], "value": range(4)})
    chart = offline(alt.Chart(table, title="\x07").mark_bar().encode(x="token:N", y="value:Q"))
    chart.save(tmp_path / "chart.svg")
    for svg in (
        (tmp_path / "chart.svg").read_text(),
        chart_svg(chart),
        chart_svg(alt.Chart.from_dict(chart.to_dict())),
    ):
        assert svg.count("\N{REPLACEMENT CHARACTER}") >= 5
        assert not set("\0\x1b\x07\ufffe") & set(svg)


def test_saved_files(tmp_path):
    for name in ("chart.svg", "chart.png", "chart.pdf", "chart.json", "chart.html"):
        offline(chart()).save(tmp_path / name)
        assert (tmp_path / name).stat().st_size > 300
    assert "<script src=" not in (tmp_path / "chart.html").read_text()
    offline(chart()).save(tmp_path / "small.html", inline=False)
    assert (tmp_path / "small.html").stat().st_size < 20_000


@pytest.mark.browser
def test_notebook_output_and_saved_html_fetch_nothing(browser, result, tmp_path):
    saved = tmp_path / "saved.html"
    result.plot().save(saved)
    picture = base64.b64encode(shown(result.plot())["image/svg+xml"].encode()).decode()
    output = tmp_path / "output.html"
    cells = f'<img alt="chart" src="data:image/svg+xml;base64,{picture}">{shown(result)["text/html"]}'
    output.write_text(f'<!doctype html><html lang="en"><meta charset="utf-8"><body>{cells}</body></html>')
    for path, selector in ((saved, "#vis svg, #vis canvas"), (output, "svg")):
        page = browser.open(path)
        page.until(f"document.querySelector({selector!r}) !== null")
        assert [url for url in page.requests if not url.startswith("data:")] == [path.as_uri()]
        assert page.problems == []
        assert page.run("[...document.images].every((one) => one.naturalWidth > 0)")
        page.close()


@pytest.mark.browser
def test_the_check_notices_a_chart_that_loads_a_script(browser, tmp_path):
    path = tmp_path / "chart.html"
    chart().save(path)
    page = browser.open(path)
    assert any(url.startswith("https://") for url in page.requests)
    assert page.problems != []
    page.close()
