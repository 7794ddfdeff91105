"""Hooks on models whose pass is compiled, which would run without them: refused by name, in every order."""

from contextlib import contextmanager

import pytest
import torch
from families import MODELS, model_of, tokens_of
from own_models import MAPS, OwnModel, PlainModel, own_model, transformer
from torch import nn

import hooks
from interp.tasks import Lego

TASK = Lego(n_vars=3, sentence_format="compact")
NAMES = {"layers": "layers", "attention": MAPS, "n_heads": 2, "d_vocab": TASK.d_vocab, "n_ctx": TASK.n_ctx}
WORDS = "hooks are attached to this .*, whose pass is compiled and would run without them. Call the model itself"
COMPILED = r"the \w+ is compiled, and would run without hooks"
TOKENS = torch.randint(TASK.d_vocab, (3, 7), generator=torch.Generator().manual_seed(0))
ZERO = [("blocks.0.attn.hook_z", lambda z, hook: torch.zeros_like(z))]


def wrapped(module=None):
    return hooks.from_module(module or PlainModel(transformer(TASK).cfg).eval(), **NAMES)


MAKERS = {
    "transformer": lambda: model_of(MODELS["causal"]).eval(),
    "encoder": lambda: model_of(MODELS["encoder"]).eval(),
    "tied": lambda: model_of(MODELS["tied"]).eval(),
    "wrapped": wrapped,
}


def compiled(function):
    """Compiled without a compiler of C++."""
    return torch.compile(function, backend="eager")


def model_for(name):
    torch._dynamo.reset()
    return MAKERS[name]()


@contextmanager
def by_hooks(model):
    with model.hooks(ZERO):
        yield


@contextmanager
def by_add_hook(model):
    model.add_hook(*ZERO[0])
    yield
    model.reset_hooks()


@contextmanager
def by_torch(model):
    handle = model.hook_point(ZERO[0][0]).register_forward_hook(lambda module, inputs, out: torch.zeros_like(out))
    yield
    handle.remove()


CASES = [
    ("transformer", by_hooks, True),
    ("transformer", by_add_hook, False),
    ("encoder", by_torch, True),
    ("tied", by_hooks, False),
    ("wrapped", by_add_hook, True),
]


def tokens_for(model):
    return TOKENS if isinstance(model, hooks.BridgeModel) else tokens_of(model, 5)


@pytest.mark.parametrize(("name", "way", "is_run_before"), CASES)
@torch.no_grad()
def test_a_compiled_pass_with_hooks_is_refused(name, way, is_run_before, as_a_user):
    model = model_for(name)
    tokens, faster = tokens_for(model), compiled(model)
    inside = compiled(lambda tokens: model(tokens).sum())
    plain = model(tokens)
    if is_run_before:
        torch.testing.assert_close(faster(tokens), plain)
        inside(tokens)
    with way(model):
        for function in (faster, inside):
            with pytest.raises(ValueError, match=WORDS):
                function(tokens)
        edited = model(tokens)
    assert not torch.allclose(edited, plain)
    torch.testing.assert_close(faster(tokens), plain)
    # Methods of what is compiled are those of the model
    torch.testing.assert_close(faster.run_with_hooks(tokens, fwd_hooks=ZERO), edited)
    with faster.hooks(ZERO), pytest.raises(ValueError, match=WORDS):
        faster(tokens)


@pytest.mark.parametrize("name", ["transformer", "wrapped"])
@torch.no_grad()
def test_compiled_in_place(name, as_a_user):
    model = model_for(name)
    tokens = tokens_for(model)
    plain = model(tokens)
    model.compile(backend="eager")
    torch.testing.assert_close(model(tokens), plain)
    with pytest.raises(ValueError, match=COMPILED):
        model.run_with_hooks(tokens, fwd_hooks=ZERO)
    with by_torch(model), pytest.raises(ValueError, match=WORDS):
        model(tokens)
    torch.testing.assert_close(model(tokens), plain)


def compile_layer(module):
    module.layers[0].compile(backend="eager")


def compile_attention(module):
    module.layers[1].attn.compile(backend="eager")


def replace_mlp(module):
    module.layers[0].w_out = compiled(module.layers[0].w_out)


def compile_module(module):
    module.compile(backend="eager")


@pytest.mark.parametrize("compile_part", [compile_layer, compile_attention, replace_mlp, compile_module])
def test_compiled_parts_of_a_torch_module(compile_part):
    module = PlainModel(transformer(TASK).cfg).eval()
    model = wrapped(module)
    compile_part(module)
    with pytest.raises(ValueError, match=COMPILED):
        model.run_with_hooks(TOKENS, fwd_hooks=ZERO)
    with pytest.raises(ValueError, match=COMPILED):
        wrapped(module)


def test_compiled_parts_of_a_hooked_root_module():
    own = own_model(transformer(TASK), OwnModel)
    model = hooks.from_bridge(own)
    own.blocks[0].compile(backend="eager")
    with pytest.raises(ValueError, match=COMPILED):
        model.run_with_hooks(TOKENS, fwd_hooks=ZERO)
    with pytest.raises(ValueError, match=COMPILED):
        hooks.from_bridge(own)


@torch.no_grad()
def test_without_hooks_a_compiled_pass_warns_of_nothing(recwarn, as_a_user):
    for name in ("transformer", "wrapped"):
        model = model_for(name)
        compiled(model)(tokens_for(model))
    texts = [str(warning.message) for warning in recwarn]
    assert not [text for text in texts if "trace" in text]


@torch.no_grad()
def test_a_module_that_holds_the_model_is_compiled(as_a_user):
    model = model_for("transformer")
    tokens, outer = tokens_for(model), nn.Sequential(model, nn.Identity())
    faster = compiled(outer)
    faster(tokens)
    with model.hooks(ZERO):
        with pytest.raises(ValueError, match=WORDS):
            faster(tokens)
        outer(tokens)
