"""Weights of Hugging Face's GPT-2, BERT and ALBERT, exactly, and back."""

from hooks.huggingface.loading import from_huggingface
from hooks.huggingface.parity import ParityReport
from hooks.huggingface.saving import save_huggingface

__all__ = ["ParityReport", "from_huggingface", "save_huggingface"]
