"""Running fewer layers, more layers, or from the middle."""

import pytest
import torch

from hooks import HeadPattern

FIXED = ((HeadPattern(kind="association"), HeadPattern(), HeadPattern(kind="uniform")),)


@pytest.mark.parametrize("tied", [False, True])
def test_depth_stops_after_that_many_layers(make, tokens, tied):
    model = make(tied=tied)
    logits, cache = model.run_with_cache(tokens)
    for depth in (1, 2):
        assert torch.equal(model(tokens, depth=depth), model.read_out(cache["resid_post", depth - 1]))
    assert torch.equal(model(tokens, depth=3), logits)
    assert not torch.allclose(model(tokens, depth=2), logits, atol=1e-3)


@pytest.mark.parametrize("depth", [0, 4])
def test_depth_that_the_model_does_not_have(make, tokens, depth):
    with pytest.raises(ValueError, match=rf"depth is {depth}; .* 1 to 3 layers.*model\.at_depth\({depth}\)"):
        make(tied=True)(tokens, depth=depth)


@pytest.mark.parametrize("vo_identity", [False, True])
def test_deeper_than_made_applies_the_one_block_again(make, tokens, vo_identity):
    model = make(tied=True, vo_identity=vo_identity)
    deeper = model.at_depth(5)
    _, cache = model.run_with_cache(tokens)
    last_two_layers = model.resume(cache["resid_post", 2], 1)
    assert torch.equal(deeper(tokens), last_two_layers)
    assert torch.equal(deeper(tokens, depth=3), model(tokens))
    assert (deeper.cfg.n_layers, model.cfg.n_layers) == (5, 3)


@pytest.mark.parametrize(("tied", "n_layers"), [(True, 5), (True, 1), (False, 2)])
def test_at_depth_shares_weights_and_has_hook_points_of_its_own(make, tokens, tied, n_layers):
    model = make(tied=tied, positions="sinusoidal" if tied else "learned")
    model.tokenizer = object()
    other = model.at_depth(n_layers)
    ours = dict(model.named_parameters())
    assert all(parameter is ours[name] for name, parameter in other.named_parameters())
    assert {name.split(".")[1] for name in other.hook_dict if name.startswith("blocks")} == set(
        map(str, range(n_layers))
    )
    assert all(other.hook_dict[name] is not model.hook_dict.get(name) for name in other.hook_dict)
    for layer in range(n_layers):
        ours, theirs = model.blocks[0 if tied else layer], other.blocks[layer]
        assert torch.equal(theirs.attn.W_O, ours.attn.W_O)
        assert theirs.ln1.w is ours.ln1.w
    assert torch.equal(other.ln_final.b, model.ln_final.b)
    assert other.tokenizer is model.tokenizer
    assert torch.equal(other(tokens), other.resume(*resid_and_layer(other, tokens, 0)))
    model.unembed.bias.data += 1
    assert torch.equal(other.b_U, model.b_U)


def resid_and_layer(model, tokens, layer):
    _, cache = model.run_with_cache(tokens)
    name = ("resid_pre", layer) if layer < model.cfg.n_layers else ("resid_post", layer - 1)
    return cache[name], layer


@pytest.mark.parametrize("training", [True, False])
def test_at_depth_keeps_the_mode(make, training):
    assert make(tied=True).train(training).at_depth(4).training == training


def test_untied_model_is_no_deeper_than_its_blocks(make, tokens):
    model = make()
    with pytest.raises(ValueError, match="n_layers is 4; an untied model has only its own 3 layers"):
        model.at_depth(4)
    assert torch.equal(model.at_depth(2)(tokens), model(tokens, depth=2))


@pytest.mark.parametrize("block", ["pre_ln", "post_ln", "dyck"])
@pytest.mark.parametrize("settings", [{}, {"tied": True}, {"attention": "causal"}, {"d_mlp": 0}], ids=str)
def test_resuming_at_any_layer_gives_the_same_logits(make, tokens, block, settings):
    model = make(block=block, **settings)
    logits, cache = model.run_with_cache(tokens)
    for layer in range(4):
        assert torch.equal(model.resume(*resid_and_layer(model, tokens, layer)), logits)
    for layer in range(3):
        resumed = model.resume(cache["resid_pre", layer], layer, attn_out=cache["attn_out", layer])
        assert torch.equal(resumed, logits)


def test_attn_out_given_is_what_attention_writes(make, tokens):
    model = make()
    _, cache = model.run_with_cache(tokens)
    other = cache["attn_out", 1] + 1
    edited = model.run_with_hooks(tokens, fwd_hooks=[("blocks.1.hook_attn_out", lambda out, hook: other)])
    assert torch.equal(model.resume(cache["resid_pre", 1], 1, attn_out=other), edited)


@pytest.mark.parametrize(("settings", "point"), [({}, "z"), ({"vo_identity": True}, "result")], ids=str)
def test_z_given_is_what_the_heads_write(make, tokens, settings, point):
    model = make(**settings)
    _, cache = model.run_with_cache(tokens)
    read_at = torch.tensor([[1, 3], [0, 7], [5, 5], [2, 6]])
    rows = torch.arange(4)[:, None], read_at
    for layer in range(3):
        resid, outputs = cache["resid_pre", layer], cache[point, layer].roll(1, 0)
        edit = (f"blocks.{layer}.attn.hook_{point}", lambda _, hook, outputs=outputs: outputs)
        edited = model.run_with_hooks(tokens, fwd_hooks=[edit])
        assert torch.equal(model.resume(resid, layer, z=outputs), edited)
        # Of the last layer, only the positions that are read
        z = outputs[rows] if layer == 2 else outputs
        resumed = model.resume(resid, layer, z=z, read_at=read_at)
        torch.testing.assert_close(resumed, edited[rows], atol=1e-12, rtol=0)


def test_resuming_uses_the_mask_and_hard_coded_heads(make, tokens):
    mask = torch.arange(8) < torch.tensor([8, 5, 1, 3])[:, None]
    model = make(head_patterns=FIXED)
    logits, cache = model.run_with_cache(tokens, mask)
    resumed = model.resume(cache["resid_pre", 1], 1, tokens=tokens, attention_mask=mask)
    assert torch.equal(resumed, logits)
    assert not torch.allclose(model.resume(cache["resid_pre", 1], 1, tokens=tokens), logits, atol=1e-3)
    with pytest.raises(ValueError, match="hard-coded heads, which depend on token ids: pass tokens as well"):
        model.resume(cache["resid_pre", 1], 1)


def test_resuming_outside_the_model_is_refused(make, tokens):
    model = make()
    resid = torch.zeros(4, 8, 12, dtype=torch.float64)
    for layer in (-1, 4):
        with pytest.raises(ValueError, match=rf"layer is {layer}; this model can resume at 0 to 3"):
            model.resume(resid, layer)
    with pytest.raises(ValueError, match="layer is 3; this model can resume at 0 to 2"):
        model.resume(resid, 3, attn_out=resid)
    with pytest.raises(ValueError, match="layer is 3; this model can resume at 0 to 2"):
        model.resume(resid, 3, z=resid[:, :, None])
