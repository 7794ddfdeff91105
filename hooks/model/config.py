"""Transformer configs: frozen, validated on construction, to and from JSON."""

import json
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Literal

from hooks.checks import check_fields
from hooks.files import parse_json
from hooks.model.blocks import find_block
from hooks.model.embeddings import BracketStates
from hooks.model.hardcoded.head_patterns import HeadPattern, Pathways, check_patterns
from hooks.model.transformer_lens_names import TransformerLensSettings
from hooks.typed import check_field_types, restored

BlockName = Literal["pre_ln", "post_ln", "dyck", "minimal", "bare", "extended", "no_norm"]
AttentionDirection = Literal["causal", "bidirectional"]
Positions = Literal["learned", "linear", "sinusoidal", "none"]
Activation = Literal["gelu", "gelu_tanh", "relu"]
Initialisation = Literal["fan_in", "normal", "gpt2", "template", "mimetic", "uniform"]


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(TransformerLensSettings):
    """Settings of a `hooks.Transformer`. Every field but the first three has a default.

    Raises:
        ValueError: a size below one, an unknown choice, heads that do not divide the width, or `head_patterns` that do
            not fit the heads and layers.
    """

    architecture: ClassVar[str] = "transformer"
    """Name of the architecture in stored settings."""
    d_vocab: int
    """Number of token ids the model reads."""
    d_model: int
    """Width of the residual stream."""
    n_heads: int
    """Attention heads per layer."""
    n_layers: int = 2
    """Applied layers. A tied model applies one stored block this many times."""
    n_ctx: int = 128
    """Longest sequence the model accepts."""
    d_vocab_out: int = 0
    """Number of logits per position; 0 means `d_vocab`."""
    d_head: int = 0
    """Width of one head; 0 means `d_model / n_heads`, which must then be whole."""
    d_mlp: int | None = None
    """Hidden width of the MLP; None means `4 * d_model`, 0 means no MLP at all."""
    block: BlockName | str = "pre_ln"
    """How a layer is wired; see `hooks.model.blocks` for the seven equations, and `register_block` for others."""
    attention: AttentionDirection = "bidirectional"
    """Whether a query sees later positions."""
    tied_embedding: bool = False
    """The read-out is the transpose of the token embedding (logits = x W_E^T), without a bias."""
    embedding: BracketStates | None = None
    """Frozen vectors of bracket and depth (a minimal first layer) instead of one learned vector per token."""
    positions: Positions = "learned"
    """`linear` adds i / n_ctx to the last coordinate of the residual stream."""
    tied: bool = False
    """One block applied `n_layers` times (ALBERT) instead of `n_layers` blocks (BERT)."""
    activation: Activation = "gelu"
    """Nonlinearity of the MLP."""
    attn_scale: float = 0.0
    """Scores are divided by this; 0 means sqrt(d_head)."""
    attn_bias: bool = True
    """Biases on queries, keys, values and the output projection."""
    mlp_bias: bool = True
    """Biases in the MLP; that of `extended` never has any."""
    output_projection: bool = True
    """False: the output of attention is z of all heads, concatenated; they must then fill `d_model`."""
    layer_norm_eps: float = 1e-5
    """Added to the variance inside every LayerNorm."""
    head_patterns: tuple[tuple[HeadPattern, ...], ...] | Pathways = ()
    """Hard-coded heads: one row for all layers or one row per layer, each with one entry per head; or `Pathways`, the
    same mixture in every layer. Empty: every head is learned."""
    qk_identity: bool = False
    """Adds a_h * x x^T to the scores of head h (template paper, a I on W_Q W_K^T)."""
    vo_identity: bool = False
    """Adds b_h * A_h x to the output of head h (template paper, b I on W_V W_O)."""
    init: Initialisation = "fan_in"
    """`fan_in`: N(0, 1/fan_in), embeddings N(0, 0.5^2). `normal`: N(0, 0.02^2). `gpt2`: `normal`, with the
    two projections into the residual stream divided by sqrt(2 n_layers). `template`: uniform within 1/sqrt(fan_in)
    (torch's own), embeddings N(0, 1). `mimetic`: `template`, with W_Q W_K^T near a multiple of the identity.
    `uniform`: every weight from U(-1, 1)."""
    embedding_std: float = 0.0
    """Standard deviation of token and position embeddings at the start; 0 means that of `init`."""
    version: int = field(default=1, init=False, repr=False)

    def __post_init__(self):
        # Check each field alone
        check_field_types(self)
        check_fields(self, "d_vocab", "d_model", "n_heads", "n_layers", "n_ctx", integer=True, low=1)
        check_fields(self, "d_head", "d_vocab_out", "d_mlp", integer=True, low=0)
        check_fields(self, "attn_scale", "embedding_std", "layer_norm_eps", low=0)
        _ = self.block_class  # raises if there is none
        if not self.d_head and self.d_model % self.n_heads:
            raise ValueError(
                f"n_heads is {self.n_heads}, which does not divide d_model {self.d_model}; "
                f"choose another number of heads or set d_head."
            )
        # Replace defaults by the sizes that follow from other fields
        derived: dict[str, Any] = {
            "d_vocab_out": self.d_vocab_out or self.d_vocab,
            "d_head": self.d_head or self.d_model // self.n_heads,
            "d_mlp": 4 * self.d_model if self.d_mlp is None else self.d_mlp,
            "head_patterns": self.pathways or tuple(map(tuple, self.rows)),
        }
        derived["attn_scale"] = self.attn_scale or float(derived["d_head"] ** 0.5)
        for name, value in derived.items():
            object.__setattr__(self, name, value)
        # Check fields against each other
        self._check_head_patterns()
        self._check_widths()

    @property
    def block_class(self) -> Any:
        """The subclass of `hooks.model.blocks.Block` that `block` names.

        Raises:
            ValueError: no block has this name.
        """
        return find_block(self.block)

    @property
    def attn_only(self) -> bool:
        """True when layers have no MLP."""
        return self.d_mlp == 0

    @property
    def normalization_type(self) -> str | None:
        """`LN` if there is a final LayerNorm before the read-out, else None; a name of TransformerLens."""
        return "LN" if self.block_class.final_norm else None

    @property
    def embedding_width(self) -> int:
        """Width of the embeddings."""
        return self.d_model

    @property
    def pathways(self) -> Pathways | None:
        """`head_patterns`, if they are `Pathways`."""
        return self.head_patterns if isinstance(self.head_patterns, Pathways) else None

    @property
    def rows(self) -> tuple[tuple[HeadPattern, ...], ...]:
        """`head_patterns` as rows: none, one for all layers, or one per layer."""
        if isinstance(self.head_patterns, Pathways):
            return (self.head_patterns.patterns(self.d_head, self.n_heads * self.d_head),)
        return self.head_patterns

    def _check_widths(self):
        # Without an output projection the heads are the residual stream
        if not self.output_projection and self.n_heads * self.d_head != self.d_model:
            raise ValueError(
                f"output_projection is off, but {self.n_heads} heads of d_head {self.d_head} do not fill d_model "
                f"{self.d_model}."
            )
        if self.tied_embedding and (self.embedding is not None or self.d_vocab_out != self.d_vocab):
            raise ValueError(
                f"tied_embedding reads out with the embedding of {self.d_vocab} learned tokens, but d_vocab_out is "
                f"{self.d_vocab_out} and embedding {self.embedding}; remove these."
            )
        # Frozen vectors have a vocabulary and a least width
        if self.embedding is None:
            return
        if self.d_vocab != self.embedding.d_vocab:
            raise ValueError(f"d_vocab is {self.d_vocab}; the embedding has {self.embedding.d_vocab} tokens.")
        if self.d_model < self.embedding.width:
            raise ValueError(
                f"d_model is {self.d_model}; the embedding {self.embedding.encoding!r} needs {self.embedding.width} "
                f"or more."
            )

    def _check_head_patterns(self):
        # Options that rows and pathways exclude
        if self.pathways is None:
            check_patterns(pattern for row in self.rows for pattern in row)
        elif self.attention == "causal":
            raise ValueError("pathways look at later tokens too, but attention is 'causal'; make it 'bidirectional'.")
        elif self.qk_identity or self.vo_identity or not self.output_projection:
            raise ValueError(
                "pathways need output_projection, and neither qk_identity nor vo_identity; change these, or give "
                "head_patterns as rows."
            )
        # Numbers of rows and of heads, and tokens of the vocabulary
        if len(self.rows) not in (0, 1, self.n_layers):
            raise ValueError(
                f"head_patterns has {len(self.rows)} rows; give one row for all layers or {self.n_layers}."
            )
        for layer, row in enumerate(self.rows):
            if len(row) != self.n_heads:
                raise ValueError(f"head_patterns row {layer} has {len(row)} entries; n_heads is {self.n_heads}.")
            for pattern in row:
                if pattern.token is not None and not 0 <= pattern.token < self.d_vocab:
                    raise ValueError(f"head_patterns broadcasts token {pattern.token}; d_vocab is {self.d_vocab}.")

    def patterns_of(self, layer: int) -> tuple[HeadPattern, ...]:
        """The pattern of each head of an applied layer; empty if every head of it is learned."""
        rows = self.rows
        if not rows:
            return ()
        row = rows[0] if len(rows) == 1 else rows[layer]
        return () if all(pattern.learned for pattern in row) else row

    def with_depth(self, n_layers: int) -> "TransformerConfig":
        """The same settings with another number of applied layers."""
        return replace(self, n_layers=n_layers)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        values: dict[str, Any] = {}
        for config_field in fields(self):
            values[config_field.name] = getattr(self, config_field.name)
            # Pathways have a separate field next to it, as in files of earlier versions
            if config_field.name == "head_patterns" and self.pathways is not None:
                values["head_patterns"] = []
                values["pathways"] = self.pathways.to_dict()
            elif config_field.name == "head_patterns":
                values["head_patterns"] = [[_pattern_values(pattern) for pattern in row] for row in self.rows]
        if self.mlp_bias:
            del values["mlp_bias"]  # files of earlier versions do not have it
        values["embedding"] = None if self.embedding is None else self.embedding.to_dict()
        return values

    def to_json(self) -> str:
        """The settings as a JSON object."""
        return json.dumps(self.to_dict(), sort_keys=True)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "TransformerConfig":
        """Settings from `to_dict`.

        Raises:
            ValueError: another architecture, a field this version does not know, or a newer format.
        """
        values = dict(values)
        architecture = values.pop("architecture", cls.architecture)
        if architecture != cls.architecture:
            raise ValueError(f"the config is of architecture {architecture!r}, not {cls.architecture!r}.")
        version = values.pop("version", 1)
        if version != 1:
            raise ValueError(f"the config has version {version}; this unmyopic reads version 1. Upgrade unmyopic.")
        pathways = values.pop("pathways", None)
        # Plain values of parts become their classes
        if pathways is not None:
            values["head_patterns"] = Pathways.from_dict(pathways)
        return restored(cls, values)

    @classmethod
    def from_json(cls, text: str) -> "TransformerConfig":
        """Settings from `to_json`."""
        return cls.from_dict(parse_json(text))


def _pattern_values(pattern: HeadPattern) -> dict[str, Any]:
    return {"kind": pattern.kind, "kernel": list(pattern.kernel), "token": pattern.token}
