"""Encoders: equations, hook points, invalid input."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_transformer import attention_by_head, mlp

from hooks import (
    Encoder,
    EncoderConfig,
    HeadPattern,
    Transformer,
    TransformerConfig,
    load_checkpoint,
    make_model,
    save_checkpoint,
    verify,
)
from hooks.interventions.ablation_engine import AblationEngine
from hooks.interventions.replacements import Zero
from hooks.model.architectures import config_from_dict
from hooks.model.embeddings import BracketStates
from hooks.model.presets import albert_encoder, bert_encoder

SIZES = {"d_vocab": 11, "d_model": 12, "n_heads": 3, "n_layers": 3, "n_ctx": 10}
BERT = {**SIZES, "n_token_types": 2}
VARIANTS = {
    "bert": {},
    "bert_pooled": {"pooler": True},
    "own_rows": {"tied_embedding": False, "activation": "relu"},
    "albert": {"tied": True, "d_embedding": 5, "activation": "gelu_tanh"},
    "square": {"d_embedding": 12},
    "labels": {"head": "linear", "d_vocab_out": 4},
    "hidden": {"head": "none", "pooler": True},
    "bare_inputs": {"n_token_types": 0, "embedding_norm": False},
    "pre_ln": {"block": "pre_ln", "head": "linear"},
    "causal_sinusoidal": {"attention": "causal", "positions": "sinusoidal", "d_embedding": 6},
    "no_positions": {"positions": "none"},
}


@pytest.fixture
def build():
    """Small encoders without a single zero or one among their parameters, so that a forgotten one shows."""

    def make_one(*, dtype=torch.float64, **more):
        model = Encoder(EncoderConfig(**{**BERT, **more})).to(dtype).eval()
        generator = torch.Generator().manual_seed(1)
        for parameter in model.parameters():
            parameter.data = 0.5 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64).to(dtype)
        return model

    return make_one


@pytest.fixture
def kinds():
    return torch.randint(2, (4, 8), generator=torch.Generator().manual_seed(3))


def norm(x, part):
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.pow(2).mean(-1, keepdim=True) + part.eps).sqrt() * part.weight + part.bias


def activated(x, activation):
    if activation == "relu":
        return x.clamp(min=0)
    if activation == "gelu":
        return x * (1 + torch.erf(x / math.sqrt(2))) / 2
    return x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2


def by_equations(model, tokens, kinds):
    """Embed, layer by layer, head: every term written out."""
    cfg = model.cfg
    x = model.embed.weight[tokens] + model.positions.weight[: tokens.shape[1]]
    if cfg.n_token_types:
        x = x + model.token_types.weight[kinds]
    if cfg.embedding_norm:
        x = norm(x, model.norm_embed)
    if cfg.d_embedding:
        x = x @ model.embed_up.weight.T + model.embed_up.bias
    for layer in range(cfg.n_layers):
        block = model.weights[0 if cfg.tied else layer]
        x = norm(x + attention_by_head(x, block.attention, cfg), block.norm_1)
        x = norm(x + mlp(x, block, lambda pre: activated(pre, cfg.activation)), block.norm_2)
    if cfg.head == "none":
        return x
    head = model.unembed
    if cfg.head == "linear":
        return x @ head.weight.T + head.bias
    inner = activated(x @ head.dense.weight.T + head.dense.bias, cfg.activation)
    rows = model.embed.weight if cfg.tied_embedding else head.rows
    return norm(inner, head.norm) @ rows.T + head.bias


@pytest.mark.parametrize("variant", ["bert", "own_rows", "albert", "square", "labels", "hidden", "bare_inputs"])
def test_logits_are_the_equations(build, tokens, kinds, variant):
    model = build(**VARIANTS[variant])
    types = kinds if model.cfg.n_token_types else None
    assert torch.allclose(model(tokens, token_type_ids=types), by_equations(model, tokens, kinds), atol=1e-10)


def test_token_types_default_to_the_first(build, tokens, kinds):
    model = build()
    assert torch.equal(model(tokens), model(tokens, token_type_ids=torch.zeros_like(tokens)))
    assert not torch.allclose(model(tokens), model(tokens, token_type_ids=kinds), atol=1e-2)


@pytest.mark.parametrize("variant", ["bert", "albert"])
def test_hook_points_are_those_of_a_transformer_and_four_more(build, variant):
    model = build(**VARIANTS[variant])
    plain = Transformer(TransformerConfig(**SIZES, block="post_ln", tied=model.cfg.tied))
    more = {f"{norm}.{name}" for norm in ("ln_embed", "ln_head") for name in ("hook_scale", "hook_normalized")}
    assert set(model.hook_dict) == set(plain.hook_dict) | more | {"hook_token_type_embed"}


def test_hook_points_hold_what_they_say(build, tokens, kinds):
    model = build(**VARIANTS["albert"])
    _, cache = model.run_with_cache(tokens, token_type_ids=kinds)
    total = cache["hook_embed"] + cache["hook_pos_embed"] + cache["hook_token_type_embed"]
    assert cache["hook_token_type_embed"].shape == (4, 8, 5)
    assert torch.allclose(norm(total, model.norm_embed), cache["ln_embed.hook_normalized"])
    assert torch.allclose(cache["ln_embed.hook_scale"][..., 0], (total.var(-1, unbiased=False) + 1e-5).sqrt())
    up = cache["ln_embed.hook_normalized"] @ model.embed_up.weight.T + model.embed_up.bias
    assert torch.allclose(up, cache["resid_pre", 0])
    assert model.W_E.shape == (11, 5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_verify(variant):
    report = verify(Encoder(EncoderConfig(**{**BERT, "n_layers": 2, **VARIANTS[variant]})))
    assert report.ok, report


@pytest.mark.parametrize("variant", ["bert_pooled", "albert", "labels", "bare_inputs"])
def test_checkpoints(build, tokens, tmp_path, variant):
    model = build(**VARIANTS[variant])
    save_checkpoint(model, tmp_path / "model")
    loaded = load_checkpoint(tmp_path / "model", cfg=model.cfg)
    assert type(loaded) is Encoder
    assert loaded.cfg == model.cfg
    assert torch.equal(loaded(tokens), model(tokens))
    assert list(loaded.state_dict()) == list(model.state_dict())


def test_a_checkpoint_of_another_class_says_so(build, tmp_path):
    save_checkpoint(build(), tmp_path / "model")
    with pytest.raises(ValueError, match=r"another config: .*architecture is 'encoder', not None"):
        load_checkpoint(tmp_path / "model", cfg=TransformerConfig(**SIZES))


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("variant", ["bert", "albert", "labels"])
def test_resuming_from_the_middle(build, tokens, kinds, variant, tied):
    model = build(**{**VARIANTS[variant], "tied": tied})
    logits, cache = model.run_with_cache(tokens, token_type_ids=kinds)
    assert torch.equal(model.resume(cache["resid_pre", 1], 1), logits)
    assert torch.equal(model(tokens, token_type_ids=kinds, depth=2), model.read_out(cache["resid_post", 1]))
    at = torch.tensor([[2], [5], [0], [7]])
    read = model.resume(cache["resid_pre", 2], 2, read_at=at)
    assert torch.allclose(read[:, 0], logits[torch.arange(4), at[:, 0]])


@pytest.mark.parametrize("n_layers", [1, 5])
def test_at_depth_is_an_encoder_with_the_same_weights(build, tokens, kinds, n_layers):
    model = build(**VARIANTS["albert"], pooler=True)
    other = model.at_depth(n_layers)
    assert type(other) is Encoder
    ours = dict(model.named_parameters())
    assert {name: id(p) for name, p in other.named_parameters()} == {name: id(p) for name, p in ours.items()}
    assert all(point is not model.hook_dict.get(name) for name, point in other.hook_dict.items())
    _, cache = model.run_with_cache(tokens, token_type_ids=kinds)
    resid = cache["resid_pre", 0]
    _, deeper = other.run_with_cache(tokens, token_type_ids=kinds)
    assert torch.equal(deeper["resid_pre", 0], resid)
    assert torch.equal(deeper["resid_post", 0], cache["resid_post", 0])
    with torch.no_grad():
        model.embed.weight += 1
    assert not torch.allclose(
        other(tokens, token_type_ids=kinds), deeper["resid_post", 0] @ torch.zeros(12, 11).double()
    )
    assert torch.equal(other.unembed.weight, model.embed.weight)


@pytest.mark.parametrize("variant", ["bert", "albert", "hidden"])
def test_the_engine_gives_what_a_hook_gives(build, tokens, kinds, variant):
    model = build(**VARIANTS[variant])
    mask = torch.arange(8) < torch.tensor([8, 5, 1, 3])[:, None]
    inputs = {"attention_mask": mask, "token_type_ids": kinds}
    engine = AblationEngine(model, tokens, **inputs)
    clean = model(tokens, **inputs)
    for (layer, head), logits in engine.each_head(lambda layer, seen: torch.zeros_like(seen.z)):
        name = f"blocks.{layer}.attn.hook_z"
        expected = model.run_with_hooks(tokens, **inputs, fwd_hooks=[(name, Zero().hook(head=head))])
        assert torch.allclose(logits, expected, atol=1e-10)
        assert float((logits - clean).detach().abs().max()) > 1e-5


def test_hard_coded_heads(build, tokens):
    row = (HeadPattern(kind="uniform"), HeadPattern(), HeadPattern(kind="association"))
    _, cache = build(head_patterns=(row,)).run_with_cache(tokens)
    assert torch.allclose(cache["pattern", 1][:, 0], torch.full((), 1 / 8).double())


def test_pooling(build, tokens):
    model = build(head="none", pooler=True)
    hidden = model(tokens)
    expected = torch.tanh(hidden[:, 0] @ model.pooler.weight.T + model.pooler.bias)
    assert torch.allclose(model.pool(hidden), expected)
    with pytest.raises(ValueError, match="this model has no pooler; make it with pooler=True"):
        build().pool(hidden)


def test_the_linear_head_has_a_read_out(build, tokens):
    model = build(**VARIANTS["labels"])
    logits, cache = model.run_with_cache(tokens)
    resid = cache["resid_post", 2]
    assert torch.allclose(resid @ model.W_U + model.b_U, logits)
    assert torch.equal(model.tokens_to_residual_directions(torch.tensor([1, 3])), model.W_U.T[[1, 3]])


def test_without_a_head_the_read_out_is_the_identity(build, tokens):
    model = build(**VARIANTS["hidden"])
    logits, cache = model.run_with_cache(tokens)
    assert torch.equal(logits, cache["resid_post", 2])
    assert torch.equal(model.W_U, torch.eye(12).double())
    assert not model.b_U.any()


def test_the_masked_lm_head_has_no_direction_per_token(build, tokens):
    model = build()
    text = r"no W_U: its masked-LM head is not linear .*model.read_out\(resid\)"
    with pytest.raises(ValueError, match=text):
        _ = model.W_U
    with pytest.raises(ValueError, match=text):
        model.tokens_to_residual_directions(torch.tensor([1]))
    with pytest.raises(ValueError, match="layers of a post_ln model normalise their output"):
        model.accumulated_bias(1)
    _, cache = model.run_with_cache(tokens)
    assert torch.equal(model.b_U, model.unembed.bias)
    assert torch.equal(model.unembed(cache["resid_post", 1]), model.read_out(cache["resid_post", 1]))


def test_biases_add_up_before_the_norm(build):
    model = build(**VARIANTS["pre_ln"])
    first = model.weights[0]
    assert torch.equal(model.accumulated_bias(1), first.attention.o.bias + first.mlp.w_out.bias)


def test_tokens_from_text(build):
    class Letters:
        def encode(self, text):
            return [ord(letter) - ord("a") for letter in text]

    model = build()
    with pytest.raises(ValueError, match="no tokenizer"):
        model.to_tokens("ab")
    model.tokenizer = Letters()
    assert model.to_tokens("abc").tolist() == [[0, 1, 2]]
    assert model.to_tokens(["ab", "cd"]).tolist() == [[0, 1], [2, 3]]
    assert model.to_tokens(torch.tensor([4, 5])).tolist() == [[4, 5]]
    assert model.to_single_token("c") == 2


@pytest.mark.usefixtures("as_a_user")
def test_token_types_that_do_not_fit(build, tokens, kinds):
    with pytest.raises(ValueError, match=r"token_type_ids is \(4, 5\); tokens is \(4, 8\)"):
        build()(tokens, token_type_ids=kinds[:, :5])
    with pytest.raises(ValueError, match="token_type_ids holds ids from 0 to 3; n_token_types of this model is 2"):
        build()(tokens, token_type_ids=3 * kinds)
    with pytest.raises(ValueError, match="token_type_ids is given, but n_token_types of this model is 0"):
        build(n_token_types=0)(tokens, token_type_ids=kinds)
    with pytest.raises(ValueError, match="tokens has 11 positions; n_ctx of this model is 10"):
        build()(torch.zeros(1, 11, dtype=torch.long))


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"head": "pooled"}, "head is 'pooled'; choose one of masked_lm, linear, none"),
        ({"n_token_types": -1}, "n_token_types is -1; it must not be negative"),
        ({"d_embedding": -1}, "d_embedding is -1; it must not be negative"),
        ({"d_vocab_out": 3}, "d_vocab_out is 3; with head 'masked_lm' it is d_vocab, 11"),
        ({"head": "none", "d_vocab_out": 11}, "d_vocab_out is 11; with head 'none' it is d_model, 12"),
        ({"head": "linear", "tied_embedding": True}, "tied_embedding is on, but head is 'linear'"),
        ({"n_heads": 5}, "n_heads is 5, which does not divide d_model 12"),
    ],
    ids=str,
)
@pytest.mark.usefixtures("as_a_user")
def test_settings_that_do_not_fit(more, text):
    with pytest.raises(ValueError, match=text):
        EncoderConfig(**{**BERT, **more})


def test_bracket_states_are_no_embedding_of_an_encoder():
    states = BracketStates(n_types=4, max_depth=2)
    with pytest.raises(ValueError, match="embedding holds bracket states; an encoder learns a vector per token"):
        EncoderConfig(**{**SIZES, "d_vocab": states.d_vocab}, embedding=states)


@given(
    head=st.sampled_from(["masked_lm", "linear", "none"]),
    tied=st.booleans(),
    own=st.booleans(),
    d_embedding=st.integers(0, 9),
    n_token_types=st.integers(0, 3),
    pooler=st.booleans(),
    embedding_norm=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_settings_survive_json(head, own, **more):
    cfg = EncoderConfig(**{**SIZES, **more}, head=head, tied_embedding=False if own and head == "masked_lm" else None)
    assert config_from_dict(cfg.to_dict()) == EncoderConfig.from_json(cfg.to_json()) == cfg
    assert cfg.to_dict()["architecture"] == "encoder"
    assert cfg.with_depth(5) == EncoderConfig.from_dict({**cfg.to_dict(), "n_layers": 5})
    assert "architecture" not in TransformerConfig(**SIZES).to_dict()
    model = make_model(cfg, seed=2)
    assert type(model) is Encoder
    assert model(torch.zeros(2, 3, dtype=torch.long)).shape == (2, 3, cfg.d_vocab_out)


def test_dicts_of_something_else():
    with pytest.raises(ValueError, match="the config is of architecture 'fully_connected', not 'encoder'"):
        EncoderConfig.from_dict({"architecture": "fully_connected"})
    with pytest.raises(ValueError, match=r"unknown fields 'n_segments'"):
        EncoderConfig.from_dict({**BERT, "n_segments": 2})
    with pytest.raises(ValueError, match="the config is of architecture 'encoder', not 'transformer'"):
        TransformerConfig.from_dict(EncoderConfig(**SIZES).to_dict())
    with pytest.raises(
        ValueError,
        match="of architecture 'decoder'; this unmyopic knows transformer, encoder, fully_connected, recurrent",
    ):
        config_from_dict({"architecture": "decoder"})


def test_first_weights_are_berts():
    model = Encoder(EncoderConfig(d_vocab=400, d_model=64, n_heads=4, n_token_types=50, d_embedding=32, pooler=True))
    assert model.cfg.block == "post_ln"
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2:
            assert float(parameter.detach().std()) == pytest.approx(0.02, rel=0.1), name
        else:
            assert (parameter == (1 if name.endswith("weight") else 0)).all(), name
    torch.manual_seed(0)
    before = torch.get_rng_state()
    assert torch.equal(Encoder(model.cfg).W_E, model.W_E)
    assert not torch.equal(Encoder(model.cfg, seed=1).W_E, model.W_E)
    assert torch.equal(torch.get_rng_state(), before)


def test_presets_take_sizes():
    tiny = {"d_vocab": 9, "d_model": 16, "n_heads": 2, "n_layers": 2, "n_ctx": 8}
    assert verify(Encoder(bert_encoder(**tiny))).ok
    cfg = albert_encoder(**tiny, d_embedding=4, head="linear", d_vocab_out=3)
    assert (cfg.tied, cfg.d_embedding, cfg.activation, cfg.head) == (True, 4, "gelu_tanh", "linear")
    assert (cfg.layer_norm_eps, cfg.n_token_types, cfg.init) == (1e-12, 2, "normal")
    assert not albert_encoder(**tiny, tied=False).tied


def test_padding_is_seen_by_no_real_token(build, tokens, kinds):
    model = build()
    mask = torch.arange(8) < torch.tensor([8, 5, 1, 3])[:, None]
    other = torch.where(mask, tokens, (tokens + 1) % 11)
    one, two = (model(t, mask, token_type_ids=kinds) for t in (tokens, other))
    assert torch.allclose(one[mask], two[mask], atol=1e-12)
    assert not torch.allclose(one[~mask], two[~mask], atol=1e-4)
