"""Presets: sizes, wiring, initial weights."""

import pytest

from hooks import Transformer, TransformerConfig, verify
from hooks.model.hardcoded.head_patterns import HeadPattern
from hooks.model.presets import albert, bert, dyck_uniform, gpt, lego, template

TINY = {"d_vocab": 9, "d_model": 16, "n_heads": 2, "n_layers": 2, "n_ctx": 8}


def fields(cfg, *names):
    return tuple(getattr(cfg, name) for name in names)


@pytest.mark.parametrize("preset", [bert, albert, gpt, template, lego])
def test_preset_takes_sizes_and_makes_a_model_that_verifies(preset):
    cfg = preset(**TINY)
    assert isinstance(cfg, TransformerConfig)
    assert fields(cfg, *TINY) == tuple(TINY.values())
    assert verify(Transformer(cfg)).ok


def test_wiring_of_each():
    wiring = ("block", "attention", "positions", "tied", "activation")
    assert fields(bert(d_vocab=9), *wiring) == ("post_ln", "bidirectional", "learned", False, "gelu")
    assert fields(albert(d_vocab=9), *wiring) == ("post_ln", "bidirectional", "learned", True, "gelu")
    assert fields(gpt(d_vocab=9), *wiring) == ("pre_ln", "causal", "learned", False, "gelu_tanh")
    assert fields(template(d_vocab=9), *wiring) == ("pre_ln", "bidirectional", "learned", False, "gelu")
    assert fields(lego(d_vocab=9), *wiring) == ("pre_ln", "bidirectional", "learned", False, "gelu")


def test_sizes_of_each():
    sizes = ("d_model", "n_heads", "d_head", "d_mlp", "n_layers")
    for preset in (bert, albert, gpt):
        assert fields(preset(d_vocab=9), *sizes) == (768, 12, 64, 3072, 12)
    assert fields(template(d_vocab=9), *sizes) == (128, 16, 64, 256, 2)
    assert not template(d_vocab=9).attn_bias
    assert (bert(d_vocab=9).n_ctx, gpt(d_vocab=9).n_ctx) == (512, 1024)


def test_settings_override_the_preset():
    cfg = bert(**TINY, block="pre_ln", init="fan_in", positions="sinusoidal")
    assert fields(cfg, "block", "init", "positions") == ("pre_ln", "fan_in", "sinusoidal")
    assert not albert(**TINY, tied=False).tied
    learned_heads = ((HeadPattern(), HeadPattern()),)
    assert dyck_uniform(**TINY, head_patterns=learned_heads).head_patterns == learned_heads
    assert dyck_uniform(**TINY).head_patterns == ((HeadPattern(kind="uniform"),) * 2,)


@pytest.mark.parametrize("preset", [bert, albert])
def test_parameters_of_the_encoder_are_berts(preset):
    """BERT base: 12 x (4 d^2 + 4 d attention, 8 d^2 + 5 d MLP, 4 d norms) = 85,054,464 with d = 768."""
    assert preset(d_vocab=2).n_layers == 12
    model = Transformer(preset(d_vocab=2, n_layers=1))
    d = 768
    assert 12 * (4 * (d * d + d) + (2 * 4 * d * d + 5 * d) + 2 * 2 * d) == 85_054_464
    assert sum(p.numel() for p in model.weights.parameters()) == 85_054_464 / 12
    assert model.positions.weight.numel() == 512 * d
