"""Configs of the papers' models, by family. Sizes are keyword arguments of `TransformerConfig`."""

from typing import Any

from hooks.config import TransformerConfig


def bert(**sizes: Any) -> TransformerConfig:
    """BERT's encoder: post-LN, bidirectional, learned positions, N(0, 0.02^2). Base sizes unless given.

    Source: Devlin et al. 2018; LEGO (arXiv:2206.04301) Section 3. Differs: no segment embedding, no LayerNorm
    on the embeddings and no dropout.
    """
    base = {"d_model": 768, "n_heads": 12, "n_layers": 12, "n_ctx": 512, "layer_norm_eps": 1e-12}
    return TransformerConfig(**{**base, "block": "post_ln", "init": "normal", **sizes})


def albert(**sizes: Any) -> TransformerConfig:
    """`bert` with one block applied `n_layers` times.

    Source: Lan et al. 2019; LEGO Section 3. Differs: as `bert`, and the embedding is not factorised.
    """
    return bert(**{"tied": True, **sizes})


def gpt(**sizes: Any) -> TransformerConfig:
    """GPT-2: pre-LN, causal, learned positions. Small sizes (117M) unless given.

    Source: Radford et al. 2019. Differs: the read-out is not tied to the embedding; no dropout.
    """
    base = {"d_model": 768, "n_heads": 12, "n_layers": 12, "n_ctx": 1024, "activation": "gelu_tanh"}
    return TransformerConfig(**{**base, "attention": "causal", "init": "gpt2", **sizes})


def template(**sizes: Any) -> TransformerConfig:
    """The template paper's transformer: pre-LN, bidirectional, attention without biases, d_head 64.

    Source: arXiv:2310.09753, base model of the experiments. Differs: final LayerNorm has gain and bias,
    embeddings start at N(0, 0.5^2). Add `qk_identity=True`, `vo_identity=True` for its a I and b I.
    """
    base = {"d_model": 128, "n_heads": 16, "d_head": 64, "d_mlp": 256, "n_layers": 2}
    return TransformerConfig(**{**base, "attn_bias": False, **sizes})


def lego(**sizes: Any) -> TransformerConfig:
    """A small pre-LN encoder that learns LEGO chains of four within a minute on a CPU.

    Ours, not the paper's: `bert` and `albert` are the paper's architectures.
    """
    return TransformerConfig(**{"d_model": 64, "n_heads": 4, "n_layers": 6, **sizes})
