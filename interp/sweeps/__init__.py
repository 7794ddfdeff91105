"""Many models: grids, training in processes, on a cluster or stacked, and tables over them."""

from hooks.lazy_names import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
