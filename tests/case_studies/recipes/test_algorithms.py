"""Shares of models that implement an algorithm, on hand-written models whose algorithm is known."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from case_studies.recipes import algorithms
from case_studies.recipes.intervals import proportion
from interp.algorithms import chain_loop, sign_count
from interp.core.intervals import Interval
from interp.core.verbs import untrained_copy
from interp.known_answers.lego.loop import lego_loop
from interp.known_answers.lego.shortcut import lego_shortcut
from interp.tasks import Lego

TASK = Lego(n_vars=3, alphabet="abcdef")


def evidence_of(monkeypatch, models, learned=lambda name: True):
    """Evidence of one group with these models by name."""
    specs = [SimpleNamespace(seed=seed, task=TASK, key=name) for seed, name in enumerate(models)]
    monkeypatch.setattr(algorithms, "has_learned", lambda _, spec: learned(spec.key))
    monkeypatch.setattr(algorithms, "lowest_accuracy", lambda *_: 0.5)
    return SimpleNamespace(
        size="quick", seed=0, folder=Path("nowhere"), specs=lambda group: specs,
        run=lambda spec: SimpleNamespace(model=models[spec.key]),
    )  # fmt: skip


def measured(evidence, algorithm=chain_loop, rival=sign_count, judged=algorithms.IMPLEMENTING):
    readings = algorithms.algorithm_verdicts(evidence, groups=["one"], algorithm=algorithm, rivals=(rival,))
    return judged.measurement(readings, seed=0)


@pytest.fixture
def models(monkeypatch):
    monkeypatch.setattr(algorithms, "PAIRS", {"quick": 256})
    count = lego_shortcut(TASK)
    return {"count": count, "untrained": untrained_copy(count, 0)}


def test_each_verdict_is_counted_and_every_model_listed(monkeypatch, models):
    evidence = evidence_of(monkeypatch, models)
    counting = measured(evidence, sign_count, chain_loop)
    assert (counting.value, counting.n) == (0.5, 2)
    assert counting.numbers == {"implements": 1, "neither": 1}
    (_, (header, *rows)) = counting.tables[0]
    assert [row[header.index("verdict")] for row in rows] == ["implements", "neither"]
    assert rows[0][header.index("accuracy")].startswith("1.000 [")
    following = measured(evidence, chain_loop, sign_count)
    assert (following.value, following.numbers) == (0, {"implements sign count": 1, "neither": 1})


def test_the_weakest_variable_is_neither_an_input_nor_an_answer():
    def finding(variable, accuracy, *, internal, algorithm="loop", status="found"):
        interval = Interval(value=accuracy, low=accuracy - 0.1, high=1.0, n=9)
        return SimpleNamespace(
            variable=variable, internal=internal, algorithm=algorithm, status=status, accuracy=interval
        )

    outer = [finding("operation #0", 0.5, internal=False), finding("value #2", 0.4, internal=False)]
    inner = [finding("value #0", 0.9, internal=True), finding("value #1", 0.8, internal=True)]
    ignored = [
        finding("count", 0.1, internal=True, algorithm="count"),
        finding("x", 0.0, internal=True, status="not tested"),
    ]
    result = SimpleNamespace(algorithm="loop", findings=[*outer, *inner, *ignored])
    variable, share = algorithms.weakest_variable(result)
    assert (variable, *share.floats()) == ("value #1", 0.8, pytest.approx(0.7), 1.0)
    result.findings = [*outer, *ignored]
    variable, share = algorithms.weakest_variable(result)
    assert (variable, float(share)) == ("value #2", 0.4)
    result.findings = ignored
    assert algorithms.weakest_variable(result)[0] == "none"


@pytest.mark.slow
def test_models_that_follow_the_chain_are_counted(monkeypatch, models):
    evidence = evidence_of(monkeypatch, {"loop": lego_loop(TASK), **models})
    following = measured(evidence)
    assert (following.value, following.n) == (pytest.approx(1 / 3), 3)
    assert following.numbers == {"implements": 1, "implements sign count": 1, "neither": 1}
    (_, (header, loop, *_)) = following.tables[0]
    assert loop[header.index("weakest variable")] == "value #1"
    counting = measured(evidence, sign_count, chain_loop)
    assert counting.numbers == {"implements chain loop": 1, "implements": 1, "neither": 1}


def test_undecided_models_may_implement_it_or_not(monkeypatch):
    verdicts = ["implements", "undecided", "undecided", "neither"]

    def result(evidence, spec, *algorithms):
        answers = SimpleNamespace(algorithm="loop", accuracy=Interval(value=1.0, low=0.9, high=1.0, n=9))
        return SimpleNamespace(
            verdict=verdicts[spec.seed], rival="", findings=[], algorithm="loop", answers=[answers], reason=""
        )

    monkeypatch.setattr(algorithms, "implements_test", result)
    evidence = evidence_of(monkeypatch, dict.fromkeys("abcd"))
    measurement = measured(evidence, judged=algorithms.IMPLEMENTING_OR_UNDECIDED)
    assert (measurement.value, measurement.n) == (0.25, 4)
    assert (measurement.low, measurement.high) == (proportion(1, 4).low, proportion(3, 4).high)
    verdicts[:] = ["implements", "implements", "implements", "neither"]
    assert measured(evidence, judged=algorithms.IMPLEMENTING_OR_UNDECIDED) == measured(evidence)


def test_models_that_have_not_learned_are_left_out(monkeypatch, models):
    evidence = evidence_of(monkeypatch, models, learned=lambda name: name == "count")
    measurement = measured(evidence, sign_count, chain_loop)
    assert (measurement.value, measurement.n, measurement.numbers) == (1, 1, {"implements": 1})
    (_, (header, _, unlearned)) = measurement.tables[0]
    assert unlearned[header.index("reason")] == "lowest accuracy 0.500"
    nothing = measured(evidence_of(monkeypatch, models, learned=lambda name: False))
    assert (nothing.value, nothing.low, nothing.high, nothing.n) == (0, 0, 1, 1)
