"""Larger models, permuted heads and rescaled weights compute the same function."""

import pytest
import torch

from hooks import Transformer, TransformerConfig
from interp.known_answers import lego_loop, stack_dyck, uniform_dyck
from interp.known_answers.craft.transforms import permute_heads, rescale
from interp.known_answers.craft.weights import set_identity_norms
from interp.known_answers.lego.loop import larger_loop
from interp.tasks import Dyck, Lego

TASK = Lego(n_vars=2, alphabet="abcd")


def tokens_of(task, n=6):
    return task.sample(n, generator=torch.Generator().manual_seed(0)).tokens


def noisy(**options) -> Transformer:
    """Every weight random, biases and a, b too, but norms are wired and the stream's mean stays zero."""
    settings = {"n_layers": 2, "d_model": 9, "d_head": 4, "d_mlp": 7, "activation": "relu", "layer_norm_eps": 1e12}
    model = Transformer(TransformerConfig(d_vocab=6, n_ctx=5, n_heads=2, **(settings | options))).double()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.4 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
        if model.cfg.block not in ("bare", "no_norm"):
            for module in model.modules():
                if hasattr(module, "eps"):
                    module.bias.zero_()
            set_identity_norms(model)
        writers = [linear for block in model.stored_blocks for linear in (block.attention.o, block.mlp.w_out)]
        for linear in writers if model.cfg.output_projection else []:
            linear.weight -= linear.weight.mean(0)
            linear.bias -= linear.bias.mean()
        for table in (model.embed.weight, model.positions.weight):
            table -= table.mean(1, keepdim=True)
    return model.eval()


INPUT = torch.randint(6, (4, 5), generator=torch.Generator().manual_seed(1))
OPTIONS = [{}, {"tied": True}, {"qk_identity": True, "vo_identity": True, "attn_scale": 3.0}]


@pytest.mark.parametrize(
    "sizes",
    [
        {"heads": 2},
        {"registers": 3},
        {"units": 5},
        {"tied": False},
        {"heads": 1, "registers": 2, "layers": 2, "tied": False},
    ],
)
def test_a_larger_loop_computes_the_same(sizes):
    model, larger = lego_loop(TASK), larger_loop(TASK, **sizes)
    stream = larger.run_with_cache(tokens_of(TASK))[1]["blocks.2.hook_resid_post"]
    before = model.run_with_cache(tokens_of(TASK))[1]["blocks.2.hook_resid_post"]
    torch.testing.assert_close(larger(tokens_of(TASK)), model(tokens_of(TASK)), atol=1e-9, rtol=0)
    old, new = model.cfg, larger.cfg
    assert new.n_heads == old.n_heads + sizes.get("heads", 0)
    assert new.d_model == old.d_model + sizes.get("registers", 0)
    assert new.n_layers == old.n_layers + sizes.get("layers", 0)
    assert new.d_mlp == old.d_mlp + sizes.get("units", 0)
    assert new.d_head == old.d_head
    assert len(larger.stored_blocks) == (new.n_layers if "tied" in sizes else 1)
    first_new = old.d_model - 1  # new coordinates precede the one that balances the mean
    torch.testing.assert_close(stream[..., [*range(first_new), -1]], before, atol=1e-9, rtol=0)
    assert (stream[..., first_new:-1] == 0).all()


@pytest.mark.parametrize("options", [*OPTIONS, {"block": "bare"}], ids=["plain", "tied", "identities", "bare"])
def test_permuted_heads_compute_the_same(options):
    model = noisy(**options)
    before, old_cache = model.run_with_cache(INPUT)
    orders = [[1, 0]] if options.get("tied") else [[1, 0], [0, 1]]
    permute_heads(model, orders)
    after, cache = model.run_with_cache(INPUT)
    torch.testing.assert_close(after, before, atol=1e-9, rtol=0)
    for layer in range(2):
        name = f"blocks.{layer}.attn.hook_pattern"
        torch.testing.assert_close(cache[name], old_cache[name][:, orders[layer % len(orders)]], atol=1e-9, rtol=0)


def test_an_order_that_is_no_permutation_raises():
    model = noisy()
    with pytest.raises(ValueError, match="2 blocks"):
        permute_heads(model, [[0, 1]])
    with pytest.raises(ValueError, match="each of the heads 0 to 1 once"):
        permute_heads(model, [[0, 1], [1, 1]])
    beside = noisy(d_model=8, output_projection=False)
    permute_heads(beside, [[0, 1], [0, 1]])
    with pytest.raises(ValueError, match="no output matrix"):
        permute_heads(beside, [[0, 1], [1, 0]])


@pytest.mark.parametrize(
    "options",
    [*OPTIONS, {"block": "bare"}, {"d_model": 8, "output_projection": False}],
    ids=["plain", "tied", "identities", "bare", "beside"],
)
def test_rescaled_weights_compute_the_same(options):
    model = noisy(**options)
    before, old_cache = model.run_with_cache(INPUT)
    weights = [parameter.clone() for parameter in model.stored_blocks[0].parameters()]
    rescale(model, torch.Generator().manual_seed(0))
    after, cache = model.run_with_cache(INPUT)
    torch.testing.assert_close(after, before, atol=1e-9, rtol=0)
    for layer in range(2):
        name = f"blocks.{layer}.attn.hook_pattern"
        torch.testing.assert_close(cache[name], old_cache[name], atol=1e-9, rtol=0)
    changed = [not torch.equal(a, b) for a, b in zip(weights, model.stored_blocks[0].parameters(), strict=True)]
    assert sum(changed) >= 5


@pytest.mark.parametrize("make", [stack_dyck, uniform_dyck])
def test_dyck_models_compute_the_same_after_rescaling(make):
    task = Dyck(n_types=2, max_depth=3, length=12)
    model = make(task)
    before = model(tokens_of(task))
    rescale(model, torch.Generator().manual_seed(0))
    permute_heads(model, [range(model.cfg.n_heads)] * len(model.stored_blocks))
    torch.testing.assert_close(model(tokens_of(task)), before, atol=1e-8, rtol=0)


def test_the_loop_computes_the_same_after_all_transforms():
    model = lego_loop(TASK)
    before = model(tokens_of(TASK))
    model = larger_loop(TASK, heads=2, registers=5, layers=1, tied=False)
    permute_heads(model, [[3, 0, 2, 1], [1, 2, 3, 0], [0, 1, 2, 3], [2, 3, 0, 1]])
    rescale(model, torch.Generator().manual_seed(0))
    torch.testing.assert_close(model(tokens_of(TASK)), before, atol=1e-9, rtol=0)
