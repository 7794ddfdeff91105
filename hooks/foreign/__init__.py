"""Models of TransformerLens's bridges, with what can be read and edited there found out by trying."""

from hooks.foreign.adapter import ForeignModel, foreign
from hooks.foreign.capabilities import Capabilities, Cell
from hooks.foreign.config import ForeignConfig

__all__ = ["Capabilities", "Cell", "ForeignConfig", "ForeignModel", "foreign"]
