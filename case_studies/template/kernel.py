"""Claims about the kernels of infinitely wide networks on template tasks (Theorem 4.4, Remark I.6)."""

from functools import partial

import numpy as np
import pandas as pd

from case_studies.frame.claims import BEFORE_ANY_MODEL, SHARE, Claim, Preregistration
from case_studies.frame.evidence import Evidence
from case_studies.frame.measurement import Measurement
from case_studies.frame.rules import AtLeast, Below, Number, TwoSided
from case_studies.recipes.intervals import clipped, ends_text, t_interval
from case_studies.template.measures import BARELY, SOLVED
from interp.core.randomness import derived_seed
from interp.tasks import Template
from interp.theory.kernels.kernel_regression import KernelResult, kernel_regression
from interp.theory.kernels.random_features import MLPKernel, TransformerKernel
from interp.theory.kernels.template_matrix import TemplateMatrix, template_matrix
from interp.view.charts import dots

TASKS = {"aba-abb": "aba_abb", "same-different": "same_different"}
N = {"quick": 512, "standard": 2048, "paper": 4096}
REPEATS = {"quick": 32, "standard": 64, "paper": 64}
DRAWS = 5
"""Kernel regressions, each with new strings and new draws of the kernel."""
NEGLIGIBLE = 1e-3
"""Share of the largest eigenvalue of N below which the smallest counts as zero, for a kernel with random draws."""


def _task(name: str, evidence: Evidence) -> Template:
    return Template(templates=TASKS[name], train=N[evidence.size])


def measure_regression(evidence: Evidence, *, name: str, mlp: bool = False) -> Measurement:
    """Mean accuracy of kernel ridge regression on unseen symbols, over draws of the strings and of the kernel.

    Kernel and lambda are chosen on validation symbols, for each draw.
    """
    regressions = _regressions(name, evidence, mlp=mlp)
    accuracy = np.array([regression.accuracy.value[regression.chosen] for regression in regressions])
    interval = t_interval(accuracy, resolution=1 / regressions[0].n)
    rows: list[list] = [
        [
            "draw",
            "chosen",
            "kernel",
            "lambda",
            "validation loss",
            "test loss",
            "95 %",
            "accuracy",
            "95 % over strings",
            "spread of predictions",
        ]
    ]
    # Every setting of every draw is shown, the chosen ones are judged
    points: list[dict] = []
    for draw, regression in enumerate(regressions):
        for i, kernel in enumerate(regression.kernels):
            loss = ends_text(regression.mse[i], ".3f")
            share = ends_text(regression.accuracy[i], ".3f")
            chosen = "yes" if i == regression.chosen else None
            rows.append(
                [
                    draw,
                    chosen,
                    kernel,
                    f"{regression.regularisation[i]:g}",
                    f"{regression.validation_mse[i]:.3f}",
                    f"{regression.mse[i]:.3f}",
                    loss,
                    f"{regression.accuracy[i]:.3f}",
                    share,
                    f"{regression.spread[i]:.3f}",
                ]
            )
        value, low, high = regression.accuracy[regression.chosen].floats()
        points.append({"draw": str(draw), "accuracy": value, "low": low, "high": high})
    return Measurement.from_interval(
        clipped(interval, 0.0, 1.0),
        unit="draws of strings and kernel",
        numbers={
            "test loss": np.mean([regression.mse.value[regression.chosen] for regression in regressions]),
            "training strings": regressions[0].n_train,
            "chosen": [regression.kernels[regression.chosen] for regression in regressions],
            "lowest accuracy of any setting": min(regression.accuracy.value.min() for regression in regressions),
        },
        tables=[("Every draw and setting", rows)],
        charts=[
            dots(
                pd.DataFrame(points),
                x="draw",
                y="accuracy",
                rule=0.5,
                title=f"kernel regression, {regressions[0].n} unseen strings per draw",
            ),
            regressions[0].plot(),
        ],
        note="Kernel and lambda are chosen on validation symbols, which are in neither the training nor the test set. "
        "The lower chart is of the first draw.",
    )


def _regressions(name: str, evidence: Evidence, *, mlp: bool) -> list[KernelResult]:
    """Kernel regression with new strings and new draws of the kernel each time; the first uses the evidence's seed."""
    seeds = [evidence.seed, *(derived_seed(evidence.seed, "draw", draw) for draw in range(1, DRAWS))]
    kernels = [MLPKernel()] if mlp else None
    task, n = _task(name, evidence), N[evidence.size]
    return [kernel_regression(task, kernels=kernels, n=n, seed=seed) for seed in seeds]


def measure_matrix(evidence: Evidence, *, mlp: bool) -> Measurement:
    """The smallest eigenvalue of N, for the task where it is lowest."""
    kernel = MLPKernel() if mlp else TransformerKernel(beta=4.0, activation="relu")
    matrices = {
        name: template_matrix(_task(name, evidence), kernel, repeats=REPEATS[evidence.size], seed=evidence.seed)
        for name in TASKS
    }
    rows: list[list] = [["task", "kernel", "smallest eigenvalue", "95 %", "largest", "verdict", "draws"]]
    verdicts = {name: singularity(matrix) for name, matrix in matrices.items()}
    for name, matrix in matrices.items():
        ends = ends_text(matrix.smallest, ".4g")
        largest = f"{matrix.eigenvalues[-1]:.4g}"
        rows.append([name, matrix.kernel, f"{matrix.smallest:.4g}", ends, largest, verdicts[name], matrix.n])
    # The task whose interval ends lowest is judged
    worst = min(matrices.values(), key=lambda matrix: matrix.smallest.low)
    return Measurement(
        value=float(worst.smallest),
        low=float(worst.smallest.low),
        high=float(worst.smallest.high),
        n=worst.repeats,
        unit="kernel, exact" if mlp else "sets of draws",
        exact=mlp,
        numbers={
            f"tasks with a {verdict} N": list(verdicts.values()).count(verdict)
            for verdict in ("singular", "nonsingular")
        },
        tables=[("N of each task", rows)],
        charts=[matrix.plot() for matrix in matrices.values()],
        note="An entry of N is the kernel of two strings, one of each template, that share no symbol.",
    )


def singularity(matrix: TemplateMatrix) -> str:
    """`nonsingular`, `singular` or `undecided`; singular also if the interval is below `NEGLIGIBLE`.

    Draws cannot prove that an eigenvalue is zero, so `template_matrix` never calls N of a random kernel singular.
    """
    if matrix.verdict == "undecided" and matrix.smallest.high < NEGLIGIBLE * matrix.eigenvalues[-1]:
        return "singular"
    return matrix.verdict


def _all_tasks(expected: str, opposite: str) -> TwoSided:
    """Reproduced if N of every task is as expected, not reproduced if one is the opposite."""
    return TwoSided(
        Number(f"tasks with a {expected} N", AtLeast(len(TASKS))), Number(f"tasks with a {opposite} N", AtLeast(1))
    )


def _over_draws(prior_knowledge: str) -> Preregistration:
    return Preregistration(
        "after a result", f"{prior_knowledge}. The bar was fixed before any result; the units were strings then."
    )


HOW = (
    "Mean accuracy of kernel ridge regression, its setting chosen on validation symbols, t interval over draws of the "
    "strings and the kernel"
)

CLAIMS = (
    *(
        Claim(
            id=f"kernel.{name}",
            source="template paper, Theorem 4.4 and Equation 3",
            statement=f"The transformer's random-features kernel generalises to unseen symbols: {name}.",
            method=HOW,
            rule=AtLeast(SOLVED),
            preregistration=_over_draws("1.0 of the strings of one draw"),
            quantity="accuracy",
            value_range=SHARE,
            measure=partial(measure_regression, name=name),
        )
        for name in TASKS
    ),
    Claim(
        id="kernel.mlp",
        source="template paper, Remark I.6: the kernel of the network",
        statement="The kernel of a fully connected net does not generalise to unseen symbols.",
        method=f"{HOW}, aba against abb",
        rule=Below(BARELY),
        preregistration=_over_draws("0.48 of the strings of one draw"),
        quantity="accuracy",
        value_range=SHARE,
        measure=partial(measure_regression, name="aba-abb", mlp=True),
    ),
    Claim(
        id="kernel.matrix",
        source="template paper, Lemma 4.6: the condition of Lemma 4.5 for Theorem 4.4",
        statement="The matrix N of the templates is nonsingular for the transformer's kernel.",
        method="Smallest eigenvalue of N, for each of the two tasks; nonsingular if its interval over draws is above "
        "0, "
        f"singular if it includes 0 and is below {NEGLIGIBLE:g} of the largest eigenvalue",
        rule=_all_tasks("nonsingular", "singular"),
        preregistration=Preregistration(
            "after a result",
            "0.0051 [0.0049, 0.0053], nonsingular. The definition of singular was added: before, no result could have "
            "refuted the claim.",
        ),
        quantity="smallest eigenvalue of N",
        measure=partial(measure_matrix, mlp=False),
    ),
    Claim(
        id="kernel.matrix-mlp",
        source="template paper, Section 4.3 and Remark I.6",
        statement="The matrix N is singular for the kernel of a fully connected net.",
        method="Smallest eigenvalue of N, for each of the two tasks; singular if it is zero to rounding",
        rule=_all_tasks("singular", "nonsingular"),
        preregistration=BEFORE_ANY_MODEL,
        by_construction=True,
        quantity="smallest eigenvalue of N",
        measure=partial(measure_matrix, mlp=True),
    ),
)
