"""Programs with a number as output: fractions of tokens, and their differences."""

from typing import Any

from interp.known_answers.compiled.programs.expressions import always, combine, count, equal, flag, mean, move
from interp.known_answers.compiled.programs.program import LETTERS, RaspProgram, Word

BRACKETS = ("(", ")", "a", "b", "c")


def earlier_or_here(key: int, query: int) -> bool:
    """Positions up to the query."""
    return key <= query


def first_position(key: int, query: int) -> bool:
    """The first position."""
    return key == 0


def is_token(rasp: Any, token: str, name: str) -> Any:
    """1 where the token is this one."""
    return flag(rasp, lambda value: value == token, rasp.tokens, name)


def fraction_of(rasp: Any, token: str, name: str) -> Any:
    """Fraction of the visible tokens that are this one."""
    return mean(rasp, rasp.tokens, rasp.tokens, always, is_token(rasp, token, f"is {name}"), f"fraction {name}")


def write_fraction_before(rasp: Any) -> Any:
    """Fraction of a's up to the position."""
    return mean(rasp, rasp.indices, rasp.indices, earlier_or_here, is_token(rasp, "a", "is a"), "fraction so far")


def write_difference(rasp: Any, first: str, second: str) -> Any:
    """Fraction of a token minus that of another."""
    fractions = fraction_of(rasp, first, "first"), fraction_of(rasp, second, "second")
    return rasp.numerical(rasp.LinearSequenceMap(*fractions, 1, -1)).named("difference")


def write_like_first(rasp: Any) -> Any:
    """Fraction of tokens that are the first one."""
    first = move(rasp, rasp.indices, rasp.indices, first_position, rasp.tokens, "first token")
    is_like = combine(rasp, lambda token, first_token: token == first_token, rasp.tokens, first, "like the first")
    return mean(rasp, rasp.tokens, rasp.tokens, always, flag(rasp, bool, is_like, "flag"), "fraction like the first")


def write_repeated(rasp: Any) -> Any:
    """Fraction of tokens that occur elsewhere too."""
    histogram = count(rasp, rasp.tokens, rasp.tokens, equal, "histogram")
    repeats = flag(rasp, lambda number: number > 1, histogram, "repeats")
    return mean(rasp, rasp.tokens, rasp.tokens, always, repeats, "fraction repeated")


def write_even_places(rasp: Any) -> Any:
    """Of the tokens like this one, the fraction at even positions."""
    is_even = flag(rasp, lambda position: position % 2 == 0, rasp.indices, "even place")
    return mean(rasp, rasp.tokens, rasp.tokens, equal, is_even, "fraction at even places")


def state_even_places(word: Word) -> list[float]:
    """Of the tokens like each, the fraction at even positions."""
    answers = []
    for token in word:
        positions = [position for position, other_token in enumerate(word) if other_token == token]
        answers.append(sum(position % 2 == 0 for position in positions) / len(positions))
    return answers


def share(word: Word, token: str) -> float:
    """Fraction of a word that is a token."""
    return word.count(token) / len(word)


def prefixes(word: Word) -> list[Word]:
    """The word up to each position."""
    return [word[: position + 1] for position in range(len(word))]


FRACTIONS = (
    RaspProgram(
        name="fraction", description="The fraction of a's.", tokens=LETTERS,
        write=lambda rasp: fraction_of(rasp, "a", "a"), statement=lambda word: [share(word, "a")] * len(word),
    ),
    RaspProgram(
        name="fraction so far", description="The fraction of a's up to the position.", tokens=LETTERS,
        write=write_fraction_before, statement=lambda word: [share(prefix, "a") for prefix in prefixes(word)],
    ),
    RaspProgram(
        name="difference of fractions", description="The fraction of a's minus that of b's.", tokens=LETTERS,
        write=lambda rasp: write_difference(rasp, "a", "b"),
        statement=lambda word: [share(word, "a") - share(word, "b")] * len(word),
    ),
    RaspProgram(
        name="open fraction", description="The fraction of opened minus that of closed brackets so far, causal.",
        tokens=BRACKETS, causal=True,
        write=lambda rasp: write_difference(rasp, "(", ")"),
        statement=lambda word: [share(prefix, "(") - share(prefix, ")") for prefix in prefixes(word)],
    ),
    RaspProgram(
        name="like the first", description="The fraction of tokens that are the first one.", tokens=LETTERS,
        write=write_like_first, statement=lambda word: [share(word, str(word[0]))] * len(word),
    ),
    RaspProgram(
        name="fraction repeated", description="The fraction of tokens that occur elsewhere too.", tokens=LETTERS,
        write=write_repeated,
        statement=lambda word: [sum(word.count(token) > 1 for token in word) / len(word)] * len(word),
    ),
    RaspProgram(
        name="even places", description="Of the tokens like this one, the fraction at even positions.",
        tokens=LETTERS, write=write_even_places, statement=state_even_places,
    ),
)  # fmt: skip
