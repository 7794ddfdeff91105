"""`from_module`: forward passes, edits, masks and error texts for wrapped torch modules."""

from types import SimpleNamespace

import pytest
import torch
from own_models import MAPS, PlainAttention, PlainModel, TorchEncoder, plain_model, torch_encoder, transformer
from torch import nn

import hooks
import interp
from hooks.interventions.replacements import Zero
from interp.core.verbs import needs_of_verbs

TRANSFORMER_ONLY = {verb: needs.only_transformer for verb, needs in needs_of_verbs().items() if needs.only_transformer}
WITH_UNTRAINED = {verb for verb, needs in needs_of_verbs().items() if needs.untrained}

TASK = SimpleNamespace(d_vocab=9, d_vocab_out=9, n_ctx=8, attention="causal")
OURS = transformer(TASK)
TOKENS = torch.randint(9, (3, 7), generator=torch.Generator().manual_seed(2))
SIZES = {"d_vocab": 9, "n_ctx": 8}
TORCH = {"layers": "encoder.layers", "attention": "self_attn", **SIZES}
LINEAR = {"layers": "layers", "attention": MAPS, "n_heads": 2, **SIZES}
KINDS = ("torch", "linear", "fused")
NO_PATTERN_NAMED = {name: path for name, path in MAPS.items() if name != "pattern"}


def module_of(kind, ours=OURS):
    return torch_encoder(ours) if kind == "torch" else plain_model(ours, fused=kind == "fused")


def wrapped(kind, module=None):
    names = TORCH if kind == "torch" else LINEAR
    if kind == "fused":
        names = names | {"attention": {"qkv": "attn.qkv", "o": "attn.o", "pattern": "attn.pattern"}}
    return hooks.from_module(module or module_of(kind), **names)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_logits_and_edits_equal_those_of_ours(kind):
    module = module_of(kind)
    model = wrapped(kind, module)
    mask = torch.ones_like(TOKENS)
    mask[1, 5:] = 0
    for inputs in ({}, {"attention_mask": mask}):
        assert torch.allclose(model(TOKENS, **inputs)[mask.bool()], module(TOKENS, **inputs)[mask.bool()], atol=1e-5)
    assert model.cfg.architecture == type(module).__name__
    for site in ("attn.hook_q", "attn.hook_k", "attn.hook_v", "attn.hook_z", "attn.hook_pattern"):
        edit = [(f"blocks.0.{site}", Zero().hook(head=1))]
        mine, theirs = (one.run_with_hooks(TOKENS, fwd_hooks=edit) for one in (model, OURS))
        assert torch.allclose(mine, theirs, atol=1e-5), site
        assert not torch.allclose(mine, model(TOKENS), atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_and_gradients(kind):
    model = wrapped(kind)
    for name in ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O"):
        assert torch.equal(getattr(model.blocks[1].attn, name), getattr(OURS.blocks[1].attn, name)), name
    grads = {}
    keep = ("blocks.0.attn.hook_z", lambda grad, hook: grads.__setitem__("z", grad.clone()))
    for one in (model, OURS):
        with one.hooks(bwd_hooks=[keep]):
            one(TOKENS).square().sum().backward()
        grads[type(one).__name__] = grads.pop("z")
    mine, theirs = grads.values()
    assert torch.allclose(mine, theirs, rtol=1e-4, atol=1e-3)
    assert next(model.bridge.module.parameters()).grad is not None
    OURS.zero_grad()


@pytest.mark.parametrize("kind", KINDS)
def test_the_module_is_not_changed(kind):
    module = module_of(kind)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    fast = torch.backends.mha.get_fastpath_enabled()
    model = wrapped(kind, module)
    with pytest.raises(RuntimeError, match="on purpose"):
        model.run_with_hooks(TOKENS, fwd_hooks=[("blocks.1.attn.hook_z", lambda z, hook: fail())])
    assert torch.backends.mha.get_fastpath_enabled() == fast
    for part in module.modules():
        assert not part._forward_hooks
        assert not part._forward_pre_hooks
        assert "forward" not in vars(part)
        assert "name" not in vars(part)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def fail():
    raise RuntimeError("on purpose")


def test_training_mode_and_dropout():
    module = module_of("torch")
    model = wrapped("torch", module).train()
    assert module.training
    for layer in module.encoder.layers:
        layer.self_attn.dropout = 0.5
    torch.manual_seed(0)
    one, two = model(TOKENS), model(TOKENS)
    assert not torch.allclose(one, two)
    assert torch.allclose(model.eval()(TOKENS), OURS(TOKENS), atol=1e-5)


class Bare(nn.Module):
    """Post-LN layers of torch, called one after the other, with a choice of mask."""

    def __init__(self, norm_first=False, mask="bool", **options):
        super().__init__()
        self.embed = nn.Embedding(9, 16)
        options = {"batch_first": True, "norm_first": norm_first, "dropout": 0.0, **options}
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(16, 2, 32, **options) for _ in range(2))
        self.unembed, self.mask = nn.Linear(16, 9), mask

    def forward(self, tokens):
        x, pos = self.embed(tokens), tokens.shape[1]
        hidden = ~torch.ones(pos, pos, dtype=torch.bool).tril()
        masks = {
            "bool": hidden,
            "added": torch.zeros(pos, pos).masked_fill(hidden, -torch.inf),
            "per head": hidden.expand(2 * len(tokens), -1, -1),
        }
        for layer in self.layers:
            x = layer(x, src_mask=masks[self.mask])
        return self.unembed(x)


BARE = {"layers": "layers", "attention": "self_attn", **SIZES}


@pytest.mark.parametrize(
    ("mask", "norm_first", "bias"), [("bool", False, True), ("added", True, False), ("per head", False, False)]
)
@torch.no_grad()
def test_layers_of_torch_with_every_kind_of_mask(mask, norm_first, bias):
    torch.manual_seed(3)
    module = Bare(norm_first, mask, bias=bias).eval()
    model = hooks.from_module(module, **BARE)
    assert torch.allclose(model(TOKENS), module(TOKENS), atol=1e-5)
    assert model.cfg.attention == "causal"
    obstacles = interp.supported_verbs(model).obstacles
    # In layers that do not add to the stream, what the MLP adds is at no place
    sums = {"logit_attribution", "edges between layers", "explain_attention"}
    normalised = set() if norm_first else {*sums, "patch of MLPs", "ablate", "audit_parts"}
    assert {verb for verb, why in obstacles.items() if why} == {
        *TRANSFORMER_ONLY,
        "edges",
    } | WITH_UNTRAINED | normalised
    assert str(model.capabilities.attention_mask).startswith(
        "missing (the model refuses it: Bare.forward() got an unexp"
    )


def test_a_layer_may_return_a_tuple():
    class Tuple(nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.layer = layer

        def forward(self, x, hidden):
            return self.layer(x, hidden), None

    class Outer(PlainModel):
        def forward(self, tokens):
            x = self.embed(tokens)
            for layer in self.layers:
                x = layer(x, torch.zeros(1, tokens.shape[1], tokens.shape[1], dtype=torch.bool))[0]
            return self.unembed(x)

    outer = Outer(OURS.cfg)
    outer.layers = nn.ModuleList(Tuple(layer) for layer in outer.layers)
    names = {name: f"layer.{path}" for name, path in MAPS.items()}
    model = hooks.from_module(outer, layers="layers", attention=names, n_heads=2, **SIZES)
    assert model.cfg.attention == "bidirectional"
    assert model.capabilities.cell("blocks.1.hook_resid_post", "edit").ok


class HandWritten(PlainAttention):
    """Attention whose softmax is not torch's."""

    def forward(self, x, hidden):
        q, k, v = (self.get_submodule(name)(x).unflatten(-1, (2, 8)).transpose(1, 2) for name in "qkv")
        weights = (q @ k.mT / 8**0.5).exp() * ~hidden[:, None]
        return self.o((weights / weights.sum(-1, keepdim=True) @ v).transpose(1, 2).flatten(2))


def test_without_a_pattern_the_verbs_that_read_it_are_refused():
    module = module_of("linear")
    for layer in module.layers:
        layer.attn.__class__ = HandWritten
    model = hooks.from_module(module, **{**LINEAR, "attention": NO_PATTERN_NAMED})
    obstacles = interp.supported_verbs(model).obstacles
    lacking = {verb for verb, why in obstacles.items() if why} - {*TRANSFORMER_ONLY, "edges"}
    lacks = {"show_attention", "attention_variation", "classify_heads", "audit", "explain_attention"}
    lacks |= {"ablate_heads with another pattern", "keep_heads with another pattern"}
    assert lacking == lacks | WITH_UNTRAINED
    reason = "missing (no softmax over keys and no scaled_dot_product_attention runs between the maps of this attention"
    assert obstacles["audit"].startswith(f"it has to read blocks.0.attn.hook_pattern, which is {reason}; switch a")
    # the same reasons where capabilities are printed, one line each, and one for tasks with padding if it is needed
    first, *lines = str(model.capabilities).splitlines()
    n_verbs = len(needs_of_verbs())
    assert first == f"causal attention; {n_verbs - len(lines)} of {n_verbs} verbs accept this model, but not:"
    listed = {verb: why for verb, why in obstacles.items() if why}
    assert [line.split("  ", 1)[0] for line in lines] == list(listed)
    assert all(line.endswith(why) for line, why in zip(lines, listed.values(), strict=True))


def test_swapped_names_are_found():
    """With q and v exchanged, pattern @ v is not z."""
    names = MAPS | {"q": MAPS["v"], "v": MAPS["q"]}
    cell = hooks.from_module(module_of("linear"), **{**LINEAR, "attention": names}).capabilities.cell
    assert not cell("blocks.0.attn.hook_pattern", "read").ok
    assert str(cell("blocks.0.attn.hook_pattern", "read")) == "wrong copy (pattern @ v is not z)"


def test_untrained():
    module = module_of("torch")
    model = hooks.from_module(module, **TORCH, untrained=lambda: TorchEncoder(OURS.cfg))
    one, two, other = (model.untrained(seed) for seed in (1, 1, 2))
    with torch.no_grad():
        assert torch.equal(one(TOKENS), two(TOKENS))
        assert not torch.allclose(one(TOKENS), other(TOKENS), atol=1e-3)
    assert one.untrained(1).cfg == model.cfg
    with pytest.raises(
        ValueError, match=r"no untrained TorchEncoder can be made: pass from_module\(\.\.\., untrained=\)"
    ):
        wrapped("torch").untrained(0)


def test_names_that_do_not_fit(as_a_user):
    encoder, plain = module_of("torch"), module_of("linear")
    shared = PlainModel(OURS.cfg)
    shared.layers = nn.ModuleList([shared.layers[0]] * 2)
    wide = PlainModel(OURS.cfg)
    wide.layers[1].attn.q = nn.Linear(16, 12)
    nameless, renamed, listed = (module_of("linear") for _ in range(3))
    for layer in nameless.layers:
        del layer.attn.n_heads
    for layer in renamed.layers:
        layer.attn.first = layer.attn._modules.pop("q")
    listed.layers = nn.ModuleList(nn.ModuleList([layer]) for layer in listed.layers)
    for module, change, text in (
        (encoder, {"layers": "layers"}, "'layers', which is not there in the TorchEncoder; .*Found: encoder.layers"),
        (encoder, {"layers": "unembed"}, "'unembed', which is a Linear of 0 parts in the TorchEncoder"),
        (shared, {}, "in which several layers are one module: hook points would not know which one runs"),
        (encoder, {"attention": "attn"}, r"attention names 'attn', which encoder.layers.0 \(a TransformerEncoderLa"),
        (encoder, {"attention": "attn"}, "does not have; names are relative to the layer, which has self_attn, "),
        (plain, {"attention": "layers.0.attn"}, r"Give 'attn'\.$"),
        (plain, {"attention": MAPS | {"q": "q"}}, r"Give 'attn\.q'\.$"),
        (plain, {"attention": ""}, "attention names '', which layers.0 "),
        (renamed, {"attention": "attn"}, r"in layers.0 a PlainAttention without a usual name for each map\. Name them"),
        (renamed, {"attention": "attn"}, r"relative to the layer: attn.k \(16 to 16\), .*attn.first \(16 to 16\)"),
        (listed, {}, "'layers', whose part 0 is a ModuleList, which is never called"),
        (encoder, {"n_heads": 4}, "n_heads is 4; encoder.layers.0.self_attn has 2. Leave n_heads out"),
        (nameless, {"n_heads": None}, "n_heads is None; with an attention made of Linear maps, give the number"),
        (nameless, {"n_heads": 3}, "o of attention, in layers.0, reads 16 values, no multiple of n_heads 3"),
        (plain, {"n_heads": 4}, "attention of layers.0 has n_heads = 2: it must be 2, not 4. Leave n_heads out"),
        (plain, {"attention": {"q": "q", "o": "o"}}, "attention names 'q', 'o'; needed are 'q', 'k', 'v', 'o', or"),
        (plain, {"attention": {}}, "attention names nothing; needed are"),
        (plain, {"attention": MAPS | {"v": "attn.pattern"}}, r"in layers.0 a torch.*Identity, not a torch"),
        (wide, {}, "q of attention, in layers.1, gives 12 values; with 2 heads that o reads, it must be 16"),
        (plain, {"n_ctx": 0}, "n_ctx is 0; it must be at least 1"),
        (OURS, {}, "module is a Transformer; from_module wraps a torch.nn.Module. A bridge or HookedRootModule is"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=text):
            hooks.from_module(module, **{**(TORCH if module is encoder else LINEAR), **change})


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"batch_first": False}, "batch_first=False"),
        ({"batch_first": True, "add_zero_attn": True}, "add_zero_attn=True"),
        ({"batch_first": True, "add_bias_kv": True}, "add_bias_kv=True"),
        ({"batch_first": True, "kdim": 8}, "kdim or vdim"),
    ],
)
def test_attention_that_is_not_supported(options, text, as_a_user):
    module = Bare()
    module.layers[1].self_attn = nn.MultiheadAttention(16, 2, **options)
    with pytest.raises(
        ValueError, match=rf"layers\.1\.self_attn was made with {text}, which from_module does not support"
    ):
        hooks.from_module(module, **BARE)


def test_calls_that_are_not_supported(as_a_user):
    class Keyword(Bare):
        def forward(self, tokens):
            return self.unembed(self.layers[1](src=self.layers[0](src=self.embed(tokens))))

    class Cross(nn.Module):
        def __init__(self):
            super().__init__()
            self.self_attn = nn.MultiheadAttention(16, 2, batch_first=True)

        def forward(self, x):
            return x + self.self_attn(x, x * 2, x)[0]

    with pytest.raises(
        ValueError, match=r"blocks\.0\.hook_resid_pre: the layer gets its input by keyword; pass it as the fi"
    ):
        hooks.from_module(Keyword(), **BARE)
    cross = nn.Sequential(nn.Embedding(9, 16), nn.Sequential(Cross()), nn.Linear(16, 9))
    with pytest.raises(
        ValueError, match="attention reads keys or values other than its queries' input; wrap self-attention"
    ):
        hooks.from_module(cross, layers="1", attention="self_attn", **SIZES)
