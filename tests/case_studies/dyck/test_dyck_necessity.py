"""Layers whose balance is broken by hand: faults, words of repeated nests, first errors, and the two claims."""

from pathlib import Path

import numpy as np
import pytest
import torch

from case_studies.dyck import necessity
from case_studies.dyck.necessity import FAULTS, first_error, repeated_nests
from case_studies.dyck.study import STUDY
from case_studies.frame.evidence import Evidence
from interp.known_answers import balanced_dyck
from interp.tasks import Dyck
from interp.theory.balance import balance_violation

TASK = Dyck(n_types=2, max_depth=3)
CLAIMS = {claim.id: claim for claim in STUDY.claims}


@pytest.fixture(autouse=True)
def shorter(monkeypatch):
    monkeypatch.setattr(necessity, "LENGTHS", (250, 1000))
    monkeypatch.setattr(necessity, "LANGUAGES", ((2, 3),))
    monkeypatch.setattr(necessity, "DRAWS", {"quick": 2})
    monkeypatch.setattr(necessity, "AMOUNTS", (0.008, 0.004, 0.002))


def test_repeated_nests_are_words_of_one_type_with_every_test():
    word = repeated_nests(TASK, 1, 100)
    assert word[:22] == "[[[]]](())([])[()][[]]"
    assert word == word[:22] * 4


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_size_zero_is_none_and_a_violation_is_proportional_to_its_size(fault):
    assert balance_violation(FAULTS[fault](TASK, 0.0, 3), TASK).violation < 1e-12
    small, large = (balance_violation(FAULTS[fault](TASK, amount, 3), TASK).violation for amount in (1e-4, 1e-3))
    assert large == pytest.approx(10 * small, rel=0.05)


def test_faults_differ_between_seeds_and_only_perturbed_scores_change_scores():
    for fault in ("values perturbed", "scores perturbed"):
        a, b, same = (FAULTS[fault](TASK, 1e-3, seed) for seed in (0, 1, 0))
        layers = [model.block(0).attention for model in (a, b, same)]
        assert not torch.equal(layers[0].q.weight, layers[1].q.weight)
        assert torch.equal(layers[0].q.weight, layers[2].q.weight)
        assert torch.equal(layers[0].v.weight, layers[2].v.weight)
        whole = balanced_dyck(TASK, attention="uneven", seed=0).block(0).attention
        assert torch.equal(layers[0].q.weight, whole.q.weight) == (fault == "values perturbed")
        assert torch.equal(layers[0].v.weight, whole.v.weight) == (fault == "scores perturbed")


def test_first_error_is_the_first_wrong_closer_of_a_word():
    model = FAULTS["closers scaled"](TASK, 0.01, 0)
    found = first_error(model, TASK)
    assert found is not None
    wrong = []
    for kind in (0, 1):
        batch = TASK.read(repeated_nests(TASK, kind, 250)[:found])
        right = model(batch.tokens)[0, :, 4::2].argmax(-1) == batch.due[0]
        hard = (batch.due >= 0)[0] & batch.after_closer[0]
        wrong.append((~right & hard).nonzero().flatten().tolist())
    assert found in (wrong[0] + wrong[1])
    assert {at for one in wrong for at in one} == {found}
    assert first_error(balanced_dyck(TASK, attention="uneven"), TASK) is None


def test_half_the_fault_survives_twice_the_length():
    lengths = [first_error(FAULTS["closers scaled"](TASK, amount, 0), TASK) for amount in (0.008, 0.004, 0.002)]
    assert np.diff(np.log2(np.array(lengths, float))) == pytest.approx([1, 1], abs=0.2)


def measure(claim):
    measured = CLAIMS[claim].measurement(Evidence(size="quick", seed=0, groups={}, folder=Path("nowhere")))
    return measured, CLAIMS[claim].verdict(measured)


def test_claims_are_reproduced_by_broken_layers(monkeypatch):
    measured, verdict = measure("theorem-1.necessary")
    assert (verdict, measured.value, measured.n) == ("reproduced", 1.0, 18)
    assert measured.numbers["balanced models that fail"] == 0
    monkeypatch.setattr(necessity, "DRAWS", {"quick": 6})
    measured, verdict = measure("theorem-1.rate")
    assert verdict == "reproduced"
    assert measured.value == pytest.approx(-1, abs=0.15)


def test_layers_that_are_not_broken_are_not_reproduced(monkeypatch):
    def whole(task, amount, seed):
        return balanced_dyck(task, attention="uneven", seed=seed)

    monkeypatch.setitem(FAULTS, "closers scaled", whole)
    measured, verdict = measure("theorem-1.necessary")
    assert (verdict, measured.value) == ("not reproduced", pytest.approx(2 / 3))
    assert measure("theorem-1.rate")[0].n == 12


def test_balanced_layers_that_fail_are_not_reproduced(monkeypatch):
    monkeypatch.setattr(
        necessity, "balanced_dyck", lambda task, **options: balanced_dyck(task, imbalance=0.01, **options)
    )
    monkeypatch.setattr(
        necessity, "FAULTS", {"closers scaled": lambda task, amount, seed: balanced_dyck(task, imbalance=amount)}
    )
    assert measure("theorem-1.necessary")[1] == "not reproduced"


def test_another_rate_is_not_reproduced(monkeypatch):
    def slower(task, amount, seed):
        return balanced_dyck(task, attention="uneven", imbalance=amount, seed=seed)

    monkeypatch.setattr(necessity, "FAULTS", {"closers scaled": slower})
    monkeypatch.setattr(
        necessity, "first_error", lambda model, task: round(balance_violation(model, task).violation ** -2)
    )
    assert measure("theorem-1.rate")[1] == "not reproduced"
