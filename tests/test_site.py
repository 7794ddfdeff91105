"""The documentation site: error messages are real, the tutorial is short, and the build finds its faults."""

import importlib
import json
import re
import sys
from pathlib import Path
from textwrap import dedent

import pytest

import interp
from hooks import Transformer
from hooks.model.blocks import BLOCKS
from interp.heads import kinds
from interp.probing import ProbeResult
from interp.tasks import registry

DOCS = Path(__file__).parent.parent / "docs"
sys.path.append(str(DOCS / "_ext"))

import warm_start  # noqa: E402
from accessible import with_names  # noqa: E402
from api_pages import PACKAGES, entries_by_group, page, public_names, short_signature, table_of_pages  # noqa: E402
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
    by_group = entries_by_group()
    described = [id(entry.value) for entries in by_group.values() for entry in entries]
    assert len(described) == len(set(described))
    for package in map(importlib.import_module, PACKAGES):
        assert {id(value) for value in public_names(package).values()} <= set(described)
    assert all(by_group.values())
    table = table_of_pages(by_group)
    for group, entries in by_group.items():
        text = page(group, entries)
        assert f"]({group.file}.rst)" in table
        for entry in entries:
            assert len(re.findall(rf"^\.\. auto(?:function|class):: {entry.name}$", text, re.MULTILINE)) == 1


def test_a_page_of_the_reference_starts_with_what_a_user_calls():
    by_file = {group.file: [entry.name for entry in entries] for group, entries in entries_by_group().items()}
    assert by_file["audit"][0] == "audit"
    assert by_file["probing"][:2] == ["probe", "ProbeResult"]
    assert by_file["training"][:2] == ["train", "TrainSettings"]


def test_signatures_of_dataclasses_leave_out_what_is_described_below():
    assert short_signature(ProbeResult) == ""  # nobody makes one
    assert short_signature(interp.TrainSettings).startswith("(*, steps, ")
    assert short_signature(interp.tasks.Lego).startswith("(*, n_vars, group, ")
    assert short_signature(interp.probe) is None
    assert short_signature(Transformer) is None


def test_work_runs_in_forks_of_one_process(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_PATH", "")
    process = warm_start.start(tmp_path, imports=())
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    try:
        assert warm_start.run("os:getcwd") == 0
        assert warm_start.run("json.tool:main", "../kernels/python3/kernel.json", "copy.json") == 0
        assert (tmp_path / "work/copy.json").exists()
        assert warm_start.run("json.tool:main", "--no-such-option") == 2
        assert warm_start.run("os:abort") == 1
        kernel = json.loads((tmp_path / "kernels/python3/kernel.json").read_text())
        assert kernel["argv"][-3:] == ["-f", "{connection_file}", "--log-level=ERROR"]
    finally:
        process.terminate()
        process.wait()


def test_links_out_of_docs():
    def written(text):
        return rewrite(text, DOCS / "guides/a.md", DOCS)

    assert written("[a](../audit.md)") == "[a](../audit.md)"
    assert written("[change](../../CHANGELOG.md)") == "[change](/changelog.md)"
    assert written("[folder](../../benchmarks)") == "folder"
    assert written("[form](../../.github/ISSUE_TEMPLATE/bug.yml)") == "form"
    assert written("[data](../../case_studies/lego/results/claims.json)").startswith("[data](")


def test_html_for_screen_readers():
    signature = '<dt>f(<dl>\n<dd><em class="sig-param">a,</em></dd>\n</dl>\n)</dt>'
    lines = '<span class="sig-lines"><span class="sig-line"><em class="sig-param">a,</em></span>\n</span>'
    assert with_names(signature) == f"<dt>f({lines}\n)</dt>"
    narrow, wide = (f'<table class="t"><thead><tr>{"<th>a</th>" * n}</tr></thead></table>' for n in (2, 3))
    assert with_names(narrow) == narrow
    assert with_names(wide) == wide.replace("<table ", '<table tabindex="0" ')
    assert with_names('<tr><th class="head"><p></p></th><th></th>') == "<tr><td></td><td></td>"
    assert with_names("<dl>\n<dt>a</dt><dd>b</dd></dl>") == "<dl>\n<dt>a</dt><dd>b</dd></dl>"


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
