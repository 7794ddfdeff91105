"""Blocks of the bounded-Dyck models against their equations; heads without an output projection."""

import pytest
import torch
import torch.nn.functional as F

import interp
from hooks import HeadPattern, Transformer, TransformerConfig, load_checkpoint, presets, save_checkpoint
from hooks.interventions.ablation_engine import AblationEngine
from hooks.interventions.replacements import Mean, Zero
from interp.core.randomness import derived_generator
from interp.tasks import Dyck

TASK = Dyck(length=9)
SIZES = {"n_ctx": 30}


def close(ours, theirs, *, within=1e-10):
    torch.testing.assert_close(ours, theirs, atol=within, rtol=0)


def random_weights(cfg, seed=1):
    """No parameter is zero or one, so that a forgotten one shows."""
    model = Transformer(cfg).double().eval()
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.data = 0.5 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return model


def minimal(**settings):
    return random_weights(presets.dyck_minimal(**{**SIZES, **settings}))


@pytest.fixture
def tokens(generator):
    return TASK.sample(5, generator=generator).tokens


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


def norm(x, layer_norm):
    centred = x - x.mean(-1, keepdim=True)
    scale = (centred.pow(2).mean(-1, keepdim=True) + layer_norm.eps).sqrt()
    return centred / scale * layer_norm.weight + layer_norm.bias


def mlp(x, block):
    hidden = (x @ block.mlp.w_in.weight.T + block.mlp.w_in.bias).clamp_min(0)
    return hidden @ block.mlp.w_out.weight.T + block.mlp.w_out.bias


def heads_side_by_side(x, attention, cfg, scale):
    """One query at a time: each head's weighted mean of values, next to each other; no projection after it."""
    out = torch.zeros(*x.shape[:2], cfg.n_heads * cfg.d_head, dtype=x.dtype)
    for row, query in ((row, query) for row in range(x.shape[0]) for query in range(x.shape[1])):
        for head in range(cfg.n_heads):
            part = slice(head * cfg.d_head, (head + 1) * cfg.d_head)
            seen = x[row, : query + 1]
            q, k, v = (getattr(attention, name) for name in "qkv")
            asked = q.weight[part] @ x[row, query] + q.bias_or_zero[part]
            scores = (seen @ k.weight[part].T + k.bias_or_zero[part]) @ asked / scale
            weight = scores.exp() / scores.exp().sum()
            out[row, query, part] = weight @ (seen @ v.weight[part].T + v.bias_or_zero[part])
    return out


def logits_of(model, x):
    return x @ model.unembed.weight.T + model.unembed.bias


def embedded(model, tokens):
    """By the table alone: depth counted in a loop."""
    rows = []
    for row in tokens.tolist():
        depth = 0
        for token in row:
            depth += 0 if token < 3 else 1 if token % 2 else -1
            rows.append(token * (model.cfg.embedding.max_depth + 1) + depth)
    table = model.cfg.embedding.table(model.cfg.d_model).double()
    return table[rows].view(*tokens.shape, -1)


@pytest.mark.parametrize("n_heads", [1, 2, 5])
@pytest.mark.parametrize("attn_bias", [False, True])
@pytest.mark.parametrize("mlp_head", [False, True])
def test_a_minimal_layer_is_its_equation(tokens, mlp_head, attn_bias, n_heads):
    model = minimal(mlp_head=mlp_head, attn_bias=attn_bias, n_heads=n_heads)
    block = model.block(0)
    x = norm(heads_side_by_side(embedded(model, tokens), block.attention, model.cfg, (50 / n_heads) ** 0.5),
             block.norm_1)  # fmt: skip
    x = mlp(x, block) if mlp_head else x
    close(model(tokens), logits_of(model, x))
    assert model.norm_final is None
    assert block.norm_2 is None
    assert (block.mlp is None) != mlp_head


def test_several_minimal_layers_pass_on_nothing_but_what_attention_wrote(tokens):
    model = minimal(n_layers=2, mlp_head=True)
    x = embedded(model, tokens)
    for block in model.stored_blocks:
        x = mlp(norm(heads_side_by_side(x, block.attention, model.cfg, 50**0.5), block.norm_1), block)
    close(model(tokens), logits_of(model, x))


@pytest.mark.parametrize("mlp_head", [False, True])
def test_eq6_adds_what_came_in_also_without_output_projection(tokens, mlp_head):
    model = minimal(block="dyck", mlp_head=mlp_head, attn_scale=1.0)
    block, x = model.block(0), embedded(model, tokens)
    x = x + norm(heads_side_by_side(x, block.attention, model.cfg, 1.0), block.norm_1)
    close(model(tokens), logits_of(model, mlp(x, block) if mlp_head else x))


def test_eq6_preset_has_a_projection_and_scores_that_are_not_scaled(tokens):
    model = random_weights(presets.dyck_eq6(d_vocab=7, d_model=12, n_heads=3, **SIZES))
    x = model.embed.weight[tokens]
    for block in model.stored_blocks:
        written = heads_side_by_side(x, block.attention, model.cfg, 1.0) @ block.attention.o.weight.T
        x = mlp(x + norm(written, block.norm_1), block)
    close(model(tokens), logits_of(model, x))


def test_uniform_preset_takes_the_mean_of_the_past(tokens):
    model = random_weights(presets.dyck_uniform(d_vocab=7, d_model=12, n_heads=2, **SIZES))
    x, pos = model.embed.weight[tokens], tokens.shape[1]
    for block in model.stored_blocks:
        values = norm(x, block.norm_1) @ block.attention.v.weight.T + block.attention.v.bias
        past = values.cumsum(1) / torch.arange(1, pos + 1)[:, None]
        x = x + past @ block.attention.o.weight.T + block.attention.o.bias
        x = x + mlp(norm(x, block.norm_2), block)
    close(model(tokens), logits_of(model, norm(x, model.norm_final)))
    assert not any(".q." in name or ".k." in name for name, _ in model.named_parameters())


@pytest.mark.parametrize("n_heads", [1, 2])
def test_there_is_no_output_projection_to_train_and_its_weight_reads_as_the_identity(n_heads, tmp_path):
    model = minimal(n_heads=n_heads, attn_bias=True)
    names = {name for name, _ in model.named_parameters()}
    assert not any("attention.o" in name for name in [*names, *model.state_dict()])
    assert "weights.0.attention.v.bias" in names
    identity = torch.eye(50, dtype=torch.float64)
    assert torch.equal(model.blocks[0].attn.W_O.flatten(0, 1), identity)
    assert model.blocks[0].attn.W_O.shape == (n_heads, 50 // n_heads, 50)
    assert torch.equal(model.blocks[0].attn.b_O, torch.zeros(50, dtype=torch.float64))
    assert torch.equal(model.accumulated_bias(1), torch.zeros(50, dtype=torch.float64))
    save_checkpoint(model, tmp_path / "model")
    assert torch.equal(load_checkpoint(tmp_path / "model").blocks[0].attn.W_O.flatten(0, 1), identity)
    with_projection = minimal(n_heads=n_heads, output_projection=True)
    assert "weights.0.attention.o.weight" in dict(with_projection.named_parameters())


def test_an_output_projection_that_is_the_identity_changes_nothing(tokens):
    without, with_one = minimal(), minimal(output_projection=True)
    weights = {**without.state_dict(), "weights.0.attention.o.weight": torch.eye(50, dtype=torch.float64)}
    with_one.load_state_dict(weights)
    close(without(tokens), with_one(tokens))


def test_what_heads_mix_is_what_attention_writes(tokens):
    model = minimal(n_heads=2)
    _, cache = model.run_with_cache(tokens)
    assert torch.equal(cache["z", 0].flatten(2), cache["attn_out", 0])
    result = cache.stack_head_results(layer=1)
    close(result.sum(0), cache["attn_out", 0])
    assert (result[0, ..., 25:] == 0).all()  # a head writes its own share of the stream
    assert (result[1, ..., :25] == 0).all()


def test_b_i_is_added_to_what_a_head_writes(tokens):
    model = minimal(n_heads=2, vo_identity=True)
    _, cache = model.run_with_cache(tokens)
    block, x = model.block(0), embedded(model, tokens)
    written = heads_side_by_side(x, block.attention, model.cfg, 5.0)
    for head in range(2):
        written = written + block.attention.b[head] * (cache["pattern", 0][:, head] @ x)
    close(cache["attn_out", 0], written)


@pytest.mark.parametrize("method", ["zero", "mean"])
def test_the_engine_equals_hooks(tokens, method, generator):
    model = minimal(n_heads=5, mlp_head=True)
    other = TASK.sample(20, generator=generator).tokens
    _, cache = model.run_with_cache(other)
    z = cache["z", 0]
    engine = AblationEngine(model, tokens)
    assert torch.equal(engine.logits, model(tokens))
    target = torch.zeros_like(z[:1]) if method == "zero" else z.mean(0, keepdim=True)
    found = dict(engine.each_head(lambda layer, clean: target.expand_as(clean.z)))
    for head in range(5):
        hook = (Zero() if method == "zero" else Mean(z)).hook(head=head)
        expected = model.run_with_hooks(tokens, fwd_hooks=[("blocks.0.attn.hook_z", hook)])
        close(found[0, head], expected)
        assert (expected - engine.logits).abs().max() > 1e-3


@pytest.mark.parametrize("sizes", [{"n_heads": 2}, {"n_heads": 2, "mlp_head": True, "n_layers": 2}], ids=str)
def test_heads_of_a_minimal_model_can_be_ablated(sizes):
    model = Transformer(interp.config_for(TASK, "dyck_minimal", init="fan_in", **sizes))
    found = interp.ablate_heads(model, TASK, n=60)
    batch = TASK.sample(60, generator=derived_generator(0, "ablate"), split="test")
    clean = TASK.score(model(batch.tokens), batch)
    for index, ((layer, head),) in enumerate(found.heads):
        edited = model.run_with_hooks(batch.tokens, fwd_hooks=[(f"blocks.{layer}.attn.hook_z", Zero().hook(head=head))])
        score = TASK.score(edited, batch)
        drop = (clean.right - score.right).sum(0) / clean.total.sum(0)
        rise = (score.loss - clean.loss).sum(0) / clean.total.sum(0)
        torch.testing.assert_close(torch.tensor(found.drop.value[index]), drop.double(), atol=1e-6, rtol=0)
        torch.testing.assert_close(torch.tensor(found.loss_rise.value[index]), rise.double(), atol=1e-4, rtol=0)
        assert rise.abs().max() > 1e-3


def test_presets_are_what_they_say():
    minimal_cfg = presets.dyck_minimal()
    values = {
        "block": "minimal", "d_model": 50, "n_heads": 1, "n_layers": 1, "d_mlp": 0, "d_vocab": 7, "n_ctx": 6000,
        "init": "gpt2", "attention": "causal", "positions": "none", "attn_bias": False, "output_projection": False,
        "attn_scale": 50**0.5,
    }  # fmt: skip
    assert {name: getattr(minimal_cfg, name) for name in values} == values
    assert minimal_cfg.embedding.encoding == "pair"
    with_mlp = presets.dyck_minimal(mlp_head=True)
    assert (with_mlp.d_mlp, with_mlp.activation) == (50, "relu")

    gpt = presets.dyck_gpt(d_vocab=7)
    values = {
        "block": "pre_ln", "d_model": 50, "n_heads": 1, "n_layers": 2, "d_mlp": 100, "n_ctx": 6000, "init": "fan_in",
        "attention": "causal", "positions": "none", "activation": "relu", "attn_bias": True, "output_projection": True,
    }  # fmt: skip
    assert {name: getattr(gpt, name) for name in values} == values
    assert gpt.embedding is None

    eq6 = presets.dyck_eq6(d_vocab=7)
    assert (eq6.block, eq6.attn_scale, eq6.attn_bias) == ("dyck", 1.0, False)
    differs = {name for name, value in eq6.to_dict().items() if value != gpt.to_dict()[name]}
    assert differs == {"block", "attn_scale", "attn_bias"}

    uniform = presets.dyck_uniform(d_vocab=7, n_heads=2)
    assert uniform.head_patterns == ((HeadPattern(kind="uniform"),) * 2,)
    assert {**uniform.to_dict(), "head_patterns": []} == presets.dyck_gpt(d_vocab=7, n_heads=2).to_dict()


def test_settings_override_the_presets():
    cfg = presets.dyck_minimal(d_model=64, n_heads=4, init="fan_in", n_ctx=99, mlp_head=True, d_mlp=8)
    assert (cfg.d_model, cfg.n_heads, cfg.init, cfg.n_ctx, cfg.d_mlp) == (64, 4, "fan_in", 99, 8)
    assert presets.dyck_eq6(d_vocab=7, attn_scale=2.0).attn_scale == 2
    assert isinstance(presets.dyck_uniform(d_vocab=7, d_model=8), TransformerConfig)


def test_linear_positions_are_divided_by_6000(tokens):
    model = Transformer(presets.dyck_gpt(d_vocab=7, positions="linear")).eval()
    _, cache = model.run_with_cache(tokens)
    added = cache["resid_pre", 0] - model.embed.weight[tokens]
    close(added[0, :, -1], torch.arange(10) / 6000, within=1e-6)
    assert (added[..., :-1] == 0).all()
    ramp = model.positions(torch.tensor([[1, 3000, 5999]]))[0, :, -1]
    close(ramp, torch.tensor([1 / 6000, 0.5, 5999 / 6000]), within=1e-7)


def test_minimal_block_has_no_residual_connection(tokens):
    """With the same z everywhere, every token looks the same; Eq. 6 still distinguishes them."""
    model = minimal()
    hooks = [("blocks.0.attn.hook_z", lambda z, hook: torch.ones_like(z))]
    same = model.run_with_hooks(tokens, fwd_hooks=hooks)
    close(same, same[:1, :1].expand_as(same))
    eq6 = minimal(block="dyck").run_with_hooks(tokens, fwd_hooks=hooks)
    assert not torch.allclose(eq6, eq6[:1, :1].expand_as(eq6))


def test_the_gradient_reaches_every_parameter(tokens):
    model = minimal(n_heads=2, mlp_head=True, attn_bias=True)
    with torch.enable_grad():
        F.cross_entropy(model(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert name.endswith("k.bias") or parameter.grad.abs().max() > 1e-12, name  # k's bias drops out of softmax
