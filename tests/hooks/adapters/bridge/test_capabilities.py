"""The table of capabilities of six bridges, cell by cell, against edits of the bridge by hand."""

from functools import cache

import pytest
import torch
import torch.nn.functional as F
import transformers
from bridges import D_VOCAB, KINDS, bridge_of
from sampled import sampled
from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module

import hooks
from hooks.adapters.bridge.sites import GLOBAL_SITES, LAYER_SITES, WEIGHTS

WORKS = ("works", "works")
COPY = ("wrong copy", "ignored")
ALIKE = dict.fromkeys((*GLOBAL_SITES, *LAYER_SITES), WORKS) | {"ln_final.hook_normalized": ("through", "through")}
BRANCH = {"hook_resid_mid": ("works", "wrong copy")}
ENCODER = {
    "hook_embed": ("through", "through"),
    "attn.hook_attn_scores": COPY,
    "attn.hook_pattern": ("works", "ignored"),
    "hook_attn_out": ("through", "through"),
    "hook_resid_mid": ("through", "through"),
}
EXPECTED = {
    "gpt2": ALIKE | BRANCH,
    "llama": ALIKE | BRANCH | {"hook_pos_embed": ("missing", "missing")},
    "neox": ALIKE | {"hook_pos_embed": ("missing", "missing"), "hook_resid_mid": ("missing", "missing")},
    "bert": ALIKE | ENCODER,
    "roberta": ALIKE | ENCODER,
    "native": ALIKE | BRANCH | {"attn.hook_attn_scores": COPY},
}
THROUGH = {
    "hook_embed": "embed.hook_out",
    "ln_final.hook_normalized": "ln_final.hook_out",
    "hook_attn_out": "attn.o.hook_out",
    "hook_resid_mid": "ln1.hook_out",
}
ACTIVATION = {"gpt2": lambda x: F.gelu(x, approximate="tanh"), "llama": F.silu}
SPLIT = ("bert", "roberta")


def name_of(site, layer):
    return site if site in GLOBAL_SITES else f"blocks.{layer}.{site}"


@cache
def bridged(kind):
    return bridge_of(kind)


@cache
def model_of(kind):
    return hooks.from_bridge(bridged(kind))


class EditsByHand:
    """The logits that an edit of each quantity must give, computed by other edits of the bridge."""

    def __init__(self, kind, layer):
        self.kind, self.layer, self.bridge = kind, layer, bridged(kind)
        self.generator = torch.Generator().manual_seed(7 + layer)
        self.tokens, self.others = (torch.randint(2, D_VOCAB, (2, 5), generator=self.generator) for _ in range(2))
        self.clean, self.cache = self.bridge.run_with_cache(self.tokens)
        self.other_logits, self.other_cache = self.bridge.run_with_cache(self.others)
        self.at = f"blocks.{layer}."
        self.attn, self.block = self.bridge.blocks[layer].attn, self.bridge.blocks[layer]

    def set(self, point, value):
        hook = [(point, lambda activation, hook: value.clone())]
        return self.bridge.run_with_hooks(self.tokens, fwd_hooks=hook)

    def random(self, like):
        return like + torch.randn(like.shape, generator=self.generator)

    def every_head(self, x):
        return x.repeat_interleave(4 // x.shape[2], 2)

    @property
    def write(self):
        return self.at + "attn.o.hook_out"

    def mixed(self, pattern, v=None):
        v = self.every_head(self.cache[self.at + "attn.hook_v"] if v is None else v)
        return self.set(self.at + "attn.hook_z", (pattern @ v.transpose(1, 2)).transpose(1, 2))

    def sharper(self, by):
        """Scores times a number: the pattern to that power."""
        pattern = self.cache[self.at + "attn.hook_pattern"]
        power = torch.where(pattern > 0, pattern.double() ** by, 0)
        return self.mixed((power / power.sum(-1, keepdim=True)).float())

    def hook_embed(self):
        return self.other_cache["embed.hook_out"], self.other_logits

    def hook_pos_embed(self):
        value = self.random(self.cache["hook_pos_embed"])
        embed = self.cache["embed.hook_out"]
        return value, self.set("embed.hook_out", embed + value - self.cache["hook_pos_embed"])

    def ln_final_hook_normalized(self):
        value = self.random(self.cache["unembed.hook_in"])
        bias = self.bridge.b_U
        return value, value @ self.bridge.W_U + (0 if bias is None else bias)

    def hook_resid_pre(self):
        return self.other_cache[self.at + "hook_resid_pre"], self.other_logits

    def hook_resid_post(self):
        return self.other_cache[self.at + "hook_resid_post"], self.other_logits

    def attn_hook_q(self):
        by = torch.rand(2, 5, 4, generator=self.generator) * 2
        return self.cache[self.at + "attn.hook_q"] * by[..., None], self.sharper(by.permute(0, 2, 1)[..., None])

    def attn_hook_k(self):
        k = self.cache[self.at + "attn.hook_k"]
        by = torch.rand(2, 1, k.shape[2], 1, generator=self.generator) * 2
        return k * by, self.sharper(self.every_head(by).permute(0, 2, 1, 3))

    def attn_hook_v(self):
        value = self.random(self.cache[self.at + "attn.hook_v"])
        return value, self.mixed(self.cache[self.at + "attn.hook_pattern"], value)

    def attn_hook_attn_scores(self):
        scores = self.random(self.cache[self.at + "attn.hook_pattern"])
        if self.kind not in (*SPLIT, "native"):
            later = torch.ones(5, 5).triu(1).bool()
            scores = scores.masked_fill(later, -torch.inf)
        return scores, self.mixed(scores.softmax(-1))

    def attn_hook_pattern(self):
        rows = torch.rand(2, 4, 5, 5, generator=self.generator)
        pattern = rows / rows.sum(-1, keepdim=True)
        return pattern, self.mixed(pattern)

    def attn_hook_z(self):
        value = self.random(self.cache[self.at + "attn.hook_z"])
        return value, self.set(self.write, self.written(value))

    def written(self, z):
        bias = self.attn.b_O
        return torch.einsum("bphe,hed->bpd", z, self.attn.W_O) + (0 if bias is None else bias)

    def hook_attn_out(self):
        z = self.random(self.cache[self.at + "attn.hook_z"])
        return self.written(z), self.set(self.at + "attn.hook_z", z)

    def hook_resid_mid(self):
        written = self.random(self.cache[self.write])
        middle = self.cache[self.at + "hook_resid_pre"] + written
        if self.kind in SPLIT:
            norm = self.block.ln1
            middle = F.layer_norm(middle, (32,), norm.weight, norm.bias, 1e-12)
        return middle, self.set(self.write, written)

    def mlp_hook_pre(self):
        value = self.random(self.cache[self.at + "mlp.hook_pre"])
        after = ACTIVATION.get(self.kind, F.gelu)(value)
        if self.kind == "llama":
            after = after * self.cache[self.at + "mlp.hook_pre_linear"]
        return value, self.set(self.at + "mlp.hook_post", after)

    def mlp_hook_post(self):
        value, bias = self.random(self.cache[self.at + "mlp.hook_post"]), self.block.mlp.b_out
        return value, self.set(self.at + "hook_mlp_out", value @ self.block.mlp.W_out + (0 if bias is None else bias))

    def hook_mlp_out(self):
        out = self.cache[self.at + "hook_mlp_out"]
        value = self.random(out)
        end = self.cache[self.at + "hook_resid_post"] + value - out
        if self.kind in SPLIT:
            norm, middle = self.block.ln2, self.cache[self.at + "ln1.hook_out"]
            end = F.layer_norm(middle + value, (32,), norm.weight, norm.bias, 1e-12)
        return value, self.set(self.at + "hook_resid_post", end)


@cache
def _edits_by_hand(kind, layer):
    with torch.no_grad():
        return EditsByHand(kind, layer)


def edits_by_hand(kind, layer):
    """A clean run of a layer, shared by all its edits."""
    by_hand = _edits_by_hand(kind, layer)
    by_hand.generator.manual_seed(11)
    return by_hand


def close(a, b):
    return torch.allclose(a, b, rtol=1e-3, atol=1e-4)


EDITS = [(kind, site, layer) for kind in KINDS for site in (*GLOBAL_SITES, *LAYER_SITES) for layer in (0, 1)]
"""Every kind and site; each has one of the two layers by default, in turn."""


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("kind", "site", "layer"), sampled(EDITS, [edit for index, edit in enumerate(EDITS) if index % 4 in (0, 3)])
)
@torch.no_grad()
def test_edits(kind, site, layer):
    name, model = name_of(site, layer), model_of(kind)
    cell, wanted = model.capabilities.cell(name, "edit"), EXPECTED[kind][site][1]
    assert cell.state == wanted, cell
    if wanted == "missing":
        assert name not in model.hook_dict
        return
    by_hand = edits_by_hand(kind, layer)
    value, reference = getattr(by_hand, site.replace(".", "_"))()
    assert not close(reference, by_hand.clean)  # the edit has an effect
    directly = by_hand.set(name, value)
    ours = [(name, lambda activation, hook: value.clone())]
    if cell.ok:
        own_point = THROUGH.get(site) if wanted == "through" else site
        assert cell.point == name_of(own_point, layer) if "." in name and name != site else cell.point == own_point
        assert close(by_hand.set(cell.point, value), reference)
        assert close(directly, reference) == (wanted == "works")
        if kind == "llama" and site in ("attn.hook_k", "attn.hook_v"):
            ours = [(name, lambda activation, hook: value.repeat_interleave(2, 2))]
        assert close(model.run_with_hooks(by_hand.tokens, fwd_hooks=ours), reference)
        return
    assert torch.equal(directly, by_hand.clean) == (wanted == "ignored")
    assert not close(directly, reference)
    if name in model.hook_dict:
        with pytest.raises(ValueError, match=f"an edit of {name} .*{'ignored' if wanted == 'ignored' else 'refused'}"):
            model.run_with_hooks(by_hand.tokens, fwd_hooks=ours)
    else:
        with pytest.raises(ValueError, match=f"reading {name} is refused: wrong copy"):
            model.run_with_hooks(by_hand.tokens, fwd_hooks=ours)
    assert torch.equal(by_hand.bridge(by_hand.tokens), by_hand.clean)  # no hook is left


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_reads(kind):
    model, bridge = model_of(kind), bridged(kind)
    for site in (*GLOBAL_SITES, *LAYER_SITES):
        for layer in (0, 1):
            cell = model.capabilities.cell(name_of(site, layer), "read")
            assert cell.state == EXPECTED[kind][site][0], (site, cell)
            assert (name_of(site, layer) in model.hook_dict) == cell.ok
    by_hand = edits_by_hand(kind, 0)
    _, seen = model.run_with_cache(by_hand.tokens)
    _, other = model.run_with_cache(by_hand.others)
    table = bridge.embed.weight if hasattr(bridge.embed, "weight") else bridge.W_E
    assert close(seen["hook_embed"], table[by_hand.tokens])
    if "hook_pos_embed" in seen:
        assert close(seen["hook_pos_embed"], other["hook_pos_embed"])
    for layer in (0, 1):
        at = f"blocks.{layer}."
        get = {site: seen.cache_dict.get(at + site) for site in LAYER_SITES}
        attn = model.blocks[layer].attn
        assert close(get["attn.hook_pattern"].sum(-1), torch.ones(2, 4, 5))
        assert close(
            (get["attn.hook_pattern"] @ get["attn.hook_v"].transpose(1, 2)).transpose(1, 2), get["attn.hook_z"]
        )
        if get["attn.hook_attn_scores"] is not None:
            assert close(get["attn.hook_attn_scores"].softmax(-1), get["attn.hook_pattern"])
            diagonal = (get["attn.hook_q"] * get["attn.hook_k"]).sum(-1) / model.cfg.attn_scale
            assert close(get["attn.hook_attn_scores"].diagonal(dim1=-2, dim2=-1).transpose(1, 2), diagonal)
        write = torch.einsum("bphe,hed->bpd", get["attn.hook_z"], attn.W_O) + attn.b_O
        assert close(get["hook_attn_out"], write)
        into = bridge.run_with_cache(by_hand.tokens)[1][at + "attn.q.hook_in"]
        for letter in "QKV":
            made = torch.einsum("bpd,hde->bphe", into, getattr(attn, f"W_{letter}"))
            made = made + getattr(attn, f"b_{letter}")
            assert close(get[f"attn.hook_{letter.lower()}"], made)
        middle = get["hook_resid_pre"] + get["hook_attn_out"]
        if kind in SPLIT:
            norm = bridge.blocks[layer].ln1
            middle = F.layer_norm(middle, (32,), norm.weight, norm.bias, 1e-12)
            norm = bridge.blocks[layer].ln2
            end = F.layer_norm(middle + get["hook_mlp_out"], (32,), norm.weight, norm.bias, 1e-12)
        else:
            end = middle + get["hook_mlp_out"]
        if kind != "neox":
            assert close(get["hook_resid_mid"], middle)
        assert close(get["hook_resid_post"], end)
        assert all(model.capabilities.cell(at + name, "read").ok for name in WEIGHTS)
    assert close(seen["blocks.1.hook_resid_pre"], seen["blocks.0.hook_resid_post"])
    bias = bridge.b_U
    assert close(seen["ln_final.hook_normalized"] @ bridge.W_U + (0 if bias is None else bias), by_hand.clean)


@pytest.mark.parametrize("kind", ["gpt2", "neox", "bert", "roberta", "native"])
@torch.no_grad()
def test_hook_attn_out_is_where_b_o_is_added(kind):
    """A change of b_O is an edit of the attention output without hooks."""
    model, bridge = model_of(kind), bridged(kind)
    tokens = edits_by_hand(kind, 0).tokens
    for layer in (0, 1):
        bias = bridge.blocks[layer].attn.o.original_component.bias
        extra = torch.linspace(-2, 2, 32)
        hook = (f"blocks.{layer}.hook_attn_out", lambda activation, hook, extra=extra: activation + extra)
        edited = model.run_with_hooks(tokens, fwd_hooks=[hook])
        bias.data += extra
        try:
            wanted = bridge(tokens)
        finally:
            bias.data -= extra
        assert close(edited, wanted)
        assert not close(edited, bridge(tokens))


def test_small_weights_give_the_same_table():
    """With default initial weights, every effect is small."""
    config = transformers.BertConfig(
        vocab_size=13,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=20,
        attn_implementation="eager",
    )
    bridge = build_bridge_from_module(transformers.BertForMaskedLM(config).eval(), "BertForMaskedLM", hf_config=config)
    rows = {row["site"]: row for row in hooks.from_bridge(bridge).capabilities.rows()}
    for site, (read, edit) in EXPECTED["bert"].items():
        assert rows[site]["read"].startswith(read), rows[site]
        assert rows[site]["edit"].startswith(edit), rows[site]
