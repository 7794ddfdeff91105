"""The claims about shared matrices, measured on transformers with fixed weights instead of trained ones."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from eq6_targets import target_of

from case_studies.dyck import pruning
from case_studies.dyck.study import STUDY
from case_studies.frame.evidence import Evidence
from hooks import Transformer
from interp.sweeps.spec import seeded
from interp.tasks import Dyck
from interp.theory.pruning import indistinguishable
from interp.training.settings import TrainSettings

TASK = Dyck(n_types=1, max_depth=2, length=8, loss_on="closers")
ENOUGH, TOO_FEW = 22, 8
"""Candidates per weight: the error is 80 times below the bar of the rule, and 60 times above it."""


@dataclass(frozen=True, kw_only=True)
class Planted(Evidence):
    """Evidence whose models are given and not trained."""

    pair: tuple[Transformer, ...]

    def models(self, group: str) -> list[Any]:
        return list(self.pair)


@pytest.fixture(autouse=True)
def few_sequences(monkeypatch):
    torch.set_num_threads(1)
    monkeypatch.setattr(pruning, "N_SEQUENCES", {"quick": 8})


def target(seed, layers=1):
    """A target with random weights, which depend on the seed and on nothing else."""
    sizes = {"d_vocab": TASK.d_vocab, "d_vocab_out": TASK.d_vocab_out, "n_ctx": TASK.n_ctx}
    return target_of(seed=seed, **sizes, attention=TASK.attention, n_layers=layers)


def shared(pair, depth="one"):
    """Measurement and verdict of the claim about a pair of targets."""
    (claim,) = (claim for claim in STUDY.claims if claim.id == f"pruning.shared.{depth}")
    specs = tuple(seeded(TASK, pair[0].cfg, TrainSettings(steps=1), 2))
    groups = dict.fromkeys(claim.needs, specs)
    measured = claim.measurement(Planted(size="quick", seed=0, groups=groups, folder=Path("nowhere"), pair=pair))
    return measured, claim.verdict(measured)


def check_reproduced(measured, verdict, matrices):
    assert verdict == "reproduced"
    assert measured.numbers["largest difference of a shared matrix"] == 0
    assert measured.numbers["entries kept in one mask only"] == 0
    assert measured.numbers["largest error against the own target"] < pruning.OWN / 10
    assert measured.value > 10 * pruning.APART
    assert measured.n == len(measured.tables[0][1]) - 1 == matrices


def test_two_transformers_of_one_layer_share_every_matrix(monkeypatch):
    monkeypatch.setattr(pruning, "PER_WEIGHT", ENOUGH)
    check_reproduced(*shared((target(1), target(2))), matrices=36)


@pytest.mark.slow
def test_two_transformers_of_two_layers_share_every_matrix():
    """With the study's largest number of candidates."""
    check_reproduced(*shared((target(1, layers=2), target(2, layers=2)), "two"), matrices=72)


def test_too_few_candidates_do_not_reproduce_it(monkeypatch):
    monkeypatch.setattr(pruning, "PER_WEIGHT", TOO_FEW)
    measured, verdict = shared((target(1), target(2)))
    assert verdict == "not reproduced"
    assert measured.numbers["largest error against the own target"] > 10 * pruning.OWN
    assert measured.value > pruning.APART  # it is the error that decides


@pytest.fixture(scope="module")
def found():
    """A result with errors far below the bar."""
    made = indistinguishable(target(1), target(2), TASK, shared="every", candidates=TOO_FEW, rescale=True, n=8)
    return replace(made, error=made.error / 1000)


def test_equal_targets_do_not_reproduce_it(found, monkeypatch):
    same = indistinguishable(target(1), target(1), TASK, shared="every", candidates=TOO_FEW, rescale=True, n=8)
    assert (same.distance == 0).all()
    monkeypatch.setattr(pruning, "indistinguishable", lambda *_, **__: replace(found, distance=same.distance))
    assert shared((target(1), target(1)))[1] == "not reproduced"


@pytest.mark.parametrize(
    ("field", "passes", "fails"),
    [
        ("difference", 0.0, 1e-9),
        ("masks_differ", 0, 1),
        ("error", pruning.OWN, pruning.OWN + 1e-6),
        ("distance", pruning.APART, pruning.APART - 1e-6),
    ],
)
def test_a_single_matrix_decides(found, monkeypatch, field, passes, fails):
    for planted, verdict in ((passes, "reproduced"), (fails, "not reproduced")):
        values = getattr(found, field).copy()
        values.reshape(-1)[17] = planted
        monkeypatch.setattr(
            pruning, "indistinguishable", lambda *_, values=values, **__: replace(found, **{field: values})
        )
        assert shared((target(1), target(2)))[1] == verdict
