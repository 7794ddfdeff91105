"""Reports in Chromium without a network: width, line length, contrast, keyboard and tooltips."""

import pytest
import torch
from browser import faults

import interp
from hooks import Transformer
from interp import report as write_report
from interp.tasks import Lego
from interp.view.charts import dots, heatmaps
from interp.view.html import PageIdentity
from interp.view.page import Section

pytestmark = pytest.mark.browser
LONG = "a sentence that has many words and goes on for longer than a line of text should be so that it breaks. " * 3
IDENTITY = PageIdentity(
    task="lego: n_vars 3", model="many parts, " * 30, seed="0", command="interp report " + "runs/" * 60, date="now"
)


def charts():
    """A chart with intervals, and maps of two values."""
    import numpy as np
    import pandas as pd

    table = pd.DataFrame({"target": ["a", "b"], "accuracy": [0.5, 0.9], "low": [0.4, 0.8], "high": [0.6, 0.95]})
    maps = {"one": np.array([[0.0, 1.0]]), "two": np.array([[0.25, 0.75]])}
    return [
        dots(table, x="target", y="accuracy", title="accuracy per target"),
        dots(pd.concat([table] * 2), x="target", y="accuracy", title="points with one shape"),
        heatmaps(maps, x=["0", "1"], x_title="head", y_title="layer", title="wide maps", value="score"),
    ]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A page with every kind of content, among them a wide table and long words."""
    sections = [
        Section(title="Charts", text=LONG, charts=charts()),
        Section(title="Tables", text=LONG, table=[("head", "finding"), ("0.0", LONG)], short="tables"),
        Section(title="Wide", tables=[("wide", [[f"column {i}" for i in range(40)], ["1.0000"] * 40])], under=True),
        Section(title="Empty", tables=[("nothing here", [("a", "b")])]),
    ]
    path = tmp_path_factory.mktemp("page") / "page.html"
    return write_report(sections, path, title="Averyveryvery" * 8, lead=LONG, identity=IDENTITY)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    torch.set_num_threads(1)
    task = Lego(n_vars=3)
    model = Transformer(interp.config_for(task, n_layers=1, d_model=8, n_heads=2), seed=0)
    run = interp.train(model, task, interp.TrainSettings(steps=2, batch_size=4, eval_every=1, n_eval=20))
    patterns = interp.classify_heads(run.model, task, n=8)
    audit = interp.audit(run.model, task, n=128, at_chance=True)
    results = [
        interp.probe(run.model, task, n_train=40, n_test=40),
        patterns,
        interp.ablate_heads(run.model, task, n=8),
    ]
    path = tmp_path_factory.mktemp("report") / "report.html"
    interp.report_run(run, task, path, results=[*results, audit], n_test=50)
    return path


@pytest.mark.slow
def test_nothing_is_wrong_with_a_page_of_sections(browser, page):
    assert faults(browser, page) == []


@pytest.mark.slow
def test_nothing_is_wrong_with_a_report(browser, report):
    assert faults(browser, report) == []


def test_the_checks_notice_what_is_wrong(browser, tmp_path):
    path = tmp_path / "bad.html"
    path.write_text(f"""<!doctype html><html lang="en"><title>bad</title><body style="color: #bbb">
      <nav class="contents"><a href="#x">x</a></nav>
      <div style="height: 1700px"></div><main><p style="width: 80rem">{LONG}</p>
      <table><tr><td>1</td></tr></table></main>
      <img src="http://example.com/a.png"><script>missing();</script></body></html>""")
    problems = faults(browser, path)
    assert {(width, mode) for width, mode, *_ in problems} == {(w, m) for w in (1280, 400) for m in ("light", "dark")}
    assert {name for _, _, name, *_ in problems} == {
        "overflow", "long line", "far from the first result", "contents out of sight", "axe", "console", "requests",
    }  # fmt: skip
    rules = {values[0] for _, _, name, *details in problems if name == "axe" for values in details}
    assert {"image-alt", "color-contrast"} <= rules


def test_a_mark_says_its_values_at_the_pointer_and_by_arrow_keys(browser, page):
    open_page = browser.open(page)
    box = open_page.run("""(() => { const mark = document.querySelector('.chart [data-tip*="a; accuracy: 0.5"]');
      mark.scrollIntoView({ block: "center" }); const box = mark.getBoundingClientRect();
      return [box.x + box.width / 2, box.y + box.height / 2]; })()""")
    open_page.move(*box)
    open_page.until("!document.getElementById('values').hidden")
    shown = open_page.run("document.getElementById('values').textContent")
    assert "target: a" in shown
    assert "accuracy: 0.5" in shown
    tip = open_page.run(
        "(() => { const t = document.getElementById('values').getBoundingClientRect(); return [t.x, t.y]; })()"
    )
    assert max(abs(tip[0] - box[0]), abs(tip[1] - box[1])) < 40
    open_page.move(2, 2)
    open_page.until("document.getElementById('values').hidden")
    open_page.run("document.querySelector('.chart .scroll').focus()")
    sections = []
    for _ in range(3):
        open_page.press("ArrowRight")
        sections.append(open_page.run("document.getElementById('values').textContent"))
    assert len(set(sections)) == 3
    assert open_page.run("document.getElementById('values').getAttribute('role')") == "status"
    open_page.press("Escape")
    assert open_page.run("document.getElementById('values').hidden")
    open_page.close()


def test_the_keyboard_reaches_the_skip_link_then_the_contents(browser, page):
    open_page = browser.open(page)
    reached = []
    for _ in range(4):
        open_page.press("Tab")
        reached.append(open_page.run("document.activeElement.getAttribute('href')"))
    assert reached == ["#main", "#section-1", "#section-2", "#section-3"]
    open_page.press("Enter")
    open_page.until("location.hash == '#section-3'")
    assert 0 <= open_page.run("document.querySelector('#section-3').getBoundingClientRect().top") < 800
    open_page.close()


def test_an_empty_table_says_none(page):
    text = page.read_text()
    assert text.count('<td class="none" colspan="2">none</td>') == 1


def test_colours_and_gradients_of_two_charts_do_not_mix(browser, page):
    ids = browser.open(page)
    assert ids.run("""[...document.querySelectorAll("[id]")].length
      == new Set([...document.querySelectorAll("[id]")].map((one) => one.id)).size""")
    assert ids.run("""[...document.querySelectorAll('[fill^="url(#"]')].every((one) =>
      one.closest("svg").querySelector(one.getAttribute("fill").slice(4, -1)))""")
    ids.close()


def test_a_chart_can_be_saved(browser, page):
    open_page = browser.open(page)
    text = open_page.run("""(async () => {
      let kept; URL.createObjectURL = (blob) => { kept = blob; return "#"; };
      document.querySelector(".chart button").click(); return await kept.text(); })()""")
    assert text.startswith("<svg")
    assert "accuracy per target" in text
    open_page.close()


def test_charts_have_no_background_of_their_own(browser, page):
    """On a dark page it would be white under light text."""
    for dark, ink in ((True, "rgb(227, 231, 236)"), (False, "rgb(28, 35, 48)")):
        open_page = browser.open(page, dark=dark)
        assert open_page.run("document.querySelectorAll('.chart svg > rect').length") == 0
        words = "[...document.querySelectorAll('.chart svg text[fill=currentColor]')]"
        assert open_page.run(f"{words}.length") > 10
        assert open_page.run(f"[...new Set({words}.map((text) => getComputedStyle(text).fill))]") == [ink]
        open_page.close()


def test_charts_are_beside_the_text_where_they_fit(browser, page):
    """The window is 1280 or 400 pixels wide."""
    for width in (1280, 400):
        open_page = browser.open(page, width=width)
        left, right, top, bottom = open_page.run("""(() => {
          const box = (selector) => document.querySelector("#section-1 " + selector).getBoundingClientRect();
          const text = box(".text"), chart = box(".chart");
          return [chart.left, text.right, chart.top, text.bottom];
        })()""")
        assert (left > right) == (width == 1280)
        assert (top > bottom) == (width == 400)
        open_page.close()


def test_a_printed_page_is_not_wider_than_paper(browser, page):
    open_page = browser.open(page, width=718)
    open_page.send("Emulation.setEmulatedMedia", media="print")
    # but the table of 40 columns
    overflow = """[...document.querySelectorAll('main *')].filter((element) => !element.closest('#section-3') &&
      element.getBoundingClientRect().right > 718).length"""
    assert open_page.run(overflow) == 0
    # as on paper, nothing can be scrolled
    assert open_page.run("""[...document.querySelectorAll('.scroll')].every((scroll) =>
      getComputedStyle(scroll).overflowX === 'visible')""")
    open_page.close()
