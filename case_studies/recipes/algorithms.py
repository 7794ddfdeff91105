"""Which algorithm do trained models compute? Shares of models by verdict of `interp.implements`."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from case_studies.frame.evidence import Evidence, Size, once_per_model
from case_studies.frame.measurement import Measurement
from case_studies.recipes.intervals import proportion
from case_studies.recipes.learned import excluded_models, has_learned
from interp.algorithms import Algorithm, ImplementsResult
from interp.algorithms.implements import implements
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
    model, others = evidence.run(spec).model, [rival(spec.task) for rival in rivals]
    n = PAIRS[evidence.size]
    return implements(model, spec.task, algorithm(spec.task), rivals=others, n=n, seed=evidence.seed)


def weakest_variable(found: ImplementsResult) -> tuple[str, float, float, float]:
    """The variable of the algorithm, neither an input nor an answer, with the lowest accuracy, and its interval.

    Of an algorithm without such a variable, that of all variables; NaN if none could be tested.
    """
    own = [one for one in found.findings if one.algorithm == found.algorithm and one.status != "not tested"]
    chosen = [one for one in own if one.internal] or own
    if not chosen:
        return "none", np.nan, np.nan, np.nan
    least = min(chosen, key=lambda one: float(one.accuracy))
    share = least.accuracy
    return least.variable, float(share), float(share.low), float(share.high)


def measure_algorithm_share(
    evidence: Evidence, *, groups: Sequence[str], algorithm: AlgorithmFor, rivals: Sequence[AlgorithmFor]
) -> Measurement:
    """Share of the models that have learned their task which implement an algorithm, with its exact interval."""
    rows: list[list] = [["group", "seed", "verdict", "answers as it says", "weakest variable", "accuracy", "reason"]]
    verdicts: Counter[str] = Counter()
    for group in groups:
        for spec in evidence.specs(group):
            if not has_learned(evidence, spec):
                continue
            found = implements_test(evidence, spec, algorithm, *rivals)
            verdict = f"implements {found.rival}" if found.rival else found.verdict
            verdicts[verdict] += 1
            name, *share = weakest_variable(found)
            answers = next(one for one in found.answers if one.algorithm == found.algorithm)
            interval = "{:.3f} [{:.3f}, {:.3f}]".format(*share)
            rows.append([group, spec.seed, verdict, answers.accuracy.text(), name, interval, found.reason])
    n = sum(verdicts.values())
    if not n:
        return Measurement(
            value=0.0, low=0.0, high=1.0, n=1, unit="models", tables=excluded_models(evidence, groups),
            note="No model has learned its task.",
        )  # fmt: skip
    value, low, high = proportion(verdicts["implements"], n)
    return Measurement(
        value=value, low=low, high=high, n=n, unit="models", numbers=dict(verdicts.most_common()),
        tables=[("Every model that has learned its task", rows), *excluded_models(evidence, groups)],
        note=f"Exact interval over models; {PAIRS[evidence.size]} pairs of inputs per model, half of them to select "
        "sites. Sites are the residual stream before each layer and after the last.",
    )  # fmt: skip


def measure_decided_algorithm_share(
    evidence: Evidence, *, groups: Sequence[str], algorithm: AlgorithmFor, rivals: Sequence[AlgorithmFor]
) -> Measurement:
    """As `measure_share`, where models of which the test decides nothing may implement the algorithm or not.

    The upper end of the interval is that of the share if all of them did.
    """
    found = measure_algorithm_share(evidence, groups=groups, algorithm=algorithm, rivals=rivals)
    undecided = int(found.numbers.get("undecided", 0))
    if not undecided:
        return found
    _, _, high = proportion(int(found.numbers.get("implements", 0)) + undecided, found.n)
    note = f"{found.note} The upper end is that of the share if the {undecided} undecided models implemented it."
    return replace(found, high=high, note=note)
