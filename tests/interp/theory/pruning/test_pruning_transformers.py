"""Pruning random transformers to trained ones: streams, logits, masks, bounds and error messages."""

import copy
import re
from itertools import pairwise

import pytest
import torch
from eq6_targets import EQ6, NARROW, QUICK, logits, target_of, tokens_for
from torch.nn.utils import prune

from hooks import BracketStates, FullyConnected, FullyConnectedConfig, HeadPattern, Transformer, TransformerConfig
from interp.theory.pruning import indistinguishable, prune_to_layer, prune_to_transformer, random_network
from interp.theory.pruning.network import trimmed
from interp.theory.pruning.shared_matrix import MATRICES
from interp.theory.pruning.target import in_float64
from interp.theory.pruning.transformers import prune_network, sequences

KINDS = {
    "plain": {},
    "causal, no positions": {"attention": "causal", "positions": "none"},
    "linear positions": {"positions": "linear"},
    "two layers": {"n_layers": 2},
    "tied": {"n_layers": 2, "tied": True},
    "identities": {"qk_identity": True, "vo_identity": True},
    "no MLP": {"d_mlp": 0},
    "wide MLP, other classes": {"d_mlp": 14, "d_vocab_out": 3},
    "tied embedding": {"tied_embedding": True},
    "odd heads": {"d_head": 3, "attn_scale": 1.0, "attn_bias": False},
}


@pytest.mark.parametrize("settings", KINDS.values(), ids=KINDS)
def test_random_transformer_is_pruned_to_the_target(settings):
    target = target_of(**settings)
    before = copy.deepcopy(target.state_dict())
    result = prune_to_transformer(target, candidates=18, rescale=True, n=16)
    tokens = tokens_for(target)
    error = (logits(result.network, tokens) - logits(target, tokens)).abs().max()
    spread = logits(target, tokens).std()
    assert error < 0.02 * spread
    assert result.error < 0.05 * spread
    assert result.network.cfg.n_layers == 4 * target.cfg.n_layers == len(result.layers)
    assert all(torch.equal(value, before[name]) for name, value in target.state_dict().items())
    assert (result.growth <= result.bound).all()


def test_streams_follow_the_target_after_every_random_layer():
    """After each random layer the stream is the target's after attention or the MLP; identity layers keep it."""
    target = target_of(n_layers=2)
    result = prune_to_transformer(target, candidates=18, rescale=True, n=16)
    assert result.layers == (
        "attention of layer 0", "MLP of layer 0", "attention of layer 1", "MLP of layer 1", *["identity"] * 4
    )  # fmt: skip
    tokens, exact = tokens_for(target), in_float64(target)
    _, wanted = exact.run_with_cache(tokens)
    _, found = copy.deepcopy(result.network).double().run_with_cache(tokens)
    names = ["blocks.0.hook_resid_mid", "blocks.0.hook_resid_post", "blocks.1.hook_resid_mid"]
    names += ["blocks.1.hook_resid_post"] * 5
    for index, name in enumerate(names):
        stream = found[f"blocks.{index}.hook_resid_post"]
        torch.testing.assert_close(stream[..., :4], wanted[name], atol=0.02, rtol=0)
        torch.testing.assert_close(stream[..., 4], torch.ones_like(stream[..., 4]), atol=0.01, rtol=0)
        assert (stream[..., 5:] == 0).all()
    for index in (1, 3, 4, 5, 6, 7):
        assert (found[f"blocks.{index}.hook_attn_out"] == 0).all()


def test_kept_weights_are_the_random_ones():
    target = target_of()
    source = random_network(target.cfg, candidates=10, seed=4)
    assert 0.99 < max(weight.abs().max() for weight in source.weights.parameters()) <= 1
    loud = random_network(target.cfg, candidates=10, scale=4.0)
    assert 1.99 < max(weight.abs().max() for weight in loud.weights.parameters()) <= 2
    before = copy.deepcopy(source.state_dict())
    result = prune_to_transformer(target, candidates=10, rescale=True, network=source, n=8)
    assert all(torch.equal(value, before[name]) for name, value in source.state_dict().items())
    for name, module in result.network.named_modules():
        if name in result.weights:
            assert prune.is_pruned(module)
            assert torch.equal(module.weight_orig, before[f"{name}.weight"])
            assert torch.equal(module.weight, module.weight_orig * module.weight_mask)
            assert result.weights[name] == (int(module.weight_mask.sum()), module.weight_mask.numel())
            assert module.weight_mask[tuple(result.kept[name].T)].all()
    assert len(result.weights) == 4 * len(MATRICES)
    assert 0 < result.fraction_kept < 0.02


def test_a_given_network_is_pruned_and_reported_at_its_own_scale():
    target = target_of()
    for scale in (1.0, 9.0):
        source = random_network(target.cfg, candidates=12, scale=scale, seed=4)
        found = prune_to_transformer(target, candidates=12, rescale=True, network=source, n=8)
        used = max(weight.abs().max() for name, weight in source.weights.named_parameters() if weight.ndim == 2)
        assert found.scale == pytest.approx(float(used) ** 2)
        assert found.scale == pytest.approx(scale, rel=1e-2)
        assert found.scale <= scale


def test_trimmed_network_is_smaller_and_equal():
    target = target_of()
    network = prune_network(random_network(target.cfg, candidates=10), target, 10, target_layers=[0]).network
    small, tokens = trimmed(network), tokens_for(target)
    torch.testing.assert_close(small(tokens), logits(network, tokens), atol=1e-9, rtol=1e-9)
    count = [sum(p.numel() for p in one.parameters()) for one in (small, network)]
    assert count[0] < count[1] / 4


def test_error_and_bound_fall_with_the_candidates():
    target = target_of(layer_norm_eps=0.1)
    found = [prune_to_transformer(target, candidates=n, rescale=True, n=16) for n in (8, 13, 18)]
    for worse, better in pairwise(found):
        assert better.error < worse.error / 3
        assert better.bound[-1] < worse.bound[-1] / 3
    assert found[-1].bound[-1] < 300 * found[-1].growth[-1]  # with a large eps the bound is informative


def test_two_random_layers_are_pruned_to_one():
    target = target_of(n_layers=2)
    result = prune_to_layer(target, 1, candidates=18, rescale=True, n=16)
    assert result.layers == ("attention of layer 1", "MLP of layer 1")
    _, cache = in_float64(target).run_with_cache(tokens_for(target))
    stream = cache["blocks.1.hook_resid_pre"]
    wide = torch.cat([stream, torch.ones(50, 9, 1), torch.zeros(50, 9, 15)], -1).double()
    _, found = trimmed(result.network).run_with_cache(tokens_for(target))
    assert found["blocks.1.hook_resid_post"].shape[-1] == 20
    after = copy.deepcopy(result.network).double()
    seen = {}
    with torch.no_grad(), after.hooks([("blocks.1.hook_resid_post", lambda x, hook: seen.update(x=x))]):
        after.resume(wide, 0)
    error = (seen["x"][..., :4] - cache["blocks.1.hook_resid_post"]).norm(dim=-1).max()
    assert error < 0.02
    assert (result.growth <= result.bound).all()


def test_a_longer_search_finds_larger_errors(monkeypatch):
    target = target_of()
    short = prune_to_transformer(target, **QUICK)
    monkeypatch.setattr("interp.theory.pruning.search.STREAM_STEPS", 12)
    monkeypatch.setattr("interp.theory.pruning.transformers.EXCHANGES", 20)
    found = prune_to_transformer(target, **QUICK)
    assert found.error > short.error >= short.sampled_error == found.sampled_error
    assert (found.growth >= short.growth).all()
    assert found.growth[-1] > short.growth[-1]
    assert found.n > short.n


def test_errors_and_order_are_measured_on_the_sequences():
    target = target_of()
    result = prune_to_transformer(target, **QUICK)
    again = prune_to_transformer(target, **QUICK)
    assert (result.error, result.sampled_error, result.order_kept) == (
        again.error,
        again.sampled_error,
        again.order_kept,
    )
    assert 0 < result.sampled_error <= result.error
    assert 0 < result.order_kept <= 1
    poor = prune_to_transformer(target, candidates=3, rescale=True, n=24)
    tokens = sequences(target, None, 24, 0)
    pairs = [one(tokens).argsort(-1) for one in (in_float64(target), trimmed(poor.network))]
    assert poor.order_kept == (pairs[0] == pairs[1]).all(-1).double().mean() < result.order_kept
    other = prune_to_transformer(target, **QUICK, seed=1)
    assert other.error != result.error


def test_tolerance_error_names_a_sufficient_number_of_candidates():
    target = target_of()
    with pytest.raises(
        ValueError, match=r"candidates is 10: the largest error found is .*, above the tolerance of 0\.05\. \d+ cand"
    ) as caught:
        prune_to_transformer(target, candidates=10, rescale=True, n=16, tolerance=0.05)
    enough = int(re.findall(r"(\d+) candidates reach", str(caught.value))[0])
    assert prune_to_transformer(target, candidates=enough, rescale=True, n=16, tolerance=0.05).sampled_error <= 0.05
    with pytest.raises(ValueError, match="above the tolerance"):
        prune_to_transformer(target, candidates=enough - 2, rescale=True, n=16, tolerance=0.05)
    source = random_network(target.cfg, candidates=6)
    with pytest.raises(
        ValueError, match=r"above the tolerance of 0\.05\. Raise the tolerance, or give a wider random network"
    ):
        prune_to_transformer(target, candidates=6, rescale=True, n=16, tolerance=0.05, network=source)
    with pytest.raises(ValueError, match=r"tolerance of 0\.02\. \d+ candidates reach it"):
        prune_to_layer(target, candidates=14, rescale=True, n=16, tolerance=0.02)


UNFIT = {
    "block": ({"block": "pre_ln"}, "has block='pre_ln'; Theorem 3 is about layers of Eq. 6"),
    "activation": ({"activation": "gelu"}, "has activation='gelu'.*must be 'relu'"),
    "embedding": (
        {"embedding": BracketStates(n_types=2, max_depth=1), "d_model": 8, "n_ctx": 10},
        "has embedding=BracketStates",
    ),
    "hard-coded heads": ({"head_patterns": ((HeadPattern(kind="uniform"),) * 2,)}, "hard-coded heads"),
}


@pytest.mark.parametrize(("settings", "words"), UNFIT.values(), ids=UNFIT)
def test_other_targets_are_refused(settings, words):
    target = Transformer(TransformerConfig(**{**NARROW, **EQ6, **settings}))
    with pytest.raises(ValueError, match=words):
        prune_to_transformer(target)
    with pytest.raises(ValueError, match=words):
        indistinguishable(target, target)


def test_another_kind_of_network_is_refused(as_a_user):
    network = FullyConnected(FullyConnectedConfig(d_vocab=5, n_ctx=4, d_vocab_out=2))
    with pytest.raises(ValueError, match=r"this model is a fully connected network: it has no attention heads"):
        prune_to_transformer(network)


def test_targets_and_networks_that_do_not_fit_are_refused():
    target = target_of()
    with pytest.raises(ValueError, match=r"the target layer 0 \w+\S* has a spectral norm of .* rescale=True"):
        prune_to_transformer(target)
    with pytest.raises(ValueError, match=r"has d_head 25; with 8 candidates per weight this target needs 40"):
        prune_to_transformer(target, candidates=8, network=random_network(target.cfg, candidates=5), rescale=True)
    with pytest.raises(ValueError, match=r"has n_layers 3; .* needs 4"):
        prune_to_transformer(target, **QUICK, network=random_network(target.cfg, candidates=12, n_layers=3))
    wide = {"d_model": 40, "d_head": 99, "d_mlp": 999, "n_layers": 4}
    trained = Transformer(TransformerConfig(**{**NARROW, **EQ6, **wide}))
    with pytest.raises(ValueError, match="has block='dyck'; this target needs 'extended'"):
        prune_to_transformer(target, **QUICK, network=trained)
    other = random_network(target_of(d_vocab=9).cfg, candidates=12)
    with pytest.raises(ValueError, match="has d_vocab=9; this target needs 7"):
        prune_to_transformer(target, **QUICK, network=other)
    with pytest.raises(ValueError, match="n is 1; it must be at least 2"):
        prune_to_transformer(target, candidates=8, rescale=True, n=1)
    with pytest.raises(ValueError, match="candidates is 0"):
        random_network(target.cfg, candidates=0)
    with pytest.raises(ValueError, match="layer is 1; it must be at least 0 and at most 0"):
        prune_to_layer(target, 1)


def test_target_in_the_ball_has_scale_one():
    target = target_of()
    for parameter in target.parameters():
        parameter.data *= 0.2
    result = prune_to_transformer(target, candidates=12, n=8)
    assert result.scale == 1
    assert max(float(m.weight_orig.abs().max()) for m in result.network.modules() if hasattr(m, "weight_orig")) <= 1


def test_result_prints_tabulates_and_plots():
    result = prune_to_transformer(target_of(), **QUICK)
    drawn = result.plot().to_json()
    assert "upper bound" in drawn
    assert "0 attention of layer 0" in drawn
    assert len(result.to_dataframe()) == 4
    assert "order of classes     kept at" in str(result)
