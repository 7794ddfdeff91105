"""AblationEngine, against hooks that make the same replacements in a full pass."""

from itertools import combinations
from types import SimpleNamespace

import pytest
import torch

from hooks import HeadPattern
from hooks.interventions.ablation_engine import AblationEngine, projected_values
from hooks.interventions.clean_pass import TOKENS_PER_PASS
from hooks.interventions.replacements import Mean, Pattern, Resample, Zero

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
    {"vo_identity": True, "qk_identity": True, "attention": "causal"},
    {"vo_identity": True, "block": "post_ln", "tied": True, "head_patterns": (CODED,)},
]
SETS = [[(0, 0)], [(2, 1)], [(1, 2), (0, 1)], [(0, 0), (0, 2), (1, 0), (2, 0), (2, 1)], [(1, 1), (2, 2)]]
READ_AT = torch.tensor([[0, 7], [3, 3], [6, 2], [1, 4]])


def other(layer, z):
    """Random head outputs."""
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
    """A replacement that uses z, v and pattern."""
    pattern = clean.pattern.square() / clean.pattern.square().sum(-1, keepdim=True)
    return clean.z / 2 + (pattern @ clean.v.transpose(1, 2)).transpose(1, 2)


REPLACEMENTS = (zero, mean, resample, mixed, sharpened)


def by_hand(model, tokens, heads, replace, **inputs):
    """Logits of a full pass with hooks that replace heads: z, or with b I the whole output."""
    values = {}

    def keep(activation, hook):
        values[hook.name] = activation

    def edit(z, hook):
        layer = hook.layer()
        at = f"blocks.{layer}."
        v = values[at + "attn.hook_v"]
        if model.cfg.vo_identity:
            x = values[at + ("ln1.hook_normalized" if model.cfg.block == "pre_ln" else "hook_resid_pre")]
            b, weight = model.block(layer).attention.b, model.blocks[layer].attn.W_O
            v = torch.stack([v[:, :, head] @ weight[head] + b[head] * x for head in range(model.cfg.n_heads)], 2)
        new = replace(layer, SimpleNamespace(z=z, v=v, pattern=values[at + "attn.hook_pattern"]))
        z = z.clone()
        for here, head in heads:
            if here == layer:
                z[:, :, head] = new[:, :, head]
        return z

    seen = ("hook_v", "hook_pattern", "ln1.hook_normalized", "hook_resid_pre")
    edited = "attn.hook_result" if model.cfg.vo_identity else "attn.hook_z"
    hooks = [(lambda name: name.endswith(seen), keep), (lambda name: name.endswith(edited), edit)]
    return model.run_with_hooks(tokens, fwd_hooks=hooks, **inputs)


def assert_exact(model, tokens, *, all_pairs=False, **inputs):
    """Compare the engine with hooks, for each head with one of the replacements, or with all of them."""
    every = [(layer, head) for layer in range(3) for head in range(3)]
    clean = model(tokens, **inputs)
    rows = torch.arange(4)[:, None]
    whole, part = (AblationEngine(model, tokens, read_at=read_at, **inputs) for read_at in (None, READ_AT))
    assert torch.equal(whole.logits, clean)
    assert torch.equal(part.logits, clean[rows, READ_AT])
    for index, replace in enumerate(REPLACEMENTS):
        of_heads = [dict(engine.each_head(replace)) for engine in (whole, part)]
        assert all(list(found) == every for found in of_heads)
        for heads in [*(every if all_pairs else every[index :: len(REPLACEMENTS)]), *SETS]:
            single = isinstance(heads, tuple)
            expected = by_hand(model, tokens, [heads] if single else heads, replace, **inputs)
            assert (expected - clean)[rows, READ_AT].abs().max() > 1e-3  # the replacement has an effect
            for engine, found, wanted in zip((whole, part), of_heads, (expected, expected[rows, READ_AT]), strict=True):
                logits = found[heads] if single else engine.head_set(heads, replace)
                torch.testing.assert_close(logits, wanted, atol=1e-10, rtol=0)


OF_LAYERS = [other(layer, torch.empty(4, 8, 3, 4, dtype=torch.float64)) for layer in range(3)]
TWICE = [torch.cat([one.flip(0), one]) for one in OF_LAYERS]
ROWS = PATTERN / PATTERN.sum(-1, keepdim=True)
VALUES = [
    (Zero(), zero),
    (Mean(OF_LAYERS), mean),
    (Resample(TWICE, torch.tensor([3, 5, 1, 7])), resample),
    (Pattern(ROWS), mixed),
    (Pattern(lambda layer, pattern: ROWS[:, None].expand_as(pattern)), mixed),
]


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


@pytest.mark.parametrize("settings", MODELS, ids=str)
def test_equals_hooks_by_hand(make, tokens, settings):
    assert_exact(make(**settings), tokens)


@pytest.mark.slow
@pytest.mark.parametrize("settings", MODELS, ids=str)
def test_equals_hooks_by_hand_for_every_head_and_replacement(make, tokens, settings):
    assert_exact(make(**settings), tokens, all_pairs=True)


@pytest.mark.parametrize("settings", [{}, {"attention": "causal"}, {"head_patterns": (CODED,)}], ids=str)
@pytest.mark.parametrize("side", ["left", "right"])
def test_equals_hooks_by_hand_with_padding(make, tokens, settings, side):
    mask = torch.ones(4, 8, dtype=torch.bool)
    mask[1, :3] = mask[2, :5] = False
    mask = mask if side == "left" else mask.flip(1)
    position_ids = (torch.arange(8) + torch.arange(4)[:, None]) % 8
    assert_exact(make(**settings), tokens, attention_mask=mask, position_ids=position_ids)


@pytest.mark.parametrize(("value", "function"), VALUES, ids=["zero", "mean", "resample", "pattern", "pattern_of"])
def test_values_equal_the_functions(make, tokens, value, function):
    engine = AblationEngine(make(), tokens)
    for heads in SETS:
        expected = engine.head_set(heads, function)
        torch.testing.assert_close(engine.head_set(heads, value), expected, atol=1e-12, rtol=0)
        assert (expected - engine.logits).abs().max() > 1e-3


def test_stays_within_1e_5_in_single_precision_when_many_heads_share_a_pass(make):
    model = make(dtype=torch.float32, n_heads=6, n_ctx=10)
    tokens = torch.randint(11, (30, 8), generator=torch.Generator().manual_seed(3))
    assert 1 < TOKENS_PER_PASS // tokens.numel() < 6  # several passes, several heads in each
    for (layer, head), logits in AblationEngine(model, tokens).each_head(zero):
        expected = by_hand(model, tokens, [(layer, head)], zero)
        torch.testing.assert_close(logits, expected, atol=1e-5, rtol=0)


def test_small_passes_give_the_same_logits(make, tokens, monkeypatch):
    model = make()
    together = dict(AblationEngine(model, tokens).each_head(zero))
    monkeypatch.setattr("hooks.interventions.clean_pass.TOKENS_PER_PASS", 1)
    apart = dict(AblationEngine(model, tokens).each_head(zero))
    assert list(apart) == list(together)
    for head, logits in apart.items():
        torch.testing.assert_close(logits, together[head], atol=1e-12, rtol=0)


def test_empty_and_identity_replacements_give_the_clean_logits(make, tokens):
    model = make()
    engine = AblationEngine(model, tokens)
    assert torch.equal(engine.head_set([], zero), model(tokens))
    same = engine.head_set([(0, 1), (2, 0)], lambda layer, clean: clean.z)
    torch.testing.assert_close(same, model(tokens), atol=1e-12, rtol=0)


SOME = [(2, 1), (0, 0), (1, 1), (0, 2), (2, 0)]


@pytest.mark.parametrize("per_pass", [1, 3])
@pytest.mark.parametrize("settings", [MODELS[0], MODELS[4], MODELS[11], MODELS[12]], ids=str)
def test_every_subset_equals_hooks_by_hand(make, tokens, settings, per_pass, monkeypatch):
    monkeypatch.setattr("hooks.interventions.clean_pass.TOKENS_PER_PASS", per_pass * tokens.numel())
    model, rows = make(**settings), torch.arange(4)[:, None]
    whole, part = (
        dict(AblationEngine(model, tokens, read_at=at).every_subset(SOME, sharpened)) for at in (None, READ_AT)
    )
    expected = {tuple(sorted(some)) for size in range(6) for some in combinations(SOME, size)}
    assert set(whole) == set(part) == expected
    for heads in expected:
        wanted = by_hand(model, tokens, heads, sharpened)
        torch.testing.assert_close(whole[heads], wanted, atol=1e-10, rtol=0)
        torch.testing.assert_close(part[heads], wanted[rows, READ_AT], atol=1e-10, rtol=0)


def test_chosen_sets_are_each_computed_once(make, tokens):
    """A set inside another, sets that agree in a layer, one set twice, and one that agrees with no other."""
    engine = AblationEngine(make(), tokens, read_at=READ_AT)
    sets = [[(0, 1)], [(1, 2), (0, 1)], [(0, 1), (1, 2), (2, 0)], [(0, 1), (2, 2)], [(2, 2), (0, 1)], [(0, 0), (1, 0)]]
    found = list(engine.each_set(sets, sharpened))
    assert sorted(heads for heads, _ in found) == sorted({tuple(sorted(one)) for one in sets})
    for heads, logits in found:
        expected = by_hand(engine.model, tokens, heads, sharpened)[torch.arange(4)[:, None], READ_AT]
        torch.testing.assert_close(logits, expected, atol=1e-10, rtol=0)


def test_sets_that_agree_in_their_first_layers_share_them(make, tokens, monkeypatch):
    """Every subset takes one pass from the layer of its last head; without read positions, in one copy each."""
    monkeypatch.setattr("hooks.interventions.clean_pass.TOKENS_PER_PASS", 1)
    model, started = make(), []
    original = type(model).resume
    monkeypatch.setattr(type(model), "resume", lambda *args, **rest: started.append(args[2]) or original(*args, **rest))
    heads = [(0, 0), (0, 1), (1, 0), (2, 0), (2, 1)]
    assert len(list(AblationEngine(model, tokens).every_subset(heads, zero))) == 32
    assert [started.count(layer) for layer in range(3)] == [3, 4, 24]


def test_model_is_unchanged_and_no_hook_is_left(make, tokens):
    model = make()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    engine = AblationEngine(model, tokens)
    engine.head_set([(0, 0), (1, 1), (2, 2)], zero)

    def broken(layer, clean):
        if layer == 2:
            raise RuntimeError("on purpose")
        return clean.z

    with pytest.raises(RuntimeError, match="on purpose"):
        engine.head_set([(0, 0), (2, 2)], broken)
    assert not any(point.fwd_hooks for point in model.hook_dict.values())
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, before[name])


def test_replacement_gets_activations_under_earlier_edits(make, tokens):
    """Zeroing a head of layer 0 changes the inputs of the replacement in layer 2."""
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
    assert seen[1][3][:, :, 1].abs().min() > 0  # its input is not overwritten with its output


@pytest.mark.parametrize("settings", [{}, {"vo_identity": True}], ids=str)
def test_head_output_is_pattern_times_values(make, tokens, settings):
    model = make(**settings)
    engine = AblationEngine(model, tokens)
    for layer in range(3):
        heads = engine.heads(layer)
        mixed = (heads.pattern @ heads.v.transpose(1, 2)).transpose(1, 2)
        torch.testing.assert_close(mixed, heads.z, atol=1e-12, rtol=0)


def test_with_b_i_the_whole_head_output_is_replaced(make, tokens):
    """Against the attention output without the head, and with its mean over sequences."""
    model = make(vo_identity=True)
    engine = AblationEngine(model, tokens)
    _, cache = model.run_with_cache(tokens)
    for layer, head in [(0, 1), (2, 2)]:
        result = cache["result", layer]
        for replace, left in [(zero, 0.0), (lambda layer, clean: clean.z.mean(0).expand_as(clean.z), result.mean(0))]:
            attn_out = cache["attn_out", layer] - result[:, :, head]
            attn_out = attn_out + (left if isinstance(left, float) else left[:, head])
            expected = model.resume(cache["resid_pre", layer], layer, attn_out=attn_out, tokens=tokens)
            torch.testing.assert_close(engine.head_set([(layer, head)], replace), expected, atol=1e-10, rtol=0)
            torch.testing.assert_close(dict(engine.each_head(replace))[layer, head], expected, atol=1e-10, rtol=0)
        of_z_alone = model.run_with_hooks(tokens, fwd_hooks=[(f"blocks.{layer}.attn.hook_z", Zero().hook(head=head))])
        assert (of_z_alone - engine.head_set([(layer, head)], zero)).abs().max() > 1e-2  # b_h A_h x remains


@pytest.mark.parametrize(
    "settings", [{"block": "minimal"}, {"block": "dyck", "d_mlp": 0}, {"attention": "causal"}], ids=str
)
def test_b_i_in_every_wiring_with_padding(make, tokens, settings):
    model = make(vo_identity=True, **settings)
    mask = torch.ones(4, 8, dtype=torch.bool)
    mask[1, :3] = mask[2, 5:] = False
    engine = AblationEngine(model, tokens, read_at=READ_AT, attention_mask=mask)
    for heads in SETS:
        expected = by_hand(model, tokens, heads, sharpened, attention_mask=mask)[torch.arange(4)[:, None], READ_AT]
        torch.testing.assert_close(engine.head_set(heads, sharpened), expected, atol=1e-10, rtol=0)


@pytest.mark.parametrize("settings", MODELS, ids=str)
def test_read_at_selects_positions_of_the_full_logits(make, tokens, settings):
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


def test_what_a_head_writes_for_each_key(make):
    """Hand-computed, without b I and with it."""
    for settings in ({}, {"vo_identity": True}):
        model = make(**settings)
        v, x = torch.randn(2, 5, 3, model.cfg.d_head).double(), torch.randn(2, 5, model.cfg.d_model).double()
        found = projected_values(model, 1, v, x)
        by_hand = v[1, 4, 2] @ model.blocks[1].attn.W_O[2]
        if settings:
            model.block(1).attention.b.data[2] = 0.5
            found = projected_values(model, 1, v, x)
            by_hand = by_hand + 0.5 * model.block(1).read(x, model.blocks[1])[1, 4]
        torch.testing.assert_close(found[1, 4, 2], by_hand)
