"""Closed forms of the random baselines against simulations."""

import numpy as np
import pytest
import torch
from planted import flat_rows

from interp.comparison import baselines
from interp.comparison.distances import pair_distances

CAUSAL = np.arange(1, 18)


@pytest.mark.parametrize("sizes", [CAUSAL, np.full(9, 9), np.array([0, 3, 0, 5])], ids=["causal", "square", "padded"])
def test_closed_forms_equal_simulations(sizes):
    def one_hot(rng, shape):
        weights = np.zeros(shape)
        starts = np.cumsum(sizes[sizes > 0]) - sizes[sizes > 0]
        chosen = starts + (rng.random((*shape[:-1], len(starts))) * sizes[sizes > 0]).astype(int)
        np.put_along_axis(weights, chosen, 1, -1)
        return weights

    flat = baselines.SIMULATED["flat simplex, simulated"]
    for draw, exact in ((flat, baselines.flat_simplex_distance), (one_hot, baselines.one_hot_distance)):
        mean, error = baselines.simulated_distance(draw, sizes, n=4000, generator=np.random.default_rng(0))
        assert 0 < error < 0.02 * mean
        assert abs(mean - exact(sizes)) < 4 * error


def test_formulas_of_the_paper():
    assert baselines.flat_simplex_distance(CAUSAL) == pytest.approx(sum(2 * (i - 1) / (i * (i + 1)) for i in CAUSAL))
    assert baselines.flat_simplex_distance(CAUSAL) == pytest.approx(3.10, abs=0.005)
    assert baselines.one_hot_distance(CAUSAL) == pytest.approx(sum(2 * (1 - 1 / i) for i in CAUSAL))


def test_a_simulation_in_parts(monkeypatch):
    flat = baselines.SIMULATED["flat simplex, simulated"]
    monkeypatch.setattr(baselines, "MOST_DRAWS", 700)
    mean, error = baselines.simulated_distance(flat, CAUSAL, n=2001, generator=np.random.default_rng(0))
    assert abs(mean - baselines.flat_simplex_distance(CAUSAL)) < 4 * error


def test_shuffled_keys_closed_form_equals_simulation():
    rng = np.random.default_rng(0)
    patterns = flat_rows(rng, 3, length=7) ** 3
    patterns /= patterns.sum(-1, keepdims=True)
    exact = baselines.shuffled_distance(torch.from_numpy(patterns), np.arange(1, 8))
    drawn = []
    for _ in range(1500):
        shuffled = patterns.copy()
        for model in shuffled[:, 0]:
            for query in range(7):
                rng.shuffle(model[query, : query + 1])
        drawn.append(pair_distances(torch.from_numpy(shuffled))[0].sum() / 6)
    assert abs(np.mean(drawn) - exact[0]) < 4 * np.std(drawn) / 1500**0.5
    assert exact[0] > 1.5 * baselines.flat_simplex_distance(np.arange(1, 8))  # there was something to find


def test_flat_patterns_are_at_the_distance_of_the_baseline():
    distance = pair_distances(torch.from_numpy(flat_rows(np.random.default_rng(0), 150)))[0]
    upper = distance[np.triu_indices(150, 1)]
    variation = 2 * flat_rows(np.random.default_rng(1), 4000).var(0).sum()
    assert upper.mean() == pytest.approx(baselines.flat_simplex_distance(CAUSAL), rel=0.02)
    assert variation == pytest.approx(baselines.flat_simplex_distance(CAUSAL), rel=0.01)


def test_standard_error_of_two_pairs_worked_by_hand():
    """Distances 2 and 0: mean 1, standard deviation 2^0.5 over n - 1, standard error 1."""

    def draw(rng, shape):
        weights = np.zeros(shape)
        weights[..., 0] = 1
        weights[1, 0] = [0, 1]  # one pair of two has different rows
        return weights

    mean, error = baselines.simulated_distance(draw, np.array([2]), n=2, generator=np.random.default_rng(0))
    assert (mean, error) == (pytest.approx(1), pytest.approx(1))
