"""Models from configs, and configs from their descriptions, of any architecture."""

from typing import Any

from hooks.model.baseline import Baseline
from hooks.model.config import TransformerConfig
from hooks.model.encoder import Encoder, EncoderConfig
from hooks.model.fully_connected import FullyConnected, FullyConnectedConfig
from hooks.model.recurrent import Recurrent, RecurrentConfig
from hooks.model.transformer import Transformer, TransformerStack
from hooks.typed import checks_types

Config = TransformerConfig | FullyConnectedConfig | RecurrentConfig
Model = TransformerStack | Baseline

_CLASSES: dict[str, tuple[Any, Any]] = {
    config_class.architecture: (config_class, model_class)
    for config_class, model_class in (
        (TransformerConfig, Transformer),
        (EncoderConfig, Encoder),
        (FullyConnectedConfig, FullyConnected),
        (RecurrentConfig, Recurrent),
    )
}
"""Classes of config and model, by architecture."""


@checks_types
def make_model(cfg: Config, *, seed: int = 0) -> Any:
    """An untrained model of the class that the config belongs to.

    >>> from hooks import RecurrentConfig, make_model
    >>> make_model(RecurrentConfig(d_vocab=5, n_ctx=8)).cfg.architecture
    'recurrent'

    Args:
        cfg: The config.
        seed: Decides the initial weights, without torch's global generator.
    """
    if not isinstance(cfg, Config):
        raise ValueError(f"cfg is a {type(cfg).__name__}; it must be the config of a model.")
    _, model_class = _CLASSES[cfg.architecture]
    return model_class(cfg, seed=seed)


def config_from_dict(values: dict[str, Any]) -> Config:
    """A config from its `to_dict`.

    Raises:
        ValueError: an architecture or a field that this version does not know.
    """
    architecture = values.get("architecture", TransformerConfig.architecture)
    if architecture not in _CLASSES:
        raise ValueError(f"the config is of architecture {architecture!r}; this unmyopic knows {', '.join(_CLASSES)}.")
    config_class, _ = _CLASSES[architecture]
    return config_class.from_dict(values)
