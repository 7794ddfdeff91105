"""Hook points: canonical names, every edit takes effect or raises, no hook is left behind."""

import pytest
import torch

from hooks import HeadPattern, Transformer, TransformerConfig
from hooks.interventions.replacements import Zero

ENDS = ["hook_embed", "hook_pos_embed", "ln_final.hook_scale", "ln_final.hook_normalized"]
LAYER = [
    "hook_resid_pre",
    "ln1.hook_scale",
    "ln1.hook_normalized",
    "attn.hook_q",
    "attn.hook_k",
    "attn.hook_v",
    "attn.hook_attn_scores",
    "attn.hook_pattern",
    "attn.hook_z",
    "hook_attn_out",
    "hook_resid_mid",
    "ln2.hook_scale",
    "ln2.hook_normalized",
    "mlp.hook_pre",
    "mlp.hook_post",
    "hook_mlp_out",
    "hook_resid_post",
]
FIXED_FIRST = ((HeadPattern(kind="uniform"), HeadPattern(), HeadPattern()),)


def names(n_layers, ends=ENDS, layer=LAYER):
    return set(ends) | {f"blocks.{index}.{name}" for index in range(n_layers) for name in layer}


def hooks_of(model):
    return {name: len(point.fwd_hooks) + len(point.bwd_hooks) for name, point in model.hook_dict.items()}


@pytest.mark.parametrize("tied", [False, True])
def test_every_canonical_name_is_there(make, tokens, tied):
    model = make(tied=tied)
    assert set(model.hook_dict) == names(3)
    assert set(model.run_with_cache(tokens)[1].keys()) == names(3)


def test_names_of_the_other_variants(make):
    without_final = ENDS[:2]
    without_ln2 = [name for name in LAYER if not name.startswith("ln2")]
    assert set(make(block="post_ln").hook_dict) == names(3, without_final)
    assert set(make(block="dyck").hook_dict) == names(3, without_final, without_ln2)
    assert set(make(positions="none").hook_dict) == names(3) - {"hook_pos_embed"}
    assert set(make(vo_identity=True).hook_dict) == names(3, layer=[*LAYER, "attn.hook_result"])


def test_shapes_of_the_activations(make, tokens):
    _, cache = make(d_head=5, d_mlp=7, vo_identity=True).run_with_cache(tokens)
    head, square, wide = (4, 8, 3, 5), (4, 3, 8, 8), (4, 8, 12)
    by_name = {"hook_pattern": square, "hook_attn_scores": square, "hook_pre": (4, 8, 7), "hook_post": (4, 8, 7)}
    by_name |= {f"hook_{name}": head for name in "qkvz"} | {"hook_scale": (4, 8, 1), "hook_result": (4, 8, 3, 12)}
    for name, activation in cache.items():
        assert activation.shape == by_name.get(name.split(".")[-1], wide), name


def test_unknown_names_are_refused_with_the_nearest(make, tokens):
    model, words = make(), r"hook name 'blocks.0.attn.hook_patern' does not exist.*Nearest: blocks.0.attn.hook_pattern"
    with pytest.raises(ValueError, match=words):
        model.run_with_hooks(tokens, fwd_hooks=[("blocks.0.attn.hook_patern", Zero().hook())])
    with pytest.raises(ValueError, match=words):
        model.run_with_hooks(tokens, bwd_hooks=[("blocks.0.attn.hook_patern", Zero().hook())], reset_hooks_end=False)
    with pytest.raises(ValueError, match=words):
        model.add_hook("blocks.0.attn.hook_patern", Zero().hook())
    with pytest.raises(ValueError, match=words):
        model.hook_point("blocks.0.attn.hook_patern")
    for names_filter in ("blocks.0.attn.hook_patern", ["hook_embed", "blocks.0.attn.hook_patern"]):
        with pytest.raises(ValueError, match=words):
            model.run_with_cache(tokens, names_filter=names_filter)
    with pytest.raises(ValueError, match=r"hook name '\?' does not exist.*See model.hook_dict"):
        model.hook_point("?")
    assert not any(hooks_of(model).values())


def test_conditions_that_no_name_meets_are_refused(make, tokens):
    model, words = make(), "no hook name of this model meets the condition"
    with pytest.raises(ValueError, match=words):
        model.run_with_hooks(tokens, fwd_hooks=[(lambda name: "hook_patern" in name, Zero().hook())])
    with pytest.raises(ValueError, match=words):
        model.add_hook(lambda name: "hook_patern" in name, Zero().hook())
    with pytest.raises(ValueError, match=words):
        model.run_with_cache(tokens, names_filter=lambda name: "hook_patern" in name)


def test_hook_that_raises_leaves_no_hook_behind(make, tokens):
    def fail(activation, hook):
        raise RuntimeError("on purpose")

    model = make()
    before = model(tokens)
    hooks = [("blocks.0.hook_attn_out", Zero().hook()), ("blocks.1.attn.hook_pattern", fail)]
    with pytest.raises(RuntimeError, match="on purpose"):
        model.run_with_hooks(tokens, fwd_hooks=hooks)
    with pytest.raises(RuntimeError, match="on purpose"), model.hooks(fwd_hooks=hooks):
        model.run_with_cache(tokens)
    assert not any(hooks_of(model).values())
    assert torch.equal(model(tokens), before)


def test_users_own_hook_survives_a_run_with_other_hooks(make, tokens):
    model = make()
    model.add_hook("blocks.0.hook_attn_out", Zero().hook())
    alone = model(tokens)
    model.run_with_hooks(tokens, fwd_hooks=[("blocks.0.hook_attn_out", lambda out, hook: out + 1)])
    model.run_with_cache(tokens)
    assert {name for name, count in hooks_of(model).items() if count} == {"blocks.0.hook_attn_out"}
    assert torch.equal(model(tokens), alone)
    model.reset_hooks()
    assert not torch.allclose(model(tokens), alone, atol=1e-3)


def test_hooks_act_in_the_order_given(make, tokens):
    model, name = make(), "blocks.0.hook_attn_out"
    hooks = [(name, lambda out, hook: out * 0), (name, lambda out, hook: out + 1)]
    expected = model.run_with_hooks(tokens, fwd_hooks=[(name, lambda out, hook: torch.ones_like(out))])
    assert torch.equal(model.run_with_hooks(tokens, fwd_hooks=hooks), expected)


def test_hook_that_returns_nothing_changes_nothing(make, tokens):
    model, seen = make(), []
    logits = model.run_with_hooks(tokens, fwd_hooks=[(lambda name: True, lambda x, hook: seen.append(hook.name))])
    assert torch.equal(logits, model(tokens))
    assert len(seen) == len(set(seen)) == len(model.hook_dict)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("block", ["pre_ln", "post_ln", "dyck"])
def test_caching_everything_leaves_every_bit_of_the_logits(make, tokens, block, dtype):
    model = make(block=block, dtype=dtype, attention="causal", vo_identity=True, qk_identity=True)
    assert torch.equal(model.run_with_cache(tokens)[0], model(tokens))


def test_backward_hooks_see_gradients(make, tokens):
    model, seen = make(), []
    with model.hooks(bwd_hooks=[("blocks.1.hook_attn_out", lambda gradient, hook: seen.append(gradient))]):
        model(tokens).pow(2).sum().backward()
    _, cache = model.run_with_cache(tokens)
    attn_out = cache["attn_out", 1].requires_grad_()
    model.resume(cache["resid_pre", 1], 1, attn_out=attn_out).pow(2).sum().backward()
    torch.testing.assert_close(seen[0], attn_out.grad)


@pytest.mark.parametrize("name", ["hook_q", "hook_k"])
def test_query_of_a_hard_coded_head_cannot_be_edited(make, tokens, name):
    model = make(head_patterns=FIXED_FIRST)
    words = rf"edit of blocks.1.attn.{name} for head 0 would do nothing.*\(uniform\). Edit hook_pattern"
    with pytest.raises(ValueError, match=words):
        model.run_with_hooks(tokens, fwd_hooks=[(f"blocks.1.attn.{name}", Zero().hook(head=0))])
    with pytest.raises(ValueError, match=words):
        model.add_hook(f"blocks.1.attn.{name}", Zero().hook(head=0))
    for head in (1, None):
        edited = model.run_with_hooks(tokens, fwd_hooks=[(f"blocks.1.attn.{name}", Zero().hook(head=head))])
        assert not torch.allclose(edited, model(tokens), atol=1e-3)


def test_head_that_does_not_exist_is_refused_next_to_hard_coded_ones(make, tokens):
    with pytest.raises(ValueError, match=r"head is 3; blocks.1.attn.hook_q has heads 0 to 2"):
        make(head_patterns=FIXED_FIRST).run_with_hooks(
            tokens, fwd_hooks=[("blocks.1.attn.hook_q", Zero().hook(head=3))]
        )


def test_scores_are_masked_and_editable(make, tokens):
    model = make(attention="causal", head_patterns=FIXED_FIRST)
    _, cache = model.run_with_cache(tokens)
    later = torch.ones(8, 8).triu(1).bool()
    for layer in range(3):
        scores = cache["attn_scores", layer]
        assert (scores[..., later] == -torch.inf).all()
        assert scores[..., ~later].isfinite().all()
        assert torch.equal(scores.softmax(-1), cache["pattern", layer])

    def only_the_first_key(scores, hook):
        return scores.masked_fill(torch.arange(8) > 0, -torch.inf)

    with model.hooks(fwd_hooks=[("blocks.1.attn.hook_attn_scores", only_the_first_key)]):
        _, edited = model.run_with_cache(tokens)
    assert (edited["pattern", 1][..., 0] == 1).all()
    assert torch.equal(edited["z", 1], edited["v", 1][:, :1].expand(4, 8, 3, 4))


@pytest.mark.parametrize("block", ["pre_ln", "post_ln", "dyck"])
def test_zeroing_attn_out_is_a_layer_without_attention(make, tokens, block):
    model = make(block=block)
    zeroed = model.run_with_hooks(tokens, fwd_hooks=[("blocks.1.hook_attn_out", Zero().hook())])
    for parameter in model.weights[1].attention.o.parameters():
        parameter.data.zero_()
    torch.testing.assert_close(zeroed, model(tokens), atol=1e-12, rtol=0)


@pytest.mark.parametrize("norm", ["blocks.1.ln1", "blocks.2.ln2", "ln_final"])
def test_edited_scale_divides_instead_of_the_true_one(make, tokens, norm):
    model = make()
    _, clean = model.run_with_cache(tokens)
    with model.hooks(fwd_hooks=[(f"{norm}.hook_scale", lambda scale, hook: scale * 2)]):
        _, edited = model.run_with_cache(tokens)
    bias = model.get_submodule(norm).b
    halved = (clean[f"{norm}.hook_normalized"] - bias) / 2 + bias
    torch.testing.assert_close(edited[f"{norm}.hook_normalized"], halved, atol=1e-12, rtol=0)


def test_cached_scale_is_the_standard_deviation(make, tokens):
    model = make(layer_norm_eps=0.1)
    _, cache = model.run_with_cache(tokens)
    resid = cache["resid_pre", 1]
    expected = (resid.var(-1, keepdim=True, unbiased=False) + 0.1).sqrt()
    torch.testing.assert_close(cache["blocks.1.ln1.hook_scale"], expected, atol=1e-12, rtol=0)


def test_cache_may_be_filtered_and_without_batch(make, tokens):
    model = make()
    _, cache = model.run_with_cache(tokens, names_filter=["hook_embed", "blocks.2.hook_resid_post"])
    assert set(cache.keys()) == {"hook_embed", "blocks.2.hook_resid_post"}
    _, single = model.run_with_cache(tokens[:1], remove_batch_dim=True)
    assert single["pattern", 0].shape == (3, 8, 8)


def test_torchs_own_hooks_on_a_hook_point_fire_too(make, tokens):
    model = make()
    handle = model.hook_point("blocks.0.hook_attn_out").register_forward_pre_hook(lambda module, x: (x[0] * 0,))
    expected = make().run_with_hooks(tokens, fwd_hooks=[("blocks.0.hook_attn_out", Zero().hook())])
    assert torch.equal(model(tokens), expected)
    handle.remove()
    assert torch.equal(model(tokens), make()(tokens))


def test_parts_put_in_place_later_are_the_ones_used(make, tokens):
    model, other = make(), make(seed=2)
    model.weights[1].mlp = other.weights[1].mlp
    expected = make()
    expected.weights[1].mlp.load_state_dict(other.weights[1].mlp.state_dict())
    assert torch.equal(model(tokens), expected(tokens))
    model.weights[1].mlp = None
    assert model.weights[1].mlp is None


@torch.no_grad()
@pytest.mark.parametrize("block", ["pre_ln", "post_ln", "dyck"])
def test_a_cache_without_hooks_equals_one_by_hooks(make, block, tokens):
    """Recorded activations are those that hooks of TransformerLens's own cache get, scales of norms up to rounding."""
    model = make(block=block)
    logits, cache = model.run_with_cache(tokens)
    expected, by_hooks = model.run_with_cache(tokens, device="cpu")  # an option for which hooks are attached
    assert torch.equal(logits, expected)
    assert list(cache) == list(by_hooks)
    for name, activation in by_hooks.items():
        torch.testing.assert_close(cache[name], activation, rtol=1e-6, atol=1e-6)
        if not name.endswith("hook_scale"):
            assert torch.equal(cache[name], activation)


def test_a_cache_has_no_gradient_and_leaves_that_of_the_logits(make, tokens):
    model = make()
    logits, cache = model.run_with_cache(tokens)
    assert not any(activation.requires_grad for activation in cache.values())
    logits.sum().backward()
    expected = [weight.grad.clone() for weight in model.parameters()]
    model.zero_grad()
    model(tokens).sum().backward()
    for weight, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(weight.grad, gradient)


@torch.no_grad()
def test_a_cache_stores_what_hooks_of_the_caller_made(make, tokens):
    model = make()
    model.add_hook("blocks.1.hook_resid_post", lambda x, hook: x * 2)
    _, clean = make().run_with_cache(tokens)
    logits, cache = model.run_with_cache(tokens, names_filter=["blocks.1.hook_resid_post"])
    torch.testing.assert_close(cache["blocks.1.hook_resid_post"], 2 * clean["blocks.1.hook_resid_post"])
    assert torch.equal(logits, model(tokens))


@torch.no_grad()
def test_nothing_is_recorded_after_a_pass_or_an_error(make, tokens):
    model = make()
    model.run_with_cache(tokens)
    with pytest.raises(ValueError, match="depth is 9"):
        model.run_with_cache(tokens, depth=9)
    assert all(point.record is None for point in model.hook_dict.values())


@torch.no_grad()
def test_a_cache_within_a_hook_leaves_that_of_the_pass(make, tokens):
    """A hook may run the model again, with a cache of its own."""
    model = make()
    inner = {}

    def run_again(x, hook):
        if not inner:
            inner["running"] = True
            inner["cache"] = model.run_with_cache(tokens[:1], names_filter="blocks.0.hook_resid_pre")[1]
        return x

    with model.hooks([("blocks.1.hook_resid_pre", run_again)]):
        _, cache = model.run_with_cache(tokens)
    assert set(cache) == set(model.hook_dict)
    assert len(cache["blocks.2.hook_resid_post"]) == len(tokens)
    assert inner["cache"]["blocks.0.hook_resid_pre"].shape[0] == 1


@torch.no_grad()
def test_hooks_on_all_modules_are_called(make, tokens):
    """torch's global hooks see every map that a pass calls."""
    model = make()
    called = []
    handle = torch.nn.modules.module.register_module_forward_hook(
        lambda module, *_: called.append(type(module).__name__)
    )
    try:
        model(tokens)
    finally:
        handle.remove()
    assert {"Linear", "LayerNorm", "Attention", "MLP"} <= set(called)
    assert called.count("MLP") == model.cfg.n_layers


@pytest.mark.parametrize("names_filter", [[], (), ["hook_embed"], None])
def test_the_cache_has_the_names_that_were_chosen(names_filter):
    model = Transformer(TransformerConfig(d_vocab=5, d_model=8, n_heads=2, n_layers=1))
    _, cache = model.run_with_cache(torch.zeros(1, 3, dtype=torch.long), names_filter=names_filter)
    assert set(cache) == set(model.hook_dict if names_filter is None else names_filter)


@pytest.mark.parametrize("tokens", [[], (), [[]], [[], []]])
def test_a_list_without_tokens_is_refused(tokens):
    model = Transformer(TransformerConfig(d_vocab=5, d_model=8, n_heads=2, n_layers=1))
    with pytest.raises(ValueError, match=r"^tokens is .*, which has no tokens; pass a text, texts, or rows of ids\.$"):
        model(tokens)
