"""Attention heads: classification, ablation, attention pages, identity components."""

from hooks.lazy_names import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
