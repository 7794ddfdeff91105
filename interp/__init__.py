"""Interpretability for transformers trained on synthetic reasoning tasks. Names are imported on first use."""

from hooks.adapters.verbs import REGISTERED
from hooks.lazy_names import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)


def _obstacles_of_verbs(capabilities):
    from interp.core.verbs import obstacles_of

    return obstacles_of(capabilities)


REGISTERED["interp"] = _obstacles_of_verbs  # shown where the capabilities of a wrapped model are printed
