"""Interpretability for transformers trained on synthetic reasoning tasks. Names are imported on first use."""

import lazy_loader

from hooks.adapters.verbs import REGISTERED

REGISTERED["interp"] = "interp.core.verbs:obstacles_of"  # shown where the capabilities of a wrapped model are printed

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
