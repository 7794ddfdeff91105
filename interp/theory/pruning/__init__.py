"""Pruning random networks to given functions (the strong lottery ticket of Theorem 3), and pruning trained models.

`transformers` and `matrices` prune random networks, `shared_matrix` two of them that share a matrix; `curve` prunes a
trained model further and further.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
