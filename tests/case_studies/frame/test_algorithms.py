"""Shares of models that implement an algorithm, on hand-written models whose algorithm is known."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from case_studies.frame import algorithms
from case_studies.frame.intervals import proportion
from interp.algorithms import chain_loop, sign_count
from interp.core.verbs import untrained_copy
from interp.known_answers.lego.loop import lego_loop
from interp.known_answers.lego.shortcut import lego_shortcut
from interp.tasks import Lego

TASK = Lego(n_vars=3, alphabet="abcdef")


def evidence_of(monkeypatch, models, learned=lambda name: True):
    """Evidence of one group with these models by name."""
    specs = [SimpleNamespace(seed=seed, task=TASK, key=name) for seed, name in enumerate(models)]
    monkeypatch.setattr(algorithms, "has_learned", lambda _, spec: learned(spec.key))
    monkeypatch.setattr(algorithms, "excluded", lambda *_: [])
    return SimpleNamespace(
        size="quick", seed=0, folder=Path("nowhere"), specs=lambda group: specs,
        run=lambda spec: SimpleNamespace(model=models[spec.key]),
    )  # fmt: skip


def measured(evidence, algorithm=chain_loop, rival=sign_count):
    return algorithms.measure_share(evidence, groups=["one"], algorithm=algorithm, rivals=(rival,))


@pytest.fixture
def models():
    loop = lego_loop(TASK)
    return {"loop": loop, "count": lego_shortcut(TASK), "untrained": untrained_copy(loop, 0)}


def test_each_verdict_is_counted_and_every_model_listed(monkeypatch, models):
    monkeypatch.setattr(algorithms, "PAIRS", {"quick": 256})
    evidence = evidence_of(monkeypatch, models)
    found = measured(evidence)
    assert (found.value, found.n) == (pytest.approx(1 / 3), 3)
    assert found.numbers == {"implements": 1, "implements sign count": 1, "neither": 1}
    (_, (header, *rows)) = found.tables[0]
    verdict, weakest = header.index("verdict"), header.index("weakest variable")
    assert [row[verdict] for row in rows] == ["implements", "implements sign count", "neither"]
    assert rows[0][weakest] == "value #1"  # the only one that is neither an input nor an answer
    assert rows[0][weakest + 1].startswith("1.000 [")
    counting = measured(evidence, sign_count, chain_loop)
    assert counting.numbers == {"implements chain loop": 1, "implements": 1, "neither": 1}


def test_undecided_models_may_implement_it_or_not(monkeypatch, models):
    verdicts = ["implements", "undecided", "undecided", "neither"]

    def result(evidence, spec, *algorithms):
        answers = SimpleNamespace(algorithm="loop", accuracy=1.0, low=0.9, high=1.0)
        return SimpleNamespace(
            verdict=verdicts[spec.seed], rival="", findings=[], algorithm="loop", answers=[answers], reason=""
        )

    monkeypatch.setattr(algorithms, "tested", result)
    evidence = evidence_of(monkeypatch, dict.fromkeys("abcd"))
    given = {"groups": ["one"], "algorithm": chain_loop, "rivals": (sign_count,)}
    found = algorithms.measure_decided_share(evidence, **given)
    assert (found.value, found.n) == (0.25, 4)
    assert (found.low, found.high) == (proportion(1, 4)[1], proportion(3, 4)[2])
    assert "if the 2 undecided models implemented it" in found.note
    verdicts[:] = ["implements", "implements", "implements", "neither"]
    assert algorithms.measure_decided_share(evidence, **given) == algorithms.measure_share(evidence, **given)


def test_models_that_have_not_learned_are_left_out(monkeypatch, models):
    monkeypatch.setattr(algorithms, "PAIRS", {"quick": 256})
    found = measured(evidence_of(monkeypatch, models, learned=lambda name: name == "loop"))
    assert (found.value, found.n) == (1, 1)
    none = measured(evidence_of(monkeypatch, models, learned=lambda name: False))
    assert (none.low, none.high) == (0, 1)
    assert "No model has learned its task" in none.note
