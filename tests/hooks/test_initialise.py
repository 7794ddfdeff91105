"""Initial weights: what is drawn, how widely, and what stays zero or one."""

import pytest

from hooks import Transformer, TransformerConfig


def within(weight, std):
    """Five standard errors of a normal sample's standard deviation: false alarm below one in a million."""
    return abs(weight.std() / std - 1) < 5 / (2 * weight.numel()) ** 0.5


@pytest.mark.parametrize(
    ("init", "embedding", "matrix", "into_stream"),
    [
        ("fan_in", 0.5, lambda fan_in: fan_in**-0.5, lambda fan_in: fan_in**-0.5),
        ("normal", 0.02, lambda fan_in: 0.02, lambda fan_in: 0.02),
        ("gpt2", 0.02, lambda fan_in: 0.02, lambda fan_in: 0.02 / 8**0.5),
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


@pytest.mark.parametrize("init", ["fan_in", "normal", "gpt2"])
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
