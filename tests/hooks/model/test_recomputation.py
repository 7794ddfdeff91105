"""Passes called through `torch.utils.checkpoint`: hooks that would be gone in backward() are refused."""

import pytest
import torch
from own_models import MAPS, PlainModel, own_model, transformer
from torch.utils.checkpoint import checkpoint

import hooks
from interp.tasks import Lego

TASK = Lego(n_vars=3, sentence_format="compact")
TOKENS = torch.randint(TASK.d_vocab, (3, 7), generator=torch.Generator().manual_seed(0))
WORDS = r"gradient checkpointing\), where they would not act.* call the model itself instead of checkpoint"
NAME = "blocks.1.attn.hook_z"
ENCODER = hooks.EncoderConfig(d_vocab=TASK.d_vocab, d_model=16, n_heads=2, n_layers=2, n_ctx=TASK.n_ctx)
NAMES = {"layers": "layers", "attention": MAPS, "n_heads": 2, "d_vocab": TASK.d_vocab, "n_ctx": TASK.n_ctx}
MODELS = {
    "native": lambda: transformer(TASK),
    "tied": lambda: transformer(TASK, tied=True),
    "encoder": lambda: hooks.Encoder(ENCODER),
    "module": lambda: hooks.from_module(PlainModel(transformer(TASK).cfg), **NAMES),
    "bridge": lambda: hooks.from_bridge(own_model(transformer(TASK))),
}
EDITS = {
    "forward": {"fwd_hooks": [(NAME, lambda z, hook: z / 2)]},
    "backward": {"bwd_hooks": [(NAME, lambda grad, hook: None)]},
}


@pytest.fixture(params=[False, True], ids=["not reentrant", "reentrant"])
def reentrant(request):
    return request.param


def checkpointed(run, model, reentrant):
    """What `run(model)` gives through a checkpoint, times an input with a gradient, without which nothing has one."""
    one = torch.ones((), requires_grad=True)
    return checkpoint(lambda factor: run(model) * factor, one, use_reentrant=reentrant)


def plain(model):
    return model(TOKENS)


def edited(model):
    return model.run_with_hooks(TOKENS, **EDITS["forward"])


def gradients(model, output):
    """Gradients of the sum of squares by the weights; zeros where there is none."""
    model.zero_grad()
    output.square().sum().backward()
    return [torch.zeros(()) if weight.grad is None else weight.grad.clone() for weight in model.parameters()]


@pytest.mark.parametrize("kind", EDITS)
@pytest.mark.parametrize("name", MODELS)
def test_hooks_attached_outside_are_refused(name, kind, reentrant):
    model = MODELS[name]()
    with model.hooks(**EDITS[kind]), pytest.raises(ValueError, match=WORDS):
        checkpointed(plain, model, reentrant)
    # The refusal leaves nothing behind: the same pass without hooks has its own gradients
    through = gradients(model, checkpointed(plain, model, reentrant))
    torch.testing.assert_close(through, gradients(model, plain(model)))


@pytest.mark.parametrize("name", ["native", "tied", "encoder"])
def test_hooks_attached_inside_act_again(name, reentrant):
    model = MODELS[name]()
    through = gradients(model, checkpointed(edited, model, reentrant))
    torch.testing.assert_close(through, gradients(model, edited(model)))
    assert not torch.allclose(through[0], gradients(model, plain(model))[0])
    # Next to hooks from outside they do not suffice; once detached, those attached inside leave no trace
    with model.hooks(**EDITS["forward"]), pytest.raises(ValueError, match=WORDS):
        checkpointed(edited, model, reentrant)
    handle = model.hook_point(NAME).register_forward_hook(lambda module, inputs, output: output / 2)
    with pytest.raises(ValueError, match=WORDS):
        checkpointed(plain, model, reentrant)
    handle.remove()


def test_hooks_attached_before_backward_are_refused(reentrant):
    model = MODELS["native"]()
    output = checkpointed(plain, model, reentrant)
    with model.hooks(**EDITS["forward"]), pytest.raises(ValueError, match=WORDS):
        output.sum().backward()


def test_a_layer_is_refused_like_a_model(reentrant):
    model = MODELS["native"]()
    resid = torch.randn(3, 7, 16, requires_grad=True)
    with model.hooks(**EDITS["forward"]), pytest.raises(ValueError, match=WORDS):
        checkpoint(model.resume, resid, 1, use_reentrant=reentrant)


def test_what_is_not_computed_again_is_accepted(reentrant):
    model = MODELS["native"]()
    expected = edited(model)
    with model.hooks(**EDITS["forward"]):
        with torch.no_grad():
            torch.testing.assert_close(checkpointed(plain, model, reentrant), expected)
        with torch.autograd.graph.save_on_cpu():
            torch.testing.assert_close(plain(model), expected)
    # A cache stores activations without an edit
    cached = checkpoint(lambda: model.run_with_cache(TOKENS)[0], use_reentrant=False)
    torch.testing.assert_close(cached, plain(model))
