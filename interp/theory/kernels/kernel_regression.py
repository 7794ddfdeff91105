"""Kernel ridge regression on template strings, tested on unseen symbols."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hooks.checks import check_number
from hooks.state import restores_state
from hooks.typed import COUNT, SHARE, SIZE, Axes, checks_types
from interp.core.consistency import check_that
from interp.core.intervals import Interval
from interp.core.randomness import derived_generator, derived_seed
from interp.core.results import Result, table_lines
from interp.core.statistics import bootstrap_mean, proportion_interval
from interp.tasks.base import Split
from interp.tasks.splits import sample_split
from interp.tasks.template.task import Template
from interp.theory.kernels.random_features import Activation, Kernel, TransformerKernel

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class KernelResult(Result):
    """Results of kernel ridge regression on unseen symbols, for every setting: a kernel and a lambda."""

    kernels: Annotated[tuple[str, ...], Axes("setting")]
    """The kernel of each setting."""
    regularisation: Annotated[Float[np.ndarray, " setting"], SIZE]
    """lambda, as a fraction of the mean diagonal of the training Gram matrix."""
    validation_mse: Annotated[Float[np.ndarray, " setting"], SIZE]
    """Mean squared error on validation symbols, by which the setting is chosen."""
    validation_accuracy: Annotated[Float[np.ndarray, " setting"], SHARE]
    mse: Annotated[Interval, Axes("setting"), SIZE]
    """Per setting: mean squared error on test symbols, in squared units of the label, with its 95 % interval (bootstrap
    over test strings)."""
    accuracy: Annotated[Interval, Axes("setting"), SHARE]
    """Per setting: fraction of test strings for which the nearest label to the prediction is the right one, with its
    95 % interval (Clopper-Pearson)."""
    spread: Annotated[Float[np.ndarray, " setting"], SIZE]
    """Standard deviation of the predictions over test strings; 0 if the kernel does not distinguish them."""
    chosen: Annotated[int, COUNT]
    """The setting with the least error on validation symbols."""
    constant_mse: Annotated[float, SIZE]
    """Error on test symbols of a constant prediction, the mean of the training labels."""
    constant_accuracy: Annotated[float, SHARE]
    n_train: Annotated[int, COUNT]
    n_validation: Annotated[int, COUNT]
    n: Annotated[int, COUNT]
    """Number of test strings."""

    def __post_init__(self) -> None:
        super().__post_init__()
        best = int(self.validation_mse.argmin())
        check_that(self.chosen == best, f"chosen is {self.chosen}; validation_mse is least at {best}.")

    def to_dataframe(self) -> "pd.DataFrame":
        """One row per setting."""
        columns = self.mse.columns("mse", "mse_low", "mse_high") | self.accuracy.columns("accuracy")
        columns |= {"spread": self.spread, "chosen": np.arange(len(self.kernels)) == self.chosen}
        names = ("regularisation", "validation_mse", "validation_accuracy")
        return self._table({"kernel": self.kernels}, *names, **columns, n_train=self.n_train, n=self.n)

    def plot(self) -> "alt.TopLevelMixin":
        """Error on test symbols of every setting with its interval; the error of a constant as a line."""
        import pandas as pd

        from interp.view.charts import dots

        columns = {
            "lambda": [f"{penalty:g}" for penalty in self.regularisation],
            **self.mse.columns("mse"),
            "kernel": [name.removeprefix("transformer, ") for name in self.kernels],  # a legend is narrow
        }
        return dots(
            pd.DataFrame(columns),
            x="lambda",
            y="mse",
            series="kernel",
            rule=self.constant_mse,
            domain=(0.0, 1.05 * float(max(self.constant_mse, self.mse.high.max()))),
            title=f"squared error on unseen symbols, {self.n_train} training strings; dashed: a constant",
        )

    def __str__(self) -> str:
        rows = [["kernel", "lambda", "validation", "mse [95 %]", "accuracy [95 %]", ""]]
        for index, name in enumerate(self.kernels):
            numbers = [f"{self.regularisation[index]:g}", f"{self.validation_mse[index]:.3f}"]
            numbers += [self.mse[index].text(), self.accuracy[index].text()]
            rows.append([name, *numbers, "chosen" if index == self.chosen else ""])
        lines = table_lines(rows)
        constant = f"constant: mse {self.constant_mse:.3f}, accuracy {self.constant_accuracy:.3f}"
        lines.append(f"{constant}; {self.n_train} training strings, {self.n} test strings over unseen symbols")
        return "\n".join(lines)


@checks_types
@restores_state
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

    Example:
        >>> import interp
        >>> task = interp.tasks.Template(templates=("aba -> +1", "abb -> -1"), train=128)
        >>> kernel = interp.theory.MLPKernel()  # it does not distinguish strings over new symbols
        >>> result = interp.theory.kernel_regression(task, kernels=[kernel], n=32, n_validation=20, n_test=50)
        >>> result.spread.round(6).tolist()
        [0.0, 0.0]

    Source: template paper (arXiv:2310.09753), real labels, kernel of Eq. 3. Differs: several kernels are tried, and
    chosen on symbols that are neither in training nor in test strings.
    """
    check_task(task, "kernel_regression")
    if kernels is None:
        grid = product((4.0, 8.0), get_args(Activation))
        kernels = [TransformerKernel(beta=beta, activation=activation, seed=seed) for beta, activation in grid]
    _check_settings(kernels, regularisation, {"n": n, "n_validation": n_validation, "n_test": n_test})
    train, train_labels = _strings(task, n, seed, "train")
    validation, validation_labels = _strings(task, n_validation, seed, "validation")
    test, test_labels = _strings(task, n_test, seed, "test")

    # Predictions of every setting for validation and test strings
    strings = torch.cat([validation, test])
    labels = np.concatenate([validation_labels, test_labels])
    predictions = np.concatenate([_predict(kernel, regularisation, train, train_labels, strings) for kernel in kernels])
    error = np.square(predictions - labels)
    correct = _nearest_label_is_correct(task, predictions, labels)

    # Choose by the error on validation symbols, report all on test symbols
    on_validation = slice(None, n_validation)
    on_test = slice(n_validation, None)
    validation_mse = error[:, on_validation].mean(1)
    mse, mse_low, mse_high = bootstrap_mean(error[:, on_test].T, seed=derived_seed(seed, "bootstrap"))
    low, high = proportion_interval(correct[:, on_test].sum(1), n_test)
    constant = np.full(n_test, train_labels.mean())
    return KernelResult(
        kernels=tuple(np.repeat([str(kernel) for kernel in kernels], len(regularisation)).tolist()),
        regularisation=np.tile(np.array(regularisation, dtype=float), len(kernels)),
        validation_mse=validation_mse,
        validation_accuracy=correct[:, on_validation].mean(1),
        mse=Interval(value=mse, low=mse_low, high=mse_high, n=n_test),
        accuracy=Interval(value=correct[:, on_test].mean(1), low=low, high=high, n=n_test),
        spread=predictions[:, on_test].std(-1),
        chosen=int(validation_mse.argmin()),
        constant_mse=float(np.square(constant - test_labels).mean()),
        constant_accuracy=float(_nearest_label_is_correct(task, constant, test_labels).mean()),
        n_train=n,
        n_validation=n_validation,
        n=n_test,
    )


def _strings(
    task: Template, n: int, seed: int, split: Split
) -> tuple[Int[Tensor, "string pos"], Float[np.ndarray, " string"]]:
    """Strings of a split and their labels."""
    batch = sample_split(task, n, generator=derived_generator(seed, "kernel regression", split), split=split)
    return batch.tokens, batch.values[:, 0].double().numpy()


def _predict(
    kernel: Kernel,
    regularisation: Sequence[float],
    train: Int[Tensor, "string pos"],
    labels: Float[np.ndarray, " string"],
    strings: Int[Tensor, "other pos"],
) -> Float[np.ndarray, "setting other"]:
    """Predictions for `strings`, one row for each lambda."""
    from sklearn.kernel_ridge import KernelRidge

    gram = kernel.gram(train)
    between = kernel.gram(strings, train)
    mean_diagonal = float(gram.diagonal().mean())
    predictions = []
    for fraction in regularisation:
        penalty: Any = float(fraction) * mean_diagonal
        regression = KernelRidge(kernel="precomputed", alpha=penalty).fit(gram, labels)
        predictions.append(regression.predict(between))
    return np.stack(predictions)


def _nearest_label_is_correct(
    task: Template, predictions: Float[np.ndarray, "*settings string"], labels: Float[np.ndarray, " string"]
) -> Bool[np.ndarray, "*settings string"]:
    """Whether the label of the task that is nearest to each prediction is the right one."""
    values = np.array(task.values)
    nearest = np.abs(predictions[..., None] - values).argmin(-1)
    correct = np.abs(labels[..., None] - values).argmin(-1)
    return nearest == correct


def _check_settings(kernels: Sequence[Kernel], regularisation: Sequence[float], sizes: dict[str, int]) -> None:
    if not kernels:
        raise ValueError(f"kernels is {kernels!r}; give a list of TransformerKernel or MLPKernel, one at least.")
    if not len(regularisation):
        raise ValueError("regularisation is empty; give positive numbers, one at least.")
    for penalty in regularisation:
        check_number("regularisation", penalty, above=0)
    for name, size in sizes.items():
        check_number(name, size, integer=True, low=2)


def check_task(task: Template, verb: str) -> None:
    """Raise ValueError unless the task is a template task with real labels."""
    Template.require(task, f"{verb} is about templates: give a Template task.")
    if task.form != "real":
        raise ValueError(
            f"the task's form is {task.form!r}; {verb} needs 'real': labels that are numbers, predicted at [CLS]. "
            f"Label the templates with numbers, such as 'aba -> +1'."
        )
