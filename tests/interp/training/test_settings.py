import json
import math
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from short_runs import SHORT, new_model

import interp
import interp.sweeps.parallel
from interp import TrainSettings
from interp.sweeps.spec import ModelSpec
from interp.tasks import Dyck, Lego, Template
from interp.training import Mimicking
from interp.training.settings import recipe_for


def test_the_learning_rate_rises_stays_and_falls():
    settings = TrainSettings(steps=100, learning_rate=2.0, warmup_steps=10, decay_share=0.4)
    rates = [settings.learning_rate_at(step) for step in range(100)]
    assert rates[0] == pytest.approx(0.2)
    assert rates[4] == pytest.approx(1.0)
    assert rates[9:61] == pytest.approx([2.0] * 52)
    assert rates[80] == pytest.approx(1.0)
    assert rates[99] == pytest.approx(2.0 / 40)
    assert np.diff(rates[:10]) == pytest.approx([0.2] * 9)
    assert np.diff(rates[60:]) == pytest.approx([-0.05] * 39)
    flat = TrainSettings(steps=10, learning_rate=2.0, warmup_steps=0, decay_share=0.0)
    assert [flat.learning_rate_at(step) for step in range(10)] == [2.0] * 10


def test_steps_that_a_curriculum_overrides_are_refused():
    staged = TrainSettings(curriculum=((2, 80), (3, 270)))
    assert staged.steps == 350
    words = "steps is 3000, but the stages of the curriculum have 350 steps, which count. Omit steps, or"
    with pytest.raises(ValueError, match=words):
        TrainSettings(curriculum=((2, 80), (3, 270)), steps=3000)
    with pytest.raises(ValueError, match=words):
        replace(staged, steps=3000)
    with pytest.raises(ValueError, match="steps is 3000, but"):
        TrainSettings.from_dict(staged.to_dict() | {"steps": 3000})
    # steps that follow from stages change with them, also after JSON
    assert replace(staged, curriculum=((2, 9),)).steps == 9
    assert replace(staged, curriculum=()).steps == 350
    assert TrainSettings.from_dict(json.loads(json.dumps(staged.to_dict()))) == staged
    assert TrainSettings(curriculum=((2, 5),), steps=5).steps == 5
    assert json.dumps(staged.to_dict()["steps"]) == "350"


@pytest.mark.parametrize(
    "settings",
    [TrainSettings(), SHORT, TrainSettings(curriculum=((2, 5), (3, 6)), depth_range=(1, 3), betas=(0.8, 0.9))],
    ids=["default", "short", "curriculum"],
)
def test_settings_survive_json(settings):
    again = TrainSettings.from_dict(json.loads(json.dumps(settings.to_dict())))
    assert again == settings
    assert hash(again) == hash(settings)
    assert TrainSettings.from_dict({"steps": 5}) == TrainSettings(steps=5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"steps": 0}, "steps is 0; it must be positive"),
        ({"learning_rate": -1.0}, r"learning_rate is -1\.0; it must be positive"),
        ({"eval_every": 0}, "eval_every is 0; it must be positive"),
        ({"checkpoint_every": 0}, "checkpoint_every is 0; it must be positive"),
        ({"decay_share": 1.5}, r"decay_share is 1\.5; it is a share, 0 to 1"),
        ({"current_share": -0.1}, r"current_share is -0\.1; it is a share"),
        ({"association": "copy"}, "association is 'copy'; choose one of none, mimic, query_key"),
        ({"n_train": 5, "curriculum": ((2, 3),)}, "n_train and curriculum exclude each other"),
        ({"n_train": 0}, "n_train is 0; it must be at least 1"),
        ({"batch_size": 0}, "batch_size is 0; it must be at least 1"),
    ],
)
def test_settings_out_of_range_are_refused(change, words, as_a_user):
    with pytest.raises(ValueError, match=words):
        TrainSettings(**change)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"local_target": "bands"}, r"mimicking\.local_target is 'bands'; choose one of band, clause"),
        ({"tokens": "noise"}, r"mimicking\.tokens is 'noise'; choose one of examples, random"),
        ({"steps": 0}, r"mimicking\.steps is 0; it must be positive"),
    ],
)
def test_mimicking_out_of_range_is_refused(change, words, as_a_user):
    with pytest.raises(ValueError, match=words):
        Mimicking(**change)


def test_cosine_over_all_steps_is_torchs_cosine_annealing():
    settings = TrainSettings(steps=40, learning_rate=3e-3, warmup_steps=0, decay_share=1.0, decay="cosine")
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=40)
    for step in range(40):
        assert settings.learning_rate_at(step) == pytest.approx(schedule.get_last_lr()[0], rel=1e-9)
        optimizer.step()
        schedule.step()


@given(
    steps=st.integers(1, 200),
    warmup=st.integers(0, 50),
    share=st.floats(0, 1),
    decay=st.sampled_from(["linear", "cosine"]),
)
def test_the_rate_rises_stays_and_falls(steps, warmup, share, decay):
    settings = TrainSettings(steps=steps, learning_rate=1.0, warmup_steps=warmup, decay_share=share, decay=decay)
    rates = [settings.learning_rate_at(step) for step in range(steps)]
    assert all(0 < rate <= 1 for rate in rates)
    top = rates.index(max(rates))
    assert rates[:top] == sorted(rates[:top])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    flat = range(max(warmup, 1), min(steps, math.ceil(steps - max(1.0, share * steps))))
    assert all(rates[step] == 1 for step in flat)
    assert settings.learning_rate_at(steps) == pytest.approx(0, abs=1e-12)
    # half way down either is at one half
    middle = steps - max(1.0, share * steps) / 2
    if middle == int(middle) and middle + 1 >= max(1, warmup):
        assert settings.learning_rate_at(int(middle)) == pytest.approx(0.5)


def test_descriptions_and_keys_of_earlier_runs_are_unchanged():
    """These keys were computed before the two settings existed."""
    for task, settings, key in [
        (Lego(n_vars=3), TrainSettings(), "c6be01553d9d2981e0cd"),
        (Lego(n_vars=3), recipe_for(Lego(n_vars=3)), "21bff448ca69ea4b2c4a"),
        (Dyck(), recipe_for(Dyck()), "990deb53897b14210623"),
        (Template(), TrainSettings(), "675a0b81ad9bd655e3aa"),
    ]:
        assert ModelSpec(task=task, config=interp.config_for(task), settings=settings, seed=1).key == key
    assert not {"precision", "decay"} & set(TrainSettings().to_dict())


@given(precision=st.sampled_from(["float32", "bfloat16"]), decay=st.sampled_from(["linear", "cosine"]))
def test_precision_and_decay_survive_json(precision, decay):
    settings = TrainSettings(precision=precision, decay=decay, betas=(0.8, 0.9))
    described = json.loads(json.dumps(settings.to_dict()))
    assert TrainSettings.from_dict(described) == settings
    assert ("precision" in described, "decay" in described) == (precision != "float32", decay != "linear")


def test_precision_and_decay_change_the_key():
    config = new_model(Lego(n_vars=3)).cfg
    changes = [{}, {"precision": "bfloat16"}, {"decay": "cosine"}]
    keys = {ModelSpec(task=Lego(n_vars=3), config=config, settings=TrainSettings(**one), seed=0).key for one in changes}
    assert len(keys) == 3


def test_unknown_choices_are_refused(as_a_user):
    with pytest.raises(ValueError, match="precision is 'float16'; choose one of float32, bfloat16"):
        TrainSettings(precision=cast(Any, "float16"))
    with pytest.raises(ValueError, match="decay is 'step'; choose one of linear, cosine"):
        TrainSettings(decay=cast(Any, "step"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"keep": "first"}, "keep is 'first'; choose one of last, best"),
        ({"qk_identity_rate": 0.0}, r"qk_identity_rate is 0\.0; it must be positive"),
        ({"vo_identity_rate": -1.0}, r"vo_identity_rate is -1\.0; it must be positive"),
    ],
)
@pytest.mark.usefixtures("as_a_user")
def test_an_unknown_keep_and_rates_out_of_range_are_refused(change, words):
    with pytest.raises(ValueError, match=words):
        TrainSettings(**change)


def test_keep_and_rates_survive_json():
    chosen = TrainSettings(n_train=6, keep="best", qk_identity_rate=2.0, vo_identity_rate=3.0)
    assert TrainSettings.from_dict(json.loads(json.dumps(chosen.to_dict()))) == chosen


def test_recipe_for_templates():
    recipe = recipe_for(Template(train=37))
    assert (recipe.n_train, recipe.keep, recipe.weight_decay) == (37, "best", 0.0)
    assert recipe.vo_identity_rate > recipe.qk_identity_rate == 1
    assert recipe_for(Template(train=("x", "y", "z"))).n_train == 3
