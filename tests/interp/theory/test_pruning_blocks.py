"""Maps inside random matrices: what masks keep is what was random, and what it does is what was said."""

import pytest
import torch
from torch.nn.utils import prune

from hooks import Transformer, TransformerConfig
from interp.theory.pruning import PruningResult, prune_to_attention, prune_to_linear, prune_to_mlp
from interp.theory.pruning.search import worst_on_ball, worst_tokens
from interp.theory.pruning.subset_sum import mask_pair, rows_needed

UNIT = {"d_vocab": 5, "d_model": 4, "n_heads": 2, "n_layers": 2, "block": "dyck", "activation": "relu", "d_mlp": 6}


def uniform(*shape, generator):
    return 2 * torch.rand(shape, generator=generator, dtype=torch.float64) - 1


def unit(*shape, generator):
    weight = torch.randn(shape, generator=generator, dtype=torch.float64)
    return weight / torch.linalg.matrix_norm(weight, 2)


@pytest.mark.parametrize(("between", "slots"), [("nothing", 1), ("relu", 2), ("relu, inputs not negative", 1)])
def test_masks_do_what_they_say(between, slots, generator):
    first = uniform(rows_needed(3 * slots, 13), 3, generator=generator)
    second, target = uniform(5, len(first), generator=generator), unit(5, 3, generator=generator)
    target[1, 2] = 0
    pair = mask_pair(first, second, target, candidates=13, between=between)
    assert pair.first.sum(1).max() == 1  # a copy of one input in each row
    assert pair.first.sum(0).min() > 11 * slots  # one of the wrong sign is left away
    assert pair.achieved.shape == (slots, 5, 3)
    assert (pair.achieved[:, 1, 2] == 0).all()
    x = torch.randn(50, 3, generator=generator, dtype=torch.float64)
    if between == "relu, inputs not negative":
        x = x.abs()
    hidden = x @ (first * pair.first).T
    y = (hidden if between == "nothing" else hidden.relu()) @ (second * pair.second).T
    parts = [x] if slots == 1 else [x.relu(), -(-x).relu()]
    torch.testing.assert_close(y, sum(part @ map.T for part, map in zip(parts, pair.achieved, strict=True)))
    assert ((y - x @ target.T).norm(dim=1) <= pair.error(target) * x.norm(dim=1) + 1e-12).all()
    assert pair.error(target) < 0.15


def test_rows_go_to_inputs_they_are_large_for(generator):
    first, second = uniform(60, 3, generator=generator), uniform(1, 60, generator=generator)
    pair = mask_pair(first, second, torch.ones(1, 3), candidates=5, between="nothing")
    assert first[pair.first].abs().min() > 0.7
    pair = mask_pair(first, second, torch.ones(1, 3), candidates=5, between="relu, inputs not negative")
    assert first[pair.first].min() > 0.5


def test_too_few_rows_are_refused(generator):
    first, second = uniform(11, 3, generator=generator), uniform(2, 11, generator=generator)
    with pytest.raises(
        ValueError, match=r"too small: 4 candidates for each of 3 inputs .* need 12 rows, and it has 11"
    ):
        mask_pair(first, second, torch.ones(2, 3), candidates=4, between="nothing")


def weights_of(network):
    return {
        name: module for name, module in network.named_modules() if prune.is_pruned(module) and "weight" in dir(module)
    }


def test_a_linear_map_sleeps_in_two_random_matrices(generator):
    target = unit(4, 3, generator=generator)
    result = prune_to_linear(target, candidates=14, seed=3)
    x = torch.randn(400, 3, generator=generator, dtype=torch.float64)
    x = x / x.norm(dim=1, keepdim=True)
    errors = (result.network(x) - x @ target.T).norm(dim=1)
    assert 0 < float(errors.max()) <= result.error * (1 + 1e-9)  # nothing sampled is worse than what was climbed to
    assert result.sampled_error <= result.error < 0.02
    assert result.growth == result.error <= result.bound < 3 * result.error
    assert result.error < prune_to_linear(target, candidates=7, seed=3).error
    for module in (result.network[0], result.network[2]):
        assert torch.equal(module.weight, module.weight_orig * module.weight_mask)
        assert module.weight_orig.abs().max() <= 1
    assert result.fraction_kept == sum(int(m.weight_mask.sum()) for m in (result.network[0], result.network[2])) / (
        result.network[0].weight.numel() + result.network[2].weight.numel()
    )
    assert {name: len(kept) for name, kept in result.kept.items()} == {n: w[0] for n, w in result.weights.items()}


def test_an_mlp_sleeps_in_four(generator):
    w_in, w_out = unit(5, 3, generator=generator), unit(4, 5, generator=generator)
    result = prune_to_mlp(w_in, w_out, candidates=14)
    assert [tuple(m.weight.shape) for m in result.network if hasattr(m, "weight")][::3] == [(101, 3), (4, 84)]
    x = torch.randn(400, 3, generator=generator, dtype=torch.float64)
    x = x / x.norm(dim=1, keepdim=True)
    errors = (result.network(x) - (x @ w_in.T).relu() @ w_out.T).norm(dim=1)
    assert 0 < float(errors.max()) <= result.error * (1 + 1e-9)
    assert result.error < 0.03
    assert result.growth == result.error <= result.bound < 10 * result.error


@pytest.mark.parametrize("settings", [{}, {"qk_identity": True, "vo_identity": True, "attention": "causal"}])
def test_attention_sleeps_in_attention(settings, generator):
    target = Transformer(TransformerConfig(**UNIT, **settings), seed=2).double()
    for parameter in target.parameters():  # biases and identity scalars too
        parameter.data = 0.4 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    result = prune_to_attention(target, 1, candidates=14, rescale=True)
    assert 0 < result.error < 0.1
    assert result.growth == result.error <= result.bound
    assert result.error < prune_to_attention(target, 1, candidates=6, rescale=True).error / 4
    assert list(result.weights) == [f"attention.{name}" for name in "qkvo"]


def test_the_worst_input_of_a_linear_difference_is_its_first_singular_vector(generator):
    weight = torch.randn(6, 5, generator=generator, dtype=torch.float64)
    starts = torch.randn(16, 5, generator=generator, dtype=torch.float64)
    worst = worst_on_ball(lambda x: (x @ weight.T).norm(dim=-1), starts, radius=2.0, steps=60)
    norm = float(torch.linalg.matrix_norm(weight, 2))
    assert worst.sampled < worst.found <= 2 * norm * (1 + 1e-9)
    assert worst.found == pytest.approx(2 * norm, rel=1e-3)
    assert worst.n == 61 * 16


def test_tokens_are_made_worse_and_never_better(generator):
    price = torch.arange(7.0)
    tokens = torch.randint(7, (20, 4), generator=generator)
    found = worst_tokens(lambda t: price[t].sum(1), tokens, d_vocab=7, generator=generator, steps=300, climbers=5)
    assert found.sampled == float(price[tokens].sum(1).max())
    assert found.found == 24  # all tokens the dearest
    assert found.n == 20 + 300 * 5
    none = worst_tokens(lambda t: price[t].sum(1), tokens, d_vocab=7, generator=generator, steps=0)
    assert none.found == none.sampled


def test_targets_outside_the_ball_are_refused_and_rescaled_when_asked(generator):
    weight = 3 * unit(3, 3, generator=generator)
    with pytest.raises(
        ValueError, match=r"linear map 3 x 3 has a spectral norm of 3\.00.*ball ends at 1.*rescale=True"
    ):
        prune_to_linear(weight)
    with pytest.raises(ValueError, match=r"MLP 3-3-3 has a spectral norm of 3\.00"):
        prune_to_mlp(weight / 3, weight)
    loud = Transformer(TransformerConfig(**UNIT))
    loud.block(0).attention.q.weight.data *= 9
    with pytest.raises(ValueError, match=r"layer 0 score\.\d has a spectral norm of"):
        prune_to_attention(loud)
    result = prune_to_linear(weight, candidates=14, rescale=True)
    assert result.scale == pytest.approx(3)
    assert result.error < 0.05
    assert 1 < float(result.network[0].weight_orig.abs().max()) <= 3**0.5
    with pytest.raises(ValueError, match="spectral norm of nan"):
        prune_to_linear(weight * torch.nan)


def test_an_error_above_the_tolerance_is_refused_with_enough_candidates(generator):
    weight = unit(3, 3, generator=generator)
    with pytest.raises(
        ValueError, match=r"candidates is 5: .* above the tolerance of 0\.01\. (\d+) candidates"
    ) as caught:
        prune_to_linear(weight, candidates=5, tolerance=0.01)
    enough = int(str(caught.value).split("tolerance of 0.01. ")[1].split()[0])
    assert prune_to_linear(weight, candidates=enough, tolerance=0.01).error <= 0.01
    assert prune_to_linear(weight, candidates=enough - 2).error > 0.01
    with pytest.raises(ValueError, match="candidates reach it"):
        prune_to_mlp(weight, weight, candidates=5, tolerance=0.01)
    with pytest.raises(ValueError, match="candidates reach it"):
        prune_to_attention(Transformer(TransformerConfig(**UNIT)), candidates=5, rescale=True, tolerance=0.1)
    with pytest.raises(ValueError, match="Raise the tolerance, or give a wider"):
        prune_to_linear(weight, candidates=35, tolerance=0.0)


def test_what_does_not_fit_is_refused(as_a_user):
    with pytest.raises(ValueError, match="w_out is 3 x 4 and w_in 5 x 3; w_out needs 5 columns"):
        prune_to_mlp(torch.eye(5)[:, :3], torch.eye(4)[:3])
    with pytest.raises(ValueError, match="candidates is 0; each weight needs at least 1"):
        prune_to_linear(torch.eye(2), candidates=0)
    with pytest.raises(ValueError, match="layer is 2; this model has layers 0 to 1"):
        prune_to_attention(Transformer(TransformerConfig(**UNIT)), 2)


def test_results_are_the_seeds(tmp_path, generator):
    target = unit(3, 3, generator=generator)
    a, b, c = (prune_to_linear(target, candidates=8, seed=seed) for seed in (1, 1, 2))
    assert a.error == b.error != c.error
    assert (a.kept["0"] == b.kept["0"]).all()
    a.save(tmp_path / "a.json")
    back = PruningResult.load(tmp_path / "a.json")
    assert back.network is None
    assert (back.error, back.weights, back.domain) == (a.error, a.weights, a.domain)
    assert (back.kept["2"] == a.kept["2"]).all()
    assert str(back) == str(a)
    assert "linear map 3 x 3, out of random weights: 8 candidates each" in str(a)
