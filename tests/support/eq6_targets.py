"""Targets for pruning: random matrices of spectral norm 1, and small transformers with layers of Eq. 6."""

import copy

import torch

from hooks import Transformer, TransformerConfig

NARROW = {"d_vocab": 7, "d_model": 4, "n_heads": 2, "n_layers": 1, "d_mlp": 5, "n_ctx": 10}
EQ6 = {"block": "dyck", "activation": "relu"}
QUICK = {"candidates": 12, "rescale": True, "n": 24}
"""Settings of `prune_to_transformer` and `indistinguishable`."""


def unit(*shape, generator):
    """A random matrix of spectral norm 1."""
    weight = torch.randn(shape, generator=generator, dtype=torch.float64)
    return weight / torch.linalg.matrix_norm(weight, 2)


def target_of(*, seed=0, **settings):
    """Random weights, none of them zero or one: biases, gains and identity scalars too."""
    model = Transformer(TransformerConfig(**{**NARROW, **EQ6, **settings}))
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.data = 0.5 * torch.randn(parameter.shape, generator=generator)
    return model.eval()


def logits(model, tokens):
    """Logits in float64."""
    with torch.no_grad():
        return copy.deepcopy(model).double()(tokens)


def tokens_for(target, n=50):
    """Random sequences of 9 tokens."""
    return target.embed.example(n, 9, torch.Generator().manual_seed(5))
