"""The kernel matrix of templates, and whether it is nonsingular."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int
from scipy import stats
from torch import Tensor

from interp.core.randomness import derived_seed
from interp.core.results import Result
from interp.core.statistics import CONFIDENCE
from interp.tasks.template.task import Template
from interp.theory.kernels.random_features import Kernel
from interp.theory.kernels.regression import check_task

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

ROUNDING = 1e-12
"""An eigenvalue below that part of the largest one is zero to float64."""


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


def template_matrix(
    task: Template, kernel: Kernel, *, copies: int = 12, repeats: int = 32, seed: int = 0
) -> TemplateMatrix:
    """What a kernel gives two strings of templates z and z' without a common symbol; can it be inverted?

    If so, kernel regression learns any labels of the templates, given enough training symbols; if not, there are
    labels that it cannot carry over to unseen symbols. Which symbols fill a template is without influence on the
    expectation, so K_attn is averaged over all pairs of disjoint strings and all draws before the closed form of the
    hidden layer is applied.

    The smallest eigenvalue of a matrix with errors is on average too small, and the closed form is curved: both
    biases fall as one over the draws. The estimate is the jackknife's over `repeats` sets of draws that share
    nothing, which takes that part of the bias away, and its 95 % interval the jackknife's with t quantiles. Where
    several eigenvalues are no larger than their errors, both lie too low: the verdict then errs towards `undecided`.

    Args:
        task: Templates with real labels. Which labels, and which alphabets, is without influence.
        kernel: Which kernel. Its draws are taken anew for every repeat.
        copies: Strings per template, 2 or more.
        repeats: Sets of draws, 2 or more; one is enough for a kernel without randomness.
        seed: Decides the draws, in place of the kernel's own.

    Raises:
        ValueError: a task without real labels, something else in place of a kernel, or too few copies or repeats.

    Source: template paper (arXiv:2310.09753), the condition of its theorem on kernel regression; jackknife: Efron &
    Stein 1981. Differs: the paper proves that N is nonsingular; here it is measured for the parameters at hand.
    """
    check_task(task, "template_matrix")
    if not isinstance(kernel, Kernel):
        raise ValueError(f"kernel is a {type(kernel).__name__}; give a TransformerKernel or an MLPKernel.")
    if min(copies, repeats) < 2:
        raise ValueError(f"copies is {copies} and repeats {repeats}; choose 2 or more of each.")
    strings = task.disjoint_strings(copies)
    seeds = [derived_seed(seed, "repeat", index) for index in range(repeats)]
    drawn = [replace(kernel, seed=one) for one in seeds] if kernel.random_draws else [kernel]
    means = [_disjoint_means(one, strings) for one in drawn]
    between, own = (np.stack(part) for part in zip(*means, strict=True))
    left_between, left_own = _leave_one_out(between), _leave_one_out(own)
    matrix = kernel.hidden(between.mean(0), own.mean(0), own.mean(0))
    matrices = kernel.hidden(left_between, left_own, left_own)
    eigenvalues = np.linalg.eigvalsh(matrix)
    estimate, error = _jackknife(eigenvalues, np.linalg.eigvalsh(matrices))
    margin = error[0] * stats.t.isf((1 - CONFIDENCE) / 2, max(1, len(drawn) - 1))
    low = float(estimate[0] - margin)
    return TemplateMatrix(
        kernel=str(kernel),
        templates=tuple(one.text for one in task.labelled),
        matrix=matrix,
        matrix_error=_jackknife(matrix, matrices)[1],
        attention=between.mean(0),
        attention_error=_jackknife(between.mean(0), left_between)[1],
        own=own.mean(0),
        own_error=_jackknife(own.mean(0), left_own)[1],
        eigenvalues=eigenvalues,
        smallest=float(estimate[0]),
        low=low,
        high=float(estimate[0] + margin),
        verdict=_verdict(low, exact=not kernel.random_draws, zero=ROUNDING * float(eigenvalues[-1])),
        copies=copies,
        repeats=len(drawn),
        n=kernel.random_draws * repeats,
    )


def _disjoint_means(
    kernel: Kernel, strings: Int[Tensor, "template copy pos"]
) -> tuple[Float[np.ndarray, "template template"], Float[np.ndarray, " template"]]:
    """Mean of K_attn over pairs of different strings, and over strings with themselves."""
    templates, copies, _ = strings.shape
    found = kernel.attention(strings.flatten(0, 1))
    own = found.diagonal().reshape(templates, copies).sum(1)
    total = found.reshape(templates, copies, templates, copies).sum((1, 3)) - np.diag(own)
    return total / (copies**2 - copies * np.eye(templates)), own / copies


def _leave_one_out(values: Float[np.ndarray, "repeat *cells"]) -> Float[np.ndarray, "repeat *cells"]:
    """Means of all but one; of the only one, itself."""
    return (values.sum(0) - values) / (len(values) - 1) if len(values) > 1 else values


def _jackknife(
    whole: Float[np.ndarray, "*cells"], without: Float[np.ndarray, "repeat *cells"]
) -> tuple[Float[np.ndarray, "*cells"], Float[np.ndarray, "*cells"]]:
    """Estimate freed from its first-order bias, and standard error, from what is found without each repeat."""
    n = len(without)
    return n * whole - (n - 1) * without.mean(0), np.sqrt((n - 1) * without.var(0))


def _verdict(low: float, *, exact: bool, zero: float) -> str:
    if low > zero:
        return "nonsingular"
    return "singular" if exact else "undecided"
