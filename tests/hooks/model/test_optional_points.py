"""Hook points that exist on demand: split inputs of queries, keys and values, head results, MLP inputs."""

import copy

import pytest
import torch
from transformer_lens import patching

import hooks
from hooks.interventions.replacements import Zero, patch

BLOCKS = ("pre_ln", "post_ln", "dyck", "minimal", "bare", "extended")
SETTINGS = [
    {},
    {"tied": True, "block": "post_ln"},
    {"tied": True},
    {"qk_identity": True, "vo_identity": True},
    {"attention": "causal", "attn_bias": False, "d_head": 5},
    {"d_mlp": 0, "output_projection": False},
    *({"block": block} for block in BLOCKS[1:]),
    {"block": "no_norm"},
]
INPUTS = [f"blocks.{layer}.attn.hook_{name}_input" for layer in range(3) for name in "qkv"]


def close(ours, theirs, *, within=1e-12):
    torch.testing.assert_close(ours, theirs, atol=within, rtol=1e-10)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_split_inputs_exist_on_demand_and_change_nothing(make, tokens, settings):
    model = make(**settings)
    before, names, keys = model(tokens), list(model.hook_dict), list(model.state_dict())
    assert not set(INPUTS) & set(names)
    model.set_use_split_qkv_input(True)
    assert model.cfg.use_split_qkv_input
    assert set(model.hook_dict) == {*names, *INPUTS}
    assert list(model.state_dict()) == keys
    assert not any(module.training for module in model.modules())
    close(model(tokens), before)
    _, cache = model.run_with_cache(tokens)
    for name in INPUTS:
        stream = cache[f"blocks.{name[7]}.hook_resid_pre"]
        assert torch.equal(cache[name], stream[:, :, None].expand(-1, -1, 3, -1))
    model.set_use_split_qkv_input(False)
    assert list(model.hook_dict) == names
    assert not model.cfg.use_split_qkv_input
    assert torch.equal(model(tokens), before)


@pytest.mark.parametrize(
    "settings", [{"n_layers": 2}, {"tied": True, "block": "post_ln"}, {"block": "no_norm"}], ids=str
)
def test_every_new_point_fires_once_and_acts(make, settings):
    model = make(**settings)
    model.set_use_split_qkv_input(True)
    model.set_use_attn_result(True)
    if model.cfg.block != "post_ln":
        model.set_use_hook_mlp_in(True)
    report = hooks.verify(model)
    assert report.ok, report
    assert set(model.hook_dict) == set(report.fires)


@pytest.mark.parametrize(("settings", "name"), [*((one, "q") for one in SETTINGS), ({}, "k"), ({}, "v")], ids=str)
def test_an_edit_reaches_one_head_alone(make, tokens, settings, name):
    model = make(**settings)
    change = torch.randn(4, 8, 12, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    model.set_use_split_qkv_input(True)
    _, clean = model.run_with_cache(tokens)

    def add(copies, hook):
        copies[:, :, 1] += change  # in place, as hooks often do

    at, seen = model.blocks[1], {}
    hooked = [(f"blocks.1.attn.hook_{name}_input", add)]
    hooked += [(f"blocks.1.attn.hook_{one}", lambda x, hook: seen.update({hook.name[-1]: x})) for one in "qkv"]
    hooked.append(("blocks.1.hook_resid_pre", lambda x, hook: seen.update(stream=x)))
    model.run_with_hooks(tokens, fwd_hooks=hooked)
    assert torch.equal(seen["stream"], clean["resid_pre", 1])
    read = clean["resid_pre", 1] + change
    if model.cfg.block == "pre_ln":
        centred = read - read.mean(-1, keepdim=True)
        read = centred / (centred.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * at.ln1.w + at.ln1.b
    upper = name.upper()
    expected = read @ getattr(at.attn, f"W_{upper}")[1] + getattr(at.attn, f"b_{upper}")[1]
    close(seen[name][:, :, 1], expected)
    for one in "qkv":
        heads = [0, 2] if one == name else [0, 1, 2]
        assert torch.equal(seen[one][:, :, heads], clean[one, 1][:, :, heads])


def test_identity_terms_read_the_copies(make, tokens):
    """a x x^T reads the copies of queries and keys, b A x that of values."""
    model = make(qk_identity=True, vo_identity=True)
    model.set_use_split_qkv_input(True)
    _, clean = model.run_with_cache(tokens)
    attn, noise = model.blocks[1].attn, torch.Generator().manual_seed(3)
    edited = {name: torch.randn(4, 8, 3, 12, generator=noise, dtype=torch.float64) for name in "qkv"}
    hooked = [(f"blocks.1.attn.hook_{name}_input", lambda x, hook, new=new: new) for name, new in edited.items()]
    with model.hooks(fwd_hooks=hooked):
        _, cache = model.run_with_cache(tokens, names_filter=lambda name: name.startswith("blocks.1."))
    read = {name: model.weights[1].norm_1(new, copy.deepcopy(model.blocks[1].ln1)) for name, new in edited.items()}
    q, k, v = (torch.einsum("bphd,hde->bhpe", read[n], getattr(attn, f"W_{n.upper()}")) for n in "qkv")
    q, k, v = (x + getattr(attn, f"b_{n.upper()}")[:, None] for n, x in zip("qkv", (q, k, v), strict=True))
    scores = q @ k.mT / model.cfg.attn_scale
    weights = model.weights[1].attention
    scores = scores + weights.a[:, None, None] * read["q"].transpose(1, 2) @ read["k"].permute(0, 2, 3, 1)
    close(cache["blocks.1.attn.hook_attn_scores"], scores)
    pattern = scores.softmax(-1)
    results = pattern @ v @ attn.W_O + weights.b[:, None, None] * (pattern @ read["v"].transpose(1, 2))
    close(cache["blocks.1.hook_attn_out"], results.sum(1) + attn.b_O)
    assert not torch.allclose(cache["blocks.1.hook_attn_out"], clean["attn_out", 1])


@pytest.mark.parametrize("point", ["hook_scale", "hook_normalized"])
def test_hooks_on_the_norm_act_on_all_copies(make, tokens, point):
    model = make()
    double = [(f"blocks.1.ln1.{point}", lambda x, hook: 2 * x)]
    before = model.run_with_hooks(tokens, fwd_hooks=double)
    model.set_use_split_qkv_input(True)
    close(model.run_with_hooks(tokens, fwd_hooks=double), before)
    assert not torch.allclose(model(tokens), before)


@pytest.mark.parametrize("settings", [{}, {"block": "dyck"}, {"tied": True}], ids=str)
def test_gradients_are_the_same(make, tokens, settings):
    model = make(**settings)
    expected = torch.autograd.grad(model(tokens).square().mean(), list(model.parameters()))
    model.set_use_split_qkv_input(True)
    found = torch.autograd.grad(model(tokens).square().mean(), list(model.parameters()))
    for ours, theirs in zip(found, expected, strict=True):
        close(ours, theirs, within=1e-9)  # sums in another order; how much they differ depends on the processor


def test_padding_resumption_and_training(make, tokens):
    model = make()
    mask = torch.ones_like(tokens)
    mask[:, 6:] = 0
    _, cache = model.run_with_cache(tokens, mask)
    at = torch.tensor([[0, 3], [7, 1], [2, 2], [5, 4]])
    padded, resumed = model(tokens, mask), model.resume(cache["resid_pre", 1], 1, read_at=at)
    model.set_use_split_qkv_input(True)
    close(model(tokens, mask), padded)
    shapes = {}
    points = [("blocks.2.attn.hook_q_input", lambda x, hook: shapes.update(q=x.shape))]
    points.append(("blocks.2.attn.hook_k_input", lambda x, hook: shapes.update(k=x.shape)))
    with model.hooks(fwd_hooks=points):
        close(model.resume(cache["resid_pre", 1], 1, read_at=at), resumed)
    assert shapes == {"q": (4, 2, 3, 12), "k": (4, 8, 3, 12)}
    long = make(n_ctx=80).train()
    many = tokens.repeat(1, 9)
    before = long(many)
    long.set_use_split_qkv_input(True)
    close(long(many), before)
    assert long.blocks[0].attn.hook_q_input.training


def test_a_model_changes_alone_and_keeps_its_hooks(make, tokens):
    model = make()
    other = hooks.Transformer(model.cfg)
    model.set_use_split_qkv_input(True)
    assert not other.cfg.use_split_qkv_input
    assert other.cfg == model.cfg
    assert "split" not in str(model.cfg.to_dict())
    assert not model.at_depth(2).cfg.use_split_qkv_input
    clean = model(tokens)
    model.add_hook("blocks.1.attn.hook_v_input", Zero().hook(head=2))
    edited = model(tokens)
    assert not torch.allclose(edited, clean)
    model.set_use_split_qkv_input(True)
    copied = copy.deepcopy(model)
    assert torch.equal(model(tokens), edited)
    assert torch.equal(copied(tokens), edited)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_head_results_on_demand(make, tokens, settings):
    model = make(**settings)
    before, names = model(tokens), list(model.hook_dict)
    model.set_use_attn_result(True)
    close(model(tokens), before)
    _, cache = model.run_with_cache(tokens)
    for layer in range(3):
        close(cache["result", layer].sum(2) + model.blocks[layer].attn.b_O, cache["attn_out", layer])
    model.set_use_attn_result(False)
    assert list(model.hook_dict) == names
    assert ("blocks.0.attn.hook_result" in names) == ("vo_identity" in settings)


def test_an_edited_result_is_an_edit_of_z(make, tokens):
    model = make(n_ctx=80).train()  # from 64 tokens, training computes attention in one kernel
    many = tokens.repeat(1, 9)
    expected = model.run_with_hooks(many, fwd_hooks=[("blocks.1.attn.hook_z", Zero().hook(head=2))])
    model.set_use_attn_result(True)
    close(model.run_with_hooks(many, fwd_hooks=[("blocks.1.attn.hook_result", Zero().hook(head=2))]), expected)


def test_mlp_inputs_on_demand(make, tokens):
    model = make()
    before, names = model(tokens), list(model.hook_dict)
    _, cache = model.run_with_cache(tokens)
    model.set_use_hook_mlp_in(True)
    assert model.cfg.use_hook_mlp_in
    assert set(model.hook_dict) - set(names) == {f"blocks.{layer}.hook_mlp_in" for layer in range(3)}
    assert torch.equal(model(tokens), before)

    def double(x, hook):
        x.mul_(2).add_(cache["embed"])

    with model.hooks(fwd_hooks=[("blocks.1.hook_mlp_in", double)]):
        _, edited = model.run_with_cache(tokens, names_filter=lambda name: "blocks.1." in name)
    read = 2 * cache["resid_mid", 1] + cache["embed"]
    at = model.blocks[1]
    hidden = torch.nn.functional.gelu(at.ln2(read) @ at.mlp.W_in + at.mlp.b_in)
    close(edited["blocks.1.hook_resid_post"], cache["resid_mid", 1] + hidden @ at.mlp.W_out + at.mlp.b_out)
    model.set_use_hook_mlp_in(False)
    assert list(model.hook_dict) == names


def test_what_raises(make, tokens):
    fixed = make(head_patterns=((hooks.HeadPattern(), hooks.HeadPattern(kind="association"), hooks.HeadPattern()),))
    for method in ("set_use_split_qkv_input", "set_use_attn_result"):
        with pytest.raises(
            ValueError, match=f"{method} needs heads that are all learned, but head_patterns hard-codes"
        ):
            getattr(fixed, method)(True)
        getattr(fixed, method)(False)
    for settings in ({"block": "post_ln"}, {"d_mlp": 0}):
        with pytest.raises(
            ValueError, match="set_use_hook_mlp_in needs pre_ln or no_norm blocks with an MLP; block is"
        ):
            make(**settings).set_use_hook_mlp_in(True)
    for name, setter in (("attn.hook_k_input", "split_qkv_input"), ("hook_mlp_in", "hook_mlp_in")):
        with pytest.raises(
            ValueError, match=rf"does not exist in this model. model.set_use_{setter}\(True\) adds this"
        ):
            make().run_with_hooks(tokens, fwd_hooks=[(f"blocks.1.{name}", Zero().hook())])


@pytest.mark.parametrize(("name", "point"), [("q", "hook_q"), ("k", "hook_k"), ("v", "hook_v"), ("o", "hook_attn_out")])
def test_torch_hooks_on_maps_that_are_not_called(make, tokens, name, point):
    model = make()
    handle = getattr(model.weights[1].attention, name).register_forward_hook(lambda module, inputs, output: 2 * output)
    assert not torch.allclose(model(tokens), make()(tokens))
    (model.set_use_attn_result if name == "o" else model.set_use_split_qkv_input)(True)
    with pytest.raises(ValueError, match=f"a torch hook on attention.{name} would be ignored.*Attach it to {point} of"):
        model(tokens)
    handle.remove()
    close(model(tokens), make()(tokens))


@pytest.mark.parametrize(
    ("name", "settings"),
    [("q", {"tied": True, "attention": "causal"}), ("k", {}), ("v", {}), ("v", {"block": "no_norm"})],
)
def test_direct_paths_are_the_edits_they_stand_for(make, tokens, name, settings):
    """A path from head (s, i) to head (d, j): queries of j read a stream in which i's output is replaced."""
    model, tokens = make(**settings), tokens[:2]
    corrupted = (tokens + torch.arange(8)) % 11

    def metric(logits):
        return logits[:, -1, 3].mean() - logits[:, 2, 5].mean()

    with torch.no_grad():
        _, cache = model.run_with_cache(tokens)
        _, other = model.run_with_cache(corrupted)
        tool = patching.get_act_patch_direct_path_all_sources
        found = tool(model, corrupted, cache, other, metric, component=name, verbose=False)
        assert not model.cfg.use_split_qkv_input
        for source, head, layer, to in [(0, 0, 1, 2), (0, 1, 2, 0), (1, 2, 2, 1)]:
            attn, point = model.blocks[layer].attn, f"blocks.{layer}.attn.hook_{name}"
            difference = (cache["z", source] - other["z", source])[:, :, head]
            read = other["resid_pre", layer] + difference @ model.blocks[source].attn.W_O[head]
            read = read if model.cfg.block == "no_norm" else model.blocks[layer].ln1(read)
            new = read @ getattr(attn, f"W_{name.upper()}")[to] + getattr(attn, f"b_{name.upper()}")[to]
            hook = patch(new[:, :, None].expand(-1, -1, 3, -1), head=to)
            expected = metric(model.run_with_hooks(corrupted, fwd_hooks=[(point, hook)]))
            close(found[source, head, layer, to].double(), expected, within=1e-6 * max(1, abs(float(expected))))
        assert found[0, 0, 0].abs().sum() == found[2].abs().sum() == 0
        assert found.unique().numel() > 20


@pytest.mark.parametrize("block", BLOCKS[1:])
def test_direct_paths_need_an_additive_stream(make, tokens, block):
    model = make(block=block)
    _, cache = model.run_with_cache(tokens)
    with pytest.raises(ValueError, match="direct path patching is unsupported here"):
        patching.get_act_patch_direct_path(model, tokens, cache, cache, lambda logits: logits.sum(), 0, 0)
