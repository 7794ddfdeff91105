"""Weights of a HookedTransformer: the function is that of TransformerLens's model; what does not fit is refused."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from rounding import assert_equal_up_to_rounding
from transformer_lens import TransformerBridge, TransformerBridgeConfig

from hooks import Transformer, TransformerConfig, from_transformer_lens
from hooks.adapters import transformer_lens

SIZES = {"d_model": 12, "d_head": 5, "n_heads": 3, "n_layers": 2, "n_ctx": 10, "d_vocab": 11, "d_mlp": 20}
THEIRS = {**SIZES, "act_fn": "gelu", "normalization_type": "LN", "attention_dir": "causal"}


def random_weights(cfg, *, dtype=torch.float32):
    """A state dict in TransformerLens's names and axes, written without this package."""
    generator = torch.Generator().manual_seed(3)

    def draw(*shape):
        return (0.5 * torch.randn(*shape, generator=generator)).to(dtype)

    d, h, e, m = cfg["d_model"], cfg["n_heads"], cfg.get("d_head", cfg["d_model"] // cfg["n_heads"]), cfg.get("d_mlp")
    out = cfg.get("d_vocab_out", cfg["d_vocab"])
    found = {"embed.W_E": draw(cfg["d_vocab"], d), "pos_embed.W_pos": draw(cfg["n_ctx"], d)}
    found |= {"unembed.W_U": draw(d, out), "unembed.b_U": draw(out)}
    norms = cfg["normalization_type"] == "LN"
    for layer in range(cfg["n_layers"]):
        at = f"blocks.{layer}."
        for name in "QKV":
            found |= {f"{at}attn.W_{name}": draw(h, d, e), f"{at}attn.b_{name}": draw(h, e)}
        found |= {f"{at}attn.W_O": draw(h, e, d), f"{at}attn.b_O": draw(d)}
        found |= {f"{at}attn.mask": torch.ones(10, 10).tril(), f"{at}attn.IGNORE": torch.tensor(-1e5)}
        if not cfg.get("attn_only"):
            found |= {f"{at}mlp.W_in": draw(d, m), f"{at}mlp.b_in": draw(m), f"{at}mlp.W_out": draw(m, d)}
            found |= {f"{at}mlp.b_out": draw(d)}
        for norm in ("ln1", "ln2")[: 1 if cfg.get("attn_only") else 2] if norms else ():
            found |= {f"{at}{norm}.w": 1 + draw(d), f"{at}{norm}.b": draw(d)}
    return found | ({"ln_final.w": 1 + draw(d), "ln_final.b": draw(d)} if norms else {})


def by_hand(weights, cfg, tokens):
    """The forward pass of a HookedTransformer, in double precision."""
    w = {name: value.double() for name, value in weights.items()}
    scale = cfg["d_head"] ** 0.5 if cfg.get("attn_scale", -1) == -1 else cfg["attn_scale"]

    def norm(x, name):
        if cfg["normalization_type"] is None:
            return x
        centred = x - x.mean(-1, keepdim=True)
        y = centred / (centred.square().mean(-1, keepdim=True) + cfg.get("eps", 1e-5)).sqrt()
        return y if cfg["normalization_type"] == "LNPre" else y * w[f"{name}.w"] + w[f"{name}.b"]

    act = {"relu": torch.relu, "gelu": torch.nn.GELU(), "gelu_new": torch.nn.GELU(approximate="tanh")}
    x = w["embed.W_E"][tokens] + w["pos_embed.W_pos"][: tokens.shape[1]]
    for layer in range(cfg["n_layers"]):
        at = f"blocks.{layer}."
        y = norm(x, f"{at}ln1")
        q, k, v = (
            torch.einsum("bpd,hde->bhpe", y, w[f"{at}attn.W_{name}"]) + w[f"{at}attn.b_{name}"][:, None]
            for name in "QKV"
        )
        scores = q @ k.transpose(-1, -2) / scale
        if cfg["attention_dir"] == "causal":
            scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -torch.inf)
        z = scores.softmax(-1) @ v
        x = x + torch.einsum("bhpe,hed->bpd", z, w[f"{at}attn.W_O"]) + w[f"{at}attn.b_O"]
        if not cfg.get("attn_only"):
            y = act[cfg["act_fn"]](norm(x, f"{at}ln2") @ w[f"{at}mlp.W_in"] + w[f"{at}mlp.b_in"])
            x = x + y @ w[f"{at}mlp.W_out"] + w[f"{at}mlp.b_out"]
    return norm(x, "ln_final") @ w["unembed.W_U"] + w["unembed.b_U"]


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"attention_dir": "bidirectional", "act_fn": "relu", "d_vocab_out": 3},
        {"attn_only": True, "act_fn": None},
        {"normalization_type": None, "act_fn": "gelu_new", "attn_scale": 2.5},
        {"normalization_type": "LNPre", "eps": 1e-3},
    ],
    ids=str,
)
def test_logits_are_those_of_a_hooked_transformer(change, tokens):
    cfg = {**THEIRS, **change}
    weights = random_weights(cfg)
    for given in (cfg, SimpleNamespace(**cfg)):
        model = from_transformer_lens(weights, given)
        assert_equal_up_to_rounding(model(tokens).double(), by_hand(weights, cfg, tokens), terms=SIZES["d_mlp"])
    assert not model.training


def test_logits_are_those_of_transformer_lens_4(tokens):
    """Its native model, with the same weights."""
    weights = random_weights(THEIRS)
    ours = from_transformer_lens(weights, THEIRS)
    theirs = TransformerBridge.boot_native(TransformerBridgeConfig(**THEIRS, seed=0))
    names = {"weights": "blocks", "attention": "attn", "norm_1": "ln1", "norm_2": "ln2", "w_in": "in", "w_out": "out"}
    names |= {"positions": "pos_embed", "norm_final": "ln_final"}
    state = {
        ".".join(names.get(part, part) for part in name.split(".")): one for name, one in ours.state_dict().items()
    }
    theirs.load_state_dict(state, strict=True)
    for layer in range(2):
        for name in ("W_Q", "W_K", "W_V", "W_O"):
            torch.testing.assert_close(getattr(theirs.blocks[layer].attn, name), weights[f"blocks.{layer}.attn.{name}"])
    assert_equal_up_to_rounding(ours(tokens), theirs(tokens), terms=SIZES["d_mlp"])


def test_it_inverts_the_names_that_our_models_give():
    ours = Transformer(TransformerConfig(**SIZES, attention="causal"), seed=1)
    weights = {**ours.tl_parameters(), "pos_embed.W_pos": ours.positions.weight}
    again = from_transformer_lens(weights, {**SIZES, "act_fn": "gelu"})
    assert again.cfg == ours.cfg
    for name, one in ours.state_dict().items():
        assert torch.equal(one, again.state_dict()[name]), name


def test_arrays_short_names_and_missing_biases(tokens):
    weights = {name: one.numpy().astype(np.float64) for name, one in random_weights(THEIRS).items()}
    short = {{"embed.W_E": "W_E", "pos_embed.W_pos": "W_pos", "unembed.W_U": "W_U"}.get(name, name): one
             for name, one in weights.items() if ".b_" not in name}  # fmt: skip
    model = from_transformer_lens(short, {name: one for name, one in THEIRS.items() if name != "attention_dir"})
    zeroed = {name: torch.as_tensor(one) * (".b_" not in name) for name, one in weights.items()}
    assert_equal_up_to_rounding(model(tokens).double(), by_hand(zeroed, THEIRS, tokens), terms=SIZES["d_mlp"])
    defaults = {"d_model": 12, "n_heads": 3, "n_layers": 1, "n_ctx": 4, "d_vocab": 5, "act_fn": "relu"}
    cfg = from_transformer_lens(random_weights({**defaults, "normalization_type": "LN", "d_mlp": 48}), defaults).cfg
    assert (cfg.d_head, cfg.d_mlp, cfg.attn_scale, cfg.d_vocab_out, cfg.attention) == (4, 48, 2.0, 5, "causal")


def without(name):
    return {key: one for key, one in random_weights(THEIRS).items() if key != name}


@pytest.mark.parametrize(
    ("weights", "change", "words"),
    [
        (
            {},
            {"positional_embedding_type": "rotary"},
            "config has positional_embedding_type 'rotary', which has",
        ),
        ({}, {"normalization_type": "RMS"}, "config has normalization_type 'RMS'; choose one of LN, LNPre, None"),
        ({}, {"act_fn": "solu_ln"}, "config has act_fn 'solu_ln'; choose one of relu, gelu"),
        ({}, {"attention_dir": "left"}, "config has attention_dir 'left'; choose causal or bidirectional"),
        ({}, {"gated_mlp": True}, "config has gated_mlp True, which has no counterpart; only False is read"),
        ({}, {"n_ctx": None}, "config has no n_ctx; give the settings"),
        (without("blocks.1.attn.W_K"), {}, "weights has no 'blocks.1.attn.W_K', which a model of this config needs"),
        (without("blocks.0.ln1.w"), {}, "weights has no 'blocks.0.ln1.w'"),
        ({"blocks.7.attn.W_Q": torch.zeros(3, 12, 5)}, {}, "weights has 'blocks.7.attn.W_Q', which has no place"),
        ({"embed.W_E": torch.zeros(12, 11)}, {}, r"embed.W_E of shape \(12, 11\); by the config it must be \(11, 12\)"),
        ({"blocks.0.attn.W_O": torch.zeros(3, 12, 5)}, {}, r"W_O of shape \(3, 12, 5\); .* must be \(3, 5, 12\)"),
        ({"blocks.0.attn.b_Q": torch.full((3, 5), torch.nan)}, {}, "blocks.0.attn.b_Q with values that are not finite"),
    ],
)
def test_what_does_not_fit_is_refused(weights, change, words):
    given = weights if len(weights) > 1 else random_weights(THEIRS) | weights
    with pytest.raises(ValueError, match=words):
        from_transformer_lens(given, {**THEIRS, **change})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("scale_attn_by_inverse_layer_idx", True),
        ("use_qk_norm", True),
        ("uses_rms_norm", True),
        ("rotary_dim", 4),
        ("use_NTK_by_parts_rope", True),
        ("relative_attention_num_buckets", 32),
        ("window_size", 3),
        ("whatever", 3),
        ("scale_by_layer", False),
    ],
)
def test_settings_that_nobody_reads_are_refused(name, value):
    with pytest.raises(ValueError, match=f"config has '?{name}"):
        from_transformer_lens(random_weights(THEIRS), {**THEIRS, name: value})


def test_settings_that_change_no_logit_are_known():
    harmless = {"model_name": "mine", "seed": 3, "device": "cpu", "use_attn_result": True, "rotary_base": 10000}
    harmless |= {"scale_attn_by_inverse_layer_idx": False, "use_qk_norm": False, "init_mode": "gpt2", "n_params": 9}
    model = from_transformer_lens(random_weights(THEIRS), {**THEIRS, **harmless})
    plain = from_transformer_lens(random_weights(THEIRS), THEIRS)
    tokens = torch.arange(8)[None]
    assert torch.equal(model(tokens), plain(tokens))


def test_every_setting_of_a_bridge_config_is_known():
    """TransformerLens's own config, field by field: each is read, has no effect, or is refused by its name."""
    config = TransformerBridgeConfig(**{**SIZES, "act_fn": "gelu", "architecture": "GPT2LMHeadModel"})
    known = transformer_lens.READ | transformer_lens.WITHOUT_EFFECT | set(transformer_lens.ONLY)
    for name, value in vars(config).items():
        if name not in known:
            with pytest.raises(ValueError, match=f"config has '{name}'"):
                from_transformer_lens(random_weights(THEIRS), {**THEIRS, name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_heads", 0),
        ("n_heads", "3"),
        ("d_model", -12),
        ("d_model", 10**30),
        ("n_layers", 10**9),
        ("n_ctx", 2.5),
        ("d_head", {}),
        ("d_mlp", "wide"),
        ("d_vocab_out", 10**12),
        ("eps", "1e-5"),
        ("eps", -1e-5),
        ("attn_scale", -0.5),
        ("attn_scale", 0),
        ("attn_scale", float("nan")),
        ("use_attn_scale", "no"),
        ("attn_only", 1),
        ("act_fn", ["gelu"]),
        ("attention_dir", None),
        ("normalization_type", {}),
        ("final_rms", 0),
        ("uses_rms_norm", "y" * 5000),
    ],
)
def test_settings_of_another_type_or_out_of_range(name, value):
    with pytest.raises(ValueError, match=f"config.*{name}") as raised:
        from_transformer_lens(random_weights(THEIRS), {**THEIRS, name: value})
    assert len(str(raised.value)) < 600
