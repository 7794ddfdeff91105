"""Pruning random networks to given functions (the strong lottery ticket of Theorem 3), and pruning trained models."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
