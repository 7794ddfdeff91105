"""`from_module` without a named pattern: that of a softmax or of `scaled_dot_product_attention`."""

import pytest
import torch
import torch.nn.functional as F
from nano_gpt import GPT, GPTConfig
from own_models import MAPS, PlainAttention, plain_model, transformer
from torch import nn

import hooks
from hooks.adapters.torch_attention import LinearAttention
from hooks.interventions.replacements import Zero
from interp.tasks import Dyck

TASK = Dyck(n_types=2, max_depth=3, length=8)
OURS = transformer(TASK)
TOKENS = torch.randint(TASK.d_vocab, (3, 7), generator=torch.Generator().manual_seed(2))
SIZES = {"d_vocab": TASK.d_vocab, "n_ctx": TASK.n_ctx}


def heads_of(attention, x):
    return (attention.get_submodule(name)(x).unflatten(-1, (2, -1)).transpose(1, 2) for name in "qkv")


class Flash(PlainAttention):
    """The same attention by torch's kernel, with its mask as truth values, as numbers, or as causal."""

    mask = "bool"

    def forward(self, x, hidden):
        q, k, v = heads_of(self, x)
        options = {"attn_mask": ~hidden[:, None]}
        if self.mask == "numbers":
            options = {"attn_mask": torch.zeros(hidden.shape).masked_fill(hidden, -torch.inf)[:, None]}
        if self.mask == "causal":
            options = {"is_causal": True}
        return self.o(F.scaled_dot_product_attention(q, k, v, **options).transpose(1, 2).flatten(2))


class Softmax(PlainAttention):
    """The same attention by torch's softmax, on one axis for sequences and heads; and a softmax that is no pattern."""

    def forward(self, x, hidden):
        q, k, v = (heads.flatten(0, 1) for heads in heads_of(self, x))
        scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(
            hidden.expand(len(x), -1, -1).repeat_interleave(2, 0), -torch.inf
        )
        assert x.softmax(dim=-1).shape == x.shape
        z = torch.softmax(scores, -1) @ v
        return self.o(z.unflatten(0, (-1, 2)).transpose(1, 2).flatten(2))


def module_with(attention, **attributes):
    """The plain module with the weights of ours and attention of this class."""
    module = plain_model(OURS)
    for layer in module.layers:
        layer.attn.__class__ = attention
        vars(layer.attn).update(attributes)
    return module


KINDS = {
    "truth values": (Flash, {"mask": "bool"}),
    "numbers": (Flash, {"mask": "numbers"}),
    "causal": (Flash, {"mask": "causal"}),
    "softmax": (Softmax, {}),
}


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_logits_and_edits_equal_those_of_ours(kind):
    attention, attributes = KINDS[kind]
    module = module_with(attention, **attributes)
    model = hooks.from_module(module, layers="layers", attention="attn", **SIZES)
    assert model.cfg.n_heads == 2
    assert torch.allclose(model(TOKENS), OURS(TOKENS), atol=1e-5)
    assert torch.equal(module(TOKENS), module_with(attention, **attributes)(TOKENS))
    _, cache = model.run_with_cache(TOKENS)
    _, expected = OURS.run_with_cache(TOKENS)
    for site in ("q", "k", "v", "attn_scores", "pattern", "z"):
        name = f"blocks.1.attn.hook_{site}"
        visible = torch.isfinite(expected[name])
        assert torch.allclose(cache[name][visible], expected[name][visible], atol=1e-5), site
    for site in ("q", "k", "v", "z", "pattern"):
        edit = [(f"blocks.0.attn.hook_{site}", Zero().hook(head=1))]
        edited, expected_logits = (net.run_with_hooks(TOKENS, fwd_hooks=edit) for net in (model, OURS))
        assert torch.allclose(edited, expected_logits, atol=1e-5), site
        assert not torch.allclose(edited, model(TOKENS), atol=1e-3)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"is_causal": True},
        {"scale": 0.3},
        {"attn_mask": torch.rand(6, 6) > 0.3},
        {"attn_mask": torch.randn(2, 4, 6, 6)},
        {"attn_mask": torch.arange(6)[:, None] > torch.arange(6)},  # the first query sees no key
        {"enable_gqa": True},
    ],
    ids=["plain", "causal", "scaled", "masked", "biased", "strictly causal", "grouped"],
)
def test_dot_product_is_that_of_torch(options):
    attention = LinearAttention(plain_model(transformer(TASK)).layers[0], "attn", 2, "layers.0")
    attention.n_heads = 4
    generator = torch.Generator().manual_seed(0)
    n_shared = 2 if "enable_gqa" in options else 4
    q, k, v = (torch.randn(2, heads, 6, 8, generator=generator) for heads in (4, n_shared, n_shared))
    expected = F.scaled_dot_product_attention(q, k, v, **options)
    assert torch.allclose(attention.dot_product(q, k, v, **options), expected, atol=1e-6)


def test_a_second_pattern_must_be_named():
    class Twice(Softmax):
        def forward(self, x, hidden):
            return super().forward(x, hidden) + super().forward(x, hidden) * 0

    class Two(PlainAttention):
        def forward(self, x, hidden):
            q, k, v = heads_of(self, x)
            scores = q @ k.mT
            return self.o(((scores.softmax(-1) + (-scores).softmax(-1)) / 2 @ v).transpose(1, 2).flatten(2))

    with pytest.raises(ValueError, match=r"attention of layers\.0 computes several patterns between its maps; name a"):
        hooks.from_module(module_with(Two), layers="layers", attention="attn", **SIZES)
    # an attention that runs twice computes one pattern at a time
    hooks.from_module(module_with(Twice), layers="layers", attention="attn", **SIZES)


def test_a_wrong_number_of_heads_is_found_by_the_pattern():
    for attention, names in ((Flash, "attn"), (Softmax, "attn"), (PlainAttention, MAPS)):
        module = module_with(attention)
        for layer in module.layers:
            layer.attn.n_heads = 2.0  # no integer, so that it is not found
        if attention is PlainAttention:
            for layer in module.layers:
                layer.attn.register_forward_pre_hook(lambda module, inputs: vars(module).update(n_heads=2))
        with pytest.raises(
            ValueError,
            match=r"n_heads is 4, but the attention of layers\.0 has a pattern for each of 2 heads: it must be 2",
        ):
            hooks.from_module(module, layers="layers", attention=names, n_heads=4, **SIZES)


def test_dropout_of_torch_s_attention_applies_in_training():
    class Dropped(PlainAttention):
        def forward(self, x, hidden):
            q, k, v = heads_of(self, x)
            dropout = 0.5 if self.training else 0.0
            return self.o(F.scaled_dot_product_attention(q, k, v, dropout_p=dropout).transpose(1, 2).flatten(2))

    model = hooks.from_module(module_with(Dropped), layers="layers", attention="attn", **SIZES)
    torch.manual_seed(0)
    assert torch.equal(model(TOKENS), model(TOKENS))
    model.train()
    assert not torch.allclose(model(TOKENS), model(TOKENS))


# nanoGPT

CONFIG = GPTConfig(block_size=TASK.n_ctx, vocab_size=TASK.d_vocab, n_layer=2, n_head=2, n_embd=16)
GPT_NAMES = {"layers": "transformer.h", "attention": "attn", **SIZES}


def all_logits(gpt, tokens):
    return gpt(tokens, tokens)[0]


def test_nano_gpt_with_flash_attention_and_without(monkeypatch, capsys):
    torch.manual_seed(0)
    flash = GPT(CONFIG)
    monkeypatch.delattr(F, "scaled_dot_product_attention")
    slow = GPT(CONFIG)
    monkeypatch.undo()
    slow.load_state_dict(flash.state_dict(), strict=False)
    assert not slow.transformer.h[0].attn.flash
    capsys.readouterr()
    models = []
    for module in (flash, slow):
        models.append(hooks.from_module(module, **GPT_NAMES, untrained=lambda: GPT(CONFIG), forward=all_logits))
    logits, patterns = [], []
    for model in models:
        assert model.cfg.attention == "causal"
        assert sum(weight.numel() for weight in model.parameters()) == sum(w.numel() for w in flash.parameters())
        model_logits, cache = model.run_with_cache(TOKENS)
        logits.append(model_logits)
        patterns.append(cache["blocks.1.attn.hook_pattern"])
    assert torch.allclose(*logits, atol=1e-6)
    assert torch.allclose(logits[0], all_logits(flash, TOKENS), atol=1e-6)
    assert torch.allclose(*patterns, atol=1e-6)
    # copies with random weights are made without a word
    assert not torch.allclose(models[0].untrained(1)(TOKENS), logits[0], atol=1e-3)
    assert capsys.readouterr().out == ""


def test_logits_at_the_last_position_only_are_refused():
    with pytest.raises(
        ValueError,
        match=r"GPT returns \(3, 1, 7\), NoneType for tokens \(3, 6\); .*forward=lambda module, tokens: module",
    ):
        hooks.from_module(GPT(CONFIG), **GPT_NAMES)


class Output:
    """An output as of Hugging Face."""

    def __init__(self, logits):
        self.logits, self.hidden = logits, logits


@torch.no_grad()
def test_logits_are_found_in_the_output():
    plain = plain_model(OURS)
    names = {"layers": "layers", "attention": MAPS, **SIZES}

    def returning(change):
        module = plain_model(OURS)
        module.register_forward_hook(lambda module, inputs, logits: change(logits))
        return module

    for change in (
        lambda logits: (logits, None),
        lambda logits: (torch.tensor(0.5), logits, [1]),
        lambda logits: {"logits": logits, "hidden": logits},
        lambda logits: {"loss": torch.tensor(0.5), "scores": logits},
        Output,
    ):
        assert torch.allclose(hooks.from_module(returning(change), **names)(TOKENS), plain(TOKENS), atol=1e-5)
    for change, text in (
        (
            lambda logits: (logits, logits),
            r"returns \(3, 6, 7\), \(3, 6, 7\) for tokens .*: 2 may be logits\. Say which",
        ),
        (lambda logits: logits[:, 0], r"PlainModel returns \(3, 7\) for tokens \(3, 6\); needed are logits"),
        (lambda logits: "text", "PlainModel returns str for tokens"),
    ):
        with pytest.raises(ValueError, match=text):
            hooks.from_module(returning(change), **names)
    # or said by the caller
    twice = returning(lambda logits: (logits * 0, logits))
    model = hooks.from_module(twice, **names, forward=lambda module, tokens: module(tokens)[1])
    assert torch.allclose(model(TOKENS), plain(TOKENS), atol=1e-5)


@pytest.mark.parametrize(
    "names",
    [
        {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "out_proj"},
        {"q": "query", "k": "key", "v": "value", "o": "dense"},
        {"q": "to_q", "k": "to_k", "v": "to_v", "o": "to_out"},
        {"q": "W_query", "k": "W_key", "v": "W_value", "o": "out_proj"},
        {"q": "wq", "k": "wk", "v": "wv", "o": "wo"},
    ],
    ids=lambda names: names["q"],
)
def test_usual_names_of_maps(names):
    class Renamed(Flash):
        def __getattr__(self, name):
            return super().__getattr__(names.get(name, name))

        def get_submodule(self, target):
            return super().get_submodule(names.get(target, target))

    module = module_with(Renamed)
    for layer in module.layers:
        parts = layer.attn._modules
        for name, usual_name in names.items():
            parts[usual_name] = parts.pop(name)
        # an output map in a Sequential, with a Dropout after it
        if names["o"] == "to_out":
            parts["to_out"] = nn.Sequential(parts["to_out"], nn.Dropout())
    model = hooks.from_module(module.eval(), layers="layers", attention="attn", **SIZES)
    assert torch.allclose(model(TOKENS), OURS(TOKENS), atol=1e-5)
    assert torch.equal(model.blocks[1].attn.W_V, OURS.blocks[1].attn.W_V)
