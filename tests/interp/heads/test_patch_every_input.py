"""Patching of every pair of inputs of a small task."""

import numpy as np
import pytest
import torch
from few_inputs import Balanced

import interp
from hooks import Transformer
from hooks.model.layers import take
from interp.core.inputs import number_of_pairings
from interp.core.sample import Sample


@pytest.fixture
def model():
    return Transformer(interp.config_for(Balanced(), n_layers=2, n_heads=2, d_model=16), seed=0).eval()


@pytest.mark.parametrize("site", ["z", "resid", "mlp_out"])
def test_pairs_are_those_of_the_family_by_hand(model, site, monkeypatch):
    monkeypatch.setattr("interp.core.inputs.MOST_PAIRS", 192)
    task = Balanced()
    sample = Sample.of(task, "all", seed=0, name="patch")
    batch = sample.batch
    result = interp.patch(model, task, site=site, positions="each", n="all")
    n_pairings = number_of_pairings(len(batch))
    assert result.n == n_pairings * len(batch)
    assert result.effect.exact
    assert result.gap.exact
    assert result.follows.exact
    np.testing.assert_array_equal(result.effect.low, result.effect.value)
    # One site and place, over all pairs
    place, layer, head = 3, 1, 1
    name = {"z": "blocks.1.attn.hook_z", "resid": "blocks.1.hook_resid_pre", "mlp_out": "blocks.1.hook_mlp_out"}[site]
    clean, cache = model.run_with_cache(batch.tokens)
    clean = take(clean, batch.target_positions)
    rises, weights = 0, 0
    for draw in range(n_pairings):
        source = sample.partners(slice(None), draw)

        def edit(activation, hook, source=source):
            edited = activation.clone()
            rows = (slice(None), place, head) if site == "z" else (slice(None), place)
            edited[rows] = cache[name][source][rows]
            return edited

        after = take(model.run_with_hooks(batch.tokens, fwd_hooks=[(name, edit)]), batch.target_positions)
        own, other = batch.labels[..., None], batch.labels[source][..., None]
        differs = ((own != other)[..., 0] & batch.present & batch.present[source]).double()
        rise = [(logits.gather(-1, other) - logits.gather(-1, own))[..., 0] for logits in (clean, after)]
        rises = rises + ((rise[1] - rise[0]) * differs).sum(0)
        weights = weights + differs.sum(0)
    index = 2 * layer + head if site == "z" else layer
    expected = torch.where(weights > 0, rises / weights.clamp_min(1), torch.nan).detach().numpy()
    np.testing.assert_allclose(result.effect.value[index, place], expected, atol=1e-5)


def test_the_seed_makes_no_difference(model):
    first, second = (interp.patch(model, Balanced(), positions="all", n="all", seed=seed) for seed in (0, 1))
    np.testing.assert_array_equal(first.effect.value, second.effect.value)
    assert "exact" in str(first)


def test_too_few_pairs(model):
    with pytest.raises(ValueError, match="n is 4; it must be at least 8"):
        interp.patch(model, Balanced(), n=4)
    with pytest.raises(ValueError, match="n is 'some'; it must be an integer or 'all'"):
        interp.patch(model, Balanced(), n="some")
