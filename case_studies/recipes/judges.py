"""How claims judge the frames of their measures, as values: the columns, an estimate and its interval.

Intervals are those of `intervals.py`. A frame that has intervals already, one a row, is judged by `Row`.

Example:
    >>> from case_studies.frame.judge import Readings
    >>> frame = pd.DataFrame({"seed": [0, 1, 2], "with": [0.9, 0.8, 1.0], "without": [0.5, 0.6, 0.5]})
    >>> judged = PairedDifference("with", "without", unit="seeds").measurement(Readings(frame=frame), seed=0)
    >>> print(round(judged.value, 3), judged.n, judged.unit)
    0.367 3 seeds
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd
from jaxtyping import Float

from case_studies.frame.judge import Judge
from case_studies.recipes.intervals import (
    as_interval,
    bootstrap_interval,
    correlation,
    difference_interval,
    geometric_interval,
    proportion,
    t_interval,
)
from hooks.checks import check_choice
from interp.core.intervals import Interval

Extreme = Literal["largest", "smallest"]
NOTHING_KNOWN = (0.0, -math.inf, math.inf)
"""A difference if no unit is judged."""


def _numbers(rows: pd.DataFrame, column: str) -> Float[np.ndarray, " row"]:
    return rows[column].to_numpy(dtype=float)


@dataclass(frozen=True)
class _Resolved(Judge):
    """A judge of values that change in steps, so that equal values have an interval too."""

    resolution: float | str = field(default=0.0, kw_only=True)
    """Step of the values; or the column that has it, of which the largest counts."""
    share_of: str = field(default="", kw_only=True)
    """Column with the number of answers of which each value is a share: the step is one of the fewest."""

    @property
    def step_columns(self) -> tuple[str, ...]:
        """The columns that the step is read from."""
        names = (self.resolution if isinstance(self.resolution, str) else "", self.share_of)
        return tuple(name for name in names if name)

    def step(self, rows: pd.DataFrame) -> float:
        """The step of these rows."""
        if self.share_of:
            return 1 / int(_numbers(rows, self.share_of).min())
        return float(_numbers(rows, self.resolution).max()) if isinstance(self.resolution, str) else self.resolution


@dataclass(frozen=True)
class Mean(_Resolved):
    """The mean of a column with its t interval."""

    column: str

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column, *self.step_columns)

    def interval(self, rows: pd.DataFrame, *, seed: int) -> Interval:
        return t_interval(_numbers(rows, self.column), resolution=self.step(rows))

    def numbers(self, rows: pd.DataFrame) -> dict[str, Any]:
        return {f"lowest {self.column}": rows[self.column].min(), f"highest {self.column}": rows[self.column].max()}


@dataclass(frozen=True)
class BootstrapMean(Mean):
    """The mean of a column with its percentile bootstrap interval."""

    def interval(self, rows: pd.DataFrame, *, seed: int) -> Interval:
        return bootstrap_interval(_numbers(rows, self.column), seed=seed, resolution=self.step(rows))


@dataclass(frozen=True)
class GeometricMean(Judge):
    """The geometric mean of a column of positive numbers, with the t interval of its logarithm."""

    column: str

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def interval(self, rows: pd.DataFrame, *, seed: int) -> Interval:
        return geometric_interval(np.log(_numbers(rows, self.column)))

    def numbers(self, rows: pd.DataFrame) -> dict[str, Any]:
        return {f"lowest {self.column}": rows[self.column].min(), f"highest {self.column}": rows[self.column].max()}


@dataclass(frozen=True)
class PairedDifference(_Resolved):
    """The mean of one column minus another in the same row, with its t interval."""

    column: str
    minus: str

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column, self.minus, *self.step_columns)

    def differences(self, rows: pd.DataFrame) -> Float[np.ndarray, " row"]:
        """One column minus the other."""
        return _numbers(rows, self.column) - _numbers(rows, self.minus)

    def interval(self, rows: pd.DataFrame, *, seed: int) -> Interval:
        return t_interval(self.differences(rows), resolution=self.step(rows))

    def numbers(self, rows: pd.DataFrame) -> dict[str, Any]:
        """The mean of each of the two columns, by its name."""
        return {column: float(_numbers(rows, column).mean()) for column in (self.column, self.minus)}


@dataclass(frozen=True)
class BootstrapDifference(PairedDifference):
    """The mean of one column minus another in the same row, with its percentile bootstrap interval."""

    def interval(self, rows: pd.DataFrame, *, seed: int) -> Interval:
        return bootstrap_interval(self.differences(rows), seed=seed, resolution=self.step(rows))


@dataclass(frozen=True)
class PairedRatio(Judge):
    """The geometric mean of one column over another in the same row, with the t interval of its logarithm."""

    column: str
    over: str

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column, self.over)

    def interval(self, rows: pd.DataFrame, *, seed: int) -> Interval:
        return geometric_interval(np.log(_numbers(rows, self.column) / _numbers(rows, self.over)))


@dataclass(frozen=True)
class ArmDifference(_Resolved):
    """The mean of a column in one arm minus that in another, with Welch's t interval; arms are not paired.

    An arm has several rows of a seed if its models do: n is that of the smaller arm. `without_rows` is the result if an
    arm has none.
    """

    column: str
    arm: str
    """The column that names the arm of a row."""
    arms: tuple[str, str]
    """The two arms, the second of which is subtracted."""

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column, self.arm, *self.step_columns)

    def _values(self, rows: pd.DataFrame) -> list[Float[np.ndarray, " model"]]:
        """The values of each arm."""
        values = [_numbers(rows.loc[rows[self.arm].to_numpy() == name], self.column) for name in self.arms]
        for name, numbers in zip(self.arms, values, strict=True):
            if not len(numbers) and self.without_rows is None:
                names = ", ".join(map(repr, rows[self.arm].unique()))
                raise ValueError(
                    f"no judged row has {self.arm} {name!r}, only {names}; change arms, or give rows of it."
                )
        return values

    def interval(self, rows: pd.DataFrame, *, seed: int) -> Interval:
        values = self._values(rows)
        if self.without_rows is not None and not all(map(len, values)):
            return as_interval(*self.without_rows, 0)
        return difference_interval(*values, resolution=self.step(rows))

    def numbers(self, rows: pd.DataFrame) -> dict[str, Any]:
        arms = zip(self.arms, self._values(rows), strict=True)
        return {f"mean {self.column}, {name}": float(values.mean()) for name, values in arms if len(values)}


@dataclass(frozen=True)
class Share(Judge):
    """The share of rows in which a column has a value, with its exact interval."""

    column: str
    counted: Any = True
    """The value that counts."""
    undecided: Any = field(default=None, kw_only=True)
    """The value of rows that may count or not: the upper end is that of the share if all of them did."""

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def interval(self, rows: pd.DataFrame, *, seed: int) -> Interval:
        values = rows[self.column].to_numpy()
        wrong = next((value for value in values if value not in (False, True)), None)
        if self.counted is True and wrong is not None:
            raise ValueError(
                f"the judged column {self.column!r} has the value {wrong}; give true and false, or the value that is "
                "counted."
            )
        counted = int((values == self.counted).sum())
        undecided = 0 if self.undecided is None else int((values == self.undecided).sum())
        share = proportion(counted, len(values))
        high = float(proportion(counted + undecided, len(values)).high)
        return as_interval(float(share), float(share.low), high, len(values))


@dataclass(frozen=True)
class Correlation(Judge):
    """Spearman's rank correlation of two columns, with its percentile bootstrap interval."""

    column: str
    against: str

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column, self.against)

    def interval(self, rows: pd.DataFrame, *, seed: int) -> Interval:
        return correlation(_numbers(rows, self.column), _numbers(rows, self.against), seed=seed)


@dataclass(frozen=True)
class Row(Judge):
    """One row that has its interval: the only one, or that in which a column is largest or smallest.

    For a worst case of several intervals, and for an interval that an analysis gives.
    """

    column: str
    """The column of the estimate."""
    by: str = ""
    """The column by which the row is chosen, such as `high`; the first of equal rows is judged. Default: `column`."""
    extreme: Extreme = "largest"
    units: str = field(default="n", kw_only=True)
    """The column with the number of units of each row."""
    low: str = field(default="low", kw_only=True)
    high: str = field(default="high", kw_only=True)
    exact: bool = field(default=False, kw_only=True)
    """Whether the estimate has no sampling error, so that the frame has no ends of intervals."""

    def __post_init__(self):
        check_choice("extreme", self.extreme, Extreme)

    @property
    def columns(self) -> tuple[str, ...]:
        ends = () if self.exact else (self.low, self.high)
        return tuple(dict.fromkeys((self.column, *ends, self.units, *([self.by] if self.by else []))))

    def chosen(self, rows: pd.DataFrame) -> Mapping[str, Any]:
        """The judged row."""
        values = _numbers(rows, self.by or self.column)
        return rows.iloc[int(values.argmax() if self.extreme == "largest" else values.argmin())].to_dict()

    def interval(self, rows: pd.DataFrame, *, seed: int) -> Interval:
        row = self.chosen(rows)
        value, n = float(row[self.column]), int(row[self.units])
        if self.exact:
            return as_interval(value, value, value, n).as_exact()
        return as_interval(value, float(row[self.low]), float(row[self.high]), n)

    def numbers(self, rows: pd.DataFrame) -> dict[str, Any]:
        """The columns before the judged one, which name the row, if it was chosen among several."""
        if len(rows) == 1:
            return {}
        row = self.chosen(rows)
        labels = rows.columns[: rows.columns.get_loc(self.column)]
        return {f"judged: {name}": row[name] for name in labels}
