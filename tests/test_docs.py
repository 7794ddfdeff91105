"""Every snippet in the docs runs, and every path they name exists."""

import dataclasses
import os
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from test_imports import ORDER

import interp
from hooks import Transformer
from hooks.model.blocks import BLOCKS
from interp.core.verbs import USES
from interp.heads import kinds
from interp.tasks import Batch, Lego, Task, registry

ROOT = Path(__file__).parent.parent
GUIDES = sorted((ROOT / "docs/guides").glob("*.md"))
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *GUIDES,
    *sorted((ROOT / "docs/howto").glob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
SNIPPET = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
PATH = re.compile(r"`((?:hooks|interp|tests|docs|benchmarks|case_studies|examples)/[\w/.-]*)`|\]\(([\w/.-]+)\)")
SLOW = {"README.md", "add_a_task.md", "index.md"}  # they train models until these are right


def snippets(page: Path) -> str:
    return "\n".join(SNIPPET.findall(page.read_text()))


def pages_with_snippets():
    return [
        pytest.param(page, id=page.name, marks=[pytest.mark.slow] if page.name in SLOW else [])
        for page in PAGES
        if snippets(page)
    ]


@pytest.mark.parametrize("page", pages_with_snippets())
def test_every_snippet_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("interp.heads.kinds._KINDS", dict(kinds._KINDS))  # what a snippet registers ends with it
    monkeypatch.setattr("hooks.model.blocks.BLOCKS", dict(BLOCKS))
    monkeypatch.setattr("interp.core.verbs.USES", dict(USES))
    monkeypatch.setattr("interp.tasks.registry._REGISTERED", dict(registry._REGISTERED))
    if "runs/demo" in snippets(page):
        task = Lego(n_vars=2, sentence_format="compact")
        model = Transformer(interp.config_for(task, n_layers=1, d_model=16))
        interp.train(model, task, interp.TrainSettings(steps=2, n_eval=20), folder="runs/demo/model")
    before = set(os.listdir(tmp_path))
    module = ModuleType(page.stem)
    monkeypatch.setitem(sys.modules, page.stem, module)  # so that classes of a snippet are found by their module
    exec(compile(snippets(page), page.name, "exec"), module.__dict__)
    if page.name == "README.md":
        assert (tmp_path / "runs/mine/report.html").stat().st_size > 100_000
    elif page.parent == ROOT / "docs":
        assert set(os.listdir(tmp_path)) == before  # reading a run leaves nothing behind


def test_every_guide_runs_and_is_linked():
    assert len(GUIDES) >= 6
    assert {guide.name for guide in GUIDES} <= {page.values[0].name for page in pages_with_snippets()}
    for page in ("README.md", "CONTRIBUTING.md"):
        assert [guide.name for guide in GUIDES if f"docs/guides/{guide.name})" not in (ROOT / page).read_text()] == []


def test_modular_addition_takes_25_lines_from_import_to_an_audited_page():
    first = SNIPPET.findall((ROOT / "docs/guides/add_a_task.md").read_text())[0]
    lines = [line for line in first.splitlines() if line.strip()]
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 120
    assert lines[0].startswith("from dataclasses import")
    assert "interp.audit(" in lines[-1]
    assert lines[-1].startswith("interp.report_run(")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_exists(page):
    found = [a or b for a, b in PATH.findall(page.read_text())]
    missing = [path for path in found if not (ROOT / path).exists() and not (page.parent / path).exists()]
    assert not missing


def test_architecture_names_every_package():
    text = (ROOT / "docs/architecture.md").read_text()
    packages = [path.parent for folder in ("hooks", "interp") for path in (ROOT / folder).glob("*/__init__.py")]
    assert [path.name for path in packages if f"`{path.relative_to(ROOT).as_posix()}`" not in text] == []


def test_architecture_has_the_rows_that_imports_are_tested_for():
    rows = re.findall(r"^\| (\d) \| `interp/(\w+)`", (ROOT / "docs/architecture.md").read_text(), re.MULTILINE)
    found = [{name for number, name in rows if int(number) == index + 1} for index in range(len(ORDER))]
    assert found == [set(names) for names in ORDER]


def test_the_contract_names_everything_public_of_a_task():
    text = (ROOT / "docs/tasks.md").read_text()
    code = " ".join(re.findall(r"`([^`]+)`", text))
    assert [name for name in vars(Task) if not name.startswith("_") and not re.search(rf"\b{name}\b", code)] == []
    fields = [field.name for field in dataclasses.fields(Batch)]
    assert [name for name in fields if f"| `{name}` |" not in text] == []


def test_products_of_attention_matrices_are_written_one_way():
    """The transposes that the template paper writes are named only where the difference is explained."""
    explained = {"docs/glossary.md", "interp/heads/diagonals.py"}
    folders = ("hooks", "interp", "case_studies", "docs", "examples")
    files = [
        path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".md", ".toml")
    ]
    other = re.compile(r"W_K W_Q\^T|W_V W_O\^T")
    found = {path.relative_to(ROOT).as_posix() for path in files if other.search(path.read_text(encoding="utf-8"))}
    assert found == explained


def test_glossary_words_are_unique():
    words = re.findall(r"^\| ([^|]+) \|", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE)[2:]
    assert len(words) > 20
    assert len(set(words)) == len(words)


@pytest.mark.slow
def test_notebook_runs(tmp_path):
    import jupytext
    from nbclient import NotebookClient

    notebook = jupytext.read(ROOT / "docs/notebooks/lego.py")
    NotebookClient(notebook, timeout=None, resources={"metadata": {"path": str(tmp_path)}}).execute()
    printed = "".join(
        output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", ()) if "text" in output
    )
    assert "verified: " in printed
    last = [float(value) for value in re.findall(r"accuracy on 4000 test.*\n(?:.*\n)*?.*#2  (\d\.\d+)", printed)]
    assert last
    assert last[0] > 0.9
