"""How near the matrices of heads are to a multiple of the identity, beside random ones and the identity scalars."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from interp.core.results import Result

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

MATRICES = ("W_Q W_K^T", "W_V W_O")
SCALARS = ("a I", "b I")
"""What a model may add to each."""


@dataclass(frozen=True, kw_only=True)
class DiagonalsResult(Result):
    """Diagonals of every head's W_Q W_K^T and W_V W_O, in that order on axis `matrix`.

    Where a pattern is hard-coded there are no queries and keys, and nothing said of them is a number.
    """

    cosine: Float[np.ndarray, "layer head matrix"]
    """With the identity, the matrix alone: trace / (norm sqrt(d_model))."""
    z: Float[np.ndarray, "layer head matrix"]
    """The same in standard deviations of the null, whose mean is 0."""
    p: Float[np.ndarray, "layer head matrix"]
    """How likely a cosine as large is in random directions with the same singular values; the upper tail."""
    p_holm: Float[np.ndarray, "layer head matrix"]
    """The same, corrected for all heads and matrices (Holm)."""
    ratio: Float[np.ndarray, "layer head matrix"]
    """Mean of the diagonal over the standard deviation of all other entries: what one sees in a picture of it."""
    mean_diagonal: Float[np.ndarray, "layer head matrix"]
    """Mean of the diagonal in the units of a_h and b_h (W_Q W_K^T is over the attention scale)."""
    scalar: Float[np.ndarray, "layer head matrix"]
    """a_h and b_h, which the model adds to the diagonal; 0 in a model without."""
    cosine_with_scalar: Float[np.ndarray, "layer head matrix"]
    """Of the matrix with a_h I or b_h I added. It has no p: nothing there was drawn at random."""
    ratio_with_scalar: Float[np.ndarray, "layer head matrix"]
    null_sd: float
    """Standard deviation of the null's cosine: 1 / d_model for every spectrum."""
    largest: float
    """The largest cosine that a matrix of such rank can have."""
    alpha: float
    """Level of the Holm correction."""
    n: int
    """Random matrices behind each p."""

    def heads(self, matrix: int) -> tuple[tuple[int, int], ...]:
        """(layer, head) wherever the diagonal of W_Q W_K^T (0) or W_V W_O (1) is strong: corrected p at most alpha."""
        layer, head = np.nonzero(self.p_holm[:, :, matrix] <= self.alpha)
        return tuple(zip(layer.tolist(), head.tolist(), strict=True))

    @property
    def _added(self) -> list[int]:
        """The matrices whose diagonal the model adds to."""
        return [matrix for matrix in range(len(MATRICES)) if np.nan_to_num(self.scalar[:, :, matrix]).any()]

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per head and matrix."""
        import pandas as pd

        layer, head, matrix = (index.ravel() for index in np.indices(self.cosine.shape))
        columns = {"layer": layer, "head": head, "matrix": np.array(MATRICES)[matrix]}
        for name in ("cosine", "z", "p", "p_holm", "ratio", "mean_diagonal", "scalar"):
            columns[name] = getattr(self, name).ravel()
        for name in ("cosine_with_scalar", "ratio_with_scalar"):
            columns[name] = getattr(self, name).ravel()
        return pd.DataFrame(columns | {"n": self.n})

    def plot(self) -> "alt.TopLevelMixin":
        """A layer x head map of cosines for each matrix; below, with the scalars, where the model has any."""
        from interp.view.charts import heatmaps

        def maps(panels: dict[str, np.ndarray], title: str, lowest: float, highest: float) -> Any:
            values = np.stack(list(panels.values()))
            return heatmaps(
                panels,
                x=[str(head) for head in range(values.shape[2])],
                x_title="head",
                y_title="layer",
                title=title,
                value="cosine",
                domain=(min(lowest, float(np.nanmin(values))), max(highest, float(np.nanmax(values)))),
            )

        alone = {
            f"{name}: {len(self.heads(matrix))} strong": self.cosine[:, :, matrix]
            for matrix, name in enumerate(MATRICES)
        }
        null = f"random directions 0 ± {self.null_sd:.2g}, at most {self.largest:.2f}"
        chart = maps(alone, f"cosine with the identity; {null}", 0.0, self.largest)
        added = {
            f"{MATRICES[matrix]} + {SCALARS[matrix]}": self.cosine_with_scalar[:, :, matrix] for matrix in self._added
        }
        if not added:
            return chart
        return (chart & maps(added, "with what the model adds", -1.0, 1.0)).resolve_scale(color="independent")

    def __str__(self) -> str:
        lines = [f"{'layer':<7}{'matrix':<11}{'strong':<10}{'largest cosine':<17}{'z':>7}{'ratio':>8}"]
        lines[0] += f"   largest with {', '.join(SCALARS[matrix] for matrix in self._added)}" if self._added else ""
        for layer, matrix in np.ndindex(self.cosine.shape[0], len(MATRICES)):
            values, line = self.cosine[layer, :, matrix], f"{layer:<7}{MATRICES[matrix]:<11}"
            if np.isnan(values).all():
                lines.append(line + "hard-coded")
                continue
            best = int(np.nanargmax(values))
            cell = (layer, best, matrix)
            strong = f"{int((self.p_holm[layer, :, matrix] <= self.alpha).sum())} of {np.isfinite(values).sum()}"
            line += (
                f"{strong:<10}{values[best]:<6.3f}{f'(head {best})':<11}{self.z[cell]:>7.1f}{self.ratio[cell]:>8.2f}"
            )
            if matrix in self._added:
                together = self.cosine_with_scalar[layer, :, matrix]
                most = int(np.nanargmax(np.abs(together)))
                line += f"   {together[most]:.3f} (head {most}, {self.scalar[layer, most, matrix]:+.3g} I)"
            lines.append(line)
        foot = f"random directions: cosine 0 ± {self.null_sd:.2g}, p from {self.n}, upper tail, Holm at {self.alpha}"
        return "\n".join([*lines, foot])
