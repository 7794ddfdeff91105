"""What models without attention share: the fields of a transformer's config that analyses read, and stored settings."""

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from torch import nn

from hooks.model.checked_hooks import CheckedHooks
from hooks.model.layers import Module
from hooks.model.traits import ModelTraits
from hooks.typed import restored


@dataclass(frozen=True, kw_only=True)
class BaselineConfig:
    """Settings of a `hooks.model.baseline.Baseline`."""

    architecture: ClassVar[str]
    """Name of the architecture in stored settings."""
    kind: ClassVar[str]
    """What the model is, in error texts."""
    d_vocab: int
    """Number of token ids the model reads."""
    n_ctx: int
    """Length of the strings."""
    d_vocab_out: int = 1
    """Number of outputs."""

    n_layers = 0
    n_heads = 0
    head_patterns = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {"architecture": self.architecture, **asdict(self)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Any:
        """Settings from `to_dict`.

        Raises:
            ValueError: a field this version does not know.
        """
        values = {name: value for name, value in values.items() if name != "architecture"}
        return restored(cls, values)


class Baseline(ModelTraits, Module, CheckedHooks):
    """A model without attention: `model(tokens)` gives (batch, pos, d_vocab_out), as a transformer does.

    It is trained, stored and scored like a transformer; analyses of heads and of the residual stream refuse it.
    """

    cfg: Any
    tokenizer: Any
    has_attention = False
    takes_read_at = False

    @property
    def kind(self) -> str:
        return self.cfg.kind

    def identity_scalars(self) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
        """No scalars of a I and b I: the network has no attention."""
        return [], []
