"""What an audit of probes found: readable and used, readable and unused, or not readable."""

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from interp.core.results import Result

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

PROBE_VERDICTS = ("used", "unused", "not readable", "undecided")


@dataclass(frozen=True, kw_only=True)
class ProbeAudit(Result):
    """Verdict and evidence for every layer and target. Layer 0 is the embedding's output."""

    label: str
    """What was read."""
    targets: tuple[str, ...]
    """Names of the targets."""
    verdict: tuple[tuple[str, ...], ...]
    """For each layer and target: used, unused (both readable), not readable, undecided."""
    accuracy: Float[np.ndarray, "layer target"]
    """Held-out accuracy of the probe."""
    low: Float[np.ndarray, "layer target"]
    high: Float[np.ndarray, "layer target"]
    """Ends of its 95 % interval."""
    baseline: Float[np.ndarray, "layer target"]
    """The best of its controls: shuffled labels, control task, untrained twin."""
    interchange: Float[np.ndarray, "layer target"]
    """Share of examples in which an answer changes when the label's direction is another example's, minus that of a
    placebo; not a number where it is not readable, which was not tried."""
    interchange_low: Float[np.ndarray, "layer target"]
    interchange_high: Float[np.ndarray, "layer target"]
    erasure: Float[np.ndarray, "layer target"]
    """The same when it is the mean of all examples."""
    erasure_low: Float[np.ndarray, "layer target"]
    erasure_high: Float[np.ndarray, "layer target"]
    p: Float[np.ndarray, "question layer target"]
    """Corrected p (Holm) for readable, not readable, used, unused."""
    alpha: float
    """Level of all verdicts together."""
    n: int
    """Examples behind each figure."""

    def readable_from(self, target: str) -> int | None:
        """The layer from which on the label is readable at a target, at every later layer too; None if it never is.

        Raises:
            ValueError: no such target (with those there are).
        """
        if target not in self.targets:
            raise ValueError(f"target is {target!r}; there are {', '.join(self.targets)}.")
        column = self.p[0, :, self.targets.index(target)] <= self.alpha
        first = len(column)
        while first and column[first - 1]:
            first -= 1
        return first if first < len(column) else None

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per layer and target."""
        import pandas as pd

        layer, target = np.indices(self.accuracy.shape)
        columns = {"layer": layer.ravel(), "target": np.array(self.targets)[target.ravel()]}
        columns["verdict"] = np.array(self.verdict).ravel()
        for name in ("accuracy", "low", "high", "baseline"):
            columns[name] = getattr(self, name).ravel()
        for name in ("interchange", "erasure"):
            columns |= {part: getattr(self, part).ravel() for part in (name, f"{name}_low", f"{name}_high")}
        return pd.DataFrame(columns | {"n": self.n})

    def plot(self) -> "alt.TopLevelMixin":
        """What can be read, what changes when it is interchanged, and what when it is erased."""
        from interp.view.charts import heatmaps

        width = float((self.high - self.low).max() / 2)
        panels = {"read (accuracy)": self.accuracy, "best control": self.baseline}
        panels |= {"changed by interchange": self.interchange, "changed by erasure": self.erasure}
        return heatmaps(
            panels,
            x=self.targets,
            x_title="target",
            y_title="layer",
            title=f"{self.label}: read and used, n = {self.n} per cell (accuracy within ±{width:.3f})",
            value="share",
        )

    def __str__(self) -> str:
        wide = max(12, *(len(name) for name in self.targets))
        lines = ["layer  " + "  ".join(f"{name:>{wide}}" for name in self.targets)]
        for layer, row in enumerate(self.verdict):
            lines.append(f"{layer:>5}  " + "  ".join(f"{one:>{wide}}" for one in row))
        counts = Counter(one for row in self.verdict for one in row)
        counted = ", ".join(f"{counts[name]} {name}" for name in PROBE_VERDICTS if counts[name])
        return "\n".join([*lines, f"{self.label}: {counted}; {self.n} examples, level {self.alpha:g} (Holm)"])
