"""Searches for the largest difference: gradient ascent on a ball, and exchanges of tokens."""

import pytest
import torch

from interp.theory.pruning.search import worst_on_ball, worst_tokens


def test_ascent_finds_the_first_singular_vector_of_a_linear_map(generator):
    weight = torch.randn(6, 5, generator=generator, dtype=torch.float64)
    starts = torch.randn(16, 5, generator=generator, dtype=torch.float64)
    worst = worst_on_ball(lambda x: (x @ weight.T).norm(dim=-1), starts, radius=2.0, steps=60)
    norm = float(torch.linalg.matrix_norm(weight, 2))
    assert worst.sampled < worst.found <= 2 * norm * (1 + 1e-9)
    assert worst.found == pytest.approx(2 * norm, rel=1e-3)
    assert worst.n == 61 * 16


def test_token_exchanges_never_reduce_the_difference(generator):
    price = torch.arange(7.0)
    tokens = torch.randint(7, (20, 4), generator=generator)
    found = worst_tokens(lambda t: price[t].sum(1), tokens, d_vocab=7, generator=generator, steps=300, climbers=5)
    assert found.sampled == float(price[tokens].sum(1).max())
    assert found.found == 24  # every token has the highest price
    assert found.n == 20 + 300 * 5
    none = worst_tokens(lambda t: price[t].sum(1), tokens, d_vocab=7, generator=generator, steps=0)
    assert none.found == none.sampled
