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

from interp.view.attention import MOST_WEIGHTS, Example, canvas_page, circuitsvis_page, thinned
from interp.view.html import PageIdentity

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
    page.until("document.body.dataset.drawn")
    canvas = f"document.querySelectorAll('figure canvas')[{head}]"
    page.run(f"""(() => {{
      const map = {canvas}, box = map.getBoundingClientRect();
      const x = box.left + {(key + 0.5) / n} * box.width, y = box.top + {(query + 0.5) / n} * box.height;
      map.dispatchEvent(new PointerEvent("pointermove", {{ clientX: x, clientY: y, bubbles: true }}));
    }})()""")  # a MouseEvent would round to whole pixels
    text, weight = page.run("document.getElementById('tip').textContent").rsplit(": ", 1)
    assert text == f'{head}: query {query} "{tokens[query]}" -> key {key} "{tokens[key]}"'
    assert float(weight) == pytest.approx(example.patterns[head, query, key], abs=0.005)
    pixels = page.run(f"{canvas}.toDataURL()")
    page.run("""(() => {
      const choice = document.getElementById("relation");
      choice.selectedIndex = choice.options.length - 1;
      delete document.body.dataset.drawn;
      choice.dispatchEvent(new Event("change"));
    })()""")
    page.until("document.body.dataset.drawn")
    assert page.run(f"{canvas}.toDataURL()") != pixels  # related keys have an outline
    page.run(f"{canvas}.parentElement.click()")
    assert page.run("document.getElementById('name').textContent") == f"head {head}"
    assert page.run("document.querySelector('#panel canvas').width") > n
    assert page.run("document.querySelectorAll('#grid figure').length") == heads
    assert page.problems == []
    page.close()


@pytest.mark.browser
@pytest.mark.parametrize("heads", [4, pytest.param(80, marks=pytest.mark.slow)])
def test_nothing_is_wrong_with_the_canvas_page(browser, tmp_path, heads):
    path = page_of(heads)[1].save(tmp_path / "page.html")
    assert faults(browser, path, ready="document.body.dataset.drawn") == []


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
    page.until("document.body.dataset.drawn")
    page.run("document.querySelectorAll('#grid figure')[2].focus()")
    chosen = "[...document.querySelectorAll('#grid figure')].map((one) => one.getAttribute('aria-pressed'))"
    assert page.run(chosen) == ["true", "false", "false", "false"]
    for key, chosen_head in (("Enter", 2), ("ArrowRight", 3), ("ArrowLeft", 2)):
        page.press(key)
        assert page.run(chosen) == ["true" if head == chosen_head else "false" for head in range(4)]
    assert page.run("document.getElementById('name').textContent") == "head 2"
    assert page.run("document.querySelectorAll('#grid figure')[2].getAttribute('aria-label')") == "head 2"
    page.close()


def two_models():
    single, _ = page_of(2)
    pair = replace(single, other_patterns=patterns(2, 6, seed=1))
    return pair, canvas_page([pair], heads=["0.0", "0.1"], labels=["", "keeps"], columns=2, title="two")


@pytest.mark.browser
def test_two_models_and_their_difference(browser, tmp_path):
    pair, page = two_models()
    path = page.save(tmp_path / "page.html")
    assert faults(browser, path, ready="document.body.dataset.drawn") == []
    page = browser.open(path)
    page.until("document.body.dataset.drawn")
    names = page.run("[...document.querySelectorAll('#panel figcaption')].map((one) => one.textContent)")
    assert names == ["model", "other model", "other model − model"]
    page.run("document.querySelectorAll('#panel .maps .scroll')[2].focus()")
    for key in ("ArrowDown", "ArrowRight", "ArrowRight"):
        page.press(key)
    first, *numbers = page.run("document.getElementById('tip').textContent").split("\n")
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
    page.until("document.body.dataset.drawn")
    page.run("document.querySelectorAll('#grid figure')[1].click()")
    svg = ElementTree.fromstring(page.run("panelSvg()"))
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
    meta = json.loads(re.search(r'id="meta">(.*?)</script>', html).group(1))["examples"][0]
    assert (meta["block"], meta["side"]) == (2, 3)
    packed = zlib.decompress(base64.b64decode(meta["patterns"][0]))
    assert list(packed) == np.rint(255 * np.sqrt(thinned(example.patterns, 2))).ravel().tolist()


def test_a_page_is_printed_in_two_lines_and_shown_in_a_notebook():
    _, page = page_of(14)
    for text in (repr(page), str(page)):
        what, how = text.splitlines()
        assert what.startswith("attention page (canvas): heads 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, ...; ")
        assert what.endswith(f"; sequences of 6 tokens; {len(page.html) / 1e6:.1f} MB.")
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
    page.until("document.body.dataset.drawn")
    assert "One cell is 2 by 2 tokens" in page.run("document.getElementById('legend').textContent")
    page.run("document.querySelector('#panel .maps .scroll').focus()")
    page.press("ArrowDown")
    text, weight = page.run("document.getElementById('tip').textContent").rsplit(": at most ", 1)
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
    page.until("document.querySelector('iframe').contentDocument.body.dataset.drawn")
    assert page.run("document.querySelector('iframe').contentDocument.querySelector('h1').offsetParent === null")
    assert page.run("document.querySelector('iframe').contentDocument.querySelectorAll('#grid figure').length") == 4
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
    for html, scripts in ((pages[0].html, 2), (pages[1].html, 1)):
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
