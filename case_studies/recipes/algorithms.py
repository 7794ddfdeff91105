"""Which algorithm do trained models compute? Shares of models by verdict of `interp.implements`."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from case_studies.frame.evidence import Evidence, Size, once_per_model
from case_studies.frame.judge import Readings
from case_studies.recipes.intervals import as_interval
from case_studies.recipes.judges import Share
from case_studies.recipes.learned import LEARNED, has_learned, lowest_accuracy
from interp.algorithms import Algorithm, ImplementsResult
from interp.algorithms.implements import implements
from interp.core.intervals import Interval
from interp.sweeps.spec import ModelSpec
from interp.tasks.base import Task

AlgorithmFor = Callable[[Task], Algorithm]
VERDICT = "verdict"
"""Column of the verdicts."""
IMPLEMENTING = Share(VERDICT, "implements", unit="models", where={"learned": True}, without_rows=(0.0, 0.0, 1.0))
"""Share of the models that have learned their task which implement the algorithm."""
IMPLEMENTING_OR_UNDECIDED = replace(IMPLEMENTING, undecided="undecided")
"""The same, where undecided models may implement it or not: the upper end is that of the share if they did."""
PAIRS: Mapping[Size, int] = {"quick": 128, "standard": 512, "paper": 1024}
"""Pairs of inputs per model."""


@once_per_model
def implements_test(
    evidence: Evidence, spec: ModelSpec, algorithm: AlgorithmFor, *rivals: AlgorithmFor
) -> ImplementsResult:
    """The test of a trained model against an algorithm and its rivals."""
    return implements(
        evidence.run(spec).model,
        spec.task,
        algorithm(spec.task),
        rivals=[rival(spec.task) for rival in rivals],
        n=PAIRS[evidence.size],
        seed=evidence.seed,
    )


def weakest_variable(result: ImplementsResult) -> tuple[str, Interval]:
    """The variable of the algorithm, neither an input nor an answer, with the lowest accuracy, and its interval.

    Of an algorithm without such a variable, that of all variables; NaN if none could be tested.
    """
    # Findings about the algorithm, not about its rivals
    of_algorithm = [finding for finding in result.findings if finding.algorithm == result.algorithm]
    tested = [finding for finding in of_algorithm if finding.status != "not tested"]
    internal = [finding for finding in tested if finding.internal]
    if not tested:
        return "none", as_interval(np.nan, np.nan, np.nan, 0)
    weakest = min(internal or tested, key=lambda finding: float(finding.accuracy))
    return weakest.variable, weakest.accuracy


def algorithm_verdicts(
    evidence: Evidence, *, groups: Sequence[str], algorithm: AlgorithmFor, rivals: Sequence[AlgorithmFor]
) -> Readings:
    """The verdict of `interp.implements` about every model that has learned its task, one row a model."""
    rows = []
    for group in groups:
        for spec in evidence.specs(group):
            row = {"group": group, "seed": spec.seed, "learned": has_learned(evidence, spec)}
            if not row["learned"]:
                reason = f"lowest accuracy {lowest_accuracy(evidence, spec):.3f}"
                rows.append(row | {VERDICT: "has not learned", "reason": reason})
                continue
            result = implements_test(evidence, spec, algorithm, *rivals)
            answers = next(answers for answers in result.answers if answers.algorithm == result.algorithm)
            variable, share = weakest_variable(result)
            rows.append(
                row
                | {
                    VERDICT: f"implements {result.rival}" if result.rival else result.verdict,
                    "answers as it says": answers.accuracy.text(),
                    "weakest variable": variable,
                    "accuracy": share.text(),
                    "reason": result.reason,
                }
            )
    frame = pd.DataFrame(rows)
    verdicts = Counter(frame.loc[frame["learned"], VERDICT])
    return Readings(
        frame=frame,
        title=f"Every model; those with an accuracy below {LEARNED} are not counted",
        numbers=dict(verdicts.most_common()),
        note=f"Exact interval over models; {PAIRS[evidence.size]} pairs of inputs per model, half of them to select "
        "sites. Sites are the residual stream before each layer and after the last.",
    )
