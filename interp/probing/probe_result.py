"""What probing found, with its controls inside."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from interp.core.results import Result

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class ProbeResult(Result):
    """Held-out probe accuracy for every layer and target. Layer 0 is the embedding's output."""

    label: str
    """What was read."""
    solver: str
    """How the classifiers were fitted."""
    targets: tuple[str, ...]
    """Names of the targets."""
    accuracy: Float[np.ndarray, "layer target"]
    """Fraction of held-out examples read correctly, 0 to 1."""
    low: Float[np.ndarray, "layer target"]
    high: Float[np.ndarray, "layer target"]
    """Ends of the 95 % interval (Clopper-Pearson)."""
    control: Float[np.ndarray, "layer target"]
    """Accuracy on the control task, a random class per input type: what memory alone reads."""
    shuffled: Float[np.ndarray, "layer target"]
    """Accuracy with shuffled labels: what there is when nothing can be read."""
    shuffled_high: Float[np.ndarray, "layer target"]
    """Upper 97.5 % quantile of `shuffled` over control draws."""
    untrained: Float[np.ndarray, "layer target"]
    """Accuracy of the same probes on an untrained model of the same config."""
    n_train: int
    """Examples each classifier was fitted on."""
    n_test: int
    """Held-out examples behind each cell."""
    n_controls: int
    """Draws of control and shuffled labels."""
    causal: dict[str, np.ndarray] | None = None
    """With `verify`: how often the output follows an interchange; see `interchange_map`."""

    @property
    def selectivity(self) -> Float[np.ndarray, "layer target"]:
        """Accuracy minus control accuracy (Hewitt & Liang 2019)."""
        return self.accuracy - self.control

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per layer and target."""
        import pandas as pd

        layer, target = np.indices(self.accuracy.shape)
        columns = {"layer": layer.ravel(), "target": np.array(self.targets)[target.ravel()]}
        for name in (
            "accuracy",
            "low",
            "high",
            "control",
            "selectivity",
            "shuffled",
            "shuffled_high",
            "untrained",
        ):
            columns[name] = getattr(self, name).ravel()
        for name, values in (self.causal or {}).items():
            columns[f"interchange_{name}"] = values.ravel()
        return pd.DataFrame(columns | {"n": self.n_test})

    def plot(self) -> "alt.TopLevelMixin":
        """The layer x target map as in the LEGO paper's Figure 4, its control and its untrained twin beside it."""
        from interp.view.charts import heatmaps

        panels = {"accuracy": self.accuracy, "control task": self.control, "untrained model": self.untrained}
        title = f"linear probes for {self.label}, n = {self.n_test} per cell (95 % within ±{self.half_width:.3f})"
        if self.causal is not None:
            panels["output follows interchange"] = self.causal["follows"]
            width = float(np.max(self.causal["high"] - self.causal["low"]) / 2)
            title += f"; interchange, n >= {int(self.causal['n'].min())} (±{width:.3f})"
        return heatmaps(panels, x=self.targets, x_title="target", y_title="layer", title=title, value="fraction")

    @property
    def half_width(self) -> float:
        """Half the widest 95 % interval of any accuracy."""
        return float(np.max(self.high - self.low) / 2)

    def __str__(self) -> str:
        head = "layer  " + "  ".join(f"{name:>5}" for name in self.targets)
        lines = [
            f"{layer:>5}  " + "  ".join(f"{value:5.3f}" for value in row) for layer, row in enumerate(self.accuracy)
        ]
        foot = (
            f"{self.solver} probes for {self.label}, {self.n_test} held-out examples per cell (95 % within "
            f"{self.half_width:.3f}); control at most {self.control.max():.3f}, "
            f"untrained at most {self.untrained.max():.3f}"
        )
        return "\n".join([head, *lines, foot])
