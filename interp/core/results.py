"""Base class of results: saving and loading as JSON, and display in notebooks."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import numpy as np
from jaxtyping import Int

from hooks.checks import shown
from hooks.files import Unreadable, read_json, reading, shortened, write_json
from hooks.typed import COUNT, MAY_BE_INFINITE, check_record, restored
from interp.core.consistency import check_that
from interp.core.environment import Environment, environment
from interp.core.intervals import Interval, is_saved_interval

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

FLOAT = Annotated[float, MAY_BE_INFINITE]
ELEMENTS: Mapping[str, Any] = {"float": FLOAT, "int": int, "uint": Annotated[int, COUNT], "bool": bool, "U": str}
"""Types of the elements of a saved array, by the name of its dtype."""
MADE = "made"
"""Entry of a saved result with the versions, hardware and threads of the process that saved it first."""
NOT_SAVED = {"saved": False}
"""Metadata of a field that is not saved, such as a model."""
MOST_LINES = 24
"""Largest number of rows of a result that are printed; of more, those with the largest effects."""
MOST_PANELS = 6
"""Largest number of targets that are drawn one by one; of more, the mean."""
AnyResult = TypeVar("AnyResult", bound="Result")  # not `Self`, which the shape checker cannot read


def plots_offline(plot: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Make the chart that a `plot` method returns one that is displayed and saved without a network."""

    @wraps(plot)
    def plot_offline(self: Any) -> Any:
        from interp.view.offline import offline

        return offline(plot(self))

    return plot_offline


class Result:
    """Base of the frozen result dataclasses. Fields are numbers, text, plain collections or arrays.

    A field with the metadata `NOT_SAVED` is None in a loaded result. Charts of `plot` need no network.

    Fields are checked by their annotations when a result is made and when it is loaded; `hooks.typed` says how an
    annotation states ranges, missing numbers and the axes of tuples and intervals.
    """

    def __post_init__(self) -> None:
        """Check types, ranges and shapes, by the annotations of the fields; and that intervals are all exact or none,
        and of no larger samples than the result. Classes add what their fields say about each other.

        Raises:
            ValueError: a field that its annotation excludes, or that contradicts another one.
        """
        check_record(self)
        intervals = {name: value for name, value in vars(self).items() if isinstance(value, Interval)}
        exact = {interval.exact for interval in intervals.values()}
        check_that(len(exact) < 2, f"exact is True in one of {', '.join(intervals)} and False in another.")
        for name, interval in intervals.items():
            most = np.max(interval.n, initial=0)
            text = f"{name}.n is {most}, more than the sample of {self._sample_size}."
            check_that(self._sample_size is None or most <= self._sample_size, text)

    @property
    def _sample_size(self) -> int | None:
        """The largest sample behind any interval; None if no field has it."""
        return getattr(self, "n", None)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "plot" in vars(cls):
            setattr(cls, "plot", plots_offline(cls.plot))  # noqa: B010  # pyright would compare signatures
        # A prompt shows the printed table; the `repr` of a dataclass has every array
        if cls.__str__ is not object.__str__:
            setattr(cls, "__repr__", cls.__str__)  # noqa: B010
        # That of a dataclass cannot compare arrays
        setattr(cls, "__eq__", Result.__eq__)  # noqa: B010
        setattr(cls, "__hash__", Result.__hash__)  # noqa: B010

    def __eq__(self, value: object) -> bool:
        """Whether two results of one class have the same saved values, missing numbers included."""
        if type(value) is not type(self):
            return NotImplemented
        return self._saved_text() == value._saved_text()

    def __hash__(self) -> int:
        return hash(self._saved_text())

    def _saved_text(self) -> str:
        return json.dumps(self.to_dict())

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per measured cell."""
        raise NotImplementedError

    def _table(self, axes: Mapping[str, Sequence[Any]], *names: str, **further: Any) -> "pd.DataFrame":
        """A long table with one row per cell: a column for each axis, then the values.

        Args:
            axes: Name and labels of each axis, in order.
            names: Fields of the result, over these axes or the first of them (repeated along the others).
            further: Further columns by name, likewise.
        """
        import pandas as pd

        # The label of each axis at every cell
        shape = tuple(map(len, axes.values()))
        indices = np.indices(shape).reshape(len(shape), -1)
        columns = {}
        for (name, labels), index in zip(axes.items(), indices, strict=True):
            columns[name] = np.array(labels)[index]
        # The values at every cell, repeated along the axes that they do not have
        values = {name: getattr(self, name) for name in names} | further
        for name, value in values.items():
            cells = np.asarray(value)
            cells = cells.reshape(cells.shape + (1,) * (len(shape) - cells.ndim))
            columns[name] = np.broadcast_to(cells, shape).ravel()
        return pd.DataFrame(columns)

    def plot(self) -> "alt.TopLevelMixin":
        """The result as a chart."""
        raise NotImplementedError

    @property
    def _has_chart(self) -> bool:
        """Whether `plot` can be called without arguments."""
        return type(self).plot is not Result.plot

    def _repr_html_(self) -> str:
        from interp.view.figures import notebook_html

        has_table = type(self).to_dataframe is not Result.to_dataframe
        chart = self.plot() if self._has_chart else None
        return notebook_html(chart, self.to_dataframe() if has_table else None)

    def save(self, path: str | Path) -> None:
        """Write the result as JSON, atomically, with the versions, hardware and threads of this process.

        A loaded result keeps those that it was saved with.
        """
        write_json(path, self.to_dict() | {MADE: vars(self).get(MADE) or environment()})

    def replaced(self: AnyResult, **changes: Any) -> AnyResult:
        """A copy with other values of some fields, that says where this one was made."""
        result = replace(self, **changes)  # type: ignore[type-var]
        object.__setattr__(result, MADE, vars(self).get(MADE))
        return result

    def to_dict(self) -> dict[str, Any]:
        """The result as plain values, as `save` writes them."""
        values = {name: plain(getattr(self, name)) for name in self._saved_names()}
        return {"result": type(self).__name__, "version": 1, "values": values}

    @classmethod
    def _saved_names(cls) -> list[str]:
        return [f.name for f in fields(cls) if f.metadata.get("saved", True)]  # type: ignore[arg-type]

    @classmethod
    def load(cls: type[AnyResult], path: str | Path) -> AnyResult:
        """Read a result that `save` wrote.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: not JSON, another class of result, or a field that is unknown, missing, of another type or
                shape, or has a number out of range; names the file and the field.
        """
        content = read_json(path, "a saved result")
        with reading(path, "a saved result"):
            kind, values = content["result"], dict(content["values"])
            if kind != cls.__name__:
                kind = shortened(str(kind))
                raise Unreadable(f"{path} holds a {kind}, not a {cls.__name__}; use {kind}.load.")
            if content.get("version") != 1:
                raise Unreadable(
                    f"{path} has version {shown(content.get('version'))}; this unmyopic reads 1. Upgrade it."
                )
            if unknown := set(content) - {"result", "version", "values", MADE}:
                raise Unreadable(f"{path} has unknown entries {shown(sorted(unknown))}.")
            made = content.get(MADE)
            if made is not None:
                restored(Environment, made)
            values = {name: _rich(value, name) for name, value in values.items()}
            result = restored(cls, values)
        object.__setattr__(result, MADE, made)
        # What no annotation says: names in one field that another one must have
        with reading(path, f"a {kind} that can be shown: its fields do not fit together"):
            str(result)
            with suppress(NotImplementedError):
                result.to_dataframe()
        return result


def table_lines(rows: Sequence[Sequence[str]], *, n_left: int = 1) -> list[str]:
    """Rows of cells as lines of text, with columns as wide as their widest cell.

    >>> print(*table_lines([["head", "accuracy"], ["0.1", "0.5"]]), sep="\\n")
    head  accuracy
    0.1        0.5

    Args:
        rows: Cells of each row, the first of which names the columns.
        n_left: Number of columns, from the first on, whose cells begin at the left; those of others end at the right.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)]
        cells[:n_left] = [f"{cell:<{width}}" for cell, width in zip(row[:n_left], widths, strict=False)]
        lines.append("  ".join(cells).rstrip())
    return lines


def count_range(counts: Int[np.ndarray, "*cells"]) -> str:
    """The sample size of several cells as text: one number, or the least and the most."""
    least, most = int(counts.min()), int(counts.max())
    return str(most) if least == most else f"{least} to {most}"


def plain(value: Any) -> Any:
    """A value as JSON has it: lists for arrays and tuples, None for NaN, and the texts "inf" and "-inf"."""
    if isinstance(value, np.ndarray):
        values = value.astype(object)
        if value.dtype.kind == "f":
            values[np.isnan(value)] = None
            values[np.isinf(value)] = np.where(value[np.isinf(value)] > 0, "inf", "-inf")
        # an empty nested list loses the sizes of the other axes
        shape = {} if value.size else {"shape": list(value.shape)}
        return {"array": values.tolist(), "dtype": str(value.dtype), **shape}
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {key: plain(element) for key, element in value.items()}
    if isinstance(value, list | tuple):
        return [plain(element) for element in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return None if np.isnan(value) else str(value)
    return value


def _rich(value: Any, name: str) -> Any:
    """A value of `plain` as it was: arrays and intervals by their keys, tuples for lists.

    Raises:
        ValueError: an array that cannot be one; names the field.
    """
    if isinstance(value, dict) and {"array", "dtype"} <= set(value):
        return _array(value, name)
    if isinstance(value, dict):
        entries = {key: _rich(element, f"{name}.{key}") for key, element in value.items()}
        return _interval(entries, name) if is_saved_interval(entries) else entries
    if isinstance(value, list):
        return tuple(_rich(element, f"{name}[{index}]") for index, element in enumerate(value))
    return value


def _interval(entries: Mapping[str, Any], name: str) -> Interval:
    """A saved interval, whose numbers may be missing."""
    ends = {end: np.nan if entries[end] is None else entries[end] for end in ("value", "low", "high")}
    try:
        return Interval(**{**entries, **ends})
    except ValueError as error:
        raise ValueError(f"{name} cannot be an interval: {error}") from None


def _array(saved: Mapping[str, Any], name: str) -> np.ndarray:
    """An array of `plain`: every element must be one of its dtype."""
    if unknown := set(saved) - {"array", "dtype", "shape"}:
        raise ValueError(f"{name} has unknown entries {shown(sorted(unknown))}.")
    kind = saved["dtype"] if isinstance(saved["dtype"], str) else ""
    element_kind = ELEMENTS.get(kind.rstrip("0123456789").lstrip("<>=|"))
    if element_kind is None:
        raise ValueError(f"{name} has the dtype {shown(saved['dtype'])}; it must be one of numbers, booleans or text.")
    # Each element alone, then the array of their shape
    elements = np.array(saved["array"], dtype=object)
    for index, element in enumerate(elements.ravel()):
        restored(element_kind, element, f"{name}[{index}]")
    shape = restored(tuple[Annotated[int, COUNT], ...], saved.get("shape", elements.shape), f"{name}.shape")
    if element_kind is FLOAT:
        elements = np.where(elements == None, np.nan, elements)  # noqa: E711
    return elements.astype(kind).reshape(shape)
