"""Fused attention on long sequences: the same logits and gradients, and hooks still take effect."""

from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F

from hooks import Encoder, EncoderConfig, HeadPattern, Transformer, TransformerConfig
from hooks.interventions.ablation_engine import AblationEngine
from hooks.interventions.replacements import Zero
from hooks.model.attention import FUSED_FROM
from hooks.model.blocks import BLOCKS

LENGTH = FUSED_FROM + 3
VARIANTS = [{}, {"qk_identity": True}, {"vo_identity": True}, {"qk_identity": True, "vo_identity": True}]


def model_of(attention: str, **settings) -> Transformer:
    sizes = {"d_vocab": 11, "d_model": 12, "n_heads": 3, "n_layers": 2, "n_ctx": LENGTH, "attn_scale": 1.7}
    model = Transformer(TransformerConfig(**{**sizes, **settings}, attention=attention), seed=1)
    for name, parameter in model.named_parameters():
        if name.endswith(("attention.a", "attention.b")):
            torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(2))
    return model


def step_by_step(model):
    """Hooks that change nothing, for which scores and patterns are computed."""
    return model.hooks(
        [(f"blocks.{layer}.attn.hook_pattern", lambda x, hook: x) for layer in range(model.cfg.n_layers)]
    )


def logits_and_gradients(model, tokens, mask, *, fused: bool):
    model.zero_grad()
    with nullcontext() if fused else step_by_step(model):
        logits = model(tokens, mask)
    logits[mask].square().mean().backward()
    return logits.detach(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("settings", VARIANTS)
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("attention", ["causal", "bidirectional"])
def test_fused_attention_gives_the_same_logits_and_gradients(attention, padded, settings, generator):
    model = model_of(attention, **settings).double()
    tokens = torch.randint(11, (4, LENGTH), generator=generator)
    mask = torch.ones_like(tokens, dtype=torch.bool)
    if padded:
        mask[1, 40:] = mask[2, 64:] = mask[3, :5] = False
    ours, our_gradients = logits_and_gradients(model, tokens, mask, fused=True)
    theirs, their_gradients = logits_and_gradients(model, tokens, mask, fused=False)
    torch.testing.assert_close(ours[mask], theirs[mask], rtol=1e-9, atol=1e-9)
    assert our_gradients.keys() == their_gradients.keys()
    for name, gradient in our_gradients.items():
        torch.testing.assert_close(gradient, their_gradients[name], rtol=1e-7, atol=1e-9)
    if not padded:
        torch.testing.assert_close(model(tokens), model(tokens, mask), rtol=1e-9, atol=1e-9)


def count_fused(model, monkeypatch) -> list[int]:
    calls: list[int] = []
    original = F.scaled_dot_product_attention

    def counted(*args, **kwargs):
        calls.append(1)
        return original(*args, **kwargs)

    monkeypatch.setattr("torch.nn.functional.scaled_dot_product_attention", counted)
    return calls


ARCHITECTURES = {
    **{f"block {name}": {"block": name} for name in BLOCKS},
    "attention only": {"block": "no_norm", "d_mlp": 0, "attn_bias": False},
    "tied": {"block": "post_ln", "tied": True},
    "no output projection": {"block": "bare", "output_projection": False, "d_model": 12, "d_head": 4},
    "both identities": {"qk_identity": True, "vo_identity": True},
    "encoder": {"n_token_types": 2, "head": "masked_lm", "block": "post_ln", "pooler": True},
    "factorised encoder": {"d_embedding": 6, "head": "masked_lm", "block": "post_ln", "tied": True},
}


def architecture(name: str, attention: str):
    if "encoder" not in name:
        return model_of(attention, **ARCHITECTURES[name]).double().eval()
    sizes = {"d_vocab": 11, "d_model": 12, "n_heads": 3, "n_layers": 2, "n_ctx": LENGTH}
    return Encoder(EncoderConfig(**sizes, **ARCHITECTURES[name], attention=attention), seed=1).double().eval()


@pytest.mark.parametrize(
    ("name", "attention"),
    [(name, ("causal", "bidirectional")[index % 2]) for index, name in enumerate(ARCHITECTURES)],
)
@torch.no_grad()
def test_every_architecture_gives_the_same_in_evaluation(name, attention, monkeypatch, generator):
    """Without a mask, with padding on either side, and resumed with few queries; single precision too."""
    model = architecture(name, attention)
    calls = count_fused(model, monkeypatch)
    tokens = torch.randint(11, (4, LENGTH), generator=generator)
    mask = torch.ones_like(tokens, dtype=torch.bool)
    mask[1, 40:] = mask[2, 1:] = mask[3, :5] = False  # queries 0 to 4 of row 3 see no real key if attention is causal
    read_at = torch.tensor([[0, 7], [39, 3], [0, 0], [66, 5]])
    resid = torch.randn(4, LENGTH, 12, dtype=torch.float64, generator=generator)
    passes = {
        "whole": lambda: model(tokens),
        "padded": lambda: model(tokens, mask),
        "resumed": lambda: model.resume(resid, 0, read_at=read_at),
        "resumed, padded": lambda: model.resume(resid, 1, attention_mask=mask, read_at=read_at),
    }
    n_fused = {"whole": 2, "padded": 2, "resumed": 2, "resumed, padded": 1}
    for key, run in passes.items():
        calls.clear()
        fused = run()
        assert len(calls) == (0 if name == "both identities" else n_fused[key])
        with step_by_step(model):
            calls.clear()
            torch.testing.assert_close(fused, run(), rtol=1e-9, atol=1e-9)
        assert not calls
    rows = torch.arange(4)[:, None]
    whole = model.resume(resid, 0)[rows, read_at]
    torch.testing.assert_close(passes["resumed"](), whole, rtol=1e-9, atol=1e-9)
    single = model.float()
    with step_by_step(single):
        expected = single(tokens, mask)
    torch.testing.assert_close(single(tokens, mask), expected, rtol=1e-4, atol=1e-5)


def test_only_long_sequences_are_fused(monkeypatch, generator):
    model = model_of("causal")
    calls = count_fused(model, monkeypatch)
    tokens = torch.randint(11, (2, LENGTH), generator=generator)
    for mode in (True, False):
        model.train(mode)(tokens[:, : FUSED_FROM - 1])
        assert not calls
        model(tokens[:, :FUSED_FROM])
        assert len(calls) == model.cfg.n_layers
        calls.clear()


@torch.no_grad()
def test_an_ablation_that_needs_no_pattern_computes_none(monkeypatch, generator):
    model = model_of("bidirectional").double().eval()
    tokens = torch.randint(11, (2, LENGTH), generator=generator)
    expected = dict(AblationEngine(model, tokens).each_set([[(0, 1)], [(0, 1), (1, 2)]], Zero()))
    calls = count_fused(model, monkeypatch)
    monkeypatch.setattr(torch.Tensor, "softmax", None)
    engine = AblationEngine(model, tokens, patterns=False)
    logits = dict(engine.each_set([[(0, 1)], [(0, 1), (1, 2)]], Zero()))
    assert len(calls) >= 3
    for heads, values in expected.items():
        torch.testing.assert_close(logits[heads], values, rtol=1e-9, atol=1e-9)
    with pytest.raises(ValueError, match=r"needs attn.hook_pattern and attn.hook_v"):
        engine.heads(0).mixed()


@pytest.mark.parametrize("mode", [True, False])
def test_a_pattern_that_is_edited_is_edited(mode, monkeypatch, generator):
    model = model_of("causal").train(mode)
    calls = count_fused(model, monkeypatch)
    tokens = torch.randint(11, (2, LENGTH), generator=generator)
    clean = model(tokens)
    for point in ("hook_pattern", "hook_z", "hook_q"):
        edited = model.run_with_hooks(tokens, fwd_hooks=[(f"blocks.0.attn.{point}", Zero().hook(head=1))])
        assert (edited - clean).abs().max() > 1e-4
    seen = model.run_with_cache(tokens, names_filter=["blocks.1.attn.hook_pattern"])[1]
    assert seen["blocks.1.attn.hook_pattern"].shape == (2, 3, LENGTH, LENGTH)
    assert len(calls) == 2 + 1 + 2 + 2 + 1  # clean; one layer each where a pattern is watched; z and q


def test_a_result_that_is_edited_is_edited(generator):
    model = model_of("causal", vo_identity=True)
    tokens = torch.randint(11, (2, LENGTH), generator=generator)
    edited = model.run_with_hooks(tokens, fwd_hooks=[("blocks.0.attn.hook_result", Zero().hook(head=0))])
    assert (edited - model(tokens)).abs().max() > 1e-4


def test_hard_coded_heads_are_not_fused(monkeypatch, generator):
    model = model_of("causal", head_patterns=((HeadPattern(kind="uniform"), HeadPattern(), HeadPattern()),))
    calls = count_fused(model, monkeypatch)
    model(torch.randint(11, (2, LENGTH), generator=generator))
    assert not calls
