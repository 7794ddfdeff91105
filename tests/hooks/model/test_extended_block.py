"""Extended blocks: a weight matrix on the residual connection and an MLP of four matrices."""

import pytest
import torch
from test_transformer import attention_by_head, close, norm

from hooks import Transformer, TransformerConfig, load_checkpoint, save_checkpoint, verify

WIRING = {"block": "extended", "attn_bias": False, "init": "uniform", "n_layers": 2}


def deep(x, block):
    for linear in (block.mlp.w_in, block.mlp.w_2, block.mlp.w_3):
        x = (x @ linear.weight.T).relu()
    return x @ block.mlp.w_out.weight.T


def test_extended_block_is_its_equation(make, tokens):
    model = make(**WIRING, d_head=3)
    x = model.embed.weight[tokens] + model.positions.weight[: tokens.shape[1]]
    for block in model.weights:
        x = deep(
            x @ block.residual.weight.T + norm(attention_by_head(x, block.attention, model.cfg), block.norm_1), block
        )
    close(model(tokens), x @ model.unembed.weight.T + model.unembed.bias)


def test_every_weight_is_uniform():
    model = Transformer(TransformerConfig(d_vocab=5, d_model=64, n_heads=2, **WIRING))
    for name, weight in model.weights.named_parameters():
        if weight.ndim == 2:
            assert weight.abs().max() <= 1, name
            assert weight.abs().max() > 0.99, name
            assert weight.var().item() == pytest.approx(1 / 3, rel=0.05), name


def test_every_hook_point_acts(make):
    report = verify(make(**WIRING))
    assert report.ok, report


def test_it_resumes_and_comes_back_from_disk(make, tokens, tmp_path):
    model = make(**WIRING)
    logits, cache = model.run_with_cache(tokens)
    close(model.resume(cache["resid_pre", 1], 1), logits)
    close(model.resume(cache["resid_pre", 1], 1, attn_out=cache["attn_out", 1]), logits)
    save_checkpoint(model, tmp_path / "model.safetensors")
    assert torch.equal(load_checkpoint(tmp_path / "model.safetensors")(tokens), logits)


def test_norm_of_zero_attention_is_zero(make, tokens):
    model = make(**WIRING)
    for block in model.weights:
        block.attention.o.weight.data.zero_()
        block.norm_1.bias.data.zero_()
    x = model.embed.weight[tokens] + model.positions.weight[: tokens.shape[1]]
    for block in model.weights:
        x = deep(x @ block.residual.weight.T, block)
    close(model(tokens), x @ model.unembed.weight.T + model.unembed.bias)
