"""Quantities that the papers' theorems are about.

- Bounded Dyck: the balance condition (Theorems 1 and 2, S and P of Eq. 15 and 17) in `balance`; pruning of random
  transformers (Theorem 3) in `pruning`.
- Template tasks: kernel regression and the matrix of templates in `kernels`.
- LEGO: following the chain or counting signs (Section 4.3) in `signs`.
"""

from hooks.lazy_names import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
