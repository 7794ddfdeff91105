"""Values in the types of their annotations: settings made in Python, and everything restored from JSON or TOML.

An annotation says the type; what else must be true of a value is said next to it, with `Annotated`:

    accuracy: Annotated[Float[np.ndarray, "layer target"], SHARE, MAY_BE_MISSING]
    targets: Annotated[tuple[str, ...], Axes("target")]

Axes with the same name have the same length in all fields of a dataclass.
"""

import inspect
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cache, wraps
from numbers import Integral
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from hooks.checks import (
    COLLECTIONS,
    SCALARS,
    article,
    check_text,
    has_type,
    is_array,
    is_choice,
    is_scalar,
    plain_scalar,
    shown,
    unknown_choice,
    words_of,
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
            raise Misfit(name, f"has {shown(duplicates[0])} twice; its names must differ.", has_type=True)


DISTINCT = Distinct()
SHARE, DIFFERENCE, COUNT, SIZE = Range(0.0, 1.0), Range(-1.0, 1.0), Range(0.0), Range(0.0)
"""Shares and probabilities; differences of two; whole numbers from 0 on; numbers that are not negative."""
POSITIVE_COUNT = Range(1.0)
MAY_BE_MISSING, MAY_BE_INFINITE = Special(missing=True), Special(missing=True, infinite=True)


class Misfit(ValueError):
    """A value that its annotation excludes."""

    def __init__(self, name: str, text: str, *, has_type: bool = False):
        super().__init__(f"{name} {text}" if name else text)
        self.name = name
        self.has_type = has_type
        """Whether the value has the type, so that the error says more than that it does not."""


def check_field_types(settings: Any, *, prefix: str = "") -> None:
    """Check the fields of a dataclass that was made in Python, and make tuples of lists where tuples are annotated.

    Args:
        settings: The dataclass, which may be frozen.
        prefix: What error texts put before the name of a field.

    Raises:
        ValueError: the first field that its annotation excludes.
    """
    for name, value in _fields(type(settings), vars(settings), _Fitter(saved=False), prefix).items():
        if value is not getattr(settings, name):
            object.__setattr__(settings, name, value)


def check_record(record: Any) -> None:
    """Check the fields of a dataclass of figures: types, ranges, and axes that fields share.

    Raises:
        ValueError: the first field that its annotation excludes.
    """
    _fields(type(record), vars(record), _Fitter(saved=False), "")


def restored(kind: Any, value: Any, name: str = "") -> Any:
    """A value from JSON or TOML, in the type of an annotation.

    Mappings become dataclasses, lists tuples, and None a missing number where there may be one.

    >>> restored(tuple[int, ...], [1, 2], "steps")
    (1, 2)
    >>> restored(dict[str, float], {"seconds": "1"}, "cost")
    Traceback (most recent call last):
    ...
    hooks.typed.Misfit: cost.seconds is '1'; it must be a finite number.

    Args:
        kind: The annotation, or a dataclass.
        value: Plain values; arrays and dataclasses in them are checked as they are.
        name: What it is called in error texts, followed by a path: `claims[3].cost.seconds`.

    Raises:
        ValueError: another type, a field that is missing or unknown, a number out of range, or axes that differ.
    """
    return _Fitter(saved=True).fit(kind, value, name)


@dataclass(frozen=True, kw_only=True)
class _Fitter:
    """Walks along an annotation and a value."""

    saved: bool
    """Whether values were saved: then mappings are dataclasses, and None is a missing number."""
    lengths: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Length of each axis, and the field that has it."""
    rules: tuple[Any, ...] = ()
    """Ranges and the like, which count for every number of the value."""

    def fit(self, kind: Any, value: Any, name: str) -> Any:
        """The value in the type of an annotation."""
        origin = get_origin(kind)
        if origin is Annotated:
            inner, *rules = get_args(kind)
            fitter = _Fitter(saved=self.saved, lengths=self.lengths, rules=(*self.rules, *rules))
            value = fitter.fit(inner, value, name)
            for rule in rules:
                if isinstance(rule, Axes) and value is not None:
                    self._check_axes(rule.names, _shape(value, rule.names, name), name)
                elif isinstance(rule, Distinct) and value is not None:
                    rule.check(value, name)
            return value
        if origin in (Union, UnionType):
            return self._fit_union(get_args(kind), value, name)
        if origin is Literal:
            return self._fit_choice(get_args(kind), value, name)
        if kind in (None, NoneType):
            if value is not None:
                raise Misfit(name, f"is {shown(value)}; it must be None.")
            return None
        if is_scalar(kind):
            return self._fit_scalar(kind, value, name)
        kind_of_collection = origin or kind
        if kind_of_collection in (tuple, list, Sequence):
            return self._fit_sequence(kind_of_collection, get_args(kind), value, name)
        if kind_of_collection in (dict, Mapping):
            return self._fit_mapping(get_args(kind), value, name)
        if hasattr(kind, "dim_str"):
            return self._fit_array(kind, value, name)
        if is_dataclass(kind):
            return self._fit_dataclass(kind, value, name)
        return self._fit_other(kind, value, name)

    def _fit_union(self, kinds: Sequence[Any], value: Any, name: str) -> Any:
        # None is a missing number only where nothing else is None
        if value is None and NoneType in kinds:
            return None
        errors: list[Misfit] = []
        for kind in kinds:
            try:
                return self.fit(kind, value, name)
            except Misfit as error:
                errors.append(error)
        # The error within a member says more than that no member fits
        if isinstance(value, str) and all(get_origin(kind) is Literal or kind is NoneType for kind in kinds):
            raise errors[0]
        deepest = max(errors, key=lambda error: (len(error.name), error.has_type))
        if len(deepest.name) > len(name) or deepest.has_type or len(errors) == 1:
            raise deepest
        descriptions = dict.fromkeys(text for kind in kinds for text in _descriptions(kind))
        raise Misfit(name, f"is {shown(value)}; it must be {' or '.join(descriptions)}.")

    def _fit_choice(self, choices: Sequence[Any], value: Any, name: str) -> Any:
        if is_choice(value, choices):
            return plain_scalar(value)
        if isinstance(value, str):
            raise Misfit(name, f"is {shown(value)}; choose one of {', '.join(map(str, choices))}.")
        raise Misfit(name, f"is {shown(value)}; it must be {' or '.join(map(repr, choices))}.")

    def _fit_scalar(self, kind: Any, value: Any, name: str) -> Any:
        if kind is float and self.saved:
            value = _saved_number(value, missing=self._special("missing"), infinite=self._special("infinite"))
        _, description = SCALARS[kind]
        if not is_scalar(kind, value):
            raise Misfit(name, f"is {shown(value)}; it must be {description}.")
        # torch multiplies by no larger integers
        if kind is float and isinstance(value, Integral) and abs(int(value)) >= 2**63:
            raise Misfit(name, f"is {shown(value)}; write an integer of this size as a float: 1e30.")
        if kind is str:
            check_text(name, value)
        elif kind in (int, float):
            self.check_numbers(np.asarray(value, dtype=float if kind is float else object), name)
        return plain_scalar(value)

    def _fit_sequence(self, kind: Any, kinds: Sequence[Any], value: Any, name: str) -> Any:
        if not isinstance(value, Sequence) or isinstance(value, str | bytes):
            raise Misfit(name, f"is {shown(value)}; it must be {_descriptions(kind)[0]}.")
        # A tuple with a type for each element, or a sequence of one type
        is_fixed = kind is tuple and kinds and kinds[-1] is not Ellipsis
        if is_fixed and len(value) != len(kinds):
            text = f"is {shown(value)}; it must have {len(kinds)} elements, not {len(value)}."
            raise Misfit(name, text, has_type=True)
        kinds_of_elements = kinds if is_fixed else [kinds[0] if kinds else Any] * len(value)
        elements = [
            self.fit(kind_of_element, element, f"{name}[{index}]")
            for index, (kind_of_element, element) in enumerate(zip(kinds_of_elements, value, strict=True))
        ]
        # A value that has its type already is kept as it is
        same_elements = all(old is new for old, new in zip(value, elements, strict=True))
        collection = list if kind is list else tuple
        return value if same_elements and isinstance(value, collection) else collection(elements)

    def _fit_mapping(self, kinds: Sequence[Any], value: Any, name: str) -> Any:
        if not isinstance(value, Mapping):
            raise Misfit(name, f"is {shown(value)}; it must be a mapping.")
        kind_of_key, kind_of_value = kinds or (Any, Any)
        # Arrays of a mapping may have other lengths than those of another entry
        fitter = _Fitter(saved=self.saved, rules=self.rules, lengths={})
        entries = {}
        for key, entry in value.items():
            key = fitter.fit(kind_of_key, key, f"{name} (key)")
            entries[key] = fitter._alone().fit(kind_of_value, entry, f"{name}.{_in_path(key)}")
        changed = any(entries[key] is not entry for key, entry in value.items())
        return entries if changed else value

    def _alone(self) -> "_Fitter":
        return _Fitter(saved=self.saved, rules=self.rules)

    def _fit_array(self, kind: Any, value: Any, name: str) -> Any:
        if not issubclass(kind.array_type, np.ndarray):
            return value
        if not isinstance(value, np.ndarray):
            raise Misfit(name, f"is {shown(value)}; it must be an array.")
        if not isinstance(value, kind.dtype[np.ndarray, "..."]):
            raise Misfit(name, f"has the dtype {value.dtype}; it must be {kind.dtype.__name__.lower()}.")
        self._check_axes(kind.dim_str, value.shape, name)
        self.check_numbers(value, name)
        return value

    def _fit_dataclass(self, kind: Any, value: Any, name: str) -> Any:
        if not isinstance(value, kind):
            if not (self.saved and isinstance(value, Mapping)):
                raise Misfit(name, f"is {shown(value)}; it must be {_descriptions(kind)[0]}.")
            value = _record(kind, value, name)
        elif self.saved or self.rules:
            _fields(kind, vars(value), _Fitter(saved=False), f"{name}." if name else "")
        # What the rules say of a record is its own matter: of the estimates of an interval, for example
        check_range = getattr(value, "check_numbers", None)
        if check_range is not None:
            check_range(self.check_numbers, name)
        return value

    def _fit_other(self, kind: Any, value: Any, name: str) -> Any:
        if self.saved:
            check_text(name, value)
        if isinstance(kind, type) and kind not in (Any, object) and not getattr(kind, "_is_protocol", False):
            if not isinstance(value, kind):
                raise Misfit(name, f"is {shown(value)}; it must be {_descriptions(kind)[0]}.")
            if isinstance(value, np.ndarray) and value.dtype.kind == "f":
                self.check_numbers(value, name)
        return value

    def check_numbers(self, numbers: np.ndarray, name: str) -> None:
        """Check that numbers are finite, unless the rules say otherwise, and in range.

        Raises:
            ValueError: the first number that is not.
        """
        if numbers.dtype.kind == "f":
            if not self._special("missing") and np.isnan(numbers).any():
                raise Misfit(
                    name,
                    f"{_first(numbers, np.asarray(np.isnan(numbers)))}; it must be a finite number.",
                    has_type=True,
                )
            if not self._special("infinite") and np.isinf(numbers).any():
                raise Misfit(
                    name,
                    f"{_first(numbers, np.asarray(np.isinf(numbers)))}; it must be a finite number.",
                    has_type=True,
                )
        for limits in self.rules:
            if isinstance(limits, Range) and numbers.size:
                outside = (numbers < limits.low - ROUNDING) | (numbers > limits.high + ROUNDING)
                if np.any(outside):
                    raise Misfit(name, f"{_first(numbers, np.asarray(outside))}; it must be {limits}.", has_type=True)

    def _special(self, name: str) -> bool:
        return any(isinstance(rule, Special) and getattr(rule, name) for rule in self.rules)

    def _check_axes(self, names: str, shape: Sequence[int], name: str) -> None:
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


def _fields(cls: Any, values: Mapping[str, Any], fitter: _Fitter, prefix: str) -> dict[str, Any]:
    """The values of the fields of a dataclass, each in its type."""
    kinds = _kinds(cls)
    return {name: fitter.fit(kind, values[name], f"{prefix}{name}") for name, kind in kinds.items() if name in values}


def _record(cls: type[T], values: Mapping[str, Any], name: str) -> T:
    """A dataclass made of saved values by field."""
    prefix = f"{name}." if name else ""
    check_field_names(cls, values, name or f"the {cls.__name__}")
    arguments = _fields(cls, values, _Fitter(saved=True), prefix)
    try:
        return cls(**arguments)
    except Misfit:
        raise
    except ValueError as error:
        raise Misfit(name, f"cannot be a {cls.__name__}: {error}" if name else str(error), has_type=True) from error


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
        raise Misfit(name, f"has unknown fields {_listed(unknown)}; was it written by a newer unmyopic?", has_type=True)
    missing = [
        repr(saved_field.name)
        for saved_field in saved_fields
        if saved_field.name not in values and saved_field.default is MISSING and saved_field.default_factory is MISSING
    ]
    if missing:
        raise Misfit(name, f"lacks the fields {_listed(missing)}.", has_type=True)


@cache
def _kinds(cls: Any) -> dict[str, Any]:
    """Annotations of the fields of a dataclass, by name."""
    kinds = {record_field.name: record_field.type for record_field in fields(cls) if record_field.init}
    if not any(isinstance(kind, str) or "ForwardRef" in repr(kind) for kind in kinds.values()):
        return kinds
    # Annotations as text, which may name what only a type checker knows
    try:
        hints = get_type_hints(cls, include_extras=True)
    except (NameError, TypeError):
        return {name: Any if isinstance(kind, str) else kind for name, kind in kinds.items()}
    return {name: hints[name] for name in kinds}


def _saved_number(value: Any, *, missing: bool, infinite: bool) -> Any:
    """A number as JSON has it: None if it is missing, text if it is infinite."""
    if value is None and missing:
        return math.nan
    if infinite and value in ("inf", "-inf"):
        return float(value)
    return value


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
    return key if isinstance(key, str) and key.isidentifier() and len(key) < 40 else f"[{shown(key)}]"


def _descriptions(kind: Any) -> list[str]:
    """What a value of a type is, in words."""
    origin = get_origin(kind)
    if origin is Annotated:
        return _descriptions(get_args(kind)[0])
    if origin in (Union, UnionType):
        return [text for member in get_args(kind) for text in _descriptions(member)]
    if origin is Literal:
        return [repr(choice) for choice in get_args(kind)]
    kind = origin or kind
    collections: dict[Any, str] = {
        tuple: "a tuple", list: "a list", Sequence: "a sequence", dict: "a mapping", Mapping: "a mapping"
    }  # fmt: skip
    if kind in collections:
        return [collections[kind]]
    if is_scalar(kind):
        return [SCALARS[kind][1]]
    name = getattr(kind, "__name__", str(kind))
    return [f"{'an' if name[:1] in 'AEIOU' else 'a'} {name}"]


# Arguments


def checks_types(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator of a public function: an argument of a type that its annotation excludes raises ValueError.

    Checked are numbers, strings, booleans, paths, choices (`Literal`), collections of these, and unions. Other
    annotations are left to the function, but an array is refused unless they have one.
    """
    parameters = inspect.signature(function).parameters
    # The annotations are read once, when the function is defined
    types_by_name = {name: _checked_types(parameter.annotation) for name, parameter in parameters.items()}

    @wraps(function)
    def checked_function(*args: P.args, **kwargs: P.kwargs) -> R:
        arguments = {**dict(zip(parameters, args, strict=False)), **kwargs}
        for name, value in arguments.items():
            types = types_by_name.get(name)
            if types:
                _check_type(name, value, types)
            elif is_array(value) and name in parameters:
                _check_may_be_array(name, value, parameters[name].annotation)
            check_text(name, value)
        # JSON takes Python's numbers only, where arguments are stored
        positional: Any = map(plain_scalar, args)
        named: Any = {name: plain_scalar(value) for name, value in kwargs.items()}
        return function(*positional, **named)  # pyright: ignore[reportCallIssue]

    return checked_function


def _checked_types(annotation: Any) -> list[Any]:
    """The types of which a value must have one; empty if the annotation has types that are not checked."""
    if annotation is None:
        return [NoneType]
    origin = get_origin(annotation)
    if origin is Literal:
        return [annotation]
    # A union is checked if every member is, a collection if its elements could be
    members = [_checked_types(member) for member in get_args(annotation) if member is not Ellipsis]
    if not all(members):
        return []
    if origin in (Union, UnionType):
        return [kind for kinds in members for kind in kinds]
    kind = origin or annotation
    try:
        return [kind] if kind in COLLECTIONS or kind in SCALARS else []
    except TypeError:  # an annotation that is not hashable
        return []


def _check_may_be_array(name: str, value: Any, annotation: Any) -> None:
    """Check that an array is of an annotation whose types are not checked."""
    if _may_be_array(value, annotation):
        return
    # The type without its modules: `Task | None`
    description = re.sub(r"[\w.]+\.(?=\w)", "", inspect.formatannotation(annotation))
    raise ValueError(f"{name} is {shown(value)}; it must be {article(description)} {description}.")


def _may_be_array(value: Any, annotation: Any) -> bool:
    origin = get_origin(annotation)
    # The arguments and the result of a function may be arrays, the function not
    if origin is Callable:
        return False
    members = [member for member in get_args(annotation) if member is not Ellipsis]
    if members:
        return any(_may_be_array(value, member) for member in members)
    if is_scalar(annotation, value):
        return True
    is_open = annotation in (Any, object, inspect.Parameter.empty) or not isinstance(annotation, type)
    return is_open or hasattr(annotation, "__array__") or hasattr(annotation, "dim_str")


def _check_type(name: str, value: Any, types: list[Any]) -> None:
    if any(has_type(value, kind) for kind in types):
        return
    # If only certain strings are valid, the error lists them like `check_choice`
    choices = [choice for kind in types for choice in get_args(kind)]
    only_choices = all(get_origin(kind) is Literal or kind is NoneType for kind in types)
    if isinstance(value, str) and choices and only_choices:
        raise ValueError(unknown_choice(name, value, choices))
    descriptions = dict.fromkeys(description for kind in types for description in words_of(kind))
    raise ValueError(f"{name} is {shown(value)}; it must be {' or '.join(descriptions)}.")
