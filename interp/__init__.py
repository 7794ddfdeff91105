"""Interpretability for transformers trained on synthetic reasoning tasks. Names are imported on first use."""

from hooks.adapters.verbs import REGISTERED
from hooks.lazy_names import attach_stub

REGISTERED["interp"] = "interp.core.verbs:obstacles_of"  # shown where the capabilities of a wrapped model are printed

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
