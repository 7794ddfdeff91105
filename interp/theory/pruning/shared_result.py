"""Two networks that share a matrix: how far apart they are, and what the matrix shows in either."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from interp.core.results import NOT_SAVED, Result

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class IndistinguishableResult(Result):
    """For every shared matrix: two networks, each near its own target, that nobody can tell apart by looking at it.

    Axes: `shared` the matrices asked about; `network` the two, a and b.
    """

    shared: tuple[str, ...]
    """Names of the matrices."""
    candidates: int
    """Random numbers to choose among for each weight of a target."""
    scale: float
    """Products of two random weights are within this; 1 is the theorem's."""
    seed: int
    n: int
    """Sequences behind errors and distances, half of them random tokens."""
    difference: Float[np.ndarray, " shared"]
    """Largest difference of any entry of the matrix between the two networks."""
    masks_differ: Int[np.ndarray, " shared"]
    """Entries kept in one and not in the other."""
    error: Float[np.ndarray, "shared network"]
    """Largest difference of a logit from the network's own target, over the sequences."""
    distance: Float[np.ndarray, " shared"]
    """Largest difference of a logit between the two."""
    disagree: Float[np.ndarray, " shared"]
    """Share of positions where their most likely class differs."""
    norm: Float[np.ndarray, "shared network"]
    """Frobenius norm of the matrix."""
    pattern_distance: Float[np.ndarray, " shared"]
    """Half the sum of differences of the pattern's rows, mean over heads, queries and sequences; NaN outside attention.
    The same matrix meets another stream in either network."""
    singular_values: dict[str, Float[np.ndarray, "network value"]]
    """The largest ones of each matrix."""
    patterns: dict[str, Float[np.ndarray, "network query key"]]
    """Head 0 of the first matrix asked about, on one sequence; empty if that is not in attention."""
    tokens: tuple[str, ...]
    """That sequence."""
    same_matrices: tuple[tuple[str, ...], ...]
    """For every choice, all matrices of the two networks that are equal bit by bit."""
    n_matrices: int
    """How many there are."""
    networks: Any = field(default=None, repr=False, compare=False, metadata=NOT_SAVED)
    """By matrix, the two networks, with torch's pruning bookkeeping; errors are those of `.double()`."""

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per shared matrix."""
        import pandas as pd

        return pd.DataFrame(
            {
                "shared": self.shared,
                "difference": self.difference,
                "masks_differ": self.masks_differ,
                "error_a": self.error[:, 0],
                "error_b": self.error[:, 1],
                "distance": self.distance,
                "disagree": self.disagree,
                "norm_a": self.norm[:, 0],
                "norm_b": self.norm[:, 1],
                "pattern_distance": self.pattern_distance,
                "same_matrices": [len(same) for same in self.same_matrices],
                "n": self.n,
            }
        )

    def plot(self) -> "alt.TopLevelMixin":
        """Errors beside the distance for every matrix; of the first, singular values and pattern in either network."""
        from interp.view.growth import shared_matrix

        return shared_matrix(
            {"a from its target": self.error[:, 0], "b from its target": self.error[:, 1], "a from b": self.distance},
            names=self.shared,
            singular_values=self.singular_values[self.shared[0]],
            patterns=self.patterns.get(self.shared[0]),
            tokens=self.tokens,
            title=f"largest difference of a logit, n = {self.n} sequences",
        )

    def __str__(self) -> str:
        wide = max(6, *(len(name) for name in self.shared))
        lines = [f"{'shared':<{wide}}{'differs by':>12}{'error a':>10}{'error b':>10}{'a from b':>10}{'disagree':>10}"]
        for index, name in enumerate(self.shared):
            a, b = self.error[index]
            lines.append(
                f"{name:<{wide}}{self.difference[index]:>12.2g}{a:>10.2g}{b:>10.2g}{self.distance[index]:>10.3g}"
                f"{self.disagree[index]:>10.1%}"
            )
        fewest = min(len(same) for same in self.same_matrices)
        tail = f"logits, largest of {self.n} sequences; {fewest} or more of {self.n_matrices} matrices the same in both"
        return "\n".join([*lines, tail])
