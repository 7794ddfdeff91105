"""Every seed is any integer."""

import numpy as np
import pytest

import interp
from hooks import make_model
from interp.core.statistics import bootstrap_mean
from interp.tasks import Lego
from interp.tasks.template.families import random_templates

TASK = Lego(n_vars=2)
CFG = interp.config_for(TASK, n_layers=1, d_model=16, n_heads=2)
SEEDS = [-1, 2**64, np.int64(-3)]
CALLS = {
    "evaluate": lambda model, seed: interp.evaluate(model, TASK, n=16, seed=seed),
    "resample": lambda model, seed: interp.ablate_heads(model, TASK, n=16, method="resample", seed=seed),
    "random rows": lambda model, seed: interp.ablate_heads(model, TASK, n=16, method="random_rows", seed=seed),
    "patch": lambda model, seed: interp.patch(model, TASK, n=8, seed=seed),
    "logit_lens": lambda model, seed: interp.logit_lens(model, TASK, n=8, seed=seed),
    "diagonals": lambda model, seed: interp.diagonals(model, n_null=2, seed=seed),
    "bootstrap": lambda model, seed: bootstrap_mean(np.arange(6.0).reshape(6, 1), seed=seed, resamples=8),
    "string_family": lambda model, seed: random_templates(2, seed=seed),
}


@pytest.mark.parametrize("name", CALLS)
def test_any_integer_is_a_seed(name, monkeypatch):
    monkeypatch.setattr("interp.core.sample.N_REFERENCE", 8)
    model = make_model(CFG).eval()
    for seed in SEEDS:
        assert CALLS[name](model, seed) is not None
