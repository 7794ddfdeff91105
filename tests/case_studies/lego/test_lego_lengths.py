"""Accuracy on shorter chains: that of known models, with every length counted the same and the root left out."""

from types import SimpleNamespace

import numpy as np
import pytest
from lego_curves import evidence_of

from case_studies.frame.evidence import Evidence
from case_studies.lego import curves, lengths
from case_studies.lego.study import STUDY
from interp.known_answers import lego_loop
from interp.tasks import Lego

CLAIMS = {claim.id: claim for claim in STUDY.claims if claim.id.startswith("start.lengths-")}
TASK = Lego(n_vars=4)


@pytest.fixture
def evidence(monkeypatch, tmp_path):
    monkeypatch.setitem(curves.SENTENCES, "standard", 200)
    found = evidence_of(monkeypatch, {"start-mimic": [None] * 3, "start-random": [None] * 3})
    for specs in found.groups.values():
        for spec in specs:
            spec.task, spec.key = TASK, f"{tmp_path} {spec.name} {spec.seed}"  # type: ignore[misc]
    return found


def test_a_loop_solves_every_shorter_chain_and_the_trained_length_is_not_measured(monkeypatch, evidence):
    monkeypatch.setattr(Evidence, "run", lambda self, spec: SimpleNamespace(model=lego_loop(TASK)))
    found = lengths.by_length(evidence, evidence.groups["start-mimic"][0])
    assert {length: values.tolist() for length, values in found.items()} == {2: [1.0], 3: [1.0, 1.0]}


def test_sentences_have_the_length_that_they_are_named_after(monkeypatch, evidence):
    seen = []

    def perfect(model, task, batch, depths, split):
        supervised = bool(batch.supervised.all())
        seen.append((task.n_vars, batch.tokens.shape[1], len(batch), depths, split, supervised))
        return SimpleNamespace(accuracy=SimpleNamespace(value=np.ones((1, task.n_vars))))

    monkeypatch.setattr(lengths, "accuracy_by_depth", perfect)
    model = SimpleNamespace(cfg=SimpleNamespace(n_layers=6))
    monkeypatch.setattr(Evidence, "run", lambda self, spec: SimpleNamespace(model=model))
    evidence.groups["start-mimic"][0].task = Lego(n_vars=4, supervised=(0, 3))  # type: ignore[misc]
    lengths.by_length(evidence, evidence.groups["start-mimic"][0])
    assert seen == [(2, 12, 200, [6], "test", True), (3, 17, 200, [6], "test", True)]


def test_the_difference_is_paired_by_seed_and_lengths_count_the_same(monkeypatch, evidence):
    values = {"start-mimic": {2: [1.0], 3: [0.8, 0.6]}, "start-random": {2: [0.5], 3: [0.6, 0.4]}}
    drawn = [0.1, 0.0, -0.1]  # of a seed, the same in both arms

    def measured(evidence, spec):
        return {n: np.array(one) + drawn[spec.seed] for n, one in values[spec.name].items()}

    monkeypatch.setattr(lengths, "by_length", measured)
    said = CLAIMS["start.lengths-mimic"].measure(evidence)
    assert said.value == pytest.approx((1.0 + 0.7) / 2 - (0.5 + 0.5) / 2)
    assert said.numbers == {
        "mean accuracy, start-mimic": pytest.approx(0.85),
        "mean accuracy, start-random": pytest.approx(0.5),
    }
    assert said.high - said.low < 0.01, "pairing by seed removes what both arms share"
    assert (said.n, said.unit) == (3, "seeds")
    assert CLAIMS["start.lengths-mimic"].verdict(said) == "reproduced"
    assert said.tables[0][1][-1] == ["start-random", "2", "3", "0.500, 0.300"]


def test_claims_compare_each_start_with_the_random_one_and_are_ours():
    assert {name: one.needs for name, one in CLAIMS.items()} == {
        f"start.lengths-{name}": (f"start-{group}", "start-random")
        for name, group in (("mimic", "mimic"), ("copy", "query-key"), ("pretrained", "pretrained"))
    }
    for one in CLAIMS.values():
        assert one.source.startswith("ours, after LEGO, Figure 6")
        assert one.preregistration.when == "after first models"
        assert one.measure.keywords == {"start": one.needs[0], "reference": "start-random"}  # type: ignore[attr-defined]
