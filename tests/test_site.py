"""The documentation site: error messages are real, the tutorial is short, and the build finds its faults."""

import importlib
import re
import sys
from pathlib import Path
from textwrap import dedent

import pytest

import interp
from hooks.model.blocks import BLOCKS
from interp.heads import kinds
from interp.tasks import registry

DOCS = Path(__file__).parent.parent / "docs"
sys.path.append(str(DOCS / "_ext"))

from check_links import faults  # noqa: E402
from docstrings import to_rest  # noqa: E402
from outside_links import rewrite  # noqa: E402

TROUBLE = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
SETUP = re.search(r"^```python\n(.*?)^```", TROUBLE, re.DOTALL | re.MULTILINE)
ENTRIES = re.findall(
    r"^### ([^\n]+)\n\n```python raises\n(.*?)^```\n\n```text\n(.*?)^```", TROUBLE, re.DOTALL | re.MULTILINE
)


def test_every_code_of_troubleshooting_has_its_message():
    assert len(ENTRIES) == TROUBLE.count("python raises") >= 20


@pytest.mark.parametrize(("code", "message"), [entry[1:] for entry in ENTRIES], ids=[entry[0] for entry in ENTRIES])
def test_the_code_raises_this_message(code, message, tmp_path, monkeypatch, as_a_user):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("interp.heads.kinds._KINDS", dict(kinds._KINDS))
    monkeypatch.setattr("hooks.model.blocks.BLOCKS", dict(BLOCKS))
    monkeypatch.setattr("interp.tasks.registry._REGISTERED", dict(registry._REGISTERED))
    names = {}
    exec(SETUP[1], names)
    with pytest.raises(Exception) as raised:  # noqa: PT011
        exec(code, names)
    assert f"{type(raised.value).__name__}: {raised.value}".split() == message.split()


def test_every_public_name_is_in_the_reference_once():
    from api_pages import PACKAGES, page, public_names

    packages = [importlib.import_module(name) for name in PACKAGES]
    names = public_names(interp)
    assert {"train", "probe", "audit", "classify_heads", "ablate_heads", "report"} <= set(names)
    text, again = page(interp), page(interp, {id(value) for value in names.values()})
    for name in names:
        assert len(re.findall(rf"^\.\. auto(?:function|class):: {name}$", text, re.MULTILINE)) == 1
        assert f"   {name}\n" in again  # in the table only
    assert "autofunction" not in again
    assert not [package.__name__ for package in packages if not public_names(package)]


def test_links_out_of_docs():
    def written(text):
        return rewrite(text, DOCS / "guides/a.md", DOCS)

    assert written("[a](../audit.md)") == "[a](../audit.md)"
    assert written("[change](../../CHANGELOG.md)") == "[change](/changelog.md)"
    assert written("[folder](../../benchmarks)") == "folder"
    assert written("[form](../../.github/ISSUE_TEMPLATE/bug.yml)") == "form"
    assert written("[data](../../case_studies/lego/results/claims.json)").startswith("[data](")


def test_docstrings_become_rest():
    assert to_rest(["Two `Batch`es, |x|."]) == ["Two `Batch`\\ es, \\|x|."]
    assert to_rest(["Like this:", "", "    a = 1"]) == ["Like this:", "", "::", "", "    a = 1"]


def test_faults_of_built_pages(tmp_path):
    (tmp_path / "_static").mkdir()
    (tmp_path / "_static/theme.html").write_text('<a href="nowhere.html">x</a>')
    (tmp_path / "b.html").write_text('<h1 id="top">b</h1>')
    (tmp_path / "a.html").write_text(
        dedent("""
        <link href="https://cdn.example/x.css"><img src="gone.png"><a href="https://example.org">fine</a>
        <a href="b.html#top">fine</a><a href="b.html#end">no</a><a href="c.html">no</a><a href="#here">no</a>
        """)
    )
    assert set(faults(tmp_path)) == {
        "a.html loads https://cdn.example/x.css",
        "a.html links to gone.png, which does not exist",
        "a.html links to b.html#end, whose anchor does not exist",
        "a.html links to c.html, which does not exist",
        "a.html links to #here, whose anchor does not exist",
    }
