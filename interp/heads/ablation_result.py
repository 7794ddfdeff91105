"""What was lost without heads, with intervals and random sets inside."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from interp.core.results import Result

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd


MOST_LINES = 48
"""Sets shown when a result is printed; of more, those that cost most."""


@dataclass(frozen=True, kw_only=True)
class AblationResult(Result):
    """Drop of accuracy and rise of loss for every set of heads and every target."""

    method: str
    """What the heads' output became."""
    names: tuple[str, ...]
    """Names of the sets."""
    heads: tuple[tuple[tuple[int, int], ...], ...]
    """The (layer, head) of each set."""
    targets: tuple[str, ...]
    """Names of the targets."""
    clean: Float[np.ndarray, " target"]
    """Accuracy of the whole model on the same sequences."""
    drop: Float[np.ndarray, "set target"]
    """How much accuracy falls, as a fraction; negative where it rises."""
    low: Float[np.ndarray, "set target"]
    high: Float[np.ndarray, "set target"]
    """Ends of the 95 % interval (paired bootstrap over sequences)."""
    loss_rise: Float[np.ndarray, "set target"]
    """How much the cross entropy rises, in nats."""
    loss_low: Float[np.ndarray, "set target"]
    loss_high: Float[np.ndarray, "set target"]
    random_drop: Float[np.ndarray, "set draw target"] | None
    """Drops of random sets of the same size."""
    shape: tuple[int, int]
    """Layers and heads of the model."""
    n: int
    """Sequences behind each figure."""

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per set and target."""
        import pandas as pd

        chosen, target = np.indices(self.drop.shape)
        columns = {"set": np.array(self.names)[chosen.ravel()], "target": np.array(self.targets)[target.ravel()]}
        for name in ("drop", "low", "high", "loss_rise", "loss_low", "loss_high"):
            columns[name] = getattr(self, name).ravel()
        columns["clean"] = np.broadcast_to(self.clean, self.drop.shape).ravel()
        if self.random_drop is not None:
            columns["random_mean"] = self.random_drop.mean(1).ravel()
            columns["random_largest"] = self.random_drop.max(1).ravel()
        return pd.DataFrame(columns | {"n": self.n})

    def plot(self) -> "alt.TopLevelMixin":
        """A layer x head map of drops for each target, or a point per set where sets were named."""
        from interp.view.charts import dots, heatmaps

        title = f"accuracy lost, heads set to {self.method}, n = {self.n}"
        if all(len(chosen) == 1 for chosen in self.heads) and len(self.heads) == self.shape[0] * self.shape[1]:
            panels = {name: self.drop[:, index].reshape(self.shape) for index, name in enumerate(self.targets)}
            width = float((self.high - self.low).max() / 2)
            return heatmaps(
                panels,
                x=[str(head) for head in range(self.shape[1])],
                x_title="head",
                y_title="layer",
                title=f"{title} (95 % within ±{width:.3f})",
                value="drop",
            )
        return dots(self.to_dataframe(), x="target", y="drop", series="set", title=title, rule=0.0)

    def __str__(self) -> str:
        wide = max(20, *(len(name) for name in self.names))
        lines = [f"{'accuracy without':<{wide}}" + "".join(f"{name:>21}" for name in self.targets)]
        lines.append(f"{'nothing':<{wide}}" + "".join(f"{value:>21.3f}" for value in self.clean))
        worst_first = np.argsort(-self.drop.mean(1), kind="stable")
        shown = range(len(self.names)) if len(self.names) <= MOST_LINES else sorted(worst_first[:MOST_LINES])
        for index in shown:
            left, low, high = (self.clean - part[index] for part in (self.drop, self.high, self.low))
            cells = (f"{value:.3f} [{a:.3f}, {b:.3f}]" for value, a, b in zip(left, low, high, strict=True))
            lines.append(f"{self.names[index]:<{wide}}" + "".join(f"{cell:>21}" for cell in cells))
            if self.random_drop is not None:
                random = self.clean - self.random_drop[index].mean(0)
                lines.append(f"{'  random, same size':<{wide}}" + "".join(f"{value:>21.3f}" for value in random))
        return "\n".join([*lines, f"heads set to {self.method}; {self.n} sequences, 95 % intervals"])
