"""Loading and saving GPT-2, BERT and ALBERT in Hugging Face's format."""

from hooks.adapters.huggingface.loading import from_huggingface
from hooks.adapters.huggingface.parity import ParityReport
from hooks.adapters.huggingface.saving import save_huggingface

__all__ = ["ParityReport", "from_huggingface", "save_huggingface"]
