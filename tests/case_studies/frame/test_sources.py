"""Digests of source: what a measure can read of the frame, and when a measure counts as changed."""

import ast
import functools
import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import FunctionType

import pytest

import case_studies.frame
from case_studies.frame import sources
from case_studies.frame.sources import FRAME, NOT_READ, measure_digest, source_digest

FOLDER = Path(case_studies.frame.__file__).parent


def test_files_that_measures_read_import_no_other_file_of_the_frame():
    read = [path for path in FOLDER.glob("*.py") if path.stem not in NOT_READ]
    assert {"evidence", "measurement", "packs"} <= {path.stem for path in read}
    imported = {
        node.module
        for path in read
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module
    }
    statements = {"claims", "rules"}  # claims that several studies make, without their measures
    assert not {f"{FRAME}.{name}" for name in NOT_READ - statements} & imported


def test_the_digest_of_the_frame_covers_them_and_not_the_page(monkeypatch):
    seen = []
    monkeypatch.setattr(sources, "_digest_of", lambda files: seen.extend(Path(name).stem for name, _, _ in files))
    source_digest(FRAME)
    assert {"evidence", "measurement", "packs"} <= set(seen)
    assert not {"page", "rules", "study"} & set(seen)
    assert set(seen) | NOT_READ == {path.stem for path in FOLDER.glob("*.py")} | NOT_READ


SHARED = """
LIMIT = 3
UNUSED = 4
class Part:
    size = 1
"""
MEASURES = """
import functools
from some_study.shared import LIMIT, Part
from some_study import shared as others
FACTOR = 2

def kept(function):
    @functools.wraps(function)
    def inner(*given):
        return function(*given)
    return inner

@kept
def helper():
    return FACTOR * LIMIT

def measure(evidence):
    \"\"\"What it does.\"\"\"
    return helper(), others.Part.size  # a comment

def made(x):
    return lambda evidence: (x, FACTOR)
"""


@pytest.fixture
def digest(tmp_path, monkeypatch):
    """Write a study of two files with one text replaced; returns the digest of its measure."""
    folder = tmp_path / "some_study"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def of(before="", after="", make=lambda module: module.measure):
        (folder / "shared.py").write_text(SHARED.replace(before, after) if before else SHARED)
        (folder / "measures.py").write_text(MEASURES.replace(before, after) if before else MEASURES)
        for name in [name for name in sys.modules if name.startswith("some_study")]:
            del sys.modules[name]
        importlib.invalidate_caches()
        sources._definitions.cache_clear()
        return measure_digest(make(importlib.import_module("some_study.measures")))

    return of


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("LIMIT = 3", "LIMIT = 5"),  # a value of another file
        ("FACTOR = 2", "FACTOR = 2.02"),
        ("FACTOR * LIMIT", "FACTOR + LIMIT"),  # in a function that it calls
        ("size = 1", "size = 2"),  # read through a module
        ("helper(), others", "1.01 * helper(), others"),
        ("return function(*given)", "return 0"),  # in the decorator
    ],
)
def test_what_a_measure_uses_changes_it(digest, before, after):
    assert digest() == digest()
    assert digest(before, after) != digest()


@pytest.mark.parametrize(
    ("before", "after"),
    [("UNUSED = 4", "UNUSED = 5"), ("What it does.", "Another text."), ("  # a comment", "  # new")],
)
def test_what_it_does_not_use_changes_nothing(digest, before, after):
    if before == "  # a comment":
        before, after = "FACTOR = 2\n", "FACTOR = 2\n# a comment\n\n"
    assert digest(before, after) == digest()


def test_measures_made_by_a_function_differ_by_what_they_hold(digest):
    makers = [
        lambda module: module.made(1),
        lambda module: module.made(2),
        lambda module: module.made(module.measure),
        lambda module: functools.partial(module.measure, 1),
        lambda module: functools.partial(module.measure, 2),
        lambda module: module.measure,
    ]
    found = [digest(make=make) for make in makers]
    assert len(set(found)) == len(found)
    assert digest("FACTOR = 2", "FACTOR = 3", make=makers[0]) != found[0]
    assert digest("FACTOR * LIMIT", "FACTOR", make=makers[2]) != found[2]


def test_measures_of_a_notebook_have_a_digest():
    namespace: dict = {"__name__": "__main__"}
    exec("def a(evidence): return 1\ndef b(evidence): return 1.01", namespace)
    assert measure_digest(namespace["a"]) != measure_digest(namespace["b"])


def test_a_measure_that_refers_to_itself_has_a_digest():
    def measure(evidence):
        return measure

    assert measure_digest(measure) == measure_digest(measure)


def test_a_measure_with_a_generated_function_has_a_digest():
    generated = FunctionType(compile("lambda: 1", "<string>", "eval").co_consts[0], {})
    assert generated.__module__ is None

    def measure(evidence, function=generated):
        return function()

    assert measure_digest(measure) == measure_digest(measure)


def test_every_shipped_study_has_distinct_measures():
    from case_studies.audit.study import STUDY

    digests = [measure_digest(claim.measure) for claim in STUDY.claims]
    assert len(set(digests)) > len(digests) / 2


COST = """
import contextlib, json, pathlib
from case_studies.frame.cost import with_cost
small = with_cost(lambda: None)[1]
large = with_cost(lambda: (sum(range(10**6)), len(b"x" * 2**28)))
after = with_cost(lambda: None)[1]
del_me = b"x" * 2**28
del del_me
with contextlib.suppress(OSError):
    pathlib.Path("/proc/self/clear_refs").write_text("5")
print(json.dumps([small, *large, after, with_cost.__globals__["_peak_mb"]()]))
"""


def test_the_cost_of_a_call():
    done = subprocess.run([sys.executable, "-c", COST], capture_output=True, text=True, check=True)
    small, result, cost, after, reset = json.loads(done.stdout)  # a fresh process: other tests do not set its peak
    assert result == [sum(range(10**6)), 2**28]
    assert 0 < cost["cpu_seconds"] <= cost["seconds"] + 0.1
    assert cost["peak_mb"] >= small["peak_mb"] + 200
    if reset < cost["peak_mb"] - 200:  # this system resets peaks: that of the call, not of the process
        assert after["peak_mb"] < cost["peak_mb"] - 200
