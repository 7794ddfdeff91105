"""Programs that check: patterns, runs, palindromes, brackets."""

import itertools
from typing import Any

from interp.known_answers.compiled.programs.expressions import (
    change,
    combine,
    count,
    is_true,
    previous,
)
from interp.known_answers.compiled.programs.moves import write_reversal
from interp.known_answers.compiled.programs.program import FEW_LETTERS, LETTERS, RaspProgram, Word

BRACKETS = ("(", ")", "a", "b", "c")
"""Brackets among letters."""


def is_open(key: str, query: str) -> bool:
    """Keys that open."""
    return key == "("


def is_closed(key: str, query: str) -> bool:
    """Keys that close."""
    return key == ")"


def ends_in_a(key: str, query: str) -> bool:
    """Of bigrams: an a after the query's token."""
    return key == f"{query}a"


def write_a_then_b(rasp: Any) -> Any:
    """Whether a b follows an a."""
    before = previous(rasp, rasp.tokens, "previous token")
    return combine(rasp, lambda first, second: first == "a" and second == "b", before, rasp.tokens, "a then b")


def write_sandwich(rasp: Any) -> Any:
    """Whether the token is that two positions earlier, with another between."""
    before, two_before = previous(rasp, rasp.tokens, "previous"), previous(rasp, rasp.tokens, "two earlier", 2)
    returns = combine(rasp, lambda first, second: first == second, two_before, rasp.tokens, "returns")
    changes = combine(rasp, lambda first, second: first != second, before, rasp.tokens, "changes")
    return combine(rasp, lambda first, second: first and second, returns, changes, "sandwich")


def state_sandwich(word: Word) -> list[bool | None]:
    """Whether each token is that two earlier and not the one before; None for the first two."""
    later = [word[position - 2] == word[position] != word[position - 1] for position in range(2, len(word))]
    return [None, None, *later][: len(word)]


def write_changes(rasp: Any) -> Any:
    """Whether the token is another than that before it."""
    before = previous(rasp, rasp.tokens, "previous token")
    return combine(rasp, lambda first, second: first != second, before, rasp.tokens, "changes")


def write_runs(rasp: Any) -> Any:
    """Number of runs of equal tokens so far, by a causal program."""
    number = count(rasp, write_changes(rasp), rasp.tokens, is_true, "number of changes")
    return change(rasp, lambda number: number + 1, number, "runs")


def n_changes(word: Word) -> int:
    """Number of tokens that are another than that before it."""
    return sum(first != second for first, second in itertools.pairwise(word))


def write_alternates(rasp: Any) -> Any:
    """Whether no token is that before it."""
    before = previous(rasp, rasp.tokens, "previous token")
    stays = combine(rasp, lambda first, second: first == second, before, rasp.tokens, "stays")
    number = count(rasp, stays, rasp.tokens, is_true, "number of equal neighbours")
    return change(rasp, lambda number: number == 0, number, "alternates")


def write_palindrome(rasp: Any) -> Any:
    """Whether the word is the same from its end."""
    differs = combine(rasp, lambda first, second: first != second, write_reversal(rasp), rasp.tokens, "differs")
    number = count(rasp, differs, rasp.tokens, is_true, "number of differences")
    return change(rasp, lambda number: number == 0, number, "palindrome")


def write_depth(rasp: Any) -> Any:
    """Brackets that are open, by a causal program; below 0 if more are closed than opened."""
    opened = count(rasp, rasp.tokens, rasp.tokens, is_open, "opened so far")
    closed = count(rasp, rasp.tokens, rasp.tokens, is_closed, "closed so far")
    return combine(rasp, lambda first, second: first - second, opened, closed, "depth")


def depths(word: Word) -> list[int]:
    """Opened minus closed brackets after each token."""
    prefixes = [word[: position + 1] for position in range(len(word))]
    return [prefix.count("(") - prefix.count(")") for prefix in prefixes]


def write_failure(rasp: Any) -> Any:
    """Whether more brackets were closed than opened at some position so far, by a causal program."""
    below = change(rasp, lambda depth: depth < 0, write_depth(rasp), "below")
    number = count(rasp, below, rasp.tokens, is_true, "number below")
    return change(rasp, lambda number: number > 0, number, "failed")


def write_followed_by_a(rasp: Any) -> Any:
    """How often an a has followed this token so far, by a causal program with a key of two tokens."""
    before = previous(rasp, rasp.tokens, "previous token")
    bigram = combine(rasp, lambda first, second: f"{first}{second}", before, rasp.tokens, "bigram")
    return count(rasp, bigram, rasp.tokens, ends_in_a, "followed by a")


def state_followed_by_a(word: Word) -> list[int]:
    """How often each token has been followed by an a so far."""
    bigrams = [first + second for first, second in itertools.pairwise(word)]
    return [bigrams[:position].count(f"{token}a") for position, token in enumerate(word)]


CHECKS = (
    RaspProgram(
        name="a then b", description="Whether the token is a b after an a.", tokens=LETTERS,
        write=write_a_then_b,
        statement=lambda word: [None, *(pair == ("a", "b") for pair in itertools.pairwise(word))],
    ),
    RaspProgram(
        name="sandwich", description="Whether the token is that two earlier and not the one before.",
        tokens=FEW_LETTERS, lengths=(3, 4, 5, 6), write=write_sandwich, statement=state_sandwich,
    ),
    RaspProgram(
        name="runs", description="The number of runs of equal tokens so far.", tokens=FEW_LETTERS, causal=True,
        lengths=(2, 3, 4, 5, 6), write=write_runs,
        statement=lambda word: [n_changes(word[: position + 1]) + 1 for position in range(len(word))],
    ),
    RaspProgram(
        name="alternates", description="Whether no token is that before it.", tokens=FEW_LETTERS,
        lengths=(2, 3, 4, 5, 6), write=write_alternates,
        statement=lambda word: [n_changes(word) == len(word) - 1] * len(word),
    ),
    RaspProgram(
        name="palindrome", description="Whether the word is the same from its end.", tokens=FEW_LETTERS,
        lengths=(2, 3, 4, 5, 6), write=write_palindrome,
        statement=lambda word: [word == word[::-1]] * len(word),
    ),
    RaspProgram(
        name="depth", description="The number of brackets that are open, causal.", tokens=BRACKETS, causal=True,
        lengths=(2, 3, 4, 5, 6), write=write_depth, statement=depths,
    ),
    RaspProgram(
        name="failure", description="Whether more brackets were closed than opened so far.", tokens=BRACKETS,
        causal=True, lengths=(2, 3, 4, 5, 6), write=write_failure,
        statement=lambda word: [min(depths(word)[: position + 1]) < 0 for position in range(len(word))],
    ),
    RaspProgram(
        name="followed by a", description="How often an a has followed this token so far.", tokens=LETTERS,
        causal=True, write=write_followed_by_a, statement=state_followed_by_a,
    ),
)  # fmt: skip
