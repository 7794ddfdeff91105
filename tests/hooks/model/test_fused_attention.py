"""Fused attention in training on long sequences: the same logits and gradients, and hooks still take effect."""

import pytest
import torch
import torch.nn.functional as F

from hooks import HeadPattern, Transformer, TransformerConfig
from hooks.interventions.replacements import Zero
from hooks.model.attention import FUSED_FROM

LENGTH = FUSED_FROM + 3
VARIANTS = [{}, {"qk_identity": True}, {"vo_identity": True}, {"qk_identity": True, "vo_identity": True}]


def model_of(attention: str, **settings) -> Transformer:
    sizes = {"d_vocab": 11, "d_model": 12, "n_heads": 3, "n_layers": 2, "n_ctx": LENGTH, "attn_scale": 1.7}
    model = Transformer(TransformerConfig(**{**sizes, **settings}, attention=attention), seed=1)
    for name, parameter in model.named_parameters():
        if name.endswith(("attention.a", "attention.b")):
            torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(2))
    return model


def logits_and_gradients(model, tokens, mask, *, fused: bool):
    model.zero_grad()
    model.train(fused)
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
    given = mask if padded else None
    ours, our_gradients = logits_and_gradients(model, tokens, mask, fused=True)
    theirs, their_gradients = logits_and_gradients(model, tokens, mask, fused=False)
    torch.testing.assert_close(ours[mask], theirs[mask], rtol=1e-9, atol=1e-9)
    assert our_gradients.keys() == their_gradients.keys()
    for name, gradient in our_gradients.items():
        torch.testing.assert_close(gradient, their_gradients[name], rtol=1e-7, atol=1e-9)
    if not padded:
        torch.testing.assert_close(model.train()(tokens, given), model(tokens, mask), rtol=1e-9, atol=1e-9)


def count_fused(model, monkeypatch) -> list[int]:
    calls: list[int] = []
    original = F.scaled_dot_product_attention

    def counted(*args, **kwargs):
        calls.append(1)
        return original(*args, **kwargs)

    monkeypatch.setattr("torch.nn.functional.scaled_dot_product_attention", counted)
    return calls


def test_only_training_on_long_sequences_is_fused(monkeypatch, generator):
    model = model_of("causal")
    calls = count_fused(model, monkeypatch)
    tokens = torch.randint(11, (2, LENGTH), generator=generator)
    model.eval()(tokens)
    model.train()(tokens[:, : FUSED_FROM - 1])
    assert not calls
    model(tokens[:, :FUSED_FROM])
    assert len(calls) == model.cfg.n_layers


def test_a_pattern_that_is_edited_while_training_is_edited(monkeypatch, generator):
    model = model_of("causal").train()
    calls = count_fused(model, monkeypatch)
    tokens = torch.randint(11, (2, LENGTH), generator=generator)
    clean = model(tokens)
    for point in ("hook_pattern", "hook_z", "hook_q"):
        edited = model.run_with_hooks(tokens, fwd_hooks=[(f"blocks.0.attn.{point}", Zero().hook(head=1))])
        assert (edited - clean).abs().max() > 1e-4
    seen = model.run_with_cache(tokens, names_filter=["blocks.1.attn.hook_pattern"])[1]
    assert seen["blocks.1.attn.hook_pattern"].shape == (2, 3, LENGTH, LENGTH)
    assert len(calls) == 2 + 1 + 2 + 2 + 1  # clean; one layer each where a pattern is watched; z and q


def test_a_result_that_is_edited_while_training_is_edited(generator):
    model = model_of("causal", vo_identity=True).train()
    tokens = torch.randint(11, (2, LENGTH), generator=generator)
    edited = model.run_with_hooks(tokens, fwd_hooks=[("blocks.0.attn.hook_result", Zero().hook(head=0))])
    assert (edited - model(tokens)).abs().max() > 1e-4


def test_hard_coded_heads_are_not_fused(monkeypatch, generator):
    model = model_of("causal", head_patterns=((HeadPattern(kind="uniform"), HeadPattern(), HeadPattern()),)).train()
    calls = count_fused(model, monkeypatch)
    model(torch.randint(11, (2, LENGTH), generator=generator))
    assert not calls
