"""The part of a config that a layer reads. Blocks import this; the config imports blocks, to check their names."""

from typing import Protocol, runtime_checkable

from hooks.model.hardcoded.head_patterns import Pathways


@runtime_checkable
class LayerConfig(Protocol):
    """Settings of a layer, documented in `hooks.TransformerConfig`, which has them all."""

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
