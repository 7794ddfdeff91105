"""Expressions that several programs use: counts of keys, moves of values, pairs of a token and its position."""

from collections.abc import Callable
from typing import Any

Predicate = Callable[[Any, Any], bool]
"""Whether a query selects a key: a function of (key, query)."""


def always(key: Any, query: Any) -> bool:
    """Every key."""
    return True


def equal(key: Any, query: Any) -> bool:
    """Keys with the query's value."""
    return key == query


def is_true(key: Any, query: Any) -> bool:
    """Keys with the value True, for every query."""
    return key is True


def count(rasp: Any, keys: Any, queries: Any, predicate: Predicate, name: str) -> Any:
    """Number of selected keys; `name` is that of the variable, the selector's is the predicate's."""
    selector = rasp.Select(keys, queries, predicate).named(predicate.__name__)
    return rasp.SelectorWidth(selector).named(name)


def move(rasp: Any, keys: Any, queries: Any, predicate: Predicate, values: Any, name: str) -> Any:
    """Value at the selected key; None where there is none."""
    selector = rasp.Select(keys, queries, predicate).named(predicate.__name__)
    return rasp.Aggregate(selector, values).named(name)


def mean(rasp: Any, keys: Any, queries: Any, predicate: Predicate, flags: Any, name: str) -> Any:
    """Mean of flags at the selected keys, as a number; 0 where there are none."""
    selector = rasp.Select(keys, queries, predicate).named(predicate.__name__)
    return rasp.numerical(rasp.Aggregate(selector, flags, default=0)).named(name)


def flag(rasp: Any, function: Callable[[Any], bool], values: Any, name: str) -> Any:
    """1 where a function of a value is true, else 0, as a number."""
    return rasp.numerical(rasp.Map(lambda value: int(function(value)), values)).named(name)


def combine(rasp: Any, function: Callable[[Any, Any], Any], first: Any, second: Any, name: str) -> Any:
    """A function of two variables at the same position."""
    return rasp.SequenceMap(function, first, second).named(name)


def change(rasp: Any, function: Callable[[Any], Any], values: Any, name: str) -> Any:
    """A function of one variable at the same position."""
    return rasp.Map(function, values).named(name)


def length(rasp: Any) -> Any:
    """Number of tokens."""
    return count(rasp, rasp.tokens, rasp.tokens, always, "length")


def previous(rasp: Any, values: Any, name: str, distance: int = 1) -> Any:
    """Value at the position that is `distance` earlier; None at the first ones."""

    def earlier(key: int, query: int) -> bool:
        return key == query - distance

    earlier.__name__ = "previous" if distance == 1 else f"{distance} earlier"
    return move(rasp, rasp.indices, rasp.indices, earlier, values, name)


def token_and_position(rasp: Any) -> Any:
    """A token with its position, as text: `a3`."""
    return combine(rasp, lambda token, position: f"{token}{position}", rasp.tokens, rasp.indices, "token and position")


def same_token_earlier(key: str, query: str) -> bool:
    """Of texts such as `a3`: the same token at an earlier position."""
    return key[0] == query[0] and int(key[1:]) < int(query[1:])
