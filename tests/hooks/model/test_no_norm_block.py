"""Blocks without norm, with or without MLP and biases: compiled programs, attention-only models."""

import json
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from transformer_lens.tools.analysis import direct_logit_attribution

from hooks import Encoder, EncoderConfig, Transformer, TransformerConfig, load_checkpoint, save_checkpoint, verify
from hooks.interventions.ablation_engine import AblationEngine
from hooks.interventions.replacements import Zero

UNBIASED = {"attn_bias": False, "mlp_bias": False}
VARIANTS = {
    "compiled": {**UNBIASED, "activation": "relu", "attn_scale": 1.0, "d_head": 5, "d_mlp": 7},
    "biased": {"activation": "gelu"},
    "attention only": {"d_mlp": 0, "attn_bias": False, "attention": "causal"},
    "attention only, biased": {"d_mlp": 0, "positions": "none", "tied_embedding": True},
    "tied": {**UNBIASED, "activation": "relu", "tied": True, "attention": "causal", "positions": "none"},
    "MLP bias only": {"attn_bias": False, "activation": "gelu_tanh", "qk_identity": True, "vo_identity": True},
}


@pytest.fixture(params=VARIANTS)
def model(request, make):
    return make(block="no_norm", **VARIANTS[request.param])


def close(ours, theirs):
    torch.testing.assert_close(ours, theirs, atol=1e-9, rtol=1e-9)  # without norms, activations grow


def or_zero(bias):
    return 0 if bias is None else bias


def dense(model, tokens):
    """The whole model from its parameters, one head at a time: x + sum_h softmax(QK) V O, then x + MLP(x)."""
    cfg, weights = model.cfg, dict(model.named_parameters())
    pos = tokens.shape[1]
    x = weights["embed.weight"][tokens]
    if cfg.positions == "learned":
        x = x + weights["positions.weight"][:pos]
    act = {"relu": F.relu, "gelu": F.gelu, "gelu_tanh": lambda pre: F.gelu(pre, approximate="tanh")}[cfg.activation]
    for layer in range(cfg.n_layers):
        block = f"weights.{0 if cfg.tied else layer}"
        w = {name.removeprefix(f"{block}."): value for name, value in weights.items() if name.startswith(block)}

        def affine(name, into, w=w):
            return into @ w[f"{name}.weight"].T + or_zero(w.get(f"{name}.bias"))

        query, key, value = (affine(f"attention.{name}", x) for name in "qkv")
        written = or_zero(w.get("attention.o.bias"))
        for head in range(cfg.n_heads):
            own = slice(head * cfg.d_head, (head + 1) * cfg.d_head)
            scores = query[..., own] @ key[..., own].mT / cfg.attn_scale
            if cfg.qk_identity:
                scores = scores + w["attention.a"][head] * x @ x.mT
            if cfg.attention == "causal":
                scores = scores.masked_fill(torch.ones(pos, pos).triu(1).bool(), -torch.inf)
            weight = (scores - scores.amax(-1, keepdim=True)).exp()
            pattern = weight / weight.sum(-1, keepdim=True)
            written = written + pattern @ value[..., own] @ w["attention.o.weight"][:, own].T
            if cfg.vo_identity:
                written = written + w["attention.b"][head] * pattern @ x
        x = x + written
        if cfg.d_mlp:
            x = x + affine("mlp.w_out", act(affine("mlp.w_in", x)))
    if cfg.tied_embedding:
        return x @ weights["embed.weight"].T
    return x @ weights["unembed.weight"].T + weights["unembed.bias"]


def test_it_is_the_dense_computation(model, tokens):
    close(model(tokens), dense(model, tokens))


def test_parameters_and_hook_points_are_only_those_of_the_equation():
    sizes = {"d_vocab": 5, "d_model": 8, "n_heads": 2, "n_layers": 1, "block": "no_norm"}
    ends = {"embed.weight", "positions.weight", "unembed.weight", "unembed.bias"}
    maps = {f"weights.0.attention.{name}.weight" for name in "qkvo"}
    mlp = {f"weights.0.mlp.{name}.weight" for name in ("w_in", "w_out")}
    biases = {f"weights.0.mlp.{name}.bias" for name in ("w_in", "w_out")}
    attention = {"hook_resid_pre", "hook_attn_out", "hook_resid_post", "attn.hook_attn_scores", "attn.hook_pattern"}
    attention = {f"blocks.0.{name}" for name in attention | {f"attn.hook_{name}" for name in "qkvz"}}
    more = {f"blocks.0.{name}" for name in ("hook_resid_mid", "mlp.hook_pre", "mlp.hook_post", "hook_mlp_out")}
    outside = {"hook_embed", "hook_pos_embed"}
    bare = Transformer(TransformerConfig(**sizes, **UNBIASED))
    assert set(bare.state_dict()) == ends | maps | mlp
    assert set(bare.hook_dict) == attention | more | outside
    assert (bare.blocks[0].mlp.b_in == 0).all()
    assert bare.blocks[0].mlp.b_in.shape == (32,)
    biased = Transformer(TransformerConfig(**sizes, attn_bias=False))
    assert set(biased.state_dict()) == ends | maps | mlp | biases
    attention_only = Transformer(TransformerConfig(**sizes, attn_bias=False, d_mlp=0))
    assert set(attention_only.state_dict()) == ends | maps
    assert set(attention_only.hook_dict) == attention | outside
    assert (bare.ln_final, bare.norm_final, bare.cfg.normalization_type) == (None, None, None)


def test_biases_of_the_mlp_can_be_left_out_of_any_block(make, tokens):
    for block in ("pre_ln", "post_ln", "dyck", "bare", "extended"):
        model, biased = (make(block=block, mlp_bias=bias) for bias in (False, True))
        missing = {name for name in biased.state_dict() if ".mlp." in name and name.endswith("bias")}
        assert set(biased.state_dict()) - set(model.state_dict()) == missing
        assert bool(missing) == (block != "extended")
        for name, parameter in biased.named_parameters():
            if name in missing:
                parameter.data.zero_()
            else:
                parameter.data.copy_(model.get_parameter(name))
        close(model(tokens), biased(tokens))


def test_descriptions_of_models_with_biases_are_as_before():
    cfg = TransformerConfig(d_vocab=5, d_model=8, n_heads=2)
    assert "mlp_bias" not in cfg.to_dict()
    assert "mlp_bias" not in EncoderConfig(d_vocab=5, d_model=8, n_heads=2).to_dict()
    without = TransformerConfig(d_vocab=5, d_model=8, n_heads=2, block="no_norm", mlp_bias=False)
    assert without.to_dict()["mlp_bias"] is False
    for each in (cfg, without):
        assert TransformerConfig.from_json(each.to_json()) == each
        assert TransformerConfig.from_dict(json.loads(json.dumps(each.to_dict()))) == each


def test_checkpoint_gives_the_same_model_back(model, tokens, tmp_path):
    save_checkpoint(model, tmp_path / "model")
    loaded = load_checkpoint(tmp_path / "model", cfg=model.cfg)
    assert torch.equal(loaded(tokens), model(tokens))
    with pytest.raises(ValueError, match=r"mlp_bias is None, not False|mlp_bias is False, not None"):
        load_checkpoint(tmp_path / "model", cfg=replace(model.cfg, mlp_bias=not model.cfg.mlp_bias))


def test_every_hook_point_acts(model):
    report = verify(model)
    assert report.ok, str(report)


def test_passes_resume_in_the_middle(model, tokens):
    logits, cache = model.run_with_cache(tokens)
    read_at = torch.tensor([[0, 5]] * len(tokens))
    rows = logits[:, [0, 5]]
    for layer in range(model.cfg.n_layers):
        resid, written = cache["resid_pre", layer], cache["attn_out", layer]
        close(model.resume(resid, layer), logits)
        close(model.resume(resid, layer, attn_out=written, read_at=read_at), rows)


def test_ablated_heads_equal_a_run_with_hooks(model, tokens):
    point = "hook_result" if model.cfg.vo_identity else "hook_z"
    for (layer, head), logits in AblationEngine(model, tokens).each_head(Zero()):
        edit = (f"blocks.{layer}.attn.{point}", Zero().hook(head=head))
        close(logits, model.run_with_hooks(tokens, fwd_hooks=[edit]))


def test_padding_does_not_change_real_tokens(model, tokens):
    mask = torch.ones_like(tokens, dtype=torch.bool)
    mask[:, 6:] = False
    close(model(tokens, mask)[:, :6], model(tokens[:, :6]))


@torch.no_grad()
def test_logit_attributions_add_up_without_a_norm(make, tokens):
    """Without a final norm, TransformerLens's attributions of all components and the bias are the logit."""
    model = make(block="no_norm", **VARIANTS["compiled"])
    logits, cache = model.run_with_cache(tokens)
    parts = cache.decompose_resid(apply_ln=True)
    close(parts, cache.decompose_resid(apply_ln=False))
    close(parts.sum(0), cache["resid_post", 2])
    close(model.unembed(parts.sum(0)), logits)
    close(model.tokens_to_residual_directions(3), model.W_U[:, 3])
    close(model.accumulated_bias(3), torch.zeros(12, dtype=torch.float64))
    for unit in ("component", "head"):
        by_unit = direct_logit_attribution(model, tokens, 3, unit=unit)
        close(by_unit.attribution.sum(0), logits[:, -1, 3] - model.b_U[3])


@torch.no_grad()
def test_accumulated_biases_are_those_of_attention_and_mlp(make):
    model = make(block="no_norm")
    expected = sum(block.attention.o.bias + block.mlp.w_out.bias for block in model.weights)
    close(model.accumulated_bias(3), expected)


def test_encoders_without_norms(tokens):
    cfg = EncoderConfig(
        d_vocab=11, d_model=12, n_heads=3, n_layers=2, block="no_norm", embedding_norm=False, head="linear", **UNBIASED
    )
    model = Encoder(cfg)
    assert [name for name in model.state_dict() if "norm" in name or name.endswith("bias")] == ["unembed.bias"]
    assert verify(model).ok
    assert EncoderConfig.from_dict(cfg.to_dict()) == cfg
