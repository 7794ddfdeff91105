"""What the measure of a claim found: a number, its interval, n, and what the page shows.

Intervals are computed in `case_studies/recipes/intervals.py`.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import pandas as pd

from interp.core.intervals import Interval

LOW, HIGH, INTERVAL_COLUMN = "low", "high", "95 %"
"""Columns of a frame with the ends of an interval, and the name of the column that shows them."""
YES_NO = {True: "yes", False: "no"}
DIGITS = 4
"""Significant digits of fractions in charts; integers, and numbers that a rule may judge, are not rounded."""
DIGITS_BELOW_ONE = 3
"""The same for fractions below 1 in size."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """The result of a claim's measure, converted to plain values that can be stored as JSON.

    Raises:
        ValueError: a value that is not finite, an interval whose ends are swapped or coincide without `exact`, n below
            1, or an entry of `numbers` that is not a plain value.
    """

    value: float
    """The number that the rule judges."""
    low: float
    """Lower end of its 95 % interval; -inf if the units say nothing about it."""
    high: float
    """Upper end."""
    n: int
    """Number of independent units."""
    unit: str
    """The unit that `n` counts: seeds, sequences ..."""
    exact: bool = False
    """Whether the value has no sampling error, so that its interval has no width: arithmetic, a largest error."""
    numbers: Mapping[str, Any] = field(default_factory=dict)
    """Further figures by name: numbers, strings, lists, None. The rule may judge these too."""
    tables: Sequence[tuple[str, pd.DataFrame | Sequence[Sequence[Any]]]] = ()
    """Title of each table, and its frame, or its rows as they are stored, of which the first is the header."""
    charts: Sequence[Any] = ()
    """Altair charts, or Vega-Lite as dicts; stored as dicts, with fractions of three or four digits."""
    note: str = ""
    """Caveats of this measurement, and differences from the paper."""

    def __post_init__(self):
        # A finite value and an interval that is not a point
        for name in ("value", "low", "high"):
            number = float(getattr(self, name))
            if math.isnan(number) or (name == "value" and math.isinf(number)):
                raise ValueError(f"{name} is {number}; a measurement needs finite numbers.")
            object.__setattr__(self, name, number)
        if self.low > self.high:
            raise ValueError(f"the interval goes from low {self.low} to high {self.high}; swap them.")
        if self.low == self.high and not self.exact:
            raise ValueError(
                f"the interval is the point {self.low}; give the function that computes it the resolution of the "
                "values, or give exact=True for a number without sampling error."
            )
        if int(self.n) != self.n or self.n < 1:
            raise ValueError(f"n is {self.n}; give the number of independent {self.unit}, at least 1.")
        # Plain values in place of arrays, table cells and charts
        object.__setattr__(self, "n", int(self.n))
        object.__setattr__(self, "numbers", {name: _plain(value, name) for name, value in self.numbers.items()})
        tables = [(title, [[_cell(cell) for cell in row] for row in table_rows(rows)]) for title, rows in self.tables]
        object.__setattr__(self, "tables", tuple(tables))
        charts = [chart if isinstance(chart, Mapping) else json.loads(chart.to_json()) for chart in self.charts]
        object.__setattr__(self, "charts", tuple(rounded(chart) for chart in charts))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; an unbounded end is None."""
        values = {column.name: getattr(self, column.name) for column in fields(self)}
        for name in ("low", "high"):
            if math.isinf(values[name]):
                values[name] = None
        return values

    @classmethod
    def from_interval(cls, interval: Interval, *, unit: str, **fields: Any) -> "Measurement":
        """The measurement of an estimate with its interval.

        Args:
            interval: The estimate; if there were no units to estimate it from, n is stored as 1.
            unit: The unit that its n counts.
            **fields: Other fields of the measurement, such as `tables`.
        """
        value, low, high = interval.floats()
        return cls(value=value, low=low, high=high, n=max(1, int(interval.n)), unit=unit, **fields)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Measurement":
        """The inverse of `to_dict`, also after a round trip through JSON."""
        values = dict(values)
        for name, end in (("low", -math.inf), ("high", math.inf)):
            if values[name] is None:
                values[name] = end
        return cls(**values)


def table_rows(table: pd.DataFrame | Sequence[Sequence[Any]]) -> Sequence[Sequence[Any]]:
    """Header and rows of a table as shown: columns `low` and `high` of a frame become one, the interval."""
    if not isinstance(table, pd.DataFrame):
        return table
    columns = list(table.columns)
    if not {LOW, HIGH} <= set(columns):
        rows = table.itertuples(index=False, name=None)
        return [columns, *([YES_NO[bool(cell)] if _is_bool(cell) else cell for cell in row] for row in rows)]
    shown = table.assign(**{LOW: [_ends(low, high) for low, high in zip(table[LOW], table[HIGH], strict=True)]})
    return table_rows(shown.drop(columns=HIGH).rename(columns={LOW: INTERVAL_COLUMN}))


def _is_bool(cell: Any) -> bool:
    return isinstance(cell, bool | np.bool_)


def _ends(low: float, high: float) -> str:
    """The ends of an interval as text; empty if they are missing."""
    return "" if math.isnan(low) or math.isnan(high) else f"[{low:.4g}, {high:.4g}]"


def rounded_interval(value: float, low: float, high: float) -> tuple[str, str, str]:
    """A number and the ends of its interval as text, rounded to two significant digits of the interval's width."""
    width = high - low
    # Without a width, four significant digits
    if width <= 0 or math.isinf(width):
        return f"{value:.4g}", f"{low:.4g}", f"{high:.4g}"
    decimals = min(max(1 - math.floor(math.log10(width)), 0), 8)
    return f"{value:,.{decimals}f}", f"{low:,.{decimals}f}", f"{high:,.{decimals}f}"


def interval_text(value: float, low: float, high: float) -> str:
    """A number as text, followed by its interval unless that has no width."""
    number, low_text, high_text = rounded_interval(value, low, high)
    return f"{number} [{low_text}, {high_text}]" if low < high else number


def rounded(value: Any) -> Any:
    """The same plain value with its fractions rounded."""
    if isinstance(value, float):
        digits = DIGITS_BELOW_ONE if abs(value) < 1 else DIGITS
        return value if value.is_integer() else float(f"{value:.{digits}g}")
    if isinstance(value, Mapping):
        return {name: rounded(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [rounded(entry) for entry in value]
    return value


def _plain(value: Any, name: str) -> Any:
    """An entry of `numbers` as a plain value; a fraction that is not finite is None.

    Raises:
        ValueError: a value that JSON cannot hold.
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(entry, f"{name}.{key}") for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry, f"{name}[{index}]") for index, entry in enumerate(value)]
    raise ValueError(f"numbers[{name!r}] is a {type(value).__name__}; give numbers, strings, lists or None.")


def _cell(value: Any) -> str:
    """A cell of a table as text."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
