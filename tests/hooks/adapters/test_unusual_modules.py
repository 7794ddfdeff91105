"""Wrapped modules that are unusual: refused by name, or right, and as before afterwards."""

import pytest
import torch
from own_models import MAPS, PlainModel, TorchEncoder, transformer
from torch import nn

import hooks
import interp
from interp.tasks import Lego

TASK = Lego(n_vars=3, sentence_format="compact")
CFG = transformer(TASK).cfg
LINEAR = {"layers": "layers", "attention": MAPS, "n_heads": 2, "d_vocab": TASK.d_vocab, "n_ctx": TASK.n_ctx}
TORCH = {**LINEAR, "layers": "encoder.layers", "attention": "self_attn"}
TOKENS = torch.randint(TASK.d_vocab, (3, 7), generator=torch.Generator().manual_seed(0))


class Doubled(nn.MultiheadAttention):
    """Attention whose output is doubled."""

    def forward(self, *args, **kwargs):
        out, weights = super().forward(*args, **kwargs)
        return 2 * out, weights


class Noisy(PlainModel):
    """Dropout that is on in evaluation mode too, at the embedding or at one scalar."""

    where = "embedding"

    def forward(self, tokens, attention_mask=None):
        noise = nn.functional.dropout(torch.ones(16 if self.where == "embedding" else 1), 0.5)
        return super().forward(tokens, attention_mask) * noise[:1]


def module_with(change, make=PlainModel):
    module = make(CFG)
    change(module)
    return module


def replace_forward(module):
    attn = module.encoder.layers[0].self_attn
    original = attn.forward
    attn.forward = lambda *args, **kwargs: original(*args, **kwargs)


def share_attention(module):
    for layer in module.layers:
        layer.attn = module.layers[0].attn


def share_torch_attention(module):
    module.encoder.layers[1].self_attn = module.encoder.layers[0].self_attn


def own_attention(module):
    module.encoder.layers[1].self_attn = Doubled(16, 2, batch_first=True)


def trace_layers(module):
    inputs = torch.randn(2, 5, 16), torch.zeros(1, 5, 5, dtype=torch.bool)
    module.layers = nn.ModuleList(torch.jit.trace(layer, inputs) for layer in module.layers)


def quantise(module):
    for layer in module.layers:
        layer.attn.q = torch.ao.nn.quantized.dynamic.Linear(16, 16)


REFUSED = {
    "meta": (lambda module: module.to("meta"), LINEAR, r"weight embed\.weight, on the meta device"),
    "complex": (
        lambda module: module.unembed.to(torch.complex64),
        LINEAR,
        r"unembed\.weight, of dtype torch\.complex64",
    ),
    "NaN": (lambda module: module.unembed.weight.data[0].fill_(torch.nan), LINEAR, r"unembed\.weight, with NaN"),
    "lazy": (
        lambda module: setattr(module, "unembed", nn.LazyLinear(2)),
        LINEAR,
        "has no size yet. Run the module once",
    ),
    "shared attention": (share_attention, LINEAR, "one module in several layers of 'layers'"),
    "traced": (trace_layers, LINEAR, r"a torch\.jit\._trace\.TracedModule, not a torch\.nn\.Linear"),
    "quantised": (quantise, LINEAR, r"a torch\.ao\.nn\.quantized\..*Linear, not a torch\.nn\.Linear"),
    "replaced forward": (replace_forward, TORCH, r"layers\.0\.self_attn has a forward method of its own"),
    "own attention": (own_attention, TORCH, r"layers\.1\.self_attn has a forward method of its own"),
    "shared torch attention": (share_torch_attention, TORCH, "one module in several layers of 'encoder.layers'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(name, as_a_user):
    change, names, words = REFUSED[name]
    module = module_with(change, TorchEncoder if names is TORCH else PlainModel).eval()
    before = [vars(part).get("forward") for part in module.modules()]
    with pytest.raises(ValueError, match=words):
        hooks.from_module(module, **names)
    assert [vars(part).get("forward") for part in module.modules()] == before


@pytest.mark.parametrize("where", ["embedding", "scalar"])
def test_modules_that_are_random_in_evaluation_mode(where):
    torch.manual_seed(0)
    module = module_with(lambda module: setattr(module, "where", where), Noisy)
    with pytest.raises(ValueError, match="gives other logits for the same tokens in evaluation mode"):
        hooks.from_module(module, **LINEAR)


def tie(module):
    module.layers[1].attn.q.weight = module.layers[0].attn.q.weight


def sparse(module):
    module.embed = nn.Embedding(TASK.d_vocab, 16, sparse=True)
    weight = module.layers[0].w_in.weight
    module.layers[0].w_in.weight = nn.Parameter(weight.detach().to_sparse(), requires_grad=False)


def parametrise(module):
    nn.utils.parametrizations.spectral_norm(module.layers[0].attn.q)


@pytest.mark.parametrize("change", [tie, sparse, parametrise, nn.Module.half, nn.Module.double])
@torch.no_grad()
def test_tied_sparse_parametrised_and_half_weights_work(change):
    module = module_with(change).eval()
    model = hooks.from_module(module, **LINEAR)
    assert torch.equal(model(TOKENS), module(TOKENS))
    assert interp.ablate_heads(model, TASK, n=16).n == 16
    # An edit equals that of the module itself
    logits = model.run_with_hooks(TOKENS, fwd_hooks=[("blocks.0.attn.hook_z", zero_first_head)])
    module.layers[0].attn.o.weight[:, :8] = 0
    torch.testing.assert_close(logits, module(TOKENS))


def zero_first_head(z, hook):
    z[:, :, 0] = 0
    return z


def test_wrappers_of_many_devices_name_the_model_inside(as_a_user):
    ours = hooks.Transformer(interp.config_for(TASK, n_layers=1, n_heads=2, d_model=16))
    with pytest.raises(ValueError, match=r"Pass the model inside: \.module of this DataParallel"):
        interp.evaluate(nn.DataParallel(ours), TASK)
    inside = hooks.from_module(nn.DataParallel(PlainModel(CFG)), **{**LINEAR, "layers": "module.layers"})
    assert interp.ablate_heads(inside, TASK, n=16).n == 16


def test_ours_on_the_meta_device_is_refused():
    ours = hooks.Transformer(interp.config_for(TASK, n_layers=1, n_heads=2, d_model=16)).to("meta")
    for verb in (interp.evaluate, interp.audit, interp.train):
        with pytest.raises(ValueError, match=r"model has the weight embed\.weight, on the meta device"):
            verb(ours, TASK)
