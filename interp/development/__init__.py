"""How a reading comes to be: analyses over the snapshots of a training run."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
