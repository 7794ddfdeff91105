"""Tasks: LEGO chains, bounded Dyck words, templates, text, in-context lookup, modular addition, indirect objects."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
