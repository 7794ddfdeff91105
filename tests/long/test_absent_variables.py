"""A thousand variables that models of ten yes-or-no tasks cannot have: found within the level, and refused by most."""

from collections import Counter

import pytest

import interp
from tests.support.conjunctions import TASKS, hand_written, nonsense_algorithm, running_algorithm, trained

pytestmark = pytest.mark.long
N_TRAINED = 3
N_ALGORITHMS = {"hand-written": 6, "trained": 3}
"""Draws of variables for each model; each has four that change answers both ways, and four that change them one way."""


def absent_algorithms(task, origin, seed):
    """Algorithms none of whose variables a model has."""
    for draw in range(N_ALGORITHMS[origin]):
        yield nonsense_algorithm(task, 100 * seed + draw, both_ways=True)
        yield nonsense_algorithm(task, 100 * seed + draw + 50, both_ways=False)
    if origin == "hand-written" and len(task.pairs) > 2:
        yield from [running_algorithm(task)] * 4


def test_absent_variables_are_refused():
    statuses = Counter()
    for task in TASKS.values():
        models = [("hand-written", 0, hand_written(task))]
        models += [("trained", seed, trained(task, seed)) for seed in range(N_TRAINED)]
        for origin, seed, model in models:
            for number, algorithm in enumerate(absent_algorithms(task, origin, seed)):
                result = interp.implements(model, task, algorithm, seed=number)
                statuses.update(finding.status for finding in result.findings)
    n = statuses.total()
    assert n >= 1000
    assert statuses["found"] <= 0.05 * n, statuses
    assert statuses["not found"] >= 0.8 * n, statuses
