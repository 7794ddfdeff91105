"""A small transformer you can read, watch and change."""

from hooks.checkpoint import load_checkpoint, save_checkpoint
from hooks.config import TransformerConfig
from hooks.embeddings import BracketStates
from hooks.head_patterns import HeadPattern
from hooks.transformer import Transformer
from hooks.verify import VerifyReport, verify

__all__ = [
    "BracketStates",
    "HeadPattern",
    "Transformer",
    "TransformerConfig",
    "VerifyReport",
    "load_checkpoint",
    "save_checkpoint",
    "verify",
]
