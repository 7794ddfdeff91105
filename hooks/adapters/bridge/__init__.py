"""TransformerLens bridges as models with canonical hook names, whose hook points are tested at load time."""

from hooks.lazy_names import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
