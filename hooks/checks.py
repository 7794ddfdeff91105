"""Checks of values: plain types, choices, ranges, names and texts. Annotations are checked in `hooks.typed`."""

import math
import os
import reprlib
from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches
from numbers import Integral, Real
from pathlib import Path
from types import NoneType
from typing import Any, get_args

LONGEST_SHOWN = 100
"""Characters of a value in an error."""
MOST_LISTED = 24
"""Most names that an error lists."""
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60
Limit = int | float

SCALARS: dict[Any, tuple[Any, str]] = {
    bool: (bool, "True or False"),
    int: (Integral, "an integer"),
    float: (Real, "a finite number"),
    str: (str, "a string"),
    Path: (os.PathLike | str, "a path"),
    NoneType: (NoneType, "None"),
}
"""For an annotation, the class of its values and its description."""


# Types


def is_array(value: Any) -> bool:
    """Whether a value is an array of numpy, a tensor, or a table or column of pandas."""
    return hasattr(type(value), "__array__")


def plain_scalar(value: Any) -> Any:
    """A number or string of numpy as that of Python; any other value as it is."""
    is_scalar_of_numpy = is_array(value) and isinstance(value, Real | str)
    return value.item() if is_scalar_of_numpy else value  # pyright: ignore[reportAttributeAccessIssue]


def is_choice(value: Any, choices: Iterable[Any]) -> bool:
    """Whether a value is one of those of a `Literal`: equal, and of that type, so that no array is compared."""
    value = plain_scalar(value)
    return any(
        isinstance(value, type(choice)) and isinstance(value, bool) == isinstance(choice, bool) and value == choice
        for choice in choices
    )


def is_scalar(cls: Any, value: Any) -> bool:
    """Whether a value is a number, string, boolean or path, or None, as an annotation of that class means it."""
    # Python's bool is an int; here it is not a number
    return isinstance(value, SCALARS[cls][0]) and (cls is bool or not isinstance(value, bool))


# Texts


def shown(value: Any) -> str:
    """A value that was found, for an error: at most 100 characters, in one line, with escapes for surrogates."""
    try:
        text = " ".join(_SHORT.repr(value).split())
    except ValueError:  # Python writes no integer of more than 4300 digits
        text = f"a {type(value).__name__} that is too long to be written"
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 1]}…"


def check_text(name: str, value: Any) -> None:
    """Check that a string, or all those in a collection, can be written to a file.

    Raises:
        ValueError: a lone surrogate, one half of a character of UTF-16, which UTF-8 does not have.
    """
    if isinstance(value, str):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError(
                f"{name} has a lone surrogate ({value[error.start]!r}, at character {error.start}), which no file can "
                f"hold: {shown(value)}. Remove it, or read the text again as UTF-8."
            ) from None
    elif isinstance(value, tuple | list | set | frozenset):
        for element in value:
            check_text(name, element)
    elif isinstance(value, dict):
        for key, element in value.items():
            check_text(name, key)
            check_text(f"{name}[{shown(key)}]", element)


# Values and ranges


def check_choice(name: str, value: object, options: Any) -> None:
    """Check that an argument is one of the options of a `Literal` type.

    Raises:
        ValueError: an unknown option (lists the known ones).
    """
    choices = get_args(options)
    if not is_choice(value, choices):
        raise ValueError(f"{name} {unknown_choice(value, choices)}")


def unknown_choice(value: object, choices: Sequence[Any]) -> str:
    """That a value is no choice, with all choices."""
    return f"is {shown(value)}; choose one of {', '.join(map(str, choices))}."


def check_number(
    name: str,
    value: Any,
    *,
    integer: bool = False,
    above: Limit | None = None,
    low: Limit | None = None,
    high: Limit | None = None,
) -> None:
    """Check that an argument is a finite number in a range.

    Args:
        name: Name of the argument.
        value: Its value.
        integer: Whether it must be an integer.
        above: It must be greater than this.
        low: It must be at least this.
        high: It must be at most this.

    Raises:
        ValueError: another type, NaN, an infinite number, or a number out of range.
    """
    _, description = SCALARS[int if integer else float]
    # An integer may be larger than every float
    if not is_scalar(int if integer else float, value) or not (integer or _is_finite(value)):
        raise ValueError(f"{name} is {shown(value)}; it must be {description}.")
    too_low = (above is not None and value <= above) or (low is not None and value < low)
    too_high = high is not None and value > high
    if too_low or too_high:
        raise ValueError(f"{name} is {shown(value)}; {_range_text(above, low, high, integer)}.")


def _is_finite(number: Any) -> bool:
    """Whether a float can hold a number, which is neither NaN nor infinite."""
    try:
        return math.isfinite(number)
    except OverflowError:  # an integer above 1.8e308
        return False


def check_fields(settings: Any, *names: str, prefix: str = "", **limits: Any) -> None:
    """`check_number` of several fields of an object; fields that are None are valid if that is their default.

    Raises:
        ValueError: a field that is not a valid number.
    """
    for name in names:
        value = getattr(settings, name)
        none_is_valid = getattr(type(settings), name, 0) is None
        if value is not None or not none_is_valid:
            check_number(f"{prefix}{name}", value, **limits)


def check_class(name: str, value: Any, cls: type) -> None:
    """Check that an argument is of a class.

    Raises:
        ValueError: an object of another class.
    """
    if not isinstance(value, cls):
        class_name, required_name = type(value).__name__, cls.__name__
        raise ValueError(
            f"{name} is {article(class_name)} {class_name}; it must be {article(required_name)} {required_name}."
        )


def article(name: str) -> str:
    """The indefinite article of a name."""
    return "an" if name[0] in "AEIOU" else "a"


def check_names(name: str, names: Collection[Any] | None) -> None:
    """Check that an argument that chooses by name, such as outcomes, is None (all) or has some names.

    Raises:
        ValueError: no names.
    """
    if names is not None and not names:
        raise ValueError(f"{name} is empty; give some, or leave it out for all.")


def _range_text(above: Limit | None, low: Limit | None, high: Limit | None, integer: bool) -> str:
    if above == 0 and high is None:
        return "it must be positive"
    if high is None:
        return "it must not be negative" if low == 0 else f"it must be at least {low}"
    if (low, high) == (0, 1) and not integer:
        return "it is a share, 0 to 1"
    least = f"above {above}" if low is None else f"at least {low}"
    return f"it must be {least} and at most {high}"


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """A sentence that suggests the most similar of some names, with a blank before it; empty if none is similar."""
    similar = get_close_matches(name, list(names), n=1)
    return f" Did you mean {similar[0]}?" if similar else ""


def listed(names: Collection[str]) -> str:
    """Names in a row; of many the first ones, and how many there are."""
    if len(names) <= MOST_LISTED:
        return ", ".join(names)
    return f"{', '.join(list(names)[:MOST_LISTED])} and {len(names) - MOST_LISTED} more"


def chosen_by_prefix(names: Sequence[str], prefixes: Sequence[str], *, kind: str, owner: str) -> tuple[str, ...]:
    """The names that were chosen, each by itself or by a prefix; all if none was chosen.

    A name chooses itself only, also if others begin with it.

    Args:
        names: The known names.
        prefixes: Names or prefixes of names.
        kind: What they name, for errors: `claim`.
        owner: What has them, for errors: `the study lego`.

    Raises:
        ValueError: a prefix of no name.

    Example:
        >>> chosen_by_prefix(["a", "a.b", "c.d", "c.e"], ["a", "c"], kind="claim", owner="the study")
        ('a', 'c.d', 'c.e')
    """
    chosen: set[str] = set()
    for prefix in prefixes:
        matches = [prefix] if prefix in names else [name for name in names if prefix and name.startswith(prefix)]
        if not matches:
            hint = did_you_mean(prefix, names)
            raise ValueError(f"{owner} has no {kind} {prefix!r}.{hint} It has {listed(names)}.")
        chosen.update(matches)
    return tuple(name for name in names if name in chosen or not prefixes)
