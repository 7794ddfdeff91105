"""Programs that count: lengths, histograms, majorities, duplicates, parities."""

from typing import Any

from interp.known_answers.compiled.programs.expressions import (
    change,
    combine,
    count,
    equal,
    is_true,
    length,
    same_token_earlier,
    token_and_position,
)
from interp.known_answers.compiled.programs.program import DIGITS, FEW_LETTERS, LETTERS, RaspProgram, Word


def everywhere(value: Any, word: Word) -> list[Any]:
    """The same answer at every position."""
    return [value] * len(word)


def is_a(key: str, query: str) -> bool:
    """Keys that are an a."""
    return key == "a"


def is_b(key: str, query: str) -> bool:
    """Keys that are a b."""
    return key == "b"


def different(key: Any, query: Any) -> bool:
    """Keys with another value than the query's."""
    return key != query


def larger(key: int, query: int) -> bool:
    """Keys that are larger than the query."""
    return key > query


def at_least(key: int, query: int) -> bool:
    """Keys that are not smaller than the query."""
    return key >= query


def count_tokens(rasp: Any, predicate: Any, name: str) -> Any:
    """Number of tokens that a predicate selects."""
    return count(rasp, rasp.tokens, rasp.tokens, predicate, name)


def write_parity(rasp: Any) -> Any:
    """Whether the number of a's is odd."""
    return change(rasp, lambda number: number % 2, count_tokens(rasp, is_a, "number of a"), "parity")


def write_repeated(rasp: Any) -> Any:
    """Whether the token occurs elsewhere too."""
    return change(rasp, lambda number: number > 1, count_tokens(rasp, equal, "histogram"), "repeated")


def write_all_different(rasp: Any) -> Any:
    """Whether no token occurs twice."""
    number = count(rasp, write_repeated(rasp), rasp.tokens, is_true, "number repeated")
    return change(rasp, lambda repeated: repeated == 0, number, "all different")


def write_all_equal(rasp: Any) -> Any:
    """Whether all tokens are the same."""
    return change(rasp, lambda number: number == 0, count_tokens(rasp, different, "others"), "all equal")


def write_majority(rasp: Any) -> Any:
    """Whether the token is more than half of the word."""
    histogram = count_tokens(rasp, equal, "histogram")
    return combine(rasp, lambda number, total: 2 * number > total, histogram, length(rasp), "majority")


def state_majority(word: Word) -> list[bool]:
    """Whether each token is more than half of the word."""
    return [2 * word.count(token) > len(word) for token in word]


def compare(first: int, second: int) -> str:
    """Which of two numbers is larger."""
    return "first" if first > second else "second" if first < second else "equal"


def write_comparison(rasp: Any) -> Any:
    """Whether there are more a's or more b's."""
    a, b = count_tokens(rasp, is_a, "number of a"), count_tokens(rasp, is_b, "number of b")
    return combine(rasp, compare, a, b, "comparison")


def write_distinct(rasp: Any) -> Any:
    """Number of different tokens: of those without an equal one before them."""
    pair = token_and_position(rasp)
    earlier = count(rasp, pair, pair, same_token_earlier, "equal earlier")
    is_first = change(rasp, lambda number: number == 0, earlier, "first occurrence")
    return count(rasp, is_first, rasp.tokens, is_true, "different tokens")


def write_distinct_so_far(rasp: Any) -> Any:
    """Number of different tokens so far, by a causal program."""
    is_first = change(rasp, lambda number: number == 1, count_tokens(rasp, equal, "equal so far"), "first occurrence")
    return count(rasp, is_first, rasp.tokens, is_true, "different so far")


def write_record(rasp: Any) -> Any:
    """Whether the token is larger than all before it, by a causal program."""
    number = count_tokens(rasp, at_least, "at least as large so far")
    return change(rasp, lambda number: number == 1, number, "record")


def state_record(word: Word) -> list[bool]:
    """Whether each token is larger than all before it."""
    return [all(token > earlier for earlier in word[:position]) for position, token in enumerate(word)]


COUNTS = (
    RaspProgram(
        name="length", description="The number of tokens.", tokens=LETTERS,
        write=length, statement=lambda word: everywhere(len(word), word),
    ),
    RaspProgram(
        name="histogram", description="How often the token occurs.", tokens=LETTERS,
        write=lambda rasp: count_tokens(rasp, equal, "histogram"),
        statement=lambda word: [word.count(token) for token in word],
    ),
    RaspProgram(
        name="parity", description="Whether the number of a's is odd.", tokens=LETTERS,
        write=write_parity, statement=lambda word: everywhere(word.count("a") % 2, word),
    ),
    RaspProgram(
        name="all different", description="Whether no token occurs twice.", tokens=DIGITS, lengths=(2, 3, 4, 5),
        write=write_all_different, statement=lambda word: everywhere(len(set(word)) == len(word), word),
    ),
    RaspProgram(
        name="all equal", description="Whether all tokens are the same.", tokens=FEW_LETTERS, lengths=(2, 3, 4),
        write=write_all_equal, statement=lambda word: everywhere(len(set(word)) == 1, word),
    ),
    RaspProgram(
        name="majority", description="Whether the token is more than half of the word.", tokens=FEW_LETTERS,
        write=write_majority, statement=state_majority,
    ),
    RaspProgram(
        name="majority of six", description="Whether the token is more than half of six.", tokens=FEW_LETTERS,
        lengths=(6,), write=write_majority, statement=state_majority,
    ),
    RaspProgram(
        name="comparison", description="Whether there are more a's than b's, fewer, or as many.", tokens=LETTERS,
        write=write_comparison,
        statement=lambda word: everywhere(compare(word.count("a"), word.count("b")), word),
    ),
    RaspProgram(
        name="distinct", description="The number of different tokens.", tokens=LETTERS, lengths=(1, 2, 3, 4, 5),
        write=write_distinct, statement=lambda word: everywhere(len(set(word)), word),
    ),
    RaspProgram(
        name="distinct so far", description="The number of different tokens so far.", tokens=LETTERS, causal=True,
        write=write_distinct_so_far,
        statement=lambda word: [len(set(word[: position + 1])) for position in range(len(word))],
    ),
    RaspProgram(
        name="occurrence", description="How often the token has occurred so far.", tokens=LETTERS, causal=True,
        write=lambda rasp: count_tokens(rasp, equal, "equal so far"),
        statement=lambda word: [word[: position + 1].count(token) for position, token in enumerate(word)],
    ),
    RaspProgram(
        name="larger", description="The number of larger tokens.", tokens=DIGITS, lengths=(1, 2, 3, 4, 5),
        write=lambda rasp: count_tokens(rasp, larger, "larger tokens"),
        statement=lambda word: [sum(token > query for token in word) for query in word],
    ),
    RaspProgram(
        name="record", description="Whether the token is larger than all before it.", tokens=DIGITS, causal=True,
        lengths=(1, 2, 3, 4, 5),
        write=write_record, statement=state_record,
    ),
)  # fmt: skip
