"""Mimetic queries and keys: the best factors of what they are to multiply to, and drawn as said."""

import numpy as np
import pytest
import torch

from hooks.model.initialise import mimetic_query_key


def drawn(seed=0, d_model=20, n_heads=3, d_head=6, **weights):
    return mimetic_query_key(d_model, n_heads, d_head, generator=torch.Generator().manual_seed(seed), **weights)


def wanted(alpha, beta, seed=0, d_model=20, n_heads=3, d_head=6):
    """What W_Q W_K^T is to be near, head by head."""
    uniform = torch.rand(2, n_heads, d_head, d_model, generator=torch.Generator().manual_seed(seed)).double().numpy()
    z_1, z_2 = (2 * uniform - 1) / np.sqrt(d_model)
    return [np.sqrt(alpha) * z_1[h].T @ z_2[h] + np.sqrt(beta) * np.eye(d_model) for h in range(n_heads)]


@pytest.mark.parametrize(("alpha", "beta"), [(0.7, 0.7), (0.3, 2.0), (5.0, 0.01)])
def test_the_product_is_the_best_of_its_rank(alpha, beta):
    query, key = drawn(alpha=alpha, beta=beta)
    assert query.shape == key.shape == (3, 20, 6)
    for head, full in enumerate(wanted(alpha, beta)):
        product = (query[head] @ key[head].T).double().numpy()
        left, s, right = np.linalg.svd(full)
        np.testing.assert_allclose(product, (left[:, :6] * s[:6]) @ right[:6], atol=2e-5)
        error = np.linalg.norm(full - product)
        assert error == pytest.approx(np.sqrt((s[6:] ** 2).sum()), rel=1e-5)  # Eckart and Young 1936: none is nearer
        assert error > 0.1  # some of it is lost
        for factor in (query, key):  # both take the root of the singular values
            gram = (factor[head].T @ factor[head]).double().numpy()
            np.testing.assert_allclose(gram, np.diag(s[:6]), atol=2e-5)


def test_without_the_identity_it_is_the_product_of_queries_and_keys_as_torch_draws_them():
    query, key = drawn(d_model=60, n_heads=20, d_head=15, alpha=1.0, beta=0.0)
    product = query @ key.mT
    for head, full in enumerate(wanted(1.0, 0.0, d_model=60, n_heads=20, d_head=15)):
        np.testing.assert_allclose(product[head].numpy(), full, atol=1e-5)
    said = 15 / (3 * 60) ** 2
    # entries share rows of Z, so that heads are the independent units: five standard errors of their mean
    by_head = product.square().mean((1, 2))
    assert abs(by_head.mean() - said) < 5 * by_head.std() / 20**0.5
    assert by_head.std() < 0.1 * said


def test_without_noise_it_is_a_multiple_of_the_identity_as_far_as_it_goes():
    query, key = drawn(alpha=0.0, beta=4.0)
    product = query @ key.mT
    torch.testing.assert_close(product @ product, 2.0 * product, atol=1e-5, rtol=0)  # twice a projection
    torch.testing.assert_close(product.diagonal(dim1=1, dim2=2).sum(1), torch.full((3,), 12.0))
    full, same = drawn(alpha=0.0, beta=4.0, d_head=20)
    torch.testing.assert_close(full @ same.mT, 2.0 * torch.eye(20).expand(3, -1, -1), atol=1e-5, rtol=0)


def test_the_default_is_that_of_the_paper_and_makes_long_diagonals():
    query, key = drawn()
    named = drawn(alpha=0.7, beta=0.7)
    assert torch.equal(query, named[0])
    assert torch.equal(key, named[1])
    product = query @ key.mT
    on, off = product.diagonal(dim1=1, dim2=2), product[:, ~torch.eye(20, dtype=torch.bool)]
    assert (on.mean(1) > 2 * off.std(1)).all()


def test_the_generator_decides_and_nothing_else():
    state = torch.random.get_rng_state()
    one, again, other = drawn(), drawn(), drawn(seed=1)
    assert torch.equal(torch.random.get_rng_state(), state)
    for a, b, c in zip(one, again, other, strict=True):
        assert torch.equal(a, b)
        assert not torch.allclose(a, c, atol=1e-2)
    assert not torch.allclose(one[0][0], one[0][1], atol=1e-2)  # each head has noise of its own
    assert not torch.allclose(*one, atol=1e-2)  # and queries are not keys


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"alpha": -0.1}, "alpha is -0.1 and beta 0.7; neither may be negative"),
        ({"beta": -2.0}, "alpha is 0.7 and beta -2.0; neither may be negative"),
        ({"d_head": 21}, "d_head is 21, wider than d_model 20: no product has that rank. Lower d_head"),
    ],
)
def test_errors(settings, words):
    with pytest.raises(ValueError, match=words):
        drawn(**settings)
