"""The result of pruning a random network, and the check of its error against a tolerance."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor, nn

from hooks.checks import shown
from hooks.typed import COUNT, MAY_BE_INFINITE, POSITIVE_COUNT, ROUNDING, SHARE, SIZE, Axes
from interp.core.consistency import check_that
from interp.core.results import NOT_SAVED, Result
from interp.theory.pruning.search import LargestError, worst_on_unit_ball

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

MOST_TRIED = 36
"""Largest number of candidates that is tried for a tolerance: with 40, half of them already have a million sums."""


@dataclass(frozen=True, kw_only=True)
class PruningResult(Result):
    """A pruned random network and its errors. Errors are the largest found, a lower bound on the largest there is."""

    target: str
    """What the network was pruned to."""
    candidates: Annotated[int, POSITIVE_COUNT]
    """Random numbers to choose from, for each weight of the target."""
    scale: Annotated[float, SIZE]
    """Bound on products of two random weights; 1 in the theorem."""
    seed: int
    error: Annotated[float, SIZE]
    """Largest difference of outputs found: of any logit for a transformer, else the 2-norm at a position."""
    sampled_error: Annotated[float, SIZE]
    """The same over the sampled inputs only, before the search for worse ones."""
    domain: str
    """Inputs that were tried."""
    n: Annotated[int, COUNT]
    """Number of inputs."""
    order_kept: Annotated[float, SHARE] | None = None
    """Fraction of positions in the sampled sequences at which all classes have the target's order; None without
    classes."""
    layers: Annotated[tuple[str, ...], Axes("layer")]
    """What each random layer was pruned to."""
    growth: Annotated[Float[np.ndarray, " layer"], SIZE]
    """Largest error of the stream found after each random layer, in ||.||_{1,2}."""
    bound: Annotated[Float[np.ndarray, " layer"], SIZE, MAY_BE_INFINITE]
    """Upper bound on that error over the ball (one step of Lemma 5 per layer, with the constants of these masks)."""
    radius: Annotated[float, SIZE]
    """Radius of the ball, in the norm `||X||_{1,2}`."""
    weights: Annotated[dict[str, tuple[int, int]], COUNT]
    """Number of weights kept, and of all weights, of each random matrix."""
    kept: Annotated[dict[str, Int[np.ndarray, "entry 2"]], COUNT]
    """Row and column of every weight that is kept, by matrix."""
    network: Any = field(default=None, repr=False, metadata=NOT_SAVED)
    """The pruned network, with `weight_orig` and `weight_mask` of `torch.nn.utils.prune` in each random matrix. Errors
    are those of `network.double()`: sums in a pruned network cancel, and float32 rounds them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        larger = f"sampled_error is {self.sampled_error:g}, above error, {self.error:g}, which is the largest found."
        check_that(self.sampled_error <= self.error * (1 + ROUNDING), larger)
        check_that(set(self.weights) == set(self.kept), f"weights is of {shown(sorted(self.weights))}, kept is not.")
        for name, (n_kept, size) in self.weights.items():
            n_places, n_different = len(self.kept[name]), len(np.unique(self.kept[name], axis=0))
            text = f"weights has {n_kept} of {size} weights of {shown(name)}; kept has {n_places} places"
            check_that(n_different == n_places == n_kept <= size, f"{text}, {n_different} of them different.")

    @property
    def fraction_kept(self) -> float:
        """Fraction of all random weights that is kept."""
        return sum(n_kept for n_kept, _ in self.weights.values()) / sum(size for _, size in self.weights.values())

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


def pruning_result(
    target: str, error: LargestError, masks: dict[str, Tensor], network: nn.Module, **fields: Any
) -> PruningResult:
    """The result for a network pruned with these masks, its errors, and the remaining fields."""
    return PruningResult(
        target=target,
        error=error.largest,
        sampled_error=error.sampled,
        n=error.n,
        weights={name: (int(mask.count_nonzero()), mask.numel()) for name, mask in masks.items()},
        kept={name: mask.nonzero().numpy() for name, mask in masks.items()},
        network=network,
        **fields,
    )


def unit_ball_result(
    target: str,
    difference: Callable[[Tensor], Float[Tensor, " batch"]],
    shape: tuple[int, ...],
    masks: dict[str, Tensor],
    network: nn.Module,
    *,
    bound: float,
    seed: int,
    **settings: Any,
) -> PruningResult:
    """The result for a network of one layer, after a search for the largest difference over inputs of this shape.

    `bound` is the upper bound on the error over vectors of length at most 1.
    """
    error = worst_on_unit_ball(difference, shape, seed=seed)
    return pruning_result(
        target,
        error,
        masks,
        network,
        domain="vectors of length at most 1, at every position",
        layers=(target,),
        growth=np.array([error.largest]),
        bound=np.array([bound]),
        radius=1.0,
        seed=seed,
        **settings,
    )


def within_tolerance(
    result: PruningResult,
    tolerance: float | None,
    prune_again: Callable[..., PruningResult] | None,
    *,
    measured: str = "error",
) -> PruningResult:
    """The result, if its error is at most the tolerance; None tolerates any error.

    Args:
        result: The result to check.
        tolerance: The largest error accepted.
        prune_again: Prunes with another number of `candidates`, to find one that is enough, in steps of 2; None if the
            random network is fixed.
        measured: The error that is compared: `error` or `sampled_error`.

    Raises:
        ValueError: the error is larger. The message has the least number of candidates that is enough, if any.
    """
    error = getattr(result, measured)
    if tolerance is None or error <= tolerance:
        return result
    advice = "Raise the tolerance, or give a wider random network."
    if prune_again is not None:
        for candidates in range(result.candidates + 2, MOST_TRIED + 1, 2):
            if getattr(prune_again(candidates=candidates), measured) <= tolerance:
                advice = f"{candidates} candidates reach it."
                break
    raise ValueError(
        f"candidates is {result.candidates}: the largest error found is {error:.2g}, above the tolerance of "
        f"{tolerance:.2g}. {advice}"
    )
