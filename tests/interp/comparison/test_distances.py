"""Distances against plain loops; the bootstrap against one written out, and its coverage."""

from itertools import combinations

import numpy as np
import pytest
import torch
from planted import distances_by_loops, flat_rows

from interp.comparison.baselines import flat_simplex_distance
from interp.comparison.distances import bootstrap_pairs, pair_distances

CAUSAL = np.arange(1, 18)


@pytest.mark.parametrize("block", [1, 50, 2_000_000])
def test_gram_matrix_equals_the_double_loop(block, monkeypatch):
    monkeypatch.setattr("interp.comparison.distances.WEIGHTS_PER_STEP", block)
    full = torch.rand(7, 3, 11, 11, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).softmax(-1)
    later_key = full.tril()
    later_key[4, 1, 2, 9] = 0.5
    for patterns in (full, full.tril(), later_key, full[:, :, :4], full[..., :4]):
        before = patterns.clone()
        np.testing.assert_allclose(pair_distances(patterns), distances_by_loops(patterns.numpy()), atol=1e-10, rtol=0)
        assert torch.equal(patterns, before)


def test_small_differences_survive_rounding():
    generator = torch.Generator().manual_seed(0)
    shared = torch.rand(1, 1, 40, 40, dtype=torch.float64, generator=generator).softmax(-1)
    nudges = 1e-7 * torch.randn(5, 1, 40, 40, dtype=torch.float64, generator=generator)
    np.testing.assert_allclose(
        pair_distances(100 * shared + nudges), distances_by_loops((100 * shared + nudges).numpy()), rtol=1e-6
    )


def test_a_common_shift_changes_nothing():
    generator = torch.Generator().manual_seed(0)
    patterns, shift = (torch.rand(n, 2, 6, 6, dtype=torch.float64, generator=generator) for n in (4, 1))
    np.testing.assert_allclose(pair_distances(patterns), pair_distances(patterns + shift), atol=1e-12)


def coverage(draw, truth, n, repeats=200):
    """Coverage of intervals over models and over pairs."""
    over_models = over_pairs = 0
    rng = np.random.default_rng(0)
    for repeat in range(repeats):
        distance = pair_distances(torch.from_numpy(draw(rng, n)))[0]
        _, low, high = bootstrap_pairs(distance, seed=repeat, resamples=500)
        over_models += low <= truth <= high
        pairs = distance[np.triu_indices(n, 1)]
        low, high = np.quantile(rng.choice(pairs, (500, len(pairs))).mean(1), [0.025, 0.975])
        over_pairs += low <= truth <= high
    return over_models / repeats, over_pairs / repeats


def test_coverage_of_intervals_over_models_and_over_pairs():
    over_models, over_pairs = coverage(flat_rows, flat_simplex_distance(CAUSAL), 15)
    band = 3 * (0.95 * 0.05 / 200) ** 0.5
    assert 0.95 - band - 0.02 <= over_models <= 0.95 + band  # percentile intervals are a little short
    assert over_pairs < 0.7


def test_bootstrap_equals_one_written_out():
    rng = np.random.default_rng(0)
    distance = pair_distances(torch.from_numpy(flat_rows(rng, 6)))
    mean, low, high = bootstrap_pairs(distance, seed=3, resamples=200)
    figures = []
    for counts in np.random.default_rng(3).multinomial(6, np.full(6, 1 / 6), size=200):
        drawn = np.repeat(np.arange(6), counts)
        pairs = [distance[0, i, j] for i, j in combinations(drawn, 2) if i != j]
        figures.append(np.mean(pairs))
    np.testing.assert_allclose([low[0], high[0]], np.quantile(figures, [0.025, 0.975]))
    np.testing.assert_allclose(mean[0], distance[0][np.triu_indices(6, 1)].mean())


def test_resamples_of_one_model_are_skipped_and_two_models_have_no_interval():
    three = 1.0 - np.eye(3)
    assert [float(part) for part in bootstrap_pairs(three, seed=0)] == [1, 1, 1]
    mean, low, high = bootstrap_pairs(1.0 - np.eye(2), seed=0)
    assert mean == 1
    assert np.isnan(low)
    assert np.isnan(high)
