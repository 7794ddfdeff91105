"""A `HookedRootModule` and two plain torch modules with the weights of a `hooks.Transformer`."""

import copy
from types import SimpleNamespace

import torch
from torch import nn
from transformer_lens.hook_points import HookPoint
from transformer_lens.HookedRootModule import HookedRootModule

import hooks

LAYERS, D_MODEL, HEADS = 2, 16, 2
MAPS = {"q": "attn.q", "k": "attn.k", "v": "attn.v", "o": "attn.o", "pattern": "attn.pattern"}


def transformer(task, *, seed=0, scale=1.0, **fields):
    """A pre-LN transformer for a task with random gains and biases."""
    fields = {"attention": task.attention, "positions": "learned", "activation": "gelu", **fields}
    cfg = hooks.TransformerConfig(
        d_vocab=task.d_vocab, d_vocab_out=task.d_vocab_out, d_model=D_MODEL, n_heads=HEADS, n_layers=LAYERS,
        n_ctx=task.n_ctx, d_mlp=32, **fields,
    )  # fmt: skip
    model = hooks.Transformer(cfg, seed=seed).eval()
    generator = torch.Generator().manual_seed(seed + 1)
    for parameter in model.parameters():
        parameter.data += 0.3 * scale * torch.randn(parameter.shape, generator=generator)
    return model


def hidden_keys(attention, mask, pos):
    """True where a key is hidden: (batch, query, key)."""
    hidden = torch.zeros(1, pos, pos, dtype=torch.bool)
    if attention == "causal":
        hidden = ~torch.ones(1, pos, pos, dtype=torch.bool).tril()
    return hidden if mask is None else hidden | ~mask.bool()[:, None]


class OwnAttention(nn.Module):
    """Attention with matrices per head, as in TransformerLens."""

    def __init__(self, cfg):
        super().__init__()
        for name in "QKV":
            setattr(self, f"W_{name}", nn.Parameter(torch.randn(cfg.n_heads, cfg.d_model, cfg.d_head)))
            setattr(self, f"b_{name}", nn.Parameter(torch.zeros(cfg.n_heads, cfg.d_head)))
        self.W_O = nn.Parameter(torch.randn(cfg.n_heads, cfg.d_head, cfg.d_model))
        self.b_O = nn.Parameter(torch.zeros(cfg.d_model))
        for name in ("q", "k", "v", "attn_scores", "pattern", "z"):
            setattr(self, f"hook_{name}", HookPoint())
        self.scale = cfg.d_head**0.5

    def forward(self, x, hidden):
        q, k, v = (
            getattr(self, f"hook_{name.lower()}")(
                torch.einsum("bpd,hde->bphe", x, getattr(self, f"W_{name}")) + getattr(self, f"b_{name}")
            )
            for name in "QKV"
        )
        scores = torch.einsum("bqhe,bkhe->bhqk", q, k) / self.scale
        pattern = self.hook_pattern(self.hook_attn_scores(scores.masked_fill(hidden[:, None], -torch.inf)).softmax(-1))
        z = self.hook_z(torch.einsum("bhqk,bkhe->bqhe", pattern, v))
        return torch.einsum("bqhe,hed->bqd", z, self.W_O) + self.b_O


class OwnNorm(nn.LayerNorm):
    def __init__(self, width):
        super().__init__(width)
        self.hook_normalized = HookPoint()

    def forward(self, x):
        return self.hook_normalized(super().forward(x))


class OwnLayer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.ln1, self.ln2 = OwnNorm(cfg.d_model), OwnNorm(cfg.d_model)
        self.attn = OwnAttention(cfg)
        self.w_in, self.w_out = nn.Linear(cfg.d_model, cfg.d_mlp), nn.Linear(cfg.d_mlp, cfg.d_model)
        for name in ("resid_pre", "attn_out", "resid_mid", "mlp_out", "resid_post"):
            setattr(self, f"hook_{name}", HookPoint())

    def forward(self, x, hidden):
        x = self.hook_resid_pre(x)
        x = self.hook_resid_mid(x + self.hook_attn_out(self.attn(self.ln1(x), hidden)))
        out = self.w_out(nn.functional.gelu(self.w_in(self.ln2(x))))
        return self.hook_resid_post(x + self.hook_mlp_out(out))


class OwnModel(HookedRootModule):
    """A hand-written transformer with TransformerLens's hook names."""

    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.embed, self.positions = nn.Embedding(cfg.d_vocab, cfg.d_model), nn.Embedding(cfg.n_ctx, cfg.d_model)
        self.hook_embed, self.hook_pos_embed = HookPoint(), HookPoint()
        self.blocks = nn.ModuleList(OwnLayer(cfg) for _ in range(cfg.n_layers))
        self.norm, self.unembed = nn.LayerNorm(cfg.d_model), nn.Linear(cfg.d_model, cfg.d_out)
        self.setup()

    def forward(self, tokens, attention_mask=None):
        pos = tokens.shape[1]
        places = self.hook_pos_embed(self.positions(torch.arange(pos)).expand(len(tokens), -1, -1))
        x = self.hook_embed(self.embed(tokens)) + places
        for block in self.blocks:
            x = block(x, self.hidden(attention_mask, pos))
        return self.unembed(self.norm(x))

    def hidden(self, mask, pos):
        return hidden_keys(self.cfg.attention, mask, pos)


def own_model(ours, cls=OwnModel):
    """A `HookedRootModule` with the weights of one of ours."""
    cfg = ours.cfg
    sizes = {
        name: getattr(cfg, name)
        for name in ("n_layers", "n_heads", "d_model", "d_head", "d_vocab", "n_ctx", "d_mlp", "attention")
    }
    own = cls(SimpleNamespace(**sizes, d_out=cfg.d_vocab_out, ours=cfg)).eval()
    with torch.no_grad():
        copy_ends(ours, own)
        for layer, block in enumerate(own.blocks):
            at, stored = ours.blocks[layer], ours.block(layer)
            for name in (*(f"{kind}_{letter}" for letter in "QKVO" for kind in "Wb"),):
                getattr(block.attn, name).copy_(getattr(at.attn, name))
            copy_layer(stored, block, ("w_in", "w_out", "ln1", "ln2"))
    return own


def copy_layer(stored, target, names):
    """Copy MLP and norms."""
    w_in, w_out, norm_1, norm_2 = (getattr(target, name) for name in names)
    for mine, theirs in (
        (stored.mlp.w_in, w_in), (stored.mlp.w_out, w_out), (stored.norm_1, norm_1), (stored.norm_2, norm_2),
    ):  # fmt: skip
        theirs.weight.copy_(mine.weight)
        theirs.bias.copy_(mine.bias)


def copy_ends(ours, target):
    """Copy embeddings, the final norm and the read-out."""
    target.embed.weight.copy_(ours.embed.weight)
    target.positions.weight.copy_(ours.positions.weight)
    for mine, theirs in ((ours.norm_final, target.norm), (ours.unembed, target.unembed)):
        theirs.weight.copy_(mine.weight)
        theirs.bias.copy_(mine.bias_or_zero if hasattr(mine, "bias_or_zero") else mine.bias)


class TorchEncoder(nn.Module):
    """Layers of `torch.nn.TransformerEncoder`."""

    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.embed, self.positions = nn.Embedding(cfg.d_vocab, cfg.d_model), nn.Embedding(cfg.n_ctx, cfg.d_model)
        layer = nn.TransformerEncoderLayer(
            cfg.d_model, cfg.n_heads, cfg.d_mlp, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, cfg.n_layers, enable_nested_tensor=False)
        self.norm, self.unembed = nn.LayerNorm(cfg.d_model), nn.Linear(cfg.d_model, cfg.d_vocab_out)

    def forward(self, tokens, attention_mask=None):
        pos = tokens.shape[1]
        x = self.embed(tokens) + self.positions(torch.arange(pos))
        mask = hidden_keys(self.cfg.attention, None, pos)[0] if self.cfg.attention == "causal" else None
        padded = None if attention_mask is None else ~attention_mask.bool()
        return self.unembed(self.norm(self.encoder(x, mask=mask, src_key_padding_mask=padded)))


def torch_encoder(ours):
    """A torch encoder with the weights of one of ours."""
    model = TorchEncoder(ours.cfg).eval()
    with torch.no_grad():
        copy_ends(ours, model)
        for index, layer in enumerate(model.encoder.layers):
            stored, attn = ours.block(index), layer.self_attn
            attn.in_proj_weight.copy_(torch.cat([getattr(stored.attention, name).weight for name in "qkv"]))
            attn.in_proj_bias.copy_(torch.cat([getattr(stored.attention, name).bias for name in "qkv"]))
            attn.out_proj.weight.copy_(stored.attention.o.weight)
            attn.out_proj.bias.copy_(stored.attention.o.bias)
            copy_layer(stored, layer, ("linear1", "linear2", "norm1", "norm2"))
    return model


class PlainAttention(nn.Module):
    """Attention made of `Linear` maps; `fused` has one for queries, keys and values."""

    def __init__(self, cfg, fused):
        super().__init__()
        self.n_heads, self.fused = cfg.n_heads, fused
        for name in ["qkv"] if fused else "qkv":
            setattr(self, name, nn.Linear(cfg.d_model, len(name) * cfg.d_model))
        self.o, self.pattern = nn.Linear(cfg.d_model, cfg.d_model), nn.Identity()

    def forward(self, x, hidden):
        parts = self.qkv(x).chunk(3, -1) if self.fused else (self.q(x), self.k(x), self.v(x))
        q, k, v = (part.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for part in parts)
        scores = q @ k.mT / q.shape[-1] ** 0.5
        z = self.pattern(scores.masked_fill(hidden[:, None], -torch.inf).softmax(-1)) @ v
        return self.o(z.transpose(1, 2).flatten(2))


class PlainLayer(nn.Module):
    def __init__(self, cfg, fused):
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(cfg.d_model), nn.LayerNorm(cfg.d_model)
        self.attn = PlainAttention(cfg, fused)
        self.w_in, self.w_out = nn.Linear(cfg.d_model, cfg.d_mlp), nn.Linear(cfg.d_mlp, cfg.d_model)

    def forward(self, x, hidden):
        x = x + self.attn(self.norm_1(x), hidden)
        return x + self.w_out(nn.functional.gelu(self.w_in(self.norm_2(x))))


class PlainModel(nn.Module):
    """A transformer of torch's own parts, without any hook point."""

    def __init__(self, cfg, fused=False):
        super().__init__()
        self.cfg = cfg
        self.embed, self.positions = nn.Embedding(cfg.d_vocab, cfg.d_model), nn.Embedding(cfg.n_ctx, cfg.d_model)
        self.layers = nn.ModuleList(PlainLayer(cfg, fused) for _ in range(cfg.n_layers))
        self.norm, self.unembed = nn.LayerNorm(cfg.d_model), nn.Linear(cfg.d_model, cfg.d_vocab_out)

    def forward(self, tokens, attention_mask=None):
        x = self.embed(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            x = layer(x, hidden_keys(self.cfg.attention, attention_mask, tokens.shape[1]))
        return self.unembed(self.norm(x))


def plain_model(ours, *, fused=False):
    """A plain torch module with the weights of one of ours."""
    model = PlainModel(copy.copy(ours.cfg), fused).eval()
    with torch.no_grad():
        copy_ends(ours, model)
        for index, layer in enumerate(model.layers):
            stored = ours.block(index)
            maps = [getattr(stored.attention, name) for name in "qkv"]
            targets = [layer.attn.qkv] if fused else [layer.attn.q, layer.attn.k, layer.attn.v]
            for target, sources in zip(targets, [maps] if fused else [[one] for one in maps], strict=True):
                target.weight.copy_(torch.cat([one.weight for one in sources]))
                target.bias.copy_(torch.cat([one.bias for one in sources]))
            layer.attn.o.weight.copy_(stored.attention.o.weight)
            layer.attn.o.bias.copy_(stored.attention.o.bias)
            copy_layer(stored, layer, ("w_in", "w_out", "norm_1", "norm_2"))
    return model


class ParallelLayer(PlainLayer):
    """x + Attn(norm x) + MLP(norm x), with one norm for both, one for each, or none."""

    norms = "shared"

    def forward(self, x, hidden):
        norm_1 = self.norm_1 if self.norms != "none" else nn.Identity()
        norm_2 = self.norm_2 if self.norms == "two" else norm_1
        return x + self.attn(norm_1(x), hidden) + self.w_out(nn.functional.gelu(self.w_in(norm_2(x))))


class ParallelModel(PlainModel):
    """A plain model of parallel layers."""

    def __init__(self, cfg, norms="shared"):
        super().__init__(cfg)
        self.layers = nn.ModuleList(ParallelLayer(cfg, fused=False) for _ in range(cfg.n_layers))
        for layer in self.layers:
            layer.norms = norms
