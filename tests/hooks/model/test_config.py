"""Transformer configs: validation, derived fields, JSON round trips."""

import json
from dataclasses import FrozenInstanceError
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hooks import HeadPattern, TransformerConfig
from hooks.model.config import Activation, AttentionDirection, BlockName, Initialisation, Positions

SMALL = {"d_vocab": 7, "d_model": 12, "n_heads": 3}
LEARNED, UNIFORM = HeadPattern(), HeadPattern(kind="uniform")


def one_of(choices):
    return st.sampled_from(get_args(choices))


SEVERAL = (
    HeadPattern(kind="association"),
    HeadPattern(kind="broadcast", token=6),
    HeadPattern(kind="local", kernel=(0.1, 0.2, 0.7)),
)
ROWS = st.sampled_from([(), (SEVERAL,), ((LEARNED, UNIFORM, LEARNED), (LEARNED,) * 3, SEVERAL, (UNIFORM,) * 3)])


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    block=one_of(BlockName),
    attention=one_of(AttentionDirection),
    positions=one_of(Positions),
    activation=one_of(Activation),
    init=one_of(Initialisation),
    tied=st.booleans(),
    qk_identity=st.booleans(),
    d_mlp=st.sampled_from([None, 0, 5]),
    mlp_bias=st.booleans(),
    attn_scale=st.floats(0, 10),
    layer_norm_eps=st.floats(1e-12, 1),
    head_patterns=ROWS,
)
def test_json_round_trip(**values):
    cfg = TransformerConfig(**SMALL, n_layers=4, **values)
    assert TransformerConfig.from_json(cfg.to_json()) == cfg
    assert TransformerConfig.from_dict(cfg.to_dict()) == cfg
    assert json.loads(cfg.to_json())["block"] == values["block"]


def test_sizes_left_out_follow_from_the_others():
    cfg = TransformerConfig(**SMALL)
    assert (cfg.d_vocab_out, cfg.d_head, cfg.d_mlp, cfg.attn_scale) == (7, 4, 48, 2.0)
    given = TransformerConfig(**SMALL, d_vocab_out=2, d_head=9, d_mlp=5, attn_scale=1.5)
    assert (given.d_vocab_out, given.d_head, given.d_mlp, given.attn_scale) == (2, 9, 5, 1.5)
    assert TransformerConfig(**SMALL, d_mlp=0).attn_only
    assert not cfg.attn_only


def test_rows_of_head_patterns_may_be_lists(as_a_user):
    as_lists = TransformerConfig(**SMALL, head_patterns=[[UNIFORM, LEARNED, LEARNED]])
    assert as_lists == TransformerConfig(**SMALL, head_patterns=((UNIFORM, LEARNED, LEARNED),))


def test_config_is_a_value():
    cfg = TransformerConfig(**SMALL)
    assert cfg == TransformerConfig(**SMALL)
    assert cfg != TransformerConfig(**SMALL, tied=True)
    with pytest.raises(FrozenInstanceError):
        cfg.n_layers = 3


def test_another_depth_is_the_only_difference():
    cfg = TransformerConfig(**SMALL, tied=True, d_head=5)
    assert cfg.with_depth(7) == TransformerConfig(**SMALL, tied=True, d_head=5, n_layers=7)


def test_rows_of_head_patterns():
    one, each = (UNIFORM, LEARNED, LEARNED), (LEARNED, LEARNED, UNIFORM)
    for_all = TransformerConfig(**SMALL, head_patterns=(one,))
    assert [for_all.patterns_of(layer) for layer in range(2)] == [one, one]
    own = TransformerConfig(**SMALL, head_patterns=(one, each))
    assert [own.patterns_of(layer) for layer in range(2)] == [one, each]
    assert TransformerConfig(**SMALL).patterns_of(1) == ()
    assert TransformerConfig(**SMALL, head_patterns=((LEARNED,) * 3,)).patterns_of(1) == ()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"n_heads": 5}, r"n_heads is 5, which does not divide d_model 12; choose another .* or set d_head"),
        ({"d_vocab": 0}, "d_vocab is 0; it must be at least 1"),
        ({"d_model": 0}, "d_model is 0; it must be at least 1"),
        ({"n_heads": 0}, "n_heads is 0; it must be at least 1"),
        ({"n_layers": 0}, "n_layers is 0; it must be at least 1"),
        ({"n_ctx": -1}, "n_ctx is -1; it must be at least 1"),
        ({"d_head": -1}, "it must not be negative"),
        ({"d_mlp": -1}, "it must not be negative"),
        ({"d_vocab_out": -1}, "it must not be negative"),
        ({"attn_scale": -1.0}, "it must not be negative"),
        ({"block": "sandwich"}, "block is 'sandwich'; choose one of pre_ln, post_ln, dyck"),
        ({"attention": "both"}, "attention is 'both'; choose one of causal, bidirectional"),
        ({"positions": "rotary"}, "positions is 'rotary'; choose one of learned, linear, sinusoidal, none"),
        ({"activation": "silu"}, "activation is 'silu'; choose one of gelu, gelu_tanh, relu"),
        ({"init": "xavier"}, "init is 'xavier'; choose one of fan_in, normal, gpt2"),
        ({"head_patterns": ((LEARNED,) * 3,) * 3}, "head_patterns has 3 rows; give one row for all layers or 2"),
        ({"head_patterns": ((LEARNED,) * 2,)}, "head_patterns row 0 has 2 entries; n_heads is 3"),
        ({"head_patterns": ((LEARNED,) * 3, (UNIFORM,) * 4)}, "head_patterns row 1 has 4 entries; n_heads is 3"),
        (
            {"head_patterns": ((HeadPattern(kind="broadcast", token=7), LEARNED, LEARNED),)},
            "head_patterns broadcasts token 7; d_vocab is 7",
        ),
    ],
    ids=str,
)
def test_settings_that_make_no_model_are_refused(values, words, as_a_user):
    with pytest.raises(ValueError, match=words):
        TransformerConfig(**{**SMALL, **values})


def test_unknown_fields_and_newer_versions_are_refused():
    values = TransformerConfig(**SMALL).to_dict()
    with pytest.raises(ValueError, match=r"unknown fields 'rotary', 'd_hed'; was it written by a newer unmyopic"):
        TransformerConfig.from_dict({**values, "rotary": True, "d_hed": 3})
    with pytest.raises(ValueError, match=r"the config has version 2; this unmyopic reads version 1. Upgrade unmyopic"):
        TransformerConfig.from_dict({**values, "version": 2})
    with pytest.raises(TypeError, match="rotary"):
        TransformerConfig(**SMALL, rotary=True)


def test_reading_a_dict_leaves_it_as_it_was():
    values = TransformerConfig(**SMALL, head_patterns=((UNIFORM,) * 3,)).to_dict()
    before = json.dumps(values)
    TransformerConfig.from_dict(values)
    assert json.dumps(values) == before
