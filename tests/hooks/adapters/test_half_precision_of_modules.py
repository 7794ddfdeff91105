"""Wrapped modules in half precision, whose softmax is in float32 as in most families of `transformers`."""

import pytest
import torch
from own_models import MAPS, PlainAttention, PlainLayer, PlainModel, transformer
from torch import nn

import hooks
import interp
from interp.tasks import Lego

TASK = Lego(n_vars=3, sentence_format="compact")
CFG = transformer(TASK).cfg
WITHOUT_PATTERN = {name: path for name, path in MAPS.items() if name != "pattern"}
NAMES = {"layers": "layers", "n_heads": 2, "d_vocab": TASK.d_vocab, "n_ctx": TASK.n_ctx}
TOKENS = torch.randint(TASK.d_vocab, (3, 7), generator=torch.Generator().manual_seed(0))


class Upcast(PlainAttention):
    """Attention that computes its pattern in float32."""

    kind = "softmax"

    def forward(self, x, hidden):
        q, k, v = (self.get_submodule(name)(x).unflatten(-1, (2, -1)).transpose(1, 2) for name in "qkv")
        scores = (q @ k.mT / 8**0.5).masked_fill(hidden[:, None], torch.finfo(q.dtype).min)
        pattern = self.softmax(scores).to(torch.float32 if self.kind == "values too" else q.dtype)
        return self.o((pattern @ v.to(pattern.dtype)).transpose(1, 2).flatten(2).to(x.dtype))

    def softmax(self, scores):
        if self.kind == "softmax":
            return scores.softmax(-1, dtype=torch.float32)
        if self.kind == "named module":  # before the cast
            return self.pattern(scores.softmax(-1, dtype=torch.float32))
        return torch.softmax(scores.float(), -1)


def upcast_model(kind, dtype):
    torch.manual_seed(0)
    module = PlainModel(CFG).to(dtype).eval()
    for layer in module.layers:
        layer.attn.__class__ = Upcast
        layer.attn.kind = kind
    return module


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ["softmax", "scores", "values too", "named module"])
@torch.no_grad()
def test_pattern_in_float32(kind, dtype):
    module = upcast_model(kind, dtype)
    model = hooks.from_module(module, attention=MAPS if kind == "named module" else WITHOUT_PATTERN, **NAMES)
    logits, cache = model.run_with_cache(TOKENS)
    assert torch.equal(logits, module(TOKENS))  # hooks that edit nothing round nothing
    assert cache["blocks.0.attn.hook_pattern"].dtype == dtype
    without_head = model.run_with_hooks(TOKENS, fwd_hooks=[("blocks.0.attn.hook_pattern", zero_second_head)])
    module.layers[0].attn.o.weight[:, 8:] = 0
    torch.testing.assert_close(without_head, module(TOKENS))
    assert not torch.equal(without_head, logits)
    assert interp.ablate_heads(model, TASK, n=16, method="uniform").n == 16


def zero_second_head(pattern, hook):
    pattern[:, 1] = 0
    return pattern


def test_gradients_pass_the_pattern():
    module = upcast_model("values too", torch.bfloat16)
    model = hooks.from_module(module, attention=WITHOUT_PATTERN, **NAMES)
    gradients = []
    with model.hooks(bwd_hooks=[("blocks.0.attn.hook_pattern", lambda grad, hook: gradients.append(grad))]):
        model(TOKENS).sum().backward()
    assert gradients[0].abs().max() > 0


class Halved(PlainLayer):
    """A layer that adds half of what attention gives."""

    def forward(self, x, hidden):
        x = x + 0.5 * self.attn(self.norm_1(x), hidden)
        return x + self.w_out(nn.functional.gelu(self.w_in(self.norm_2(x))))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_edit_with_half_its_effect_is_found_in_every_dtype(dtype):
    module = upcast_model("softmax", dtype)
    for layer in module.layers:
        layer.__class__ = Halved
    cell = hooks.from_module(module, attention=WITHOUT_PATTERN, **NAMES).capabilities.cell
    assert not cell("blocks.0.hook_attn_out", "edit").ok
