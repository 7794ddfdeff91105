"""The kernel matrix of templates, and whether it is nonsingular."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import numpy as np
from jaxtyping import Float, Int
from scipy import special
from torch import Tensor

from hooks.checks import check_number
from hooks.state import restores_state
from hooks.typed import COUNT, DISTINCT, SIZE, Axes, checks_types
from interp.core.consistency import check_known, check_same_numbers, check_that
from interp.core.intervals import Interval
from interp.core.randomness import derived_seed
from interp.core.results import Result
from interp.core.statistics import CONFIDENCE
from interp.tasks.template.task import Template
from interp.theory.kernels.kernel_regression import check_task
from interp.theory.kernels.random_features import Kernel

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

ROUNDING = 1e-12
"""An eigenvalue below this fraction of the largest one is zero up to rounding in float64."""


@dataclass(frozen=True, kw_only=True)
class TemplateMatrix(Result):
    """N: the kernel between strings of two templates that share no symbol. Errors are standard errors over repeats."""

    kernel: str
    templates: Annotated[tuple[str, ...], Axes("template"), DISTINCT]
    """The templates without their labels, on which N does not depend."""
    matrix: Float[np.ndarray, "template template"]
    """N."""
    matrix_error: Annotated[Float[np.ndarray, "template template"], SIZE]
    attention: Float[np.ndarray, "template template"]
    """The same before the hidden layer: K_attn, or the number of equal positions for an MLP."""
    attention_error: Annotated[Float[np.ndarray, "template template"], SIZE]
    own: Float[np.ndarray, " template"]
    """K_attn of a string with itself."""
    own_error: Annotated[Float[np.ndarray, " template"], SIZE]
    eigenvalues: Float[np.ndarray, " template"]
    """Eigenvalues of `matrix`, in ascending order."""
    smallest: Annotated[Interval, Axes("")]
    """The smallest eigenvalue, corrected for the first-order bias due to errors of `matrix`, with its 95 % interval
    over sets of draws; of zero width for a kernel without random draws."""
    verdict: str
    """`nonsingular`: the interval is above 0. `singular`: the kernel has no random draws, and the eigenvalue is zero up
    to rounding. `undecided`: otherwise; more draws are needed, or N is singular, which draws cannot prove."""
    copies: Annotated[int, COUNT]
    """Number of strings per template."""
    repeats: Annotated[int, COUNT]
    """Number of sets of draws, the independent units."""
    n: Annotated[int, COUNT]
    """Total number of draws; 0 for a kernel without random draws."""

    @property
    def _sample_size(self) -> int:
        return self.repeats

    def __post_init__(self) -> None:
        super().__post_init__()
        check_same_numbers("eigenvalues", self.eigenvalues, np.linalg.eigvalsh(self.matrix), "that of matrix")
        check_known("verdict", [self.verdict], ("nonsingular", "singular", "undecided"), "a matrix")
        is_positive = self.smallest.low > ROUNDING * self.eigenvalues[-1]
        text = f"verdict is {self.verdict}, but smallest is {self.smallest.text()}."
        check_that((self.verdict == "nonsingular") == is_positive, text)
        text = f"verdict is singular, which no draws show; n is {self.n}."
        check_that(self.verdict != "singular" or self.n == 0, text)

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per pair of templates."""
        axes = {"first": self.templates, "second": self.templates}
        return self._table(axes, "matrix", "matrix_error", "attention", "attention_error", "n")

    def plot(self) -> "alt.TopLevelMixin":
        """Heatmap of N minus its least entry, in thousandths."""
        from interp.view.charts import heatmaps

        low, high = self.smallest.low, self.smallest.high
        above = 1e3 * (self.matrix - self.matrix.min())
        names: Sequence[str] = self.templates
        if max(len(name) for name in names) > 5:
            names = [str(index) for index in range(len(names))]
        return heatmaps(
            {self.kernel: above},
            x=names,
            x_title="template",
            y_title="other template",
            title=f"N, smallest eigenvalue {self.smallest:.2g} [{low:.2g}, {high:.2g}]: {self.verdict}",
            value="thousandths above the least entry",
            domain=(0.0, max(1e-6, float(above.max()))),
        )

    def __str__(self) -> str:
        draws = f"{self.n} draws in {self.repeats} sets" if self.n else "no random draws"
        low, high = self.smallest.low, self.smallest.high
        lines = [
            f"{self.kernel}: {len(self.templates)} templates, {self.copies} strings of each, {draws}",
            f"  smallest eigenvalue  {self.smallest:.3g}  95 % [{low:.3g}, {high:.3g}]: {self.verdict}",
            f"  largest              {self.eigenvalues[-1]:.3g}",
            f"  entries              {self.matrix.min():.4f} to {self.matrix.max():.4f}, standard error "
            f"{self.matrix_error.max():.1g} at most",
        ]
        return "\n".join(lines)


@checks_types
@restores_state
def template_matrix(
    task: Template, kernel: Kernel, *, copies: int = 12, repeats: int = 32, seed: int = 0
) -> TemplateMatrix:
    """The kernel between strings of every two templates without common symbols, and whether this matrix is singular.

    If it is nonsingular, kernel regression learns any labels of the templates, given enough training symbols; if it is
    singular, there are labels that do not generalise to unseen symbols. The expectation does not depend on the symbols,
    so K_attn is averaged over all pairs of disjoint strings and all draws before the closed form of the hidden layer is
    applied.

    Errors of the matrix bias its smallest eigenvalue downwards, and the closed form is nonlinear: both biases are
    proportional to one over the number of draws. The estimate is the jackknife over `repeats` independent sets of
    draws, which removes this bias, with a 95 % interval from its standard error and t quantiles. If several eigenvalues
    are no larger than their errors, estimate and interval are too low, and the verdict errs towards `undecided`.

    Args:
        task: Templates with real labels; their values and the alphabets do not matter.
        kernel: The kernel. Each repeat has new draws.
        copies: Number of strings per template, at least 2.
        repeats: Number of sets of draws, at least 2; a kernel without random draws is computed once.
        seed: Seed of the draws, which replaces the kernel's.

    Raises:
        ValueError: a task without real labels, another object as kernel, or too few copies or repeats.

    Example:
        >>> import interp
        >>> task = interp.tasks.Template(templates=("aba -> +1", "abb -> -1"))
        >>> interp.theory.template_matrix(task, interp.theory.MLPKernel()).verdict
        'singular'

    Source: template paper (arXiv:2310.09753), the condition of its theorem on kernel regression; jackknife: Efron &
    Stein 1981. Differs: the paper proves that N is nonsingular; here it is measured for given parameters.
    """
    check_task(task, "template_matrix")
    check_number("copies", copies, integer=True, low=2)
    check_number("repeats", repeats, integer=True, low=2)
    strings = task.disjoint_strings(copies)
    repeated_kernels = [kernel]
    if kernel.random_draws:
        seeds = [derived_seed(seed, "repeat", index) for index in range(repeats)]
        repeated_kernels = [replace(kernel, seed=repeat_seed) for repeat_seed in seeds]

    # K_attn of every set of draws, and without each set for the jackknife
    means = [_disjoint_means(repeated_kernel, strings) for repeated_kernel in repeated_kernels]
    between = np.stack([mean for mean, _ in means])
    variance = np.stack([mean for _, mean in means])
    jackknife_between, jackknife_variance = _leave_one_out(between), _leave_one_out(variance)

    # N and its eigenvalues
    mean_variance = variance.mean(0)
    matrix = kernel.hidden(between.mean(0), mean_variance, mean_variance)
    matrices = kernel.hidden(jackknife_between, jackknife_variance, jackknife_variance)
    eigenvalues = np.linalg.eigvalsh(matrix)
    estimate, error = _jackknife(eigenvalues, np.linalg.eigvalsh(matrices))
    margin = error[0] * -special.stdtrit(max(1, len(repeated_kernels) - 1), (1 - CONFIDENCE) / 2)
    smallest = Interval(value=estimate[0], low=estimate[0] - margin, high=estimate[0] + margin, n=len(repeated_kernels))
    verdict = "undecided" if kernel.random_draws else "singular"
    if smallest.low > ROUNDING * float(eigenvalues[-1]):
        verdict = "nonsingular"
    return TemplateMatrix(
        kernel=str(kernel),
        templates=tuple(template.text for template in task.labelled),
        matrix=matrix,
        matrix_error=_jackknife(matrix, matrices)[1],
        attention=between.mean(0),
        attention_error=_jackknife(between.mean(0), jackknife_between)[1],
        own=mean_variance,
        own_error=_jackknife(mean_variance, jackknife_variance)[1],
        eigenvalues=eigenvalues,
        smallest=smallest,
        verdict=verdict,
        copies=copies,
        repeats=len(repeated_kernels),
        n=kernel.random_draws * repeats,
    )


def _disjoint_means(
    kernel: Kernel, strings: Int[Tensor, "template copy pos"]
) -> tuple[Float[np.ndarray, "template template"], Float[np.ndarray, " template"]]:
    """Mean of K_attn over pairs of different strings, and over strings with themselves."""
    n_templates, copies, _ = strings.shape
    attention = kernel.attention(strings.flatten(0, 1))
    variance = attention.diagonal().reshape(n_templates, copies).sum(1)
    total = attention.reshape(n_templates, copies, n_templates, copies).sum((1, 3)) - np.diag(variance)
    return total / (copies**2 - copies * np.eye(n_templates)), variance / copies


def _leave_one_out(values: Float[np.ndarray, "repeat *cells"]) -> Float[np.ndarray, "repeat *cells"]:
    """Means without each repeat; a single repeat is returned as it is."""
    return (values.sum(0) - values) / (len(values) - 1) if len(values) > 1 else values


def _jackknife(
    estimate: Float[np.ndarray, "*cells"], without_each: Float[np.ndarray, "repeat *cells"]
) -> tuple[Float[np.ndarray, "*cells"], Float[np.ndarray, "*cells"]]:
    """Bias-corrected estimate and standard error, from the estimates without each repeat."""
    n = len(without_each)
    return n * estimate - (n - 1) * without_each.mean(0), np.sqrt((n - 1) * without_each.var(0))
