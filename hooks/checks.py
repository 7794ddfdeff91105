"""Checks of what a user gives: a choice among names, a number of the right type, finite and in range."""

import math
import reprlib
from numbers import Integral, Real
from typing import Any, get_args

Limit = int | float


def check_choice(name: str, value: object, options: Any) -> None:
    """Check that an argument is one of the options of a `Literal` type.

    Raises:
        ValueError: an unknown option (lists the known ones).
    """
    if value not in get_args(options):
        raise ValueError(f"{name} is {reprlib.repr(value)}; choose one of {', '.join(get_args(options))}.")


def check_number(
    name: str,
    value: Any,
    *,
    whole: bool = False,
    above: Limit | None = None,
    low: Limit | None = None,
    high: Limit | None = None,
) -> None:
    """Check a number.

    Args:
        name: Name of the argument.
        value: What was given.
        whole: Whether only whole numbers are valid.
        above: It must be greater than this.
        low: It must be at least this.
        high: It must be at most this.

    Raises:
        ValueError: another type, NaN, an infinite number, or one out of range.
    """
    if isinstance(value, bool) or not isinstance(value, Integral if whole else Real) or not math.isfinite(value):
        kind = "whole" if whole else "finite"
        raise ValueError(f"{name} is {reprlib.repr(value)}; it must be a {kind} number.")
    number = float(value)
    too_low = (above is not None and number <= above) or (low is not None and number < low)
    if too_low or (high is not None and number > high):
        raise ValueError(f"{name} is {reprlib.repr(value)}; {_range(above, low, high, whole)}.")


def check_fields(settings: Any, *names: str, prefix: str = "", **limits: Any) -> None:
    """`check_number` of several fields of an object; fields that are None are valid if that is their default.

    Raises:
        ValueError: a field that is not a valid number.
    """
    for name in names:
        value = getattr(settings, name)
        if value is not None or getattr(type(settings), name, 0) is not None:
            check_number(f"{prefix}{name}", value, **limits)


def _range(above: Limit | None, low: Limit | None, high: Limit | None, whole: bool) -> str:
    if above == 0 and high is None:
        return "it must be positive"
    if high is None:
        return "it must not be negative" if low == 0 else f"it must be at least {low}"
    if (low, high) == (0, 1) and not whole:
        return "it is a share, 0 to 1"
    least = f"above {above}" if low is None else f"at least {low}"
    return f"it must be {least} and at most {high}"


def check_class(name: str, value: Any, cls: type) -> None:
    """Check that an argument is of a class.

    Raises:
        ValueError: an object of another class.
    """
    if not isinstance(value, cls):
        raise ValueError(f"{name} is a {type(value).__name__}; it must be a {cls.__name__}.")
