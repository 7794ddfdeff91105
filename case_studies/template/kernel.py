"""Claims about the kernels of infinitely wide networks on template tasks (Sections 3 and 4)."""

from functools import partial

from case_studies.frame.claims import Claim, ClaimVerdict, Measurement, at_least, below
from case_studies.frame.evidence import Evidence
from case_studies.template.measures import BARELY, SOLVED
from interp.tasks import Template
from interp.theory.kernels.kernel_regression import kernel_regression
from interp.theory.kernels.random_features import MLPKernel, TransformerKernel
from interp.theory.kernels.template_matrix import template_matrix

TASKS = {"aba-abb": "aba_abb", "same-different": "same_different"}
N = {"quick": 512, "standard": 2048, "paper": 4096}
REPEATS = {"quick": 32, "standard": 64, "paper": 64}


def _task(name: str, evidence: Evidence) -> Template:
    return Template(templates=TASKS[name], train=N[evidence.size])


def measure_regression(evidence: Evidence, *, name: str, mlp: bool = False) -> Measurement:
    """Accuracy of kernel ridge regression on unseen symbols; kernel and lambda are chosen on validation symbols."""
    kernels = [MLPKernel()] if mlp else None
    result = kernel_regression(_task(name, evidence), kernels=kernels, n=N[evidence.size], seed=evidence.seed)
    at = result.chosen
    rows: list[list] = [
        ["kernel", "lambda", "validation loss", "test loss", "95 %", "accuracy", "95 %", "spread of predictions"]
    ]
    for i, kernel in enumerate(result.kernels):
        loss = f"[{result.mse_low[i]:.3f}, {result.mse_high[i]:.3f}]"
        share = f"[{result.low[i]:.3f}, {result.high[i]:.3f}]"
        numbers = [f"{part[i]:.3f}" for part in (result.validation_mse, result.mse, result.accuracy, result.spread)]
        rows.append([kernel, f"{result.regularisation[i]:g}", *numbers[:2], loss, numbers[2], share, numbers[3]])
    return Measurement(
        value=result.accuracy[at], low=result.low[at], high=result.high[at], n=result.n, unit="unseen strings",
        numbers={"test loss": result.mse[at], "training strings": result.n_train, "chosen": result.kernels[at],
                 "lowest accuracy of any setting": result.accuracy.min()},
        tables=[("Every setting tried", rows)], charts=[result.plot()],
        note="Kernel and lambda are chosen on validation symbols, which are in neither the training nor the test set.",
    )  # fmt: skip


def measure_matrix(evidence: Evidence, *, mlp: bool) -> Measurement:
    """The smallest eigenvalue of N, for the task where it is lowest."""
    kernel = MLPKernel() if mlp else TransformerKernel(beta=4.0, activation="relu")
    found = {
        name: template_matrix(_task(name, evidence), kernel, repeats=REPEATS[evidence.size], seed=evidence.seed)
        for name in TASKS
    }
    rows: list[list] = [["task", "kernel", "smallest eigenvalue", "95 %", "largest", "verdict", "draws"]]
    for name, one in found.items():
        ends = f"[{one.low:.4g}, {one.high:.4g}]"
        rows.append([name, one.kernel, f"{one.smallest:.4g}", ends, f"{one.eigenvalues[-1]:.4g}", one.verdict, one.n])
    worst = min(found.values(), key=lambda one: one.low)
    return Measurement(
        value=worst.smallest, low=worst.low, high=worst.high, n=worst.repeats,
        unit="kernel, exact" if mlp else "sets of draws",
        numbers={"verdicts": {name: one.verdict for name, one in found.items()}},
        tables=[("N of each task", rows)], charts=[one.plot() for one in found.values()],
        note="An entry of N is the kernel of two strings, one of each template, that share no symbol.",
    )  # fmt: skip


def judge_matrix(m: Measurement, expected: str) -> ClaimVerdict:
    """Reproduced if N of every task has the expected verdict, not reproduced if one has the opposite verdict."""
    verdicts = set(m.numbers["verdicts"].values())
    if verdicts == {expected}:
        return "reproduced"
    return "not reproduced" if verdicts & {"singular", "nonsingular"} - {expected} else "inconclusive"


CLAIMS = (
    *(
        Claim(
            id=f"kernel.{name}", source="template paper, Theorem 3.4, Eq. 3",
            statement=f"The transformer's random-features kernel generalises to unseen symbols: {name}.",
            rule="Accuracy of kernel ridge regression, its setting chosen on validation symbols: reproduced if the "
            f"exact interval is at or above {SOLVED}, not reproduced if below, else inconclusive.",
            quantity="accuracy", measure=partial(measure_regression, name=name), judge=partial(at_least, bar=SOLVED),
        )
        for name in TASKS
    ),
    Claim(
        id="kernel.mlp", source="template paper, Theorem 4.1",
        statement="The kernel of a fully connected net does not generalise to unseen symbols.",
        rule=f"Accuracy on aba against abb: reproduced if its interval is below {BARELY}, not reproduced if above, "
        "else inconclusive.",
        quantity="accuracy", measure=partial(measure_regression, name="aba-abb", mlp=True),
        judge=partial(below, bar=BARELY),
    ),
    Claim(
        id="kernel.matrix", source="template paper, Theorem 3.4",
        statement="The matrix N of the templates is nonsingular for the transformer's kernel.",
        rule="Reproduced if for both tasks the smallest eigenvalue's interval over draws is above 0 (verdict "
        "nonsingular), inconclusive if undecided.",
        quantity="smallest eigenvalue of N", measure=partial(measure_matrix, mlp=False),
        judge=partial(judge_matrix, expected="nonsingular"),
    ),
    Claim(
        id="kernel.matrix-mlp", source="template paper, Section 4",
        statement="The matrix N is singular for the kernel of a fully connected net.",
        rule="Reproduced if for both tasks the smallest eigenvalue is zero to rounding (verdict singular), not "
        "reproduced if nonsingular.",
        quantity="smallest eigenvalue of N", measure=partial(measure_matrix, mlp=True),
        judge=partial(judge_matrix, expected="singular"),
    ),
)  # fmt: skip
