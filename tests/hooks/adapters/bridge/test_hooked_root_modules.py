"""`HookedRootModule`s in the adapter: what is found at load time, and what each error says."""

import copy
from types import SimpleNamespace

import pytest
import torch
from own_models import OwnLayer, OwnModel, hidden_keys, own_model, transformer
from torch import nn
from transformer_lens.hook_points import HookPoint
from transformer_lens.HookedRootModule import HookedRootModule

import hooks
import interp
from hooks.interventions.replacements import Zero

TASK = SimpleNamespace(d_vocab=9, d_vocab_out=9, n_ctx=8, attention="bidirectional")
OURS = transformer(TASK)
TOKENS = torch.randint(9, (3, 7), generator=torch.Generator().manual_seed(2))


def changed(part=None, point=None, **methods):
    """A class of own models in which a hook point is replaced, or methods are."""

    def setup(self):
        if point is not None:
            for block in self.blocks:
                setattr(block.get_submodule(part), *point())
        HookedRootModule.setup(self)

    return type("Changed", (OwnModel,), {"setup": setup, **methods})


class Ignored(HookPoint):
    """A hook point whose edits are discarded."""

    def __call__(self, x):
        super().__call__(x.clone())
        return x


class Doubled(HookPoint):
    """A hook point that shows twice the value."""

    def __call__(self, x):
        return super().__call__(2 * x) / 2


def found_in(part, point):
    return hooks.from_bridge(own_model(OURS, changed(part, point))).capabilities


def cells(found, site):
    return [str(found.cell(f"blocks.1.{site}", use)) for use in ("read", "edit")]


@torch.no_grad()
def test_logits_hooks_and_resume():
    own = own_model(OURS)
    model = hooks.from_bridge(own)
    assert torch.equal(model(TOKENS), own(TOKENS))
    assert torch.allclose(model(TOKENS), OURS(TOKENS), atol=1e-5)
    assert model.cfg.d_head == 8
    assert model.cfg.attn_scale == pytest.approx(8**0.5)
    assert model.cfg.architecture == "OwnModel"
    for site in ("attn.hook_z", "attn.hook_q", "hook_resid_pre"):
        edit = [(f"blocks.1.{site}", Zero().hook(head=1) if "attn" in site else lambda x, hook: x.flip(1))]
        mine, theirs = (one.run_with_hooks(TOKENS, fwd_hooks=edit) for one in (model, OURS))
        assert torch.allclose(mine, theirs, atol=1e-5)
        assert not torch.allclose(mine, model(TOKENS), atol=1e-3)
    _, seen = model.run_with_cache(TOKENS)
    again = model.resume(seen["blocks.1.hook_resid_pre"], 1, attn_out=seen["blocks.1.hook_attn_out"], tokens=TOKENS)
    assert torch.allclose(again, model(TOKENS), atol=1e-5)
    assert not any(point.fwd_hooks for point in own.hook_dict.values())


def test_an_edit_that_does_nothing_is_refused(as_a_user):
    own = own_model(OURS, changed("attn", lambda: ("hook_pattern", Ignored())))
    model = hooks.from_bridge(own)
    assert cells(model.capabilities, "attn.hook_pattern") == ["works", "ignored"]
    with pytest.raises(ValueError, match=r"hook_pattern would be ignored by this model\. Edit blocks.0.attn.hook_z"):
        model.run_with_hooks(TOKENS, fwd_hooks=[("blocks.0.attn.hook_pattern", Zero().hook(head=0))])
    own = own_model(OURS, changed("attn", lambda: ("hook_z", Ignored())))
    obstacles = interp.supported_verbs(own).obstacles
    assert obstacles["ablate_heads"] == "it has to edit blocks.0.attn.hook_z, which is ignored"
    assert obstacles["show_attention"] == obstacles["classify_heads"] == ""


def test_a_point_with_another_quantity_is_a_wrong_copy():
    found = found_in("attn", lambda: ("hook_z", Doubled()))
    assert cells(found, "attn.hook_z")[0] == "wrong copy (z W_O + b_O is not the attention output)"
    found = found_in("attn", lambda: ("hook_pattern", Doubled()))
    assert cells(found, "attn.hook_pattern")[0] == "wrong copy (its rows do not sum to one)"
    found = found_in("", lambda: ("hook_attn_out", Doubled()))
    assert cells(found, "attn.hook_z")[0] == "wrong copy (z W_O + b_O is not the attention output)"
    found = found_in("attn", lambda: ("hook_v", Doubled()))
    assert cells(found, "attn.hook_v")[0] == "wrong copy (pattern @ v is not z)"
    assert cells(found, "attn.hook_pattern")[0] == "wrong copy (it cannot be checked without z and v)"
    found = found_in("attn", lambda: ("hook_q", Doubled()))
    text = "it is not x W_Q + b_Q for an x at ln1.hook_normalized, hook_resid_pre or attn.hook_in"
    assert cells(found, "attn.hook_q")[0] == f"wrong copy ({text})"


def test_without_a_stream_nothing_can_be_tested_layer_by_layer():
    own = own_model(OURS, changed("", lambda: ("hook_resid_pre", nn.Identity())))
    obstacles = interp.supported_verbs(own).obstacles
    assert obstacles["evaluate"] == ""
    missing = "it has to read blocks.0.hook_resid_pre, which is missing (the model has no such place)"
    assert obstacles["probe"] == obstacles["classify_heads"] == missing


def test_without_output_matrices():
    own = own_model(OURS)
    for block in own.blocks:
        block.attn.W_out, block.attn.W_O = block.attn.W_O, None
        block.attn.forward = forward_without_w_o(block.attn)
    why = "it cannot be checked without blocks[layer].attn.W_O (head, d_head, d_model)"
    assert cells(hooks.from_bridge(own).capabilities, "attn.hook_z")[0] == f"wrong copy ({why})"
    assert interp.supported_verbs(own).obstacles["probe with verify=True"] == ""


def forward_without_w_o(attn):
    whole = type(attn).forward

    def forward(x, hidden):
        attn.W_O, kept = attn.W_out, attn.W_O
        try:
            return whole(attn, x, hidden)
        finally:
            attn.W_O = kept

    return forward


def test_values_are_tested_without_the_input_of_attention():
    """Without a hook point at what attention reads, W_V cannot be tested, but pattern @ v can."""
    found = found_in("ln1", lambda: ("hook_normalized", nn.Identity()))
    assert cells(found, "attn.hook_v") == ["works", "works"]
    assert cells(found, "attn.hook_pattern") == ["works", "works"]
    assert str(found.cell("blocks.0.attn.W_V", "read")) == "wrong copy (hook_v could not be tested with it)"
    assert found.cell("blocks.0.attn.W_O", "read").ok


def of_queries(self, mask, pos):
    hidden = hidden_keys(self.cfg.attention, None, pos)
    return hidden if mask is None else hidden | ~mask.bool()[..., None] & ~torch.eye(pos, dtype=torch.bool)


@pytest.mark.parametrize(
    "hidden",
    [
        of_queries,
        lambda self, mask, pos: hidden_keys("bidirectional", None, pos),
        lambda self, mask, pos: hidden_keys("bidirectional", None if mask is None else mask == 0, pos),
        lambda self, mask, pos: hidden_keys("bidirectional", None if mask is None else mask.flip(1), pos),
    ],
    ids=["of queries", "ignored", "inverted", "from the other end"],
)
@pytest.mark.parametrize("unread", [False, True])
def test_a_wrong_mask_is_found(hidden, unread, as_a_user):
    own = own_model(OURS, changed(hidden=hidden))
    for block in own.blocks if unread else ():
        nn.init.zeros_(block.attn.W_O)
    model = hooks.from_bridge(own)
    assert model.cfg.attention == "bidirectional"
    assert str(model.capabilities.attention_mask) == "ignored (real tokens see padding)"
    mask = torch.ones_like(TOKENS)
    mask[:, -1] = 0
    with pytest.raises(
        ValueError, match=r"attention_mask is given, which this HookedRootModule Changed cannot use: ign"
    ):
        model(TOKENS, attention_mask=mask)


def test_the_right_mask_works():
    assert str(hooks.from_bridge(own_model(OURS)).capabilities.attention_mask) == "works"


class PostNormLayer(OwnLayer):
    """x = LN(x + Attn(x)) and so on; `inside` normalises the attention output alone."""

    inside = False

    def forward(self, x, hidden):
        x = self.hook_resid_pre(x)
        out = self.hook_attn_out(self.attn(x, hidden))
        x = x + self.ln1(out) if self.inside else self.ln1(x + out)
        out = self.hook_mlp_out(self.w_out(nn.functional.gelu(self.w_in(x))))
        return self.hook_resid_post(x + out if self.inside else self.ln2(x + out))


@pytest.mark.parametrize("inside", [False, True])
def test_an_attention_output_is_added_before_a_norm_or_refused(inside):
    own = own_model(OURS)
    for block in own.blocks:
        block.__class__ = type("Layer", (PostNormLayer,), {"inside": inside})
        block.ln1.hook_normalized = nn.Identity()
    own.setup()
    state = "wrong copy (no test shows that it is added to the stream as it is)" if inside else "works"
    capabilities = hooks.from_bridge(own).capabilities
    assert cells(capabilities, "hook_attn_out") == [state, state]
    assert cells(capabilities, "attn.hook_z") == ["works", "works"]


def test_untrained_copies():
    model, state = hooks.from_bridge(own_model(OURS)), torch.get_rng_state()
    one, two, other = (model.untrained(seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    with torch.no_grad():
        assert torch.equal(one(TOKENS), two(TOKENS))
        assert not torch.allclose(one(TOKENS), other(TOKENS), atol=1e-3)
        assert not torch.allclose(one(TOKENS), model(TOKENS), atol=1e-3)
    assert not one.training

    class Needy(OwnModel):
        def __init__(self, cfg, size):
            super().__init__(cfg)

    needy = own_model(OURS, lambda cfg: Needy(cfg, 3))
    with pytest.raises(
        ValueError, match=r"no untrained Needy could be made as Needy\(cfg\) \(.*'size'\)\. Let it be made"
    ):
        hooks.from_bridge(needy).untrained(0)


def test_objects_that_are_no_model(as_a_user):
    for thing, name in ((None, "NoneType"), ("gpt2", "str"), (object(), "object"), (nn.Linear(2, 2), "Linear")):
        with pytest.raises(
            ValueError, match=rf"model is a {name}; accepted are hooks\.Transformer and transformer_lens"
        ):
            hooks.from_bridge(thing)
    with pytest.raises(
        ValueError, match=r"Wrap a torch module with hooks\.from_module \(docs/guides/bring_a_model\.md\)"
    ):
        hooks.from_bridge(nn.Linear(2, 2))
    for ours in (OURS, hooks.FullyConnected(hooks.FullyConnectedConfig(d_vocab=3, d_vocab_out=2, n_ctx=4))):
        with pytest.raises(ValueError, match=f"model is a {type(ours).__name__} of this package: it needs no adapter"):
            hooks.from_bridge(ours)


def test_sizes_and_hook_points_that_are_missing(as_a_user):
    own = own_model(OURS)
    sizes, right = "n_layers, n_heads, d_model, d_vocab, n_ctx", own.cfg
    del own.cfg
    with pytest.raises(ValueError, match=f"OwnModel.cfg is missing; needed are the attributes {sizes}"):
        hooks.from_bridge(own)
    own.cfg = SimpleNamespace(n_layers=2, d_model=16)
    with pytest.raises(
        ValueError, match=r"OwnModel.cfg \(a SimpleNamespace\) lacks n_heads, d_vocab, n_ctx; needed are"
    ):
        hooks.from_bridge(own)
    for name, bad, text in (
        ("n_heads", "2", "OwnModel.cfg.n_heads is '2'; it must be an integer"),
        ("n_layers", 0, "OwnModel.cfg.n_layers is 0; it must be"),
        ("n_layers", 3, "OwnModel.cfg.n_layers is 3, but OwnModel.blocks has 2 layers"),
        ("d_head", None, "has d_model 16 and n_heads 3, and no d_head: d_model is no multiple of n_heads"),
    ):
        own.cfg = copy.copy(right)
        setattr(own.cfg, name, bad)
        own.cfg.n_heads = 3 if name == "d_head" else own.cfg.n_heads
        with pytest.raises(ValueError, match=text):
            hooks.from_bridge(own)
    own.cfg, own.hook_dict = right, {}
    with pytest.raises(
        ValueError, match=r"OwnModel has no hook points; call self.setup\(\) at the end of its __init__"
    ):
        hooks.from_bridge(own)
    own.hook_dict = {"layer0.out": HookPoint()}
    with pytest.raises(
        ValueError, match=r"no hook point with a name of TransformerLens, but layer0.out\. Name them blo"
    ):
        hooks.from_bridge(own)


def test_output_must_be_logits(as_a_user):
    own = own_model(OURS)
    own.unembed = nn.Flatten()
    with pytest.raises(
        ValueError, match=r"the model's output is \(3, 96\); needed are logits \(batch, pos, vocabulary\)"
    ):
        hooks.from_bridge(own)
