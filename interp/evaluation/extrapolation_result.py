"""How accuracy on each target changes with the number of layers applied."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from interp.core.results import Result

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class ExtrapolationResult(Result):
    """Accuracy of every target after each number of layers."""

    depths: tuple[int, ...]
    """Numbers of layers applied, in ascending order."""
    targets: tuple[str, ...]
    """Names of the targets."""
    supervised: tuple[bool, ...]
    """Which targets count in the loss."""
    accuracy: Float[np.ndarray, "depth target"]
    """Fraction of examples answered correctly, 0 to 1."""
    low: Float[np.ndarray, "depth target"]
    high: Float[np.ndarray, "depth target"]
    """Ends of the 95 % interval (Clopper-Pearson)."""
    chance: float
    """Accuracy of guessing evenly."""
    n: int
    """Examples behind each figure, the same at every depth."""
    split: str
    """Where they come from."""
    trained_depth: int
    """Layers that the model was made with."""

    @property
    def beyond(self) -> Float[np.ndarray, "depth unsupervised"]:
        """Accuracy of the targets that are not supervised."""
        return self.accuracy[:, ~np.array(self.supervised)]

    def resolved(self, level: float = 0.9) -> Float[np.ndarray, " target"]:
        """The least depth from which on a target is told, up to the greatest depth; not a number where there is none.

        Args:
            level: Accuracy that counts as told.

        Raises:
            ValueError: a level outside (0, 1].
        """
        if not 0 < level <= 1:
            raise ValueError(f"level is {level}; it must lie above 0, and at 1 at most.")
        stays = np.logical_and.accumulate(self.accuracy[::-1] >= level)[::-1]
        first = np.array(self.depths, float)[stays.argmax(0)]
        return np.where(stays.any(0), first, np.nan)

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per depth and target."""
        import pandas as pd

        depth, target = np.indices(self.accuracy.shape)
        columns = {
            "depth": np.array(self.depths)[depth.ravel()],
            "target": np.array(self.targets)[target.ravel()],
            "supervised": np.array(self.supervised)[target.ravel()],
        }
        for name in ("accuracy", "low", "high"):
            columns[name] = getattr(self, name).ravel()
        return pd.DataFrame(columns | {"n": self.n})

    def plot(self) -> "alt.TopLevelMixin":
        """Accuracy against the layers applied, as in the LEGO paper's Figure 5; dashed where nothing was supervised."""
        import altair as alt

        from interp.view.charts import HEIGHT, WIDTH

        ends = (min(self.depths[0], self.trained_depth), max(self.depths[-1], self.trained_depth))
        x_scale = alt.Scale(domain=[ends[0] - 0.5, ends[1] + 0.5], nice=False)
        y_scale = alt.Scale(domain=[0, 1])
        y: dict[str, Any] = {"scale": y_scale, "title": "accuracy"}
        across = alt.X(
            "depth:Q", scale=x_scale, axis=alt.Axis(format="d", tickMinStep=1, grid=False), title="layers applied"
        )
        colour = alt.Color(
            "target:N",
            sort=list(self.targets),
            scale=alt.Scale(domain=list(self.targets), scheme=alt.SchemeParams(name="viridis", extent=[0.0, 0.85])),
            legend=alt.Legend(symbolOpacity=1, symbolType="stroke", symbolStrokeWidth=3),
        )
        words = ["supervised", "not supervised"]
        dash = alt.StrokeDash(
            "loss:N",
            sort=words,
            scale=alt.Scale(domain=words, range=[[1, 0], [5, 3]]),
            legend=alt.Legend(title=None, symbolType="stroke", symbolStrokeColor="#444", symbolSize=400),
        )
        table = self.to_dataframe()
        table["loss"] = np.where(table["supervised"], *words)
        base = alt.Chart(table)
        tooltip = ["target:N", "loss:N", "depth:Q"]
        tooltip += [alt.Tooltip(f"{name}:Q", format=".4f") for name in ("accuracy", "low", "high")]
        chance, made = alt.YDatum(self.chance, **y), alt.XDatum(self.trained_depth, scale=x_scale)
        grey = {"color": "#888", "strokeDash": [2, 3]}
        small = {"color": "#666", "fontSize": 10}
        side = {"align": "left", "dx": 4} if 2 * self.trained_depth <= sum(ends) else {"align": "right", "dx": -4}
        once = alt.Chart(table.head(1))  # one word, not one for each row
        spread = base.mark_area(opacity=0.12) if len(self.depths) > 1 else base.mark_rule(opacity=0.3)
        layers: list[Any] = [
            once.mark_rule(**grey).encode(y=chance),
            once.mark_rule(**grey).encode(x=made),
            spread.encode(across, alt.Y("low:Q", **y), alt.Y2("high:Q"), colour),
            base.mark_line().encode(across, alt.Y("accuracy:Q", **y), colour, dash),
            base.mark_point(size=18, filled=True, opacity=1).encode(
                across, alt.Y("accuracy:Q", **y), colour, tooltip=tooltip
            ),
            once.mark_text(text="chance", align="right", dx=-4, dy=8, **small).encode(
                x=alt.XDatum(ends[1] + 0.5, scale=x_scale), y=chance
            ),
            once.mark_text(text=f"made with {self.trained_depth}", dy=-6, **side, **small).encode(
                x=made, y=alt.YDatum(0, **y)
            ),
        ]
        title = f"accuracy by layers applied, n = {self.n} per point"
        return alt.layer(*layers).properties(title=title, width=WIDTH, height=HEIGHT)

    def __str__(self) -> str:
        names = [name if seen else name + "*" for name, seen in zip(self.targets, self.supervised, strict=True)]
        wide = [max(5, len(name)) for name in names]
        lines = ["depth  " + "  ".join(f"{name:>{size}}" for name, size in zip(names, wide, strict=True))]
        for depth, row in zip(self.depths, self.accuracy, strict=True):
            cells = "  ".join(f"{value:>{size}.3f}" for value, size in zip(row, wide, strict=True))
            lines.append(f"{depth:>5}  {cells}" + ("  <- made with" if depth == self.trained_depth else ""))
        chance = f"{self.chance:.2f}" if self.chance >= 0.01 else f"{self.chance:.1g}"
        half = float(np.max(self.high - self.low) / 2)
        foot = f"accuracy on {self.n} {self.split} examples (95 % within {half:.3f}), chance {chance}; * not supervised"
        return "\n".join([*lines, foot])
