"""Estimates with their confidence intervals: the one type that results use."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from hooks.checks import shown
from hooks.typed import ROUNDING

if TYPE_CHECKING:
    Ends = Float[np.ndarray, "*cells"]
else:
    Ends = Any  # numbers too, which become arrays when an interval is made


@dataclass(frozen=True, kw_only=True, eq=False)
class Interval(np.lib.mixins.NDArrayOperatorsMixin):
    """Estimates, the ends of their confidence intervals, and the sample size behind each.

    It otherwise acts as the array of its values: in arithmetic and comparisons, and with all methods of an array
    (`accuracy.mean()`, `accuracy.shape`). `interval[index]` selects cells of all fields.

    An exact interval has no sampling error, since every input was counted: both ends are the value.

    Raises:
        ValueError: ends of another shape than the estimates, an end or an estimate that is missing alone, or estimates
            outside their intervals; an exact interval with ends that are not the value; an n that is not a whole
            number.

    Example:
        >>> import numpy as np
        >>> accuracy = Interval(value=np.array([0.5, 0.9]), low=np.array([0.4, 0.8]), high=np.array([0.6, 1.0]), n=96)
        >>> print(accuracy[1].text(digits=1), accuracy.max(), (accuracy > 0.7).tolist())
        0.9 [0.8, 1.0] 0.9 [False, True]
        >>> print(accuracy[1].as_exact().text(digits=1))
        0.9 (exact)
    """

    value: Ends
    """The estimates, of any shape."""
    low: Ends
    """Lower ends, of the same shape."""
    high: Ends
    """Upper ends, of the same shape."""
    n: int | Int[np.ndarray, "*#cells"]
    """Independent units behind each estimate; if exact, the number of all inputs."""
    exact: bool = False
    """Every input was counted, so that there is no sampling error."""

    def __post_init__(self) -> None:
        # Numbers, all of one shape
        for name in ("value", "low", "high"):
            ends = np.asarray(getattr(self, name))
            if ends.dtype.kind not in "fiu":
                raise ValueError(f"{name} is {shown(getattr(self, name))}; it must be numbers.")
            object.__setattr__(self, name, ends.astype(float))
        if not self.value.shape == self.low.shape == self.high.shape:
            shapes = f"{self.value.shape}, {self.low.shape} and {self.high.shape}"
            raise ValueError(f"value, low and high have the shapes {shapes}; they must have the same.")
        # Both ends are missing, or none; and both if the estimate is
        lacks_an_end = np.isnan(self.low) != np.isnan(self.high)
        if lacks_an_end.any():
            raise ValueError(f"one of its ends is missing, at {np.argwhere(lacks_an_end)[0].tolist()}.")
        lacks_value = np.isnan(self.value) & ~np.isnan(self.low)
        if lacks_value.any():
            place = tuple(np.argwhere(lacks_value)[0])
            ends = f"[{float(self.low[place]):g}, {float(self.high[place]):g}]"
            raise ValueError(f"value is missing, but its interval is {ends}; without an estimate there is no interval.")
        # Every estimate is within its interval, up to rounding
        margin = ROUNDING * (1 + np.abs(self.value))
        outside = (self.value < self.low - margin) | (self.value > self.high + margin) | (self.low > self.high + margin)
        if outside.any():
            place = tuple(np.argwhere(outside)[0])
            number, low, high = (float(ends[place]) for ends in (self.value, self.low, self.high))
            raise ValueError(f"value is {number:g}, outside its interval [{low:g}, {high:g}].")
        self._check_n()
        if self.exact:
            for name in ("low", "high"):
                if not np.array_equal(getattr(self, name), self.value, equal_nan=True):
                    raise ValueError(f"exact is True, but {name} differs from value; an exact interval has no width.")

    def _check_n(self) -> None:
        """Check that n has whole numbers, one for all cells or one for each."""
        n = np.asarray(self.n)
        if n.dtype.kind not in "iu" or (n < 0).any():
            raise ValueError(f"n is {shown(self.n)}; it must be integers from 0 on.")
        if n.ndim > self.value.ndim or np.broadcast_shapes(n.shape, self.value.shape) != self.value.shape:
            raise ValueError(f"n has the shape {n.shape}, which does not fit the shape {self.value.shape} of value.")

    def check_numbers(self, check: Callable[[np.ndarray, str], None], name: str) -> None:
        """Check estimates and ends by the range of the field that has this interval; ends may be missing.

        Args:
            check: Raises an error for numbers out of range, given their name.
            name: Name of the field.
        """
        check(self.value, name)
        for end in ("low", "high"):
            numbers = getattr(self, end)
            check(numbers[~np.isnan(numbers)], f"{name}.{end}")

    @property
    def half_width(self) -> float:
        """Half the width of the widest interval; NaN if all are missing."""
        widths = self.high - self.low
        return float(np.nanmax(widths) / 2) if np.isfinite(widths).any() else float("nan")

    def __getattr__(self, name: str) -> Any:
        # Python looks for special methods on objects without fields too, as when an interval is copied
        if name.startswith("__") or "value" not in vars(self):
            raise AttributeError(f"an Interval has no {name}")
        return getattr(self.value, name)

    def __len__(self) -> int:
        return len(self.value)

    def __getitem__(self, index: Any) -> "Interval":
        value, low, high = (np.asarray(ends[index]) for ends in (self.value, self.low, self.high))
        n = np.asarray(np.broadcast_to(self.n, self.shape)[index])
        return Interval(value=value, low=low, high=high, n=n, exact=self.exact)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.value, dtype=dtype, copy=bool(copy) or dtype is not None)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        arrays = [array.value if isinstance(array, Interval) else array for array in inputs]
        return getattr(ufunc, method)(*arrays, **options)

    def __float__(self) -> float:
        return float(self.value)

    def floats(self) -> tuple[float, float, float]:
        """A single estimate and the ends of its interval.

        Raises:
            ValueError: several estimates.
        """
        if self.value.size != 1:
            raise ValueError(f"the interval has shape {self.shape}; choose one cell, as in interval[0].")
        return float(self.value.item()), float(self.low.item()), float(self.high.item())

    def text(self, digits: int = 3) -> str:
        """A single estimate followed by the ends of its interval, or by "(exact)" or "(no interval)".

        Raises:
            ValueError: several estimates.
        """
        value, low, high = self.floats()
        if self.exact:
            return f"{value:z.{digits}f} (exact)"
        if np.isnan(low) and np.isfinite(value):
            return f"{value:z.{digits}f} (no interval)"
        return f"{value:z.{digits}f} [{low:z.{digits}f}, {high:z.{digits}f}]"

    def __str__(self) -> str:
        return np.array2string(self.value, precision=3) if self.value.ndim else self.text()

    def __format__(self, format_spec: str) -> str:
        return format(float(self), format_spec) if format_spec else str(self)

    def subtracted_from(self, value: float | Float[np.ndarray, "*#cells"]) -> "Interval":
        """A known value minus the estimates, as for accuracy from drops of accuracy: the ends change places."""
        ends = {"low": value - self.high, "high": value - self.low}
        return Interval(value=value - self.value, **ends, n=self.n, exact=self.exact)

    def as_exact(self) -> "Interval":
        """The same values without sampling error, for estimates from every input of a task."""
        return replace(self, low=self.value, high=self.value, exact=True)

    def columns(self, name: str, low: str = "low", high: str = "high") -> dict[str, Float[np.ndarray, "*cells"]]:
        """Estimates and ends by column name, for tables; if exact, both ends are the estimates."""
        return {name: self.value, low: self.low, high: self.high}


INTERVAL_FIELDS = ("value", "low", "high", "n")
"""Names of the fields by which a saved interval is recognised."""


def is_saved_interval(entries: Mapping[str, Any]) -> bool:
    """Whether saved values by name are those of an interval."""
    return set(entries) - {"exact"} == set(INTERVAL_FIELDS)
