"""Searches for the largest difference: gradient ascent on a ball, and exchanges of tokens."""

import pytest
import torch

from interp.theory.pruning import search
from interp.theory.pruning.search import N_STARTS, climb_on_ball, worst_on_unit_ball, worst_tokens


def test_ascent_finds_the_first_singular_vector_of_a_linear_map(generator):
    weight = torch.randn(6, 5, generator=generator, dtype=torch.float64)
    starts = torch.randn(16, 5, generator=generator, dtype=torch.float64)
    lengths = climb_on_ball(lambda x: (x @ weight.T).norm(dim=-1)[:, None], starts, radius=2.0, steps=60)
    norm = float(torch.linalg.matrix_norm(weight, 2))
    assert lengths.shape == (61, 1)
    assert lengths[0] < lengths.max() <= 2 * norm * (1 + 1e-9)
    assert float(lengths.max()) == pytest.approx(2 * norm, rel=1e-3)


def test_errors_of_the_unit_ball_are_those_of_the_starts_and_of_the_search(generator):
    weight = torch.randn(6, 5, generator=generator, dtype=torch.float64)
    worst = worst_on_unit_ball(lambda x: (x @ weight.T).norm(dim=-1), (5,), seed=0)
    assert worst.sampled < worst.largest <= float(torch.linalg.matrix_norm(weight, 2)) * (1 + 1e-6)
    assert worst.n == (search.STEPS + 1) * N_STARTS


def test_token_exchanges_never_reduce_the_difference(generator):
    price = torch.arange(7.0)
    tokens = torch.randint(7, (20, 4), generator=generator)
    worst = worst_tokens(lambda t: price[t].sum(1), tokens, d_vocab=7, generator=generator, steps=300, climbers=5)
    assert worst.sampled == float(price[tokens].sum(1).max())
    assert worst.largest == 24  # every token has the highest price
    assert worst.n == 20 + 300 * 5
    none = worst_tokens(lambda t: price[t].sum(1), tokens, d_vocab=7, generator=generator, steps=0)
    assert none.largest == none.sampled
