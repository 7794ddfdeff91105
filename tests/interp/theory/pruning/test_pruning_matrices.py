"""Pruning random matrices to a linear map, an MLP and attention: errors, bounds, masks and error messages."""

import pytest
import torch
from eq6_targets import unit

from hooks import Transformer, TransformerConfig
from interp.theory.pruning import PruningResult, prune_to_attention, prune_to_linear, prune_to_mlp, transformers
from interp.theory.pruning.target import layer_maps

UNIT = {"d_vocab": 5, "d_model": 4, "n_heads": 2, "n_layers": 2, "block": "dyck", "activation": "relu", "d_mlp": 6}


def test_two_random_matrices_are_pruned_to_a_linear_map(generator):
    target = unit(4, 3, generator=generator)
    result = prune_to_linear(target, candidates=14, seed=3)
    x = torch.randn(400, 3, generator=generator, dtype=torch.float64)
    x = x / x.norm(dim=1, keepdim=True)
    errors = (result.network(x) - x @ target.T).norm(dim=1)
    assert 0 < float(errors.max()) <= result.error * (1 + 1e-9)  # no sampled input exceeds the largest error found
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


def test_four_random_matrices_are_pruned_to_an_mlp(generator):
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
def test_random_attention_is_pruned_to_trained_attention(settings, generator):
    target = Transformer(TransformerConfig(**UNIT, **settings), seed=2).double()
    for parameter in target.parameters():  # biases and identity scalars too
        parameter.data = 0.4 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    result = prune_to_attention(target, 1, candidates=14, rescale=True)
    assert 0 < result.error < 0.1
    assert result.growth == result.error <= result.bound
    assert result.error < prune_to_attention(target, 1, candidates=6, rescale=True).error / 4
    assert list(result.weights) == [f"attention.{name}" for name in "qkvo"]


def test_targets_outside_the_ball_are_refused_without_rescale(generator):
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
    with pytest.raises(ValueError, match="weight has a value that is not finite"):
        prune_to_linear(weight * torch.nan)


def test_tolerance_error_names_a_sufficient_number_of_candidates(generator):
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


def test_invalid_arguments_are_refused(as_a_user):
    with pytest.raises(ValueError, match="w_out is 3 x 4 and w_in 5 x 3; w_out needs 5 columns"):
        prune_to_mlp(torch.eye(5)[:, :3], torch.eye(4)[:3])
    with pytest.raises(ValueError, match="candidates is 0; it must be positive"):
        prune_to_linear(torch.eye(2), candidates=0)
    with pytest.raises(ValueError, match="layer is 2; it must be at least 0 and at most 1"):
        prune_to_attention(Transformer(TransformerConfig(**UNIT)), 2)


def test_results_depend_on_the_seed_and_are_saved(tmp_path, generator):
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


def by_masks(first, second, target, *, signs):
    """Norms of achieved minus target, for positive and, if there are any, negative inputs."""
    parts = [second @ first.clamp_min(0), second @ first.clamp_max(0)][:signs]
    return sum(float(torch.linalg.matrix_norm(part - target, 2)) for part in parts)


def test_the_bound_of_an_mlp_is_that_of_its_matrices(generator):
    """Errors e1, e2 of matrices with norms 0.8 and 0.6: 0.6 e1 + e2 (0.8 + e1)."""
    w_in, w_out = 0.8 * unit(5, 3, generator=generator), 0.6 * unit(4, 5, generator=generator)
    result = prune_to_mlp(w_in, w_out, candidates=6)
    first, second, third, fourth = (result.network[index].weight.double() for index in (0, 2, 4, 6))
    e1, e2 = by_masks(first, second, w_in, signs=2), by_masks(third, fourth, w_out, signs=1)
    assert min(e1, e2) > 1e-3
    assert result.bound == pytest.approx(0.6 * e1 + e2 * (0.8 + e1), rel=1e-6)


def test_the_bound_of_attention_is_that_of_its_maps(monkeypatch):
    """Inputs have norm 2^0.5 with their coordinate that is 1: of scores it enters three times, of values once."""
    target = Transformer(TransformerConfig(**UNIT), seed=2).double()
    masks_and_errors = transformers.attention_masks

    def errors(*arguments):
        return masks_and_errors(*arguments)[0], 0.5, 0.25  # scores, writes

    monkeypatch.setattr(transformers, "attention_masks", errors)
    result = prune_to_attention(target, 1, candidates=4, rescale=True)
    largest = max(float(torch.linalg.matrix_norm(one, 2)) for one in layer_maps(target, 1).write)
    assert largest > 0.1
    assert result.bound == pytest.approx(0.25 * 2**0.5 + largest * 0.5 * 8**0.5)
