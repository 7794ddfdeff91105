"""Programs that compare: ranks, sorting, maxima, first and last occurrences."""

from typing import Any

from interp.known_answers.compiled.programs.expressions import (
    change,
    combine,
    count,
    equal,
    is_true,
    move,
    previous,
    same_token_earlier,
    token_and_position,
)
from interp.known_answers.compiled.programs.program import DIGITS, LETTERS, RaspProgram, Word

BASE = 8
"""More than the number of positions: a digit times this, plus a position, orders by both."""


def smaller(key: int, query: int) -> bool:
    """Keys that are smaller than the query."""
    return key < query


def larger(key: int, query: int) -> bool:
    """Keys that are larger than the query."""
    return key > query


def is_zero(key: int, query: int) -> bool:
    """Keys that are 0."""
    return key == 0


def write_rank(rasp: Any) -> Any:
    """Number of smaller tokens, and of equal ones before it."""
    ordered = combine(rasp, lambda token, position: token * BASE + position, rasp.tokens, rasp.indices, "order")
    return count(rasp, ordered, ordered, smaller, "rank")


def write_sorted(rasp: Any, rank: Any) -> Any:
    """The token of which the rank is the position."""
    return move(rasp, rank, rasp.indices, equal, rasp.tokens, "sorted")


def write_maximum(rasp: Any) -> Any:
    """The largest token."""
    number = count(rasp, rasp.tokens, rasp.tokens, larger, "larger tokens")
    is_largest = change(rasp, lambda number: number == 0, number, "largest")
    return move(rasp, is_largest, rasp.tokens, is_true, rasp.tokens, "maximum")


def write_place_of_minimum(rasp: Any) -> Any:
    """Position of the first smallest token."""
    return move(rasp, write_rank(rasp), rasp.tokens, is_zero, rasp.indices, "place of the minimum")


def write_rising(rasp: Any) -> Any:
    """Whether no token is smaller than that before it."""
    before = previous(rasp, rasp.tokens, "previous token")
    falls = combine(rasp, lambda first, second: first > second, before, rasp.tokens, "falls")
    number = count(rasp, falls, rasp.tokens, is_true, "number of falls")
    return change(rasp, lambda number: number == 0, number, "rising")


def write_first_occurrence(rasp: Any) -> Any:
    """Whether no equal token is before it."""
    pair = token_and_position(rasp)
    number = count(rasp, pair, pair, same_token_earlier, "equal earlier")
    return change(rasp, lambda number: number == 0, number, "first occurrence")


def state_first_occurrence(word: Word) -> list[bool]:
    """Whether each token is not among those before it."""
    return [token not in word[:position] for position, token in enumerate(word)]


def state_rank(word: Word) -> list[int]:
    """The position of each token when the word is sorted."""
    return [sorted(range(len(word)), key=lambda index: word[index]).index(position) for position in range(len(word))]


ORDERS = (
    RaspProgram(
        name="rank", description="The position of the token when the word is sorted.", tokens=DIGITS,
        lengths=(1, 2, 3, 4, 5), write=write_rank, statement=state_rank,
    ),
    RaspProgram(
        name="sort", description="The word sorted.", tokens=DIGITS, lengths=(1, 2, 3, 4, 5),
        write=lambda rasp: write_sorted(rasp, write_rank(rasp)), statement=lambda word: sorted(word),
    ),
    RaspProgram(
        name="maximum", description="The largest token.", tokens=DIGITS, lengths=(1, 2, 3, 4, 5),
        write=write_maximum, statement=lambda word: [max(word)] * len(word),
    ),
    RaspProgram(
        name="place of the minimum", description="The position of the first smallest token.", tokens=DIGITS,
        lengths=(1, 2, 3, 4, 5),
        write=write_place_of_minimum, statement=lambda word: [word.index(min(word))] * len(word),
    ),
    RaspProgram(
        name="rising", description="Whether no token is smaller than that before it.", tokens=DIGITS,
        lengths=(1, 2, 3, 4, 5),
        write=write_rising, statement=lambda word: [list(word) == sorted(word)] * len(word),
    ),
    RaspProgram(
        name="first occurrence", description="Whether no equal token is before it.", tokens=LETTERS,
        lengths=(1, 2, 3, 4, 5), write=write_first_occurrence, statement=state_first_occurrence,
    ),
)  # fmt: skip
