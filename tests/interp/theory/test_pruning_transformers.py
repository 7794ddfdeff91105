"""Whole transformers inside random ones, and two that share a matrix: checked by running what was pruned."""

import copy
import re
from itertools import pairwise

import pytest
import torch
from torch.nn.utils import prune

import interp
from hooks import BracketStates, FullyConnected, FullyConnectedConfig, HeadPattern, Transformer, TransformerConfig
from interp.tasks import Dyck, Lego, Template
from interp.theory.pruning import indistinguishable, prune_to_layer, prune_to_transformer, random_network
from interp.theory.pruning.network import trimmed
from interp.theory.pruning.shared_matrix import MATRICES
from interp.theory.pruning.target import in_float64
from interp.theory.pruning.transformers import prune_network, sequences

NARROW = {"d_vocab": 7, "d_model": 4, "n_heads": 2, "n_layers": 1, "d_mlp": 5, "n_ctx": 10}
EQ6 = {"block": "dyck", "activation": "relu"}
QUICK = {"candidates": 12, "rescale": True, "n": 24}


def target_of(*, seed=0, **settings):
    """Random weights, none of them zero or one: biases, gains and identity scalars too."""
    model = Transformer(TransformerConfig(**{**NARROW, **EQ6, **settings}))
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.data = 0.5 * torch.randn(parameter.shape, generator=generator)
    return model.eval()


def logits(model, tokens):
    with torch.no_grad():
        return copy.deepcopy(model).double()(tokens)


def tokens_for(target, n=50):
    return target.embed.example(n, 9, torch.Generator().manual_seed(5))


@pytest.fixture(autouse=True)
def short_searches(monkeypatch):
    """A search that is longer can only find more; one test has the whole of it."""
    monkeypatch.setattr("interp.theory.pruning.search.STEPS", 2)
    monkeypatch.setattr("interp.theory.pruning.transformers.EXCHANGES", 2)


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
def test_a_transformer_sleeps_in_a_random_one(settings):
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


def test_layers_are_what_they_are_said_to_be():
    """Streams after each random layer are those of the target after attention, after the MLP, and then stay."""
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


def test_what_is_kept_was_random():
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


def test_trimming_changes_nothing_but_the_price():
    target = target_of()
    network = prune_network(random_network(target.cfg, candidates=10), target, 10).network
    small, tokens = trimmed(network), tokens_for(target)
    torch.testing.assert_close(small(tokens), logits(network, tokens), atol=1e-9, rtol=1e-9)
    count = [sum(p.numel() for p in one.parameters()) for one in (small, network)]
    assert count[0] < count[1] / 4


def test_more_candidates_come_nearer_and_the_bound_with_them():
    target = target_of(layer_norm_eps=0.1)
    found = [prune_to_transformer(target, candidates=n, rescale=True, n=16) for n in (8, 13, 18)]
    for worse, better in pairwise(found):
        assert better.error < worse.error / 3
        assert better.bound[-1] < worse.bound[-1] / 3
    assert found[-1].bound[-1] < 300 * found[-1].growth[-1]  # a smooth norm leaves a bound that says something


def test_a_layer_sleeps_in_two():
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


def test_a_longer_search_finds_more(monkeypatch):
    target = target_of()
    short = prune_to_transformer(target, **QUICK)
    monkeypatch.setattr("interp.theory.pruning.search.STEPS", 12)
    monkeypatch.setattr("interp.theory.pruning.transformers.EXCHANGES", 20)
    found = prune_to_transformer(target, **QUICK)
    assert found.error > short.error >= short.sampled_error == found.sampled_error
    assert (found.growth >= short.growth).all()
    assert found.growth[-1] > short.growth[-1]
    assert found.n > short.n


def test_order_and_errors_are_of_the_sequences():
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


def test_too_few_candidates_say_how_many_would_do():
    target = target_of()
    with pytest.raises(
        ValueError, match=r"candidates is 6: the largest error found is .*, above the tolerance of 0\.05\. \d+ cand"
    ) as caught:
        prune_to_transformer(target, candidates=6, rescale=True, n=16, tolerance=0.05)
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
        prune_to_layer(target, candidates=6, rescale=True, n=16, tolerance=0.02)


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
    with pytest.raises(ValueError, match=r"the target is a FullyConnected; Theorem 3 is about a hooks\.Transformer"):
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
    with pytest.raises(ValueError, match="n is 1; at least 2"):
        prune_to_transformer(target, candidates=8, rescale=True, n=1)
    with pytest.raises(ValueError, match="candidates is 0"):
        random_network(target.cfg, candidates=0)
    with pytest.raises(ValueError, match="layer is 1; this model has layers 0 to 0"):
        prune_to_layer(target, 1)


def test_a_target_in_the_ball_needs_no_rescaling():
    target = target_of()
    for parameter in target.parameters():
        parameter.data *= 0.2
    result = prune_to_transformer(target, candidates=12, n=8)
    assert result.scale == 1
    assert max(float(m.weight_orig.abs().max()) for m in result.network.modules() if hasattr(m, "weight_orig")) <= 1


@pytest.fixture(scope="module")
def pair():
    torch.set_num_threads(1)
    targets = target_of(seed=1), target_of(seed=2)
    return targets, indistinguishable(*targets, shared="every", **{**QUICK, "candidates": 18})


def test_every_matrix_can_be_shared(pair):
    targets, result = pair
    assert len(result.shared) == 4 * len(MATRICES) == result.n_matrices
    assert (result.difference == 0).all()
    assert (result.masks_differ == 0).all()
    assert result.error.max() < 0.1 * result.distance.min()
    tokens = tokens_for(targets[0])
    wanted = [logits(target, tokens) for target in targets]
    for name in ("blocks.0.attn.W_Q", "blocks.3.mlp.W_out"):
        networks = result.networks[name]
        layer, module = int(name.split(".")[1]), MATRICES[name.split(".", 2)[2]]
        a, b = (network.block(layer).get_submodule(module) for network in networks)
        assert torch.equal(a.weight, b.weight)
        assert torch.equal(a.weight_mask, b.weight_mask)
        assert torch.equal(a.weight_orig, b.weight_orig)
        assert a.weight.any()
        for network, exact in zip(networks, wanted, strict=True):
            assert (logits(network, tokens) - exact).abs().max() < 0.1 * (wanted[0] - wanted[1]).abs().max()
    assert (result.norm[:, 0] == result.norm[:, 1]).all()
    assert (result.norm > 0).all()


def test_matrices_said_to_be_the_same_are_and_the_others_are_not(pair):
    _, result = pair
    for name, same in ((result.shared[0], result.same_matrices[0]), (result.shared[-1], result.same_matrices[-1])):
        networks = result.networks[name]
        for layer in range(4):
            for matrix, module in MATRICES.items():
                a, b = (network.block(layer).get_submodule(module).weight for network in networks)
                assert torch.equal(a, b) == (f"blocks.{layer}.{matrix}" in same)
        assert name in same
        assert 20 < len(same) < 36


def test_idle_heads_look_and_write_nothing(pair):
    targets, result = pair
    network, _ = result.networks["blocks.0.attn.W_Q"]
    _, cache = network.run_with_cache(tokens_for(targets[0]))
    pattern = cache["blocks.0.attn.hook_pattern"]
    assert pattern.max() > 0.9  # not uniform
    assert (cache["blocks.0.hook_attn_out"] == 0).all()
    assert cache["blocks.0.attn.hook_z"].abs().max() > 0
    in_attention = [".attn." in name for name in result.shared]
    assert (result.pattern_distance[in_attention] > 0).all()
    assert (result.pattern_distance == result.pattern_distance).tolist() == in_attention


def test_a_shared_result_saves_prints_and_draws(pair, tmp_path):
    _, result = pair
    result.save(tmp_path / "shared.json")
    back = interp.theory.IndistinguishableResult.load(tmp_path / "shared.json")
    assert back.networks is None
    assert str(back) == str(result)
    assert back.to_dataframe().equals(result.to_dataframe())
    assert "matrices the same in both" in str(result)
    drawn = back.plot().to_json()
    assert "pattern in a" in drawn
    assert "singular value" in drawn


def test_one_choice_is_the_same_choice_among_many(pair):
    targets, every = pair
    one = indistinguishable(*targets, shared="blocks.3.W_R", **{**QUICK, "candidates": 18})
    index = every.shared.index("blocks.3.W_R")
    assert one.shared == ("blocks.3.W_R",)
    assert (one.error == every.error[index]).all()
    assert one.patterns == {}
    assert "pattern in a" not in one.plot().to_json()


def test_bad_choices_of_what_to_share_are_refused():
    a = target_of()
    with pytest.raises(ValueError, match=r"shared is 'blocks.4.attn.W_Q'.*layers 0 to 3.*Nearest: blocks\.\d"):
        indistinguishable(a, a, shared="blocks.4.attn.W_Q", rescale=True)
    with pytest.raises(ValueError, match="shared is empty"):
        indistinguishable(a, a, shared=[], rescale=True)
    with pytest.raises(ValueError, match=r"target_a has d_mlp 5 and target_b 6; .* of one shape"):
        indistinguishable(a, target_of(d_mlp=6), rescale=True)
    with pytest.raises(ValueError, match=r"target_\w layer 0 .* spectral norm .* rescale=True"):
        indistinguishable(a, a)
    with pytest.raises(ValueError, match="n is 1; at least 2"):
        indistinguishable(a, a, rescale=True, n=1)


def test_tasks_give_sequences_and_words():
    task = Dyck(n_types=1, max_depth=2, length=8)
    cfg = interp.config_for(task, "dyck_eq6", d_model=4, d_mlp=5)
    targets = (Transformer(cfg, seed=seed) for seed in (0, 1))
    result = indistinguishable(*targets, task, shared="blocks.1.attn.W_V", **QUICK)
    assert set(result.tokens) <= set(task.vocab.words(torch.arange(task.d_vocab)))
    assert result.patterns["blocks.1.attn.W_V"].shape == (2, len(result.tokens), len(result.tokens))


def test_a_pruning_result_draws_its_growth():
    result = prune_to_transformer(target_of(), **QUICK)
    drawn = result.plot().to_json()
    assert "upper bound" in drawn
    assert "0 attention of layer 0" in drawn
    assert len(result.to_dataframe()) == 4
    assert "order of classes     kept at" in str(result)


def trained_pair(name):
    """Two models of width 8 with layers of Eq. 6: two seeds of one template task, or chains learned and not learned."""
    task = Template() if name == "template" else Lego(n_vars=2, sentence_format="compact")
    sizes = {"d_model": 8, "n_heads": 2, "d_head": 4, "n_layers": 1, "d_mlp": 16}
    cfg = interp.config_for(task, "template" if name == "template" else "lego", **sizes, **EQ6)
    settings = interp.TrainSettings(steps=300, learning_rate=4e-3, n_eval=100)
    trained = [interp.train(Transformer(cfg, seed=seed), task, settings, seed=seed).model for seed in (0, 1)]
    return task, (trained if name == "template" else [trained[0], Transformer(cfg, seed=5)])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["template", "lego"])
def test_models_of_other_tasks_share_every_matrix(name):
    task, pair = trained_pair(name)
    result = indistinguishable(*pair, task, shared="every", candidates=26, rescale=True)
    assert (result.difference == 0).all()
    assert (result.masks_differ == 0).all()
    assert result.error.max() <= 0.02
    assert result.distance.min() >= 0.2
