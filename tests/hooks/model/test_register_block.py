"""Blocks from outside the source: their name in a config, their norms, checkpoints."""

from typing import get_args

import pytest
import torch

import hooks
from hooks import Transformer, TransformerConfig
from hooks.model import blocks, config
from hooks.model.blocks import Block, PreLNBlock

SIZES = {"d_vocab": 7, "d_model": 12, "n_heads": 3, "n_layers": 2}


class Parallel(Block):
    """out = x + Attn(LN1(x)) + MLP(LN2(x))."""

    n_norms = 2
    final_norm = True

    def read(self, resid, at):
        return self.norm_1(resid, at.ln1)

    def write(self, resid, attn_out, at):
        mlp_out = self.mlp(self.norm_2(at.hook_resid_mid(resid), at.ln2), at.mlp)
        return at.hook_resid_post(resid + attn_out + at.hook_mlp_out(mlp_out))


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setattr(blocks, "BLOCKS", dict(blocks.BLOCKS))
    hooks.register_block("parallel", Parallel)


@pytest.mark.parametrize("tied", [False, True])
def test_a_config_that_names_it_builds_its_model(tied):
    model = Transformer(TransformerConfig(**SIZES, block="parallel", tied=tied))
    assert {type(block) for block in model.stored_blocks} == {Parallel}
    assert model.norm_final is not None
    assert hooks.verify(model).ok
    assert TransformerConfig.from_json(model.cfg.to_json()) == model.cfg


@torch.no_grad()
def test_it_computes_its_equation():
    model = Transformer(TransformerConfig(**SIZES, block="parallel")).eval()
    _, cache = model.run_with_cache(torch.arange(7)[None])
    at = "blocks.1."
    parts = [cache[at + name] for name in ("hook_resid_pre", "hook_attn_out", "hook_mlp_out")]
    torch.testing.assert_close(cache[at + "hook_resid_post"], sum(parts))
    normalised = torch.nn.functional.layer_norm(parts[0], (12,))
    torch.testing.assert_close(cache[at + "ln2.hook_normalized"], normalised)
    assert model.cfg.normalization_type == "LN"


@torch.no_grad()
def test_a_run_resumes_in_the_middle_of_its_layer():
    model = Transformer(TransformerConfig(**SIZES, block="parallel")).eval()
    logits, cache = model.run_with_cache(torch.arange(7)[None])
    resumed = model.resume(cache["blocks.1.hook_resid_pre"], 1, attn_out=cache["blocks.1.hook_attn_out"])
    assert torch.equal(resumed, logits)


def test_a_checkpoint_of_it_needs_the_block(tmp_path, monkeypatch):
    model = Transformer(TransformerConfig(**SIZES, block="parallel")).eval()
    hooks.save_checkpoint(model, tmp_path / "model")
    again = hooks.load_checkpoint(tmp_path / "model").eval()
    tokens = torch.arange(7)[None]
    assert torch.equal(again(tokens), model(tokens))
    monkeypatch.delitem(blocks.BLOCKS, "parallel")
    with pytest.raises(ValueError, match=r"block is 'parallel'; choose one of pre_ln, .*or add it with hooks.regis"):
        hooks.load_checkpoint(tmp_path / "model")


def test_the_literal_lists_the_blocks_of_the_source():
    assert {*get_args(config.BlockName), "parallel"} == set(blocks.BLOCKS)


def test_registering_again_replaces_the_same_class_only():
    again = type("Parallel", (Parallel,), {"__module__": __name__, "__qualname__": "Parallel"})
    hooks.register_block("parallel", again)
    assert TransformerConfig(**SIZES, block="parallel").block_class is again
    with pytest.raises(ValueError, match="name is 'pre_ln', which is empty or the name of another block"):
        hooks.register_block("pre_ln", Parallel)
    with pytest.raises(ValueError, match="name is '', which is empty"):
        hooks.register_block("", Parallel)
    assert blocks.BLOCKS["pre_ln"] is PreLNBlock


@pytest.mark.parametrize("block", [torch.nn.Linear, "pre_ln", None])
def test_only_blocks_are_registered(block, as_a_user):
    with pytest.raises(ValueError, match=r"block is .*; give a subclass of hooks.model.blocks.Block"):
        hooks.register_block("mine", block)
