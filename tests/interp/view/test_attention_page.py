"""Attention pages: self-contained, escaped, and accurate."""

import json
import re
import shutil
import subprocess

import numpy as np
import pytest

from interp.view.attention import Example, canvas_page, circuitsvis_page

NASTY = ("</script><script>boom()</script>", "<b>", '"', "a", "'", "<!--")
PROBE = """<script>
window.addEventListener("error", (event) => document.body.dataset.error = event.message);
async function when(test) { while (!test()) await new Promise((go) => setTimeout(go, 20)); }
(async () => {
  await when(() => document.body.dataset.drawn);
  const found = {}, map = document.querySelectorAll("figure canvas")[HEAD], box = map.getBoundingClientRect();
  const n = N, at = (i) => (i + 0.5) / n;
  const point = { clientX: box.left + at(KEY) * box.width, clientY: box.top + at(QUERY) * box.height, bubbles: true };
  map.dispatchEvent(new PointerEvent("mousemove", point));  // a MouseEvent would round to whole pixels
  found.tip = document.getElementById("tip").textContent;
  const pixels = () => map.toDataURL();
  const before = pixels(), choice = document.getElementById("relation");
  choice.selectedIndex = choice.options.length - 1;
  delete document.body.dataset.drawn;
  choice.dispatchEvent(new Event("change"));
  await when(() => document.body.dataset.drawn);
  found.outlined = pixels() !== before;
  map.parentElement.click();
  found.large = !document.getElementById("large").hidden && document.getElementById("big").width > n;
  found.figures = document.querySelectorAll("figure").length;
  const result = document.createElement("pre");
  result.id = "found";
  result.textContent = JSON.stringify(found);
  document.body.append(result);
})();
</script></body>"""


def patterns(heads, n, seed=0):
    """Rows from the flat simplex: the hardest to compress."""
    rows = np.random.default_rng(seed).exponential(size=(heads, n, n))
    return rows / rows.sum(-1, keepdims=True)


def page_of(heads=4, tokens=NASTY, **relations):
    n = len(tokens)
    relations = relations or {"diagonal": np.eye(n, dtype=bool)}
    one = Example(tokens=tuple(tokens), patterns=patterns(heads, n), relations=relations)
    names = [str(head) for head in range(heads)]
    return one, canvas_page([one], heads=names, labels=[""] * heads, columns=4, title="a <title>")


def open_in_browser(path, profile):
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    flags += ["--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=20000", "--enable-logging=stderr"]
    command = [browser, *flags, f"--user-data-dir={profile}", "--dump-dom", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
    return done.stdout


@pytest.mark.browser
@pytest.mark.parametrize(("heads", "n"), [(4, 6), (144, 128)])
def test_weights_in_a_browser(tmp_path, heads, n):
    tokens = NASTY if n == 6 else [f"w{i}" for i in range(n)]
    one, page = page_of(heads, tokens)
    head, query, key = heads - 1, 2, n - 2
    script = PROBE
    for name, value in {"HEAD": head, "QUERY": query, "KEY": key, "N;": f"{n};", "= N,": f"= {n},"}.items():
        script = script.replace(name, str(value))
    path = tmp_path / "page.html"
    path.write_text(page.html.replace("</body>", script))
    dom = open_in_browser(path, tmp_path / "profile")
    found = json.loads(
        re.search(r'<pre id="found">(.*?)</pre>', dom).group(1).replace("&lt;", "<").replace("&gt;", ">")
    )
    assert found["figures"] == heads
    assert found["outlined"]
    assert found["large"]
    text, weight = found["tip"].rsplit(": ", 1)
    assert text == f'{head}: query {query} "{tokens[query]}" -> key {key} "{tokens[key]}"'
    assert float(weight) == pytest.approx(one.patterns[head, query, key], abs=0.005)
    assert "data-error" not in dom


@pytest.mark.browser
def test_circuitsvis_escapes_tokens(tmp_path):
    one, _ = page_of(3)
    path = circuitsvis_page(one, heads=["0.0", "0.1", "0.2"], causal=False, title="t").save(tmp_path / "page.html")
    dom = open_in_browser(path, tmp_path / "profile")
    body = re.sub(r"<script.*?</script>", "", dom, flags=re.DOTALL)
    assert "Head Selector" in body
    assert "<b>" not in body


def test_size_of_a_page_that_compresses_badly():
    tokens = [f"token{i}" for i in range(128)]
    assert len(page_of(144, tokens)[1].html) < 2_500_000


def test_pages_are_self_contained_and_escaped():
    one, page = page_of()
    pages = [page, circuitsvis_page(one, heads=["0", "1", "2", "3"], causal=False, title="t")]
    for html, scripts in ((pages[0].html, 2), (pages[1].html, 1)):
        assert not re.search(r"""(?:src|href)=["']?https?:""", html)
        assert len(re.findall(r"</script>", html)) == scripts
        assert "boom()</script>" not in html
        assert "<!--" not in html.replace("<!doctype", "")


def test_notebook_iframe():
    html = page_of()[1]._repr_html_()
    assert html.startswith("<iframe srcdoc=")
    assert "<script" not in html
    assert html.count('"') == 4  # two attributes: nothing inside closes one early


def test_mismatched_names_are_refused():
    one, _ = page_of(2)
    with pytest.raises(ValueError, match=r"patterns is \(2, 6, 6\) for 3 heads, 3 labels and 6 tokens"):
        canvas_page([one], heads=["0", "1", "2"], labels=["", "", ""], columns=1, title="t")
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
