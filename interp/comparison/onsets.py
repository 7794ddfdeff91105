"""Onsets: the first step from which a quantity stays above its null, with an interval over seeds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from jaxtyping import Bool, Float
from scipy import special

from hooks.typed import DISTINCT, MAY_BE_INFINITE, Axes, Range
from interp.core.consistency import check_that
from interp.core.results import Result
from interp.core.statistics import CONFIDENCE

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class Onsets(Result):
    """For each seed, the first snapshot from which a quantity stays above its null until the end of training."""

    verb: str
    value: str
    null: str
    """The null in words."""
    by: Annotated[tuple[str, ...], Axes("by"), DISTINCT]
    """Columns that name what has an onset."""
    labels: Annotated[tuple[tuple[Any, ...], ...], Axes("label by")]
    """Their values, for each row."""
    seeds: Annotated[tuple[int | str, ...], Axes("seed"), DISTINCT]
    """Seed of each run, or all seeds as one text if the verb compares models."""
    onset: Annotated[Float[np.ndarray, "label seed"], Range(0.0), MAY_BE_INFINITE]
    """Step; infinite if it is not above its null at the last snapshot, NaN if it was not measured for the seed."""
    before: Annotated[Float[np.ndarray, "label seed"], Range(-1.0), MAY_BE_INFINITE]
    """The snapshot before: the onset is after this step and at or before `onset`. -1 if `onset` is the first one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        is_later = np.isnan(self.before) | np.isnan(self.onset) | (self.before < self.onset)
        check_that(is_later.all(), "before is not below onset everywhere; the snapshot before is an earlier one.")
        DISTINCT.check(self.labels, "labels")

    def _over_seeds(self) -> list[tuple[float, float, float, int, int]]:
        """For each label: median onset, the ends of its interval, seeds without an onset, seeds."""
        rows = []
        for onset, before in zip(self.onset, self.before, strict=True):
            # Each onset is in the interval from the snapshot before it, exclusive, to its own.
            measured = ~np.isnan(onset)
            upper_ends = np.sort(onset[measured])
            lower_ends = np.sort(before[measured])
            n = len(upper_ends)
            low, high = order_interval(n)
            median = float(upper_ends[(n - 1) // 2])  # of an even number the lower one, which is a snapshot
            never = int(np.isinf(upper_ends).sum())
            rows.append((median, float(lower_ends[low]), float(upper_ends[high]), never, n))
        return rows

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per label: median onset over seeds, the ends of its interval, seeds that never have one, seeds.

        The interval holds with at least `coverage`; a step that is infinite is after the end of training.
        """
        import pandas as pd

        labels: Any = pd.DataFrame(self.labels, columns=list(self.by))
        names: Any = ["onset", "low", "high", "never", "n"]
        numbers: Any = pd.DataFrame(self._over_seeds(), columns=names)
        return labels.join(numbers).assign(coverage=[coverage(n) for n in numbers["n"]])

    def plot(self) -> "alt.TopLevelMixin":
        """Onset of each label, median over seeds with its interval."""
        from interp.comparison.training_charts import label_text, onset_chart

        names = [label_text(self.by, label) or self.value for label in self.labels]
        onsets = self.to_dataframe().assign(label=names)
        finite = [step[np.isfinite(step)] for step in (self.onset, self.before)]
        last = int(max([1.0, *np.concatenate(finite)]))
        compared = isinstance(self.seeds[0], str)
        seeds = f"models of seeds {self.seeds[0]}" if compared else f"median of n = {len(self.seeds)} seeds"
        title = f"first step from which {self.value} stays above {self.null}: {seeds}"
        return onset_chart(onsets, last=last, title=title)

    def __str__(self) -> str:
        lines = [f"first step from which {self.value} of {self.verb} stays above {self.null}"]
        for label, (median, low, high, never, n) in zip(self.labels, self._over_seeds(), strict=True):
            name = ", ".join(f"{column} {value}" for column, value in zip(self.by, label, strict=True))
            if never == n:
                lines.append(f"{name:24} not by the last step")
                continue
            after = f"after {low:.0f}" if low >= 0 else "from the first snapshot on"
            none = f"; not for {never} of {n} seeds" if never else ""
            lines.append(f"{name:24} {_step(median)} ({after}, at the latest {_step(high)}{none})")
        return "\n".join(lines)


def _step(value: float) -> str:
    return "not by the last step" if np.isinf(value) else f"{value:.0f}"


def order_interval(n: int) -> tuple[int, int]:
    """Indices of the order statistics between which the median is with 95 %, or of the extremes if n is too small."""
    rank = 0
    while rank + 1 <= (n - 1) // 2 and _coverage(rank + 1, n) >= CONFIDENCE:
        rank += 1
    return rank, n - 1 - rank


def coverage(n: int) -> float:
    """Probability with which the interval over n seeds contains the median."""
    rank, _ = order_interval(n)
    return _coverage(rank, n)


def _coverage(rank: int, n: int) -> float:
    """Probability that the median is between the order statistics at this rank from below and from above."""
    return float(1 - 2 * special.bdtr(rank, n, 0.5))


def first_lasting(above: Bool[np.ndarray, " step"]) -> int | None:
    """Index of the first step from which all are above; None if the last is not."""
    if not above[-1]:
        return None
    below = np.flatnonzero(~above)
    return int(below[-1]) + 1 if len(below) else 0


def find_onsets(
    table: "pd.DataFrame", value: str, *, by: Sequence[str], null: float | str, verb: str, seeds: Sequence[int | str]
) -> Onsets:
    """The onsets of a quantity, as `OverTraining.onsets` describes.

    Args:
        table: Columns `seed`, `step`, the quantity, its labels, and `low` or a null if it has them.
        value: Column of the quantity.
        by: Columns that together name what has an onset.
        null: A number, or a column.
        verb: Name of the verb that made the table.
        seeds: Seed of each run, in the order of the result's columns.
    """
    # Mark the rows that are above the null, with the lower end of their interval if they have one.
    lower_end = "low" if "low" in table and value != "low" else value
    bar = table[null].astype(float) if isinstance(null, str) else null
    table = table.assign(above=table[lower_end].astype(float) > bar)
    labels: list[tuple[Any, ...]] = [()]
    if by:
        labels = list(dict.fromkeys(table[list(by)].itertuples(index=False, name=None)))
    onset, before = np.full((2, len(labels), len(seeds)), np.nan)
    for row, label in enumerate(labels):
        # The rows of this label, then its steps in the run of each seed.
        label_rows: Any = table
        for name, entry in zip(by, label, strict=True):
            label_rows = label_rows[label_rows[name] == entry]
        for column, seed in enumerate(seeds):
            by_step = label_rows[label_rows["seed"] == seed].groupby("step")["above"].any().sort_index()
            if by_step.empty:
                continue
            # The snapshot of the onset, and the one before it.
            steps = by_step.index.to_numpy()
            first = first_lasting(by_step.to_numpy(dtype=bool))
            if first is None:
                onset[row, column] = np.inf
                before[row, column] = steps[-1]
            else:
                onset[row, column] = steps[first]
                before[row, column] = steps[first - 1] if first else -1
    return Onsets(
        verb=verb,
        value=value,
        null=f"its {null}" if isinstance(null, str) else f"{null:g}",
        by=tuple(by),
        labels=tuple(labels),
        seeds=tuple(seeds),
        onset=onset,
        before=before,
    )
