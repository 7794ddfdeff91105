"""The engine's shortcuts change nothing: every intervention against hooks that do it by hand."""

import pytest
import torch

from hooks import HeadPattern
from hooks.ablation_engine import TOKENS_PER_PASS, AblationEngine

PATTERN = torch.rand(4, 8, 8, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
CODED = (HeadPattern(kind="association"), HeadPattern(), HeadPattern(kind="local", kernel=(1.0, 2.0, 1.0)))
MODELS = [
    {},
    {"attention": "causal"},
    {"tied": True},
    {"block": "post_ln"},
    {"block": "post_ln", "tied": True, "attention": "causal"},
    {"block": "dyck"},
    {"attn_bias": False, "d_mlp": 0},
    {"qk_identity": True},
    {"head_patterns": (CODED,)},
    {"head_patterns": (tuple(HeadPattern(kind="uniform") for _ in range(3)),), "attention": "causal"},
    {"d_head": 7, "d_vocab_out": 5},
]
SETS = [[(0, 0)], [(2, 1)], [(1, 2), (0, 1)], [(0, 0), (0, 2), (1, 0), (2, 0), (2, 1)], [(1, 1), (2, 2)]]
READ_AT = torch.tensor([[0, 7], [3, 3], [6, 2], [1, 4]])


def other(layer, z):
    """z of other sequences."""
    return torch.randn(z.shape, generator=torch.Generator().manual_seed(layer), dtype=torch.float64).to(z)


def zero(layer, clean):
    return torch.zeros_like(clean.z)


def mean(layer, clean):
    return other(layer, clean.z).mean(0, keepdim=True).expand_as(clean.z)


def resample(layer, clean):
    return other(layer, clean.z)


def mixed(layer, clean):
    """The same values under another pattern."""
    rows = PATTERN.to(clean.v) / PATTERN.sum(-1, keepdim=True)
    return (rows[:, None] @ clean.v.transpose(1, 2)).transpose(1, 2)


def sharpened(layer, clean):
    """Looks at everything that a replacement may look at."""
    pattern = clean.pattern.square() / clean.pattern.square().sum(-1, keepdim=True)
    return clean.z / 2 + (pattern @ clean.v.transpose(1, 2)).transpose(1, 2)


REPLACEMENTS = (zero, mean, resample, mixed, sharpened)


def by_hand(model, tokens, heads, replace, **inputs):
    """Logits with heads replaced by ordinary hooks, layer after layer."""
    values = {}

    def keep(activation, hook):
        values[hook.name] = activation

    def edit(z, hook):
        layer = hook.layer()
        at = f"blocks.{layer}.attn.hook_"

        class Clean:
            pass

        clean = Clean()
        clean.z, clean.v, clean.pattern = z, values[at + "v"], values[at + "pattern"]
        new = replace(layer, clean)
        z = z.clone()
        for here, head in heads:
            if here == layer:
                z[:, :, head] = new[:, :, head]
        return z

    hooks = [(lambda name: name.endswith(("hook_v", "hook_pattern")), keep)]
    return model.run_with_hooks(tokens, fwd_hooks=[*hooks, (lambda name: name.endswith("attn.hook_z"), edit)], **inputs)


def assert_exact(model, tokens, **inputs):
    every = [(layer, head) for layer in range(3) for head in range(3)]
    clean = model(tokens, **inputs)
    for read_at in (None, READ_AT):
        take = (lambda x: x) if read_at is None else (lambda x: x[torch.arange(4)[:, None], READ_AT])
        engine = AblationEngine(model, tokens, read_at=read_at, **inputs)
        torch.testing.assert_close(engine.logits, take(clean), atol=0, rtol=0)
        for replace in REPLACEMENTS:
            found = dict(engine.each_head(replace))
            assert list(found) == every
            for head, logits in found.items():
                expected = take(by_hand(model, tokens, [head], replace, **inputs))
                torch.testing.assert_close(logits, expected, atol=1e-9, rtol=0)
                assert (expected - take(clean)).abs().max() > 1e-3  # there was something to compute
            for heads in SETS:
                expected = take(by_hand(model, tokens, heads, replace, **inputs))
                torch.testing.assert_close(engine.head_set(heads, replace), expected, atol=1e-9, rtol=0)


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


@pytest.mark.parametrize("settings", MODELS, ids=str)
def test_equals_hooks_by_hand(make, tokens, settings):
    assert_exact(make(**settings), tokens)


@pytest.mark.parametrize("settings", [{}, {"attention": "causal"}, {"head_patterns": (CODED,)}], ids=str)
@pytest.mark.parametrize("side", ["left", "right"])
def test_equals_hooks_by_hand_where_tokens_are_padding(make, tokens, settings, side):
    mask = torch.ones(4, 8, dtype=torch.bool)
    mask[1, :3] = mask[2, :5] = False
    mask = mask if side == "left" else mask.flip(1)
    position_ids = (torch.arange(8) + torch.arange(4)[:, None]) % 8
    assert_exact(make(**settings), tokens, attention_mask=mask, position_ids=position_ids)


def test_stays_within_1e_5_in_single_precision_when_many_heads_share_a_pass(make):
    model = make(dtype=torch.float32, n_heads=6, n_ctx=10)
    tokens = torch.randint(11, (30, 8), generator=torch.Generator().manual_seed(3))
    assert 1 < TOKENS_PER_PASS // tokens.numel() < 6  # several passes, several heads in each
    for (layer, head), logits in AblationEngine(model, tokens).each_head(zero):
        expected = by_hand(model, tokens, [(layer, head)], zero)
        torch.testing.assert_close(logits, expected, atol=1e-5, rtol=0)


def test_one_head_after_the_other_where_a_pass_would_be_too_large(make, tokens, monkeypatch):
    model = make()
    together = dict(AblationEngine(model, tokens).each_head(zero))
    monkeypatch.setattr("hooks.ablation_engine.TOKENS_PER_PASS", 1)
    apart = dict(AblationEngine(model, tokens).each_head(zero))
    assert list(apart) == list(together)
    for head, logits in apart.items():
        torch.testing.assert_close(logits, together[head], atol=1e-12, rtol=0)


def test_no_head_taken_out_leaves_the_clean_logits(make, tokens):
    model = make()
    engine = AblationEngine(model, tokens)
    assert torch.equal(engine.head_set([], zero), model(tokens))
    same = engine.head_set([(0, 1), (2, 0)], lambda layer, clean: clean.z)
    torch.testing.assert_close(same, model(tokens), atol=1e-12, rtol=0)


def test_the_model_is_left_as_it_was(make, tokens):
    model = make()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    engine = AblationEngine(model, tokens)
    engine.head_set([(0, 0), (1, 1), (2, 2)], zero)

    def broken(layer, clean):
        if layer == 2:
            raise RuntimeError("no replacement today")
        return clean.z

    with pytest.raises(RuntimeError, match="no replacement today"):
        engine.head_set([(0, 0), (2, 2)], broken)
    assert not any(point.fwd_hooks for point in model.hook_dict.values())
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, before[name])


def test_a_replacement_sees_what_earlier_replacements_left(make, tokens):
    """Zeroing layer 0 changes what layer 2 computes from."""
    model, seen = make(), []

    def watch(layer, clean):
        seen.append((layer, clean.v, clean.pattern, clean.z))
        return torch.zeros_like(clean.z)

    engine = AblationEngine(model, tokens)
    engine.head_set([(2, 1), (0, 0)], watch)
    assert [layer for layer, *_ in seen] == [0, 2]
    clean = engine.heads(0)
    assert all(torch.equal(a, b) for a, b in zip(seen[0][1:], (clean.v, clean.pattern, clean.z), strict=True))
    later = engine.heads(2)
    for found, unedited in zip(seen[1][1:], (later.v, later.pattern, later.z), strict=True):
        assert (found - unedited).abs().max() > 1e-4


def test_heads_that_write_more_than_z_tells_are_refused(make, tokens):
    with pytest.raises(ValueError, match="vo_identity is on: heads write b_h A_h x beside z, so an edit of z is only"):
        AblationEngine(make(vo_identity=True), tokens)


@pytest.mark.parametrize("settings", MODELS, ids=str)
def test_reading_a_few_positions_is_reading_all_and_choosing(make, tokens, settings):
    model = make(**settings)
    mask = torch.ones(4, 8, dtype=torch.bool)
    mask[3, 6:] = False
    _, cache = model.run_with_cache(tokens, attention_mask=mask)
    rows = torch.arange(4)[:, None]
    for layer in range(4):
        resid = cache["resid_pre", layer] if layer < 3 else cache["resid_post", 2]
        inputs = {"tokens": tokens, "attention_mask": mask}
        whole = model.resume(resid, layer, **inputs)
        part = model.resume(resid, layer, read_at=READ_AT, **inputs)
        torch.testing.assert_close(part, whole[rows, READ_AT], atol=1e-12, rtol=0)
