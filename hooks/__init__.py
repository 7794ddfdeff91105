"""A small transformer you can read, watch and change."""

from hooks.adapters.bridge import BridgeModel, from_bridge
from hooks.adapters.huggingface import ParityReport, from_huggingface, save_huggingface
from hooks.checkpoint import load_checkpoint, save_checkpoint
from hooks.hardcoded.head_patterns import HeadPattern, Pathways
from hooks.hardcoded.lego_attention import LegoAttention
from hooks.hardcoded.token_maps import TokenMaps, token_maps
from hooks.interventions.verify import VerifyReport, verify
from hooks.model import presets
from hooks.model.architectures import make_model
from hooks.model.config import TransformerConfig
from hooks.model.embeddings import BracketStates
from hooks.model.encoder import Encoder, EncoderConfig
from hooks.model.fully_connected import FullyConnected, FullyConnectedConfig
from hooks.model.transformer import Transformer

__all__ = [
    "BracketStates",
    "BridgeModel",
    "Encoder",
    "EncoderConfig",
    "FullyConnected",
    "FullyConnectedConfig",
    "HeadPattern",
    "LegoAttention",
    "ParityReport",
    "Pathways",
    "TokenMaps",
    "Transformer",
    "TransformerConfig",
    "VerifyReport",
    "from_bridge",
    "from_huggingface",
    "load_checkpoint",
    "make_model",
    "presets",
    "save_checkpoint",
    "save_huggingface",
    "token_maps",
    "verify",
]
