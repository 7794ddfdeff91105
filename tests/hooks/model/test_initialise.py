"""Initial weights: what is drawn, how widely, and what stays zero or one."""

from dataclasses import replace

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
def test_embeddings_spread_as_told(init):
    cfg = TransformerConfig(d_vocab=200, d_model=64, n_heads=4, n_layers=1, init=init, embedding_std=0.3)
    told, untold = Transformer(cfg), Transformer(replace(cfg, embedding_std=0.0))
    for name, parameter in told.named_parameters():
        if name in ("embed.weight", "positions.weight"):
            assert within(parameter, 0.3), name
        else:
            assert parameter.equal(dict(untold.named_parameters())[name]), name


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


def test_no_two_matrices_are_drawn_alike():
    weights = Transformer(TransformerConfig(d_vocab=9, d_model=8, n_heads=2)).weights
    corners = {p[0, 0].item() for p in weights.parameters() if p.ndim == 2}
    assert len(corners) == sum(p.ndim == 2 for p in weights.parameters())
