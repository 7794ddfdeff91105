"""PruningResult, and the steps that all `prune_to_*` functions share: the check of the tolerance, and the result."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor, nn

from interp.core.results import NOT_SAVED, Result
from interp.theory.pruning.search import Worst

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

MOST_CANDIDATES = 36
"""Most that are tried for a tolerance: with more, a single weight has over a million sums in either half."""
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class PruningResult(Result):
    """A pruned random network and its errors. Errors are the largest found, a lower bound on the largest there is."""

    target: str
    """What the network was pruned to."""
    candidates: int
    """Random numbers to choose from, for each weight of the target."""
    scale: float
    """Bound on products of two random weights; 1 in the theorem."""
    seed: int
    error: float
    """Largest difference of outputs found: of any logit for a transformer, else the 2-norm at a position."""
    sampled_error: float
    """The same over the sampled inputs only, before the search for worse ones."""
    domain: str
    """Inputs that were tried."""
    n: int
    """Number of inputs."""
    order_kept: float | None = None
    """Fraction of positions in the sampled sequences at which all classes have the target's order; None without
    classes."""
    layers: tuple[str, ...]
    """What each random layer was pruned to."""
    growth: Float[np.ndarray, " layer"]
    """Largest error of the stream found after each random layer, in ||.||_{1,2}."""
    bound: Float[np.ndarray, " layer"]
    """Upper bound on that error over the ball (one step of Lemma 5 per layer, with the constants of these masks)."""
    radius: float
    """Radius of the ball, in the norm `||X||_{1,2}`."""
    weights: dict[str, tuple[int, int]]
    """Number of weights kept, and of all weights, of each random matrix."""
    kept: dict[str, Int[np.ndarray, "entry 2"]]
    """Row and column of every weight that is kept, by matrix."""
    network: Any = field(default=None, repr=False, metadata=NOT_SAVED)
    """The pruned network, with `weight_orig` and `weight_mask` of `torch.nn.utils.prune` in each random matrix. Errors
    are those of `network.double()`: sums in a pruned network cancel, and float32 rounds them."""

    @property
    def fraction_kept(self) -> float:
        """Fraction of all random weights that is kept."""
        return sum(kept for kept, _ in self.weights.values()) / sum(size for _, size in self.weights.values())

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per random layer."""
        axes = {"layer": range(len(self.layers))}
        return self._table(axes, pruned_to=self.layers, error=self.growth, bound=self.bound, n=self.n)

    def plot(self) -> "alt.TopLevelMixin":
        """Largest error found after each layer, and its upper bound."""
        from interp.view.pruning import error_growth

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


def pruning_result(target: str, worst: Worst, masks: dict[str, Tensor], network: nn.Module, **fields) -> PruningResult:
    """The result for a network pruned with these masks, its errors, and the remaining fields."""
    return PruningResult(
        target=target,
        error=worst.found,
        sampled_error=worst.sampled,
        n=worst.n,
        weights={name: (int(mask.sum()), mask.numel()) for name, mask in masks.items()},
        kept={name: mask.nonzero().numpy() for name, mask in masks.items()},
        network=network,
        **fields,
    )


def within_tolerance(
    make: Callable[[int], T],
    error: Callable[[T], float],
    *,
    candidates: int,
    tolerance: float | None,
    fixed: bool = False,
) -> T:
    """Prune by `make(candidates)`, and check that the error of its result is at most the tolerance.

    Raises:
        ValueError: the error is larger. Unless the random network is `fixed`, the message has the least number of
            candidates that is enough, searched in steps of 2.
    """
    made = make(candidates)
    if tolerance is None or (found := error(made)) <= tolerance:
        return made
    more = () if fixed else range(candidates + 2, MOST_CANDIDATES + 1, 2)
    enough = next((n for n in more if error(make(n)) <= tolerance), None)
    advice = f"{enough} candidates reach it." if enough else "Raise the tolerance, or give a wider random network."
    raise ValueError(
        f"candidates is {candidates}: the largest error found is {found:.2g}, above the tolerance of {tolerance:.2g}. "
        f"{advice}"
    )
