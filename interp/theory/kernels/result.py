"""What kernels predict of unseen symbols, and how they see templates."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from interp.core.results import Result

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class KernelResult(Result):
    """Kernel ridge regression on strings over unseen symbols, for every setting tried: a kernel and a lambda."""

    kernels: tuple[str, ...]
    """The kernel of each setting."""
    regularisation: Float[np.ndarray, " setting"]
    """lambda, as part of the mean of the training Gram matrix's diagonal."""
    validation_mse: Float[np.ndarray, " setting"]
    """Mean squared error on validation symbols: what the choice went by."""
    validation_accuracy: Float[np.ndarray, " setting"]
    mse: Float[np.ndarray, " setting"]
    """Mean squared error on test symbols, in squared units of the label."""
    mse_low: Float[np.ndarray, " setting"]
    mse_high: Float[np.ndarray, " setting"]
    """Ends of its interval (bootstrap over test strings)."""
    accuracy: Float[np.ndarray, " setting"]
    """Share of test strings whose label is the one nearest to the prediction."""
    low: Float[np.ndarray, " setting"]
    high: Float[np.ndarray, " setting"]
    """Ends of its interval (Clopper-Pearson)."""
    spread: Float[np.ndarray, " setting"]
    """Standard deviation of the predictions over test strings; 0 if all unseen strings are alike to the kernel."""
    chosen: int
    """The setting with the least error on validation symbols."""
    constant_mse: float
    """Error on test symbols of always saying the mean of the training labels."""
    constant_accuracy: float
    n_train: int
    n_validation: int
    n: int
    """Test strings behind every figure."""

    @property
    def chosen_accuracy(self) -> float:
        """Accuracy on test symbols of the setting chosen on validation symbols."""
        return float(self.accuracy[self.chosen])

    @property
    def chosen_mse(self) -> float:
        """Mean squared error on test symbols of the setting chosen on validation symbols."""
        return float(self.mse[self.chosen])

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per setting."""
        import pandas as pd

        columns = {"kernel": self.kernels, "regularisation": self.regularisation}
        for name in ("validation_mse", "validation_accuracy", "mse", "mse_low", "mse_high"):
            columns[name] = getattr(self, name)
        for name in ("accuracy", "low", "high", "spread"):
            columns[name] = getattr(self, name)
        chosen = np.arange(len(self.kernels)) == self.chosen
        return pd.DataFrame(columns | {"chosen": chosen, "n_train": self.n_train, "n": self.n})

    def plot(self) -> "alt.TopLevelMixin":
        """Error on test symbols of every setting with its interval, over that of a constant as a line."""
        import pandas as pd

        from interp.view.charts import dots

        names = [name.removeprefix("transformer, ") for name in self.kernels]  # a legend is narrow
        values = [f"{part:g}" for part in self.regularisation]
        columns = {"lambda": values, "mse": self.mse, "low": self.mse_low, "high": self.mse_high}
        return dots(
            pd.DataFrame(columns | {"kernel": names}),
            x="lambda",
            y="mse",
            series="kernel",
            rule=self.constant_mse,
            domain=(0.0, 1.05 * float(max(self.constant_mse, self.mse_high.max()))),
            title=f"squared error on unseen symbols, {self.n_train} to learn from; dashed: a constant",
        )

    def __str__(self) -> str:
        width = max(len(name) for name in self.kernels) + 2
        lines = [f"{'kernel':<{width}}{'lambda':>8}{'validation':>12}{'mse':>8}  {'95 %':<16}{'accuracy':>9}  95 %"]
        for index, name in enumerate(self.kernels):
            error = f"[{self.mse_low[index]:.3f}, {self.mse_high[index]:.3f}]"
            share = f"[{self.low[index]:.3f}, {self.high[index]:.3f}]"
            mark = "  chosen" if index == self.chosen else ""
            lines.append(
                f"{name:<{width}}{self.regularisation[index]:>8g}{self.validation_mse[index]:>12.3f}"
                f"{self.mse[index]:>8.3f}  {error:<16}{self.accuracy[index]:>9.3f}  {share}{mark}"
            )
        foot = f"constant: mse {self.constant_mse:.3f}, accuracy {self.constant_accuracy:.3f}"
        return "\n".join(
            [*lines, f"{foot}; {self.n_train} training strings, {self.n} test strings over unseen symbols"]
        )


@dataclass(frozen=True, kw_only=True)
class TemplateMatrix(Result):
    """N: what a kernel gives strings of two templates that share no symbol. Errors are standard errors over repeats."""

    kernel: str
    templates: tuple[str, ...]
    """The templates, without their labels, which are without influence."""
    matrix: Float[np.ndarray, "template template"]
    """N."""
    matrix_error: Float[np.ndarray, "template template"]
    attention: Float[np.ndarray, "template template"]
    """The same before the hidden layer: K_attn, or for an MLP the number of equal positions."""
    attention_error: Float[np.ndarray, "template template"]
    own: Float[np.ndarray, " template"]
    """K_attn of a string with itself."""
    own_error: Float[np.ndarray, " template"]
    eigenvalues: Float[np.ndarray, " template"]
    """Of `matrix` as it is, from the smallest."""
    smallest: float
    """The smallest eigenvalue, freed from the first-order bias that errors of `matrix` give it."""
    low: float
    high: float
    """Ends of its 95 % interval over draws; a kernel without randomness has no width."""
    verdict: str
    """`nonsingular`: the interval lies above 0. `singular`: the kernel has no randomness, and the eigenvalue is zero to
    rounding. `undecided`: more draws are needed, or it is singular, which draws cannot show."""
    copies: int
    """Strings per template."""
    repeats: int
    """Sets of draws: the independent units."""
    n: int
    """Draws in all; 0 for a kernel without randomness."""

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per two templates."""
        import pandas as pd

        first, second = (index.ravel() for index in np.indices(self.matrix.shape))
        names = np.array(self.templates)
        columns = {"first": names[first], "second": names[second]}
        for name in ("matrix", "matrix_error", "attention", "attention_error"):
            columns[name] = getattr(self, name).ravel()
        return pd.DataFrame(columns | {"n": self.n})

    def plot(self) -> "alt.TopLevelMixin":
        """N less its least entry, as a map in thousandths: what tells templates apart."""
        from interp.view.charts import heatmaps

        above = 1e3 * (self.matrix - self.matrix.min())
        short = max(len(name) for name in self.templates) <= 5
        return heatmaps(
            {self.kernel: above},
            x=self.templates if short else [str(index) for index in range(len(self.templates))],
            x_title="template",
            y_title="other template",
            title=f"N, smallest eigenvalue {self.smallest:.2g} [{self.low:.2g}, {self.high:.2g}]: {self.verdict}",
            value="thousandths above the least entry",
            domain=(0.0, max(1e-6, float(above.max()))),
        )

    def __str__(self) -> str:
        drawn = f"{self.n} draws in {self.repeats} sets" if self.n else "no randomness"
        return "\n".join(
            [
                f"{self.kernel}: {len(self.templates)} templates, {self.copies} strings of each, {drawn}",
                f"  smallest eigenvalue  {self.smallest:.3g}  95 % [{self.low:.3g}, {self.high:.3g}]: {self.verdict}",
                f"  largest              {self.eigenvalues[-1]:.3g}",
                f"  entries              {self.matrix.min():.4f} to {self.matrix.max():.4f}, standard error "
                f"{self.matrix_error.max():.1g} at most",
            ]
        )
