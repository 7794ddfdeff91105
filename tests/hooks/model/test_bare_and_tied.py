"""Blocks without norm and residual connection, and read-outs tied to the embedding."""

import copy

import pytest
import torch
import torch.nn.functional as F
from safetensors import safe_open
from test_transformer import attention_by_head, close, mlp, norm

from hooks import Transformer, TransformerConfig, load_checkpoint, presets, save_checkpoint, verify
from hooks.interventions.replacements import Zero
from hooks.model.embeddings import BracketStates

TINY = {"d_vocab": 9, "d_model": 16, "n_heads": 2, "n_layers": 2, "n_ctx": 8}


def embedded(model, tokens):
    return model.embed.weight[tokens] + model.positions.weight[: tokens.shape[1]]


@pytest.mark.parametrize("settings", [{}, {"attn_bias": False, "vo_identity": True, "qk_identity": True, "d_head": 5}])
def test_bare_block_is_its_equation(make, tokens, settings):
    model = make(block="bare", n_layers=2, **settings)
    x = embedded(model, tokens)
    for block in model.weights:
        x = mlp(attention_by_head(x, block.attention, model.cfg), block)
    close(model(tokens), x @ model.unembed.weight.T + model.unembed.bias)


def test_bare_block_without_mlp_is_attention_alone(make, tokens):
    model = make(block="bare", d_mlp=0, attention="causal", n_layers=2)
    x, unseen = embedded(model, tokens), torch.ones(8, 8, dtype=torch.bool).triu(1)
    for block in model.weights:
        x = attention_by_head(x, block.attention, model.cfg, allowed=~unseen)
    close(model(tokens), x @ model.unembed.weight.T + model.unembed.bias)


def test_bare_block_has_no_norm_at_all(make, tokens):
    model = make(block="bare")
    assert not [name for name, _ in model.named_parameters() if "norm" in name]
    assert not [name for name in model.hook_dict if ".ln" in name or "ln_final" in name]
    assert model.norm_final is None


def test_bare_block_has_no_residual_connection(make, tokens):
    """Without what attention writes, logits are those of the MLP's biases whatever was read."""
    model = make(block="bare", n_layers=1)
    logits = model.run_with_hooks(tokens, fwd_hooks=[("blocks.0.hook_attn_out", Zero().hook())])
    block = model.weights[0]
    written = F.gelu(block.mlp.w_in.bias) @ block.mlp.w_out.weight.T + block.mlp.w_out.bias
    close(logits, (written @ model.unembed.weight.T + model.unembed.bias).expand_as(logits))


def test_bare_models_can_be_resumed(make, tokens):
    model = make(block="bare")
    logits, cache = model.run_with_cache(tokens)
    for layer in range(3):
        close(model.resume(cache["resid_pre", layer], layer), logits)
        close(model.resume(cache["resid_pre", layer], layer, attn_out=cache["attn_out", layer]), logits)


@pytest.mark.parametrize("block", ["pre_ln", "bare"])
def test_tied_read_out_is_the_embedding_transposed(make, tokens, block):
    model = make(block=block, tied_embedding=True, n_layers=1)
    _, cache = model.run_with_cache(tokens)
    x = cache["resid_post", 0]
    x = x if model.norm_final is None else norm(x, model.norm_final)
    close(model(tokens), x @ model.embed.weight.T)
    assert model.W_U.equal(model.W_E.T)
    assert (model.b_U == 0).all()
    assert model.b_U.shape == (11,)


def test_tied_read_out_adds_no_parameters(make):
    tied, own = make(tied_embedding=True), make()
    missing = set(own.state_dict()) - set(tied.state_dict())
    assert missing == {"unembed.weight", "unembed.bias"}
    assert set(dict(tied.named_parameters())) == set(tied.state_dict())
    assert sum(p.numel() for p in own.parameters()) - sum(p.numel() for p in tied.parameters()) == 11 * 12 + 11


def test_gradients_reach_the_embedding_from_both_ends(make, tokens):
    model = make(tied_embedding=True)
    unread = [token for token in range(11) if not (tokens[:1] == token).any()]
    model(tokens[:1])[..., unread].sum().backward()
    assert unread
    assert (model.embed.weight.grad[unread].abs().sum(1) > 0).all()  # as read-out only
    read = sorted(set(tokens[0].tolist()))
    assert (model.embed.weight.grad[read].abs().sum(1) > 0).all()  # as input


def test_read_out_follows_the_embedding(make, tokens):
    model = make(tied_embedding=True)
    twin = copy.deepcopy(model)
    before = model(tokens)
    with torch.no_grad():
        twin.embed.weight[3] = 0
    assert (twin(tokens)[..., 3] == 0).all()
    assert torch.equal(model(tokens), before)
    assert twin.to(torch.float32).W_U.dtype == torch.float32
    deeper = make(tied=True, tied_embedding=True).at_depth(5)
    assert deeper.W_U.equal(deeper.W_E.T)


@pytest.mark.parametrize("settings", [{"tied_embedding": True}, {"block": "bare"}, {"block": "bare", "d_mlp": 0}])
def test_checkpoint_gives_the_same_model_back(make, tokens, tmp_path, settings):
    model = make(**settings)
    save_checkpoint(model, tmp_path / "model")
    with safe_open(tmp_path / "model", framework="pt") as file:
        assert ("unembed.weight" in list(file.keys())) == ("tied_embedding" not in settings)
    loaded = load_checkpoint(tmp_path / "model", cfg=model.cfg)
    assert torch.equal(loaded(tokens), model(tokens))
    with torch.no_grad():
        loaded.embed.weight[0] += 1
    assert loaded.W_U.equal(loaded.W_E.T) == bool(settings.get("tied_embedding"))


@pytest.mark.parametrize(
    "settings",
    [
        {"block": "bare"},
        {"block": "bare", "d_mlp": 0, "vo_identity": True, "attn_bias": False, "attention": "causal"},
        {"block": "bare", "tied": True, "qk_identity": True, "positions": "none"},
        {"block": "bare", "tied_embedding": True},
        {"tied_embedding": True, "block": "post_ln"},
    ],
    ids=str,
)
def test_hook_points_are_what_they_are_said_to_be(make, settings):
    report = verify(make(n_layers=2, **settings))
    assert report.ok, str(report)


def test_presets_of_the_template_paper():
    cfg = presets.template_copy(d_vocab=9)
    assert (cfg.d_model, cfg.n_heads, cfg.d_head, cfg.d_mlp, cfg.n_layers) == (128, 8, 32, 0, 1)
    assert (cfg.block, cfg.tied_embedding, cfg.attn_bias, cfg.init) == ("bare", True, False, "template")
    assert cfg.embedding_std == pytest.approx(128**-0.5)
    assert presets.template_copy(d_vocab=9, d_model=64).embedding_std == 0.125
    assert presets.template_copy(**TINY, embedding_std=1.0, vo_identity=True).embedding_std == 1.0
    base = presets.template(d_vocab=9)
    assert (base.init, base.block, base.tied_embedding, base.attn_bias) == ("template", "pre_ln", False, False)
    for cfg in (presets.template_copy(**TINY), presets.template(**TINY, tied_embedding=True)):
        assert verify(Transformer(cfg)).ok
    names = set(Transformer(presets.template_copy(**{**TINY, "n_layers": 1})).state_dict())
    assert names == {"embed.weight", "positions.weight", *(f"weights.0.attention.{name}.weight" for name in "qkvo")}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"d_vocab_out": 3}, "embedding of 9 learned tokens, but d_vocab_out is 3 and embedding None; remove these"),
        (
            {"d_vocab": 5, "embedding": BracketStates(n_types=1, max_depth=2)},
            "tied_embedding reads out with the embedding of 5 learned tokens, but d_vocab_out is 5 and embedding Br",
        ),
    ],
)
def test_an_embedding_that_cannot_read_out_is_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        TransformerConfig(**{**TINY, "tied_embedding": True, **settings})


def test_a_negative_spread_is_refused():
    with pytest.raises(ValueError, match="it must not be negative"):
        TransformerConfig(**TINY, embedding_std=-0.1)
