"""Small transformers with a hook point at every step, interventions, and adapters for other libraries."""

import sys
import warnings

from hooks.lazy_names import attach_stub

if "ipykernel" in sys.modules:
    # TransformerLens imports tqdm, which warns in a notebook that its bars need ipywidgets; ours do not
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="IProgress not found")
        import tqdm.auto  # noqa: F401

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
