"""The table of a verb on every model of a sweep, and means over seeds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from hooks.typed import DISTINCT
from interp.core.consistency import check_known
from interp.core.statistics import t_half_width
from interp.sweeps.grid import SEED
from interp.sweeps.tables import VerbTable

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class SweepTable(VerbTable):
    """The table of a verb on every model of a sweep; what varies comes first in it."""

    varies: Annotated[tuple[str, ...], DISTINCT]
    """Columns that name models; `seed` is last."""
    skipped: tuple[tuple[str, str], ...] = ()
    """Models that the verb refused, and why."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_known("varies", self.varies, self.columns, "columns")

    def over_seeds(self, value: str, by: Sequence[str] = ()) -> "pd.DataFrame":
        """Mean of a column over seeds with its interval (t), for each combination of what varies.

        Args:
            value: Column of numbers.
            by: Further columns that name rows, such as `target`, or `layer` and `head`.

        Raises:
            ValueError: an unknown column, or several rows of one seed that `by` does not distinguish.
        """
        for name in (value, *by):
            self.check_column(name)
        names = [name for name in self.varies if name != SEED] + list(by)
        table: Any = self.to_dataframe()
        # The rows over which a mean is taken are seeds, once each
        if table.duplicated([*names, SEED]).any():
            unused = [name for name in self.columns if name not in (*self.varies, *by, value)]
            raise ValueError(f"one seed has several rows; give by= columns that distinguish them: {', '.join(unused)}.")
        return over_seeds(table, names, value)

    def __str__(self) -> str:
        table: Any = self.to_dataframe()
        lines = [f"{self.verb}: {len(table)} rows of {', '.join(self.columns)}"]
        if self.skipped:
            lines.append(f"not for {len(self.skipped)} models, such as {self.skipped[0][0]}: {self.skipped[0][1]}")
        return "\n".join(lines)


def in_words(labels: Mapping[str, Any]) -> str:
    """Labels of a model as text: `learning_rate 0.001, seed 3`."""
    return ", ".join(f"{name} {value}" for name, value in labels.items())


def over_seeds(
    table: Any, by: Sequence[str], value: str, *, within: tuple[float, float] = (-np.inf, np.inf)
) -> "pd.DataFrame":
    """Columns `by`, `mean`, `low`, `high` and `n`: a mean over rows with its t interval; NaN ends for a single row.

    Args:
        table: Rows.
        by: Columns that name combinations.
        value: Column of numbers.
        within: Range of the numbers, in which the interval stays.
    """
    import pandas as pd

    groups = table.groupby(list(by), sort=False, dropna=False) if by else [((), table)]
    # A mean needs one finite value, an interval two
    rows = []
    for label, group in groups:
        values = group[value].to_numpy(dtype=float)
        values = values[np.isfinite(values)]
        mean = float(values.mean()) if len(values) else np.nan
        half_width = float(t_half_width(values[:, None])[0]) if len(values) > 1 else np.nan
        low, high = np.clip([mean - half_width, mean + half_width], *within)
        rows.append((*label, mean, float(low), float(high), len(values)))
    return pd.DataFrame(rows, columns=[*by, "mean", "low", "high", "n"])
