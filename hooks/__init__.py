"""A small transformer you can read, watch and change."""

from hooks.architectures import make_model
from hooks.checkpoint import load_checkpoint, save_checkpoint
from hooks.config import TransformerConfig
from hooks.embeddings import BracketStates
from hooks.fully_connected import FullyConnected, FullyConnectedConfig
from hooks.head_patterns import HeadPattern
from hooks.transformer import Transformer
from hooks.verify import VerifyReport, verify

__all__ = [
    "BracketStates",
    "FullyConnected",
    "FullyConnectedConfig",
    "HeadPattern",
    "Transformer",
    "TransformerConfig",
    "VerifyReport",
    "load_checkpoint",
    "make_model",
    "save_checkpoint",
    "verify",
]
