"""Where heads look, with chance, null and untrained twin inside."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from interp.core.results import Result

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class HeadPatterns(Result):
    """Scores and label of every head."""

    kinds: tuple[str, ...]
    """What heads were scored on."""
    label: tuple[tuple[str, ...], ...]
    """For each layer and head: a kind, `uniform`, or `unclassified`."""
    score: Float[np.ndarray, "layer head kind"]
    """Attention mass on related keys: 0 at chance, 1 for all of it."""
    low: Float[np.ndarray, "layer head kind"]
    high: Float[np.ndarray, "layer head kind"]
    """Ends of the 95 % t interval over sequences."""
    p: Float[np.ndarray, "layer head kind"]
    """How likely a score as high is when each query's keys are permuted."""
    p_holm: Float[np.ndarray, "layer head kind"]
    """The same, corrected for all heads and kinds (Holm)."""
    untrained: Float[np.ndarray, "layer head kind"]
    """Scores of an untrained model of the same config."""
    value_weighted: Float[np.ndarray, "layer head kind"]
    """The score when keys count by the norm of what they write (Kobayashi et al. 2020)."""
    uniformity: Float[np.ndarray, "layer head"]
    """1 when rows are uniform, 0 when each is on one key."""
    entropy: Float[np.ndarray, "layer head"]
    """Mean row entropy, as a fraction of the largest possible."""
    moved: Float[np.ndarray, "layer head"]
    """Mean norm of what a query is sent, in residual-stream units, cancellation between keys aside."""
    alpha: float
    """Level of the Holm correction."""
    n: int
    """Sequences behind each score."""

    def heads(self, label: str) -> tuple[tuple[int, int], ...]:
        """(layer, head) of every head with that label."""
        return tuple(
            (layer, head) for layer, row in enumerate(self.label) for head, found in enumerate(row) if found == label
        )

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per head and kind."""
        import pandas as pd

        layer, head, kind = np.indices(self.score.shape)
        columns = {"layer": layer.ravel(), "head": head.ravel(), "kind": np.array(self.kinds)[kind.ravel()]}
        columns["label"] = np.repeat(np.array(self.label).ravel(), len(self.kinds))
        for name in ("score", "low", "high", "p", "p_holm", "untrained", "value_weighted"):
            columns[name] = getattr(self, name).ravel()
        for name in ("uniformity", "entropy", "moved"):
            columns[name] = np.repeat(getattr(self, name).ravel(), len(self.kinds))
        return pd.DataFrame(columns | {"n": self.n})

    def plot(self) -> "alt.TopLevelMixin":
        """A layer x head map of scores for each kind."""
        from interp.view.charts import heatmaps

        heads = [str(head) for head in range(self.score.shape[1])]
        panels = {name: self.score[:, :, kind] for kind, name in enumerate(self.kinds)}
        width = float((self.high - self.low).max() / 2)
        title = f"attention on each relation, n = {self.n} sequences (95 % within ±{width:.3f}); 0 is chance"
        return heatmaps(panels, x=heads, x_title="head", y_title="layer", title=title, value="score")

    def __str__(self) -> str:
        lines = []
        for layer, row in enumerate(self.label):
            for head, label in enumerate(row):
                if label == "unclassified":
                    kind = int(self.score[layer, head].argmax())
                    note = f"nearest {self.kinds[kind]} {self.score[layer, head, kind]:.2f}"
                elif label == "uniform":
                    note = f"uniformity {self.uniformity[layer, head]:.2f}"
                else:
                    kind = self.kinds.index(label)
                    cell = (layer, head, kind)
                    note = f"{self.score[cell]:.2f} [{self.low[cell]:.2f}, {self.high[cell]:.2f}]"
                lines.append(f"{layer}.{head:<3} {label:<14} {note}")
        foot = f"{self.n} sequences, Holm at {self.alpha}; untrained heads score at most {self.untrained.max():.2f}"
        return "\n".join([*lines, foot])
