"""Kernel ridge regression on template strings, tested on unseen symbols."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, get_args

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from hooks.checks import checks_types
from hooks.extras import require
from interp.core.randomness import derived_generator, derived_seed
from interp.core.results import Result
from interp.core.statistics import bootstrap_mean, proportion_interval
from interp.tasks.base import Split
from interp.tasks.template.task import Template
from interp.theory.kernels.random_features import Activation, Kernel, TransformerKernel

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class KernelResult(Result):
    """Results of kernel ridge regression on unseen symbols, for every setting: a kernel and a lambda."""

    kernels: tuple[str, ...]
    """The kernel of each setting."""
    regularisation: Float[np.ndarray, " setting"]
    """lambda, as a fraction of the mean diagonal of the training Gram matrix."""
    validation_mse: Float[np.ndarray, " setting"]
    """Mean squared error on validation symbols, by which the setting is chosen."""
    validation_accuracy: Float[np.ndarray, " setting"]
    mse: Float[np.ndarray, " setting"]
    """Mean squared error on test symbols, in squared units of the label."""
    mse_low: Float[np.ndarray, " setting"]
    mse_high: Float[np.ndarray, " setting"]
    """95 % interval (bootstrap over test strings)."""
    accuracy: Float[np.ndarray, " setting"]
    """Fraction of test strings for which the nearest label to the prediction is the right one."""
    low: Float[np.ndarray, " setting"]
    high: Float[np.ndarray, " setting"]
    """95 % interval (Clopper-Pearson)."""
    spread: Float[np.ndarray, " setting"]
    """Standard deviation of the predictions over test strings; 0 if the kernel does not distinguish them."""
    chosen: int
    """The setting with the least error on validation symbols."""
    constant_mse: float
    """Error on test symbols of a constant prediction, the mean of the training labels."""
    constant_accuracy: float
    n_train: int
    n_validation: int
    n: int
    """Number of test strings."""

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per setting."""
        names = "regularisation validation_mse validation_accuracy mse mse_low mse_high accuracy low high spread"
        chosen = np.arange(len(self.kernels)) == self.chosen
        return self._table({"kernel": self.kernels}, *names.split(), chosen=chosen, n_train=self.n_train, n=self.n)

    def plot(self) -> "alt.TopLevelMixin":
        """Error on test symbols of every setting with its interval; the error of a constant as a line."""
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
            title=f"squared error on unseen symbols, {self.n_train} training strings; dashed: a constant",
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


@checks_types
def kernel_regression(
    task: Template,
    *,
    kernels: Sequence[Kernel] | None = None,
    regularisation: Sequence[float] = (1e-3, 1e-1),
    n: int = 512,
    n_validation: int = 200,
    n_test: int = 1000,
    seed: int = 0,
) -> KernelResult:
    """Kernel ridge regression of template labels, tested on strings over unseen symbols.

    The prediction is y^T (K + lambda I)^-1 k(x), the limit of training the last layer of an infinitely wide network
    with weight decay. Kernel and lambda are chosen by the squared error on validation symbols; every setting is
    reported on test symbols, to show how much depends on the choice. Intervals are 95 %, over test strings, for fixed
    training strings.

    Args:
        task: Templates with real labels.
        kernels: Kernels to try; if None, transformers with beta 4 and 8, cosine and ReLU, gamma 1, and 256 draws from
            `seed`. `[MLPKernel()]` is the fully connected network.
        regularisation: Values of lambda to try, as fractions of the mean diagonal of the training Gram matrix.
        n: Number of training strings; time is cubic in it.
        n_validation: Number of validation strings.
        n_test: Number of test strings.
        seed: Seed of all strings, the bootstrap, and the draws of the default kernels.

    Raises:
        ValueError: a task without real labels, no kernels or other objects, no lambda or one that is not positive, or
            fewer than 2 strings of a split.

    Source: template paper (arXiv:2310.09753), real labels, kernel of Eq. 3. Differs: several kernels are tried, and
    chosen on symbols that are neither in training nor in test strings.
    """
    check_task(task, "kernel_regression")
    if kernels is None:
        grid = product((4.0, 8.0), get_args(Activation))
        kernels = [TransformerKernel(beta=beta, activation=activation, seed=seed) for beta, activation in grid]
    _check_settings(kernels, regularisation, {"n": n, "n_validation": n_validation, "n_test": n_test})
    train, label = _strings(task, n, seed, "train")
    parts = [_strings(task, n_validation, seed, "validation"), _strings(task, n_test, seed, "test")]
    unseen, wanted = torch.cat([tokens for tokens, _ in parts]), np.concatenate([values for _, values in parts])
    predicted = np.stack([_predict(kernel, regularisation, train, label, unseen) for kernel in kernels])
    error = np.square(predicted - wanted).reshape(-1, len(wanted))
    right = _right(task, predicted, wanted).reshape(-1, len(wanted))
    held, tested = slice(None, n_validation), slice(n_validation, None)
    mse, mse_low, mse_high = bootstrap_mean(error[:, tested].T, seed=derived_seed(seed, "bootstrap"))
    low, high = proportion_interval(right[:, tested].sum(1), n_test)
    constant = np.full(n_test, label.mean())
    return KernelResult(
        kernels=tuple(str(kernel) for kernel in kernels for _ in regularisation),
        regularisation=np.tile(np.array(regularisation, dtype=float), len(kernels)),
        validation_mse=error[:, held].mean(1),
        validation_accuracy=right[:, held].mean(1),
        mse=mse,
        mse_low=mse_low,
        mse_high=mse_high,
        accuracy=right[:, tested].mean(1),
        low=low,
        high=high,
        spread=predicted[..., tested].std(-1).ravel(),
        chosen=int(error[:, held].mean(1).argmin()),
        constant_mse=float(np.square(constant - wanted[tested]).mean()),
        constant_accuracy=float(_right(task, constant, wanted[tested]).mean()),
        n_train=n,
        n_validation=n_validation,
        n=n_test,
    )


def _strings(task: Template, n: int, seed: int, split: Split) -> tuple[Int[Tensor, "string pos"], np.ndarray]:
    batch = task.sample(n, generator=derived_generator(seed, "kernel regression", split), split=split)
    return batch.tokens, batch.values[:, 0].double().numpy()


def _predict(
    kernel: Kernel,
    regularisation: Sequence[float],
    train: Int[Tensor, "string pos"],
    label: Float[np.ndarray, " string"],
    unseen: Int[Tensor, "other pos"],
) -> Float[np.ndarray, "setting other"]:
    require("sklearn", extra="sklearn")
    from sklearn.kernel_ridge import KernelRidge

    gram, between = kernel.gram(train), kernel.gram(unseen, train)
    scale = float(gram.diagonal().mean())
    penalties = [float(part) * scale for part in regularisation]
    models = [KernelRidge(kernel="precomputed", alpha=one) for one in penalties]  # pyright: ignore[reportArgumentType]
    return np.stack([model.fit(gram, label).predict(between) for model in models])


def _right(
    task: Template, predicted: Float[np.ndarray, "*settings string"], wanted: Float[np.ndarray, " string"]
) -> np.ndarray:
    """Whether the label nearest to the prediction is the right one."""
    values = np.array(task.values)
    nearest, true = (np.abs(given[..., None] - values).argmin(-1) for given in (predicted, wanted))
    return nearest == true


def _check_settings(kernels: Sequence[Kernel], regularisation: Sequence[float], sizes: dict[str, int]) -> None:
    if isinstance(kernels, Kernel) or not kernels or not all(isinstance(one, Kernel) for one in kernels):
        raise ValueError(f"kernels is {kernels!r}; give a list of TransformerKernel or MLPKernel, one at least.")
    if not len(regularisation) or not all(0 < part < np.inf for part in regularisation):
        raise ValueError(f"regularisation is {regularisation!r}; give positive numbers, one at least.")
    for name, size in sizes.items():
        if size < 2:
            raise ValueError(f"{name} is {size}; choose 2 or more.")


def check_task(task: Template, verb: str) -> None:
    """Raise ValueError unless the task is a template task with real labels."""
    Template.require(task, f"{verb} is about templates: give a Template task.")
    if task.form != "real":
        raise ValueError(
            f"the task's form is {task.form!r}; {verb} needs 'real': labels that are numbers, predicted at [CLS]. "
            f"Label the templates with numbers, such as 'aba -> +1'."
        )
