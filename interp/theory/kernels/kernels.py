"""Can an infinitely wide net tell templates apart on unseen symbols? Kernel regression, and the templates' matrix."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import get_args

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy import stats
from torch import Tensor

from interp.core.randomness import derived_generator, derived_seed
from interp.core.statistics import CONFIDENCE, bootstrap_mean, proportion_interval
from interp.tasks.base import Split
from interp.tasks.template.task import Template
from interp.theory.kernels.random_features import Activation, MLPKernel, TransformerKernel
from interp.theory.kernels.result import KernelResult, TemplateMatrix

Kernel = TransformerKernel | MLPKernel
ROUNDING = 1e-12
"""An eigenvalue below that part of the largest one is zero to float64."""


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
    """Learn the labels of training strings by kernel ridge regression, and tell those of strings over unseen symbols.

    The prediction is y^T (K + lambda I)^-1 k(x), what training the last layer of an infinitely wide net with weight
    decay comes to. Kernel and lambda are chosen by the squared error on validation symbols; every setting that was
    tried is reported on test symbols, so that a reader sees what hangs on the choice. Intervals are 95 %, over test
    strings, for the training strings at hand.

    Args:
        task: Templates with real labels.
        kernels: What to try. Left out: transformers with beta 4 and 8, cosine and ReLU, gamma 1, 256 draws from
            `seed`. `[MLPKernel()]` is the fully connected net.
        regularisation: lambda to try, as parts of the mean of the training Gram matrix's diagonal.
        n: Training strings; time grows as its cube.
        n_validation: Validation strings.
        n_test: Test strings.
        seed: Decides all strings, the bootstrap, and the draws of the kernels tried by default.

    Raises:
        ValueError: a task without real labels, no kernel or something else in its place, no lambda or one that is not
            positive, or fewer than 2 strings of a split.

    Source: template paper (arXiv:2310.09753), real labels, kernel of Eq. 3. Differs: several kernels are tried, and
    chosen on symbols that are neither trained on nor tested.
    """
    _check_task(task, "kernel_regression")
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
    _check_task(task, "template_matrix")
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
    from sklearn.kernel_ridge import KernelRidge

    gram, between = kernel.gram(train), kernel.gram(unseen, train)
    scale = float(gram.diagonal().mean())
    penalties = [float(part) * scale for part in regularisation]
    models = [KernelRidge(kernel="precomputed", alpha=one) for one in penalties]  # pyright: ignore[reportArgumentType]
    return np.stack([model.fit(gram, label).predict(between) for model in models])


def _right(
    task: Template, predicted: Float[np.ndarray, "*settings string"], wanted: Float[np.ndarray, " string"]
) -> np.ndarray:
    """Whether the nearest label is the right one."""
    values = np.array(task.values)
    nearest, true = (np.abs(given[..., None] - values).argmin(-1) for given in (predicted, wanted))
    return nearest == true


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


def _check_task(task: Template, verb: str) -> None:
    if not isinstance(task, Template):
        raise ValueError(f"task is {type(task).__name__}; {verb} is about templates: give a Template task.")
    if task.form != "real":
        raise ValueError(
            f"the task's form is {task.form!r}; {verb} needs 'real': labels that are numbers, told at [CLS]. Label the "
            f"templates with numbers, such as 'aba -> +1'."
        )


def _check_settings(kernels: Sequence[Kernel], regularisation: Sequence[float], sizes: dict[str, int]) -> None:
    if isinstance(kernels, Kernel) or not kernels or not all(isinstance(one, Kernel) for one in kernels):
        raise ValueError(f"kernels is {kernels!r}; give a list of TransformerKernel or MLPKernel, one at least.")
    if not len(regularisation) or not all(0 < part < np.inf for part in regularisation):
        raise ValueError(f"regularisation is {regularisation!r}; give positive numbers, one at least.")
    for name, size in sizes.items():
        if size < 2:
            raise ValueError(f"{name} is {size}; choose 2 or more.")
