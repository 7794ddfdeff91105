"""Weights of Hugging Face's GPT-2, BERT and ALBERT, exactly, and back."""

from hooks.adapters.huggingface.loading import from_huggingface
from hooks.adapters.huggingface.parity import ParityReport
from hooks.adapters.huggingface.saving import save_huggingface

__all__ = ["ParityReport", "from_huggingface", "save_huggingface"]
