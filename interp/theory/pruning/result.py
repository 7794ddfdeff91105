"""What was pruned out of a random network: how near it came, what is left of it, how its error grew."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from interp.core.results import NOT_SAVED, Result

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class PruningResult(Result):
    """A pruned random network beside its target. Errors are the largest found: the true largest may be larger."""

    target: str
    """What was to be made."""
    candidates: int
    """Random numbers to choose among for each of its weights."""
    scale: float
    """Products of two random weights are within this; 1 is the theorem's."""
    seed: int
    error: float
    """Largest difference of outputs found: of any logit for a transformer, else the 2-norm at a position."""
    sampled_error: float
    """The same before inputs were made worse on purpose."""
    domain: str
    """Which inputs were tried."""
    n: int
    """How many."""
    order_kept: float | None
    """Share of positions, over the sequences sampled, where all classes stand in the target's order; None without
    classes."""
    layers: tuple[str, ...]
    """What each random layer was pruned to."""
    growth: Float[np.ndarray, " layer"]
    """Largest error of the stream found after each random layer, ||.||_{1,2}."""
    bound: Float[np.ndarray, " layer"]
    """What it cannot exceed on the ball tried (the step of Lemma 5, with the constants of these masks)."""
    radius: float
    """Of that ball, ||X||_{1,2}."""
    weights: dict[str, tuple[int, int]]
    """Kept and all weights of each random matrix."""
    kept: dict[str, Int[np.ndarray, "entry 2"]]
    """Row and column of every weight that is kept, by matrix."""
    network: Any = field(default=None, repr=False, compare=False, metadata=NOT_SAVED)
    """The pruned network, with torch's bookkeeping: `weight_orig` and `weight_mask` in each random matrix. Errors are
    those of `network.double()`: the sums of a pruned network cancel, and float32 rounds them."""

    @property
    def fraction_kept(self) -> float:
        """Of all random weights."""
        return sum(kept for kept, _ in self.weights.values()) / sum(size for _, size in self.weights.values())

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per random layer."""
        import pandas as pd

        columns = {"layer": range(len(self.layers)), "pruned_to": self.layers}
        return pd.DataFrame(columns | {"error": self.growth, "bound": self.bound, "n": self.n})

    def plot(self) -> "alt.TopLevelMixin":
        """The largest error found after each layer, beside the bound."""
        from interp.view.growth import error_growth

        return error_growth(
            self.growth, self.bound, layers=self.layers, title=f"{self.target}: error, largest of n = {self.n} inputs"
        )

    def __str__(self) -> str:
        lines = [
            f"{self.target}, out of random weights: {self.candidates} candidates each, "
            f"{self.fraction_kept:.2%} of {sum(size for _, size in self.weights.values()):,} kept",
            f"  largest error found  {self.error:.3g}  ({self.sampled_error:.3g} before the search; {self.n} inputs)",
            f"  inputs               {self.domain}",
        ]
        if self.order_kept is not None:
            lines.append(f"  order of classes     kept at {self.order_kept:.4%} of positions")
        lines.append(f"  {'layer':<24}{'error':>12}{'bound':>12}")
        for index, (name, error, bound) in enumerate(zip(self.layers, self.growth, self.bound, strict=True)):
            lines.append(f"  {f'{index}  {name}':<24}{error:>12.2g}{bound:>12.2g}")
        return "\n".join(lines)
