"""Verbs on models in half precision: the same reading as in float32, up to rounding."""

import numpy as np
import pytest
import torch

import interp
from hooks import Transformer
from interp.tasks import Lego

TASK = Lego(n_vars=3)
VERBS = {
    "probe": lambda model: interp.probe(model, TASK, n_train=200, n_test=400, verify=True).accuracy,
    "classify_heads": lambda model: interp.classify_heads(model, TASK, n=64, untrained=1).value_weighted,
    "ablate": lambda model: interp.ablate(model, TASK, n=256).loss_rise,
    "ablate_heads": lambda model: interp.ablate_heads(model, TASK, n=256).loss_rise,
    "evaluate": lambda model: interp.evaluate(model, TASK, n=256).accuracy,
}
RUN = {
    "audit": lambda model: interp.audit(model, TASK, n=32, at_chance=True),
    "audit_parts": lambda model: interp.audit_parts(model, TASK, n=32, at_chance=True),
    "audit_probe": lambda model: interp.audit_probe(model, TASK, n_train=64, n_test=64),
    "show_attention": lambda model: interp.show_attention(model, TASK),
    "diagonals": interp.diagonals,
}


def model(dtype=torch.float32):
    return Transformer(interp.config_for(TASK, n_layers=2, d_model=16, n_heads=2), seed=1).eval().to(dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("verb", VERBS)
def test_the_result_is_that_of_float32(verb, dtype):
    single, half = (np.asarray(VERBS[verb](model(one))) for one in (torch.float32, dtype))
    assert np.abs(single - half).max() < 0.1
    assert np.ptp(single) > 0


@pytest.mark.parametrize("verb", RUN)
def test_it_runs(verb):
    assert str(RUN[verb](model(torch.bfloat16)))
