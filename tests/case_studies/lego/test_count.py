"""Models that count signs, by interchanges and by broken chains, on hand-written models."""

from pathlib import Path
from types import SimpleNamespace

import pytest

import case_studies.recipes.algorithms as frame
from case_studies.lego import algorithms
from interp.core.verbs import untrained_copy
from interp.known_answers.lego.loop import lego_loop
from interp.known_answers.lego.shortcut import lego_shortcut
from interp.tasks import Lego

TASK = Lego(n_vars=3, alphabet="abcdef")


def evidence_of(monkeypatch, models):
    specs = [SimpleNamespace(seed=seed, task=TASK, key=name) for seed, name in enumerate(models)]
    for module in (frame, algorithms):
        monkeypatch.setattr(module, "has_learned", lambda *_: True)
    monkeypatch.setattr(frame, "excluded_models", lambda *_: [])
    monkeypatch.setattr(frame, "PAIRS", {"quick": 256})
    monkeypatch.setattr(algorithms, "LAST", ("one",))
    return SimpleNamespace(
        size="quick", seed=0, folder=Path("nowhere"), specs=lambda group: specs,
        run=lambda spec: SimpleNamespace(model=models[spec.key]),
    )  # fmt: skip


def test_counting_is_found_by_interchanges_and_by_broken_chains(monkeypatch):
    models = {"count": lego_shortcut(TASK), "untrained": untrained_copy(lego_shortcut(TASK), 0)}
    share = algorithms.measure_count(evidence_of(monkeypatch, models))
    assert (share.value, share.n) == (0.5, 2)
    _, (_, count, untrained) = share.tables[-1]
    assert count[2:] == ["implements", "1.000 [0.998, 1.000]"]
    assert untrained[2] == "neither"


@pytest.mark.slow
def test_following_the_chain_is_not_counting(monkeypatch):
    models = {"count": lego_shortcut(TASK), "loop": lego_loop(TASK)}
    share = algorithms.measure_count(evidence_of(monkeypatch, models))
    assert (share.value, share.n) == (0.5, 2)
    _, (_, _, loop) = share.tables[-1]
    assert loop[2] == "implements a rival"
    assert 0.4 < float(loop[3].split()[0]) < 0.6
