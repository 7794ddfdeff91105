"""Attention whose maps are no `torch.nn.Linear`: Conv1D of `transformers` works, others are refused by name."""

import numpy as np
import pytest
import torch
from own_models import MAPS, PlainModel, plain_model, transformer
from torch import nn
from transformers.pytorch_utils import Conv1D

import hooks
import interp
from interp.tasks import Lego

TASK = Lego(n_vars=3, sentence_format="compact")
OURS = transformer(TASK)
NAMES = {"layers": "layers", "n_heads": 2, "d_vocab": TASK.d_vocab, "n_ctx": TASK.n_ctx}
FUSED = {"qkv": "attn.qkv", "o": "attn.o", "pattern": "attn.pattern"}
TOKENS = torch.randint(TASK.d_vocab, (3, 7), generator=torch.Generator().manual_seed(0))


class Adapted(Conv1D):
    """A subclass, as those that add weights of low rank."""


def as_conv1d(linear, cls=Conv1D):
    conv1d = cls(*linear.weight.shape)
    conv1d.weight, conv1d.bias = nn.Parameter(linear.weight.detach().T.contiguous()), linear.bias
    return conv1d


@pytest.mark.parametrize(
    ("maps", "names", "cls"),
    [("qkv o", FUSED, Conv1D), ("q k v o", MAPS, Conv1D), ("q k v o", "attn", Conv1D), ("o", MAPS, Adapted)],
)
@torch.no_grad()
def test_conv1d_has_the_weights_of_a_linear(maps, names, cls):
    module = plain_model(OURS, fused=names is FUSED)
    for layer in module.layers:
        for name in maps.split():
            setattr(layer.attn, name, as_conv1d(layer.attn.get_submodule(name), cls))
    model = hooks.from_module(module, attention=names, **NAMES)
    assert torch.equal(model(TOKENS), module(TOKENS))
    for name in ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O"):
        assert torch.equal(getattr(model.blocks[1].attn, name), getattr(OURS.blocks[1].attn, name)), name
    mine, theirs = (interp.ablate_heads(wrapped, TASK, n=32) for wrapped in (model, OURS))
    np.testing.assert_allclose(mine.loss_rise.value, theirs.loss_rise.value, atol=1e-5)


class OtherMap(nn.Module):
    """A map under a usual name that is no Linear."""

    def __init__(self, linear):
        super().__init__()
        self.matrix, self.bias = nn.Parameter(linear.weight.detach()), linear.bias

    def forward(self, x):
        return nn.functional.linear(x, self.matrix, self.bias)


class Conv1DOfAudio(nn.Conv1d):
    """A convolution of width one."""

    def forward(self, x):
        return super().forward(x.mT).mT


# A class with the name of that of `transformers` that is another map
OtherConv1D = type("Conv1D", (OtherMap,), {})


@pytest.mark.parametrize(
    "make", [OtherMap, OtherConv1D, lambda linear: Conv1DOfAudio(16, 16, 1)], ids=["map", "name", "convolution"]
)
def test_other_maps_are_refused_by_name(make, as_a_user):
    module = PlainModel(OURS.cfg)
    module.layers[1].attn.v = make(module.layers[1].attn.v)
    kind = type(module.layers[1].attn.v).__name__
    with pytest.raises(ValueError, match=rf"v of attention is 'attn\.v', in layers\.1 a .*{kind}, not a torch\.nn\.Li"):
        hooks.from_module(module, attention=MAPS, **NAMES)
    with pytest.raises(ValueError, match=r"PlainAttention without a usual name for each map\. Name them"):
        hooks.from_module(module, attention="attn", **NAMES)
