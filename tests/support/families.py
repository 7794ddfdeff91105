"""A model of every family with random weights, tokens for it, and one edit attached in each way there is."""

import torch

from hooks import (
    EncoderConfig,
    FullyConnected,
    FullyConnectedConfig,
    HeadPattern,
    Pathways,
    Recurrent,
    RecurrentConfig,
    TransformerConfig,
    make_model,
    presets,
)

SIZES = {"d_vocab": 9, "d_model": 8, "n_heads": 2, "n_layers": 1, "n_ctx": 96}
MIXED = (HeadPattern(kind="local", kernel=(1.0, 2.0, 0.0)), HeadPattern())
PATHWAYS = Pathways(learned=2, association=2, cls=2, convolution=2, cls_token=1, kernel_width=3)
ENCODER = {**SIZES, "n_token_types": 2}
TRANSFORMERS = {
    "pre_ln": {},
    "post_ln": {"block": "post_ln"},
    "causal": {"attention": "causal"},
    "dyck": {"block": "dyck"},
    "bare": {"block": "bare", "output_projection": False},
    "extended": {"block": "extended"},
    "no_norm": {"block": "no_norm", "attn_bias": False, "mlp_bias": False, "activation": "relu"},
    "points on demand": {"n_heads": 1},
    "attention_only": {"d_mlp": 0, "positions": "sinusoidal"},
    "a I": {"qk_identity": True},
    "a I and b I": {"qk_identity": True, "vo_identity": True},
    "tied": {"tied": True, "n_layers": 2, "tied_embedding": True},
    "patterns": {"head_patterns": (MIXED,)},
    "pathways": {"n_heads": 4, "head_patterns": PATHWAYS},
}
MODELS = {
    **{name: TransformerConfig(**{**SIZES, **fields}) for name, fields in TRANSFORMERS.items()},
    "minimal": presets.dyck_minimal(n_types=1, max_depth=2, d_model=12, mlp_head=True),
    "encoder": EncoderConfig(**ENCODER),
    "factorised encoder": EncoderConfig(**ENCODER, d_embedding=4, tied=True, head="linear", d_vocab_out=3),
    **{
        inputs: FullyConnectedConfig(d_vocab=9, n_ctx=16, inputs=inputs, width=8, depth=3)
        for inputs in ("one_hot", "one_hot_and_equality", "shared_embedding")
    },
    **{cell: RecurrentConfig(d_vocab=9, n_ctx=96, cell=cell, width=8, d_embed=6) for cell in ("rnn", "lstm")},
}


def model_of(cfg, seed=1):
    model, generator = make_model(cfg), torch.Generator().manual_seed(seed)
    if cfg is MODELS["points on demand"]:
        model.set_use_split_qkv_input(True)
        model.set_use_attn_result(True)
        model.set_use_hook_mlp_in(True)
    for parameter in model.parameters():  # also the scalars of a I and b I, gains and biases
        parameter.data = 0.5 * torch.randn(parameter.shape, generator=generator)
    return model


def tokens_of(model, length, seed=2, n=2):
    generator = torch.Generator().manual_seed(seed)
    if isinstance(model, FullyConnected):
        return torch.randint(9, (n, 16), generator=generator)
    if isinstance(model, Recurrent):
        return torch.randint(9, (n, length), generator=generator)
    tokens = model.embed.example(n, length, generator)
    return tokens if model.cfg.pathways is None else model.cfg.pathways.framed(tokens)


def changed(activation, hook=None):
    """Twice the activation and a ramp: neither softmax nor LayerNorm undoes it."""
    if isinstance(activation, tuple):  # hidden states, and those after the last token
        return (changed(activation[0]), *activation[1:])
    return 2 * activation + torch.linspace(1, 2, activation.shape[-1]).to(activation)


def each_way(model, name, tokens):
    """Logits under one edit, attached in each of the ways there are; no hook is left."""
    point = model.hook_dict[name]
    yield "run_with_hooks", model.run_with_hooks(tokens, fwd_hooks=[(name, changed)])
    model.add_hook(name, changed)
    yield "add_hook", model(tokens)
    model.reset_hooks()
    handle = point.register_forward_hook(lambda module, args, out: changed(out))
    yield "register_forward_hook", model(tokens)
    handle.remove()
