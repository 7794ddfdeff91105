"""Configs of the papers' models. `fields` override any field of the config, `TransformerConfig` or `EncoderConfig`."""

from typing import Any

from hooks.model.config import TransformerConfig
from hooks.model.embeddings import BracketStates, Encoding
from hooks.model.encoder import EncoderConfig
from hooks.model.hardcoded.head_patterns import HeadPattern, Pathways
from hooks.typed import checks_types

DYCK_POSITIONS = 6000
"""Context length of the Dyck models; the paper divides linear positions by it."""
BERT_BASE = {"d_model": 768, "n_heads": 12, "n_layers": 12}
"""Sizes of BERT base, and of GPT-2 small."""


def bert(**fields: Any) -> TransformerConfig:
    """BERT's encoder: post-LN, bidirectional, learned positions, N(0, 0.02^2). Default: base sizes.

    Source: Devlin et al. 2018; LEGO (arXiv:2206.04301) Section 3. Differs: no segment embedding, no LayerNorm
    on the embeddings and no dropout.
    """
    base = {**BERT_BASE, "n_ctx": 512, "layer_norm_eps": 1e-12}
    return TransformerConfig(**{**base, "block": "post_ln", "init": "normal", **fields})


def albert(**fields: Any) -> TransformerConfig:
    """`bert` with one block applied `n_layers` times.

    Source: Lan et al. 2019; LEGO Section 3. Differs: as `bert`, and the embedding is not factorised.
    """
    return bert(**{"tied": True, **fields})


def bert_encoder(**fields: Any) -> EncoderConfig:
    """BERT as published: token types, LayerNorm on the embeddings, masked-LM head. Default: base sizes.

    Source: Devlin et al. 2018. Differs: no dropout.
    """
    base = {**BERT_BASE, "n_ctx": 512, "d_vocab": 30522, "n_token_types": 2}
    return EncoderConfig(**{**base, "layer_norm_eps": 1e-12, **fields})


def albert_encoder(**fields: Any) -> EncoderConfig:
    """`bert_encoder` with one block applied `n_layers` times and a token embedding of width 128.

    Source: Lan et al. 2019, base model of the second release (tanh approximation of GELU). Differs: no dropout.
    """
    base = {"d_vocab": 30000, "d_embedding": 128, "tied": True, "activation": "gelu_tanh"}
    return bert_encoder(**{**base, **fields})


@checks_types
def hardcode(*, cls_token: int = 101, sep_token: int = 102, **fields: Any) -> EncoderConfig:
    """`bert_encoder` without learned attention: one association head, one each for [CLS] and [SEP], and convolutions of
    width 21 for the rest.

    Args:
        cls_token: Id of [CLS]; default: that of bert-base-uncased.
        sep_token: Id of [SEP].
        **fields: Any field of `EncoderConfig`. `head_patterns` changes the mixture.

    Raises:
        ValueError: fewer than three heads, or as `EncoderConfig`.

    Source: LEGO (arXiv:2206.04301) Section 5, Hardcode. Differs: the number of heads of each kind is our choice.
    """
    return _with_pathways(fields, cls_token, sep_token, half_learned=False)


@checks_types
def hybrid(*, cls_token: int = 101, sep_token: int = 102, **fields: Any) -> EncoderConfig:
    """`hardcode` in which half of all heads are learned, in place of convolutions.

    Args:
        cls_token: As in `hardcode`.
        sep_token: As in `hardcode`.
        **fields: Any field of `EncoderConfig`. `head_patterns` changes the mixture.

    Raises:
        ValueError: fewer than five heads, or as `EncoderConfig`.

    Source: LEGO (arXiv:2206.04301) Section 5, Hybrid. Differs: as `hardcode`.
    """
    return _with_pathways(fields, cls_token, sep_token, half_learned=True)


def _with_pathways(fields: dict[str, Any], cls_token: int, sep_token: int, *, half_learned: bool) -> EncoderConfig:
    """A BERT with half of its heads or none learned, one head each for association, [CLS] and [SEP], and convolutions
    for the rest."""
    base = {**BERT_BASE, **fields}
    n_heads = base["n_heads"]
    d_head = base.get("d_head") or base["d_model"] // n_heads
    n_learned = n_heads // 2 if half_learned else 0
    if n_heads - n_learned < 3:
        raise ValueError(
            f"n_heads is {n_heads}, of which {n_learned} are learned; association, [CLS] and [SEP] need three others."
        )
    n_convolutions = n_heads - n_learned - 3
    pathways = Pathways(
        learned=n_learned * d_head,
        association=d_head,
        cls=d_head,
        sep=d_head,
        convolution=n_convolutions * d_head,
        cls_token=cls_token,
        sep_token=sep_token,
    )
    return bert_encoder(**{"head_patterns": pathways, **fields})


def gpt(**fields: Any) -> TransformerConfig:
    """GPT-2: pre-LN, causal, learned positions. Default: small sizes (117M).

    Source: Radford et al. 2019. Differs: the read-out is not tied to the embedding; no dropout.
    """
    base = {**BERT_BASE, "n_ctx": 1024, "activation": "gelu_tanh"}
    return TransformerConfig(**{**base, "attention": "causal", "init": "gpt2", **fields})


def template(**fields: Any) -> TransformerConfig:
    """The template paper's transformer: pre-LN, bidirectional, attention without biases, 16 heads of 64.

    For the template paper's a_h x x^T in the scores and b_h A_h x in the output, add `qk_identity=True` and
    `vo_identity=True`. For symbolic labels the paper has `tied_embedding=True`.

    Source: arXiv:2310.09753, base model of the experiments and released code. Differs: the final LayerNorm has gain and
    bias, biases start at 0.
    """
    base = {"d_model": 128, "n_heads": 16, "d_head": 64, "d_mlp": 256, "n_layers": 2, "init": "template"}
    return TransformerConfig(**{**base, "attn_bias": False, **fields})


def template_copy(**fields: Any) -> TransformerConfig:
    """The template paper's copying model: one layer of attention only, read out by the embedding.

    Embeddings are N(0, 1/d_model). For b_h A_h x in the output add `vo_identity=True`.

    Source: arXiv:2310.09753, the model of its theorems on copying.
    """
    width = fields.get("d_model", 128)
    base = {"d_model": width, "n_heads": 8, "d_head": 32, "d_mlp": 0, "n_layers": 1, "tied_embedding": True}
    wiring = {"block": "bare", "attn_bias": False, "init": "template", "embedding_std": width**-0.5}
    return TransformerConfig(**{**base, **wiring, **fields})


def lego(**fields: Any) -> TransformerConfig:
    """A small pre-LN encoder that learns LEGO chains of four within a minute on a CPU.

    Not from the paper, whose architectures are `bert` and `albert`.
    """
    return TransformerConfig(**{"d_model": 64, "n_heads": 4, "n_layers": 6, **fields})


def dyck_gpt(**fields: Any) -> TransformerConfig:
    """The bounded-Dyck study's GPT: two pre-LN layers, one head, no positions (or `positions="linear"`).

    Source: arXiv:2312.01429, released settings (width 50, one head, linear positions over 6000). Differs: a LayerNorm
    before attention and a final one, ReLU, MLP of 100, matrices from N(0, 1/fan_in): it learns in hundreds of steps.
    """
    base = {"d_model": 50, "n_heads": 1, "n_layers": 2, "d_mlp": 100, "n_ctx": DYCK_POSITIONS}
    wiring = {"attention": "causal", "positions": "none", "activation": "relu"}
    return TransformerConfig(**{**base, **wiring, **fields})


def dyck_eq6(**fields: Any) -> TransformerConfig:
    """`dyck_gpt` with the layers of the bounded-Dyck paper's Eq. 6, out = MLP(x + LN(Attn(x))), scores not scaled."""
    return dyck_gpt(**{"block": "dyck", "attn_scale": 1.0, "attn_bias": False, **fields})


def dyck_uniform(**fields: Any) -> TransformerConfig:
    """`dyck_gpt` with uniform attention in every head, which can suffice by Corollary 1 of the bounded-Dyck paper."""
    uniform_heads = (HeadPattern(kind="uniform"),) * fields.get("n_heads", 1)
    # One row of patterns holds for all layers
    return dyck_gpt(**{"head_patterns": (uniform_heads,), **fields})


@checks_types
def dyck_minimal(
    *, n_types: int = 2, max_depth: int = 4, encoding: Encoding = "pair", mlp_head: bool = False, **fields: Any
) -> TransformerConfig:
    """One layer on a minimal first layer: frozen vectors of bracket and depth, then out = g(LN(Attn(x))).

    Args:
        n_types: Types of bracket.
        max_depth: Greatest depth.
        encoding: `pair` (Eq. 19), `type_and_depth` (Eq. 20) or `type_and_angle` (Eq. 21).
        mlp_head: g is an MLP of the same width followed by the read-out; if False, the read-out only.
        **fields: Any field of `TransformerConfig`.

    Source: arXiv:2312.01429 Section 4.2 and released settings: width 50, no output projection, no residual,
    N(0, 0.02^2).
    """
    states = BracketStates(encoding=encoding, n_types=n_types, max_depth=max_depth)
    base = {"d_vocab": states.d_vocab, "n_layers": 1, "d_mlp": 50 if mlp_head else 0, "init": "gpt2"}
    wiring = {"block": "minimal", "embedding": states, "attn_bias": False, "output_projection": False}
    # One coordinate more than the states need: the last one is free for linear positions
    d_model = max(50, states.width + 1)
    return dyck_gpt(**{**base, **wiring, "d_model": d_model, **fields})
