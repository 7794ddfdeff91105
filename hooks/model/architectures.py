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

_CLASSES: tuple[tuple[Any, Any], ...] = (
    (FullyConnectedConfig, FullyConnected),
    (RecurrentConfig, Recurrent),
    (EncoderConfig, Encoder),
    (TransformerConfig, Transformer),
)
"""The model of each config; the first that fits, since an `EncoderConfig` is a `TransformerConfig` too."""


def make_model(cfg: Config, *, seed: int = 0) -> Any:
    """An untrained model of the class that the config belongs to.

    >>> from hooks import RecurrentConfig, make_model
    >>> make_model(RecurrentConfig(d_vocab=5, n_ctx=8)).cfg.architecture
    'recurrent'

    Args:
        cfg: The config.
        seed: Decides the initial weights, without torch's global generator.
    """
    for config_class, model_class in _CLASSES:
        if isinstance(cfg, config_class):
            return model_class(cfg, seed=seed)
    raise ValueError(f"cfg is a {type(cfg).__name__}; it must be the config of a model.")


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
    for config_class in (FullyConnectedConfig, RecurrentConfig):
        if architecture == config_class.architecture:
            return config_class.from_dict(values)
    raise ValueError(
        f"the config is of a {architecture!r}; this unmyopic knows transformer, encoder, fully_connected and recurrent."
    )
