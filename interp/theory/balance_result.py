"""How far one layer is from balance, pair by pair."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from interp.core.results import Result

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class BalanceResult(Result):
    """Balance violation for every query and pair. It is exact for one model: there is nothing to sample.

    Axes: `query_depth` brackets still open after the query, from 1; `query_type` its type; `pair_depth` depth of the
    pair's opener, from 1; `pair_type` its type.
    """

    pairing: str
    """`mirrored`, or `released` for the pairing of the paper's code."""
    ratio: Float[np.ndarray, "query_depth query_type pair_depth pair_type"]
    """S / P: the trace a pair leaves, over the least signal to be kept apart. 0 is balanced; there is no upper end."""
    bounded: Float[np.ndarray, "query_depth query_type pair_depth pair_type"]
    """S over the norms of its two parts, 0 to 1."""
    decision: Float[np.ndarray, "query_depth query_type pair_depth pair_type"] | None
    """How far a pair moves the choice between two closers, over what the innermost open bracket's type moves it (mean
    over pairs of types). None where an MLP follows: then it is no linear matter."""
    signal: Float[np.ndarray, "query_depth query_type"]
    """P, in units of the unnormalised attention output."""
    released: float
    """The released code's average: over queries, of the largest S over the least norm of any open string."""

    @property
    def violation(self) -> float:
        """Mean of S / P over queries and pairs."""
        return float(self.ratio.mean())

    @property
    def n(self) -> int:
        """Queries times pairs behind the mean."""
        return self.ratio.size

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per query and pair."""
        import pandas as pd

        query_depth, query_type, pair_depth, pair_type = (index.ravel() for index in np.indices(self.ratio.shape))
        columns = {
            "query_depth": query_depth + 1,
            "query_type": query_type,
            "pair_depth": pair_depth + 1,
            "pair_type": pair_type,
            "ratio": self.ratio.ravel(),
            "bounded": self.bounded.ravel(),
        }
        if self.decision is not None:
            columns["decision"] = self.decision.ravel()
        return pd.DataFrame(columns)

    def plot(self) -> "alt.TopLevelMixin":
        """S / P by pair depth and query depth, one map per type of pair, mean over types of query."""
        from interp.view.charts import heatmaps

        maps = self.ratio.mean(1).transpose(2, 1, 0)  # (pair_type, pair_depth, query_depth)
        return heatmaps(
            {f"pair type {kind}": values for kind, values in enumerate(maps)},
            x=[str(depth + 1) for depth in range(maps.shape[2])],
            x_title="brackets open after the query",
            y_title="depth of the pair",
            title=f"balance violation S / P, {self.pairing}, mean {self.violation:.3f}",
            value="S / P",
            domain=(0.0, max(1.0, float(maps.max()))),
            first_row=1,
        )

    def __str__(self) -> str:
        lines = [
            f"balance violation, {self.pairing} pairs, {self.n} of query and pair",
            f"  mean S / P           {self.violation:.4f}  (largest {self.ratio.max():.4f})",
            f"  released average     {self.released:.4f}",
            f"  bounded              {self.bounded.mean():.4f}",
        ]
        if self.decision is not None:
            lines.append(f"  share of a decision  {self.decision.mean():.4f}  (largest {self.decision.max():.4f})")
        return "\n".join(lines)
