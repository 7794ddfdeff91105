"""TransformerLens bridges as models with canonical hook names, whose hook points are tested at load time."""

from hooks.adapters.bridge.adapter import BridgeConfig, BridgeModel, from_bridge
from hooks.adapters.bridge.capabilities import Capabilities
from hooks.adapters.bridge.sites import Cell

__all__ = ["BridgeConfig", "BridgeModel", "Capabilities", "Cell", "from_bridge"]
