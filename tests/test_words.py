"""Docs, docstrings, comments and messages avoid these phrases and use the standard terms instead."""

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BANNED = {
    r"\b(?:told|tells?|telling)\b": "predicts, reports, distinguishes",
    r"\bhand(?:s|ed|ing)? on\b": "returns, passes on",
    r"\b(?:go|goes|going|went) on (?:from|where|with|to)\b|\bcomes? of it\b": "resumes from, continues; results",
    r"\b(?:when|where|if|unless) (?:it is |they are )?(?:left out|not given)\b": "default: ..., if None",
    r"\b(?:as|so) many\b": "the number of",
    r"\balike\b": "the same, similar",
    r"\bwritten down\b": "hand-written, hard-coded, constructed",
    r"\b(?:take|takes|taken|taking|took) (?:it |them |a head |heads |each )?out\b": "ablate, remove",
    r"\b(?:leave|leaving|left) (?:\w+ )?away\b": "prune",
    r"\bask(?:s|ed|ing)?\b": "scored, queried, required",
    r"\b(?:stand|stands|standing|stood|lie|lies|lying|lay|lain)\b": "is, is stored; denotes, represents",
    r"\bby (?:itself|themselves)\b|\bof (?:its|their|our|your) own\b": "separately, its own",
    r"\bbeside\b": "next to, besides, as a control",
    r"\b(?:nobody|somebody|anybody|whoever)\b": "no hook, a hook, the caller",
    r"\bout of reach\b": "inconclusive, not measured",
    r"\b(?:does not|do not|did not) hold\b|\b(?:rule|claim|promise)s? holds?\b": "passes, fails",
    r"\bby trying\b|\bfound out\b": "tested at load time",
    r"\bsays so\b": "raises ValueError naming ...",
    r"\bhow (?:near|far apart)\b": "distance from, distance between",
    r"\b(?:the|at the|public) (?:door|house)\b|\bdoors\b": "the public function, the package",
}
DATA = ("copy, hidden beside a decoy",)
"""Strings that determine random draws, and so cannot be reworded."""
PATTERN = re.compile("|".join(BANNED).replace(" ", r"\s+"), re.IGNORECASE)
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
SOURCES = [
    path
    for folder in ("hooks", "interp", "case_studies", "benchmarks", "examples", "tests", "docs")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if path != Path(__file__).resolve()
]
TEMPLATES = sorted((ROOT / "interp").rglob("*.jinja"))


def banned(text):
    """The phrases in a text, each with the line it begins on."""
    return [(text[: found.start()].count("\n") + 1, " ".join(found[0].split())) for found in PATTERN.finditer(text)]


def texts(source):
    """(line, text) of every docstring, comment and string of several words."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value.split()) > 1:
            if node.value.endswith(DATA):
                continue
            yield node.lineno, node.value
    comments: list[list] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if comments and comments[-1][2] == token.start[0] - 1:  # a comment of several lines is one text
                comments[-1][1] += f"\n{token.string.lstrip('# ')}"
                comments[-1][2] += 1
            else:
                comments.append([token.start[0], token.string, token.start[0]])
    yield from ((line, text) for line, text, _ in comments)


@pytest.mark.parametrize("path", [*PAGES, *TEMPLATES], ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_page_has_none_of_them(path):
    assert banned(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_source_has_none_of_them(path):
    found = [
        (line + at - 1, words) for line, text in texts(path.read_text(encoding="utf-8")) for at, words in banned(text)
    ]
    assert sorted(set(found)) == []


SAMPLE = '''
"""What is
asked."""
x = 1  # nobody reads

# as it
# lies there
raise ValueError(f"{x} stands here")
'''


def test_they_are_found():
    found = sorted((line + at - 1, words) for line, text in texts(SAMPLE) for at, words in banned(text))
    assert found == [(3, "asked"), (4, "nobody"), (7, "lies"), (8, "stands")]
    assert banned("the task asks; it goes on\nfrom here") == [(1, "asks"), (1, "goes on from")]
    assert banned("a task, understanding, replies, withstands, told_you") == []
