"""What is left of a trained model's accuracy when less and less of it is kept."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from interp.core.results import Result

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd


PANELS = {
    "magnitude": "all matrices",
    "magnitude, each matrix": "all matrices",
    "random": "all matrices",
    "structured": "hidden units and heads",
    "heads": "hidden units and heads",
    "heads, random order": "hidden units and heads",
}
"""Where a curve is drawn; those that are not named are of one kind of matrix."""
SHOWN = (0.5, 0.2, 0.1, 0.0)
"""Fractions kept whose accuracy is printed."""
NEAR = 0.03
"""A point within this of such a fraction stands for it."""


@dataclass(frozen=True, kw_only=True)
class PruningCurve(Result):
    """Accuracy and loss against the fraction kept, for every way of choosing what to keep.

    Rows go from the most kept to the least. Those with fewer points than others end in values that are not numbers.
    """

    by: tuple[str, ...]
    """How it was chosen, one name per row."""
    size: Int[np.ndarray, " by"]
    """How many weights (`structured`: hidden units; heads) each row chooses among. A tied block counts once, its heads
    once for every layer."""
    kept: Float[np.ndarray, "by point"]
    """Fraction of those that is kept."""
    accuracy: Float[np.ndarray, "by point"]
    """Share of right answers, over all outcomes of the task."""
    low: Float[np.ndarray, "by point"]
    high: Float[np.ndarray, "by point"]
    """Ends of the 95 % interval (Clopper-Pearson); examples are the independent units, not answers."""
    loss: Float[np.ndarray, "by point"]
    """The task's loss per answer (cross entropy in nats, or squared error)."""
    clean: float
    """Accuracy of the whole model on the same examples."""
    clean_loss: float
    chance: float
    """Accuracy of guessing evenly."""
    order: tuple[tuple[int, int], ...]
    """(layer, head) in the order in which `heads` takes them out; empty where it was not asked for."""
    n: int
    """Test examples behind each figure."""

    def least_kept(self, by: str, *, lost: float = 0.01) -> float:
        """The least fraction kept down to which, at every point, accuracy is no more than `lost` below the clean one.

        Args:
            by: Which curve.
            lost: How much accuracy may be missing, as a fraction.

        Returns:
            The fraction; not a number where even the point with the most kept has lost more.

        Raises:
            ValueError: a curve that is not in this result.
        """
        if by not in self.by:
            raise ValueError(f"by is {by!r}; this result has {', '.join(map(repr, self.by))}. Choose one of them.")
        row = self.by.index(by)
        fine = self.accuracy[row] >= self.clean - lost - 1e-12
        points = int(np.argmin(np.append(fine, False)))
        return float(self.kept[row, points - 1]) if points else float("nan")

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per curve and point."""
        import pandas as pd

        row, point = np.nonzero(np.isfinite(self.kept))
        columns = {"by": np.array(self.by)[row], "size": self.size[row]}
        for name in ("kept", "accuracy", "low", "high", "loss"):
            columns[name] = getattr(self, name)[row, point]
        return pd.DataFrame(columns | {"clean": self.clean, "clean_loss": self.clean_loss, "n": self.n})

    def plot(self) -> "alt.TopLevelMixin":
        """Accuracy against the fraction kept: all matrices, one kind of matrix alone, and hidden units and heads."""
        import altair as alt

        from interp.view.charts import curves

        table = self.to_dataframe().rename(columns={"kept": "fraction kept"})
        panel = [PANELS.get(name, "one kind of matrix") for name in table["by"]]
        charts: list[Any] = [
            curves(part, x="fraction kept", y="accuracy", series="by", title=str(name), rule=self.chance)
            for name, part in table.groupby(np.array(panel), sort=False)
        ]
        title = f"accuracy of what is kept, nothing trained again, n = {self.n} per point; dashed: chance"
        return alt.concat(*charts, columns=2, title=title).resolve_scale(color="independent")

    def __str__(self) -> str:
        wide = max(8, *(len(name) for name in self.by)) + 2
        lines = [
            f"accuracy of what is kept, nothing trained again: whole model {self.clean:.3f}, chance {self.chance:.2f}",
            f"{'kept by':<{wide}}{'of':>12}{'0.01 lost at':>14}" + "".join(f"{f'{part:.0%}':>8}" for part in SHOWN),
        ]
        for row, name in enumerate(self.by):
            cells = "".join(f"{self._near(row, part):>8}" for part in SHOWN)
            lines.append(f"{name:<{wide}}{self.size[row]:>12,}{self.least_kept(name):>14.3f}{cells}")
        return "\n".join([*lines, f"{self.n} test examples; '0.01 lost at': least fraction kept that loses no more"])

    def _near(self, row: int, fraction: float) -> str:
        away = np.abs(np.nan_to_num(self.kept[row], nan=np.inf) - fraction)
        return f"{self.accuracy[row, away.argmin()]:.3f}" if away.min() <= NEAR else "-"
