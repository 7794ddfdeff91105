"""Which algorithm do trained models compute? Shares of models by verdict of `interp.implements`."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from case_studies.frame.evidence import Evidence, Size, once_per_model
from case_studies.frame.measurement import Measurement
from case_studies.recipes.intervals import as_interval, proportion
from case_studies.recipes.learned import excluded_models, has_learned
from interp.algorithms import Algorithm, ImplementsResult
from interp.algorithms.implements import implements
from interp.core.intervals import Interval
from interp.sweeps.spec import ModelSpec
from interp.tasks.base import Task

AlgorithmFor = Callable[[Task], Algorithm]
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


def measure_algorithm_share(
    evidence: Evidence, *, groups: Sequence[str], algorithm: AlgorithmFor, rivals: Sequence[AlgorithmFor]
) -> Measurement:
    """Share of the models that have learned their task which implement an algorithm, with its exact interval."""
    # Test every model that has learned its task; a row and a verdict each
    rows: list[list] = [["group", "seed", "verdict", "answers as it says", "weakest variable", "accuracy", "reason"]]
    verdicts: Counter[str] = Counter()
    for group in groups:
        for spec in evidence.specs(group):
            if not has_learned(evidence, spec):
                continue
            result = implements_test(evidence, spec, algorithm, *rivals)
            verdict = f"implements {result.rival}" if result.rival else result.verdict
            verdicts[verdict] += 1
            answers = next(answers for answers in result.answers if answers.algorithm == result.algorithm)
            variable, share = weakest_variable(result)
            rows.append([group, spec.seed, verdict, answers.accuracy.text(), variable, share.text(), result.reason])
    # The share of these models
    n = sum(verdicts.values())
    excluded = excluded_models(evidence, groups)
    if not n:
        note = "No model has learned its task."
        return Measurement.from_interval(proportion(0, 0), unit="models", tables=excluded, note=note)
    return Measurement.from_interval(
        proportion(verdicts["implements"], n),
        unit="models",
        numbers=dict(verdicts.most_common()),
        tables=[("Every model that has learned its task", rows), *excluded],
        note=f"Exact interval over models; {PAIRS[evidence.size]} pairs of inputs per model, half of them to select "
        "sites. Sites are the residual stream before each layer and after the last.",
    )


def measure_decided_algorithm_share(
    evidence: Evidence, *, groups: Sequence[str], algorithm: AlgorithmFor, rivals: Sequence[AlgorithmFor]
) -> Measurement:
    """As `measure_algorithm_share`, where models of which the test decides nothing may implement the algorithm or not.

    The upper end of the interval is that of the share if all of them did.
    """
    measurement = measure_algorithm_share(evidence, groups=groups, algorithm=algorithm, rivals=rivals)
    undecided = int(measurement.numbers.get("undecided", 0))
    if not undecided:
        return measurement
    implementing = int(measurement.numbers.get("implements", 0))
    high = float(proportion(implementing + undecided, measurement.n).high)
    note = f"{measurement.note} The upper end is that of the share if the {undecided} undecided models implemented it."
    return replace(measurement, high=high, note=note)
