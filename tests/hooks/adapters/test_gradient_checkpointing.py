"""Passes that are computed again in backward(), where hooks of a wrapped model are not attached: refused by name."""

import pytest
import torch
import transformers
from own_models import MAPS, OwnModel, PlainAttention, PlainLayer, PlainModel, own_model, transformer
from torch.utils.checkpoint import checkpoint

import hooks
from interp.tasks import Lego

TASK = Lego(n_vars=3, sentence_format="compact")
CFG = transformer(TASK).cfg
TOKENS = torch.randint(TASK.d_vocab, (3, 7), generator=torch.Generator().manual_seed(0))
NAMES = {"layers": "layers", "attention": MAPS, "n_heads": 2, "d_vocab": TASK.d_vocab, "n_ctx": TASK.n_ctx}
SIZES = {"vocab_size": TASK.d_vocab, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": TASK.n_ctx}
SPECIAL = {"bos_token_id": None, "eos_token_id": None, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
WORDS = r"gradient checkpointing\), where they would not act, so that gradients would be wrong\. Switch"


class CheckpointedLayer(PlainLayer):
    """A layer that is computed again."""

    reentrant = False

    def forward(self, x, hidden):
        return checkpoint(super().forward, x, hidden, use_reentrant=self.reentrant)


class Checkpointed(PlainModel):
    """Calls its layers through torch's function."""

    reentrant = False

    def forward(self, tokens, attention_mask=None):
        x = self.embed(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            hidden = torch.zeros(1, tokens.shape[1], tokens.shape[1], dtype=torch.bool)
            x = checkpoint(layer, x, hidden, use_reentrant=self.reentrant)
        return self.unembed(self.norm(x))


class CheckpointedAttention(PlainAttention):
    """An attention that is computed again."""

    reentrant = False

    def forward(self, x, hidden):
        return checkpoint(super().forward, x, hidden, use_reentrant=self.reentrant)


def of_transformers(reentrant):
    config = transformers.GPT2Config(**SIZES, **SPECIAL, attn_implementation="sdpa")  # with hooks step by step
    gpt2 = transformers.GPT2LMHeadModel(config)
    gpt2.gradient_checkpointing_enable({"use_reentrant": reentrant})
    gpt2.enable_input_require_grads()
    return gpt2, {**NAMES, "layers": "transformer.h", "attention": "attn"}


def of_classes(model_class=PlainModel, layer_class=PlainLayer, attention_class=PlainAttention):
    def make(reentrant):
        module = PlainModel(CFG)
        module.__class__ = type("Model", (model_class,), {"reentrant": reentrant})
        for layer in module.layers:
            layer.__class__ = type("Layer", (layer_class,), {"reentrant": reentrant})
            layer.attn.__class__ = type("Attention", (attention_class,), {"reentrant": reentrant})
        return module, NAMES

    return make


MAKERS = {
    "GPT-2": of_transformers,
    "model": of_classes(model_class=Checkpointed),
    "layer": of_classes(layer_class=CheckpointedLayer),
    "attention": of_classes(attention_class=CheckpointedAttention),
}


@pytest.fixture(params=MAKERS)
def make(request):
    return MAKERS[request.param]


def halve(z, hook):
    return z / 2


@pytest.mark.parametrize("reentrant", [False, True])
def test_hooks_are_refused_and_plain_gradients_are_those_of_the_module(make, reentrant):
    torch.manual_seed(0)
    module, names = make(reentrant)
    model = hooks.from_module(module, **names).train()
    for kind in ("fwd_hooks", "bwd_hooks"):
        with (
            pytest.raises(ValueError, match=WORDS),
            model.hooks(**{kind: [("blocks.1.attn.hook_z", lambda z, hook: None)]}),
        ):
            model(TOKENS).square().sum().backward()
    module.zero_grad()
    model(TOKENS).square().sum().backward()
    gradients = [parameter.grad.clone() for parameter in module.parameters()]
    module.zero_grad()
    output = module(TOKENS)
    getattr(output, "logits", output).square().sum().backward()
    assert all(
        torch.equal(parameter.grad, grad) for parameter, grad in zip(module.parameters(), gradients, strict=True)
    )
    # Without a graph nothing is computed again
    with torch.no_grad():
        edited = model.run_with_hooks(TOKENS, fwd_hooks=[("blocks.1.attn.hook_z", halve)])
    assert not torch.allclose(edited, model(TOKENS))


def test_without_checkpointing_gradients_are_those_of_the_edited_pass():
    gpt2, names = of_transformers(reentrant=False)
    model = hooks.from_module(gpt2, **names)
    gradients = []
    for weight in (1.0, 0.5):
        gpt2.zero_grad()
        gpt2.gradient_checkpointing_disable()
        edit = [("blocks.1.attn.hook_z", halve)] if weight == 1.0 else []
        if not edit:
            gpt2.transformer.h[1].attn.c_proj.weight.data *= weight
        with model.hooks(edit):
            model(TOKENS).square().sum().backward()
        gradients.append(gpt2.transformer.wte.weight.grad.clone())
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)


class CheckpointedOwn(OwnModel):
    """A `HookedRootModule` whose layers are computed again."""

    def forward(self, tokens, attention_mask=None):
        x = self.embed(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = checkpoint(block, x, self.hidden(attention_mask, tokens.shape[1]), use_reentrant=False)
        return self.unembed(self.norm(x))


def test_hooked_root_modules_too():
    model = hooks.from_bridge(own_model(transformer(TASK), CheckpointedOwn))
    with pytest.raises(ValueError, match=WORDS), model.hooks([("blocks.0.attn.hook_z", halve)]):
        model(TOKENS)


def test_other_errors_pass():
    module, names = of_classes()(reentrant=False)
    model = hooks.from_module(module, **names)

    def fail(z, hook):
        raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        model.run_with_hooks(TOKENS, fwd_hooks=[("blocks.0.attn.hook_z", fail)])
    model.run_with_hooks(TOKENS, fwd_hooks=[("blocks.0.attn.hook_z", halve)]).sum().backward()
