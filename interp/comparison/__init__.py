"""How models differ: in attention between seeds, and from step to step of their training."""

from hooks.lazy_names import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
