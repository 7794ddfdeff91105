"""A small transformer you can read, watch and change."""

from hooks.architectures import make_model
from hooks.checkpoint import load_checkpoint, save_checkpoint
from hooks.config import TransformerConfig
from hooks.embeddings import BracketStates
from hooks.encoder import Encoder, EncoderConfig
from hooks.foreign import ForeignModel, foreign
from hooks.fully_connected import FullyConnected, FullyConnectedConfig
from hooks.head_patterns import HeadPattern
from hooks.huggingface import ParityReport, from_huggingface, save_huggingface
from hooks.lego_attention import LegoAttention
from hooks.pathways import Pathways
from hooks.token_maps import TokenMaps, token_maps
from hooks.transformer import Transformer
from hooks.verify import VerifyReport, verify

__all__ = [
    "BracketStates",
    "Encoder",
    "EncoderConfig",
    "ForeignModel",
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
    "foreign",
    "from_huggingface",
    "load_checkpoint",
    "make_model",
    "save_checkpoint",
    "save_huggingface",
    "token_maps",
    "verify",
]
