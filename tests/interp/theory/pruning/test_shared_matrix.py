"""Two networks that share a matrix: equal masks and weights, errors from both targets, and what the matrix shows."""

import pytest
import torch
from eq6_targets import EQ6, QUICK, logits, target_of, tokens_for

import interp
from hooks import Transformer
from interp.tasks import Dyck, Lego, Template
from interp.theory.pruning import indistinguishable
from interp.theory.pruning.shared_matrix import MATRICES


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


def test_same_matrices_lists_exactly_the_equal_ones(pair):
    _, result = pair
    for name, same in ((result.shared[0], result.same_matrices[0]), (result.shared[-1], result.same_matrices[-1])):
        networks = result.networks[name]
        for layer in range(4):
            for matrix, module in MATRICES.items():
                a, b = (network.block(layer).get_submodule(module).weight for network in networks)
                assert torch.equal(a, b) == (f"blocks.{layer}.{matrix}" in same)
        assert name in same
        assert 20 < len(same) < 36


def test_idle_heads_have_patterns_and_write_zero(pair):
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


def test_result_prints_plots_and_saves(pair, tmp_path):
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


def test_a_single_shared_matrix_gives_the_same_result_as_among_all(pair):
    targets, every = pair
    one = indistinguishable(*targets, shared="blocks.3.W_R", **{**QUICK, "candidates": 18})
    index = every.shared.index("blocks.3.W_R")
    assert one.shared == ("blocks.3.W_R",)
    assert (one.error == every.error[index]).all()
    assert one.patterns == {}
    assert "pattern in a" not in one.plot().to_json()


def test_invalid_arguments_are_refused():
    a = target_of()
    with pytest.raises(ValueError, match=r"shared is 'blocks.4.attn.W_Q'.*layers 0 to 3.*Nearest: blocks\.\d"):
        indistinguishable(a, a, shared="blocks.4.attn.W_Q", rescale=True)
    with pytest.raises(ValueError, match="shared is empty"):
        indistinguishable(a, a, shared=[], rescale=True)
    with pytest.raises(ValueError, match=r"target_a has d_mlp 5 and target_b 6; .* of one shape"):
        indistinguishable(a, target_of(d_mlp=6), rescale=True)
    with pytest.raises(ValueError, match=r"target_\w layer 0 .* spectral norm .* rescale=True"):
        indistinguishable(a, a)
    with pytest.raises(ValueError, match="n is 1; it must be at least 2"):
        indistinguishable(a, a, rescale=True, n=1)


def test_sequences_and_tokens_come_from_the_task():
    task = Dyck(n_types=1, max_depth=2, length=8)
    cfg = interp.config_for(task, "dyck_eq6", d_model=4, d_mlp=5)
    targets = (Transformer(cfg, seed=seed) for seed in (0, 1))
    result = indistinguishable(*targets, task, shared="blocks.1.attn.W_V", **QUICK)
    assert set(result.tokens) <= set(task.vocab.words(torch.arange(task.d_vocab)))
    assert result.patterns["blocks.1.attn.W_V"].shape == (2, len(result.tokens), len(result.tokens))


def trained_pair(name):
    """Two models with layers of Eq. 6: two seeds of a template task, or a trained and an untrained LEGO model."""
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
