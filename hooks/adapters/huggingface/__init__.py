"""Loading and saving GPT-2, BERT and ALBERT in Hugging Face's format."""

from hooks.lazy_names import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
