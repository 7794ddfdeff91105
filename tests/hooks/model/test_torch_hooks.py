"""Hooks attached in any way act or are refused: every hook point, every kind of model, training or not, any length."""

import pytest
import torch
from families import MIXED, MODELS, PATHWAYS, changed, each_way, model_of, tokens_of
from sampled import sampled
from torch import nn
from torch.nn.utils import prune

from hooks import (
    HeadPattern,
    LegoAttention,
    token_maps,
    verify,
)
from hooks.interventions.ablation_engine import AblationEngine
from hooks.interventions.replacements import Zero
from hooks.model.layers import HookPoint, has_hooks, hook_tables

KINDS = [
    "register_forward_hook",
    "register_forward_pre_hook",
    "register_full_backward_hook",
    "register_full_backward_pre_hook",
    "register_backward_hook",
]


RUNS = [(family, training, length) for family in MODELS for training in (True, False) for length in (16, 96)]
CHOSEN = [run for index, run in enumerate(RUNS) if (index % 4 in (0, 3)) == (index % 8 < 4)]
"""Each family in training and not, and at both lengths, together in turn."""


@pytest.mark.parametrize(("family", "training", "length"), sampled(RUNS, CHOSEN))
@pytest.mark.usefixtures("as_a_user")
@torch.no_grad()
def test_an_edit_of_any_point_attached_in_any_way_acts_and_acts_the_same(family, training, length):
    model = model_of(MODELS[family]).train(training)
    tokens = tokens_of(model, length)
    clean = model(tokens)
    for name in model.hook_dict:
        edits = dict(each_way(model, name, tokens))
        for way, logits in edits.items():
            assert (logits - clean).abs().max() > 1e-3, f"an edit of {name} by {way} is ignored"
            assert torch.equal(logits, edits["run_with_hooks"]), f"an edit of {name} by {way} differs"
    assert torch.equal(model(tokens), clean)


@pytest.mark.parametrize("family", MODELS)
@torch.no_grad()
def test_a_torch_hook_on_any_other_module_acts_or_is_refused(family):
    for training, length in ((True, 96), (False, 16)):
        model = model_of(MODELS[family]).train(training)
        tokens = tokens_of(model, length)
        clean = model(tokens)
        refused = set()
        for name, module in model.named_modules():
            if isinstance(module, HookPoint | nn.ModuleList) or module is model:
                continue
            handle = None
            try:
                handle = module.register_forward_hook(lambda module, args, out: changed(out))
                assert (model(tokens) - clean).abs().max() > 1e-3, f"a torch hook on {name} is ignored"
            except ValueError:
                refused.add(name)
            if handle is not None:
                handle.remove()
        sites = {name.rpartition(".")[0] for name in model.hook_dict} | {
            name for name, _ in model.named_modules() if name.removeprefix("blocks.").isdigit()
        }
        weights = {"first"} if family == "one_hot" else set()
        if family == "points on demand" or (family == "a I and b I" and not training):
            weights = {"weights.0.attention.o"}  # applied head by head
        if family == "points on demand":
            weights |= {"weights.0.attention", *(f"weights.0.attention.{name}" for name in "qkv")}
        assert refused == (sites - {"", "hook_pre"}) | weights


@pytest.mark.parametrize("method", KINDS)
def test_refusals_name_the_points_to_use_instead(method):
    model = model_of(MODELS["a I and b I"])
    expected = {
        "blocks.0": "LayerSites would be ignored.*instead: blocks.0.hook_resid_pre, .*blocks.0.hook_resid_post",
        "blocks.0.attn": "AttentionSites .*instead: blocks.0.attn.hook_q, .*, blocks.0.attn.hook_result",
        "blocks.0.mlp": "MLPSites .*instead: blocks.0.mlp.hook_pre, blocks.0.mlp.hook_post",
        "blocks.0.ln1": "NormSites .*instead: blocks.0.ln1.hook_scale, blocks.0.ln1.hook_normalized",
        "ln_final": "NormSites .*instead: ln_final.hook_scale, ln_final.hook_normalized",
    }
    for name, words in expected.items():
        with pytest.raises(ValueError, match=f"a torch hook on this {words}"):
            getattr(model.get_submodule(name), method)(print)
    with pytest.raises(ValueError, match=r"no forward pass calls the module.*instead: hook_pre.0"):
        getattr(model_of(MODELS["one_hot"]).first, method)(print)


@pytest.mark.parametrize("method", KINDS[:-1])
def test_every_kind_of_torch_hook_is_seen_and_runs(method):
    model, calls = model_of(MODELS["pre_ln"]).train(), []
    tokens = tokens_of(model, 96)
    for name in ("ln_final.hook_scale", "blocks.0.attn.hook_pattern", "blocks.0.attn.hook_attn_scores", "hook_embed"):
        point = model.hook_point(name)
        assert not has_hooks(point)
        handle = getattr(point, method)(lambda *args, name=name: calls.append(name))
        assert has_hooks(point)
        assert sum(map(len, hook_tables(point))) == 1
        model(tokens).square().sum().backward()
        assert calls.pop() == name
        assert not calls
        handle.remove()
        assert not has_hooks(point)


def test_a_backward_hook_of_torch_changes_gradients_like_a_bwd_hook():
    model = model_of(MODELS["pre_ln"]).train()
    tokens = tokens_of(model, 96)
    weight = model.weights[0].attention.q.weight

    def gradient():
        model.zero_grad()
        model(tokens).square().sum().backward()
        return weight.grad.clone()

    for name in ("blocks.0.ln1.hook_scale", "blocks.0.attn.hook_pattern", "blocks.0.attn.hook_q"):
        with model.hooks(bwd_hooks=[(name, lambda grad, hook: 3 * grad)]):
            expected = gradient()
        handle = model.hook_point(name).register_full_backward_hook(lambda module, into, out: (3 * out[0],))
        torch.testing.assert_close(gradient(), expected, rtol=1e-5, atol=1e-6)
        handle.remove()
        if "ln1" not in name:
            assert (expected - gradient()).abs().max() > 1e-3


@pytest.mark.parametrize("family", ["pre_ln", "bare", "a I and b I", "patterns", "pathways", "encoder", "tied"])
@torch.no_grad()
def test_edits_act_when_a_pass_resumes(family):
    model = model_of(MODELS[family]).train()
    tokens = tokens_of(model, 96)
    resid = model.run_with_cache(tokens, names_filter="blocks.0.hook_resid_pre")[1]["blocks.0.hook_resid_pre"]
    read_at = torch.tensor([[3, 70], [5, 6]])
    clean = model.resume(resid, 0, tokens=tokens, read_at=read_at)
    for name in model.hook_dict:
        if name.startswith(("blocks.", "ln_final.")):
            point = model.hook_point(name)
            handle = point.register_forward_hook(lambda module, args, out: changed(out))
            edited = model.resume(resid, 0, tokens=tokens, read_at=read_at)
            assert (edited - clean).abs().max() > 1e-3, name
            handle.remove()
    block, calls = model.block(0), []
    handle = block.register_forward_hook(lambda *args: calls.append(1))
    model.resume(resid, 0, attn_out=torch.zeros_like(resid), tokens=tokens)
    assert len(calls) == (2 if family == "tied" else 1)
    handle.remove()


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("heads", [PATHWAYS, [*MIXED, HeadPattern(kind="uniform"), HeadPattern(kind="association")]])
@torch.no_grad()
def test_torch_hooks_on_the_points_of_lego_attention_act(heads, training):
    attention = LegoAttention(8, heads, d_head=2).train(training)
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(9, (2, 96), generator=generator)
    tokens[:, 0] = 1
    maps = token_maps(tokens, None, heads=attention.heads, d_vocab=9)
    x = torch.randn(2, 96, 8, generator=generator)
    clean = attention(x, maps)
    points = {name: module for name, module in attention.named_modules() if isinstance(module, HookPoint)}
    assert len(points) == 6
    for name, point in points.items():
        handle = point.register_forward_pre_hook(lambda module, args: (changed(args[0]),))
        assert (attention(x, maps) - clean).abs().max() > 1e-3, name
        handle.remove()


def test_verify_ignores_the_callers_torch_hooks_and_leaves_them():
    model = model_of(MODELS["pre_ln"]).eval()
    model.hook_point("blocks.0.attn.hook_z").register_forward_hook(lambda module, args, out: out * 0)
    assert verify(model).ok
    assert len(model.hook_point("blocks.0.attn.hook_z")._forward_hooks) == 1


def test_a_fully_connected_network_names_the_nearest_hook():
    model = model_of(MODELS["one_hot"])
    with pytest.raises(ValueError, match=r"hook name 'hook_pre.7' does not exist.*Nearest: hook_pre"):
        model.run_with_hooks(tokens_of(model, 16), fwd_hooks=[("hook_pre.7", changed)])


@pytest.mark.parametrize("family", ["no_norm", "a I and b I", "points on demand"])
@torch.no_grad()
def test_ablation_under_a_callers_hook_is_right_or_refused(family):
    model = model_of(MODELS[family]).eval()
    tokens, output = tokens_of(model, 16), "hook_result" if model.cfg.vo_identity else "hook_z"
    refused = set()
    for name in model.hook_dict:
        model.add_hook(name, changed)
        try:
            ablated = dict(AblationEngine(model, tokens).each_head(Zero()))
        except ValueError:
            refused.add(name)
        else:
            for (layer, head), logits in ablated.items():
                edit = (f"blocks.{layer}.attn.{output}", Zero().hook(head=head))
                expected = model.run_with_hooks(tokens, fwd_hooks=[edit])
                torch.testing.assert_close(logits, expected, rtol=1e-3, atol=1e-3)
        model.reset_hooks()
    on_demand = {"blocks.0.attn.hook_result"} if family == "points on demand" else set()
    assert refused == {"blocks.0.hook_resid_pre", "blocks.0.hook_attn_out"} | on_demand


@pytest.mark.parametrize("family", ["pre_ln", "a I and b I"])
def test_torchs_pruning_is_not_refused(family):
    model = model_of(MODELS[family]).eval()
    tokens = tokens_of(model, 16)
    for matrix in (model.weights[0].attention.o, model.weights[0].attention.q):
        prune.l1_unstructured(matrix, "weight", amount=0.5)
    expected = model.run_with_hooks(tokens, fwd_hooks=[("blocks.0.hook_attn_out", lambda out, hook: out)])
    torch.testing.assert_close(AblationEngine(model, tokens).logits, expected)


def test_split_inputs_refuse_a_torch_hook_on_attention():
    model = model_of(MODELS["points on demand"])
    model.weights[0].attention.register_forward_hook(lambda module, args, out: changed(out))
    with pytest.raises(ValueError, match=r"a torch hook on attention would be ignored.*Attach it to hook_attn_out"):
        model(tokens_of(model, 16))


def test_ablation_says_where_a_hook_cannot_be():
    model = model_of(MODELS["tied"])
    tokens = tokens_of(model, 16)
    for name, other in {
        "blocks.0.hook_resid_pre": "hook_embed",
        "blocks.1.hook_resid_pre": "blocks.0.hook_resid_post",
        "blocks.1.hook_attn_out": "blocks.1.attn.hook_z",
    }.items():
        handle = model.hook_point(name).register_forward_hook(lambda *args: None)
        with pytest.raises(ValueError, match=f"attached to {name}, from which ablation resumes.*attach it to {other}"):
            AblationEngine(model, tokens)
        handle.remove()
    for module in (model.weights[0].attention, model.weights[0].attention.o):
        handle = module.register_forward_hook(lambda *args: None)
        with pytest.raises(ValueError, match=r"to the attention of layer 0.*attach it to blocks.0.attn.hook_z"):
            AblationEngine(model, tokens)
        handle.remove()


def compile_in_place(model):
    model.compile(backend="eager")


def compile_a_block(model):
    model.weights[1].compile(backend="eager")


def replace_an_mlp(model):
    model.weights[0].mlp = torch.compile(model.weights[0].mlp, backend="eager")


@pytest.mark.parametrize("compile_part", [compile_in_place, compile_a_block, replace_an_mlp])
def test_hooks_of_compiled_models_are_refused(make, tokens, compile_part):
    model = make()
    compile_part(model)
    name = "blocks.1.hook_resid_pre"
    calls = [
        lambda: model.run_with_hooks(tokens, fwd_hooks=[(name, lambda value, hook: value * 2)]),
        lambda: model.run_with_cache(tokens),
        lambda: model.add_hook(name, lambda value, hook: value * 2),
        lambda: verify(model),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="is compiled, and would run without hooks"):
            call()


@pytest.mark.parametrize("name", ["blocks.1.hook_resid_pre", "blocks.0.hook_resid_post", "blocks.1.hook_attn_out"])
@pytest.mark.parametrize("returns", [True, False])
def test_an_edit_in_place_changes_only_what_comes_after(make, tokens, name, returns):
    model = make()
    _, clean = model.run_with_cache(tokens)

    def edit(value, hook):
        value[:, 2] += 1
        return value if returns else None

    with model.hooks([(name, edit)]):
        logits, cache = model.run_with_cache(tokens)
    names = list(cache)
    for earlier in names[: names.index(name)]:
        assert torch.equal(cache[earlier], clean[earlier]), earlier
    assert not torch.equal(logits, model(tokens))
