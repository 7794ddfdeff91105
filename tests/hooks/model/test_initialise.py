"""Initial weights: distributions, biases and gains, mimetic queries and keys."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from hooks import HeadPattern, Transformer, TransformerConfig
from hooks.model.initialise import mimetic_query_key


def within(weight, std):
    """Five standard errors of a normal sample's standard deviation: false alarm below one in a million."""
    return abs(weight.std() / std - 1) < 5 / (2 * weight.numel()) ** 0.5


@pytest.mark.parametrize(
    ("init", "embedding", "matrix", "into_stream"),
    [
        ("fan_in", 0.5, lambda fan_in: fan_in**-0.5, lambda fan_in: fan_in**-0.5),
        ("normal", 0.02, lambda fan_in: 0.02, lambda fan_in: 0.02),
        ("gpt2", 0.02, lambda fan_in: 0.02, lambda fan_in: 0.02 / 8**0.5),
        ("template", 1.0, lambda fan_in: (3 * fan_in) ** -0.5, lambda fan_in: (3 * fan_in) ** -0.5),
    ],
)
def test_spread_of_each_matrix(init, embedding, matrix, into_stream):
    cfg = TransformerConfig(d_vocab=200, d_model=64, n_heads=4, n_layers=4, init=init)
    model = Transformer(cfg)
    assert within(model.embed.weight, embedding)
    assert within(model.positions.weight, embedding)
    assert within(model.unembed.weight, matrix(64))
    for block in model.weights:
        for name in "qkv":
            assert within(getattr(block.attention, name).weight, matrix(64))
        assert within(block.attention.o.weight, into_stream(64))
        assert within(block.mlp.w_in.weight, matrix(64))
        assert within(block.mlp.w_out.weight, into_stream(256))


def test_template_matrices_are_uniform():
    model = Transformer(TransformerConfig(d_vocab=200, d_model=64, n_heads=4, init="template"))
    for name, weight in model.named_parameters():
        if weight.ndim == 2 and name not in ("embed.weight", "positions.weight"):
            bound = weight.shape[1] ** -0.5
            assert 0.99 * bound < weight.max() <= bound, name
            assert -bound <= weight.min() < -0.99 * bound, name
    assert model.embed.weight.abs().max() > 3  # normal: uniform with that spread ends at sqrt(3)


@pytest.mark.parametrize("init", ["fan_in", "normal", "gpt2", "template", "mimetic"])
def test_embedding_std_is_that_of_the_config(init):
    cfg = TransformerConfig(d_vocab=200, d_model=64, n_heads=4, n_layers=1, init=init, embedding_std=0.3)
    told, untold = Transformer(cfg), Transformer(replace(cfg, embedding_std=0.0))
    for name, parameter in told.named_parameters():
        if name in ("embed.weight", "positions.weight"):
            assert within(parameter, 0.3), name
        else:
            assert parameter.equal(dict(untold.named_parameters())[name]), name


@pytest.mark.parametrize(
    ("std", "dtype"), [(1e39, torch.float32), (1e308, torch.float32), (3e38, torch.float32), (1e5, torch.float16)]
)
@pytest.mark.parametrize("init", ["fan_in", "uniform"])
def test_embeddings_that_are_not_finite_are_refused(std, dtype, init):
    cfg = TransformerConfig(d_vocab=200, d_model=64, n_heads=4, n_layers=1, init=init, embedding_std=std)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with pytest.raises(ValueError, match=r"embedding_std is .*: embed.weight has a weight that is not finite in"):
            Transformer(cfg, seed=0)
    finally:
        torch.set_default_dtype(before)


def test_mimetic_queries_and_keys_are_those_factors_and_the_rest_is_as_in_template():
    cfg = TransformerConfig(d_vocab=9, d_model=12, n_heads=3, d_head=2, n_layers=2, init="mimetic")
    mimetic, plain = Transformer(cfg, seed=5), Transformer(replace(cfg, init="template"), seed=5)
    drawn = torch.Generator().manual_seed(5)
    for parameter in plain.parameters():  # queries and keys come after all that `template` draws
        if parameter.ndim == 2:
            embedding = parameter is plain.embed.weight or parameter is plain.positions.weight
            (torch.randn if embedding else torch.rand)(parameter.shape, generator=drawn)
    for layer, other in zip(mimetic.weights, plain.weights, strict=True):
        query, key = mimetic_query_key(12, 3, 2, generator=drawn)
        for head in range(3):
            rows = slice(2 * head, 2 * head + 2)
            assert layer.attention.q.weight[rows].equal(query[head].T)
            assert layer.attention.k.weight[rows].equal(key[head].T)
        for name in ("q", "k"):
            assert not getattr(layer.attention, name).weight.equal(getattr(other.attention, name).weight)
    for name, parameter in mimetic.named_parameters():
        if not name.endswith(("attention.q.weight", "attention.k.weight")):
            assert parameter.equal(dict(plain.named_parameters())[name]), name


def test_mimetic_leaves_hard_coded_heads_without_queries():
    patterns = ((HeadPattern(kind="uniform"),) * 2, (HeadPattern(),) * 2)
    cfg = TransformerConfig(d_vocab=9, d_model=8, n_heads=2, init="mimetic", head_patterns=patterns)
    model = Transformer(cfg)
    assert [hasattr(block.attention, "q") for block in model.weights] == [False, True]


@pytest.mark.parametrize("init", ["fan_in", "normal", "gpt2", "template", "mimetic"])
def test_biases_start_at_zero_and_gains_at_one(init):
    cfg = TransformerConfig(d_vocab=9, d_model=8, n_heads=2, init=init, qk_identity=True, vo_identity=True)
    for name, parameter in Transformer(cfg).named_parameters():
        if parameter.ndim == 1:
            gain = "norm" in name and name.endswith("weight")
            assert (parameter == (1 if gain else 0)).all(), name


def test_no_two_matrices_are_drawn_equal():
    weights = Transformer(TransformerConfig(d_vocab=9, d_model=8, n_heads=2)).weights
    corners = {p[0, 0].item() for p in weights.parameters() if p.ndim == 2}
    assert len(corners) == sum(p.ndim == 2 for p in weights.parameters())


def mimetic(seed=0, d_model=20, n_heads=3, d_head=6, **weights):
    return mimetic_query_key(d_model, n_heads, d_head, generator=torch.Generator().manual_seed(seed), **weights)


def wanted(alpha, beta, seed=0, d_model=20, n_heads=3, d_head=6):
    """What W_Q W_K^T is to be near, head by head."""
    uniform = torch.rand(2, n_heads, d_head, d_model, generator=torch.Generator().manual_seed(seed)).double().numpy()
    z_1, z_2 = (2 * uniform - 1) / np.sqrt(d_model)
    return [np.sqrt(alpha) * z_1[h].T @ z_2[h] + np.sqrt(beta) * np.eye(d_model) for h in range(n_heads)]


@pytest.mark.parametrize(("alpha", "beta"), [(0.7, 0.7), (0.3, 2.0), (5.0, 0.01)])
def test_the_product_is_the_best_of_its_rank(alpha, beta):
    query, key = mimetic(alpha=alpha, beta=beta)
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
    query, key = mimetic(d_model=60, n_heads=20, d_head=15, alpha=1.0, beta=0.0)
    product = query @ key.mT
    for head, full in enumerate(wanted(1.0, 0.0, d_model=60, n_heads=20, d_head=15)):
        np.testing.assert_allclose(product[head].numpy(), full, atol=1e-5)
    said = 15 / (3 * 60) ** 2
    # entries share rows of Z, so that heads are the independent units: five standard errors of their mean
    by_head = product.square().mean((1, 2))
    assert abs(by_head.mean() - said) < 5 * by_head.std() / 20**0.5
    assert by_head.std() < 0.1 * said


def test_without_noise_it_is_a_multiple_of_the_identity_as_far_as_it_goes():
    query, key = mimetic(alpha=0.0, beta=4.0)
    product = query @ key.mT
    torch.testing.assert_close(product @ product, 2.0 * product, atol=1e-5, rtol=0)  # twice a projection
    torch.testing.assert_close(product.diagonal(dim1=1, dim2=2).sum(1), torch.full((3,), 12.0))
    full, same = mimetic(alpha=0.0, beta=4.0, d_head=20)
    torch.testing.assert_close(full @ same.mT, 2.0 * torch.eye(20).expand(3, -1, -1), atol=1e-5, rtol=0)


def test_the_default_is_that_of_the_paper_and_makes_long_diagonals():
    query, key = mimetic()
    named = mimetic(alpha=0.7, beta=0.7)
    assert torch.equal(query, named[0])
    assert torch.equal(key, named[1])
    product = query @ key.mT
    on, off = product.diagonal(dim1=1, dim2=2), product[:, ~torch.eye(20, dtype=torch.bool)]
    assert (on.mean(1) > 2 * off.std(1)).all()


def test_the_generator_decides_and_nothing_else():
    state = torch.random.get_rng_state()
    one, again, other = mimetic(), mimetic(), mimetic(seed=1)
    assert torch.equal(torch.random.get_rng_state(), state)
    for a, b, c in zip(one, again, other, strict=True):
        assert torch.equal(a, b)
        assert not torch.allclose(a, c, atol=1e-2)
    assert not torch.allclose(one[0][0], one[0][1], atol=1e-2)  # each head has separate noise
    assert not torch.allclose(*one, atol=1e-2)  # and queries are not keys


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"alpha": -0.1}, "alpha is -0.1 and beta 0.7; neither may be negative"),
        ({"beta": -2.0}, "alpha is 0.7 and beta -2.0; neither may be negative"),
        ({"d_head": 21}, "d_head is 21, wider than d_model 20: no product has that rank. Lower d_head"),
    ],
)
def test_mimetic_arguments_that_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        mimetic(**settings)


def test_weights_on_the_meta_device_are_not_drawn(monkeypatch):
    """A checkpoint's names and shapes are checked there; a draw would import torch's compiler."""
    cfg = TransformerConfig(d_vocab=5, d_model=8, n_heads=2, init="mimetic")
    monkeypatch.setattr("hooks.model.initialise._draw", None)
    monkeypatch.setattr("hooks.model.initialise.mimetic_query_key", None)
    with torch.device("meta"):
        model = Transformer(cfg, seed=0)
    assert {tuple(weight.shape) for weight in model.parameters()} >= {(5, 8), (8, 8), (32, 8), (8,)}
    assert all(weight.is_meta for weight in model.parameters())
