"""Any integer is a seed, and the usual ones give the random numbers of torch."""

import numpy as np
import pytest
import torch

import hooks
from hooks.randomness import seeded_generator, usable_seed

FOREIGN = [-1, -(2**63), 2**63, 2**64, 10**30]
"""Seeds that torch, numpy or both refuse."""
TRANSFORMER = hooks.TransformerConfig(d_vocab=5, d_model=8, n_heads=2, n_layers=1)
MODELS = {
    "transformer": lambda seed: hooks.make_model(TRANSFORMER, seed=seed),
    "recurrent": lambda seed: hooks.Recurrent(hooks.RecurrentConfig(d_vocab=5, n_ctx=4, width=8), seed=seed),
    "fully connected": lambda seed: hooks.FullyConnected(
        hooks.FullyConnectedConfig(d_vocab=5, n_ctx=4, width=8), seed=seed
    ),
    "lego attention": lambda seed: hooks.LegoAttention(16, hooks.Pathways(learned=8), d_head=4, width=8, seed=seed),
}


def weights(model):
    return torch.cat([parameter.detach().ravel() for parameter in model.parameters()])


@pytest.mark.parametrize("seed", [0, 3, 2**32, 2**63 - 1])
def test_the_numbers_of_usual_seeds_are_those_of_torch(seed, as_a_user):
    expected = torch.randn(4, generator=torch.Generator().manual_seed(seed))
    for same_seed in (seed, np.int64(seed)):
        assert torch.equal(torch.randn(4, generator=seeded_generator(same_seed)), expected)


def test_other_seeds_differ_from_each_other_and_fit_into_63_bits():
    seeds = [usable_seed(seed) for seed in FOREIGN]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert seeds == [usable_seed(seed) for seed in FOREIGN]


@pytest.mark.parametrize("seed", [None, 2.5, True, "3", np.array([1, 2]), float("nan")])
@pytest.mark.parametrize("name", [name for name in MODELS if name != "lego attention"])
def test_what_is_no_integer_is_refused(name, seed, as_a_user):
    with pytest.raises(ValueError, match=r"^seed is .*; it must be an integer\.$"):
        MODELS[name](seed)


@pytest.mark.parametrize("name", MODELS)
def test_models_take_any_integer(name):
    models = [MODELS[name](seed) for seed in (-1, 2**64, -1)]
    assert torch.equal(weights(models[0]), weights(models[2]))
    assert not torch.equal(weights(models[0]), weights(models[1]))


def test_checks_of_bridges_take_any_integer():
    assert hooks.verify(hooks.make_model(TRANSFORMER), seed=-1).ok
