"""`interp.implements` on random known answers, against every algorithm of their task, and on untrained models."""

import numpy as np
import pytest

import interp
from interp import algorithms
from interp.core.randomness import derived_seed
from interp.core.verbs import untrained_copy
from interp.known_answers import known_answer
from interp.known_answers.template.copy import template_copy
from interp.known_answers.template.same import template_same
from interp.tasks import Template

pytestmark = pytest.mark.long
SEEDS = range(10)
IMPLEMENTED = {
    "loop Z2 0": "chain loop",
    "loop S3 1": "chain loop",
    "loop untied Z3 2": "chain loop",
    "shortcut 0": "sign count",
    "dyck stack": "bracket stack",
    "dyck uniform": "depth counter",
    "dyck balanced": "depth counter",
    "dyck balanced, uneven": "depth counter",
    "template copy": "equality test",
    "template same": "equality test",
}
"""Known answers, and the algorithm of each; templates have strings on which the algorithms differ."""
COPY = Template(templates=("abc -> b", "abb -> b", "aba -> b"))
SAME = Template(templates=("aba -> +1", "abb -> -1", "abc -> 0"))
READY_MADE = (
    "chain_loop", "sign_count", "nearest_clause", "bracket_stack", "depth_counter", "equality", "first_symbol",
    "majority_symbol",
)  # fmt: skip


def model_and_task(name, seed):
    if name == "template copy":
        return template_copy(COPY, relative=bool(seed % 2), seed=seed), COPY
    if name == "template same":
        return template_same(SAME, seed=seed), SAME
    answer = known_answer(name, seed)
    return answer.model, answer.task


def algorithms_of(task):
    """Every ready-made algorithm that is defined for a task, by name."""
    by_name = {}
    for function in READY_MADE:
        try:
            algorithm = getattr(algorithms, function)(task)
        except ValueError:  # for another task
            continue
        by_name[algorithm.name] = algorithm
    return by_name


def implements(model, task, name, *, n, seed):
    rivals = algorithms_of(task)
    algorithm = rivals.pop(IMPLEMENTED[name])
    return interp.implements(model, task, algorithm, rivals=list(rivals.values()), n=n, seed=seed)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", IMPLEMENTED)
def test_the_algorithm_is_implemented_and_no_rival_does_better_than_it_must(name, seed):
    """The planted values are exact: each interchange gives the algorithm's answer."""
    model, task = model_and_task(name, seed)
    result = implements(model, task, name, n=512, seed=seed)
    if name.startswith("loop Z2") and task.n_vars == 2:  # counting the signs of a chain of two is the loop
        assert result.verdict == "undecided"
        assert "every variable of chain loop and sign count is found" in result.reason
        return
    assert result.verdict == "implements", result.reason
    for finding in result.findings:
        if finding.status == "not tested":
            continue
        if finding.algorithm == result.algorithm:
            assert finding.accuracy == 1
            assert finding.stability == 1 or np.isnan(finding.stability)
        else:
            assert finding.accuracy.low <= finding.baseline


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", IMPLEMENTED)
def test_untrained_models_implement_no_algorithm(name, seed):
    model, task = model_and_task(name, seed)
    for copy in range(2):
        untrained = untrained_copy(model, derived_seed(seed, name, copy) % 2**31)
        result = implements(untrained, task, name, n=256, seed=seed)
        assert result.verdict == "neither", result.reason
