"""Pruning random networks to given functions (the strong lottery ticket of Theorem 3), and pruning trained models.

`transformers` and `matrices` prune random networks, `shared_matrix` two of them that share a matrix; `curve` prunes a
trained model further and further.
"""

from hooks.lazy_names import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
