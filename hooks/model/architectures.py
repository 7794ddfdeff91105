"""Models from configs, and configs from their descriptions, of any architecture."""

from typing import Any

from hooks.model.baseline import Baseline
from hooks.model.config import TransformerConfig
from hooks.model.encoder import Encoder, EncoderConfig
from hooks.model.fully_connected import FullyConnected, FullyConnectedConfig
from hooks.model.recurrent import Recurrent, RecurrentConfig
from hooks.model.transformer import Transformer, TransformerStack

Config = TransformerConfig | FullyConnectedConfig | RecurrentConfig
Model = TransformerStack | Baseline


def make_model(cfg: Config, *, seed: int = 0) -> Any:
    """An untrained model of the class that the config belongs to."""
    if isinstance(cfg, FullyConnectedConfig):
        return FullyConnected(cfg, seed=seed)
    if isinstance(cfg, RecurrentConfig):
        return Recurrent(cfg, seed=seed)
    return Encoder(cfg, seed=seed) if isinstance(cfg, EncoderConfig) else Transformer(cfg, seed=seed)


def config_from_dict(values: dict[str, Any]) -> Config:
    """A config from its `to_dict`.

    Raises:
        ValueError: an architecture or a field that this version does not know.
    """
    architecture = values.get("architecture", "transformer")
    if architecture == "transformer":
        return TransformerConfig.from_dict({name: value for name, value in values.items() if name != "architecture"})
    if architecture == "encoder":
        return EncoderConfig.from_dict(values)
    for one in (FullyConnectedConfig, RecurrentConfig):
        if architecture == one.architecture:
            return one.from_dict(values)
    raise ValueError(
        f"the config is of a {architecture!r}; this unmyopic knows transformer, encoder, fully_connected and recurrent."
    )
