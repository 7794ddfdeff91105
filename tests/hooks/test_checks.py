import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from hooks import FullyConnectedConfig, TransformerConfig
from hooks.checks import check_number
from interp import TrainSettings
from interp.tasks import Dyck, Lego, Template
from interp.training import Mimicking

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("value", "limits", "words"),
    [
        (NAN, {}, "it must be a finite number"),
        (-INF, {"low": 0}, "it must be a finite number"),
        ("5", {"integer": True}, "'5'; it must be an integer"),
        (True, {}, "it must be a finite number"),
        (None, {}, "it must be a finite number"),
        (2.5, {"integer": True}, "it must be an integer"),
        (0, {"above": 0}, "it must be positive"),
        (-0.1, {"low": 0}, "it must not be negative"),
        (0, {"low": 1}, "it must be at least 1"),
        (1.5, {"low": 0, "high": 1}, "it is a share, 0 to 1"),
        (3, {"above": 0, "high": 2}, "it must be above 0 and at most 2"),
        ("x" * 500, {}, "...xxxxx"),
        pytest.param(10**400, {}, "it must be a finite number", id="no float"),
        pytest.param(10**400, {"integer": True, "low": 1, "high": 3}, "at least 1 and at most 3", id="large"),
        pytest.param(10**5000, {}, "a int that is too long to be written; it must be a finite", id="not written"),
    ],
)
def test_other_numbers_are_refused(value, limits, words):
    with pytest.raises(ValueError, match=f"^rate is .*{re.escape(words)}"):
        check_number("rate", value, **limits)


def test_valid_numbers_pass():
    for value in (1, 0.5, np.float64(1), np.int64(1)):
        check_number("rate", value, above=0, high=1)
    check_number("n", np.int64(3), integer=True, low=3)
    check_number("n", 10**400, integer=True, low=3)


@pytest.mark.parametrize("value", [NAN, INF])
@pytest.mark.parametrize(
    ("settings", "name"),
    [
        *((TrainSettings(), name) for name in ("learning_rate", "clip_norm", "weight_decay", "contrastive")),
        *((TrainSettings(), name) for name in ("current_share", "decay_share", "qk_identity_rate")),
        (Mimicking(), "learning_rate"),
        *(
            (TransformerConfig(d_vocab=4, d_model=8, n_heads=2), name)
            for name in ("embedding_std", "layer_norm_eps", "attn_scale")
        ),
    ],
)
def test_settings_and_configs_refuse_numbers_that_are_not_finite(settings, name, value):
    with pytest.raises(ValueError, match=rf"{name} is (nan|inf); it must be a finite number"):
        replace(settings, **{name: value})


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        *((TrainSettings(), name) for name in ("steps", "n_eval", "eval_every", "batch_size", "warmup_steps")),
        *((Mimicking(), name) for name in ("steps", "batch_size")),
        *((TransformerConfig(d_vocab=4, d_model=8, n_heads=2), name) for name in ("d_model", "n_ctx", "d_head")),
        (FullyConnectedConfig(d_vocab=4, n_ctx=3), "width"),
    ],
)
def test_settings_and_configs_refuse_counts_out_of_range(settings, name):
    with pytest.raises(ValueError, match=rf"{name} is -1; it must"):
        replace(settings, **{name: -1})


@pytest.mark.parametrize("name", ["embedding_std", "attn_scale", "layer_norm_eps"])
def test_integers_that_torch_does_not_multiply_by(name, as_a_user):
    cfg = TransformerConfig(d_vocab=4, d_model=8, n_heads=2, **{name: 2})
    for value in (10**30, 10**400, 2**63):
        with pytest.raises(ValueError, match=rf"^{name} is \d.*; write an integer of this size as a float: 1e30"):
            replace(cfg, **{name: value})


@pytest.mark.parametrize("betas", [(0.9, 1.0), (NAN, 0.9), (0.9, -0.1)])
def test_betas_are_two_shares_below_one(betas):
    with pytest.raises(
        ValueError, match=r"betas( is .*two numbers from 0 to below 1|\[0\] is nan; it must be a finite)"
    ):
        TrainSettings(betas=betas)


@pytest.mark.parametrize("task", [Lego(n_vars=2), Dyck(max_depth=3, length=8), Template(templates="aba_abb")])
def test_tasks_check_the_number_of_examples(task):
    with pytest.raises(ValueError, match=r"n is -1; it must not be negative"):
        task.sample(-1, generator=torch.Generator())
