"""Tasks: LEGO chains, bounded Dyck words, templates, text, in-context lookup, modular addition, indirect objects."""

from hooks.lazy_names import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
