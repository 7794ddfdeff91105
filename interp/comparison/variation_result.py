"""How far apart models look, with random baselines, sharpness and intervals inside."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int

from interp.core.results import Result

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

SHOWN = ("flat simplex", "own rows, keys shuffled", "one-hot rows")
"""The baselines in print; a table has all of them."""


@dataclass(frozen=True, kw_only=True)
class VariationResult(Result):
    """Mean squared distance between the attention patterns of models, per layer. Intervals are 95 %, over models."""

    prefixes: tuple[str, ...]
    """What the models were shown."""
    n_tokens: Int[np.ndarray, " prefix"]
    """Tokens of each, with what the task puts before it."""
    variation: Float[np.ndarray, " layer"]
    """Mean over pairs of the squared Frobenius distance, then over heads and prefixes: 0 to 2 per row."""
    low: Float[np.ndarray, " layer"]
    high: Float[np.ndarray, " layer"]
    """Ends of the interval; not a number with two models, whose one pair has none."""
    by_prefix: Float[np.ndarray, "prefix layer"]
    by_head: Float[np.ndarray, "layer head"]
    distance: Float[np.ndarray, "layer model model"]
    """The distance of every two models, mean over heads and prefixes: what to cluster."""
    entropy: Float[np.ndarray, " layer"]
    """Mean row entropy in nats, over models, heads, prefixes and the queries with a choice of keys."""
    entropy_low: Float[np.ndarray, " layer"]
    entropy_high: Float[np.ndarray, " layer"]
    relative_entropy: Float[np.ndarray, " layer"]
    """The same, each row as a fraction of the largest possible: 0 on one key, 1 uniform."""
    relative_low: Float[np.ndarray, " layer"]
    relative_high: Float[np.ndarray, " layer"]
    relative_of_model: Float[np.ndarray, "model layer"]
    """The relative entropy of each model."""
    baselines: tuple[str, ...]
    """What random patterns are like; `interp.comparison.baselines.NAMES` says more."""
    baseline: Float[np.ndarray, "baseline layer"]
    """Expected distance of two random patterns, mean over prefixes."""
    baseline_error: Float[np.ndarray, "baseline layer"]
    """Its standard error where it was simulated; 0 in closed form."""
    baseline_by_prefix: Float[np.ndarray, "baseline prefix layer"]
    resamples: int
    """Resamples of the models behind the intervals."""
    n: int
    """Models: the independent units."""
    n_pairs: int

    def ratio_to(self, baseline: str = "flat simplex") -> Float[np.ndarray, " layer"]:
        """Variation over a baseline: 1 for patterns as far apart as random ones of that kind.

        Raises:
            ValueError: a baseline that there is not.
        """
        if baseline not in self.baselines:
            raise ValueError(f"baseline is {baseline!r}; choose one of: {'; '.join(self.baselines)}.")
        return self.variation / self.baseline[self.baselines.index(baseline)]

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per layer."""
        import pandas as pd

        columns = {"layer": np.arange(len(self.variation)), "variation": self.variation}
        for name in ("low", "high", "entropy", "entropy_low", "entropy_high"):
            columns[name] = getattr(self, name)
        for name in ("relative_entropy", "relative_low", "relative_high"):
            columns[name] = getattr(self, name)
        columns["ratio"] = self.ratio_to()
        columns |= {name: self.baseline[index] for index, name in enumerate(self.baselines)}
        return pd.DataFrame(columns | {"n": self.n, "n_pairs": self.n_pairs})

    def plot(self) -> "alt.TopLevelMixin":
        """A point and an interval per layer, beside the models' own rows shuffled, over the flat simplex as a line."""
        import pandas as pd

        from interp.view.charts import dots

        layers = np.arange(len(self.variation))
        flat, own = (self.baseline[self.baselines.index(name)] for name in ("flat simplex", "own rows, keys shuffled"))
        low, high = (np.where(np.isnan(end), self.variation, end) for end in (self.low, self.high))
        found = {"layer": layers, "variation": self.variation, "low": low, "high": high, "what": "models"}
        shuffled = {"layer": layers, "variation": own, "low": own, "high": own, "what": "own rows, keys shuffled"}
        points = pd.concat([pd.DataFrame(found), pd.DataFrame(shuffled)])
        return dots(
            points,
            x="layer",
            y="variation",
            series="what",
            rule=float(flat[0]),
            domain=(0.0, 1.05 * float(max(flat[0], high.max(), own.max()))),
            title=f"squared distance of patterns, {self.n} models, {self.n_pairs} pairs; dashed: flat simplex",
        )

    def __str__(self) -> str:
        lines = [f"{'layer':<6}{'variation':>10}  {'95 % over models':<18}{'ratio':>7}{'entropy':>10}"]
        for layer, value in enumerate(self.variation):
            ends = "no interval" if np.isnan(self.low[layer]) else f"[{self.low[layer]:.3f}, {self.high[layer]:.3f}]"
            ratio, entropy = self.ratio_to()[layer], self.relative_entropy[layer]
            lines.append(f"{layer:<6}{value:>10.3f}  {ends:<18}{ratio:>7.2f}{entropy:>10.2f}")
        for name, row in zip(self.baselines, self.baseline, strict=True):
            if name in SHOWN:
                spread = f"{row[0]:.3f}" if np.ptp(row) == 0 else " ".join(f"{value:.3f}" for value in row)
                lines.append(f"{name}: {spread}")
        shown = "1 prefix" if len(self.prefixes) == 1 else f"{len(self.prefixes)} prefixes"
        tokens = "-".join(str(length) for length in sorted({int(self.n_tokens.min()), int(self.n_tokens.max())}))
        foot = f"{self.n} models, {self.n_pairs} pairs, {shown} of {tokens} tokens; ratio is to the flat simplex"
        return "\n".join([*lines, foot])
