"""Programs that move values: shifts, reversals, pointers."""

from typing import Any

from interp.known_answers.compiled.programs.expressions import change, combine, count, equal, length, move, previous
from interp.known_answers.compiled.programs.program import DIGITS, LETTERS, RaspProgram, Token, Word


def next_position(key: int, query: int) -> bool:
    """The position after the query."""
    return key == query + 1


def first_position(key: int, query: int) -> bool:
    """The first position."""
    return key == 0


def token_at(rasp: Any, positions: Any, name: str) -> Any:
    """Token at the position that a variable names."""
    return move(rasp, rasp.indices, positions, equal, rasp.tokens, name)


def write_last(rasp: Any) -> Any:
    """The last token."""
    last = change(rasp, lambda number: number - 1, length(rasp), "last position")
    return token_at(rasp, last, "last token")


def write_reversal(rasp: Any) -> Any:
    """The word from its end."""
    opposite = combine(rasp, lambda number, position: number - 1 - position, length(rasp), rasp.indices, "opposite")
    return token_at(rasp, opposite, "reversal")


def write_rotation(rasp: Any) -> Any:
    """The token before, of the first position the last one."""
    # tracr evaluates functions at every pair of values, also at a length of 0
    source = combine(
        rasp, lambda position, number: (position - 1) % max(number, 1), rasp.indices, length(rasp), "source position"
    )
    return token_at(rasp, source, "rotation")


def write_neighbours(rasp: Any) -> Any:
    """Neighbours exchanged."""
    return token_at(rasp, change(rasp, lambda position: position ^ 1, rasp.indices, "neighbour"), "exchanged")


def write_pointer(rasp: Any) -> Any:
    """The token at the position that the token names."""
    return token_at(rasp, rasp.tokens, "pointed at")


def write_second_pointer(rasp: Any) -> Any:
    """The token to which the token that is pointed at points."""
    return token_at(rasp, write_pointer(rasp), "pointed at by that")


def write_ignored_previous(rasp: Any) -> Any:
    """The token, where there is one before it: a head moves that one, but its value is not used."""
    before = previous(rasp, rasp.tokens, "previous token")
    return combine(rasp, lambda token, unused: token, rasp.tokens, before, "token")


def write_ignored_count(rasp: Any) -> Any:
    """The token: a head counts equal ones, but their number is not used."""
    histogram = count(rasp, rasp.tokens, rasp.tokens, equal, "histogram")
    return combine(rasp, lambda token, unused: token, rasp.tokens, histogram, "token")


def follow(word: Word, pointer: Token | None) -> Token | None:
    """The token at a position; None if it is not in the word."""
    return word[pointer] if isinstance(pointer, int) and pointer < len(word) else None


MOVES = (
    RaspProgram(
        name="previous", description="The token before.", tokens=LETTERS,
        write=lambda rasp: previous(rasp, rasp.tokens, "previous token"),
        statement=lambda word: [None, *word[:-1]],
    ),
    RaspProgram(
        name="next", description="The token after.", tokens=LETTERS,
        write=lambda rasp: move(rasp, rasp.indices, rasp.indices, next_position, rasp.tokens, "next token"),
        statement=lambda word: [*word[1:], None],
    ),
    RaspProgram(
        name="first", description="The first token.", tokens=LETTERS,
        write=lambda rasp: move(rasp, rasp.indices, rasp.indices, first_position, rasp.tokens, "first token"),
        statement=lambda word: [word[0]] * len(word),
    ),
    RaspProgram(
        name="last", description="The last token.", tokens=LETTERS,
        write=write_last, statement=lambda word: [word[-1]] * len(word),
    ),
    RaspProgram(
        name="reversal", description="The word from its end.", tokens=LETTERS,
        write=write_reversal, statement=lambda word: word[::-1],
    ),
    RaspProgram(
        name="reversal of six", description="Six tokens from their end.", tokens=LETTERS, lengths=(6,),
        write=write_reversal, statement=lambda word: word[::-1],
    ),
    RaspProgram(
        name="rotation", description="The token before, and first the last one.", tokens=LETTERS,
        write=write_rotation, statement=lambda word: [word[-1], *word[:-1]],
    ),
    RaspProgram(
        name="neighbours", description="The word with neighbours exchanged.", tokens=LETTERS,
        write=write_neighbours, statement=lambda word: [follow(word, position ^ 1) for position in range(len(word))],
    ),
    RaspProgram(
        name="pointer", description="The token at the position that the token names.", tokens=DIGITS,
        lengths=(2, 3, 4, 5, 6),
        write=write_pointer, statement=lambda word: [follow(word, token) for token in word],
    ),
    RaspProgram(
        name="second pointer", description="The token to which the token that is pointed at points.", tokens=DIGITS,
        lengths=(2, 3, 4, 5, 6),
        write=write_second_pointer, statement=lambda word: [follow(word, follow(word, token)) for token in word],
    ),
    RaspProgram(
        name="ignored token", description="The token; that before it is moved and not used.", tokens=LETTERS,
        write=write_ignored_previous, statement=lambda word: [None, *word[1:]],
    ),
    RaspProgram(
        name="ignored count", description="The token; equal ones are counted and the number not used.",
        tokens=LETTERS, write=write_ignored_count, statement=lambda word: word,
    ),
)  # fmt: skip
