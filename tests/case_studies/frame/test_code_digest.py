"""Digests of the code of measures: what changes them, and what does not."""

import functools
import importlib
import json
import os
import subprocess
import sys
from types import FunctionType

import pytest

from case_studies.frame.code_digest import code_digest, modules_digest

SHARED = """
LIMIT = 3
UNUSED = 4
class Part:
    size = 1
def Claim(**fields):
    return fields
"""
MEASURES = """
import functools
from some_study.shared import LIMIT, Claim, Part
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

CLAIMS = (Claim(statement=f"It is {FACTOR:.1f} times as large.", measure=measure),)
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
        (folder / "unread.py").write_text("X = 1".replace(before, after) if before else "X = 1")
        (folder / "shared.py").write_text(SHARED.replace(before, after) if before else SHARED)
        (folder / "measures.py").write_text(MEASURES.replace(before, after) if before else MEASURES)
        for name in [name for name in sys.modules if name.startswith("some_study")]:
            del sys.modules[name]
        importlib.invalidate_caches()
        return code_digest(make(importlib.import_module("some_study.measures")))

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
    [
        ("What it does.", "Another text."),
        ("FACTOR = 2\n", "FACTOR = 2  # a comment\n\n"),
        ("return helper(), others.Part.size", "return (\n        helper(),\n        others.Part.size,\n    )"),
        ("times as large", "times as small"),  # a claim's statement
        ("X = 1", "X = 2"),  # a file that it does not import
    ],
)
def test_text_layout_and_other_files_change_nothing(digest, before, after):
    assert digest(before, after) == digest()


def test_the_digest_is_the_same_for_every_version_of_python(digest):
    assert digest() == "18f30859b542bde8"


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
    assert code_digest(namespace["a"]) != code_digest(namespace["b"])


def test_a_measure_that_refers_to_itself_has_a_digest():
    def measure(evidence):
        return measure

    assert code_digest(measure) == code_digest(measure)


def test_a_measure_with_a_generated_function_has_a_digest():
    generated = FunctionType(compile("lambda: 1", "<string>", "eval").co_consts[0], {})
    assert generated.__module__ is None

    def measure(evidence, function=generated):
        return function()

    assert code_digest(measure) == code_digest(measure)


def test_every_shipped_study_has_distinct_measures():
    from case_studies.audit.study import STUDY

    digests = [code_digest(claim.measure) for claim in STUDY.claims]
    assert len(set(digests)) > len(digests) / 2


COST = """
import contextlib, json, pathlib
from case_studies.frame.provenance import with_cost
small = with_cost(lambda: None)[1]
large = with_cost(lambda: (sum(range(10**6)), len(b"x" * 2**28)))
after = with_cost(lambda: None)[1]
del_me = b"x" * 2**28
del del_me
with contextlib.suppress(OSError):
    pathlib.Path("/proc/self/clear_refs").write_text("5")
print(json.dumps([small, *large, after, with_cost.__globals__["_peak_mb"]()]))
"""


@pytest.mark.slow  # a fresh process imports everything
def test_the_cost_of_a_call():
    done = subprocess.run([sys.executable, "-c", COST], capture_output=True, text=True, check=True)
    small, result, cost, after, reset = json.loads(done.stdout)  # a fresh process: other tests do not set its peak
    assert result == [sum(range(10**6)), 2**28]
    assert 0 < cost["cpu_seconds"] <= cost["seconds"] + 0.1
    assert cost["peak_mb"] >= small["peak_mb"] + 200
    if reset < cost["peak_mb"] - 200:  # this system resets peaks: that of the call, not of the process
        assert after["peak_mb"] < cost["peak_mb"] - 200


def test_the_digest_of_modules_is_that_of_their_code(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "some_program.py"
    digests = []
    for second, text in enumerate(["a = 1\n", "a = 1  # comment\n", '"""Text."""\n\na = 1\n', "a = 2\n"], start=1):
        file.write_text(text)
        os.utime(file, (second, second))
        digests.append(modules_digest(["some_program"]))
    assert digests[0] == digests[1] == digests[2] != digests[3]
    (tmp_path / "other_program.py").write_text("a = 2\n")
    assert modules_digest(["some_program", "other_program"]) not in digests
