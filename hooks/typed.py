"""Values in the types of their annotations: arguments, settings made in Python, what is restored from JSON or TOML.

An annotation says the type; what else must be true of a value is said next to it, with `Annotated`:

    accuracy: Annotated[Float[np.ndarray, "layer target"], SHARE, MAY_BE_MISSING]
    targets: Annotated[tuple[str, ...], Axes("target")]

Axes with the same name have the same length in all fields of a dataclass.
"""

import inspect
import math
import operator
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cache, wraps
from numbers import Integral
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from torch import nn

from hooks.checks import (
    SCALARS,
    article,
    check_text,
    is_array,
    is_choice,
    is_scalar,
    plain_scalar,
    shown,
    unknown_choice,
)

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
ROUNDING = 1e-5
"""By how much a number may leave its range: some hundred rounding errors of float32, in which some are computed."""


@dataclass(frozen=True)
class Range:
    """The numbers that a field can have; both ends count."""

    low: float = -math.inf
    high: float = math.inf

    def __str__(self) -> str:
        if self.high == math.inf:
            return f"at least {self.low:g}"
        return f"from {self.low:g} to {self.high:g}"


@dataclass(frozen=True)
class Special:
    """Numbers that are not finite and yet valid."""

    missing: bool = False
    """NaN: nothing was measured."""
    infinite: bool = False


class Axes:
    """Names of the axes of a collection or an interval; `...` at the end: further ones, of any length.

    Args:
        names: The names, separated by spaces.
    """

    def __init__(self, names: str):
        self.names = names

    def __repr__(self) -> str:
        return f"Axes({self.names!r})"


@dataclass(frozen=True)
class Distinct:
    """Names that are different from each other."""

    def check(self, names: Sequence[Any], name: str) -> None:
        """Check names.

        Raises:
            ValueError: a name that is there twice.
        """
        duplicates = [element for element, n in Counter(names).items() if n > 1]
        if duplicates:
            raise Misfit(name, f"has {shown(duplicates[0])} twice; its names must differ.")


DISTINCT = Distinct()
SHARE, DIFFERENCE, COUNT, SIZE = Range(0.0, 1.0), Range(-1.0, 1.0), Range(0.0), Range(0.0)
"""Shares and probabilities; differences of two; whole numbers from 0 on; numbers that are not negative."""
POSITIVE_COUNT = Range(1.0)
MAY_BE_MISSING, MAY_BE_INFINITE = Special(missing=True), Special(missing=True, infinite=True)


class Misfit(ValueError):
    """A value that its annotation excludes."""

    def __init__(self, name: str, text: str):
        super().__init__(f"{name} {text}" if name else text)
        self.name = name


# Where values come from


def checks_types(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator of a public function: an argument that its annotation excludes raises ValueError with its name.

    Numbers of numpy become those of Python, since JSON takes no others where arguments are stored. Of a model or task
    that the annotation excludes, the function says itself why it needs another one.
    """
    parameters = inspect.signature(function).parameters
    positional = [name for name, parameter in parameters.items() if parameter.kind in POSITIONAL]

    @cache
    def kinds_by_name() -> dict[str, Kind]:
        return {name: kind_of(parameter.annotation) for name, parameter in parameters.items()}

    @wraps(function)
    def checked_function(*args: P.args, **kwargs: P.kwargs) -> R:
        kinds = kinds_by_name()
        walk = _Walk("argument")
        try:
            values: Any = [kinds[name].fit(value, name, walk) for name, value in zip(positional, args, strict=False)]
            options: Any = {name: kinds.get(name, ANYTHING).fit(value, name, walk) for name, value in kwargs.items()}
        except Misfit as error:
            raise ValueError(str(error)) from None
        further = args[len(values) :]
        return function(*values, *further, **options)  # pyright: ignore[reportCallIssue]

    return checked_function


def check_field_types(settings: Any, *, prefix: str = "") -> None:
    """Check the fields of a dataclass that was made in Python, and make tuples of lists where tuples are annotated.

    Args:
        settings: The dataclass, which may be frozen.
        prefix: What error texts put before the name of a field.

    Raises:
        ValueError: the first field that its annotation excludes.
    """
    for name, value in _fields(type(settings), vars(settings), _Walk("field"), prefix).items():
        if value is not getattr(settings, name):
            object.__setattr__(settings, name, value)


def check_record(record: Any) -> None:
    """Check the fields of a dataclass of figures: types, ranges, and axes that fields share.

    Raises:
        ValueError: the first field that its annotation excludes.
    """
    _fields(type(record), vars(record), _Walk("field"), "")


def restored(annotation: Any, value: Any, name: str = "") -> Any:
    """A value from JSON or TOML, in the type of an annotation.

    Mappings become dataclasses, lists tuples, and None a missing number where there may be one.

    >>> restored(tuple[int, ...], [1, 2], "steps")
    (1, 2)
    >>> restored(dict[str, float], {"seconds": "1"}, "cost")
    Traceback (most recent call last):
    ...
    hooks.typed.Misfit: cost.seconds is '1'; it must be a finite number.

    Args:
        annotation: The annotation, or a dataclass.
        value: Plain values; arrays and dataclasses in them are checked as they are.
        name: What it is called in error texts, followed by a path: `claims[3].cost.seconds`.

    Raises:
        ValueError: another type, a field that is missing or unknown, a number out of range, or axes that differ.
    """
    return kind_of(annotation).fit(value, name, _Walk("file"))


@dataclass
class _Walk:
    """Values that are checked together."""

    source: Literal["argument", "field", "file"]
    """In files, mappings are dataclasses, and None is a missing number. Sequences in arguments stay as they are."""
    lengths: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Length of each axis, and the field that has it."""

    def check_axes(self, names: str, shape: Sequence[int], name: str) -> None:
        """Compare the lengths of axes with those of the fields before."""
        axes = names.split()
        is_open = bool(axes) and axes[-1].startswith(("...", "*"))
        axes = axes[:-1] if is_open else axes
        if any(axis.startswith(("...", "*")) for axis in axes):
            return
        if len(shape) < len(axes) or (len(shape) > len(axes) and not is_open):
            raise Misfit(name, f"has {len(shape)} axes; it must have {len(axes)}: {names.strip()}.")
        for axis, length in zip(axes, shape, strict=False):
            axis = axis.lstrip("#")
            expected, owner = (int(axis), "") if axis.isdigit() else self.lengths.setdefault(axis, (length, name))
            if length != expected:
                where = f" as in {owner}" if owner else ""
                raise Misfit(name, f"has {length} along the axis {axis!r}; it must have {expected}{where}.")


# Kinds of annotations


class Kind:
    """What an annotation says of a value: a first look at its type, and what must be true of what is in it."""

    words: tuple[str, ...] = ()
    """What a value is, for errors."""

    def admits(self, value: Any, walk: _Walk) -> bool:
        """Whether a value has the type, whatever is in it."""
        return True

    def contents(self, value: Any, name: str, walk: _Walk) -> Any:
        """The value, converted if it has to be, after a check of what is in it."""
        return value

    def refusal(self, value: Any) -> str:
        """What is wrong with a value of another type."""
        return f"is {shown(value)}; it must be {' or '.join(dict.fromkeys(self.words))}."

    def fit(self, value: Any, name: str, walk: _Walk) -> Any:
        """The value in the type of the annotation.

        Raises:
            Misfit: a value that it excludes.
        """
        if not self.admits(value, walk):
            raise Misfit(name, self.refusal(value))
        return self.contents(value, name, walk)


def kind_of(annotation: Any, rules: tuple[Any, ...] = ()) -> Kind:
    """The kind of an annotation; rules are the ranges and the like that count for every number of its values."""
    origin, members = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        rules = (*rules, *members[1:])
        return Marked(kind_of(members[0], rules), members[1:])
    if origin is Literal:
        return Choice(members)
    if origin in (Union, UnionType):
        return AnyOf([kind_of(member, rules) for member in members])
    cls = NoneType if annotation is None else origin or annotation
    if cls is Callable:
        return Function()
    # A type with a shape, of jaxtyping
    if hasattr(cls, "dim_str"):
        return Array(cls, rules)
    if not isinstance(cls, type) or cls in OPEN or getattr(cls, "_is_protocol", False):
        return ANYTHING
    if cls in SCALARS:
        return Scalar(cls, rules)
    if cls in COLLECTIONS:
        return Elements(cls, members, rules)
    if cls in (dict, Mapping):
        return Entries([kind_of(member, rules) for member in members or (Any, Any)])
    return Record(cls, rules) if is_dataclass(cls) else Instance(cls, rules)


class Anything(Kind):
    """Values of all types; texts in them must be ones that files can hold."""

    def contents(self, value: Any, name: str, walk: _Walk) -> Any:
        check_text(name, value)
        return plain_scalar(value)


ANYTHING = Anything()
OPEN = (Any, object, type, inspect.Parameter.empty)
"""Annotations that exclude nothing, or only what the function that has them knows."""
COLLECTIONS: dict[Any, tuple[str, Any]] = {
    tuple: ("a tuple", Sequence),
    list: ("a list", Sequence),
    Sequence: ("a list", Sequence),
    Collection: ("a collection", (Sequence, Set)),
}
"""For an annotation, what its values are in words, and their classes."""
POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Marked(Kind):
    """A kind with the names of axes, or with different elements."""

    def __init__(self, kind: Kind, marks: Sequence[Any]):
        self.kind = kind
        self.words = kind.words
        self.axes = [mark.names for mark in marks if isinstance(mark, Axes)]
        self.rules_of_names = [mark for mark in marks if isinstance(mark, Distinct)]

    def admits(self, value: Any, walk: _Walk) -> bool:
        return self.kind.admits(value, walk)

    def refusal(self, value: Any) -> str:
        return self.kind.refusal(value)

    def contents(self, value: Any, name: str, walk: _Walk) -> Any:
        value = self.kind.contents(value, name, walk)
        if value is None:
            return None
        for names in self.axes:
            walk.check_axes(names, _shape(value, names, name), name)
        for rule in self.rules_of_names:
            rule.check(value, name)
        return value


class AnyOf(Kind):
    """A union."""

    def __init__(self, kinds: Sequence[Kind]):
        self.kinds = kinds
        self.words = tuple(words for kind in kinds for words in kind.words)
        nones = [kind for kind in kinds if isinstance(kind, Scalar) and kind.cls is NoneType]
        self.none_is_valid = bool(nones)
        choices = [choice for kind in kinds if isinstance(kind, Choice) for choice in kind.choices]
        has_only_choices = all(isinstance(kind, Choice) or kind in nones for kind in kinds)
        self.choice = Choice(choices) if has_only_choices else None

    def admits(self, value: Any, walk: _Walk) -> bool:
        return any(kind.admits(value, walk) for kind in self.kinds)

    def refusal(self, value: Any) -> str:
        # If only certain strings are valid, the error lists them
        return self.choice.refusal(value) if self.choice and isinstance(value, str) else super().refusal(value)

    def fit(self, value: Any, name: str, walk: _Walk) -> Any:
        # None is a missing number only where nothing else is None
        if value is None and self.none_is_valid:
            return None
        errors: list[Misfit] = []
        for kind in self.kinds:
            if kind.admits(value, walk):
                try:
                    return kind.contents(value, name, walk)
                except Misfit as error:
                    errors.append(error)
        if not errors:
            raise Misfit(name, self.refusal(value))
        # The error deep within a member says most
        raise max(errors, key=lambda error: len(error.name))

    contents = fit  # a union of a union looks at types once


class Choice(Kind):
    """A `Literal`."""

    def __init__(self, choices: Sequence[Any]):
        self.choices = choices
        self.words = tuple(map(repr, choices))

    def admits(self, value: Any, walk: _Walk) -> bool:
        return is_choice(value, self.choices)

    def contents(self, value: Any, name: str, walk: _Walk) -> Any:
        return plain_scalar(value)

    def refusal(self, value: Any) -> str:
        return unknown_choice(value, self.choices) if isinstance(value, str) else super().refusal(value)


class Scalar(Kind):
    """A number, string, boolean or path, or None."""

    def __init__(self, cls: type, rules: Sequence[Any]):
        self.cls = cls
        self.numbers = Numbers(rules)
        self.words = (SCALARS[cls][1],)
        self.has_contents = cls in (str, Path, float) or bool(self.numbers.ranges)

    def admits(self, value: Any, walk: _Walk) -> bool:
        if self.cls is float and walk.source == "file":
            value = self.numbers.saved(value)
        # What a comparison of numpy numbers gives is a truth value too
        is_truth_value = self.cls is bool and isinstance(value, np.bool_)
        return type(value) is self.cls or is_truth_value or is_scalar(self.cls, value)

    def contents(self, value: Any, name: str, walk: _Walk) -> Any:
        if type(value) is self.cls and not self.has_contents:
            return value
        if isinstance(value, np.bool_):
            return bool(value)
        if self.cls is str:
            check_text(name, value)
        elif self.cls is Path:
            return value if isinstance(value, os.PathLike) else Path(value)
        elif self.cls is int and self.numbers.ranges:
            self.numbers.check(np.asarray(value, dtype=object), name)
        elif self.cls is float:
            value = self.numbers.saved(value) if walk.source == "file" else value
            # torch multiplies by no larger integers
            if isinstance(value, Integral) and abs(int(value)) >= 2**63:
                raise Misfit(name, f"is {shown(value)}; write an integer of this size as a float: 1e30.")
            if self.numbers.ranges or not math.isfinite(value):
                self.numbers.check(np.asarray(value, dtype=float), name)
        return plain_scalar(value)


class Elements(Kind):
    """A sequence of one type, or a tuple with a type for each element."""

    def __init__(self, cls: Any, members: Sequence[Any], rules: tuple[Any, ...]):
        self.cls = cls
        self.is_fixed = cls is tuple and bool(members) and members[-1] is not Ellipsis
        self.kinds = [kind_of(member, rules) for member in members or (Any,) if member is not Ellipsis]
        words, self.classes = COLLECTIONS[cls]
        self.words = (words,)

    def admits(self, value: Any, walk: _Walk) -> bool:
        return isinstance(value, self.classes) and not isinstance(value, str | bytes)

    def contents(self, value: Any, name: str, walk: _Walk) -> Any:
        if self.is_fixed and len(value) != len(self.kinds):
            raise Misfit(name, f"is {shown(value)}; it must have {len(self.kinds)} elements, not {len(value)}.")
        kinds = self.kinds if self.is_fixed else self.kinds * len(value)
        elements = [
            kind.fit(element, f"{name}[{index}]", walk)
            for index, (kind, element) in enumerate(zip(kinds, value, strict=True))
        ]
        # A value that has its type already is kept as it is
        collection = list if self.cls is list else tuple
        has_type = isinstance(value, collection) or (self.cls in (Sequence, Collection) and walk.source == "argument")
        return value if has_type and all(map(operator.is_, value, elements)) else collection(elements)


class Entries(Kind):
    """A mapping."""

    words = ("a mapping",)

    def __init__(self, kinds: Sequence[Kind]):
        self.kind_of_key, self.kind_of_value = kinds

    def admits(self, value: Any, walk: _Walk) -> bool:
        return isinstance(value, Mapping)

    def contents(self, value: Any, name: str, walk: _Walk) -> Any:
        entries = {}
        for key, entry in value.items():
            key = self.kind_of_key.fit(key, f"{name} (key)", walk)
            # Arrays of a mapping may have other lengths than those of another entry
            entries[key] = self.kind_of_value.fit(entry, f"{name}{_in_path(key)}", _Walk(walk.source))
        changed = any(entries[key] is not entry for key, entry in value.items())
        return entries if changed else value


class Function(Kind):
    """Something to call."""

    words = ("a function",)

    def admits(self, value: Any, walk: _Walk) -> bool:
        return callable(value)


class Array(Kind):
    """An array of numpy with the dtype, the axes and the range that its annotation has; or a tensor, of which the
    function checks these."""

    def __init__(self, cls: Any, rules: Sequence[Any]):
        self.cls = cls
        self.numbers = Numbers(rules)
        self.is_numpy = issubclass(cls.array_type, np.ndarray)
        self.words = ("an array" if self.is_numpy else "a tensor or an array",)

    def admits(self, value: Any, walk: _Walk) -> bool:
        if self.is_numpy:
            return isinstance(value, np.ndarray)
        return is_array(value) and not isinstance(value, np.generic)

    def contents(self, value: Any, name: str, walk: _Walk) -> Any:
        if self.is_numpy:
            dtype = self.cls.dtype
            if not isinstance(value, dtype[np.ndarray, "..."]):
                raise Misfit(name, f"has the dtype {value.dtype}; it must be {dtype.__name__.lower()}.")
            walk.check_axes(self.cls.dim_str, value.shape, name)
            self.numbers.check(value, name)
        return value


class Instance(Kind):
    """An object of a class, or of its family."""

    def __init__(self, cls: Any, rules: Sequence[Any]):
        self.cls = cls
        self.family = _family(cls)
        self.numbers = Numbers(rules)
        self.words = (f"{article(cls.__name__)} {cls.__name__}",)

    def admits(self, value: Any, walk: _Walk) -> bool:
        return isinstance(value, self.family)

    def contents(self, value: Any, name: str, walk: _Walk) -> Any:
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            self.numbers.check(value, name)
        return value


def _family(cls: type) -> type:
    """The class of which an object must be: of a class that users derive from, such as that of models or tasks, the
    function says itself why it needs a certain one."""
    if issubclass(cls, nn.Module):
        return nn.Module
    return next((base for base in reversed(cls.__mro__) if "require" in vars(base) or inspect.isabstract(base)), cls)


class Record(Instance):
    """A dataclass; in files, a mapping with its fields."""

    def admits(self, value: Any, walk: _Walk) -> bool:
        return super().admits(value, walk) or (walk.source == "file" and isinstance(value, Mapping))

    def contents(self, value: Any, name: str, walk: _Walk) -> Any:
        if walk.source == "argument":
            return value
        if not isinstance(value, self.family):
            value = _record(self.cls, value, name)
        elif walk.source == "file" or self.numbers.rules:
            _fields(type(value), vars(value), _Walk("field"), f"{name}." if name else "")
        # What the rules say of a record is its own matter: of the estimates of an interval, for example
        check_range = getattr(value, "check_numbers", None)
        if check_range is not None:
            check_range(self.numbers.check, name)
        return value


class Numbers:
    """Which numbers are valid: finite ones, unless the rules say otherwise, and in range."""

    def __init__(self, rules: Sequence[Any]):
        self.rules = rules
        self.ranges = [rule for rule in rules if isinstance(rule, Range)]
        self.missing = any(isinstance(rule, Special) and rule.missing for rule in rules)
        self.infinite = any(isinstance(rule, Special) and rule.infinite for rule in rules)

    def saved(self, value: Any) -> Any:
        """A number as JSON has it: None if it is missing, text if it is infinite."""
        if value is None and self.missing:
            return math.nan
        if self.infinite and isinstance(value, str) and value in ("inf", "-inf"):
            return float(value)
        return value

    def check(self, numbers: np.ndarray, name: str) -> None:
        """Check numbers.

        Raises:
            ValueError: the first number that is not valid.
        """
        if numbers.dtype.kind == "f":
            for is_valid, is_special in ((self.missing, np.isnan), (self.infinite, np.isinf)):
                if not is_valid and is_special(numbers).any():
                    place = _first(numbers, np.asarray(is_special(numbers)))
                    raise Misfit(name, f"{place}; it must be a finite number.")
        for limits in self.ranges:
            outside = (numbers < limits.low - ROUNDING) | (numbers > limits.high + ROUNDING)
            if np.any(outside):
                raise Misfit(name, f"{_first(numbers, np.asarray(outside))}; it must be {limits}.")


def _fields(cls: Any, values: Mapping[str, Any], walk: _Walk, prefix: str) -> dict[str, Any]:
    """The values of the fields of a dataclass, each in its type."""
    kinds = _kinds(cls)
    return {name: kind.fit(values[name], f"{prefix}{name}", walk) for name, kind in kinds.items() if name in values}


def _record(cls: type[T], values: Mapping[str, Any], name: str) -> T:
    """A dataclass made of saved values by field."""
    prefix = f"{name}." if name else ""
    check_field_names(cls, values, name or f"the {cls.__name__}")
    arguments = _fields(cls, values, _Walk("file"), prefix)
    try:
        return cls(**arguments)
    except Misfit:
        raise
    except ValueError as error:
        raise Misfit(name, f"cannot be a {cls.__name__}: {error}" if name else str(error)) from error


def check_field_names(cls: Any, values: Mapping[str, Any], name: str) -> None:
    """Check that saved values are those of the fields of a dataclass; fields with a default may be missing.

    Raises:
        ValueError: unknown fields, or missing ones.
    """
    saved_fields = [
        record_field for record_field in fields(cls) if record_field.init and record_field.metadata.get("saved", True)
    ]
    names = [record_field.name for record_field in saved_fields]
    unknown = [shown(key) for key in values if key not in names]
    if unknown:
        raise Misfit(name, f"has unknown fields {_listed(unknown)}; was it written by a newer unmyopic?")
    missing = [
        repr(saved_field.name)
        for saved_field in saved_fields
        if saved_field.name not in values and saved_field.default is MISSING and saved_field.default_factory is MISSING
    ]
    if missing:
        raise Misfit(name, f"lacks the fields {_listed(missing)}.")


@cache
def _kinds(cls: Any) -> dict[str, Kind]:
    """Kinds of the fields of a dataclass, by name."""
    annotations = {record_field.name: record_field.type for record_field in fields(cls) if record_field.init}
    # Annotations as text, which may name what only a type checker knows
    if any(isinstance(kind, str) or "ForwardRef" in repr(kind) for kind in annotations.values()):
        try:
            hints = get_type_hints(cls, include_extras=True)
            annotations = {name: hints[name] for name in annotations}
        except (NameError, TypeError):
            pass
    return {name: kind_of(annotation) for name, annotation in annotations.items()}


def _shape(value: Any, axes: str, name: str) -> tuple[int, ...]:
    """Lengths of the axes of an array, or of nested tuples as deep as there are names."""
    if hasattr(value, "shape"):
        return tuple(value.shape)
    depth = len(axes.replace("...", "").split())
    shape: list[int] = []
    level: Iterable[Any] = [value]
    for _ in range(depth):
        elements = list(level)
        lengths = {len(element) for element in elements}
        if len(lengths) > 1:
            raise Misfit(name, "has rows of different lengths.")
        shape.append(lengths.pop() if lengths else 0)
        level = [inner for element in elements for inner in element]
    return (*shape, 1) if axes.rstrip().endswith("...") else tuple(shape)


def _first(numbers: np.ndarray, marked: np.ndarray) -> str:
    """The first of the marked numbers, with its place, in words."""
    if not numbers.ndim:
        return f"is {numbers.item()}"
    place = np.argwhere(marked)[0].tolist()
    return f"has {numbers[tuple(place)]} at {place}"


def _listed(names: Sequence[str]) -> str:
    text = ", ".join(names[:5])
    return text if len(names) <= 5 else f"{text} and {len(names) - 5} more"


def _in_path(key: Any) -> str:
    return f".{key}" if isinstance(key, str) and key.isidentifier() and len(key) < 40 else f"[{shown(key)}]"
