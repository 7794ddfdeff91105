"""How models differ: in attention between seeds, and from step to step of their training."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
