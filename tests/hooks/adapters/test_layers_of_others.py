"""Layers as others write them: what they return, whether they run, and what attention and MLP of a layer add."""

from collections import namedtuple
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from own_models import MAPS, PlainLayer, PlainModel, hidden_keys, transformer
from torch import nn
from transformers.modeling_outputs import BaseModelOutput

import hooks
import interp
from interp.core.randomness import derived_generator
from interp.tasks import Lego
from interp.tasks.base import logits_at_targets
from interp.tasks.splits import sample_split

TASK = Lego(n_vars=3, sentence_format="compact")
CFG = transformer(TASK).cfg
NAMES = {"layers": "layers", "attention": MAPS, "n_heads": 2, "d_vocab": TASK.d_vocab, "n_ctx": TASK.n_ctx}
TOKENS = torch.randint(TASK.d_vocab, (3, 7), generator=torch.Generator().manual_seed(0))


def model_of(layer_class):
    """A plain model with layers of this class."""
    torch.manual_seed(0)
    module = PlainModel(CFG)
    module.layers = nn.ModuleList(layer_class(CFG, fused=False) for _ in range(2))
    for parameter in module.parameters():
        parameter.data += 0.2 * torch.randn(parameter.shape)
    return module.eval()


# What a layer returns

Named = namedtuple("Named", ["weights", "stream"])


@dataclass(frozen=True)
class Returned:
    """The output of a layer."""

    weights: None
    stream: torch.Tensor


CONTAINERS = {
    "dict": (lambda x: {"weights": None, "stream": x}, lambda output: output["stream"]),
    "BaseModelOutput": (lambda x: BaseModelOutput(last_hidden_state=x), lambda output: output.last_hidden_state),
    "None first": (lambda x: (None, x), lambda output: output[1]),
    "named tuple": (lambda x: Named(None, x), lambda output: output.stream),
    "list": (lambda x: [x, None], lambda output: output[0]),
    "dataclass": (lambda x: Returned(None, x), lambda output: output.stream),
    "weights first": (lambda x: (x[..., :1], x), lambda output: output[1]),
    "object": (lambda x: SimpleNamespace(stream=x), lambda output: output.stream),
    "nothing of its shape": (lambda x: {"stream": x.mT}, lambda output: output["stream"].mT),
}


def model_returning(name):
    pack, unpack = CONTAINERS[name]

    class Packed(PlainLayer):
        def forward(self, x, hidden):
            return pack(super().forward(x, hidden))

    class Unpacking(PlainModel):
        def forward(self, tokens, attention_mask=None):
            x = self.embed(tokens) + self.positions(torch.arange(tokens.shape[1]))
            for layer in self.layers:
                x = unpack(layer(x, hidden_keys(CFG.attention, attention_mask, tokens.shape[1])))
            return self.unembed(self.norm(x))

    module = model_of(Packed)
    module.__class__ = Unpacking
    return module


@pytest.mark.parametrize("name", list(CONTAINERS)[:-2])
@torch.no_grad()
def test_the_stream_is_found_in_what_a_layer_returns(name):
    module, plain = model_returning(name), model_of(PlainLayer)
    model, reference = (hooks.from_module(wrapped, **NAMES) for wrapped in (module, plain))
    assert torch.equal(model(TOKENS), plain(TOKENS))
    assert model.capabilities.rows() == reference.capabilities.rows()
    edit = [("blocks.0.hook_resid_post", lambda x, hook: x.roll(1, 0)), ("blocks.1.hook_resid_post", double)]
    assert torch.equal(model.run_with_hooks(TOKENS, fwd_hooks=edit), reference.run_with_hooks(TOKENS, fwd_hooks=edit))


def double(x, hook):
    return 2 * x


@pytest.mark.parametrize(
    ("name", "words"),
    [("object", r"a SimpleNamespace \(nothing\); needed is"), ("nothing of its shape", r"a dict \(stream: Tensor\)")],
)
def test_other_outputs_are_refused_by_name(name, words):
    module = model_returning(name)
    with pytest.raises(ValueError, match=rf"blocks\.0\.hook_resid_post: the layer returns {words}"):
        hooks.from_module(module, **NAMES)


# Whether it runs


class Runs(PlainModel):
    """Runs these layers, in this order."""

    order = (0, 1)

    def forward(self, tokens, attention_mask=None):
        x = self.embed(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for index in self.order:
            x = self.layers[index](x, hidden_keys(CFG.attention, attention_mask, tokens.shape[1]))
        return self.unembed(self.norm(x))


@pytest.mark.parametrize(
    ("order", "words"),
    [
        ((0,), "layer 1 does not run"),
        ((1,), "layer 0 does not run"),
        ((0, 1, 0, 1), "layer 0 runs 2 times"),
        ((0, 1, 1), "layer 1 runs 2 times"),
    ],
)
def test_layers_that_do_not_run_once_are_refused(order, words):
    module = model_of(PlainLayer)
    module.__class__, module.order = Runs, order
    with pytest.raises(ValueError, match=rf"layers is 'layers', whose {words} in a forward pass of the Runs; each mus"):
        hooks.from_module(module, **NAMES)


class Functional(PlainLayer):
    """Uses the weights of W_O without calling it."""

    def forward(self, x, hidden):
        attn_out = nn.functional.linear(self.attn.v(self.norm_1(x)), self.attn.o.weight)
        return x + attn_out


def test_an_attention_that_does_not_run_leaves_the_verbs_of_the_stream():
    model = hooks.from_module(model_of(Functional), **NAMES)
    obstacles = interp.supported_verbs(model).obstacles
    assert not obstacles["logit_lens"]
    assert "blocks.0.attn.hook_z, which is missing (it never fires)" in obstacles["ablate_heads"]


# What attention and MLP add


class Scale(nn.Module):
    """A learned scale, as LayerScale."""

    def __init__(self, cfg):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(cfg.d_model))

    def forward(self, x):
        return self.gain * x


class Sandwich(PlainLayer):
    """x + N(Attn(N x)), then the same for the MLP, where N after attention is a norm or a scale."""

    after = nn.LayerNorm

    def __init__(self, cfg, fused):
        super().__init__(cfg, fused)
        width = cfg.d_model if self.after is nn.LayerNorm else cfg
        self.after_attn, self.after_mlp = self.after(width), self.after(width)

    def forward(self, x, hidden):
        x = x + self.after_attn(self.attn(self.norm_1(x), hidden))
        return x + self.after_mlp(self.w_out(nn.functional.gelu(self.w_in(self.norm_2(x)))))


class Scaled(Sandwich):
    after = Scale


class ScaledByParameter(Scaled):
    """LayerScale whose products no module gives."""

    def forward(self, x, hidden):
        x = x + self.after_attn.gain * self.attn(self.norm_1(x), hidden)
        return x + self.after_mlp.gain * self.w_out(nn.functional.gelu(self.w_in(self.norm_2(x))))


class ParallelSandwich(Sandwich):
    """The MLP, with its norm, runs between attention and the norm of attention."""

    def forward(self, x, hidden):
        attn_out = self.attn(self.norm_1(x), hidden)
        mlp_out = self.after_mlp(self.w_out(nn.functional.gelu(self.w_in(self.norm_2(x)))))
        return x + mlp_out + self.after_attn(attn_out)


class OneDropout(PlainLayer):
    """One Dropout after both attention and MLP, which no hook can tell apart."""

    def __init__(self, cfg, fused):
        super().__init__(cfg, fused)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x, hidden):
        x = x + self.dropout(self.attn(self.norm_1(x), hidden))
        return x + self.dropout(self.w_out(nn.functional.gelu(self.w_in(self.norm_2(x)))))


LAYERS = {
    "norm": (Sandwich, "after_attn"),
    "scale": (Scaled, "after_attn"),
    "scale by a parameter": (ScaledByParameter, None),
    "parallel": (ParallelSandwich, "after_attn"),
    "one dropout": (OneDropout, "attn"),
}


@pytest.mark.parametrize("name", LAYERS)
@torch.no_grad()
def test_what_is_added_is_what_is_read(name):
    layer_class, added = LAYERS[name]
    module = model_of(layer_class)
    model = hooks.from_module(module, **NAMES)
    cell = model.capabilities.cell
    for use in ("read", "edit"):
        assert cell("blocks.1.hook_attn_out", use).ok == (added is not None)
        assert cell("blocks.1.attn.hook_z", use).ok
    obstacles = interp.supported_verbs(model).obstacles
    for verb in ("ablate_heads", "keep_heads", "patch"):
        assert not obstacles[verb]
    assert bool(obstacles["logit_attribution"]) == (name != "one dropout")
    if added is None:
        assert "no test shows that it is added" in obstacles["patch of attention outputs"]
        return
    # Read and edited as by a hook of torch
    outputs = []
    handle = module.layers[0].get_submodule(added).register_forward_hook(lambda part, x, out: outputs.append(out))
    _, cache = model.run_with_cache(TOKENS)
    torch.testing.assert_close(cache["blocks.0.hook_attn_out"], outputs[-1])
    handle.remove()
    edited = model.run_with_hooks(TOKENS, fwd_hooks=[("blocks.0.hook_attn_out", double)])
    handle = module.layers[0].get_submodule(added).register_forward_hook(lambda part, x, out: 2 * out)
    torch.testing.assert_close(edited, module(TOKENS))
    handle.remove()
    assert not obstacles["patch of MLPs"]
    assert "hook_mlp_out" in str(model.capabilities.table())
    total = sum(cache[f"blocks.0.hook_{site}"] for site in ("resid_pre", "attn_out", "mlp_out"))
    torch.testing.assert_close(total, cache["blocks.0.hook_resid_post"])


def test_a_norm_that_several_layers_share_is_no_place_for_a_hook():
    module = model_of(Sandwich)
    module.layers[1].after_attn = module.layers[0].after_attn
    cell = hooks.from_module(module, **NAMES).capabilities.cell
    for layer in range(2):
        assert not cell(f"blocks.{layer}.hook_attn_out", "read").ok
        assert cell(f"blocks.{layer}.attn.hook_z", "edit").ok


@pytest.mark.parametrize("name", LAYERS)
def test_heads_ablated_before_a_norm_equal_those_by_hooks_of_torch(name):
    module = model_of(LAYERS[name][0])
    model = hooks.from_module(module, **NAMES)
    sets = {"one": [(0, 1)], "two": [(0, 0), (1, 1)], "layer": [(1, 0), (1, 1)]}
    result = interp.ablate_heads(model, TASK, heads=sets, n=32)
    batch = sample_split(TASK, 32, generator=derived_generator(0, "ablate"), split="test")
    before = losses(module, batch, [])
    for index, heads in enumerate(sets.values()):
        rise = (losses(module, batch, heads) - before).mean(0)
        np.testing.assert_allclose(result.loss_rise.value[index], rise, atol=1e-5)


def losses(module, batch, heads):
    """Losses with the inputs of W_O at some heads set to zero by torch's own hooks."""
    handles = []
    for layer, head in heads:

        def zero(part, inputs, head=head):
            z = inputs[0].unflatten(-1, (2, -1)).clone()
            z[:, :, head] = 0
            return (z.flatten(-2),)

        handles.append(module.layers[layer].attn.o.register_forward_pre_hook(zero))
    with torch.no_grad():
        logits = logits_at_targets(module(batch.tokens), batch)
    for handle in handles:
        handle.remove()
    return TASK.score(logits, batch).loss.double()
