"""Every snippet in the docs runs, and every path they name exists."""

import dataclasses
import os
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from check_sources import ROOT, doc_pages

import interp
from hooks import Transformer
from hooks.model.blocks import BLOCKS
from interp.heads import kinds
from interp.tasks import Batch, Lego, Task, registry

GUIDES = sorted((ROOT / "docs/guides").glob("*.md"))
SNIPPET = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
SLOW = {
    "README.md", "add_a_task.md", "index.md",  # train models until these are right
    "algorithms.md", "development.md", "sweeps.md",
}  # fmt: skip


def snippets(page: Path) -> str:
    return "\n".join(SNIPPET.findall(page.read_text()))


def pages_with_snippets():
    return [
        pytest.param(page, id=page.name, marks=[pytest.mark.slow] if page.name in SLOW else [])
        for page in doc_pages()
        if snippets(page)
    ]


@pytest.mark.parametrize("page", pages_with_snippets())
def test_every_snippet_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("interp.heads.kinds._KINDS", dict(kinds._KINDS))  # what a snippet registers ends with it
    monkeypatch.setattr("hooks.model.blocks.BLOCKS", dict(BLOCKS))
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


def test_every_guide_runs():
    assert len(GUIDES) >= 6
    assert {guide.name for guide in GUIDES} <= {page.values[0].name for page in pages_with_snippets()}


def test_the_contract_names_everything_public_of_a_task():
    text = (ROOT / "docs/tasks.md").read_text()
    code = " ".join(re.findall(r"`([^`]+)`", text))
    assert [name for name in vars(Task) if not name.startswith("_") and not re.search(rf"\b{name}\b", code)] == []
    fields = [field.name for field in dataclasses.fields(Batch)]
    assert [name for name in fields if f"| `{name}` |" not in text] == []


@pytest.mark.long
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


def test_the_examples_of_tasks_are_those_of_the_tasks():
    text = (ROOT / "docs/tasks.md").read_text()
    rows = re.findall(r"^\| \[`(\w+\(.*?\))`\]\(.*?\) \| `(.*?)` \|", text, re.MULTILINE)
    assert len(rows) == 6
    for call, example in rows:
        name, _, n_vars = call.removesuffix(")").partition("(")
        task = getattr(interp.tasks, name)(**({"n_vars": int(n_vars.removeprefix("n_vars="))} if n_vars else {}))
        batch = task.sample(1, generator=torch.Generator().manual_seed(0), split="test")
        assert task.text(batch.tokens[0]) == example
