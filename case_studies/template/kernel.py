"""Claims about the kernels of infinitely wide networks on template tasks (Theorem 4.4, Remark I.6)."""

from functools import partial

import pandas as pd

from case_studies.frame.claims import BEFORE_ANY_MODEL, SHARE, Claim, Preregistration
from case_studies.frame.evidence import Evidence
from case_studies.frame.judge import Readings
from case_studies.frame.rules import AtLeast, Below, Number, TwoSided
from case_studies.recipes.intervals import ends_text, interval_columns
from case_studies.recipes.judges import Mean, Row
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
SMALLEST = "smallest eigenvalue"
NEGLIGIBLE = 1e-3
"""Share of the largest eigenvalue of N below which the smallest counts as zero, for a kernel with random draws."""


def _task(name: str, evidence: Evidence) -> Template:
    return Template(templates=TASKS[name], train=N[evidence.size])


def measure_regression(evidence: Evidence, *, name: str, mlp: bool = False) -> Readings:
    """Accuracy of kernel ridge regression on unseen symbols, one row a draw of strings and kernel and a setting.

    Kernel and lambda are chosen on validation symbols, for each draw.
    """
    regressions = _regressions(name, evidence, mlp=mlp)
    rows = [
        {
            "draw": draw,
            "chosen": index == regression.chosen,
            "kernel": kernel,
            "lambda": regression.regularisation[index],
            "validation loss": regression.validation_mse[index],
            "test loss": float(regression.mse[index]),
            "test loss, 95 %": ends_text(regression.mse[index], ".3f"),
            **interval_columns(regression.accuracy[index], "accuracy"),
            "strings": regression.n,
            "spread of predictions": regression.spread[index],
        }
        for draw, regression in enumerate(regressions)
        for index, kernel in enumerate(regression.kernels)
    ]
    frame = pd.DataFrame(rows)
    chosen = frame.loc[frame["chosen"].to_numpy()]
    return Readings(
        frame=frame,
        title="Every draw and setting",
        numbers={
            "test loss": chosen["test loss"].mean(),
            "training strings": regressions[0].n_train,
            "chosen": list(chosen["kernel"]),
            "lowest accuracy of any setting": frame["accuracy"].min(),
        },
        charts=[
            dots(
                chosen.astype({"draw": str}),
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


def measure_matrix(evidence: Evidence, *, mlp: bool) -> Readings:
    """The smallest eigenvalue of N, for each task."""
    kernel = MLPKernel() if mlp else TransformerKernel(beta=4.0, activation="relu")
    matrices = {
        name: template_matrix(_task(name, evidence), kernel, repeats=REPEATS[evidence.size], seed=evidence.seed)
        for name in TASKS
    }
    rows = [
        {
            "task": name,
            "kernel": matrix.kernel,
            **interval_columns(matrix.smallest, SMALLEST),
            "largest": matrix.eigenvalues[-1],
            "verdict": singularity(matrix),
            "draws": matrix.n,
            "sets of draws": matrix.repeats,
        }
        for name, matrix in matrices.items()
    ]
    frame = pd.DataFrame(rows)
    return Readings(
        frame=frame,
        title="N of each task",
        numbers={
            f"tasks with a {verdict} N": list(frame["verdict"]).count(verdict)
            for verdict in ("singular", "nonsingular")
        },
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


REGRESSION = Mean("accuracy", unit="draws of strings and kernel", where={"chosen": True}, share_of="strings")
LOWEST_RANDOM = Row(SMALLEST, by="low", extreme="smallest", unit="sets of draws", units="sets of draws")
LOWEST_EXACT = Row(SMALLEST, extreme="smallest", unit="kernel, exact", units="sets of draws", exact=True)
"""The task whose interval ends lowest is judged; the network's kernel has no random draws."""
HOW = (
    "Mean accuracy of kernel ridge regression, its setting chosen on validation symbols, t interval over draws of the "
    "strings and the kernel"
)

CLAIMS = (
    *(
        Claim(
            id=f"kernel.{name}",
            method=HOW,
            rule=AtLeast(SOLVED),
            preregistration=_over_draws("1.0 of the strings of one draw"),
            quantity="accuracy",
            value_range=SHARE,
            measure=partial(measure_regression, name=name),
            judged=REGRESSION,
        )
        for name in TASKS
    ),
    Claim(
        id="kernel.mlp",
        method=f"{HOW}, aba against abb",
        rule=Below(BARELY),
        preregistration=_over_draws("0.48 of the strings of one draw"),
        quantity="accuracy",
        value_range=SHARE,
        measure=partial(measure_regression, name="aba-abb", mlp=True),
        judged=REGRESSION,
    ),
    Claim(
        id="kernel.matrix",
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
        judged=LOWEST_RANDOM,
    ),
    Claim(
        id="kernel.matrix-mlp",
        method="Smallest eigenvalue of N, for each of the two tasks; singular if it is zero to rounding",
        rule=_all_tasks("singular", "nonsingular"),
        preregistration=BEFORE_ANY_MODEL,
        by_construction=True,
        quantity="smallest eigenvalue of N",
        measure=partial(measure_matrix, mlp=True),
        judged=LOWEST_EXACT,
    ),
)
