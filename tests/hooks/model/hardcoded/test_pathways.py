"""Models with Pathways: configs, hook points, resuming, presets, and no quadratic map."""

from dataclasses import replace

import pytest
import torch
from rounding import assert_equal_up_to_rounding
from torch.utils._python_dispatch import TorchDispatchMode

import hooks.model.transformer
from hooks import (
    EncoderConfig,
    HeadPattern,
    Pathways,
    Transformer,
    TransformerConfig,
    load_checkpoint,
    make_model,
    presets,
    save_checkpoint,
    verify,
)
from hooks.interventions.ablation_engine import AblationEngine
from hooks.interventions.replacements import Pattern, Zero
from hooks.model.architectures import config_from_dict
from hooks.model.hardcoded.lego_attention import HardcodedAttention
from hooks.model.hardcoded.token_maps import TokenMaps

MARKERS = {"cls_token": 1, "sep_token": 2}
SIZES = {"d_vocab": 11, "d_model": 24, "n_heads": 6, "n_layers": 3, "n_ctx": 100}
WIDTH = 4 * SIZES["d_model"]  # of the MLPs: terms of the longest sum
HYBRID = Pathways(learned=8, association=4, cls=4, sep=4, convolution=4, kernel_width=5, **MARKERS)
HARDCODE = replace(HYBRID, learned=0, association=8, convolution=8)
WIRINGS = {
    "hardcode": {"head_patterns": HARDCODE},
    "hybrid": {"head_patterns": HYBRID},
    "tied": {"head_patterns": HYBRID, "tied": True},
    "post_ln": {"head_patterns": HYBRID, "block": "post_ln"},
    "wide heads": {"head_patterns": replace(HYBRID, association=8), "n_heads": 7, "d_head": 4, "attn_bias": False},
    "all learned": {"head_patterns": Pathways(learned=24)},
    "no positions": {"head_patterns": replace(HYBRID, cls=0, learned=12), "positions": "none", "d_mlp": 0},
}


def config(**settings):
    return TransformerConfig(**{**SIZES, **settings})


def model_of(**settings):
    """Weights without a zero or one among them, so that each counts."""
    model = make_model(config(**settings)).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.4 * torch.randn(parameter.shape, generator=generator) + (parameter.ndim == 1))
    return model


def batch_of(pos=9, rows=3, *, padded=False):
    tokens = torch.randint(11, (rows, pos), generator=torch.Generator().manual_seed(2))
    tokens[:, 0], tokens[:, 4] = 1, 2
    mask = torch.ones(rows, pos, dtype=torch.bool)
    if padded:
        mask[1, 6:] = mask[2, 5:] = mask[2, 2] = False
    return tokens, mask


class Shapes(TorchDispatchMode):
    """Shapes of all floating tensors that any operation makes, while on."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for value in out if isinstance(out, tuple | list) else (out,):
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                self.seen.append(tuple(value.shape))
        return out

    def square(self, pos):
        return [shape for shape in self.seen if shape.count(pos) > 1]


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("train", [False, True])
def test_no_head_computes_a_quadratic_map(train, padded):
    tokens, mask = batch_of(97, rows=2)
    mask[1, 50:] = not padded
    given = mask if padded else None
    for pathways in (HARDCODE, HYBRID):
        model = model_of(head_patterns=pathways).train(train)
        with Shapes() as shapes:
            model(tokens, given)[mask].square().mean().backward()
        assert len(shapes.seen) > 100
        assert not shapes.square(97)
    with Shapes() as shapes:
        model.run_with_cache(tokens, given, names_filter="blocks.1.attn.hook_pattern")
    assert (2, 6, 97, 97) in shapes.square(97)  # computed if hooked


@pytest.mark.parametrize("tied", [False, True])
def test_maps_are_computed_once_per_batch(monkeypatch, tied):
    calls, original = [], hooks.model.transformer.token_maps

    def counted(*args, **kwargs):
        calls.append(original(*args, **kwargs))
        return calls[-1]

    monkeypatch.setattr(hooks.model.transformer, "token_maps", counted)
    model = model_of(head_patterns=HYBRID, tied=tied)
    seen = []
    for block in model.stored_blocks:
        block.attention.register_forward_pre_hook(lambda module, args: seen.append(args[1]))
    tokens, mask = batch_of(padded=True)
    model(tokens, mask)
    assert len(calls) == 1
    assert len(seen) == 3
    assert all(maps is calls[0] for maps in seen)
    model.run_with_cache(tokens, mask)
    assert len(calls) == 2


@pytest.mark.parametrize("wiring", WIRINGS)
def test_every_hook_point_fires_and_acts(wiring):
    report = verify(model_of(**WIRINGS[wiring], n_layers=2))
    assert report.ok, report
    assert ("blocks.1.attn.hook_q" in report.fires) == (wiring != "hardcode")
    assert {f"blocks.1.attn.hook_{name}" for name in ("v", "z", "attn_scores", "pattern")} < set(report.fires)
    assert report.pattern_error < 1e-5


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("wiring", WIRINGS)
def test_caching_changes_no_logits_and_cached_values_are_consistent(wiring, padded):
    model = model_of(**WIRINGS[wiring])
    tokens, mask = batch_of(padded=padded)
    logits, cache = model.run_with_cache(tokens, mask)
    assert torch.equal(logits, model(tokens, mask))
    kinds = [pattern.kind for pattern in model.cfg.patterns_of(1)] or ["learned"] * 6
    assert len(kinds) == model.cfg.n_heads
    for layer in range(3):
        pattern, v, z = (cache[name, layer] for name in ("pattern", "v", "z"))
        torch.testing.assert_close(pattern.sum(-1), torch.ones(pattern.shape[:-1]), rtol=0, atol=1e-6)
        assert not (pattern * (mask[:, None, :, None] & ~mask[:, None, None])).any()
        mixed = (pattern @ v.transpose(1, 2)).transpose(1, 2)
        for head, kind in enumerate(kinds):
            close = torch.allclose(mixed[:, :, head][mask], z[:, :, head][mask], rtol=1e-5, atol=1e-5)
            assert close == (kind != "convolution"), (layer, head)


def test_padding_and_batch_change_no_logits():
    for wiring in WIRINGS.values():
        model = model_of(**wiring)
        tokens, mask = batch_of(padded=True)
        mask[2, 2] = True
        others = torch.where(mask, tokens, 1)  # padding may be written as [CLS] too
        logits = model(tokens, mask)
        assert torch.equal(model(others, mask)[mask], logits[mask])
        assert torch.equal(model(tokens, mask.long()), logits)
        for row in range(3):
            alone = model(tokens[row : row + 1, : mask[row].sum()])
            assert_equal_up_to_rounding(alone[0], logits[row, mask[row]], terms=WIDTH)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("wiring", WIRINGS)
def test_resuming_gives_the_rest_of_the_pass(wiring, padded):
    model = model_of(**WIRINGS[wiring])
    tokens, mask = batch_of(padded=padded)
    with torch.no_grad():
        logits, cache = model.run_with_cache(tokens, mask)
        at = torch.tensor([[3, 8], [5, 0], [4, 3]])
        row = torch.arange(3)[:, None]
        given = {"tokens": tokens, "attention_mask": mask if padded else None}
        for layer in range(4):
            resid = cache["resid_pre", layer] if layer < 3 else cache["resid_post", 2]
            assert_equal_up_to_rounding(model.resume(resid, layer, **given), logits, terms=WIDTH)
            asked = model.resume(resid, layer, read_at=at, **given)
            assert_equal_up_to_rounding(asked, logits[row, at], terms=WIDTH)
        with model.hooks([("blocks.2.attn.hook_pattern", lambda value, hook: None)]):
            watched = model.resume(cache["resid_pre", 1], 1, read_at=at, **given)
        assert_equal_up_to_rounding(watched, logits[row, at], terms=WIDTH)


def test_heads_are_replaced_exactly():
    model = model_of(head_patterns=HYBRID)
    tokens, mask = batch_of(padded=True)
    at = torch.tensor([[3, 8], [5, 0], [4, 3]])
    engine = AblationEngine(model, tokens, read_at=at, attention_mask=mask)
    found = dict(engine.each_head(lambda layer, clean: torch.zeros_like(clean.z)))
    assert len(found) == 18
    with torch.no_grad():
        for (layer, head), logits in found.items():
            by_hook = model.run_with_hooks(
                tokens, mask, fwd_hooks=[(f"blocks.{layer}.attn.hook_z", Zero().hook(head=head))]
            )
            wanted = by_hook[torch.arange(3)[:, None], at]
            assert_equal_up_to_rounding(logits, wanted, terms=WIDTH)


@pytest.mark.parametrize("head", range(6))
def test_a_pattern_may_be_replaced_in_any_head(head):
    model = model_of(head_patterns=HYBRID)
    tokens, mask = batch_of()
    pattern = torch.rand(1, 9, 9, generator=torch.Generator().manual_seed(0)).softmax(-1)
    before = model.run_with_cache(tokens, mask)[1]
    with model.hooks([("blocks.0.attn.hook_pattern", Pattern(pattern).hook(head=head))]):
        cache = model.run_with_cache(tokens, mask)[1]
    assert_equal_up_to_rounding(cache["z", 0][:, :, head], pattern @ cache["v", 0][:, :, head], terms=WIDTH)
    others = [other for other in range(6) if other != head]
    assert torch.equal(cache["z", 0][:, :, others], before["z", 0][:, :, others])


def test_queries_of_hard_coded_heads_cannot_be_edited():
    model = model_of(head_patterns=HYBRID)
    tokens, _ = batch_of()
    clean = model(tokens)
    for name in ("q", "k"):
        point = f"blocks.1.attn.hook_{name}"
        assert not torch.equal(model.run_with_hooks(tokens, fwd_hooks=[(point, Zero().hook(head=1))]), clean)
        for head, kind in ((2, "association"), (3, "broadcast"), (5, "convolution")):
            words = rf"{point} for head {head} would do nothing: that head's pattern is hard-coded \({kind}\)"
            with pytest.raises(ValueError, match=words):
                model.run_with_hooks(tokens, fwd_hooks=[(point, Zero().hook(head=head))])
    with pytest.raises(ValueError, match=r"hook name 'blocks.1.attn.hook_q' does not exist"):
        model_of(head_patterns=HARDCODE).run_with_hooks(tokens, fwd_hooks=[("blocks.1.attn.hook_q", Zero().hook())])


def test_weights_have_transformer_lens_shapes():
    model = model_of(head_patterns=HYBRID, attn_scale=3.0)
    tokens, _ = batch_of()
    _, cache = model.run_with_cache(tokens)
    attn, read = model.blocks[1].attn, cache["blocks.1.ln1.hook_normalized"]
    for name, values in (("Q", cache["q", 1]), ("K", cache["k", 1]), ("V", cache["v", 1])):
        weight, bias = getattr(attn, f"W_{name}"), getattr(attn, f"b_{name}")
        assert weight.shape == (6, 24, 4)
        assert bias.shape == (6, 4)
        n = values.shape[2]
        assert n == (6 if name == "V" else 2)
        assert_equal_up_to_rounding(torch.einsum("bpd,hde->bphe", read, weight[:n]) + bias[:n], values, terms=WIDTH)
        assert not weight[n:].any()
        assert not bias[n:].any()
    scores = cache["q", 1].transpose(1, 2) @ cache["k", 1].permute(0, 2, 3, 1) / 3
    assert_equal_up_to_rounding(cache["attn_scores", 1][:, :2], scores, terms=WIDTH)
    written = torch.einsum("bphe,hed->bpd", cache["z", 1], attn.W_O) + attn.b_O
    assert_equal_up_to_rounding(written, cache["attn_out", 1], terms=WIDTH)


def test_a_tied_model_runs_longer():
    model = model_of(head_patterns=HYBRID, tied=True)
    tokens, mask = batch_of(padded=True)
    longer = model.at_depth(5)
    assert torch.equal(longer(tokens, mask, depth=3), model(tokens, mask))
    assert longer.cfg.pathways == HYBRID


def test_the_seed_decides_the_weights_and_the_kernel_mixes_at_full_size():
    cfg = config(head_patterns=replace(HYBRID, convolution=200, kernel_width=25), d_model=24, n_heads=55, d_head=4)
    state = torch.get_rng_state()
    one, same, other = (make_model(replace(cfg, init="normal"), seed=seed) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), state)
    for (name, value), again, another in zip(
        one.named_parameters(), same.parameters(), other.parameters(), strict=True
    ):
        assert torch.equal(value, again)
        assert torch.equal(value, another) == (value.ndim == 1), name
    attention = one.stored_blocks[0].attention
    assert isinstance(attention, HardcodedAttention)
    assert float(attention.kernel.detach().std()) == pytest.approx(0.2, rel=0.1)  # 25^-0.5
    assert float(attention.v.weight.detach().std()) == pytest.approx(0.02, rel=0.1)


def test_mimetic_queries_and_keys_are_those_of_learned_heads():
    model = make_model(config(head_patterns=HYBRID, init="mimetic"))
    attn = model.blocks[0].attn
    product = attn.W_Q @ attn.W_K.mT
    diagonal = product.diagonal(dim1=1, dim2=2).mean(-1)
    assert (diagonal[:2] > 5 * product[:2].mean((1, 2)).abs()).all()
    assert not diagonal[2:].any()


def test_a_config_survives_json():
    for wiring in WIRINGS.values():
        cfg = config(**wiring)
        assert TransformerConfig.from_json(cfg.to_json()) == cfg
        assert config_from_dict(cfg.to_dict()) == cfg
        assert hash(cfg) == hash(TransformerConfig.from_json(cfg.to_json()))
        assert cfg.with_depth(2).pathways == cfg.pathways
        assert replace(cfg, head_patterns=()) == config(**{**wiring, "head_patterns": ()})
    cfg = presets.hybrid(d_vocab=11, d_model=24, n_heads=6, **MARKERS)
    assert EncoderConfig.from_json(cfg.to_json()) == cfg
    assert cfg.to_dict()["pathways"]["learned"] == 12
    assert config(head_patterns=HYBRID).to_dict()["head_patterns"] == []
    assert "pathways" not in config().to_dict()
    assert "pathways" not in presets.bert_encoder().to_dict()
    assert config(head_patterns=HYBRID) != config(head_patterns=HARDCODE) != config()


@pytest.mark.parametrize("make", [presets.hybrid, presets.hardcode, None], ids=["hybrid", "hardcode", "plain"])
def test_checkpoint_round_trip_with_pathways(tmp_path, make):
    sizes = {**SIZES, "d_model": 24}
    cfg = config(head_patterns=HYBRID) if make is None else make(**sizes, **MARKERS)
    model = make_model(cfg, seed=5).eval()
    save_checkpoint(model, tmp_path / "model.safetensors")
    loaded = load_checkpoint(tmp_path / "model.safetensors", cfg=cfg)
    assert loaded.cfg == cfg
    tokens, mask = batch_of(padded=True)
    assert torch.equal(loaded(tokens, mask), model(tokens, mask))
    with pytest.raises(ValueError, match=r"has another config: .*pathways is .*'kernel_width': .*, not None"):
        load_checkpoint(tmp_path / "model.safetensors", cfg=replace(cfg, head_patterns=()))


@pytest.mark.parametrize(
    ("make", "heads", "millions"),
    [
        (presets.hardcode, {"learned": 0, "association": 1, "cls": 1, "sep": 1, "convolution": 9}, 95.5),
        (presets.hybrid, {"learned": 6, "association": 1, "cls": 1, "sep": 1, "convolution": 3}, 102.5),
        (presets.bert_encoder, None, 109.5),
    ],
)
def test_base_sizes_are_the_papers(make, heads, millions):
    cfg = make()
    with torch.device("meta"):
        model = make_model(cfg)
    assert round(sum(parameter.numel() for parameter in model.parameters()) / 1e6, 1) == millions
    if heads is not None:
        assert cfg.pathways.heads(cfg.d_head, 768) == heads
        assert (cfg.pathways.kernel_width, cfg.pathways.cls_token, cfg.pathways.sep_token) == (21, 101, 102)
        kinds = [pattern.kind for pattern in cfg.patterns_of(7)]
        order = ["learned", "association", "broadcast", "broadcast", "convolution"]
        assert kinds == sorted(kinds, key=order.index)
        assert [pattern.token for pattern in cfg.patterns_of(0) if pattern.token is not None] == [101, 102]


def test_presets_take_other_sizes_and_mixtures():
    cfg = presets.hybrid(d_vocab=11, d_model=24, n_heads=6, n_layers=1, cls_token=3, sep_token=4)
    assert cfg.pathways == Pathways(learned=12, association=4, cls=4, sep=4, cls_token=3, sep_token=4)
    cfg = presets.hardcode(d_vocab=11, d_model=24, n_heads=5, d_head=2, n_layers=1, **MARKERS)
    assert cfg.pathways == Pathways(association=2, cls=2, sep=2, convolution=4, **MARKERS)
    assert presets.hybrid(d_vocab=11, d_model=24, n_heads=6, head_patterns=HYBRID).pathways == HYBRID
    assert (cfg.block, cfg.head, cfg.tied_embedding, cfg.n_token_types) == ("post_ln", "masked_lm", True, 2)
    with pytest.raises(
        ValueError, match=r"n_heads is 2, of which 0 are learned; association, \[CLS\] and \[SEP\] need three others"
    ):
        presets.hardcode(d_model=8, n_heads=2)
    with pytest.raises(ValueError, match="n_heads is 4, of which 2 are learned; association"):
        presets.hybrid(d_model=8, n_heads=4)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"learned": -4, "association": 8}, "pathways has the sizes learned -4, association 8, .*; give none below 0"),
        ({}, "pathways has the sizes learned 0, association 0, cls 0, sep 0, convolution 0; .*, and one above"),
        (
            {"convolution": 4, "kernel_width": 20},
            "kernel_width is 20; it must be odd, so that the query's own",
        ),
        ({"convolution": 4, "kernel_width": -1}, "kernel_width is -1; it must be odd"),
        ({"cls": 4, "sep_token": 2}, r"pathways broadcasts from \[CLS\], but cls_token is None; give that token's id"),
        ({"sep": 4, "cls_token": 1}, r"pathways broadcasts from \[SEP\], but sep_token is None"),
    ],
)
def test_pathways_that_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        Pathways(**settings)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"d_model": 30}, "the pathways add up to 24, not to the width 30 of all heads .*learned 8, .*; add 6"),
        ({"n_heads": 5, "d_head": 4}, "the pathways add up to 24, not to the width 20 of all heads .*; remove 4"),
        ({"n_heads": 4}, "pathway learned is 8 wide, not a whole number of heads of d_head 6"),
        ({"head_patterns": replace(HYBRID, cls_token=11)}, "head_patterns broadcasts token 11; d_vocab is 11"),
        ({"head_patterns": replace(HYBRID, sep_token=-1)}, "head_patterns broadcasts token -1; d_vocab is 11"),
        ({"attention": "causal"}, "pathways look at later tokens too, but attention is 'causal'; make it 'bidirec"),
        ({"qk_identity": True}, "pathways need output_projection, and neither qk_identity nor vo_identity; change"),
        ({"vo_identity": True}, "pathways need output_projection, and neither qk_identity nor vo_identity; change"),
        ({"output_projection": False}, "pathways need output_projection, and neither qk_identity nor vo_identity;"),
        (
            {"head_patterns": ((HeadPattern(kind="convolution"),) * 6,)},
            "head_patterns has a convolution, whose kernels are learned; only Pathways have one",
        ),
    ],
)
def test_configs_that_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        config(**{"head_patterns": HYBRID, **settings})


def test_inputs_that_are_refused():
    model = model_of(head_patterns=HYBRID)
    tokens, mask = batch_of(padded=True)
    assert model(tokens, mask).shape == (3, 9, 11)
    resid = model.run_with_cache(tokens, mask)[1]["resid_pre", 1]
    with pytest.raises(ValueError, match=r"this model has hard-coded heads, which depend on token ids: pass tokens as"):
        model.resume(resid, 1)
    learned = model_of(head_patterns=Pathways(learned=24))
    with pytest.raises(ValueError, match="hard-coded heads, which depend on token ids: pass tokens as well"):
        learned.resume(resid, 1)
    lacking = torch.where(tokens == 1, 5, tokens)
    with pytest.raises(ValueError, match=r"sequence 0 of tokens has no \[CLS\] \(id 1\) to broadcast from; every seq"):
        model(lacking)
    mask[1] = tokens[1] != 2
    with pytest.raises(ValueError, match=r"sequence 1 of tokens has no \[SEP\] \(id 2\) .* outside its padding"):
        model(tokens, mask)
    with pytest.raises(ValueError, match="holds ids from 0 to 11; d_vocab"):
        model(torch.where(tokens == 5, 11, tokens))
    for sizes in (HYBRID, HARDCODE):
        with pytest.raises(ValueError, match="pattern is 'convolution'; only a hard-coded pattern has a map"):
            TokenMaps(tokens=tokens).dense(config(head_patterns=sizes).patterns_of(0)[-1])


def test_descriptions_with_unknown_sizes_are_refused():
    assert Pathways.from_dict(HYBRID.to_dict()) == HYBRID
    with pytest.raises(ValueError, match=r"pathways has unknown fields 'rotary'; was it written by a newer"):
        Pathways.from_dict({**HYBRID.to_dict(), "rotary": 4})


def test_tokens_are_framed_where_markers_are_broadcast():
    tokens = torch.full((2, 4), 5)
    assert HYBRID.framed(tokens).tolist() == [[1, 5, 5, 2]] * 2
    assert replace(HYBRID, cls=0).framed(tokens).tolist() == [[5, 5, 5, 2]] * 2
    assert replace(HYBRID, sep=0).framed(tokens).tolist() == [[1, 5, 5, 5]] * 2
    assert tokens.unique().tolist() == [5]


def test_ordinary_models_have_ordinary_attention():
    assert not isinstance(Transformer(config()).stored_blocks[0].attention, HardcodedAttention)
    assert all(
        isinstance(block.attention, HardcodedAttention) for block in model_of(head_patterns=HYBRID).stored_blocks
    )
