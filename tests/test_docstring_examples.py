"""Every example in a docstring runs and prints what it says; every public verb has one."""

import doctest
import importlib
import inspect
from pathlib import Path

import pytest

import interp

ROOT = Path(__file__).parent.parent
FILES = sorted(
    path.relative_to(ROOT)
    for package in ("hooks", "interp", "case_studies")
    for path in (ROOT / package).rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("path", FILES, ids=str)
def test_examples_run(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(".".join(path.with_suffix("").parts).removesuffix(".__init__"))
    failures, examples = doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert examples > 0
    assert failures == 0


def test_every_public_function_has_an_example():
    functions = [name for name in interp.__all__ if inspect.isfunction(getattr(interp, name))]
    assert [name for name in functions if ">>> " not in (inspect.getdoc(getattr(interp, name)) or "")] == []
