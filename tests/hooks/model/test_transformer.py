"""Transformers against torch's encoder, and against each equation written out."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hooks import Transformer, TransformerConfig
from hooks.model.positions import linear_table, sinusoidal_table


def close(ours, theirs, *, within=1e-10):
    torch.testing.assert_close(ours, theirs, atol=within, rtol=0)


def torch_layer(block, cfg):
    """torch's encoder layer with the weights of one of our blocks."""
    layer = nn.TransformerEncoderLayer(
        cfg.d_model, cfg.n_heads, cfg.d_mlp, dropout=0.0, activation="gelu", layer_norm_eps=cfg.layer_norm_eps,
        batch_first=True, norm_first=cfg.block == "pre_ln", dtype=block.norm_1.weight.dtype,
    )  # fmt: skip
    a, m = block.attention, block.mlp
    layer.load_state_dict(
        {
            "self_attn.in_proj_weight": torch.cat([a.q.weight, a.k.weight, a.v.weight]),
            "self_attn.in_proj_bias": torch.cat([a.q.bias, a.k.bias, a.v.bias]),
            "self_attn.out_proj.weight": a.o.weight,
            "self_attn.out_proj.bias": a.o.bias,
            "linear1.weight": m.w_in.weight,
            "linear1.bias": m.w_in.bias,
            "linear2.weight": m.w_out.weight,
            "linear2.bias": m.w_out.bias,
            "norm1.weight": block.norm_1.weight,
            "norm1.bias": block.norm_1.bias,
            "norm2.weight": block.norm_2.weight,
            "norm2.bias": block.norm_2.bias,
        }
    )
    return layer


def torch_encoder(model, tokens, padding=None):
    """Logits by torch's layers, with the ends of the model written out."""
    cfg, pos = model.cfg, tokens.shape[1]
    unseen = torch.ones(pos, pos, dtype=torch.bool).triu(1) if cfg.attention == "causal" else None
    x = model.embed.weight[tokens] + model.positions.weight[:pos]
    for layer in range(cfg.n_layers):
        block = model.weights[0 if cfg.tied else layer]
        x = torch_layer(block, cfg)(x, src_mask=unseen, src_key_padding_mask=padding)
    if cfg.block == "pre_ln":
        x = F.layer_norm(x, (cfg.d_model,), model.norm_final.weight, model.norm_final.bias, cfg.layer_norm_eps)
    return x @ model.unembed.weight.T + model.unembed.bias


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("attention", ["causal", "bidirectional"])
@pytest.mark.parametrize("block", ["pre_ln", "post_ln"])
def test_equals_torchs_encoder(make, tokens, block, attention, tied):
    model = make(block=block, attention=attention, tied=tied, layer_norm_eps=1e-3)
    close(model(tokens), torch_encoder(model, tokens))


@pytest.mark.parametrize("block", ["pre_ln", "post_ln"])
def test_equals_torchs_encoder_in_single_precision(make, tokens, block):
    model = make(block=block, dtype=torch.float32)
    close(model(tokens), torch_encoder(model, tokens), within=1e-5)


@pytest.mark.parametrize("block", ["pre_ln", "post_ln"])
def test_equals_torchs_encoder_under_padding(make, tokens, block):
    model = make(block=block)
    real = torch.arange(8) < torch.tensor([8, 5, 1, 3])[:, None]
    close(model(tokens, real)[real], torch_encoder(model, tokens, ~real)[real])


def attention_by_head(x, attention, cfg, allowed=None):
    """Head by head, with dense d_model x d_model matrices: no reshape that could mix heads up.

    W_Q,h W_K,h^T / scale + a_h I is the bilinear form of the scores, W_V,h W_O,h + b_h I maps what is read.
    """
    identity, out = torch.eye(cfg.d_model, dtype=x.dtype), attention.o.bias_or_zero
    for head in range(cfg.n_heads):
        rows = slice(head * cfg.d_head, (head + 1) * cfg.d_head)
        q, k, v = (getattr(attention, name) for name in "qkv")
        form = q.weight[rows].T @ k.weight[rows] / cfg.attn_scale
        scores = x @ form @ x.transpose(1, 2)
        if cfg.attn_bias:
            scores = scores + (x @ q.weight[rows].T) @ k.bias[rows][None, :, None] / cfg.attn_scale
            scores = scores + ((q.bias[rows] @ k.weight[rows] @ x.transpose(1, 2)) / cfg.attn_scale)[:, None]
            scores = scores + q.bias[rows] @ k.bias[rows] / cfg.attn_scale
        if cfg.qk_identity:
            scores = scores + x @ (attention.a[head] * identity) @ x.transpose(1, 2)
        if allowed is not None:
            scores = scores.masked_fill(~allowed, -torch.inf)
        mixed = scores.softmax(-1) @ x
        matrix = v.weight[rows].T @ attention.o.weight[:, rows].T
        out = out + mixed @ (matrix + attention.b[head] * identity if cfg.vo_identity else matrix)
        out = out + v.bias_or_zero[rows] @ attention.o.weight[:, rows].T
    return out


def norm(x, layer_norm):
    centred = x - x.mean(-1, keepdim=True)
    scale = (centred.pow(2).mean(-1, keepdim=True) + layer_norm.eps).sqrt()
    return centred / scale * layer_norm.weight + layer_norm.bias


def mlp(x, block, activation=F.gelu):
    hidden = activation(x @ block.mlp.w_in.weight.T + block.mlp.w_in.bias)
    return hidden @ block.mlp.w_out.weight.T + block.mlp.w_out.bias


def ends(model, tokens, layers):
    """Embedding and read-out around `layers`, a function of the residual stream."""
    x = layers(model.embed.weight[tokens] + model.positions.weight[: tokens.shape[1]])
    x = x if model.norm_final is None else norm(x, model.norm_final)
    return x @ model.unembed.weight.T + model.unembed.bias


def pre_ln(model, x, activation=F.gelu):
    for block in model.weights:
        x = x + attention_by_head(norm(x, block.norm_1), block.attention, model.cfg)
        x = x + mlp(norm(x, block.norm_2), block, activation)
    return x


def test_dyck_block_is_its_equation(make, tokens):
    model = make(block="dyck")

    def layers(x):
        for block in model.weights:
            middle = x + norm(attention_by_head(x, block.attention, model.cfg), block.norm_1)
            x = mlp(middle, block)
        return x

    close(model(tokens), ends(model, tokens, layers))
    assert model.norm_final is None
    assert all(block.norm_2 is None for block in model.weights)


@pytest.mark.parametrize(("qk", "vo"), [(False, False), (True, False), (False, True), (True, True)])
def test_identity_terms_are_dense_matrices_with_the_identity_added(make, tokens, qk, vo):
    model = make(qk_identity=qk, vo_identity=vo, attn_bias=False, d_head=5)
    close(model(tokens), ends(model, tokens, lambda x: pre_ln(model, x)))


def test_attention_without_biases_has_none(make):
    biases = [name for name, _ in make(attn_bias=False).named_parameters() if "attention" in name and "bias" in name]
    assert biases == []


def test_identity_terms_add_to_biases(make, tokens):
    model = make(qk_identity=True, vo_identity=True)
    close(model(tokens), ends(model, tokens, lambda x: pre_ln(model, x)))


def test_identity_scalars_matter_start_at_zero_and_are_absent_when_off(make, tokens):
    fresh = Transformer(make(qk_identity=True, vo_identity=True).cfg)
    assert all((block.attention.a == 0).all() and (block.attention.b == 0).all() for block in fresh.weights)
    assert not any(name.endswith((".a", ".b")) for name, _ in make().named_parameters())
    for name in "ab":
        model = make(qk_identity=True, vo_identity=True)
        before = model(tokens)
        setattr(model.weights[1].attention, name, nn.Parameter(torch.zeros(3, dtype=torch.float64)))
        assert not torch.allclose(model(tokens), before, atol=1e-3)


@pytest.mark.parametrize(
    ("name", "function"),
    [("relu", F.relu), ("gelu", F.gelu), ("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"))],
)
def test_activation_is_the_one_named(make, tokens, name, function):
    model = make(activation=name)
    close(model(tokens), ends(model, tokens, lambda x: pre_ln(model, x, function)))


def test_attn_scale_divides_the_scores(make, tokens):
    model = make(attn_scale=0.7, d_head=2)
    close(model(tokens), ends(model, tokens, lambda x: pre_ln(model, x)))
    assert make(d_head=9).cfg.attn_scale == 3


@pytest.mark.parametrize("block", ["pre_ln", "post_ln", "dyck"])
def test_without_mlp_a_layer_is_attention_alone(make, tokens, block):
    model = make(block=block, d_mlp=0)

    def layers(x):
        for stored in model.weights:
            attention, norm_1 = stored.attention, stored.norm_1
            if block == "pre_ln":
                x = x + attention_by_head(norm(x, norm_1), attention, model.cfg)
            elif block == "post_ln":
                x = norm(x + attention_by_head(x, attention, model.cfg), norm_1)
            else:
                x = x + norm(attention_by_head(x, attention, model.cfg), norm_1)
        return x

    close(model(tokens), ends(model, tokens, layers))
    assert not any("mlp" in name or "resid_mid" in name for name in model.hook_dict)


def test_each_untied_layer_uses_its_own_block(make, tokens):
    model = make()
    _, before = model.run_with_cache(tokens)
    for layer in range(3):
        changed = make()
        changed.weights[layer].mlp.w_out.bias.data += 1.0
        _, after = changed.run_with_cache(tokens)
        moved = [not torch.equal(before["resid_post", i], after["resid_post", i]) for i in range(3)]
        assert moved == [i >= layer for i in range(3)]


@pytest.mark.parametrize("block", ["pre_ln", "post_ln", "dyck"])
def test_tied_model_is_an_untied_one_with_copies(make, tokens, block):
    tied, untied = make(block=block, tied=True), make(block=block)
    assert len(tied.weights) == 1
    assert len(untied.weights) == 3
    weights = tied.state_dict()
    for name in untied.state_dict():
        first = name.replace("weights.1.", "weights.0.").replace("weights.2.", "weights.0.")
        weights[name] = tied.state_dict()[first]
    untied.load_state_dict(weights)
    logits, cache = tied.run_with_cache(tokens)
    theirs, their_cache = untied.run_with_cache(tokens)
    assert torch.equal(logits, theirs)
    assert list(cache.keys()) == list(their_cache.keys())
    assert all(torch.equal(cache[name], their_cache[name]) for name in cache.keys())  # noqa: SIM118


def test_hooks_of_a_tied_model_fire_once_per_applied_layer(make, tokens):
    seen = []
    model = make(tied=True)
    model.run_with_hooks(
        tokens, fwd_hooks=[(lambda name: name.endswith("hook_z"), lambda z, hook: seen.append(hook.name))]
    )
    assert seen == [f"blocks.{layer}.attn.hook_z" for layer in range(3)]


def test_editing_one_applied_layer_of_a_tied_model_leaves_the_others(make, tokens):
    model = make(tied=True)
    _, clean = model.run_with_cache(tokens)
    with model.hooks(fwd_hooks=[("blocks.1.hook_attn_out", lambda out, hook: out + 1)]):
        _, edited = model.run_with_cache(tokens)
    assert torch.equal(clean["attn_out", 0], edited["attn_out", 0])
    assert not torch.allclose(clean["resid_mid", 1], edited["resid_mid", 1])


def test_positions_are_added_to_the_embedding(make, tokens):
    tables = {
        "learned": lambda model: model.positions.weight[:8],
        "linear": lambda model: linear_table(10, 12)[:8].double(),
        "sinusoidal": lambda model: sinusoidal_table(10, 12)[:8].double(),
        "none": lambda model: torch.zeros(8, 12, dtype=torch.float64),
    }
    for positions, table in tables.items():
        model = make(positions=positions)
        _, cache = model.run_with_cache(tokens)
        close(cache["resid_pre", 0], model.embed.weight[tokens] + table(model))
        assert ("hook_pos_embed" in model.hook_dict) == (positions != "none")


def test_linear_positions_are_a_ramp_in_the_last_coordinate():
    table = linear_table(5, 3)
    close(table[:, -1], torch.tensor([0.0, 0.2, 0.4, 0.6, 0.8]), within=1e-7)
    assert (table[:, :-1] == 0).all()


@pytest.mark.parametrize("d_model", [6, 7])
def test_sinusoidal_positions_are_the_formula(d_model):
    table = sinusoidal_table(4, d_model)
    for i in range(4):
        for coordinate in range(d_model):
            angle = torch.tensor(i / 10000 ** (2 * (coordinate // 2) / d_model))
            expected = angle.sin() if coordinate % 2 == 0 else angle.cos()
            assert abs(table[i, coordinate] - expected) < 1e-6


def test_formula_positions_are_neither_trained_nor_saved(make):
    for positions in ("linear", "sinusoidal"):
        assert not any("positions" in name for name in make(positions=positions).state_dict())


@pytest.mark.parametrize("positions", ["learned", "linear", "sinusoidal"])
def test_position_ids_are_the_positions_of_tokens(make, tokens, positions):
    """Attention alone has no order: permuted tokens with their position ids are the same tokens."""
    model = make(positions=positions)
    order = torch.tensor([3, 0, 7, 1, 6, 2, 5, 4])
    close(model(tokens[:, order], position_ids=order[None]), model(tokens)[:, order])
    assert torch.equal(model(tokens, position_ids=torch.arange(8).expand(4, 8)), model(tokens))
    assert not torch.allclose(model(tokens, position_ids=torch.arange(8)[None] + 2), model(tokens), atol=1e-3)


def test_without_positions_an_encoder_ignores_order(make, tokens):
    model = make(positions="none")
    order = torch.tensor([3, 0, 7, 1, 6, 2, 5, 4])
    close(model(tokens[:, order]), model(tokens)[:, order])


def test_another_number_of_outputs_than_tokens(make, tokens):
    model = make(d_vocab_out=2)
    assert model(tokens).shape == (4, 8, 2)
    assert model.W_U.shape == (12, 2)
    assert make()(tokens).shape == (4, 8, 11)


def test_same_seed_same_weights_and_torchs_generator_untouched():
    cfg = TransformerConfig(d_vocab=11, d_model=12, n_heads=3)
    torch.manual_seed(5)
    state = torch.get_rng_state()
    first, again, other = Transformer(cfg, seed=3), Transformer(cfg, seed=3), Transformer(cfg, seed=4)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(6)
    elsewhere = Transformer(cfg, seed=3)
    for name, weight in first.state_dict().items():
        assert torch.equal(weight, again.state_dict()[name])
        assert torch.equal(weight, elsewhere.state_dict()[name])
    assert not torch.equal(first.W_E, other.W_E)


def test_gradient_reaches_every_parameter(make, tokens):
    model = make(qk_identity=True, vo_identity=True, attention="causal")
    model(tokens).pow(2).sum().backward()
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in model.parameters())


def test_double_precision_stays_double(make, tokens):
    logits, cache = make().run_with_cache(tokens)
    assert logits.dtype == torch.float64
    assert {activation.dtype for activation in cache.values()} == {torch.float64}


def test_tokens_of_another_task_are_refused(make, tokens):
    with pytest.raises(ValueError, match=r"tokens holds ids from 0 to 11; d_vocab of this model is 11.*another task"):
        make()(torch.arange(4, 12)[None] * (torch.arange(8) > 0))
    with pytest.raises(ValueError, match=r"position_ids holds ids from 3 to 10; n_ctx of this model is 10"):
        make()(tokens, position_ids=torch.arange(3, 11)[None])
    with pytest.raises(ValueError, match=r"tokens has 11 positions; n_ctx of this model is 10"):
        make()(torch.zeros(1, 11, dtype=torch.long))


def test_text_without_a_batch_axis_is_refused(make, tokens, as_a_user):
    with pytest.raises(
        ValueError, match=r"tokens is \(8,\); it must be \(batch, pos\). One text\? Pass tokens\[None\]"
    ):
        make()(tokens[0])


def test_mask_of_another_shape_is_refused(make, tokens, as_a_user):
    with pytest.raises(ValueError, match=r"attention_mask is \(4, 7\); tokens is \(4, 8\)"):
        make()(tokens, torch.ones(4, 7, dtype=torch.bool))
