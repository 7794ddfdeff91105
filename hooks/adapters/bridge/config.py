"""The sizes of somebody else's model, under our names."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from hooks.model.config import TransformerConfig


@dataclass(frozen=True, kw_only=True)
class ForeignConfig:
    """What the analyses ask of a config. It makes no model: see `BridgeModel.untrained`."""

    architecture: str
    """The class that the bridge was built around."""
    n_layers: int
    n_heads: int
    """Query heads per layer."""
    n_key_value_heads: int
    """Heads that have keys and values of their own; each serves as many query heads."""
    d_head: int
    d_model: int
    d_vocab: int
    d_vocab_out: int
    """Logits per position."""
    n_ctx: int
    attention: Literal["causal", "bidirectional"]
    attn_scale: float
    """What scores are divided by."""

    vo_identity: ClassVar[bool] = False
    qk_identity: ClassVar[bool] = False
    head_patterns: ClassVar[tuple] = ()

    def patterns_of(self, layer: int) -> tuple:
        """No head is hard-coded."""
        return ()

    @property
    def masking(self) -> TransformerConfig:
        """A config of ours under which queries see the same keys."""
        return TransformerConfig(d_vocab=1, d_model=1, n_heads=1, attention=self.attention)
