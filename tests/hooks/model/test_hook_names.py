"""The table of hook names and axes, against the activations of models."""

import pytest
import torch

from hooks import Encoder, EncoderConfig, Transformer, TransformerConfig, make_model
from hooks.model.hook_names import HEAD_AXIS, LAYER_POINTS, MODEL_POINTS, SETTERS

SIZES = {"d_vocab": 11, "d_model": 12, "n_heads": 3, "n_layers": 2, "n_ctx": 9, "d_head": 5, "d_mlp": 7}
LENGTHS = {"batch": 2, "pos": 6, "query": 6, "key": 6, "head": 3, "d_head": 5, "d_model": 12, "d_mlp": 7, "1": 1}
CONFIGS = (TransformerConfig(**SIZES), EncoderConfig(**SIZES, n_token_types=2))


def axes_of(name):
    return LAYER_POINTS[name.split(".", 2)[2]] if name.startswith("blocks.") else MODEL_POINTS[name]


@pytest.mark.parametrize("cfg", CONFIGS)
def test_every_activation_has_the_axes_of_its_name(cfg):
    model = make_model(cfg).eval()
    for setter in set(SETTERS.values()) - ({"set_use_hook_mlp_in"} if isinstance(model, Encoder) else set()):
        getattr(model, setter)(True)
    _, cache = model.run_with_cache(torch.arange(12).view(2, 6) % 11)
    assert set(cache) == set(model.hook_dict)
    for name, activation in cache.items():
        assert list(activation.shape) == [LENGTHS[axis] for axis in axes_of(name).split()], name


def test_no_name_of_the_table_is_unused():
    names = set()
    for cfg in CONFIGS:
        model = make_model(cfg)
        for setter in set(SETTERS.values()) if isinstance(model, Transformer) else ():
            getattr(model, setter)(True)
        names |= {name.split(".", 2)[2] if name.startswith("blocks.") else name for name in model.hook_dict}
    assert names == set(LAYER_POINTS) | set(MODEL_POINTS)


def test_axes_of_heads():
    assert (HEAD_AXIS["hook_z"], HEAD_AXIS["hook_q_input"], HEAD_AXIS["hook_pattern"]) == (2, 2, 1)
    assert "hook_resid_pre" not in HEAD_AXIS
