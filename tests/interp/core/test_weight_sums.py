"""Sums that are equal for the same weights, up to rounding, and for no others."""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch

from hooks import Transformer, TransformerConfig
from interp.core.weight_sums import N_SUMS, same_weights, subject_key, weight_sums
from interp.tasks import Lego

CONFIG = TransformerConfig(d_vocab=50, n_ctx=12, n_layers=3, n_heads=4, d_model=64)


def rounded_elsewhere(model, generator):
    """The model as another instruction set draws it: a third of the weights is off by up to two last bits."""
    model = deepcopy(model)
    with torch.no_grad():
        for parameter in model.parameters():
            steps = torch.randint(-2, 3, parameter.shape, generator=generator)
            steps[torch.rand(parameter.shape, generator=generator) < 2 / 3] = 0
            parameter += steps * parameter.abs() * 2**-23
    return model


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_rounding_makes_no_other_model(dtype, generator):
    model = Transformer(CONFIG, seed=0)
    sums = weight_sums(deepcopy(model).to(dtype))
    assert len(sums) == N_SUMS + 1
    for _ in range(20):
        elsewhere = rounded_elsewhere(model, generator).to(dtype)
        assert same_weights(sums, weight_sums(elsewhere))
    assert not same_weights(sums, weight_sums(Transformer(CONFIG, seed=1).to(dtype)))


def test_one_weight_makes_another_model(generator):
    model = Transformer(CONFIG, seed=0)
    sums = weight_sums(model)
    for parameter in model.parameters():
        place = tuple(int(torch.randint(size, (), generator=generator)) for size in parameter.shape)
        with torch.no_grad():
            before = parameter[place].item()
            parameter[place] += 1e-3
            assert not same_weights(sums, weight_sums(model))
            parameter[place] = before
    assert same_weights(sums, weight_sums(model))


def test_two_weights_that_change_places_make_another_model():
    model = Transformer(CONFIG, seed=0)
    sums = weight_sums(model)
    with torch.no_grad():
        model.embed.weight[[0, 1]] = model.embed.weight[[1, 0]]
    assert not same_weights(sums, weight_sums(model))


def test_the_sums_are_those_of_every_machine():
    linear = torch.nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        linear.weight[:] = torch.tensor([1.0, 10.0])
    bound, *sums = weight_sums(linear)
    assert bound == pytest.approx(16 * 2**-23 * 101**0.5)
    assert sums == [-9.0, -11.0, -9.0, -11.0]


def test_results_of_nothing_are_of_no_model():
    assert not same_weights((), weight_sums(torch.nn.Linear(2, 2)))


def test_config_and_task_are_part_of_the_subject():
    """The same weights compute something else with another activation or another scale of attention."""
    task = Lego(n_vars=2)
    model = Transformer(CONFIG, seed=0)
    keys = {
        subject_key(model, task),
        subject_key(model, Lego(n_vars=3)),
        subject_key(model, replace(task, supervised=(0,))),
    }
    for change in ({"activation": "relu"}, {"attn_scale": 3.0}):
        other = Transformer(replace(CONFIG, **change), seed=0)
        assert same_weights(weight_sums(other), weight_sums(model))
        keys.add(subject_key(other, task))
    assert len(keys) == 5
    assert subject_key(Transformer(CONFIG, seed=1), Lego(n_vars=2)) in keys
