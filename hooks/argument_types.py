"""Checks of the types of plain arguments: numbers, texts, switches, paths and collections, from their annotations."""

import inspect
import os
import reprlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import wraps
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin

P = ParamSpec("P")
R = TypeVar("R")

_PLAIN: dict[Any, tuple[Any, str]] = {
    bool: (bool, "True or False"),
    int: (Integral, "a whole number"),
    float: (Real, "a finite number"),
    str: (str, "a text"),
    Path: (os.PathLike, "a path"),
    NoneType: (NoneType, "None"),
}
"""What an annotation accepts, and its description."""
_MANY = {
    tuple: (Sequence, "a tuple"),
    list: (Sequence, "a list"),
    Sequence: (Sequence, "a sequence"),
    Collection: (Collection, "a collection"),
    Iterable: (Iterable, "a collection"),
    Mapping: (Mapping, "a mapping"),
    dict: (Mapping, "a mapping"),
}


def checks_types(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator of a public function: an argument of a type that its annotation excludes raises ValueError.

    Checked are numbers, texts, switches, paths, choices (`Literal`), collections of these, and unions; other
    annotations are left to the function.
    """
    parameters = inspect.signature(function).parameters
    known = {name: accepted for name, one in parameters.items() if (accepted := _accepted(one.annotation))}
    order = list(parameters)

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        for name, value in (*zip(order, args, strict=False), *kwargs.items()):
            if name in known:
                _check(name, value, known[name])
        return function(*args, **kwargs)

    return run


def check_field_types(settings: Any) -> None:
    """The same checks for the fields of a dataclass.

    Raises:
        ValueError: the first field of another type.
    """
    for one in fields(settings):
        if accepted := _accepted(one.type):
            _check(one.name, getattr(settings, one.name), accepted)


def _accepted(annotation: Any) -> list[Any]:
    """The plain annotations of which a value must fit one; empty if the annotation has others."""
    if get_origin(annotation) in (Union, UnionType):
        parts = [_accepted(part) for part in get_args(annotation)]
        return [one for part in parts for one in part] if all(parts) else []
    origin = get_origin(annotation) or annotation
    if annotation is None:
        return [NoneType]
    if get_origin(annotation) is Literal:
        return [annotation]
    try:
        if origin in _MANY:
            parts = [part for part in get_args(annotation) if part is not Ellipsis]
            return [origin] if all(map(_accepted, parts)) else []
        return [origin] if origin in _PLAIN else []
    except TypeError:  # not hashable
        return []


def _check(name: str, value: Any, accepted: list[Any]) -> None:
    if not any(_fits(value, one) for one in accepted):
        words = dict.fromkeys(word for one in accepted for word in _words(one))
        raise ValueError(f"{name} is {' '.join(reprlib.repr(value).split())[:200]}; it must be {' or '.join(words)}.")


def _fits(value: Any, accepted: Any) -> bool:
    if get_origin(accepted) is Literal:
        return isinstance(value, str) or value in get_args(accepted)  # an unknown text: the function lists the choices
    if accepted in _MANY:
        return isinstance(value, _MANY[accepted][0]) and not isinstance(value, str | bytes)
    return isinstance(value, _PLAIN[accepted][0]) and (accepted is bool or not isinstance(value, bool))


def _words(accepted: Any) -> list[str]:
    if get_origin(accepted) is Literal:
        return [repr(one) for one in get_args(accepted)]
    return [(_MANY | _PLAIN)[accepted][1]]
