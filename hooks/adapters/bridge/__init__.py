"""Models of TransformerLens's bridges, with what can be read and edited there found out by trying."""

from hooks.adapters.bridge.adapter import BridgeModel, from_bridge
from hooks.adapters.bridge.capabilities import Capabilities, Cell
from hooks.adapters.bridge.config import ForeignConfig

__all__ = ["BridgeModel", "Capabilities", "Cell", "ForeignConfig", "from_bridge"]
