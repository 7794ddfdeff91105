"""What one layer reads of a config, so that blocks and hook points need not import the config, which names blocks."""

from typing import Protocol, runtime_checkable

from hooks.hardcoded.head_patterns import Pathways


@runtime_checkable
class LayerConfig(Protocol):
    """The sizes and terms of a layer; `hooks.TransformerConfig` has them all, and says what each means."""

    @property
    def d_model(self) -> int: ...

    @property
    def n_heads(self) -> int: ...

    @property
    def d_mlp(self) -> int | None: ...

    @property
    def attn_only(self) -> bool: ...

    @property
    def activation(self) -> str: ...

    @property
    def mlp_bias(self) -> bool: ...

    @property
    def layer_norm_eps(self) -> float: ...

    @property
    def vo_identity(self) -> bool: ...

    @property
    def pathways(self) -> Pathways | None: ...
