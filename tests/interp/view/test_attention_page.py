"""Attention pages: self-contained, escaped, and accurate."""

import base64
import json
import re
import zlib
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from browser import faults

from interp import report as write_report
from interp.view.attention import MOST_WEIGHTS, Example, Finding, canvas_page, circuitsvis_page, thinned
from interp.view.html import PageIdentity

DRAWN = "document.querySelector('.attention').dataset.drawn"
IDENTITY = PageIdentity(task="brackets <2>", seed="7")
NASTY = ("</script><script>boom()</script>", "<b>", '"', "a", "'", "<!--")


def patterns(heads, n, seed=0):
    """Rows from the flat simplex: the hardest to compress."""
    rows = np.random.default_rng(seed).exponential(size=(heads, n, n))
    return rows / rows.sum(-1, keepdims=True)


def page_of(heads=4, tokens=NASTY, **relations):
    n = len(tokens)
    relations = relations or {"diagonal": np.eye(n, dtype=bool)}
    example = Example(tokens=tuple(tokens), patterns=patterns(heads, n), relations=relations)
    names = [str(head) for head in range(heads)]
    return example, canvas_page([example], heads=names, labels=[""] * heads, columns=4, title="a <title>")


@pytest.mark.browser
@pytest.mark.parametrize(("heads", "n"), [(4, 6), (40, 128)])
def test_weights_in_a_browser(browser, tmp_path, heads, n):
    tokens = NASTY if n == 6 else [f"w{i}" for i in range(n)]
    example, content = page_of(heads, tokens)
    head, query, key = heads - 1, 2, n - 2
    page = browser.open(content.save(tmp_path / "page.html"))
    page.until(DRAWN)
    canvas = f"document.querySelectorAll('.grid canvas')[{head}]"
    page.run(f"""(() => {{
      const map = {canvas}, box = map.getBoundingClientRect();
      const x = box.left + {(key + 0.5) / n} * box.width, y = box.top + {(query + 0.5) / n} * box.height;
      map.dispatchEvent(new PointerEvent("pointermove", {{ clientX: x, clientY: y, bubbles: true }}));
    }})()""")  # a MouseEvent would round to whole pixels
    text, weight = page.run("document.querySelector('.tip').textContent").rsplit(": ", 1)
    assert text == f'{head}: query {query} "{tokens[query]}" -> key {key} "{tokens[key]}"'
    assert float(weight) == pytest.approx(example.patterns[head, query, key], abs=0.005)
    pixels = page.run(f"{canvas}.toDataURL()")
    page.run("""(() => {
      const choice = document.querySelector('.relation');
      choice.selectedIndex = choice.options.length - 1;
      delete document.querySelector('.attention').dataset.drawn;
      choice.dispatchEvent(new Event("change"));
    })()""")
    page.until(DRAWN)
    assert page.run(f"{canvas}.toDataURL()") != pixels  # related keys have an outline
    page.run(f"{canvas}.parentElement.click()")
    assert page.run("document.querySelector('.name').textContent") == f"head {head}"
    assert page.run("document.querySelector('.panel canvas').width") > n
    assert page.run("document.querySelectorAll('.grid button').length") == heads
    assert page.problems == []
    page.close()


@pytest.mark.browser
@pytest.mark.parametrize("heads", [4, pytest.param(80, marks=pytest.mark.slow)])
def test_nothing_is_wrong_with_the_canvas_page(browser, tmp_path, heads):
    path = page_of(heads)[1].save(tmp_path / "page.html")
    assert faults(browser, path, ready=DRAWN) == []


@pytest.mark.slow
@pytest.mark.browser
def test_nothing_of_ours_is_wrong_with_a_circuitsvis_page(browser, tmp_path):
    names = [f"{head}.0" for head in range(4)]
    path = circuitsvis_page(page_of()[0], heads=names, causal=False, title="t", identity=IDENTITY).save(
        tmp_path / "a.html"
    )
    assert faults(browser, path, ready="document.body.innerText.includes('Head Selector')", without=[".viewer"]) == []


@pytest.mark.browser
def test_heads_are_chosen_with_the_keyboard(browser, tmp_path):
    page = browser.open(page_of()[1].save(tmp_path / "page.html"))
    page.until(DRAWN)
    page.run("document.querySelectorAll('.grid button')[2].focus()")
    chosen = "[...document.querySelectorAll('.grid button')].map((one) => one.getAttribute('aria-pressed'))"
    assert page.run(chosen) == ["true", "false", "false", "false"]
    for key, chosen_head in (("Enter", 2), ("ArrowRight", 3), ("ArrowLeft", 2)):
        page.press(key)
        assert page.run(chosen) == ["true" if head == chosen_head else "false" for head in range(4)]
    assert page.run("document.querySelector('.name').textContent") == "head 2"
    assert page.run("document.querySelectorAll('.grid button')[2].getAttribute('aria-label')") == "head 2"
    page.close()


def two_models():
    single, _ = page_of(2)
    pair = replace(single, other_patterns=patterns(2, 6, seed=1))
    return pair, canvas_page([pair], heads=["0.0", "0.1"], labels=["", "keeps"], columns=2, title="two")


@pytest.mark.browser
def test_two_models_and_their_difference(browser, tmp_path):
    pair, page = two_models()
    path = page.save(tmp_path / "page.html")
    assert faults(browser, path, ready=DRAWN) == []
    page = browser.open(path)
    page.until(DRAWN)
    names = page.run("[...document.querySelectorAll('.panel figcaption')].map((one) => one.textContent)")
    assert names == ["model", "other model", "other model − model"]
    page.run("document.querySelectorAll('.panel .maps .scroll')[2].focus()")
    for key in ("ArrowDown", "ArrowRight", "ArrowRight"):
        page.press(key)
    first, *numbers = page.run("document.querySelector('.tip').textContent").split("\n")
    assert first == f'0.0: query 1 "{NASTY[1]}" -> key 2 "{NASTY[2]}"'
    weights = pair.patterns[0, 1, 2], pair.other_patterns[0, 1, 2]
    assert [float(text.split(": ")[1]) for text in numbers] == pytest.approx(
        [*weights, weights[1] - weights[0]], abs=0.008
    )
    page.close()


@pytest.mark.browser
@pytest.mark.parametrize("n", [6, 210])
def test_the_saved_picture_shows_the_weights(browser, tmp_path, n):
    _, page = page_of(2, NASTY if n == 6 else [f"w{i}" for i in range(n)])
    page = browser.open(page.save(tmp_path / "page.html"))
    page.until(DRAWN)
    page.run("document.querySelectorAll('.grid button')[1].click()")
    text = page.run("""(async () => {
      let picture; URL.createObjectURL = (blob) => { picture = blob; return "#"; };
      document.querySelector(".svg").click(); return await picture.text(); })()""")
    svg = ElementTree.fromstring(text)
    kinds = [element.tag.split("}")[1] for element in svg.iter()]
    texts = [element.text for element in svg.iter() if element.tag.endswith("text")]
    assert texts[0] == "head 1"
    assert kinds.count("image") == (0 if n == 6 else 1)  # beyond 40,000 weights
    if n == 6:
        assert set(texts[1:]) == {f"{word[:9]}…" if len(word) > 10 else word for word in NASTY}
        colours = [element.get("fill") for element in svg.iter() if (element.get("fill") or "").startswith("rgb")]
        assert len(colours) == 36
        byte = np.rint(255 * np.sqrt(patterns(2, 6)[1, 0, 0])) / 255
        assert colours[0] == "rgb({:.0f},{:.0f},{:.0f})".format(*(255 + (end - 255) * byte for end in (11, 110, 138)))
    page.close()


def test_blocks_of_tokens_show_their_largest_weight(monkeypatch):
    maps = np.arange(50.0).reshape(2, 5, 5)
    np.testing.assert_array_equal(thinned(maps, 2)[0], [[6, 8, 9], [16, 18, 19], [21, 23, 24]])
    assert thinned(maps, 1) is maps
    monkeypatch.setattr("interp.view.attention.MOST_WEIGHTS", 2 * 3 * 3)
    tokens = ["a", "b", "c", "d", "e"]
    example = Example(tokens=tuple(tokens), patterns=patterns(2, 5), relations={"diagonal": np.eye(5, dtype=bool)})
    html = canvas_page([example], heads=["0", "1"], labels=["", ""], columns=2, title="t").html
    meta = json.loads(re.search(r'json">(.*?)</script>', html).group(1))["examples"][0]
    assert (meta["block"], meta["side"]) == (2, 3)
    packed = zlib.decompress(base64.b64decode(meta["patterns"][0]))
    assert list(packed) == np.rint(255 * np.sqrt(thinned(example.patterns, 2))).ravel().tolist()


def test_a_page_is_printed_in_two_lines_and_shown_in_a_notebook():
    _, page = page_of(14)
    for text in (repr(page), str(page)):
        what, how = text.splitlines()
        assert what.startswith("attention page (canvas): heads 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, ...; ")
        assert what.endswith(f"; sequences of 6 tokens; {len(page.html) / 1e3:.0f} kB.")
        assert ".save('attention.html')" in how
    assert "heads 0, 1;" in repr(page_of(2)[1])
    assert page._repr_html_().startswith("<iframe srcdoc=")


def test_the_size_of_a_page_is_bounded(monkeypatch):
    """Also if nothing can be compressed; the largest page is then 15 MB."""
    assert 4 / 3 * MOST_WEIGHTS < 15e6
    monkeypatch.setattr("interp.view.attention.MOST_WEIGHTS", 100_000)
    bare, example = (
        Example(tokens=("a",) * n, patterns=np.random.default_rng(0).random((4, n, n)) ** 2) for n in (1, 158)
    )
    names = {"heads": ["0"] * 4, "labels": [""] * 4}
    small, page = (canvas_page([shown_example], **names, columns=2, title="t") for shown_example in (bare, example))
    assert 0.9 * 4 / 3 * 4 * 158**2 < len(page.html) - len(small.html) < 4 / 3 * 100_000 + 2000


@pytest.mark.browser
def test_a_thinned_page_says_so(browser, tmp_path, monkeypatch):
    monkeypatch.setattr("interp.view.attention.MOST_WEIGHTS", 4 * 3 * 3)
    example, page = page_of(4, ["a", "b", "c", "d", "e"])
    page = browser.open(page.save(tmp_path / "page.html"))
    page.until(DRAWN)
    assert "One cell is 2 by 2 tokens" in page.run("document.querySelector('.legend').textContent")
    page.run("document.querySelector('.panel .maps .scroll').focus()")
    page.press("ArrowDown")
    text, weight = page.run("document.querySelector('.tip').textContent").rsplit(": at most ", 1)
    assert text == '0: query 2 to 3 "c … d" -> key 0 to 1 "a … b"'
    assert float(weight) == pytest.approx(example.patterns[0, 2:4, :2].max(), abs=0.005)
    page.close()


def test_patterns_of_another_model_must_fit():
    pair, _ = two_models()
    example, _ = page_of(2)
    names = {"heads": ["0", "1"], "labels": ["", ""], "columns": 2, "title": "t"}
    with pytest.raises(ValueError, match="give all or none"):
        canvas_page([pair, example], **names)
    mine = np.zeros((2, 5, 5))
    with pytest.raises(ValueError, match=r"patterns is \(2, 5, 5\) for 2 heads"):
        canvas_page([Example(tokens=pair.tokens, patterns=mine, other_patterns=mine)], **names)


@pytest.mark.browser
def test_an_embedded_page_has_no_heading_of_its_own(browser, tmp_path):
    html = page_of()[1]._repr_html_()
    path = tmp_path / "outer.html"
    path.write_text(
        f'<!doctype html><html lang="en"><title>t</title><meta charset="utf-8"><body><main>{html}</main></body></html>'
    )
    page = browser.open(path)
    page.until("document.querySelector('iframe').contentDocument.querySelector('.attention').dataset.drawn")
    assert page.run("document.querySelector('iframe').contentDocument.querySelector('h1').offsetParent === null")
    assert page.run("document.querySelector('iframe').contentDocument.querySelectorAll('.grid button').length") == 4
    page.close()


def test_the_heading_says_what_the_page_is_about():
    example, _ = page_of()
    names = list("0123")
    for page in (
        canvas_page([example], heads=names, labels=[""] * 4, columns=4, title="t", identity=IDENTITY),
        circuitsvis_page(example, heads=names, causal=False, title="t", identity=IDENTITY),
    ):
        assert "<dt>task</dt><dd>brackets &lt;2&gt;</dd>" in page.html
        assert "<dt>seed</dt><dd>7</dd>" in page.html
        assert "<dt>model</dt>" not in page.html  # not known


@pytest.mark.browser
def test_circuitsvis_escapes_tokens(browser, tmp_path):
    example, _ = page_of(3)
    path = circuitsvis_page(example, heads=["0.0", "0.1", "0.2"], causal=False, title="t").save(tmp_path / "page.html")
    page = browser.open(path)
    page.until("document.body.innerText.includes('Head Selector')")
    body = re.sub(r"<script.*?</script>", "", page.run("document.body.outerHTML"), flags=re.DOTALL)
    assert "Head Selector" in body
    assert "<b>" not in body
    page.close()


def test_size_of_a_page_that_compresses_badly():
    tokens = [f"token{i}" for i in range(128)]
    assert len(page_of(144, tokens)[1].html) < 2_500_000


def test_pages_are_self_contained_and_escaped():
    example, page = page_of()
    pages = [page, circuitsvis_page(example, heads=["0", "1", "2", "3"], causal=False, title="t")]
    for html, scripts in ((pages[0].html, 3), (pages[1].html, 2)):
        assert not re.search(r"""(?:src|href)=["']?https?:""", html)
        assert len(re.findall(r"</script>", html)) == scripts
        assert "boom()</script>" not in html
        assert "<!--" not in html.replace("<!doctype", "")


def test_notebook_iframe():
    html = page_of()[1]._repr_html_()
    assert html.startswith("<iframe srcdoc=")
    assert "<script" not in html
    assert html.count('"') == 6  # three attributes: nothing inside closes one early


def test_mismatched_names_are_refused():
    example, _ = page_of(2)
    with pytest.raises(ValueError, match=r"patterns is \(2, 6, 6\) for 3 heads, 3 labels and 6 tokens"):
        canvas_page([example], heads=["0", "1", "2"], labels=["", "", ""], columns=1, title="t")
    with pytest.raises(ValueError, match="examples is empty"):
        canvas_page([], heads=[], labels=[], columns=1, title="t")


def test_saving_is_atomic(tmp_path, monkeypatch):
    path = tmp_path / "page.html"
    path.write_text("the old one")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        page_of()[1].save(path)
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]
    assert path.read_text() == "the old one"


@pytest.fixture
def open_map(browser, tmp_path):
    """An open page, the place of a cell on the map in its panel, and the colour of a pixel there."""
    example, content = page_of(4, ["a", "b", "c", "d", "e", "f"])
    page = browser.open(content.save(tmp_path / "page.html"))
    page.until(DRAWN)
    page.run("""
      document.querySelector('.maps').scrollIntoView();
      const map = document.querySelector('.maps canvas'), box = map.getBoundingClientRect();
      const cell = Math.min(18, Math.floor((map.width - 21) / 6)), margin = map.width - 6 * cell;
      const at = (index) => margin + (index + .5) * cell;
      const shade = (x, y) => map.getContext('2d').getImageData(x, y, 1, 1).data[3];
    0""")
    yield example, page
    page.close()


@pytest.mark.browser
def test_a_query_shades_its_keys_and_a_key_its_queries(open_map):
    example, page = open_map
    # next to the tokens above the map, and left of it: nothing is shaded without the pointer
    above = "[0,1,2,3,4,5].map((key) => shade(at(key), 3))"
    left = "[0,1,2,3,4,5].map((query) => shade(3, at(query)))"
    assert page.run(above) == page.run(left) == [0] * 6
    for query, key, shaded, plain, weights in (
        (2, None, above, left, example.patterns[0, 2]),
        (None, 4, left, above, example.patterns[0, :, 4]),
    ):
        x = "box.left + 8" if key is None else f"box.left + at({key})"
        y = "box.top + 8" if query is None else f"box.top + at({query})"
        page.move(*page.run(f"[{x}, {y}]"))
        page.until("!document.querySelector('.tip').hidden")
        np.testing.assert_allclose(np.array(page.run(shaded)) / 255, 0.75 * np.sqrt(weights), atol=0.01)
        assert sum(alpha > 0 for alpha in page.run(plain)) <= 1  # only the frame of the row or column
        title, *lines = page.run("document.querySelector('.tip').textContent").split("\n")
        assert title == ('query 2 "c", to keys' if key is None else 'key 4 "e", from queries')
        strongest = np.argsort(-weights)[:5]
        assert [line.split(" ")[0] for line in lines] == list(map(str, strongest))
        assert [float(line.split(": ")[1]) for line in lines] == pytest.approx(weights[strongest], abs=0.005)
    page.move(2, 2)
    page.until("document.querySelector('.tip').hidden")
    assert page.run(above) == page.run(left) == [0] * 6


@pytest.mark.browser
def test_arrow_keys_shade_the_keys_of_a_query(open_map):
    example, page = open_map
    page.run("document.querySelector('.maps .scroll').focus()")
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        page.press(key)
    assert page.run("document.querySelector('.tip').textContent").startswith('0: query 2 "c" -> key 1 "b": ')
    shades = page.run("[0,2,3,4,5].map((key) => shade(at(key), 3))")
    np.testing.assert_allclose(
        np.array(shades) / 255, 0.75 * np.sqrt(example.patterns[0, 2, [0, 2, 3, 4, 5]]), atol=0.01
    )
    page.press("Escape")
    assert page.run("[0,1,2,3,4,5].map((key) => shade(at(key), 3))") == [0] * 6


@pytest.mark.browser
def test_two_viewers_on_one_page_do_not_mix(browser, tmp_path):
    """In a page there is one scroll bar: viewers are as high as their content, and drawn before they are seen."""
    pages = [page_of(heads)[1] for heads in (4, 24)]
    path = write_report(pages, tmp_path / "report.html", title="Two viewers")
    page = browser.open(path)
    page.until("[...document.querySelectorAll('.attention')].every((viewer) => viewer.dataset.drawn)")
    assert page.run("scrollY") == 0
    blank = """[...document.querySelectorAll('.attention canvas')].filter((canvas) =>
      new Set(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data).size < 4).length"""
    assert page.run(blank) == 0
    page.run("document.querySelectorAll('.attention')[1].querySelectorAll('.grid button')[20].click()")
    names = page.run("[...document.querySelectorAll('.attention .name')].map((name) => name.textContent)")
    assert names == ["head 0", "head 20"]
    scrolling = """[...document.querySelectorAll('main *')].filter((element) => element.scrollHeight >
      element.clientHeight + 1 && ['auto', 'scroll'].includes(getComputedStyle(element).overflowY)).length"""
    assert page.run(scrolling) == 0
    assert page.run("document.querySelectorAll('iframe').length") == 0
    page.close()


@pytest.mark.browser
def test_a_frame_is_as_high_as_its_content(browser, tmp_path):
    path = tmp_path / "outer.html"
    path.write_text(f"<!doctype html><title>t</title><body>{page_of(24)[1]._repr_html_()}</body>")
    page = browser.open(path)
    inside = "document.querySelector('iframe').contentDocument"
    page.until(f"{inside}.querySelector('.attention').dataset.drawn")
    fits = f"{inside}.documentElement.scrollHeight <= document.querySelector('iframe').clientHeight"
    page.until(fits)
    assert page.run("document.querySelector('iframe').clientHeight") != 720
    # also if it grows later
    page.run(f"{inside}.body.style.paddingBottom = '1200px'")
    page.until("document.querySelector('iframe').clientHeight > 1200")
    page.until(fits)
    assert not page.problems  # the frame grows before the weights are unpacked
    page.close()


@pytest.mark.browser
@pytest.mark.parametrize("width", [400, 1280])
def test_the_panel_is_next_to_the_heads_or_below_them(browser, tmp_path, width):
    path = write_report([page_of(8)[1]], tmp_path / "report.html", title="One viewer")
    page = browser.open(path, width=width)
    page.until(DRAWN)
    box = "document.querySelector('.attention .{}').getBoundingClientRect()".format
    assert page.run(f"{box('panel')}.left >= {box('heads')}.right") == (width == 1280)
    assert page.run(f"{box('panel')}.top >= {box('heads')}.bottom") == (width == 400)
    assert page.run(f"{box('panel')}.width") > 350
    page.close()


@pytest.mark.browser
def test_many_columns_have_names_and_the_colours_of_verdicts(browser, tmp_path):
    example, _ = page_of(12)
    verdicts = {"idle": "#9aa2ad", "faithful": "#0b6e8a"}
    findings = [Finding(verdict=name, colour=verdicts[name], sentence="A sentence.") for name in [*verdicts] * 6]
    names = [f"0.{head}" for head in range(12)]
    labels = [finding.verdict for finding in findings]
    for columns, captions, legend in ((12, ["0.0", "0.1"], [*verdicts]), (4, ["0.0 idle", "0.1 faithful"], [])):
        content = canvas_page(
            [example], heads=names, labels=labels, columns=columns, title="verdicts", findings=findings
        )
        page = browser.open(write_report([content], tmp_path / "page.html", title="Verdicts"))
        page.until(DRAWN)
        assert page.run("[...document.querySelectorAll('.grid span')].map((name) => name.textContent)")[:2] == captions
        assert page.run("[...document.querySelectorAll('.verdict-colour')].map((name) => name.textContent)") == legend
        assert page.run("document.querySelector('.grid button').getAttribute('aria-label')") == "head 0.0 idle"
        # all columns are in view
        assert page.run("(() => { const { scrollWidth, clientWidth } = document.querySelector('.heads');"
                        " return scrollWidth <= clientWidth; })()")  # fmt: skip
        page.close()
