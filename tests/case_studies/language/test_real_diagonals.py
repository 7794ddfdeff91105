"""Diagonals of packaged weights; here of small encoders, random or with a planted identity."""

from pathlib import Path

import pytest
import torch

from case_studies.frame.evidence import Evidence
from case_studies.language import real_diagonals
from case_studies.language.real_diagonals import CLAIMS
from hooks import Encoder, presets

EVIDENCE = Evidence(size="standard", seed=0, groups={}, folder=Path("nowhere"))


@pytest.fixture
def encoder(monkeypatch):
    """A small encoder in the place of the packaged one."""
    cfg = presets.bert_encoder(d_vocab=12, n_ctx=8, d_model=32, n_heads=4, n_layers=3)
    model = Encoder(cfg, seed=7)
    monkeypatch.setattr(real_diagonals, "load", lambda name: model)
    return model


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_random_weights_have_no_strong_diagonals(encoder, claim):
    measurement = claim.measurement(EVIDENCE)
    assert measurement.numbers["strong heads"] == 0
    assert claim.rule.verdict(measurement) != "reproduced"


def test_planted_diagonals_are_counted(encoder):
    query_key, value_output = CLAIMS
    with torch.no_grad():
        for block in encoder.stored_blocks:
            block.attention.k.weight.copy_(block.attention.q.weight)
    measurement = query_key.measurement(EVIDENCE)
    assert (measurement.value, measurement.n) == (1, 12)
    assert query_key.rule.verdict(measurement) == "reproduced"
    assert value_output.measurement(EVIDENCE).value == 0
