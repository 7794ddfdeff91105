"""Loading and saving GPT-2, BERT and ALBERT in Hugging Face's format."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
