"""From the frame of a measure to its measurement: the number that is judged, the table, and the default chart.

A measure returns a frame, one row a model, seed or setting; the `judged` of its claim, one of
`case_studies/recipes/judges.py`, says which column is judged and how.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from case_studies.frame.measurement import Measurement
from hooks.checks import did_you_mean
from interp.core.intervals import Interval
from interp.view.charts import dots

SEEDS, SEED = "seeds", "seed"
"""The unit that counts seeds, and the column that names them."""
MOST_POINTS = 60
"""Most rows of a default chart; labels of more cannot be read."""


@dataclass(frozen=True, kw_only=True)
class Readings:
    """What a measure returns if the page shows more than the table of its frame.

    Raises:
        ValueError: a frame without rows or with a column twice.

    Example:
        >>> readings = Readings(frame=pd.DataFrame({"seed": [0, 1], "accuracy": [0.5, 0.75]}), note="Two models.")
        >>> len(readings.frame)
        2
    """

    frame: pd.DataFrame
    """One row a model, seed or setting; columns are named for the reader. Columns `low` and `high` are the interval of
    a row, shown as one column."""
    table: pd.DataFrame | None = None
    """What the page shows of the frame, where that is long; default: all of it."""
    title: str = ""
    """Title of its table; default: the quantity of the claim."""
    numbers: Mapping[str, Any] = field(default_factory=dict)
    """Further figures by name, which the rule may judge too."""
    tables: Sequence[tuple[str, Any]] = ()
    """Title and frame of each further table."""
    charts: Sequence[Any] = ()
    """Charts; default: the judged column, one point a row."""
    note: str = ""
    """Caveats of this measurement, and differences from the paper."""

    def __post_init__(self):
        if not len(self.frame):
            raise ValueError("the frame has no rows; give one for each model, seed or setting, also those not judged.")
        twice = self.frame.columns[self.frame.columns.duplicated()]
        if len(twice):
            raise ValueError(f"the frame has the column {twice[0]!r} twice; rename one.")


@dataclass(frozen=True)
class Judge(ABC):
    """How the judged number is computed from the frame of a measure.

    Raises:
        ValueError: of `measurement`, if the frame lacks a column or a number, no row is judged, or a seed has two rows.
    """

    unit: str = field(kw_only=True)
    """The unit that n counts: models, seeds. A seed has one judged row if the unit is `seeds`."""
    where: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    """Values of columns in the judged rows; other rows are shown only."""
    without_rows: tuple[float, float, float] | None = field(default=None, kw_only=True)
    """Value and interval if no row is judged; None: an error."""

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads; the first has the judged numbers."""

    @abstractmethod
    def interval(self, rows: pd.DataFrame, *, seed: int) -> Interval:
        """The judged number of the judged rows.

        Args:
            rows: These rows, without missing numbers.
            seed: Determines random draws, as of a bootstrap.
        """

    def numbers(self, rows: pd.DataFrame) -> dict[str, Any]:
        """Further figures of the judged rows, by name."""
        return {}

    def rows(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The judged rows of a frame, after a check of the columns that are read."""
        # All columns that it reads exist
        for column in (*self.where, *self.columns):
            if column not in frame:
                hint = did_you_mean(column, map(str, frame.columns))
                names = ", ".join(map(repr, frame.columns))
                raise ValueError(f"the judged column {column!r} is not in the frame, which has {names}.{hint}")
        rows = frame
        for column, value in self.where.items():
            rows = rows.loc[rows[column].to_numpy() == value]
        if not len(rows):
            if self.without_rows is not None:
                return rows
            conditions = " and ".join(f"{column} {value!r}" for column, value in self.where.items())
            raise ValueError(f"no row of the frame has {conditions}; change where, or give without_rows.")
        # A missing number would be left out of a mean without a word
        for column in self.columns:
            missing = rows[column].isna().to_numpy()
            if missing.any():
                row = rows.iloc[int(missing.argmax())].to_dict()
                raise ValueError(
                    f"the judged column {column!r} has no number in the row {row}; give one, or exclude the row by "
                    "where."
                )
        seeds = Counter(rows[SEED].tolist() if self.unit == SEEDS and SEED in rows else ())
        for seed, count in seeds.most_common(1):
            if count == 1:
                break
            raise ValueError(
                f"the frame has {count} judged rows of seed {seed}, and seeds are the unit; give one row a seed, or "
                "choose rows by where."
            )
        return rows

    def measurement(
        self,
        readings: Readings,
        *,
        seed: int,
        quantity: str = "",
        value_range: tuple[float, float] | None = None,
        bars: Sequence[float] = (),
    ) -> Measurement:
        """The measurement of a frame: its judged number with n and unit, its table, and its charts.

        Args:
            readings: The frame and what is shown besides.
            seed: Determines random draws.
            quantity: Name of the judged number, for the title of table and chart.
            value_range: Ends of the axis of the default chart; default: those of the numbers.
            bars: Thresholds of the rule; the default chart has a dashed line at the first.

        Raises:
            ValueError: see the class.
        """
        rows = self.rows(readings.frame)
        if len(rows):
            interval = self.interval(rows, seed=seed)
            numbers = self.numbers(rows)
        else:
            assert self.without_rows is not None
            value, low, high = map(np.array, self.without_rows)
            interval, numbers = Interval(value=value, low=low, high=high, n=0), {}
        judged_where = {column: value for column, value in self.where.items() if not isinstance(value, bool)}
        charts = readings.charts
        drawn = len(rows) and pd.api.types.is_numeric_dtype(rows[self.columns[0]].infer_objects())
        if not charts and drawn and 1 < len(rows) <= MOST_POINTS:
            charts = [self._chart(rows, quantity=quantity, value_range=value_range, bars=bars)]
        title = readings.title or f"{quantity[:1].upper()}{quantity[1:]}" or "What was measured"
        return Measurement.from_interval(
            interval,
            unit=self.unit,
            exact=interval.exact,
            numbers={**judged_where, **numbers, **readings.numbers},
            tables=[(title, readings.frame if readings.table is None else readings.table), *readings.tables],
            charts=charts,
            note=readings.note,
        )

    def _chart(
        self, rows: pd.DataFrame, *, quantity: str, value_range: tuple[float, float] | None, bars: Sequence[float]
    ) -> Any:
        """The judged numbers, one point a row, labelled by the columns before the judged one."""
        column = self.columns[0]
        values = rows[column].astype(float)
        place = rows.columns.get_loc(column)
        labels = rows.iloc[:, :place].astype(str).agg(", ".join, axis=1) if place else rows.index.astype(str)
        name = ", ".join(map(str, rows.columns[:place])) or "row"
        ends = {end: rows[end].astype(float) if end in rows else values for end in ("low", "high")}
        table = pd.DataFrame({name: labels, column: values, **ends})
        numbers = [*table["low"], *table["high"], *bars[:1]]
        finite = [number for number in numbers if abs(number) < float("inf")]
        return dots(
            table,
            x=name,
            y=column,
            rule=float(bars[0]) if bars else None,
            domain=value_range or (min(0.0, *finite), max(0.0, *finite)),
            title=f"{quantity or column}, {len(rows)} rows" + ("; dashed: the rule's threshold" if bars else ""),
        )
