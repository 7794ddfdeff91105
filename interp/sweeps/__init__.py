"""Many models: grids, training in processes, on a cluster or stacked, and tables over them."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
